"""Solve scheduling problems: bounds, list schedules, an exact search where these do not meet, a solver at last."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.errors import ConfigError
from archplace.search.schedule._durations import Floats
from archplace.search.schedule._part import parts_of
from archplace.search.schedule._solve_part import PartSchedules, solve_alone, solve_part
from archplace.search.schedule.problem import Schedule, ScheduleProblem, ScheduleStatus, status_of
from archplace.search.schedule.verify import verify

ENGINES = ("auto", "exact", "cpsat", "milp", "list")
TIME_LIMIT_S = 1.0
"""Default limit. What is not proven by then is rarely proven within minutes."""
_TOGETHER = 1024
"""Problems on equal graphs that are solved at a time: bounds memory; more would hardly be faster."""


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
    return solve_many([problem], engine=engine, time_limit_s=time_limit_s, solver=solver)[0]


def solve_many(
    problems: Sequence[ScheduleProblem],
    *,
    engine: str = "auto",
    time_limit_s: float = TIME_LIMIT_S,
    solver: str = "HiGHS",
) -> list[Schedule]:
    """The schedules that :func:`solve` finds for each of ``problems``, in their order, found together.

    Problems whose graphs have the same kinds and precedence go through bounds, list schedules and the exact search side
    by side, several times as fast as one by one. The answers are the same, bit for bit. Arguments as for :func:`solve`.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine: found {engine!r}, allowed are {', '.join(ENGINES)}")
    if not time_limit_s > 0:
        raise ConfigError(f"time limit: found {time_limit_s} s, needs more than 0")
    alike: dict[tuple[bytes, bytes], list[int]] = {}
    for i, problem in enumerate(problems):
        alike.setdefault((problem.kinds.tobytes(), problem.graph.before.tobytes()), []).append(i)
    schedules: dict[int, Schedule] = {}
    for indices in alike.values():
        for first in range(0, len(indices), _TOGETHER):
            chosen = indices[first : first + _TOGETHER]
            own = [problems[i] for i in chosen]
            found = _solve_alike(own, engine=engine, time_limit_s=time_limit_s, solver=solver)
            schedules.update(zip(chosen, found, strict=True))
    for i, problem in enumerate(problems):
        violations = verify(problem, schedules[i])
        assert not violations, f"{engine} returned an invalid schedule: {'; '.join(violations)}"
    return [schedules[i] for i in range(len(problems))]


def _solve_alike(problems: list[ScheduleProblem], *, engine: str, time_limit_s: float, solver: str) -> list[Schedule]:
    """The schedules of problems on equal graphs, part by part in running order."""
    canonical = [problem.canonical() for problem in problems]
    count, n_ops = len(problems), problems[0].n_ops
    one_s = np.array([problem.one_s for problem in canonical])
    all_s = np.array([problem.all_s for problem in canonical])
    tensor_units = np.array([problem.tensor_units for problem in canonical])
    vector_units = np.array([problem.vector_units for problem in canonical])
    start_s = np.zeros((count, n_ops))
    mode = np.zeros((count, n_ops), dtype=np.int8)
    unit = np.full((count, n_ops), -1, dtype=np.int64)
    makespan_s, lower_bound_s = np.zeros(count), np.zeros(count)
    for part in parts_of(problems[0].graph).running:
        members = part.members
        found: PartSchedules
        if part.graph.n_ops == 1 and engine not in ("cpsat", "milp"):
            found = solve_alone(part, one_s[:, members], all_s[:, members])
        else:
            found = solve_part(
                part,
                one_s[:, members],
                all_s[:, members],
                tensor_units,
                vector_units,
                engine=engine,
                time_limit_s=time_limit_s,
                solver=solver,
            )
        start_s[:, members] = found.start_s + makespan_s[:, None]
        mode[:, members] = found.mode
        unit[:, members] = found.unit
        makespan_s += found.makespan_s
        lower_bound_s += found.lower_bound_s
    return [
        _schedule(start_s[i], mode[i], unit[i], float(makespan_s[i]), float(lower_bound_s[i])) for i in range(count)
    ]


def _schedule(
    start_s: Floats, mode: NDArray[np.int8], unit: NDArray[np.int64], makespan_s: float, lower_bound_s: float
) -> Schedule:
    status = status_of(makespan_s=makespan_s, lower_bound_s=lower_bound_s)
    return Schedule(
        start_s=start_s.copy(),
        mode=mode.copy(),
        unit=unit.copy(),
        makespan_s=makespan_s,
        lower_bound_s=makespan_s if status is ScheduleStatus.OPTIMAL else lower_bound_s,
        status=status,
    )
