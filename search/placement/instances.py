"""Placement instances: a layer chain per tensor-parallel width and the machine it shall run on.

Two kinds, for the cost formulas of two placement solvers: PHAZE's, with one flat network, and NEST's, with levels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from archplace.search.placement.prices import FloatArray, IntArray


class Optimizer(StrEnum):
    """The optimizer, which decides the memory per parameter."""

    SGD = "SGD"
    ADAM = "Adam"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerChain:
    """A chain of ``n`` layers in pipeline order, as one device of a tensor-parallel group sees it; arrays ``(n,)``."""

    layer_ids: tuple[int, ...]
    """What the file calls the layers."""
    forward_s: FloatArray
    """Seconds of the forward pass, per microbatch."""
    backward_s: FloatArray
    parameter_bytes: FloatArray
    activation_bytes: FloatArray
    """All activations kept for the backward pass, per microbatch."""
    tensor_parallel: NDArray[np.bool_]
    """Whether the layer is spread over the width's devices."""
    edge_sources: IntArray
    """``(n_edges,)``, positions in the chain; edges may skip layers."""
    edge_targets: IntArray
    edge_bytes: FloatArray
    """Bytes per microbatch, sent if a stage boundary lies between source and target."""

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.layer_ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementInstance:
    """One question for the placement search, as PHAZE asks it."""

    name: str
    chains: Mapping[int, LayerChain]
    """By tensor-parallel width."""
    memory_bytes: float
    """Capacity of one device."""
    max_devices: int
    bandwidth_bytes_per_s: float
    """Of the flat network between any two devices."""
    microbatches: int
    """Microbatches of one batch, over all replicas."""
    recompute: bool
    optimizer: Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """One level of a network that branches like a tree; the innermost connects the devices themselves."""

    fan_out: int
    """Devices, or groups of the level below, that one group of this level connects."""
    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NestInstance:
    """One question for the placement search, as NEST asks it: more degrees given, and a network with levels."""

    name: str
    chains: Mapping[int, LayerChain]
    """By tensor-parallel width. Every layer is spread over the stage's devices."""
    memory_bytes: float
    """Capacity of one device."""
    max_devices: int
    expert_parallel: int
    context_parallel: int
    """Given, as ``expert_parallel`` is: a stage has tensor · expert · context devices, consecutive ones."""
    levels: tuple[NetworkLevel, ...]
    """Of the network, innermost first; their fan-outs multiply to ``max_devices`` or more."""
    microbatches: int
    """Microbatches of one batch, over all replicas."""
    recompute: bool
    recomputed_forward_as_backward: bool
    """Whether the forward pass that is repeated takes the backward pass's seconds, as NEST has it."""
    optimizer: Optimizer

    def stage_devices(self, tensor_parallel: int) -> int:
        """Return the devices of every stage at one tensor-parallel width."""
        return tensor_parallel * self.expert_parallel * self.context_parallel
