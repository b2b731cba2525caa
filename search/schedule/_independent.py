"""The exact makespan of a few operators that no precedence relates, by enumeration."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Durations, Floats
from archplace.search.schedule._sums import total
from archplace.search.schedule.graph import Kind, ScheduleGraph

_MOST = 4
"""Unrelated operators up to this many are enumerated; the count of cases grows like the Bell numbers."""


def is_small(graph: ScheduleGraph) -> bool:
    """Whether :func:`independent_s` applies."""
    return graph.n_ops <= _MOST and not (graph.kinds == Kind.FUSED).any() and not graph.before.any()


def independent_s(kinds: NDArray[np.int8], data: Durations) -> Floats:
    """(n_archs,) the exact makespan of unrelated operators, of which none is fused.

    Every choice of operators that run on all units is tried; these take their sum, since nothing overlaps them. The
    rest follow side by side: per kind of unit, in the best of all distributions over the units there are. Collectives
    overlap everything.
    """
    network = np.flatnonzero(kinds == Kind.NETWORK)
    compute = np.flatnonzero(kinds != Kind.NETWORK).tolist()
    spread: dict[tuple[int, ...], Floats] = {(): np.zeros(data.n_archs)}
    for kind, units in ((Kind.TENSOR, data.tensor_units), (Kind.VECTOR, data.vector_units)):
        own = [i for i in compute if kinds[i] == kind]
        for size in range(1, len(own) + 1):
            for chosen in combinations(own, size):
                spread[chosen] = _spread_s(list(chosen), data.one_s, units)
    best = np.full(data.n_archs, np.inf)
    for size in range(len(compute) + 1):
        for exclusive in combinations(compute, size):
            rest = [i for i in compute if i not in exclusive]
            beside = [spread[tuple(i for i in rest if kinds[i] == kind)] for kind in (Kind.TENSOR, Kind.VECTOR)]
            np.minimum(best, total(data.all_s[list(exclusive)]) + np.maximum(*beside), out=best)
    exact: Floats = np.maximum(best, total(data.one_s[network]))
    return exact


def _spread_s(chosen: list[int], one_s: Floats, units: NDArray[np.int64]) -> Floats:
    """(n_archs,) the exact makespan of ``chosen``, each on one of ``units`` identical units."""
    best = np.full(one_s.shape[1], np.inf)
    for groups in _partitions(chosen):
        load = np.maximum.reduce([total(one_s[group]) for group in groups])
        np.minimum(best, np.where(units >= len(groups), load, np.inf), out=best)
    return best


def _partitions(items: list[int]) -> list[list[list[int]]]:
    """All ways to divide ``items`` into groups."""
    if not items:
        return [[]]
    first, *rest = items
    found = []
    for groups in _partitions(rest):
        found.append([[first], *groups])
        found += [[*groups[:i], [first, *groups[i]], *groups[i + 1 :]] for i in range(len(groups))]
    return found
