"""Problems say what is wrong with them, and are equal where no makespan can differ."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from schedule_helpers import optimum_s, problems

from archplace.arch_configs.errors import ConfigError
from archplace.search.schedule import Kind, ScheduleCache, ScheduleGraph, ScheduleProblem, ScheduleStatus, solve
from archplace.workloads.operators import Operator, Phase, Unit


def test_all_problems_of_a_graph_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ScheduleGraph.build(kinds=[0, 7, -1], edges=[(0, 3), (-1, 2)])
    assert len(caught.value.problems) == 4


def test_a_cycle_is_named() -> None:
    with pytest.raises(ConfigError, match=re.escape("b -> d -> c -> b")):
        ScheduleGraph.build(kinds=[0, 0, 0, 0], edges=[(0, 1), (1, 3), (3, 2), (2, 1)], names=["a", "b", "c", "d"])


def test_an_operator_that_waits_for_itself_is_a_cycle() -> None:
    with pytest.raises(ConfigError, match="op0 -> op0"):
        ScheduleGraph.build(kinds=[0], edges=[(0, 0)])


def test_all_problems_of_durations_at_once() -> None:
    graph = ScheduleGraph.build(kinds=[0, 1, 2], names=["a", "b", "c"])
    with pytest.raises(ConfigError) as caught:
        graph.problem(one_s=[1, -1, np.nan], all_s=[1, 2, -np.inf], tensor_units=0, vector_units=1)
    found = [(problem.place, problem.key) for problem in caught.value.problems]
    assert found == [("", "tensor_units"), ("b", "one_s"), ("c", "one_s"), ("c", "all_s")]
    with pytest.raises(ConfigError, match="b: neither mode is available"):
        graph.problem(one_s=[1, np.inf, 1], all_s=[1, np.inf, 1], tensor_units=1, vector_units=1)
    with pytest.raises(ConfigError, match="2 durations for 3 operators"):
        graph.problem(one_s=[1, 1], all_s=[1, 1, 1], tensor_units=1, vector_units=1)


def test_a_graph_of_operators_keeps_order_and_ignores_outer_inputs() -> None:
    def operator(name: str, unit: Unit, *inputs: str) -> Operator:
        return Operator(name=name, unit=unit, phase=Phase.FORWARD, inputs=inputs)

    graph = ScheduleGraph.of_operators(
        [
            operator("norm", Unit.VECTOR, "input"),
            operator("query", Unit.TENSOR, "norm"),
            operator("gate", Unit.FUSED, "norm"),
            operator("reduce", Unit.NETWORK, "query", "gate"),
        ]
    )
    assert graph.names == ("norm", "query", "gate", "reduce")
    assert graph.kinds.tolist() == [Kind.VECTOR, Kind.TENSOR, Kind.FUSED, Kind.NETWORK]
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(problem=problems(max_ops=5))
def test_the_canonical_problem_has_the_same_optimum(problem: ScheduleProblem) -> None:
    assert optimum_s(problem.canonical()) == optimum_s(problem)
    assert problem.canonical().key() == problem.key()


def test_the_key_forgets_what_cannot_matter() -> None:
    graph = ScheduleGraph.build(kinds=[0, 0, 1], edges=[(0, 2), (1, 2)])
    base = graph.problem(one_s=[4, 4, 9], all_s=[2, 2, 1], tensor_units=2, vector_units=1)
    same = [
        graph.problem(one_s=[4, 4, 9], all_s=[2, 2, 1], tensor_units=64, vector_units=1),  # only two use them
        graph.problem(one_s=[4, 4, 9], all_s=[2, 2, 1], tensor_units=2, vector_units=8),
        graph.problem(one_s=[4, 4, 7], all_s=[2, 2, 1], tensor_units=2, vector_units=1),  # op2 runs alone: on all
        ScheduleGraph.build(kinds=[0, 0, 1], edges=[(1, 2), (0, 2), (0, 2)], names=["x", "y", "z"]).problem(
            one_s=[4, 4, 9], all_s=[2, 2, 1], tensor_units=2, vector_units=1
        ),
    ]
    for other in same:
        assert other.key() == base.key()
    different = [
        graph.problem(one_s=[4, 5, 9], all_s=[2, 2, 1], tensor_units=2, vector_units=1),
        graph.problem(one_s=[4, 4, 9], all_s=[2, 2, 3], tensor_units=2, vector_units=1),
        graph.problem(one_s=[4, 4, 9], all_s=[2, 2, 1], tensor_units=1, vector_units=1),
        ScheduleGraph.build(kinds=[0, 0, 1], edges=[(0, 2)]).problem(
            one_s=[4, 4, 9], all_s=[2, 2, 1], tensor_units=2, vector_units=1
        ),
        ScheduleGraph.build(kinds=[0, 0, 2], edges=[(0, 2), (1, 2)]).problem(
            one_s=[4, 4, 9], all_s=[2, 2, 1], tensor_units=2, vector_units=1
        ),
    ]
    assert len({problem.key() for problem in (base, *different)}) == 6


def test_edges_that_others_imply_do_not_matter() -> None:
    kinds = [0, 1, 0]
    keys = {
        ScheduleGraph.build(kinds=kinds, edges=edges)
        .problem(one_s=[1, 2, 3], all_s=[1, 2, 3], tensor_units=1, vector_units=1)
        .key()
        for edges in ([(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)])
    }
    assert len(keys) == 1


def test_a_cache_solves_equal_problems_once() -> None:
    graph = ScheduleGraph.build(kinds=[0, 0])
    problem = graph.problem(one_s=[4, 4], all_s=[3, 3], tensor_units=2, vector_units=1)
    equal = graph.problem(one_s=[4, 4], all_s=[3, 3], tensor_units=512, vector_units=4)
    cache = ScheduleCache()
    assert cache.solve(problem) is cache.solve(equal)
    assert len(cache) == 1
    assert {key: found.makespan_s for key, found in cache.schedules.items()} == {problem.key(): 4.0}


def test_a_cache_takes_over_schedules_of_another_run() -> None:
    graph = ScheduleGraph.build(kinds=[0, 0])
    problem = graph.problem(one_s=[4, 4], all_s=[3, 3], tensor_units=2, vector_units=1)
    found = replace(solve(problem, engine="list"), lower_bound_s=3.0, status=ScheduleStatus.GAP)
    cache = ScheduleCache(time_limit_s=1.0)
    cache.keep(problem.key(), found)
    assert cache.solve(problem) is found
    assert cache.solve(problem, time_limit_s=2.0).status is ScheduleStatus.OPTIMAL


def test_a_cache_tries_again_only_what_is_not_proven_and_only_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    from archplace.search.schedule import cache as module

    calls: list[float] = []

    def counted(problem: ScheduleProblem, *, time_limit_s: float, **_: object) -> object:
        calls.append(time_limit_s)
        found = solve(problem, engine="list")
        return found if time_limit_s >= 2 else replace(found, lower_bound_s=1.0, status=ScheduleStatus.GAP)

    monkeypatch.setattr(module, "solve", counted)
    problem = ScheduleGraph.build(kinds=[0, 0]).problem(one_s=[4, 4], all_s=[3, 3], tensor_units=2, vector_units=1)
    cache = ScheduleCache(time_limit_s=1.0)
    statuses = [cache.solve(problem, time_limit_s=limit).status for limit in (None, 0.5, 1.0, 2.0, 3.0)]
    assert statuses == ["gap", "gap", "gap", "optimal", "optimal"]
    assert calls == [1.0, 2.0]


def test_a_schedule_of_a_shared_key_fits_both_problems() -> None:
    from archplace.search.schedule import verify

    graph = ScheduleGraph.build(kinds=[2, 2, 0, 1], edges=[(0, 3)])
    for units in ((4, 3), (64, 512)):
        problem = graph.problem(one_s=[4, 5, 6, 7], all_s=[3, 3, 3, 3], tensor_units=units[0], vector_units=units[1])
        assert verify(problem, solve(problem)) == []
