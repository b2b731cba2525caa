"""Bytes that one device keeps: parameters, gradients, optimizer states and activations."""

from dataclasses import dataclass

from archplace.workloads.training_step import Layer, ParameterBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each device of one pipeline stage."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float

    @property
    def total_bytes(self) -> float:
        """Bytes altogether."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """What one layer adds to a stage's memory; a stage's memory is linear in the layers it holds.

    Without recomputation each microbatch in flight keeps the layer's stash. With full recomputation (Chen et al., 2016,
    arXiv 1604.06174) it keeps the layer's input, and one layer at a time has its stash back while its backward pass
    runs: ``working_bytes``, of which a stage needs the largest.
    """

    state_bytes: float
    """Parameters, gradients and optimizer states."""
    in_flight_bytes: float
    """Activations per microbatch in flight."""
    working_bytes: float

    @classmethod
    def of(cls, layer: Layer, parameter_bytes: ParameterBytes, *, recompute: bool) -> "LayerMemory":
        """Return the memory of ``layer``."""
        return cls(
            state_bytes=layer.parameters * parameter_bytes.total,
            in_flight_bytes=float(layer.input_bytes if recompute else layer.stash_bytes),
            working_bytes=float(layer.stash_bytes if recompute else 0),
        )


def stage_memory(
    layers: tuple[tuple[Layer, int], ...], parameter_bytes: ParameterBytes, *, recompute: bool, in_flight: int
) -> StageMemory:
    """Return the memory of a stage that holds ``layers`` (each with a count) and ``in_flight`` microbatches.

    In 1F1B the stage that is s-th from the end has s microbatches in flight, or as many as there are if those are fewer
    (Narayanan et al., PipeDream-Flush, 2021).
    """
    parameters = float(sum(layer.parameters * count for layer, count in layers))
    parts = [(LayerMemory.of(layer, parameter_bytes, recompute=recompute), count) for layer, count in layers if count]
    kept = sum(part.in_flight_bytes * count for part, count in parts)
    working = max((part.working_bytes for part, _ in parts), default=0.0)
    return StageMemory(
        weights_bytes=parameters * (parameter_bytes.weight + parameter_bytes.weight_copies),
        gradients_bytes=parameters * parameter_bytes.gradient,
        optimizer_bytes=parameters * parameter_bytes.optimizer,
        activations_bytes=in_flight * kept + working,
    )
