"""How long scheduling takes: bounds and list schedules for many architectures, solvers for one."""

import sys
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "search" / "schedule"))
from schedule_helpers import backward_graph, chain_graph, few_units, phaze_problems, realistic_durations

from archplace.search.schedule import ScheduleGraph, bracket_s, lower_bound_s, solve

GRAPHS = {"chain": chain_graph(), "layer": backward_graph()}


@pytest.mark.parametrize("name", GRAPHS)
def test_bounds_of_30000_architectures(benchmark: BenchmarkFixture, name: str) -> None:
    graph: ScheduleGraph = GRAPHS[name]
    durations = realistic_durations(graph, 30_000)
    bounds = benchmark.pedantic(lower_bound_s, args=(graph, *durations), rounds=3, warmup_rounds=1)
    assert bounds.shape == (30_000,)


@pytest.mark.parametrize("name", GRAPHS)
def test_bounds_and_lists_of_3000_architectures(benchmark: BenchmarkFixture, name: str) -> None:
    graph: ScheduleGraph = GRAPHS[name]
    bracket = benchmark.pedantic(bracket_s, args=(graph, *realistic_durations(graph, 3_000)), rounds=3)
    benchmark.extra_info["closed"] = float(bracket.closed.mean())
    benchmark.extra_info["mean gap"] = float((1 - bracket.lower_s / bracket.upper_s).mean())
    assert np.isfinite(bracket.upper_s).all()


@pytest.mark.parametrize("engine", ["auto", "exact", "cpsat", "milp"])
def test_phazes_80_graphs(benchmark: BenchmarkFixture, engine: str) -> None:
    cases = phaze_problems()

    def solve_all() -> list[float]:
        return [solve(problem, engine=engine).makespan_s for _, problem in cases]

    found = benchmark.pedantic(solve_all, rounds=1, warmup_rounds=0 if engine == "milp" else 1)
    assert found == [expected for expected, _ in cases]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_backward_pass_on_many_tensor_units(benchmark: BenchmarkFixture, name: str) -> None:
    graph: ScheduleGraph = GRAPHS[name]
    one_s, all_s, tensor_units, vector_units = realistic_durations(graph, 200)
    chosen = np.flatnonzero(tensor_units >= 64)[:40]
    problems = [
        graph.problem(one_s=one_s[i], all_s=all_s[i], tensor_units=tensor_units[i], vector_units=vector_units[i])
        for i in chosen
    ]
    solved = benchmark.pedantic(lambda: [solve(problem) for problem in problems], rounds=1, warmup_rounds=1)
    assert all(schedule.status == "optimal" for schedule in solved)


@pytest.mark.parametrize("engine", ["exact", "cpsat"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_backward_pass_on_few_units(benchmark: BenchmarkFixture, name: str, engine: str) -> None:
    problems = few_units(GRAPHS[name], 20)
    solved = benchmark.pedantic(lambda: [solve(problem, engine=engine) for problem in problems], rounds=1)
    benchmark.extra_info["proven"] = sum(schedule.status == "optimal" for schedule in solved)
    benchmark.extra_info["mean gap"] = float(np.mean([schedule.relative_gap for schedule in solved]))
    assert engine == "cpsat" or all(schedule.status == "optimal" for schedule in solved)
