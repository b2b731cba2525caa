"""Solve one part of many problems on equal graphs: together as long as arrays do the work, then one by one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._dispatch import dispatch
from archplace.search.schedule._durations import UNAVAILABLE_S, Durations, Floats
from archplace.search.schedule._improve import improve
from archplace.search.schedule._part import Part
from archplace.search.schedule._sums import total
from archplace.search.schedule.bounds import PartBound, as_bound, part_bound
from archplace.search.schedule.exact import solve_exact
from archplace.search.schedule.listing import list_part
from archplace.search.schedule.problem import Mode, Schedule, ScheduleProblem, ScheduleStatus, with_bound

_STATES_PER_SECOND = 200_000
"""Of the exact search; about."""
_MOST_STATES = 2_000_000
"""Of the exact search, which holds a layer of them at a time: some hundred megabytes."""
_GENERATIONS = 8
"""Of the local search: a few hundredths of a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartSchedules:
    """The schedules of one part, a row per problem; each starts at 0."""

    start_s: Floats
    """(n, k)"""
    mode: NDArray[np.int8]
    """(n, k)"""
    unit: NDArray[np.int64]
    """(n, k)"""
    makespan_s: Floats
    """(n,)"""
    lower_bound_s: Floats
    """(n,)"""

    @classmethod
    def of(cls, schedules: Sequence[Schedule]) -> "PartSchedules":
        """These schedules, of which there is at least one."""
        return cls(
            start_s=np.array([schedule.start_s for schedule in schedules]),
            mode=np.array([schedule.mode for schedule in schedules]),
            unit=np.array([schedule.unit for schedule in schedules]),
            makespan_s=np.array([schedule.makespan_s for schedule in schedules]),
            lower_bound_s=np.array([schedule.lower_bound_s for schedule in schedules]),
        )


def solve_alone(part: Part, one_s: Floats, all_s: Floats) -> PartSchedules:
    """A part of one operator: (n, 1) durations of canonical problems, of which the faster mode is best."""
    on_all = (all_s < one_s) & part.compute
    makespan_s = np.where(on_all, all_s, one_s)
    return PartSchedules(
        start_s=np.zeros_like(one_s),
        mode=np.where(on_all, Mode.ALL, Mode.ONE).astype(np.int8),
        unit=np.where(on_all | ~part.compute, -1, 0),
        makespan_s=makespan_s[:, 0],
        lower_bound_s=makespan_s[:, 0],
    )


def solve_part(
    part: Part,
    one_s: Floats,
    all_s: Floats,
    tensor_units: NDArray[np.int64],
    vector_units: NDArray[np.int64],
    *,
    engine: str,
    time_limit_s: float,
    solver: str,
) -> PartSchedules:
    """The best schedules of one part of n canonical problems, equal ones solved once.

    ``one_s``, ``all_s``: (n, k). ``tensor_units``, ``vector_units``: (n,). The other arguments are those of
    :func:`~archplace.search.schedule.solve.solve`. No problem influences another.
    """
    # Architectures often differ in other parts only, or in units that this part cannot use.
    tensor_units = np.minimum(tensor_units, max(1, int(part.graph.uses_tensor.sum())))
    vector_units = np.minimum(vector_units, max(1, int(part.graph.uses_vector.sum())))
    place: dict[bytes, int] = {}
    problems: list[ScheduleProblem] = []
    row = np.empty(len(one_s), dtype=np.int64)
    for i in range(len(one_s)):
        problem = ScheduleProblem(
            graph=part.graph,
            one_s=one_s[i],
            all_s=all_s[i],
            tensor_units=int(tensor_units[i]),
            vector_units=int(vector_units[i]),
        )
        content = b"".join(
            [one_s[i].tobytes(), all_s[i].tobytes(), tensor_units[i].tobytes(), vector_units[i].tobytes()]
        )
        row[i] = place.setdefault(content, len(problems))
        if row[i] == len(problems):
            problems.append(problem)
    if engine in ("auto", "exact"):
        schedules = _search(problems, part, engine=engine, time_limit_s=time_limit_s)
    else:
        schedules = [
            _ask(problem, part, engine=engine, time_limit_s=time_limit_s, solver=solver) for problem in problems
        ]
    return PartSchedules.of([schedules[i] for i in row])


def _durations(problems: Sequence[ScheduleProblem]) -> Durations:
    return Durations(
        one_s=np.minimum(np.array([problem.one_s for problem in problems]).T, UNAVAILABLE_S, order="C"),
        all_s=np.minimum(np.array([problem.all_s for problem in problems]).T, UNAVAILABLE_S, order="C"),
        tensor_units=np.array([problem.tensor_units for problem in problems]),
        vector_units=np.array([problem.vector_units for problem in problems]),
    )


