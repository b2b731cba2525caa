"""CP-SAT, the MILP and enumeration agree; the laws of the problem hold for what they find."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_helpers import optimum_s, problems

from archplace.arch_configs.errors import ConfigError
from archplace.search.schedule import Kind, ScheduleGraph, ScheduleProblem, solve, verify

quick = settings(max_examples=60, deadline=None, derandomize=True)


@quick
@given(problem=problems(max_ops=5))
def test_cpsat_equals_enumeration(problem: ScheduleProblem) -> None:
    schedule = solve(problem, engine="cpsat")
    assert schedule.status == "optimal"
    assert schedule.makespan_s == pytest.approx(optimum_s(problem), rel=1e-9, abs=1e-300)
    assert verify(problem, schedule) == []


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problem=problems(max_ops=5))
def test_milp_equals_enumeration(problem: ScheduleProblem) -> None:
    schedule = solve(problem, engine="milp")
    assert schedule.status == "optimal"
    assert schedule.makespan_s == pytest.approx(optimum_s(problem), rel=1e-9, abs=1e-300)


@quick
@given(problem=problems(max_ops=9))
def test_another_unit_never_hurts(problem: ScheduleProblem) -> None:
    # One more unit at the same durations leaves every schedule possible.
    base = solve(problem)
    for more in ((1, 0), (0, 1)):
        wider = problem.graph.problem(
            one_s=problem.one_s,
            all_s=problem.all_s,
            tensor_units=problem.tensor_units + more[0],
            vector_units=problem.vector_units + more[1],
        )
        assert solve(wider).makespan_s <= base.makespan_s * (1 + 1e-9)


@quick
@given(problem=problems(max_ops=7), factor=st.sampled_from([2.0, 1e-6, 3e5]))
def test_the_unit_of_time_does_not_matter(problem: ScheduleProblem, factor: float) -> None:
    scaled = problem.graph.problem(
        one_s=problem.one_s * factor,
        all_s=problem.all_s * factor,
        tensor_units=problem.tensor_units,
        vector_units=problem.vector_units,
    )
    assert solve(scaled).makespan_s == pytest.approx(solve(problem).makespan_s * factor, rel=1e-8)


FUSED_CASES: list[tuple[list[int], list[tuple[int, int]], list[float], int]] = [
    # Found by search: at the capacities alone (never more operators of a kind than units) all four end earlier, or at
    # times at
    # which no unit of one index is free on both sides whenever a fused operator starts. F = 2, T = 0, V = 1.
    ([1, 1, 2, 0, 2, 0], [], [8, 8, 4, 7, 6, 5], 3),
    ([2, 1, 1, 0, 1, 0, 2], [(0, 1), (2, 5), (3, 5), (4, 5)], [4, 5, 3, 8, 3, 1, 3], 2),
    ([1, 2, 1, 1, 2, 2, 2], [(4, 6)], [7, 6, 7, 2, 2, 3, 5], 3),
    ([1, 2, 0, 2, 1, 2, 0], [(0, 1), (0, 2), (0, 4), (0, 5), (1, 6), (5, 6)], [2, 7, 2, 3, 6, 8, 4], 2),
]


@pytest.mark.parametrize(("kinds", "edges", "one_s", "vector_units"), FUSED_CASES)
@pytest.mark.parametrize("engine", ["cpsat", "milp"])
def test_fused_operators_tie_the_units_of_both_kinds_together(
    kinds: list[int], edges: list[tuple[int, int]], one_s: list[float], vector_units: int, engine: str
) -> None:
    graph = ScheduleGraph.build(kinds=kinds, edges=edges)
    problem = graph.problem(one_s=one_s, all_s=[np.inf] * len(kinds), tensor_units=2, vector_units=vector_units)
    schedule = solve(problem, engine=engine)
    assert (schedule.status, schedule.makespan_s) == ("optimal", optimum_s(problem))


def test_two_fused_operators_need_two_units_of_both_kinds() -> None:
    # Side by side 5 s on two of each; one after the other 9 s where either kind has only one.
    graph = ScheduleGraph.build(kinds=[Kind.FUSED, Kind.FUSED])
    for tensor_units, vector_units, expected in ((2, 2, 5), (2, 1, 9), (1, 2, 9), (7, 9, 5)):
        problem = graph.problem(
            one_s=[4, 5], all_s=[np.inf, np.inf], tensor_units=tensor_units, vector_units=vector_units
        )
        assert solve(problem, engine="cpsat").makespan_s == expected


def test_collectives_hide_behind_exclusive_operators() -> None:
    # a (2 s on all units) -> collective (3 s) -> c (1 s); w (4 s on all units) is unrelated: it runs while the network
    # is busy,
    # 2 + 4 + 1 = 7 s. Two collectives take turns: 2 + 3 + 3 + 1 = 9 s.
    kinds = [Kind.TENSOR, Kind.NETWORK, Kind.TENSOR, Kind.TENSOR]
    graph = ScheduleGraph.build(kinds=kinds, edges=[(0, 1), (1, 2)])
    never = np.inf
    problem = graph.problem(one_s=[never, 3, never, never], all_s=[2, never, 1, 4], tensor_units=8, vector_units=2)
    assert solve(problem).makespan_s == 7
    graph = ScheduleGraph.build(kinds=[*kinds, Kind.NETWORK], edges=[(0, 1), (1, 2), (0, 4), (4, 2)])
    problem = graph.problem(
        one_s=[never, 3, never, never, 3], all_s=[2, never, 1, 4, never], tensor_units=8, vector_units=2
    )
    assert solve(problem).makespan_s == 9


def test_nothing_to_do_takes_no_time() -> None:
    problem = ScheduleGraph.build(kinds=[]).problem(one_s=[], all_s=[], tensor_units=1, vector_units=1)
    for engine in ("auto", "exact", "cpsat", "milp", "list"):
        assert solve(problem, engine=engine).makespan_s == 0.0
        assert solve(problem, engine=engine).status == "optimal"


def test_same_problem_same_schedule() -> None:
    random = np.random.default_rng(3)
    graph = ScheduleGraph.build(kinds=[0, 1, 0, 1, 0, 0, 1, 3], edges=[(0, 1), (1, 2), (3, 4), (1, 7)])
    problem = graph.problem(
        one_s=random.uniform(1, 9, 8), all_s=random.uniform(1, 3, 8), tensor_units=3, vector_units=2
    )
    first, second = solve(problem, engine="cpsat"), solve(problem, engine="cpsat")
    assert (first.start_s == second.start_s).all()
    assert (first.unit == second.unit).all()


def test_a_limit_that_is_too_short_leaves_a_valid_schedule_with_its_gap() -> None:
    random = np.random.default_rng(5)
    graph = ScheduleGraph.build(kinds=[0] * 14 + [1] * 10, edges=[(i, i + 14) for i in range(0, 10, 2)])
    problem = graph.problem(
        one_s=random.uniform(5, 9, 24), all_s=random.uniform(1.2, 4, 24), tensor_units=5, vector_units=3
    )
    for engine in ("auto", "exact", "cpsat", "milp"):
        schedule = solve(problem, engine=engine, time_limit_s=1e-3)
        assert verify(problem, schedule) == []
        assert schedule.lower_bound_s <= schedule.makespan_s
        assert (schedule.status == "gap") == (schedule.relative_gap > 0)


def test_cbc_agrees_with_highs() -> None:
    graph = ScheduleGraph.build(kinds=[0, 0, 1, 2], edges=[(0, 2)])
    problem = graph.problem(one_s=[5, 4, 3, 6], all_s=[3, 3, 2, 4], tensor_units=2, vector_units=2)
    assert solve(problem, engine="milp", solver="CBC").makespan_s == solve(problem, engine="milp").makespan_s


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"engine": "gurobi"}, "allowed are auto, exact, cpsat, milp, list"),
        ({"time_limit_s": 0.0}, "more than 0"),
        ({"time_limit_s": float("nan")}, "more than 0"),
        ({"engine": "milp", "solver": "HiGH"}, "not known to PuLP; available are"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], words: str) -> None:
    problem = ScheduleGraph.build(kinds=[0, 0]).problem(one_s=[1, 2], all_s=[1, 1], tensor_units=1, vector_units=1)
    with pytest.raises(ConfigError, match=words):
        solve(problem, **arguments)  # type: ignore[arg-type] # wrong on purpose
