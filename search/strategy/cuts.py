"""The best cuts of chains into stages, with the best recomputation policy of each stage, exactly.

For a load that every stage must stay below, the least sum of the stages' fills and of the first stage's tail is found
by a dynamic program (:mod:`archplace.search.strategy.least_sums`). The limit starts where even the least conceivable
sum could not make up for the pace of a larger load, and is lowered below the largest load of each cut found, until what
is left could only be slower.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from archplace.search.strategy.bounds import least_sums_s
from archplace.search.strategy.chain import ChainRows, FloatArray, IntArray, of_layers
from archplace.search.strategy.least_sums import layers_before, least_sums_of_any, least_sums_of_equal
from archplace.search.strategy.packing import PackedLoads

_WIDER = 1.02
"""Factor on the limit while no cut is found: where every stage must hold a layer the packed load may be too small."""

_ENTRIES = 1 << 20
"""Of the largest arrays, by which rows are taken together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A chain cut into stages."""

    time_s: float
    load_s: float
    """Of the slowest stage."""
    held: tuple[tuple[int, ...], ...]
    """Layers of each segment on each stage."""
    policies: tuple[int, ...]
    """The policy of each stage."""
    loads_s: tuple[float, ...]
    tail_s: float
    """What follows the last microbatch, on the first stage."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cuts:
    """The best cut of each row."""

    rows: ChainRows
    time_s: FloatArray
    """``(R,)``: infinite where none fits or none is fast enough."""
    load_s: FloatArray
    """``(R,)``: of the slowest stage; as all below without meaning where there is no cut."""
    tail_s: FloatArray
    """``(R,)``."""
    ends: IntArray
    """``(R, J)``: where the stages end, in layers of the whole chain."""
    policies: IntArray
    """``(R, J)``."""
    loads_s: FloatArray
    """``(R, J)``."""

    @classmethod
    def none(cls, rows: ChainRows) -> "Cuts":
        """Return no cut of any row."""
        shape = (rows.n_rows, rows.n_stages)
        return cls(
            rows=rows,
            time_s=np.full(rows.n_rows, np.inf),
            load_s=np.zeros(rows.n_rows),
            tail_s=np.zeros(rows.n_rows),
            ends=np.zeros(shape, dtype=np.int64),
            policies=np.zeros(shape, dtype=np.int64),
            loads_s=np.zeros(shape),
        )

    def put(self, places: IntArray, other: "Cuts", chosen: IntArray) -> None:
        """Take over the cuts ``chosen`` of ``other`` at ``places``."""
        for name in ("time_s", "load_s", "tail_s", "ends", "policies", "loads_s"):
            getattr(self, name)[places] = getattr(other, name)[chosen]

    def at(self, row: int) -> Cut | None:
        """Return the cut of one row, or None where there is none."""
        if not np.isfinite(self.time_s[row]):
            return None
        held = layers_before(self.rows.counts)
        ends = self.ends[row]
        return Cut(
            time_s=float(self.time_s[row]),
            load_s=float(self.load_s[row]),
            held=tuple(map(tuple, np.diff(held[ends], axis=0, prepend=held[:1]).astype(np.int64).tolist())),
            policies=tuple(self.policies[row].tolist()),
            loads_s=tuple(self.loads_s[row].tolist()),
            tail_s=float(self.tail_s[row]),
        )


def best_cuts(rows: ChainRows, packed: PackedLoads, better_than_s: FloatArray | float = np.inf) -> Cuts:
    """Return the cut of every row that takes least time, of those that take less than ``better_than_s``.

    ``packed`` are the rows' :func:`~archplace.search.strategy.packing.packed_loads`; ``better_than_s`` is one number
    or ``(R,)``. Ties go to the smaller largest load.
    """
    found = Cuts.none(rows)
    limits_s = np.broadcast_to(np.asarray(better_than_s, dtype=np.float64), (rows.n_rows,))
    able = np.flatnonzero(np.isfinite(packed.least_s))
    if rows.n_stages > sum(rows.counts) or not len(able):
        return found
    for some in _blocks(rows, able, packed.reached_s):
        search = _Search(rows.take(some), packed.take(some), limits_s[some])
        found.put(some, search.run(), np.arange(len(some)))
    return found


