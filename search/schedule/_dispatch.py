"""Simulate many dispatch decisions at once: one column is one (architecture, modes, priorities) to be played out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule.graph import Kind, ScheduleGraph

Floats = NDArray[np.float64]

_TENSOR, _VECTOR, _FUSED, _NETWORK = (int(kind) for kind in (Kind.TENSOR, Kind.VECTOR, Kind.FUSED, Kind.NETWORK))
"""Plain numbers: members of an enum are slow to look up."""
_EVERY = len(Kind)
"""What an operator on all units waits for, beside the units of each kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What :func:`dispatch` played out."""

    makespan_s: Floats
    """(n,)"""
    start_s: Floats
    """(n_ops, n)"""
    unit: NDArray[np.int64]
    """(n_ops, n) the unit in mode ONE, else -1."""


def dispatch(
    graph: ScheduleGraph,
    *,
    duration_s: Floats,
    on_all: NDArray[np.bool_],
    priority_s: Floats,
    tensor_units: NDArray[np.int64],
    vector_units: NDArray[np.int64],
) -> Played:
    """Play n schedules of ``graph`` in ``n_ops`` steps.

    In each step every column starts, among its operators whose predecessors are placed, the one whose earliest start
    minus ``priority_s`` is least: priority 0 never leaves a unit idle that something could use; a large one reserves
    units for the important operator. ``duration_s``, ``on_all``, ``priority_s``: (n_ops, n), durations of the mode
    chosen; ``on_all`` must be False for collectives. ``tensor_units``, ``vector_units``: (n,).
    """
    n_ops, count = duration_s.shape
    columns = np.arange(count)
    follows = np.zeros((n_ops, n_ops), dtype=np.bool_)
    edges = graph.reduced_edges
    follows[edges[:, 1], edges[:, 0]] = True
    waits = np.repeat(follows.sum(axis=1, dtype=np.int16)[:, None], count, axis=1)
    urgency = -priority_s
    blocked = np.where(waits > 0, np.inf, urgency)
    ready = np.zeros((n_ops, count))
    start = np.zeros((n_ops, count))
    unit = np.full((n_ops, count), -1, dtype=np.int64)
    instant = duration_s == 0
    unit[instant & ~on_all & ~graph.is_network[:, None]] = 0
    any_instant = bool(instant.any())

    # What each operator waits for besides its predecessors: a row of ``free``, as a position in the flat array.
    claim = np.where(on_all, _EVERY, graph.kinds[:, None].astype(np.int64))
    place = claim * count + columns
    free = np.zeros((_EVERY + 1, count))
    tensor_free = _free(graph.uses_tensor, tensor_units)
    vector_free = _free(graph.uses_vector, vector_units)
    pairs = min(len(tensor_free), len(vector_free))
    has_fused = bool((graph.kinds == _FUSED).any())
    exclusive_end = np.zeros(count)
    for _ in range(n_ops):
        np.maximum(tensor_free.min(axis=0), exclusive_end, out=free[_TENSOR])
        np.maximum(vector_free.min(axis=0), exclusive_end, out=free[_VECTOR])
        if has_fused:
            both_free = np.maximum(tensor_free[:pairs], vector_free[:pairs])
            np.maximum(both_free.min(axis=0), exclusive_end, out=free[_FUSED])
        earliest = np.maximum(ready, free.take(place))
        picked = (earliest + blocked).argmin(axis=0)

        at = picked * count + columns
        begin = earliest.take(at)
        length = duration_s.take(at)
        claimed = claim.take(at)
        if any_instant:
            # An operator of no duration occupies nothing: it starts when it is ready and leaves all units as they are.
            idle = length == 0
            begin = np.where(idle, ready.take(at), begin)
            claimed[idle] = -1
        end = begin + length
        start.put(at, begin)
        for kind, units in ((_TENSOR, tensor_free), (_VECTOR, vector_free)):
            chosen = (claimed == kind).nonzero()[0]
            if not len(chosen):
                continue
            if len(units) == 1:
                units[0, chosen] = end[chosen]
                unit.put(at[chosen], 0)
            else:
                index = units.take(chosen, axis=1).argmin(axis=0)
                units[index, chosen] = end[chosen]
                unit.put(at[chosen], index)
        if has_fused:
            chosen = (claimed == _FUSED).nonzero()[0]
            index = both_free.take(chosen, axis=1).argmin(axis=0)
            tensor_free[index, chosen] = vector_free[index, chosen] = end[chosen]
            unit.put(at[chosen], index)
        np.copyto(free[_NETWORK], end, where=claimed == _NETWORK)
        np.copyto(exclusive_end, end, where=claimed == _EVERY)
        np.maximum(free[_EVERY], end, out=free[_EVERY], where=(claimed != _NETWORK) & (claimed >= 0))

        blocked.put(at, np.inf)
        released = follows.take(picked, axis=1)
        np.maximum(ready, end, out=ready, where=released)
        waits -= released
        np.copyto(blocked, urgency, where=released & (waits == 0))
    makespan: Floats = (start + duration_s).max(axis=0)
    return Played(makespan_s=makespan, start_s=start, unit=unit)


def _free(users: NDArray[np.bool_], units: NDArray[np.int64]) -> Floats:
    """(most units that can matter, n) zeros, ``inf`` where an architecture has no such unit."""
    most = max(1, min(int(users.sum()), int(units.max(initial=1))))
    return np.where(np.arange(most)[:, None] < units, 0.0, np.inf)
