"""Placement instances: a layer chain per tensor-parallel width and the machine it shall run on."""

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
    """One question for the placement search."""

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
