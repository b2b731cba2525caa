"""Lower bounds on the step seconds of one option on many architectures, in tiers of sharpness and price.

1. :func:`balanced_bound_s`: perfectly balanced stages, and nothing to transfer or synchronise.
2. :class:`RowBounds`, for each pipeline: the load is at least that of either end, that of a perfect balance with all
   transfers, and that of the stage with the most blocks when they are spread as evenly as memory allows; the first
   stage synchronises as few parameters as it can, and updates the embedding.
3. :func:`bound_s`: the smallest bottleneck of each pipeline that tier 2 cannot rule out, and the rest as there.
"""

from collections.abc import Iterator

import numpy as np

from archplace.search.placement.chain import least_loads_s
from archplace.search.placement.pipelines import PipelineTable
from archplace.search.placement.prices import FloatArray, IntArray
from archplace.search.placement.training import ChainSeconds

ROUNDING = 1.0 - 1e-12
"""Factor on bounds that are sums in another order than what they bound: rounding must not skip an optimum or a tie."""

_BLOCK = 4096
"""Architectures at a time, so that arrays over their pipelines take some megabytes."""

_CLEARLY = 3.0
"""How much more a rival must save than it costs: more than two, as :meth:`RowBounds.of` shows; what is beyond two is
far above any rounding."""


def balanced_bound_s(table: PipelineTable, seconds: ChainSeconds[FloatArray]) -> FloatArray:
    """Return ``min over pipelines of max(first, last, whole / stages) · slots`` and the embedding's optimizer step.

    ``(n_archs,)``; infinite without pipelines. As the stages of the pipelines that matter rise, so do their slots, and
    their slots per stage fall: the minimum lies beside ``stages = whole / max(first, last)``.
    """
    if not len(table.front_stages):
        return np.full(len(seconds.first_s), np.inf)
    ends = np.maximum(seconds.first_s, seconds.last_s)
    whole = seconds.first_s + seconds.block_s * table.caps.n_blocks + seconds.last_s
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        after = np.searchsorted(table.front_stages, whole / ends)
    least: FloatArray = np.full(len(ends), np.inf)
    for beside in (np.maximum(after - 1, 0), np.minimum(after, len(table.front_stages) - 1)):
        np.minimum(least, np.maximum(ends * table.front_slots[beside], whole * table.front_share[beside]), out=least)
    least += seconds.optimizer_s_per_parameter * table.first_parameters
    least *= ROUNDING * ROUNDING
    return least


class RowBounds:
    """Lower bounds of the step seconds on every row of a table that can be best on one of some architectures."""

    def __init__(self, table: PipelineTable, seconds: ChainSeconds[FloatArray]) -> None:
        """Leave out the rows that a rival beats on all architectures, whatever the cut, and bound the others.

        A rival has as many stages, memory for any cut that the row allows, and no slower transfers. It saves at least
        ``slots · max(load, block · k)`` with ``k`` blocks on the first stage, and costs at most ``sync + block_sync ·
        k``: where each product is more than twice the cost below it, it saves more than it costs.
        """
        self.table = table
        least = [float(each.min(initial=np.inf)) for each in (seconds.first_s, seconds.block_s, seconds.last_s)]
        every = np.arange(len(table.stages))
        lightest = _loads_s(table, every, *(np.array([each]) for each in least))
        beaten = table.rival_slots * lightest > _CLEARLY * table.rival_sync_s
        beaten &= table.rival_slots * least[1] > _CLEARLY * table.rival_block_sync_s
        self.rows = np.flatnonzero(~beaten)
        # Of a row's lines only those count that are least at some load that there is.
        self.n_lines = 1 + int((table.line_ends_s > lightest)[:, self.rows].sum(axis=0).max(initial=0))
        load = _loads_s(table, self.rows, seconds.first_s[:, None], seconds.block_s[:, None], seconds.last_s[:, None])
        self.bounds_s = self.with_load_s(self.rows, load)
        self.bounds_s += (seconds.optimizer_s_per_parameter * table.first_parameters)[:, None]

    def with_load_s(self, rows: IntArray, load_s: FloatArray) -> FloatArray:
        """Return the least seconds of ``rows`` with such loads, but for the optimizer step."""
        table = self.table
        least: FloatArray = load_s * table.line_slots[0, rows]
        least += table.line_sync_s[0, rows]
        for line in range(1, self.n_lines):
            np.minimum(least, load_s * table.line_slots[line, rows] + table.line_sync_s[line, rows], out=least)
        return least

    def rounds(self, found_s: FloatArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield architectures and the row that each should try next, while its bound is at most ``found_s``.

        The row with the least bound comes first. ``found_s``, ``(n_archs,)``, is read anew in each round. Uses up the
        bounds.
        """
        bounds, archs = self.bounds_s, np.arange(len(found_s))
        if not len(self.rows):
            return
        while len(archs):
            chosen = bounds.argmin(axis=1)
            least = bounds[np.arange(len(archs)), chosen] * ROUNDING
            able = (least <= found_s[archs]) & (least < np.inf)
            if not able.all():
                archs, chosen, bounds = archs[able], chosen[able], bounds[able]
            bounds[np.arange(len(archs)), chosen] = np.inf
            if len(archs):
                yield archs, self.rows[chosen]


def _loads_s(
    table: PipelineTable, rows: IntArray, first_s: FloatArray, block_s: FloatArray, last_s: FloatArray
) -> FloatArray:
    """Return lower bounds of the bottleneck on ``rows``, the last axis, for seconds that broadcast against it."""
    transfer, stages = table.transfer_s[rows], table.stages[rows]
    load: FloatArray = (first_s + block_s * table.caps.n_blocks + last_s) * (1 / stages)
    load += 2 * transfer * (stages - 1) / stages
    other = np.maximum(first_s, last_s) + transfer
    np.maximum(load, other, out=load)
    np.add(np.minimum(first_s, last_s), transfer, out=other)
    np.minimum(other, table.middle_s[rows], out=other)
    other += block_s * table.even[rows]
    return np.maximum(load, other, out=load)


def bound_s(table: PipelineTable, seconds: ChainSeconds[FloatArray]) -> FloatArray:
    """Return the least, over all pipelines, of the smallest bottleneck's time with the emptiest first stage.

    ``(n_archs,)``; infinite without pipelines. At most what any placement takes, also as floats.
    """
    bounds: FloatArray = np.full(len(seconds.first_s), np.inf)
    for start in range(0, len(bounds), _BLOCK):
        some = slice(start, start + _BLOCK)
        _bound(table, seconds.take(some), bounds[some])
    bounds *= ROUNDING
    return bounds


def _bound(table: PipelineTable, seconds: ChainSeconds[FloatArray], found_s: FloatArray) -> None:
    """Lower ``found_s`` to the bounds, but for their rounding."""
    row_bounds = RowBounds(table, seconds)
    for archs, rows in row_bounds.rounds(found_s):
        some, transfer = seconds.take(archs), table.transfer_s[rows]
        middle = 2 * transfer * table.caps.least_level[rows]
        load = least_loads_s(some.first_s + transfer, middle, some.last_s + transfer, some.block_s, table.caps, rows)
        alone = some.first_s + some.block_s * table.caps.n_blocks + some.last_s
        load = np.where(table.stages[rows] == 1, alone, load)
        least = row_bounds.with_load_s(rows, load) + some.optimizer_s_per_parameter * table.least_parameters[rows]
        found_s[archs] = np.minimum(found_s[archs], least)
