"""Solve one scheduling problem: bounds, list schedules, an exact search where these do not meet, a solver at last."""

import numpy as np

from archplace.arch_configs.errors import ConfigError
from archplace.search.schedule._durations import UNAVAILABLE_S, Durations
from archplace.search.schedule._improve import improve
from archplace.search.schedule._part import Part, parts_of
from archplace.search.schedule.bounds import as_bound, part_bound
from archplace.search.schedule.exact import solve_exact
from archplace.search.schedule.problem import (
    Schedule,
    ScheduleProblem,
    ScheduleStatus,
    status_of,
    with_bound,
)
from archplace.search.schedule.verify import verify

ENGINES = ("auto", "exact", "cpsat", "milp", "list")
TIME_LIMIT_S = 1.0
"""Default limit. What is not proven by then is rarely proven within minutes."""
_STATES_PER_SECOND = 200_000
"""Of the exact search; about."""
_MOST_STATES = 2_000_000
"""Of the exact search, which holds a layer of them at a time: some hundred megabytes."""
_GENERATIONS = 8
"""Of the local search: a few hundredths of a second."""
_FEW_GENERATIONS = 2
"""Before the exact search, which finds better schedules in the same time."""


def solve(
    problem: ScheduleProblem, *, engine: str = "auto", time_limit_s: float = TIME_LIMIT_S, solver: str = "HiGHS"
) -> Schedule:
    """The best schedule found, verified, with what is proven about it.

    ``engine``: ``auto`` takes bounds and list schedules, where they do not meet an exact search, and CP-SAT where that
    gives up; ``exact`` does not ask CP-SAT then; ``cpsat`` and ``milp`` always ask that solver; ``list`` stops at
    bounds and list schedules. ``time_limit_s`` holds per part of the graph that runs by itself: for the exact search as
    a number of states and for CP-SAT as deterministic time (both about seconds), for the MILP as wall-clock time.
    ``solver`` names the MILP solver as PuLP does. Raises ``ConfigError`` for an unknown engine or solver and a limit
    that is not positive.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine: found {engine!r}, allowed are {', '.join(ENGINES)}")
    if not time_limit_s > 0:
        raise ConfigError(f"time limit: found {time_limit_s} s, needs more than 0")
    canonical = problem.canonical()
    data = _durations(canonical)
    start = np.zeros(problem.n_ops)
    mode = np.zeros(problem.n_ops, dtype=np.int8)
    unit = np.full(problem.n_ops, -1, dtype=np.int64)
    makespan_s = lower_bound_s = 0.0
    for part in parts_of(problem.graph, data):
        own = ScheduleProblem(
            graph=part.graph,
            one_s=canonical.one_s[part.members],
            all_s=canonical.all_s[part.members],
            tensor_units=canonical.tensor_units,
            vector_units=canonical.vector_units,
        )
        found = _solve_part(own, part, engine=engine, time_limit_s=time_limit_s, solver=solver)
        start[part.members] = found.start_s + makespan_s
        mode[part.members] = found.mode
        unit[part.members] = found.unit
        makespan_s += found.makespan_s
        lower_bound_s += found.lower_bound_s
    status = status_of(makespan_s=makespan_s, lower_bound_s=lower_bound_s)
    schedule = Schedule(
        start_s=start,
        mode=mode,
        unit=unit,
        makespan_s=makespan_s,
        lower_bound_s=makespan_s if status is ScheduleStatus.OPTIMAL else lower_bound_s,
        status=status,
    )
    violations = verify(problem, schedule)
    assert not violations, f"{engine} returned an invalid schedule: {'; '.join(violations)}"
    return schedule


def _durations(problem: ScheduleProblem) -> Durations:
    return Durations(
        one_s=np.minimum(problem.one_s, UNAVAILABLE_S)[:, None],
        all_s=np.minimum(problem.all_s, UNAVAILABLE_S)[:, None],
        tensor_units=np.array([problem.tensor_units]),
        vector_units=np.array([problem.vector_units]),
    )


def _solve_part(problem: ScheduleProblem, part: Part, *, engine: str, time_limit_s: float, solver: str) -> Schedule:
    data = _durations(problem)
    bound = part_bound(part, data, data.fastest_s.sum(axis=0))
    lower_bound_s = float(as_bound(bound.bound_s)[0])
    hints = [bound.on_all[:, 0]]
    searches = engine in ("auto", "exact")
    schedule = improve(
        problem,
        part,
        hints=hints,
        lower_bound_s=lower_bound_s,
        generations=_FEW_GENERATIONS if searches else _GENERATIONS,
    )
    # A shorter schedule to beat rules out more modes.
    bound = part_bound(part, data, np.array([schedule.makespan_s]))
    lower_bound_s = max(lower_bound_s, float(as_bound(bound.bound_s)[0]))
    schedule = with_bound(schedule, lower_bound_s)
    if engine == "list" or (searches and schedule.status is ScheduleStatus.OPTIMAL):
        return schedule
    if engine == "milp":
        from archplace.search.schedule.milp import solve_milp

        return solve_milp(problem, hint=schedule, time_limit_s=time_limit_s, solver=solver)
    if searches:
        limit = round(min(_STATES_PER_SECOND * time_limit_s, _MOST_STATES))
        reduced = _reduced(problem, bound.data, schedule)
        schedule = solve_exact(reduced, part, known=schedule, lower_bound_s=lower_bound_s, state_limit=limit)
        if schedule.status is ScheduleStatus.OPTIMAL:
            return schedule
        lower_bound_s = schedule.lower_bound_s
        other = improve(problem, part, hints=hints, lower_bound_s=lower_bound_s, generations=_GENERATIONS)
        if other.makespan_s < schedule.makespan_s:
            schedule = with_bound(other, lower_bound_s)
        if engine == "exact" or schedule.status is ScheduleStatus.OPTIMAL:
            return schedule
        bound = part_bound(part, data, np.array([schedule.makespan_s]))
    from archplace.search.schedule.cpsat import solve_cpsat

    return solve_cpsat(
        _reduced(problem, bound.data, schedule), hint=schedule, lower_bound_s=lower_bound_s, time_limit_s=time_limit_s
    )


def _reduced(problem: ScheduleProblem, data: Durations, known: Schedule) -> ScheduleProblem:
    """The problem without the modes that no schedule shorter than ``known`` has, but with those of ``known``.

    Either the best schedule is among what remains, or ``known`` is it.
    """
    possible_one = (data.one_s[:, 0] < UNAVAILABLE_S) | (known.mode == 0)
    possible_all = (data.all_s[:, 0] < UNAVAILABLE_S) | (known.mode == 1)
    return ScheduleProblem(
        graph=problem.graph,
        one_s=np.where(possible_one, problem.one_s, np.inf),
        all_s=np.where(possible_all, problem.all_s, np.inf),
        tensor_units=problem.tensor_units,
        vector_units=problem.vector_units,
    )
