"""Lower bounds of many strategies at once, whatever cut is chosen.

:func:`balanced_s`: the largest load is at least the mean and at least that of any single layer; no more is recomputed
than :func:`least_recomputed` says; the first stage holds no more than the first layer. What memory allows of loads is
asked in :mod:`archplace.search.strategy.packing`.
"""

import numpy as np

from archplace.search.strategy.chain import ChainRows, ChainTimes, FloatArray, of_layers

ROUNDING = 1.0 - 1e-11
"""Factor on bounds that are sums in another order than what they bound."""

SLACK = 1e-10
"""Relative excess over load or capacity that packing overlooks: rounding must not turn away a stage that fits."""


def balanced_s(rows: ChainTimes) -> FloatArray:
    """Return a lower bound of each row's time, ``(R,)``; of memory only what recomputation it is known to need."""
    total: FloatArray = rows.pace * balanced_loads_s(rows) + least_sums_s(rows) + rows.constant_s
    return total * ROUNDING


def balanced_loads_s(rows: ChainTimes) -> FloatArray:
    """Return the load of a perfect balance, at least that of the heaviest layer, ``(R,)``."""
    whole = _least_whole(rows, rows.load_s) + rows.boundary_s * rows.boundaries()
    least: FloatArray = np.maximum(whole / rows.stages, rows.load_s[:, 0].max(axis=1))
    return least


def _least_whole(rows: ChainTimes, each: FloatArray) -> FloatArray:
    """Return the least that all layers add up to, ``(R,)``, when each adds ``each``, ``(R, P, S)``."""
    whole = of_layers(each[:, 0], rows.counts)
    if each.shape[1] > 1 and len(rows.counts) > 2:
        # The first and the last segment never recompute anything.
        more = np.maximum(np.diff(each[:, :, 1:-1], axis=1), 0.0).min(axis=2)
        whole = whole + (rows.least_recomputed[:, 1:] * more).sum(axis=1)
    return whole


def least_sums_s(rows: ChainTimes) -> FloatArray:
    """Return a lower bound of fills and tail together, ``(R,)``."""
    total: FloatArray = _least_whole(rows, rows.fill_s) + _least_tails_s(rows)
    return total


def least_recomputed(rows: ChainRows) -> FloatArray:
    """Return how many layers memory forces to recompute, ``(R, P)``, by the policy with that number or a later one.

    A stage holds at most so many layers of the kind that takes least as its memory allows under each policy. What the
    stages do not hold without recomputation is short; each stage that changes to recomputing gains at most the largest
    difference, and all its layers recompute. 0 where all fit without, whatever the others say where nothing fits.
    """
    n_policies = rows.load_s.shape[1]
    found = np.zeros((rows.n_rows, n_policies))
    if n_policies == 1 or len(rows.counts) < 3:
        return found
    inner = slice(1, -1)
    n_layers = float(sum(rows.counts[inner]))
    held = np.empty((n_policies, rows.n_rows, rows.n_stages))
    for number in range(n_policies):
        each = rows.state_bytes[:, None, inner] + rows.in_flight[:, :, None] * rows.flight_bytes[:, number, None, inner]
        room = rows.capacity_bytes[:, None, None] * (1 + SLACK) - rows.working_bytes[:, number, None, inner]
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.where(each > 0, np.floor(room / each), np.where(room >= 0, np.inf, 0.0)).max(axis=2)
        held[number] = np.clip(fits, 0.0, n_layers)
    most = held.max(axis=0)
    for number in range(1, n_policies):
        without = held[:number].max(axis=0)
        short = n_layers - without.sum(axis=1)
        gain = (most - without).max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            changed = np.where(short > 0, np.ceil(short / gain - SLACK), 0.0)
        changed = np.clip(np.nan_to_num(changed, posinf=rows.n_stages), 0, rows.n_stages).astype(np.int64)
        lost = np.concatenate((np.zeros((rows.n_rows, 1)), np.cumsum(np.sort(without, axis=1), axis=1)), axis=1)
        needed = np.maximum(short, 0.0) + lost[np.arange(rows.n_rows), changed]
        found[:, number] = np.where(short > 0, np.minimum(needed, n_layers), 0.0)
    return found


def _least_tails_s(rows: ChainTimes) -> FloatArray:
    """Return a lower bound of the tails, ``(R,)``: the first stage holds at least one layer of the first segment."""
    one = np.minimum(rows.tail_s[:, 0], rows.tail_s[:, 0] * rows.counts[0])
    total: FloatArray = one + rows.hidden_floor_s.sum(axis=1)
    return total
