"""The best cuts of chains into stages, with the best recomputation policy of each stage, exactly.

For a load that every stage must stay below, the least sum of the stages' fills and of the first stage's tail is found
by a dynamic program over stages; of a stage's policies the first that fits has both the least load and the least fill.
The limit starts where even the least conceivable sum could not make up for the pace of a larger load, and is lowered
below the largest load of each cut found, until what is left could only be slower. Stages only hold runs of layers
within the limit, so that the arrays of a row have about layers × layers entries whatever the number of stages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from archplace.search.strategy.bounds import least_sums_s
from archplace.search.strategy.chain import BoolArray, ChainRows, FloatArray, IntArray, of_layers
from archplace.search.strategy.packing import PackedLoads

_SLACK = 1e-12
"""Relative excess over the capacity that counts as fitting: sums in another order."""

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


def layers_before(counts: tuple[int, ...]) -> FloatArray:
    """Return the layers of each segment among the first 0, 1 … of the chain, ``(N + 1, S)``."""
    kind = np.repeat(np.arange(len(counts)), counts)
    held = np.zeros((len(kind) + 1, len(counts)))
    np.cumsum(kind[:, None] == np.arange(len(counts)), axis=0, out=held[1:])
    return held


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
    with np.errstate(divide="ignore"):
        longest = np.minimum(1.5 * load_s[able] / fastest, 1.0) * n_layers
    size = max(1, int(_ENTRIES / (rows.n_stages * (n_layers + 1) * max(1.0, float(longest.mean())))))
    for start in range(0, len(able), size):
        yield able[start : start + size]


class _Search:
    """The best cuts of some rows."""

    def __init__(self, rows: ChainRows, packed: PackedLoads, better_than_s: FloatArray) -> None:
        self.rows, self.packed, self.better_s = rows, packed, better_than_s
        self.chains = _Chains(rows)
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
            cuts = _Choices(self.chains.take(going), limits_s[going]).least_sums(limits_s[going])
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

    def _first(self) -> Cuts:
        """Return cuts whose largest load is about the least there is; without pace, with the least sum."""
        rows = self.rows
        found = Cuts.none(rows)
        most_s = of_layers(rows.load_s.max(axis=1), rows.counts) + 2 * rows.boundary_s + self.packed.reached_s
        limits_s = np.where(rows.pace > 0, self.packed.reached_s * (1 + 1e-9), np.inf)
        going = np.arange(rows.n_rows)
        while len(going):
            cuts = _Choices(self.chains.take(going), limits_s[going]).least_sums(limits_s[going])
            some = np.isfinite(cuts.time_s)
            found.put(going[some], cuts, np.flatnonzero(some))
            going = going[~some & (limits_s[going] <= most_s[going])]
            limits_s[going] *= _WIDER
        return found


class _Chains:
    """Rows with their layers one by one: sums over the first layers, ``(R, …, N + 1)``."""

    def __init__(self, rows: ChainRows) -> None:
        kind = np.repeat(np.arange(len(rows.counts)), rows.counts)
        self.rows = rows
        self.n_layers = len(kind)
        self.held = layers_before(rows.counts)
        self.load_s = _prefix(rows.load_s[:, :, kind])
        self.fill_s = _prefix(rows.fill_s[:, :, kind])
        self.flight_bytes = _prefix(rows.flight_bytes[:, :, kind])
        self.state_bytes = _prefix(rows.state_bytes[:, kind])
        self.tail_s = np.stack([rows.tails_s(first) for first in self.held], axis=1)
        """``(R, N + 1)``: by the end of the first stage."""

    def take(self, rows: IntArray) -> "_Chains":
        """Return some of the rows."""
        part = object.__new__(_Chains)
        part.rows, part.n_layers, part.held = self.rows.take(rows), self.n_layers, self.held
        for name in ("load_s", "fill_s", "flight_bytes", "state_bytes", "tail_s"):
            setattr(part, name, getattr(self, name)[rows])
        return part


def _prefix(values: FloatArray) -> FloatArray:
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums


class _Choices:
    """What each stage costs that begins at a layer and holds so many: ``(J, R, N + 1, W)``, ``[…, w]`` for ``w + 1``.

    Infinite where no policy fits and where the load is too large.
    """

    def __init__(self, chains: _Chains, limits_s: FloatArray) -> None:
        """Lay out what loads below ``limits_s``, ``(R,)``, allow."""
        rows = self.rows = chains.rows
        self.chains = chains
        n_layers = chains.n_layers
        longest = _longest(chains.load_s[:, 0], limits_s)
        self.width = width = max(1, min(n_layers, longest))
        start = np.arange(n_layers + 1)[:, None]
        self.end = end = np.minimum(start + np.arange(1, width + 1), n_layers)
        outside = start + np.arange(1, width + 1) > n_layers
        shape = (rows.n_stages, rows.n_rows, n_layers + 1, width)
        self.load_s, self.fill_s = np.full(shape, np.inf), np.full(shape, np.inf)
        self.policy = np.full(shape, -1, dtype=np.int8)
        present = chains.held[end] > chains.held[start]
        states = chains.state_bytes[:, end] - chains.state_bytes[:, start]
        capacity = (rows.capacity_bytes * (1 + _SLACK))[:, None, None]
        ends_s = rows.boundary_s[:, None] * rows.neighbours()
        for number in range(rows.load_s.shape[1]):
            working = np.max(present * rows.working_bytes[:, number][:, None, None, :], axis=3)
            room = np.where(outside, -np.inf, capacity - (states + working))
            flight = chains.flight_bytes[:, number][:, end] - chains.flight_bytes[:, number][:, start]
            load = chains.load_s[:, number][:, end] - chains.load_s[:, number][:, start]
            fill = chains.fill_s[:, number][:, end] - chains.fill_s[:, number][:, start]
            for stage in range(rows.n_stages):
                fits: BoolArray = rows.in_flight[:, stage][:, None, None] * flight <= room
                fits &= self.policy[stage] < 0
                np.copyto(self.load_s[stage], load + ends_s[:, stage][:, None, None], where=fits)
                np.copyto(self.fill_s[stage], fill, where=fits)
                self.policy[stage][fits] = number

    def least_sums(self, limits_s: FloatArray) -> Cuts:
        """Return of each row the cut with the least sum of fills and tail whose loads are all below its limit."""
        rows, chains, end = self.rows, self.chains, self.end
        stages, n_rows, n_starts, _ = self.load_s.shape
        every, start = np.arange(n_rows), np.arange(n_starts)
        limit = limits_s[:, None, None]
        # From the last stage to the first: the least sum of the stages from j on, by where stage j begins.
        rest = np.full((n_rows, n_starts), np.inf)
        rest[:, -1] = 0.0
        chosen = np.zeros((stages, n_rows, n_starts), dtype=np.int64)
        for stage in range(stages - 1, 0, -1):
            total = np.where(self.load_s[stage] < limit, self.fill_s[stage], np.inf)
            total += rest[:, end]
            chosen[stage] = total.argmin(axis=2)
            rest = np.take_along_axis(total, chosen[stage][:, :, None], axis=2)[:, :, 0]
        first = np.where(self.load_s[0, :, 0] < limits_s[:, None], self.fill_s[0, :, 0], np.inf)
        first = first + rest[:, end[0]] + chains.tail_s[:, end[0]]
        lengths = first.argmin(axis=1)
        sums_s = first[every, lengths]
        found = Cuts.none(rows)
        begin = np.zeros(n_rows, dtype=np.int64)
        able = np.isfinite(sums_s)
        for stage in range(stages):
            if stage:
                lengths = chosen[stage, every, begin]
            found.loads_s[:, stage] = self.load_s[stage, every, begin, lengths]
            found.policies[:, stage] = self.policy[stage, every, begin, lengths]
            begin = np.minimum(begin + lengths + 1, start[-1])
            found.ends[:, stage] = begin
        found.load_s[:] = np.where(able, found.loads_s.max(axis=1), 0.0)
        found.tail_s[:] = chains.tail_s[every, found.ends[:, 0]]
        found.time_s[:] = np.where(able, rows.pace * found.load_s + sums_s + rows.constant_s, np.inf)
        return found


def _longest(load_s: FloatArray, limits_s: FloatArray) -> int:
    """Return the most layers of any run whose load is below its row's limit; ``load_s``, ``(R, N + 1)``, are sums."""
    least = 1
    most = load_s.shape[1] - 1
    while least < most:
        middle = (least + most + 1) // 2
        if bool((load_s[:, middle:] - load_s[:, :-middle] < limits_s[:, None]).any()):
            least = middle
        else:
            most = middle - 1
    return least
