"""Who writes and who reads each tensor of a layer, and what waits between the passes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from archplace.workloads.operators import Phase
from archplace.workloads.traced.tensor_graph import TensorLayer, TensorOp, TensorRole


class Side(StrEnum):
    """One of the two passes over a layer."""

    FORWARD = "forward"
    BACKWARD = "backward"

    @classmethod
    def of(cls, op: TensorOp) -> "Side":
        """Return the pass that an operator belongs to."""
        return cls.FORWARD if op.phase is Phase.FORWARD else cls.BACKWARD


Value = tuple[int, Side]
"""A tensor as one pass sees it: what both see is kept between them in one state, and each pass converts for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The values of a layer."""

    producer: dict[int, int]
    """Operator that writes a tensor; what enters the layer has none."""
    kept: tuple[int, ...]
    """Activations of the forward pass that the backward pass reads."""
    parameters: tuple[int, ...]
    gradients: tuple[int, ...]
    """Gradients of parameters as the optimizer reads them: without those from which an operator makes others."""
    given: tuple[int, ...]
    """What an operator reads and none writes, parameters apart: what enters, constants, and what the trace does not
    say the origin of."""
    values: tuple[Value, ...]
    """All values, in the order of the tensors."""

    @classmethod
    def of(cls, layer: TensorLayer) -> Self:
        """Return the flow of a layer.

        Raises ``ValueError`` that names the operator where two write one tensor, where one reads what a later one
        writes, or a forward operator follows a backward one.
        """
        producer = _producers(layer)
        tensors = layer.tensors
        read: dict[Side, set[int]] = {side: set() for side in Side}
        for op in layer.operators:
            read[Side.of(op)] |= {access.tensor for access in op.reads}
        written = {t: Side.of(layer.operators[op]) for t, op in producer.items()}
        left = {Side.FORWARD: set(layer.leaves), Side.BACKWARD: set(layer.gradients_leave)}
        parameters = tuple(t for t, tensor in enumerate(tensors) if tensor.role is TensorRole.PARAMETER)
        used = set().union(*read.values(), *left.values(), layer.enters, layer.gradients_enter)
        given = tuple(sorted(used - producer.keys() - set(parameters)))
        begins_backward = {t for t, side in written.items() if side is Side.BACKWARD} | set(layer.gradients_enter)
        kept = tuple(
            t
            for t in sorted(read[Side.BACKWARD] - begins_backward - set(parameters))
            if t in producer or (t in layer.enters and tensors[t].role is TensorRole.ACTIVATION)
        )
        values = [
            (t, side)
            for t in range(len(tensors))
            for side in Side
            if written.get(t, side) is side or (side is Side.BACKWARD and t in read[side])
            if t in producer or t in read[side] or t in left[side]
        ]
        return cls(
            producer=producer,
            kept=kept,
            parameters=parameters,
            gradients=_gradients(layer, producer),
            given=given,
            values=tuple(values),
        )


def _gradients(layer: TensorLayer, producer: dict[int, int]) -> tuple[int, ...]:
    """Gradients that operators write, without those from which others are added up or exchanged."""
    roles = [tensor.role for tensor in layer.tensors]
    added = {
        read.tensor
        for op in layer.operators
        if any(roles[write.tensor] is TensorRole.GRADIENT for write in op.writes)
        for read in op.reads
    }
    return tuple(t for t in producer if roles[t] is TensorRole.GRADIENT and t not in added)


def _producers(layer: TensorLayer) -> dict[int, int]:
    producer: dict[int, int] = {}
    seen: set[int] = set()
    side = Side.FORWARD
    for i, op in enumerate(layer.operators):
        if Side.of(op) is Side.FORWARD and side is Side.BACKWARD:
            raise ValueError(f"layer {layer.name}: forward operator {op.name} stands behind backward operators")
        side = Side.of(op)
        seen |= {access.tensor for access in op.reads}
        for access in op.writes:
            name = layer.tensors[access.tensor].name
            if access.tensor in producer:
                first = layer.operators[producer[access.tensor]].name
                raise ValueError(f"layer {layer.name}: tensor {name} is written by {first} and again by {op.name}")
            if access.tensor in seen:
                raise ValueError(f"layer {layer.name}: tensor {name} is read before {op.name} writes it")
            producer[access.tensor] = i
    return producer
