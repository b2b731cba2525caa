"""Simulate many dispatch decisions at once: one column is one (architecture, modes, priorities) to be played out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule.graph import Kind, ScheduleGraph

Floats = NDArray[np.float64]


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
    follows[edges[:, 0], edges[:, 1]] = True
    waits = np.repeat(follows.sum(axis=0, dtype=np.int16)[:, None], count, axis=1)
    blocked = np.where(waits > 0, np.inf, 0.0) - priority_s
    ready = np.zeros((n_ops, count))
    start = np.zeros((n_ops, count))
    unit = np.full((n_ops, count), -1, dtype=np.int64)

    tensor_free = _free(graph.uses_tensor, tensor_units)
    vector_free = _free(graph.uses_vector, vector_units)
    pairs = min(len(tensor_free), len(vector_free))
    network_free = np.zeros(count)
    rows = [np.flatnonzero(graph.kinds == kind) for kind in Kind]
    has_fused = len(rows[Kind.FUSED]) > 0
    kinds = graph.kinds
    available = np.empty((n_ops, count))
    every_free = np.zeros(count)
    for _ in range(n_ops):
        available[rows[Kind.TENSOR]] = tensor_free.min(axis=0)
        available[rows[Kind.VECTOR]] = vector_free.min(axis=0)
        if has_fused:
            both_free = np.maximum(tensor_free[:pairs], vector_free[:pairs])
            available[rows[Kind.FUSED]] = both_free.min(axis=0)
        available[rows[Kind.NETWORK]] = network_free
        np.copyto(available, every_free, where=on_all)
        earliest = np.maximum(ready, available)
        picked = (earliest + blocked).argmin(axis=0)

        begin = earliest[picked, columns]
        length = duration_s[picked, columns]
        # An operator of no duration occupies nothing: it starts when it is ready and leaves all units as they are.
        begin = np.where(length > 0, begin, ready[picked, columns])
        end = begin + length
        start[picked, columns] = begin
        exclusive = on_all[picked, columns]
        kind = kinds[picked]
        busy = length > 0
        for k, free in ((Kind.TENSOR, tensor_free), (Kind.VECTOR, vector_free)):
            chosen = np.flatnonzero(busy & ~exclusive & (kind == k))
            if len(chosen):
                index = free[:, chosen].argmin(axis=0)
                free[index, chosen] = end[chosen]
                unit[picked[chosen], chosen] = index
        if has_fused:
            chosen = np.flatnonzero(busy & ~exclusive & (kind == Kind.FUSED))
            index = both_free[:, chosen].argmin(axis=0)
            tensor_free[index, chosen] = vector_free[index, chosen] = end[chosen]
            unit[picked[chosen], chosen] = index
        idle = ~busy & ~exclusive & (kind != Kind.NETWORK)
        unit[picked[idle], columns[idle]] = 0
        taken = exclusive & busy
        for free in (tensor_free, vector_free):
            np.copyto(free, np.where(np.isfinite(free), end, np.inf), where=taken)
        compute_end = np.where(busy & (kind != Kind.NETWORK), end, 0.0)
        np.maximum(every_free, compute_end, out=every_free)
        np.copyto(network_free, end, where=busy & (kind == Kind.NETWORK))

        blocked[picked, columns] = np.inf
        released = follows[picked].T
        np.maximum(ready, end, out=ready, where=released)
        waits -= released
        freed = released & (waits == 0)
        np.copyto(blocked, -priority_s, where=freed)
    makespan: Floats = (start + duration_s).max(axis=0)
    return Played(makespan_s=makespan, start_s=start, unit=unit)


def _free(users: NDArray[np.bool_], units: NDArray[np.int64]) -> Floats:
    """(most units that can matter, n) zeros, ``inf`` where an architecture has no such unit."""
    most = max(1, min(int(users.sum()), int(units.max(initial=1))))
    return np.where(np.arange(most)[:, None] < units, 0.0, np.inf)
