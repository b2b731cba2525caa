"""A training step of one model as seen by one device: layers with their operator graphs and repetition counts."""

from dataclasses import dataclass
from enum import StrEnum

from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.operators import Operator


class OptimizerKind(StrEnum):
    """The optimizer, which decides the state kept per parameter."""

    SGD = "sgd"
    ADAM = "adam"


class Recompute(StrEnum):
    """What of a layer's activations is dropped after the forward pass and computed again before the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    """The attention core: scores, softmax, dropout and context (Korthikanti et al. 2022, arXiv:2205.05198)."""
    FULL = "full"
    """Everything but the layer's input (Chen et al. 2016, arXiv:1604.06174)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterBytes:
    """Bytes kept on a device for each of its parameters."""

    weight: float
    """The weight that devices exchange where they share states."""
    weight_copies: float = 0.0
    """Copies of it in the format of matrix products, made on the device and never exchanged."""
    gradient: float
    optimizer: float
    """Master weight and optimizer moments."""

    @property
    def total(self) -> float:
        """Bytes per parameter altogether."""
        return self.weight + self.weight_copies + self.gradient + self.optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer on one of the devices that share it.

    ``forward`` and ``backward`` are operator graphs in a topological order; the backward graph holds data and weight
    gradients. Byte counts are per device and per microbatch.
    """

    name: str
    forward: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    parameters: int
    """All parameters on the device, those of routed experts included."""
    expert_parameters: int = 0
    """Parameters of routed experts on the device: with expert parallelism they have fewer replicas than the others."""
    stash_bytes: int
    """Activation bytes kept for the backward pass when nothing is recomputed; the layer's input is part of it."""
    selective_stash_bytes: int | None = None
    """The same under selective recomputation; ``None`` where nothing can be recomputed selectively."""
    selective_replay: tuple[str, ...] = ()
    """Names of the forward operators that selective recomputation runs again, in topological order."""
    full_replay: tuple[str, ...] = ()
    """The same of full recomputation where it stops early; empty where it runs the whole forward graph again."""
    input_bytes: int
    """Bytes of the activation that enters the layer: what is kept of it under full recomputation, and what crosses
    a stage boundary before it. 0 for the first layer."""
    output_bytes: int
    """Bytes of the activation that leaves the layer. 0 for the last; where layers differ, what crosses a boundary is
    what enters the next."""
    carried_bytes: int = 0
    """Bytes among ``input_bytes`` that leave unchanged, as an encoder's output does from a decoder's blocks: a stage
    keeps them once for all its layers, and neither ``stash_bytes`` counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """What one device of a stage executes for one microbatch of each layer."""

    model: str
    sharding: LayerSharding
    """How the devices of a stage share each layer."""
    sequence_length: int
    layers: tuple[tuple[Layer, int], ...]
    """Distinct layers in model order, each with how many times it repeats in a row."""
    parameter_bytes: ParameterBytes
    optimizer: OptimizerKind
    flops_per_token: float
    """Model FLOPs per token, forward and backward, without recomputation, over all devices (for MFU)."""

    @property
    def tensor_parallel(self) -> int:
        """Devices that share each matrix."""
        return self.sharding.tensor

    @property
    def microbatch(self) -> int:
        """Sequences per microbatch."""
        return self.sharding.microbatch

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch, over all devices of a stage."""
        return self.microbatch * self.sequence_length
