"""The exact search equals enumeration and CP-SAT, and what it says at its limit is true."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_helpers import backward_graph, chain_graph, few_units, graphs, optimum_s, problems
from test_solvers import FUSED_CASES

from archplace.search.schedule import Kind, Schedule, ScheduleGraph, ScheduleProblem, exact, solve, verify
from archplace.search.schedule._part import parts_of
from archplace.search.schedule._times import schedule_in_order
from archplace.search.schedule.problem import Mode

quick = settings(max_examples=80, deadline=None, derandomize=True)


def one_after_the_other(problem: ScheduleProblem) -> Schedule:
    """Every operator in its faster mode and on unit 0: a schedule that is easy to beat."""
    network = problem.graph.is_network
    mode = ((problem.all_s < problem.one_s) & ~network).astype(np.int8)
    unit = np.where((mode == Mode.ALL) | network, -1, 0)
    return schedule_in_order(problem, order=problem.graph.order, mode=mode, unit=unit, lower_bound_s=0.0)


def search(problem: ScheduleProblem, *, state_limit: int = 10**6) -> tuple[float, float]:
    """Makespan and bound by the exact search alone, knowing nothing."""
    canonical = problem.canonical()
    makespan_s = bound_s = 0.0
    for part in parts_of(problem.graph).running:
        own = part.graph.problem(
            one_s=canonical.one_s[part.members],
            all_s=canonical.all_s[part.members],
            tensor_units=canonical.tensor_units,
            vector_units=canonical.vector_units,
        )
        (found,) = exact.solve_exact(
            [own], part, known=[one_after_the_other(own)], lower_bound_s=[0.0], state_limit=state_limit
        )
        assert verify(own, found) == []
        makespan_s += found.makespan_s
        bound_s += found.lower_bound_s
    return makespan_s, bound_s


@st.composite
def alike(draw: st.DrawFn, *, max_ops: int) -> ScheduleProblem:
    """Problems in which many operators last equally long, as in a layer with square weights."""
    graph = draw(graphs(max_ops=max_ops))
    lengths = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=3))
    chosen = [draw(st.sampled_from(lengths)) for _ in range(graph.n_ops)]
    scale = draw(st.sampled_from([1.0, 1 / 3]))
    return graph.problem(
        one_s=[scale * max(pair) for pair in chosen],
        all_s=[scale * min(pair) for pair in chosen],
        tensor_units=draw(st.integers(1, 3)),
        vector_units=draw(st.integers(1, 3)),
    )


@quick
@given(problem=st.one_of(problems(max_ops=5), alike(max_ops=5)))
def test_exact_search_equals_enumeration(problem: ScheduleProblem) -> None:
    makespan_s, bound_s = search(problem)
    assert makespan_s == bound_s == pytest.approx(optimum_s(problem), rel=1e-9, abs=1e-300)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=st.one_of(problems(max_ops=10), alike(max_ops=10)))
def test_exact_search_equals_cpsat(problem: ScheduleProblem) -> None:
    other = solve(problem, engine="cpsat", time_limit_s=20)
    assert other.status == "optimal"
    makespan_s, bound_s = search(problem)
    assert makespan_s == bound_s == pytest.approx(other.makespan_s, rel=1e-9, abs=1e-300)


@quick
@given(problem=st.one_of(problems(max_ops=6), alike(max_ops=6)))
def test_bound_at_the_limit_is_valid(problem: ScheduleProblem) -> None:
    # Two states per layer and no second pass: most optima are cut off.
    with patch.object(exact, "_FIRST_WIDTH", 2):
        makespan_s, bound_s = search(problem, state_limit=1)
    best_s = solve(problem).makespan_s
    assert bound_s <= best_s * (1 + 1e-9)
    assert best_s <= makespan_s * (1 + 1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=st.one_of(problems(max_ops=6), alike(max_ops=6)))
def test_wider_passes_end_at_the_optimum(problem: ScheduleProblem) -> None:
    with patch.object(exact, "_FIRST_WIDTH", 1), patch.object(exact, "_WIDER", 2):
        makespan_s, bound_s = search(problem)
    assert makespan_s == bound_s == pytest.approx(search(problem)[0], rel=1e-9, abs=1e-300)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problem=alike(max_ops=9), random=st.randoms(use_true_random=False))
def test_the_numbering_of_operators_does_not_matter(problem: ScheduleProblem, random: np.random.Generator) -> None:
    # Which of two equal operators goes first depends on their numbers.
    place = list(range(problem.n_ops))
    random.shuffle(place)
    other = ScheduleGraph.build(
        kinds=problem.kinds[np.argsort(place)], edges=[(place[i], place[j]) for i, j in problem.edges.tolist()]
    ).problem(
        one_s=problem.one_s[np.argsort(place)],
        all_s=problem.all_s[np.argsort(place)],
        tensor_units=problem.tensor_units,
        vector_units=problem.vector_units,
    )
    assert search(other)[0] == pytest.approx(search(problem)[0], rel=1e-9)


never = np.inf


@pytest.mark.parametrize(
    ("kinds", "edges", "one_s", "all_s", "best_s"),
    [
        # Found by search: two states leave the same units free at the same times, but only one of them the operator
        # that the longer rest waits for. T = 0, V = 1, network = 3.
        ([1, 0, 1, 0, 0, 0], [(0, 1), (1, 2), (2, 4)], [5, 4, 4, 8, 7, 7], [4, 3, never, 6, never, never], 19),
        (
            [0, 0, 0, 3, 3, 0, 0],
            [(0, 2), (0, 3), (1, 3), (2, 4), (2, 5), (3, 5)],
            [4, 8, 6, 6, 2, 5, 3],
            [2, never, never, 3, never, 2, 1],
            13,
        ),
    ],
)
def test_states_differ_by_what_waits_and_not_only_by_free_units(
    kinds: list[int], edges: list[tuple[int, int]], one_s: list[float], all_s: list[float], best_s: float
) -> None:
    problem = ScheduleGraph.build(kinds=kinds, edges=edges).problem(
        one_s=one_s, all_s=all_s, tensor_units=2, vector_units=1
    )
    assert solve(problem, engine="cpsat").makespan_s == best_s
    assert search(problem) == (best_s, best_s)


@pytest.mark.parametrize(("kinds", "edges", "one_s", "vector_units"), FUSED_CASES)
def test_units_of_fused_operators_are_told_apart_where_that_matters(
    kinds: list[int], edges: list[tuple[int, int]], one_s: list[float], vector_units: int
) -> None:
    graph = ScheduleGraph.build(kinds=kinds, edges=edges)
    problem = graph.problem(one_s=one_s, all_s=[np.inf] * len(kinds), tensor_units=2, vector_units=vector_units)
    best_s = solve(problem, engine="cpsat").makespan_s  # equals enumeration, see test_solvers
    assert search(problem) == (best_s, best_s)


@pytest.mark.parametrize("graph", [backward_graph(), chain_graph()], ids=["layer", "chain"])
def test_backward_passes_on_few_units_are_proven(graph: ScheduleGraph) -> None:
    for problem in few_units(graph, 4):
        schedule = solve(problem, engine="exact")
        assert schedule.status == "optimal"
        assert verify(problem, schedule) == []
        listed = solve(problem, engine="list")
        assert listed.lower_bound_s <= schedule.makespan_s * (1 + 1e-9)
        assert schedule.makespan_s <= listed.makespan_s * (1 + 1e-9)


def test_same_problem_same_schedule_and_same_bound() -> None:
    # 24 operators, few of them ordered: more states than a second allows.
    random = np.random.default_rng(5)
    graph = ScheduleGraph.build(kinds=[0] * 14 + [1] * 10, edges=[(i, i + 14) for i in range(0, 10, 2)])
    problem = graph.problem(
        one_s=random.uniform(5, 9, 24), all_s=random.uniform(1.2, 4, 24), tensor_units=5, vector_units=3
    )
    first, second = solve(problem, engine="exact"), solve(problem, engine="exact")
    assert verify(problem, first) == []
    assert first.status == "gap"
    assert first.lower_bound_s == second.lower_bound_s
    assert first.lower_bound_s >= solve(problem, engine="list").lower_bound_s
    assert (first.start_s == second.start_s).all()
    assert (first.mode == second.mode).all()
    assert (first.unit == second.unit).all()


def test_more_operators_than_a_word_has_bits_are_left_to_others() -> None:
    # Two chains of 40, pair by pair on one tensor unit: 2 s each, nothing to gain.
    graph = ScheduleGraph.build(kinds=[Kind.TENSOR] * 80, edges=[(i, i + 2) for i in range(78)])
    problem = graph.problem(one_s=[2.0] * 80, all_s=[np.inf] * 80, tensor_units=1, vector_units=1)
    makespan_s, bound_s = search(problem)
    assert (makespan_s, bound_s) == (160.0, 0.0)
    assert solve(problem).status == "optimal"
