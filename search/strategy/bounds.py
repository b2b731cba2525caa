"""Lower bounds of many strategies at once, in two tiers.

1. :func:`balanced_s`: the largest load is at least the mean and at least that of any single layer; no more is
   recomputed than :func:`least_recomputed` says; the first stage holds no more than the first layer.
2. :func:`packed_loads_s`: the least largest load that memory allows. For a load that no stage may exceed, stages are
   filled from the last to the first, each with as many layers as load and memory allow under the policy that allows
   most. What a stage holds depends on where it begins only through the layers, so that filling each as far as possible
   is best (an exchange argument: ending any stage later never leaves less room); the load is bisected. Stages may stay
   empty here, which only lowers the bound.
"""

import numpy as np

from archplace.search.strategy.chain import BoolArray, ChainRows, ChainTimes, FloatArray, of_layers

_ROUNDING = 1.0 - 1e-11
"""Factor on bounds that are sums in another order than what they bound."""

_SLACK = 1e-10
"""Relative excess over load or capacity that packing overlooks: rounding must not turn away a stage that fits."""

_MOST_BISECTIONS = 60


def balanced_s(rows: ChainTimes) -> FloatArray:
    """Return a lower bound of each row's time, ``(R,)``; of memory only what recomputation it is known to need."""
    total: FloatArray = rows.pace * balanced_loads_s(rows) + least_sums_s(rows) + rows.constant_s
    return total * _ROUNDING


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
        room = rows.capacity_bytes[:, None, None] * (1 + _SLACK) - rows.working_bytes[:, number, None, inner]
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.where(each > 0, np.floor(room / each), np.where(room >= 0, np.inf, 0.0)).max(axis=2)
        held[number] = np.clip(fits, 0.0, n_layers)
    most = held.max(axis=0)
    for number in range(1, n_policies):
        without = held[:number].max(axis=0)
        short = n_layers - without.sum(axis=1)
        gain = (most - without).max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            changed = np.where(short > 0, np.ceil(short / gain - _SLACK), 0.0)
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


def packed_s(rows: ChainRows, packed_load_s: FloatArray) -> FloatArray:
    """Return a lower bound of each row's time from its :func:`packed_loads_s`, ``(R,)``; infinite where none fits."""
    fits = np.isfinite(packed_load_s)
    total: FloatArray = rows.pace * np.where(fits, packed_load_s, 0.0) + least_sums_s(rows) + rows.constant_s
    return np.where(fits, total * _ROUNDING, np.inf)


def packed_loads_s(rows: ChainRows) -> FloatArray:
    """Return the least load, ``(R,)``, that no stage need exceed; infinite where the layers do not fit at all.

    A lower bound of the largest load of every cut; attained but for rounding where no stage stays empty.
    """
    found = np.full(rows.n_rows, np.inf)
    able = np.flatnonzero(pack(rows, np.full(rows.n_rows, np.inf)))
    if not len(able):
        return found
    rows = rows.take(able)
    low = balanced_loads_s(rows) * _ROUNDING
    high = _most_load_s(rows)
    width = high - low
    going = np.arange(len(able))
    # The answer is mostly close above the balance: steps up from there that double, then halves.
    step = np.maximum(low * 1e-3, width * 1e-9)
    for _ in range(_MOST_BISECTIONS):
        if not len(going):
            break
        some = rows.take(going)
        trial = np.minimum(low[going] + step[going], (low[going] + high[going]) / 2)
        fits = pack(some, trial)
        high[going] = np.where(fits, trial, high[going])
        low[going] = np.where(fits, low[going], trial)
        step[going] = np.where(fits, step[going], 2 * step[going])
        going = going[high[going] - low[going] > 1e-9 * high[going]]
    found[able] = low
    return found


def _most_load_s(rows: ChainRows) -> FloatArray:
    """Return a load that no stage exceeds, ``(R,)``."""
    whole = of_layers(rows.load_s.max(axis=1), rows.counts) + 2 * rows.boundary_s
    return whole * (1 + _SLACK)


def pack(rows: ChainRows, load_s: FloatArray) -> BoolArray:
    """Return which rows fit all layers on their stages when no stage's load exceeds ``load_s``, ``(R,)``."""
    left = np.broadcast_to(np.array(rows.counts, dtype=np.float64), (rows.n_rows, len(rows.counts))).copy()
    neighbours = rows.neighbours()
    for stage in range(rows.n_stages - 1, -1, -1):
        budget = (load_s - rows.boundary_s * neighbours[stage]) * (1 + _SLACK)
        left -= _most_layers(rows, left, budget, rows.in_flight[:, stage])
        if not left.any():
            break
    done: BoolArray = left.sum(axis=1) == 0
    return done


def _most_layers(rows: ChainRows, left: FloatArray, budget_s: FloatArray, in_flight: FloatArray) -> FloatArray:
    """Return the layers that one stage takes from the end of what is ``left``, ``(R, S)``, as many as it can."""
    n_policies, n_segments = rows.load_s.shape[1:]
    shape = (rows.n_rows, n_policies)
    seconds = np.broadcast_to(budget_s[:, None], shape)
    memory = np.broadcast_to((rows.capacity_bytes * (1 + _SLACK))[:, None], shape)
    working = np.zeros(shape)
    taking: BoolArray = np.ones(shape, dtype=np.bool_)
    taken = np.zeros((*shape, n_segments))
    for segment in range(n_segments - 1, -1, -1):
        here = left[:, None, segment]
        load = rows.load_s[:, :, segment]
        held = rows.state_bytes[:, None, segment] + in_flight[:, None] * rows.flight_bytes[:, :, segment]
        more = np.maximum(working, rows.working_bytes[:, :, segment])
        with np.errstate(divide="ignore", invalid="ignore"):
            by_load = np.where(load > 0, np.floor(seconds / load), np.inf)
            by_memory = np.where(held > 0, np.floor((memory - more) / held), np.where(memory >= more, np.inf, 0.0))
        some = np.where(taking, np.clip(np.minimum(by_load, by_memory), 0.0, here), 0.0)
        taken[:, :, segment] = some
        with np.errstate(invalid="ignore"):
            seconds = seconds - np.where(some > 0, some * load, 0.0)
        memory = memory - some * held
        working = np.where(some > 0, more, working)
        np.logical_and(taking, some == here, out=taking)
        if not taking.any():
            break
    best = taken.sum(axis=2).argmax(axis=1)
    chosen: FloatArray = taken[np.arange(rows.n_rows), best]
    return chosen
