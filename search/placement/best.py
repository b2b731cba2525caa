"""The best placement of one option on many architectures at once.

For each architecture all pipelines have a lower bound: the ends' loads, a perfect balance, and the load of the stage
that holds the most blocks when they are spread as evenly as memory allows. In rounds, every architecture tries the
pipeline with the least bound that it has not tried, whichever that is, until no bound can reach its best step time.
A pipeline is tried exactly: with ``k`` blocks on the first stage and ``r = n - k`` on the others, its load is::

    load(k) = max(first + block·k, min over K of max(middle + block·K, last + block·max(0, r - M(K))))

where ``M(K)`` blocks fit on the middle stages when none holds more than ``K``. The inner maximum is of something that
grows with ``K`` and something that falls: the minimum lies beside the crossing, which is found by counting. As in
:mod:`archplace.search.placement.chain`, crossings are computed with rounding, but what is compared are the loads, as
the floats that they are.
"""

from dataclasses import dataclass

import numpy as np

from archplace.search.placement.bounds import RowBounds
from archplace.search.placement.chain import crossing, is_close
from archplace.search.placement.pipelines import PipelineTable
from archplace.search.placement.prices import BoolArray, FloatArray, IntArray
from archplace.search.placement.training import BestPlacement, ChainSeconds, lay_out

