"""What one pipeline stage costs: the arrays from which the placement search works, whatever formulas filled them.

A chain of ``n`` layers is cut into stages, each an interval ``[start, end)`` of layers. Everything that the search must
know about a stage is an array over such intervals, of shape ``(n + 1, n + 1)`` and indexed ``[start, end]``; entries
with ``start >= end`` are never read. A stage's *position* counts from the end of the pipeline: the last stage has
position 1. Where a replica's devices follow from the position, as they do where every stage has equally many, the loads
of a position can hold what its transfers cost on their way through the network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Synchronisation(Protocol):
    """Seconds per batch that the data-parallel replicas spend on exchanging gradients."""

    def __call__(self, replicas: IntArray, pipeline_devices: int, first_ends: IntArray) -> FloatArray:
        """Return seconds, shape ``(n_replicas, n_first_ends)``.

        ``replicas`` are numbers of replicas, ``pipeline_devices`` the devices of one replica's pipeline, ``first_ends``
        the layers at which the first stage may end.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagePrices:
    """The prices of all stages of one chain at one tensor-parallel width.

    The time of one batch is ``bottleneck · (ceil(microbatches / replicas) + stages - 1) + synchronisation``, where the
    bottleneck is the largest load of the pipeline's stages.
    """

    tensor_parallel: int
    load_s: Sequence[FloatArray]
    """Seconds per microbatch of a stage, by position: ``load_s[0]`` is the last stage's, ``load_s[1]`` the one before,
    and so on; the final entry holds for all earlier positions. Non-negative; ``inf`` forbids an interval. Where
    positions have the same loads, the same array should stand for them: it is prepared once."""
    base_bytes: FloatArray
    """Memory that one device of the stage needs with one microbatch in flight."""
    in_flight_bytes: FloatArray
    """Memory per further microbatch in flight; under 1F1B the stage at position ``p`` has ``p - 1`` of them."""
    devices: IntArray
    """Devices of one stage, at least 1."""
    synchronisation_s: Synchronisation
    synchronisation_grows: bool = True
    """Whether more replicas never synchronise faster. Then of all replica numbers that give the same microbatches per
    replica only the smallest is tried, otherwise every one."""
    synchronisation_by_devices: bool = True
    """Whether the synchronisation depends on the pipeline's devices. If not, it is asked for once."""
    layer_floor_s: tuple[FloatArray, FloatArray]
    """Two arrays ``(n,)``: seconds that each layer adds to the load of a stage that holds it, in the last stage and in
    any other, not negative. They only steer where the search ends: the answer is right with any values, and early with
    good ones."""

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.layer_floor_s[0])

    def load_at(self, position: int) -> FloatArray:
        """Return the loads at ``position``, shape ``(n + 1, n + 1)``."""
        return self.load_s[min(position, len(self.load_s)) - 1]

    def memory_at(self, position: int) -> FloatArray:
        """Return the bytes per device at ``position``, shape ``(n + 1, n + 1)``."""
        return self.base_bytes + (position - 1) * self.in_flight_bytes

    def stage_memory_bytes(self, start: int, end: int, position: int) -> float:
        """Return the bytes per device of one stage at ``position``."""
        return float(self.base_bytes[start, end] + (position - 1) * self.in_flight_bytes[start, end])

    def last_position(self, memory_bytes: float) -> IntArray:
        """Return the largest position at which each interval fits into ``memory_bytes``: 0 for none, at most ``n``.

        The answer agrees exactly with the comparison ``memory_at(position) <= memory_bytes`` in float64.
        """
        return last_position(self.base_bytes, self.in_flight_bytes, memory_bytes, self.n_layers)


def last_position(base_bytes: FloatArray, in_flight_bytes: FloatArray, memory_bytes: float, most: int) -> IntArray:
    """Return the largest position, from 0 to ``most``, at which stages with such prices fit into ``memory_bytes``.

    Arrays of one shape. The answer agrees exactly with ``base + (position - 1)·in flight <= memory`` in float64, also
    where the division below rounds across an integer.
    """
    if bool((base_bytes + (most - 1.0) * in_flight_bytes <= memory_bytes).all()):
        return np.full(base_bytes.shape, most)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        further = np.subtract(memory_bytes, base_bytes)
        further /= in_flight_bytes
        # Nothing in flight: 0/0 (an exact fit) and x/0 are answered by the base alone.
        nothing = in_flight_bytes <= 0
        if nothing.any():
            np.copyto(further, np.where(base_bytes <= memory_bytes, most - 1.0, -1.0), where=nothing)
        np.floor(further, out=further)
        held = further * in_flight_bytes
        too_many = np.add(base_bytes, held, out=held) > memory_bytes
        positions = further + 1.0
        np.multiply(positions, in_flight_bytes, out=held)
        more = np.add(base_bytes, held, out=held) <= memory_bytes
    # Rounding across an integer: rare, and else without effect below.
    if too_many.any():
        positions -= too_many
    if more.any():
        positions += more
    np.minimum(positions, most, out=positions)
    return np.maximum(positions, 0.0, out=positions).astype(np.int64)
