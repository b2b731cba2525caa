"""Bounds lie below the best makespan and list schedules above it; both meet where theory says so."""

import numpy as np
import pytest
from hypothesis import given, settings
from schedule_helpers import backward_graph, chain_graph, optimum_s, problems, realistic_durations

from archplace.search.schedule import (
    Kind,
    ScheduleGraph,
    ScheduleProblem,
    bracket_s,
    list_makespan_s,
    lower_bound_s,
    segments,
    solve,
)

NEVER = np.inf


def bound_of(problem: ScheduleProblem) -> float:
    return float(
        lower_bound_s(
            problem.graph, problem.one_s[None], problem.all_s[None], problem.tensor_units, problem.vector_units
        )[0]
    )


def listed(problem: ScheduleProblem) -> float:
    return float(
        list_makespan_s(
            problem.graph, problem.one_s[None], problem.all_s[None], problem.tensor_units, problem.vector_units
        )[0]
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(problem=problems(max_ops=5))
def test_bounds_enclose_the_optimum(problem: ScheduleProblem) -> None:
    best = optimum_s(problem)
    assert bound_of(problem) <= best * (1 + 1e-9)
    assert listed(problem) >= best * (1 - 1e-9)
    bracket = bracket_s(
        problem.graph, problem.one_s[None], problem.all_s[None], problem.tensor_units, problem.vector_units
    )
    assert bound_of(problem) <= bracket.lower_s[0] * (1 + 1e-9)
    assert bracket.lower_s[0] <= best * (1 + 1e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(problem=problems(max_ops=10))
def test_bounds_enclose_the_optimum_of_larger_graphs(problem: ScheduleProblem) -> None:
    schedule = solve(problem, engine="cpsat")
    bracket = bracket_s(
        problem.graph, problem.one_s[None], problem.all_s[None], problem.tensor_units, problem.vector_units
    )
    assert schedule.status == "optimal"
    assert bracket.lower_s[0] <= schedule.makespan_s * (1 + 1e-9)
    assert bracket.upper_s[0] >= schedule.makespan_s * (1 - 1e-9)


@pytest.mark.parametrize("graph", [chain_graph(), backward_graph()], ids=["chain", "layer"])
def test_bounds_of_realistic_graphs_are_never_above_a_found_schedule(graph: ScheduleGraph) -> None:
    one_s, all_s, tensor_units, vector_units = realistic_durations(graph, 60)
    bracket = bracket_s(graph, one_s, all_s, tensor_units, vector_units)
    for i in range(60):
        problem = graph.problem(
            one_s=one_s[i], all_s=all_s[i], tensor_units=tensor_units[i], vector_units=vector_units[i]
        )
        found = solve(problem, engine="list")
        assert bracket.lower_s[i] <= found.makespan_s * (1 + 1e-9)
        assert found.lower_bound_s <= bracket.upper_s[i] * (1 + 1e-9)


@pytest.mark.parametrize("graph", [chain_graph(), backward_graph()], ids=["chain", "layer"])
def test_most_architectures_with_many_tensor_units_need_no_solver(graph: ScheduleGraph) -> None:
    one_s, all_s, tensor_units, vector_units = realistic_durations(graph, 1000)
    bracket = bracket_s(graph, one_s, all_s, tensor_units, vector_units)
    many = tensor_units >= 64
    assert bracket.closed[many].mean() > 0.7
    assert (1 - bracket.lower_s / bracket.upper_s)[many].mean() < 0.01


def test_a_chain_takes_the_sum_of_the_faster_modes() -> None:
    graph = ScheduleGraph.build(kinds=[0, 1, 2, 3, 0], edges=[(0, 1), (1, 2), (2, 3), (3, 4)])
    one_s, all_s = [[4, 5, 6, 7, 8]], [[1, 6, 2, NEVER, 9]]
    for units in (1, 3):
        bracket = bracket_s(graph, one_s, all_s, units, units)
        assert bracket.upper_s[0] == 1 + 5 + 2 + 7 + 8
        assert bracket.closed[0]


def test_projections_side_by_side_or_spread() -> None:
    # norm (1 s), then query, key, value, then add (1 s). On one unit each 8, 8, 4 s.
    # 1 unit: 8 + 8 + 4 = 20, or on "all" 3 + 3 + 1.5 = 7.5. With all_s 9, 9, 5: 2 units: 8 | 8 then 4, so 12 s;
    # or value spread: 8 + 5 = 13. 3 units: 8 s.
    graph = ScheduleGraph.build(kinds=[1, 0, 0, 0, 1], edges=[(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])
    one_s = np.array([[1, 8, 8, 4, 1]] * 4)
    all_s = np.array([[1, 3, 3, 1.5, 1], [1, 9, 9, 5, 1], [1, 9, 9, 5, 1], [1, 5, 5, 3, 1]])
    bracket = bracket_s(graph, one_s, all_s, [1, 2, 3, 3], 1)
    assert bracket.upper_s.tolist() == [9.5, 14.0, 10.0, 10.0]
    assert bracket.closed.all()


def test_weight_gradients_hide_behind_a_collective() -> None:
    # d (3 s) -> reduce (4 s) -> e (2 s); w1 (2 s) and w2 (2 s) after d. All compute operators only on all units.
    # w1 and w2 fill the 4 s of the collective: 3 + 4 + 2 = 9 s. With 1 s of collective, compute is never idle: 3 + 2 +
    # 2 + 2 = 9 s.
    graph = ScheduleGraph.build(kinds=[0, 3, 1, 0, 0], edges=[(0, 1), (1, 2), (0, 3), (0, 4)])
    one_s = [[NEVER, 4, NEVER, NEVER, NEVER], [NEVER, 1, NEVER, NEVER, NEVER]]
    all_s = [[3, NEVER, 2, 2, 2]] * 2
    bracket = bracket_s(graph, one_s, all_s, 4, 4)
    assert bracket.upper_s.tolist() == [9, 9]
    assert bracket.closed.all()


def test_an_operator_without_any_mode_makes_its_architecture_infeasible() -> None:
    graph = ScheduleGraph.build(kinds=[0, 1], edges=[])
    bracket = bracket_s(graph, [[1, NEVER], [1, 2]], [[1, NEVER], [1, NEVER]], 1, 1)
    assert bracket.lower_s.tolist()[0] == bracket.upper_s.tolist()[0] == NEVER
    assert bracket.upper_s[1] == 2
    assert bracket.closed.all()


def test_empty_inputs() -> None:
    nothing = ScheduleGraph.build(kinds=[])
    assert lower_bound_s(nothing, np.zeros((3, 0)), np.zeros((3, 0)), 1, 1).tolist() == [0, 0, 0]
    graph = backward_graph()
    none = np.zeros((0, graph.n_ops))
    assert lower_bound_s(graph, none, none, np.zeros(0), np.zeros(0)).shape == (0,)
    assert list_makespan_s(graph, none, none, np.zeros(0), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("one_s", "all_s", "units", "words"),
    [
        ([[1.0]], [[1.0, 2.0]], 1, "must both be"),
        ([[1.0, -1.0]], [[1.0, 2.0]], 1, "seconds >= 0"),
        ([[1.0, np.nan]], [[1.0, 2.0]], 1, "seconds >= 0"),
        ([[1.0, 1.0]], [[1.0, 2.0]], 0, "at least 1"),
    ],
)
def test_wrong_arrays_are_named(one_s: list[list[float]], all_s: list[list[float]], units: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lower_bound_s(ScheduleGraph.build(kinds=[0, 1]), one_s, all_s, units, 1)


def test_segments_run_one_after_the_other() -> None:
    # A collective beside a chain joins it; operators that are related to all others stand alone.
    kinds = [Kind.VECTOR, Kind.TENSOR, Kind.TENSOR, Kind.VECTOR, Kind.NETWORK, Kind.VECTOR]
    graph = ScheduleGraph.build(kinds=kinds, edges=[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5)])
    assert [part.tolist() for part in segments(graph)] == [[0], [1, 2], [3], [4, 5]]