_BLOCK = 512
"""Architectures at a time: their arrays over the blocks of a first stage stay in a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """The best placements of one option, one an architecture; :meth:`at` writes one out."""

    step_s: FloatArray
    """``(n_archs,)``: seconds per batch; infinite where nothing is faster than what was asked for."""
    load_s: FloatArray
    """``(n_archs,)``, as all below; what stands where ``step_s`` is infinite has no meaning."""
    sync_s: FloatArray
    optimizer_s: FloatArray
    way: IntArray
    """Index into ``table.ways``; -1 where ``step_s`` is infinite."""
    first_blocks: IntArray
    """Blocks on the first stage."""
    seconds: ChainSeconds[FloatArray]
    table: PipelineTable

    def of(self, archs: slice) -> "Placements":
        """Return the placements of ``archs``, as views."""
        return Placements(
            step_s=self.step_s[archs],
            load_s=self.load_s[archs],
            sync_s=self.sync_s[archs],
            optimizer_s=self.optimizer_s[archs],
            way=self.way[archs],
            first_blocks=self.first_blocks[archs],
            seconds=self.seconds.take(archs),
            table=self.table,
        )

    def at(self, row: int) -> BestPlacement | None:
        """Return the placement on the architecture at ``row``; None where nothing is faster than was asked for."""
        if self.way[row] < 0:
            return None
        pipeline, degrees = self.table.ways[self.way[row]]
        load = float(self.load_s[row])
        return BestPlacement(
            step_s=float(self.step_s[row]),
            degrees=degrees,
            blocks=lay_out(
                int(self.first_blocks[row]),
                load,
                float(self.seconds.block_s[row]),
                2 * degrees.transfer_s,
                float(self.seconds.last_s[row]) + degrees.transfer_s,
                self.table.pipelines[pipeline].caps,
                self.table.caps.n_blocks,
            ),
            load_s=load,
            sync_s=float(self.sync_s[row]),
            optimizer_s=float(self.optimizer_s[row]),
        )


def best_placements(
    table: PipelineTable, seconds: ChainSeconds[FloatArray], better_than_s: FloatArray | float = np.inf
) -> Placements:
    """Return the best placement of every architecture, of those faster than ``better_than_s`` (one or ``(n_archs,)``).

    Exact to the last bit. Of equal step times the placement is kept whose pipeline has the least time when perfectly
    balanced and not synchronised, then the one that comes first among the pipelines, then more replicas, then fewer
    blocks on the first stage.
    """
    n_archs = len(seconds.first_s)
    found = Placements(
        step_s=np.array(np.broadcast_to(np.asarray(better_than_s, dtype=np.float64), (n_archs,))),
        load_s=np.full(n_archs, np.inf),
        sync_s=np.zeros(n_archs),
        optimizer_s=np.zeros(n_archs),
        way=np.full(n_archs, -1, dtype=np.int64),
        first_blocks=np.zeros(n_archs, dtype=np.int64),
        seconds=seconds,
        table=table,
    )
    if len(table.ways):
        for start in range(0, n_archs, _BLOCK):
            _search(found.of(slice(start, start + _BLOCK)))
    found.step_s[found.way < 0] = np.inf
    return found


def _balanced_s(table: PipelineTable, seconds: ChainSeconds[FloatArray], ways: IntArray) -> FloatArray:
    """Return the seconds of each architecture on the pipeline of the way beside it, balanced and not synchronised."""
    rows = table.row_of_way[ways]
    whole = seconds.first_s + seconds.block_s * table.caps.n_blocks + seconds.last_s
    ends = np.maximum(seconds.first_s, seconds.last_s)
    balanced: FloatArray = np.maximum(ends, whole / table.stages[rows]) * table.pipeline_slots[rows]
    return balanced


def _search(found: Placements) -> None:
    """Improve ``found`` until no pipeline can be better on any of its architectures."""
    for archs, rows in RowBounds(found.table, found.seconds).rounds(found.step_s):
        _try(found, archs, rows)


def _try(found: Placements, archs: IntArray, rows: IntArray) -> None:
    """Try each of ``archs`` on the pipeline of the row beside it, with all ways that can still be the best."""
    table = found.table
    single = table.stages[rows] == 1
    if single.any():
        alone = archs[single]
        seconds = found.seconds.take(alone)
        load = (seconds.first_s + seconds.block_s * table.caps.n_blocks) + seconds.last_s
        whole = table.first_parameters + table.block_parameters * table.caps.n_blocks + table.last_parameters
        _try_ways(found, alone, rows[single], load[:, None], np.array([table.caps.n_blocks]), np.array([whole]))
        archs, rows = archs[~single], rows[~single]
    if len(archs):
        seconds = found.seconds.take(archs)
        blocks = np.arange(int(table.caps.first[rows].max()) + 1)
        load = (seconds.first_s + table.transfer_s[rows])[:, None] + seconds.block_s[:, None] * blocks
        np.maximum(load, _others_s(table, seconds, rows, table.caps.n_blocks - blocks), out=load)
        load[blocks > table.caps.first[rows][:, None]] = np.inf
        parameters = table.first_parameters + table.block_parameters * blocks.astype(np.float64)
        _try_ways(found, archs, rows, load, blocks, parameters)


def _others_s(table: PipelineTable, seconds: ChainSeconds[FloatArray], rows: IntArray, held: IntArray) -> FloatArray:
    """Return the least bottleneck of the stages after the first when they hold ``held`` blocks, ``(n, len(held))``.

    Infinite where they cannot. ``held`` falls by one from entry to entry, from ``n_blocks`` on.
    """
    caps = table.caps
    n_blocks = caps.n_blocks
    transfer, block = table.transfer_s[rows], seconds.block_s
    last = seconds.last_s + transfer
    middle = 2 * transfer * caps.least_level[rows]
    over_last = crossing(middle, last, block, n_blocks)
    ahead = np.floor(over_last).astype(np.int64)
    taken, last_cap = caps.taken[rows], caps.last[rows][:, None]
    # Below the load of level K the stages have a place for so many blocks; the least level with enough is counted.
    room = np.minimum(taken + np.clip(np.arange(n_blocks + 1) + ahead[:, None], 0, last_cap), n_blocks + 1)
    width = n_blocks + 2
    at = np.arange(len(rows))[:, None] * width + room
    without = np.bincount(at.ravel(), minlength=len(rows) * width).reshape(len(rows), width).cumsum(axis=1)
    level = np.zeros((len(rows), len(held)), dtype=np.int64)
    inner = held[held > 0]
    level[:, : len(inner)] = without[:, inner - 1]
    least: FloatArray = np.full(level.shape, np.inf)
    for offset in range(-2, 2) if is_close(over_last).any() else range(-1, 1):
        nearby = np.clip(level + offset, caps.least_level[rows][:, None], caps.most_level[rows][:, None])
        rest = np.maximum(held - caps.taken_at(rows[:, None], nearby), 0)
        load = np.maximum(middle[:, None] + block[:, None] * nearby, last[:, None] + block[:, None] * rest)
        load[rest > last_cap] = np.inf
        np.minimum(least, load, out=least)
    least[held < taken[:, 1:2] * caps.least_level[rows][:, None]] = np.inf
    return least


def _try_ways(
    found: Placements, archs: IntArray, rows: IntArray, load: FloatArray, blocks: IntArray, parameters: FloatArray
) -> None:
    """Try the ways of each row with ``load`` when the first stage holds ``blocks`` and has ``parameters``."""
    table = found.table
    optimizer_s = found.seconds.optimizer_s_per_parameter[archs]
    gradients = table.gradient_bytes * parameters
    least_gradients = table.gradient_bytes * table.least_parameters[rows]
    bounds = load.min(axis=1)[:, None] * table.slots[rows]
    bounds += table.sync_s_per_byte[rows] * least_gradients[:, None] + table.sync_latency_s[rows]
    bounds += (optimizer_s * table.least_parameters[rows])[:, None]
    optimizer = optimizer_s[:, None] * parameters
    while True:
        every = np.arange(len(archs))
        column = bounds.argmin(axis=1)
        keep = bounds[every, column] <= found.step_s[archs]
        # An infinite bound is a way that the row does not have, or that was tried.
        keep &= bounds[every, column] < np.inf
        if not keep.all():
            archs, rows, column, every = archs[keep], rows[keep], column[keep], every[: int(keep.sum())]
            load, optimizer, bounds = load[keep], optimizer[keep], bounds[keep]
        if not len(archs):
            return
        bounds[every, column] = np.inf
        sync = table.sync_s_per_byte[rows, column][:, None] * gradients + table.sync_latency_s[rows, column][:, None]
        total = load * table.slots[rows, column][:, None] + sync + optimizer
        at = total.argmin(axis=1)
        step_s, way = total[every, at], table.way[rows, column]
        better = np.flatnonzero(_is_better(found, archs, step_s, way))
        at, to = at[better], archs[better]
        found.step_s[to] = step_s[better]
        found.way[to] = way[better]
        found.load_s[to] = load[better, at]
        found.sync_s[to] = sync[better, at]
        found.optimizer_s[to] = optimizer[better, at]
        found.first_blocks[to] = blocks[at]


def _is_better(found: Placements, archs: IntArray, step_s: FloatArray, way: IntArray) -> BoolArray:
    """Return which of the step times found with ``way`` replace what was found before."""
    better: BoolArray = step_s < found.step_s[archs]
    tie = np.flatnonzero((step_s == found.step_s[archs]) & (found.way[archs] >= 0))
    if len(tie):
        seconds = found.seconds.take(archs[tie])
        new, old = way[tie], found.way[archs[tie]]
        new_s, old_s = (_balanced_s(found.table, seconds, each) for each in (new, old))
        better[tie] = (new_s < old_s) | ((new_s == old_s) & (new < old))
    return better