def _search(problems: list[ScheduleProblem], part: Part, *, engine: str, time_limit_s: float) -> list[Schedule]:
    """List schedules, for what they leave open the exact search, for what that leaves open CP-SAT."""
    data = _durations(problems)
    schedules = _listed(part, data)
    open_ = [i for i, schedule in enumerate(schedules) if schedule.status is not ScheduleStatus.OPTIMAL]
    if not open_:
        return schedules
    # A schedule to beat rules out modes.
    known_s = np.array([schedules[i].makespan_s for i in open_])
    bound = part_bound(part, data.archs(np.array(open_)), known_s)
    lower_s = as_bound(bound.bound_s)
    limit = round(min(_STATES_PER_SECOND * time_limit_s, _MOST_STATES))
    found = solve_exact(
        [_reduced(problems[i], bound, column, schedules[i]) for column, i in enumerate(open_)],
        part,
        known=[schedules[i] for i in open_],
        lower_bound_s=[max(schedules[i].lower_bound_s, float(lower_s[column])) for column, i in enumerate(open_)],
        state_limit=limit,
    )
    for i, schedule in zip(open_, found, strict=True):
        if schedule.status is not ScheduleStatus.OPTIMAL:
            schedule = _last_resort(problems[i], part, schedule, engine=engine, time_limit_s=time_limit_s)
        schedules[i] = schedule
    return schedules


def _listed(part: Part, data: Durations) -> list[Schedule]:
    """The best list schedules, with their bounds."""
    listed = list_part(part, data)
    played = dispatch(
        part.graph,
        duration_s=np.where(listed.on_all, data.all_s, data.one_s),
        on_all=listed.on_all,
        priority_s=listed.priority_s,
        tensor_units=data.tensor_units,
        vector_units=data.vector_units,
    )
    lower_s = as_bound(listed.lower_s)
    start_s, mode, unit = played.start_s.T.copy(), listed.on_all.T.astype(np.int8), played.unit.T.copy()
    return [
        with_bound(
            Schedule(
                start_s=start_s[i],
                mode=mode[i],
                unit=unit[i],
                makespan_s=float(played.makespan_s[i]),
                lower_bound_s=0.0,
                status=ScheduleStatus.GAP,
            ),
            float(lower_s[i]),
        )
        for i in range(data.n_archs)
    ]


def _last_resort(
    problem: ScheduleProblem, part: Part, known: Schedule, *, engine: str, time_limit_s: float
) -> Schedule:
    """Better than ``known``, which the exact search gave up on: by local search, then by CP-SAT."""
    bound = part_bound(part, _durations([problem]), np.array([known.makespan_s]))
    hints = [bound.on_all[:, 0]]
    other = improve(problem, part, hints=hints, lower_bound_s=known.lower_bound_s, generations=_GENERATIONS)
    if other.makespan_s < known.makespan_s:
        known = with_bound(other, known.lower_bound_s)
    if engine == "exact" or known.status is ScheduleStatus.OPTIMAL:
        return known
    return _cpsat(problem, part, known, time_limit_s=time_limit_s)


def _ask(problem: ScheduleProblem, part: Part, *, engine: str, time_limit_s: float, solver: str) -> Schedule:
    """Local search, and whatever it has found the solver that is asked for."""
    data = _durations([problem])
    bound = part_bound(part, data, total(data.fastest_s))
    lower_bound_s = float(as_bound(bound.bound_s)[0])
    hints = [bound.on_all[:, 0]]
    schedule = improve(problem, part, hints=hints, lower_bound_s=lower_bound_s, generations=_GENERATIONS)
    # A shorter schedule to beat rules out more modes.
    bound = part_bound(part, data, np.array([schedule.makespan_s]))
    schedule = with_bound(schedule, max(lower_bound_s, float(as_bound(bound.bound_s)[0])))
    if engine == "list":
        return schedule
    if engine == "milp":
        from archplace.search.schedule.milp import solve_milp

        return solve_milp(problem, hint=schedule, time_limit_s=time_limit_s, solver=solver)
    return _cpsat(problem, part, schedule, time_limit_s=time_limit_s)


def _cpsat(problem: ScheduleProblem, part: Part, known: Schedule, *, time_limit_s: float) -> Schedule:
    from archplace.search.schedule.cpsat import solve_cpsat

    bound = part_bound(part, _durations([problem]), np.array([known.makespan_s]))
    reduced = _reduced(problem, bound, 0, known)
    return solve_cpsat(reduced, hint=known, lower_bound_s=known.lower_bound_s, time_limit_s=time_limit_s)


def _reduced(problem: ScheduleProblem, bound: PartBound, column: int, known: Schedule) -> ScheduleProblem:
    """The problem without the modes that no schedule shorter than ``known`` has, but with those of ``known``.

    Either the best schedule is among what remains, or ``known`` is it.
    """
    data = bound.data
    possible_one = (data.one_s[:, column] < UNAVAILABLE_S) | (known.mode == Mode.ONE)
    possible_all = (data.all_s[:, column] < UNAVAILABLE_S) | (known.mode == Mode.ALL)
    return ScheduleProblem(
        graph=problem.graph,
        one_s=np.where(possible_one, problem.one_s, np.inf),
        all_s=np.where(possible_all, problem.all_s, np.inf),
        tensor_units=problem.tensor_units,
        vector_units=problem.vector_units,
    )