def _blocks(rows: ChainRows, able: IntArray, load_s: FloatArray) -> Iterator[IntArray]:
    """Yield rows that are taken together, so that their arrays stay in a core's cache."""
    n_layers = sum(rows.counts)
    fastest = of_layers(rows.load_s[able].min(axis=1), rows.counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        longest = np.nan_to_num(np.minimum(1.5 * load_s[able] / fastest, 1.0), nan=1.0) * n_layers
    arrays = (n_layers + rows.n_stages) if rows.is_plain else rows.n_stages * (n_layers + 1)
    size = max(1, int(_ENTRIES / (arrays * max(1.0, float(longest.mean())))))
    for start in range(0, len(able), size):
        yield able[start : start + size]


class _Search:
    """The best cuts of some rows."""

    def __init__(self, rows: ChainRows, packed: PackedLoads, better_than_s: FloatArray) -> None:
        self.rows, self.packed, self.better_s = rows, packed, better_than_s
        self.sums_s = least_sums_s(rows)

    def run(self) -> Cuts:
        """Return the best cut of each row."""
        found = self._first()
        found.time_s[found.time_s >= self.better_s] = np.inf
        known_s = np.minimum(found.time_s, self.better_s)
        pace, constant_s = self.rows.pace, self.rows.constant_s
        with np.errstate(divide="ignore", invalid="ignore"):
            limits_s = np.nextafter((known_s - constant_s - self.sums_s) / pace, np.inf)
        limits_s[pace <= 0] = np.inf
        going = np.flatnonzero((limits_s > self.packed.least_s) & (pace > 0))
        while len(going):
            cuts = self._least_sums(going, limits_s[going])
            times_s = cuts.time_s
            better = times_s < known_s[going]
            # Of equal times the one with the smaller load is kept, and that is the later one.
            better |= (times_s == known_s[going]) & np.isfinite(found.time_s[going])
            better &= np.isfinite(times_s)
            found.put(going[better], cuts, np.flatnonzero(better))
            known_s[going[better]] = times_s[better]
            # Smaller limits never lower the sum: what is left must come from the pace.
            sums_s = times_s - pace[going] * cuts.load_s
            with np.errstate(invalid="ignore"):
                by_pace = np.nextafter((known_s[going] - sums_s) / pace[going], np.inf)
            limits_s[going] = np.where(np.isfinite(times_s), np.minimum(cuts.load_s, by_pace), -np.inf)
            going = going[limits_s[going] > self.packed.least_s[going]]
        return found

    def _least_sums(self, rows: IntArray, limits_s: FloatArray) -> Cuts:
        """Return of each of ``rows`` the cut with the least sum of fills and tail whose loads are below its limit."""
        some = self.rows.take(rows)
        plan = least_sums_of_equal if some.is_plain else least_sums_of_any
        found = plan(some, limits_s)
        cuts = Cuts.none(some)
        cuts.ends[:], cuts.policies[:], cuts.loads_s[:] = found.ends, found.policies, found.loads_s
        able = np.isfinite(found.sum_s)
        cuts.load_s[:] = np.where(able, found.loads_s.max(axis=1), 0.0)
        cuts.tail_s[:] = found.tail_s
        cuts.time_s[:] = np.where(able, some.pace * cuts.load_s + found.sum_s + some.constant_s, np.inf)
        return cuts

    def _first(self) -> Cuts:
        """Return cuts whose largest load is about the least there is; without pace, with the least sum."""
        rows = self.rows
        found = Cuts.none(rows)
        most_s = of_layers(rows.load_s.max(axis=1), rows.counts) + 2 * rows.boundary_s + self.packed.reached_s
        limits_s = np.where(rows.pace > 0, np.nextafter(self.packed.reached_s * (1 + 1e-9), np.inf), np.inf)
        going = np.arange(rows.n_rows)
        while len(going):
            cuts = self._least_sums(going, limits_s[going])
            some = np.isfinite(cuts.time_s)
            found.put(going[some], cuts, np.flatnonzero(some))
            going = going[~some & (limits_s[going] <= most_s[going])]
            limits_s[going] *= _WIDER
        return found
