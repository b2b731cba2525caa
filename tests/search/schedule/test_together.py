"""Problems that are bounded, listed and solved together have the answers that each has alone, bit for bit."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from schedule_helpers import backward_graph, few_units, graphs, problems, realistic_durations

from archplace.search.schedule import (
    Kind,
    Schedule,
    ScheduleCache,
    ScheduleGraph,
    ScheduleProblem,
    _distinct,
    bracket_s,
    lower_bound_s,
    solve,
    solve_many,
)
from archplace.search.schedule._durations import Durations
from archplace.search.schedule._sums import SubsetSums, total


def same(first: Schedule, second: Schedule) -> bool:
    return (
        all(
            np.array_equal(getattr(first, name), getattr(second, name))
            for name in ("start_s", "mode", "unit", "makespan_s", "lower_bound_s")
        )
        and first.status is second.status
    )


@st.composite
def companies(draw: st.DrawFn) -> list[ScheduleProblem]:
    """A few architectures on one graph, some alike, and a problem of another graph."""
    graph = draw(graphs(max_ops=8))
    durations = st.lists(st.integers(0, 9), min_size=graph.n_ops, max_size=graph.n_ops)
    scale = draw(st.sampled_from([1.0, 1 / 3]))
    found = [
        graph.problem(
            one_s=scale * np.array(draw(durations)),
            all_s=scale * np.array(draw(durations)),
            tensor_units=draw(st.integers(1, 3)),
            vector_units=draw(st.integers(1, 3)),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    return [*found, draw(problems(max_ops=5)), found[0]]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(company=companies())
def test_company_changes_no_schedule(company: list[ScheduleProblem]) -> None:
    together = solve_many(company)
    assert all(same(found, solve(problem)) for found, problem in zip(together, company, strict=True))
    backwards = solve_many(company[::-1])[::-1]
    assert all(same(*pair) for pair in zip(together, backwards, strict=True))


def test_company_changes_no_schedule_of_a_backward_pass() -> None:
    # Of few units and of many: in different passes of the exact search, or in none.
    company = few_units(backward_graph(), 6)
    together = solve_many(company)
    assert all(same(found, solve(problem)) for found, problem in zip(together, company, strict=True))


@pytest.mark.parametrize("limit_s", [1e-3, 4e-3])
def test_company_changes_nothing_where_the_limit_ends_the_search(limit_s: float) -> None:
    company = few_units(backward_graph(), 6)
    together = solve_many(company, engine="exact", time_limit_s=limit_s)
    alone = [solve(problem, engine="exact", time_limit_s=limit_s) for problem in company]
    assert all(same(*pair) for pair in zip(together, alone, strict=True))


def test_nothing_to_solve() -> None:
    assert solve_many([]) == []


def test_architectures_do_not_influence_bounds_of_each_other() -> None:
    graph = backward_graph()
    one_s, all_s, tensor_units, vector_units = realistic_durations(graph, 70)
    lower = lower_bound_s(graph, one_s, all_s, tensor_units, vector_units)
    bracket = bracket_s(graph, one_s, all_s, tensor_units, vector_units)
    for few in ([0], [5], [69], [3, 4], list(range(10, 27))):
        arguments = graph, one_s[few], all_s[few], tensor_units[few], vector_units[few]
        assert (lower_bound_s(*arguments) == lower[few]).all()
        own = bracket_s(*arguments)
        assert (own.lower_s == bracket.lower_s[few]).all()
        assert (own.upper_s == bracket.upper_s[few]).all()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(subsets=arrays(np.bool_, st.tuples(st.integers(1, 8), st.integers(1, 8))), columns=st.integers(1, 3))
def test_sums_of_subsets(subsets: np.ndarray, columns: int) -> None:
    values = np.arange(subsets.shape[1] * columns, dtype=np.float64).reshape(-1, columns) ** 2
    assert (SubsetSums.of(subsets)(values, np.zeros((len(subsets), columns))) == subsets @ values).all()


def test_sums_do_not_depend_on_the_number_of_columns() -> None:
    values = np.random.default_rng(0).random((40, 50))
    summed = total(values)
    assert summed == pytest.approx(values.sum(axis=0))
    assert all(total(values[:, [i]])[0] == summed[i] for i in range(50))
    assert (total(np.asfortranarray(values)) == summed).all()
    assert total(np.zeros((0, 1))).tolist() == [0.0]


def test_a_cache_solves_only_what_it_does_not_know() -> None:
    graph = ScheduleGraph.build(kinds=[Kind.TENSOR, Kind.TENSOR])
    first, second = (
        graph.problem(one_s=[4, length], all_s=[3, 3], tensor_units=2, vector_units=1) for length in (4, 5)
    )
    cache = ScheduleCache()
    known = cache.solve(first)
    cache.solve_many([first, second, second])
    assert len(cache) == 2
    assert cache.solve(first) is known
    assert cache.solve(second).makespan_s == 5.0


def durations_of_few_values(values: np.ndarray, units: np.ndarray) -> Durations:
    k = len(values) // 2
    return Durations(
        one_s=values[:k].astype(np.float64),
        all_s=values[k:].astype(np.float64),
        tensor_units=units[0].astype(np.int64),
        vector_units=units[1].astype(np.int64),
    )


@st.composite
def repeated(draw: st.DrawFn) -> Durations:
    count = draw(st.integers(0, 30))
    values = draw(arrays(np.int64, (4, count), elements=st.integers(0, 2)))
    return durations_of_few_values(values, draw(arrays(np.int64, (2, count), elements=st.integers(1, 2))))


def check_sets(data: Durations, *, sets: int | None) -> None:
    chosen, place = _distinct.distinct(data)
    assert (np.diff(chosen) > 0).all()
    assert place.shape == (data.n_archs,)
    represented, everything = data.archs(chosen[place]), data
    assert (represented.one_s == everything.one_s).all()
    assert (represented.all_s == everything.all_s).all()
    assert (represented.tensor_units == everything.tensor_units).all()
    assert (represented.vector_units == everything.vector_units).all()
    assert sets is None or len(chosen) == sets


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=repeated())
def test_equal_architectures_are_found(data: Durations) -> None:
    rows = np.concatenate([data.one_s, data.all_s, [data.tensor_units], [data.vector_units]]).T.tolist()
    check_sets(data, sets=len({tuple(row) for row in rows}))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=repeated())
def test_architectures_of_the_same_hash_stay_apart(data: Durations) -> None:
    # A factor of 0 gives all the same hash.
    with patch.object(_distinct, "_FACTOR", np.uint64(0)):
        check_sets(data, sets=None)


def test_repeated_architectures_have_the_bounds_of_the_first() -> None:
    graph = backward_graph()
    durations = realistic_durations(graph, 300)
    again = np.random.default_rng(0).integers(0, 300, 5000)
    repeated_bounds = lower_bound_s(graph, *(array[again] for array in durations))
    assert (repeated_bounds == lower_bound_s(graph, *durations)[again]).all()
