"""Strategies as rows of arrays: what each layer of the chain costs under each of them.

The layers of a model form a chain of segments, each of one kind of layer that repeats. A pipeline cuts the chain into
stages, and each stage recomputes its layers by one of a few policies. With stages ``j`` from the first to the last and
``n[j, k]`` layers of segment ``k`` on each, a row takes

    time = pace · max over j of load(j) + Σ over j of fill(j) + tail(first stage) + constant

where load, fill and memory are linear in the layers of a stage. How pipeline schedules give ``pace`` and ``fill`` is
said in :mod:`archplace.search.pipeline`; the tail is what data-parallel replicas and the optimizer do after the last
microbatch, on the first stage, which finishes last (PHAZE, ICML 2024, section 5).
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CAPACITY_SLACK = 1e-12
"""Relative excess over the capacity that counts as fitting: sums in another order."""


def of_layers(each: FloatArray, layers: FloatArray | IntArray | tuple[int, ...]) -> FloatArray:
    """Return what ``layers``, ``(…, S)``, add up to when each adds ``each``, ``(…, S)``; the two broadcast.

    Segments are added one after the other whatever the shapes: the same layers give the same floats in any company.
    """
    weights = np.asarray(layers, dtype=np.float64)
    total: FloatArray = each[..., 0] * weights[..., 0]
    for segment in range(1, each.shape[-1]):
        total = total + each[..., segment] * weights[..., segment]
    return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainTimes:
    """What the time of each row is made of, but for memory.

    Shapes name ``R`` rows, ``P`` policies, ``S`` segments and ``X`` exchanges behind computing. Policies are ordered
    from the one that recomputes least to the one that recomputes most: loads and fills grow along them.
    """

    counts: tuple[int, ...]
    """Layers of each segment, at least one each."""
    stages: IntArray
    """``(R,)``."""
    load_s: FloatArray
    """``(R, P, S)``: seconds that a layer adds to its stage's load, per microbatch."""
    fill_s: FloatArray
    """``(R, P, S)``: seconds that a layer adds to filling and draining the pipeline, wherever it lies."""
    boundary_s: FloatArray
    """``(R,)``: seconds of load that each neighbour costs a stage, per microbatch."""
    pace: FloatArray
    """``(R,)``: how many times the largest load passes."""
    constant_s: FloatArray
    """``(R,)``."""
    tail_s: FloatArray
    """``(R, S)``: seconds that a layer on the first stage adds after the last microbatch, whatever else."""
    hidden_base_s: FloatArray
    """``(R, X)``: of each exchange ``max(floor, min(base + Σ layers · slope, Σ layers · whole))`` is exposed, over the
    first stage's layers: with many layers to hide behind only the floor, and never more than all of it."""
    hidden_slope_s: FloatArray
    """``(R, X, S)``."""
    hidden_floor_s: FloatArray
    """``(R, X)``."""
    hidden_whole_s: FloatArray
    """``(R, X, S)``."""
    least_recomputed: FloatArray
    """``(R, P)``: layers that any cut recomputes by a policy as strong at least; 0 where nothing is known. It only
    sharpens bounds."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.pace)

    @property
    def is_plain(self) -> bool:
        """Whether the chain is a first layer, equal layers and a last one."""
        return len(self.counts) == 3 and self.counts[0] == self.counts[2] == 1

    def take(self, rows: IntArray | BoolArray | slice) -> Self:
        """Return some of the rows."""
        columns = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "counts"}
        return replace(self, **{name: column[rows] for name, column in columns.items()})

    def boundaries(self) -> IntArray:
        """Return the neighbours of all stages together, ``(R,)``."""
        return 2 * (self.stages - 1)

    def tails_s(self, first: IntArray | FloatArray) -> FloatArray:
        """Return the tails when the first stage holds ``first`` layers of each segment, ``(R, S)`` or ``(S,)``."""
        held = np.broadcast_to(np.asarray(first, dtype=np.float64), self.tail_s.shape)
        total: FloatArray = of_layers(self.tail_s, held) + self.exposed_s(first).sum(axis=1)
        return total

    def exposed_s(self, first: IntArray | FloatArray) -> FloatArray:
        """Return what is exposed of each exchange, ``(R, X)``, with ``first`` as :meth:`tails_s` takes it."""
        held = np.broadcast_to(np.asarray(first, dtype=np.float64), self.tail_s.shape)[:, None, :]
        behind = self.hidden_base_s + of_layers(self.hidden_slope_s, held)
        return np.maximum(self.hidden_floor_s, np.minimum(behind, of_layers(self.hidden_whole_s, held)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainRows(ChainTimes):
    """Rows of one number of stages ``J``, with what memory allows. Activations shrink along the policies."""

    capacity_bytes: FloatArray
    """``(R,)``: what a device has for the layers of its stage."""
    state_bytes: FloatArray
    """``(R, S)``: of one layer, whatever the microbatches."""
    flight_bytes: FloatArray
    """``(R, P, S)``: of one layer for each microbatch in flight."""
    working_bytes: FloatArray
    """``(R, P, S)``: held for one layer at a time: a stage needs the largest."""
    in_flight: FloatArray
    """``(R, J)``: microbatches in flight on each stage, the first stage first."""

    @property
    def n_stages(self) -> int:
        """The number of stages of all rows."""
        return int(self.in_flight.shape[1])

    def with_capacity(self, capacity_bytes: float) -> Self:
        """Return the same rows on devices of another capacity."""
        return replace(self, capacity_bytes=np.full(self.n_rows, capacity_bytes))

    def neighbours(self) -> IntArray:
        """Return how many neighbours each stage has, ``(J,)``."""
        if self.n_stages == 1:
            return np.zeros(1, dtype=np.int64)
        return np.array([1, *[2] * (self.n_stages - 2), 1], dtype=np.int64)
