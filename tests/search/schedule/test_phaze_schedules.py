"""The 80 operator graphs that PHAZE solved with Gurobi, by every way we have."""

import pytest
from schedule_helpers import phaze_problems

from archplace.search.schedule import bracket_s, solve, verify

CASES = phaze_problems()


@pytest.mark.parametrize("engine", ["auto", "exact", "cpsat", "milp"])
def test_every_engine_proves_phazes_optimum(engine: str) -> None:
    assert len(CASES) == 80
    for expected, problem in CASES:
        schedule = solve(problem, engine=engine, time_limit_s=60)
        assert (schedule.makespan_s, schedule.lower_bound_s, schedule.status) == (expected, expected, "optimal")
        assert verify(problem, schedule) == []


def test_bounds_enclose_phazes_optimum() -> None:
    for expected, problem in CASES:
        bracket = bracket_s(
            problem.graph, problem.one_s[None], problem.all_s[None], problem.tensor_units, problem.vector_units
        )
        assert bracket.lower_s[0] <= expected <= bracket.upper_s[0] * (1 + 1e-12)


def test_without_a_solver_schedules_are_valid_and_near() -> None:
    ratios = []
    for expected, problem in CASES:
        schedule = solve(problem, engine="list")
        assert schedule.lower_bound_s <= expected <= schedule.makespan_s
        ratios.append(schedule.makespan_s / expected)
    assert sum(ratio == 1.0 for ratio in ratios) >= 70
    assert max(ratios) < 1.15
