"""Dominance and Pareto fronts over points in columns; every objective is minimised here."""

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray


def front_mask(objectives: FloatArray) -> NDArray[np.bool_]:
    """Return which of ``objectives`` (n_points, n_objectives), all minimised, no other point dominates.

    A point dominates another when it is nowhere worse and somewhere better; equal points do not dominate each other, so
    that ties stay together. Points with an infinite or NaN objective are infeasible and never on the front. O(n log n)
    for one or two objectives, O(n · front) beyond.
    """
    finite = np.isfinite(objectives).all(axis=1)
    mask = np.zeros(len(objectives), dtype=np.bool_)
    candidates = np.flatnonzero(finite)
    if len(candidates) == 0:
        return mask
    values = objectives[candidates]
    order = np.lexsort(values.T[::-1])
    values = values[order]
    kept = _sweep(values) if values.shape[1] <= 2 else _filter(values)
    mask[candidates[order[kept]]] = True
    return mask


def _sweep(values: FloatArray) -> NDArray[np.intp]:
    """Front of lexicographically sorted points with one or two objectives."""
    last = values[:, -1]
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(last)[:-1]))
    same_as_previous = np.concatenate(([False], (values[1:] == values[:-1]).all(axis=1)))
    better = last < best_before
    # A tie is on the front exactly when the first of its run is.
    runs = np.maximum.accumulate(np.where(same_as_previous, 0, np.arange(len(values))))
    return np.flatnonzero(better[runs])


def _filter(values: FloatArray) -> NDArray[np.intp]:
    """Front of lexicographically sorted points: a later point never dominates an earlier one."""
    kept: list[int] = []
    alive = np.ones(len(values), dtype=np.bool_)
    for i in range(len(values)):
        if not alive[i]:
            continue
        kept.append(i)
        rest = values[i + 1 :]
        alive[i + 1 :] &= ~((rest >= values[i]).all(axis=1) & (rest > values[i]).any(axis=1))
    return np.array(kept, dtype=np.intp)


def dominated_by(points: FloatArray, front: FloatArray) -> NDArray[np.int64]:
    """Return for each of ``points`` (n, k) the index of a point of ``front`` (m, k) that dominates it, or −1.

    ``front`` must be a front: none of it dominates another. All objectives are minimised. With two objectives the
    dominating point that is best in the first one is named, in O((n + m) log m); else the first in the front's order.
    """
    if len(front) == 0:
        return np.full(len(points), -1, dtype=np.int64)
    if points.shape[1] == 2:
        return _dominated_by_staircase(points, front)
    found = np.full(len(points), -1, dtype=np.int64)
    for i in range(len(front)):
        open_ = np.flatnonzero(found < 0)
        hit = (points[open_] >= front[i]).all(axis=1) & (points[open_] > front[i]).any(axis=1)
        found[open_[hit]] = i
    return found


def _dominated_by_staircase(points: FloatArray, front: FloatArray) -> NDArray[np.int64]:
    """Along a front of two objectives one falls while the other rises: only one step can dominate a point at best."""
    order = np.lexsort((front[:, 0], front[:, 1]))
    steps = front[order]
    # The last step whose second objective is no worse; of all such steps it has the best first objective.
    step = np.searchsorted(steps[:, 1], points[:, 1], side="right") - 1
    reached = steps[np.maximum(step, 0)]
    better = (reached <= points).all(axis=1) & (reached < points).any(axis=1)
    return np.where((step >= 0) & better, order[np.maximum(step, 0)], -1)
