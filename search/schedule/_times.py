"""From an order with modes and units to the earliest start times: how every solver's answer becomes a schedule."""

import heapq

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule.graph import Kind
from archplace.search.schedule.problem import Mode, Schedule, ScheduleProblem, ScheduleStatus, durations_s, with_bound


def schedule_in_order(
    problem: ScheduleProblem,
    *,
    order: NDArray[np.int64],
    mode: NDArray[np.int8],
    unit: NDArray[np.int64],
    lower_bound_s: float,
) -> Schedule:
    """Start every operator as early as the ones before it in ``order`` allow, in floats.

    ``order`` lists the operators by start time (a solver's, in its own ticks) and must respect precedence; operators
    that share a unit, the network, or the whole accelerator keep that order. The result is valid by construction, and
    no later than the solver's own times. A ``lower_bound_s`` within the proof tolerance of the makespan is raised to
    it.
    """
    duration = durations_s(problem, mode).tolist()
    modes, units, kinds = mode.tolist(), unit.tolist(), problem.kinds.tolist()
    predecessors: list[list[int]] = [[] for _ in kinds]
    for i, j in problem.graph.reduced_edges.tolist():
        predecessors[j].append(i)
    start = [0.0] * problem.n_ops
    end = [0.0] * problem.n_ops
    tensor_free = [0.0] * problem.tensor_units
    vector_free = [0.0] * problem.vector_units
    free_of: dict[int, tuple[list[float], ...]] = {
        int(Kind.TENSOR): (tensor_free,),
        int(Kind.VECTOR): (vector_free,),
        int(Kind.FUSED): (tensor_free, vector_free),
    }
    on_all, network = int(Mode.ALL), int(Kind.NETWORK)
    network_free = 0.0
    for i in order.tolist():
        earliest = max((end[j] for j in predecessors[i]), default=0.0)
        length = duration[i]
        if length == 0:
            pass
        elif kinds[i] == network:
            earliest = max(earliest, network_free)
            network_free = earliest + length
        elif modes[i] == on_all:
            earliest = max(earliest, *tensor_free, *vector_free)
            tensor_free[:] = [earliest + length] * len(tensor_free)
            vector_free[:] = [earliest + length] * len(vector_free)
        else:
            used = free_of[kinds[i]]
            for free in used:
                earliest = max(earliest, free[units[i]])
            for free in used:
                free[units[i]] = earliest + length
        start[i] = earliest
        end[i] = earliest + length
    makespan_s = max(end, default=0.0)
    schedule = Schedule(
        start_s=np.array(start),
        mode=mode,
        unit=unit,
        makespan_s=makespan_s,
        lower_bound_s=0.0,
        status=ScheduleStatus.GAP,
    )
    return with_bound(schedule, lower_bound_s)


def order_by_start(problem: ScheduleProblem, start: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n_ops,) the operators by start time, but never one before its predecessors.

    The two can disagree where a solver's times are off by its tolerance, or where operators of no duration share a
    start.
    """
    times = start.tolist()
    waits = [0] * problem.n_ops
    followers: list[list[int]] = [[] for _ in waits]
    for i, j in problem.graph.reduced_edges.tolist():
        waits[j] += 1
        followers[i].append(j)
    queue = [(times[i], i) for i, count in enumerate(waits) if count == 0]
    heapq.heapify(queue)
    order = []
    while queue:
        _, i = heapq.heappop(queue)
        order.append(i)
        for j in followers[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heapq.heappush(queue, (times[j], j))
    return np.array(order, dtype=np.int64)


def assign_units(
    problem: ScheduleProblem, *, start: NDArray[np.float64], end: NDArray[np.float64], mode: NDArray[np.int8]
) -> NDArray[np.int64] | None:
    """Give every operator in mode ONE its unit for fixed times; None if no assignment exists.

    Operators on one kind of unit alone take any unit that is free at their start. That never fails when at most
    as many overlap as there are units, except that fused operators tie the indices of both kinds together: for
    these the choice is searched exhaustively, in order of start time. Of units that are free at the same times from
    then on, one stands for all.
    """
    unit = np.full(problem.n_ops, -1, dtype=np.int64)
    uses = (problem.graph.uses_tensor, problem.graph.uses_vector)
    running = (mode == Mode.ONE) & (uses[0] | uses[1])
    pending = sorted(np.flatnonzero(running).tolist(), key=lambda i: (start[i], end[i]))
    counts = (problem.tensor_units, problem.vector_units)
    fused = any(problem.kinds[i] == Kind.FUSED for i in pending)

    def place(position: int) -> bool:
        if position == len(pending):
            return True
        i = pending[position]
        taken = set()
        free_at: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for use, free in zip(uses, free_at, strict=True):
            for j in pending[:position]:
                if use[j] and end[j] > start[i]:
                    free[int(unit[j])] = end[j]
            if use[i]:
                taken |= {
                    int(unit[j]) for j in pending[:position] if use[j] and end[j] > start[i] and end[i] > start[j]
                }
        limit = min(count for count, use in zip(counts, uses, strict=True) if use[i])
        tried = set()
        for candidate in range(limit):
            alike = (candidate < min(counts), free_at[0].get(candidate), free_at[1].get(candidate))
            if candidate in taken or alike in tried:
                continue
            tried.add(alike)
            unit[i] = candidate
            if place(position + 1):
                return True
            if not fused:
                break
        unit[i] = -1
        return False

    return unit if place(0) else None
