"""How long scheduling takes: bounds, list schedules and proofs for many architectures, solvers for one."""

import resource
import sys
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "search" / "schedule"))
from schedule_helpers import backward_graph, chain_graph, few_units, phaze_problems, realistic_durations

from archplace.arch_configs import load_cluster, load_space
from archplace.costmodel import Pricer
from archplace.search.schedule import (
    ScheduleGraph,
    ScheduleProblem,
    bracket_s,
    lower_bound_s,
    solve,
    solve_many,
)
from archplace.workloads import LayerSharding, load_workload

GRAPHS = {"chain": chain_graph(), "layer": backward_graph()}


Durations = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def report(benchmark: BenchmarkFixture, count: int, what: str) -> None:
    """Print and record how many ``what`` per second, and the most memory the process has held so far."""
    seconds = benchmark.stats.stats.median
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    benchmark.extra_info.update({f"{what} per s": count / seconds, "peak MiB": peak_mib})
    print(f"\n{count:,} {what} in {seconds:.3f} s: {count / seconds:,.0f} per second; peak {peak_mib:,.0f} MiB")


@pytest.fixture(scope="module")
def llama() -> list[tuple[ScheduleGraph, Durations]]:
    """The graphs of all layers of Llama 2 7B, two wide, with their durations on all of PHAZE's space."""
    architectures = load_space("phaze").enumerate()
    pricer = Pricer(architectures, load_cluster("tpu-v4-pod").sized(1024))
    cases = []
    for layer, _ in load_workload("llama2-7b").step(LayerSharding(tensor=2, microbatch=4)).layers:
        for operators in (layer.forward, layer.backward):
            prices = pricer.price(operators)
            durations = (prices.one_s, prices.all_s, architectures.tensor_count, architectures.vector_count)
            cases.append((ScheduleGraph.of_operators(operators), durations))
    return cases


@pytest.fixture(scope="module")
def open_problems(llama: list[tuple[ScheduleGraph, Durations]]) -> list[ScheduleProblem]:
    """Schedules of the largest graph that bounds and list schedules leave open, on some 200 architectures."""
    graph, (one_s, all_s, tensor_units, vector_units) = max(llama, key=lambda case: case[0].n_ops)
    bracket = bracket_s(graph, one_s[::10], all_s[::10], tensor_units[::10], vector_units[::10])
    left = 10 * np.flatnonzero(~bracket.closed)
    return [
        graph.problem(one_s=one_s[i], all_s=all_s[i], tensor_units=tensor_units[i], vector_units=vector_units[i])
        for i in left[:: max(1, len(left) // 200)]
    ]


def test_bounds_of_a_space(benchmark: BenchmarkFixture, llama: list[tuple[ScheduleGraph, Durations]]) -> None:
    """All layers, in blocks of 16,384 architectures."""

    def bound_all() -> list[np.ndarray]:
        return [
            lower_bound_s(graph, *(array[first : first + 16384] for array in durations))
            for graph, durations in llama
            for first in range(0, len(durations[0]), 16384)
        ]

    bounds = benchmark.pedantic(bound_all, rounds=3, warmup_rounds=1)
    assert all((found > 0).all() for found in bounds)
    report(benchmark, sum(len(found) for found in bounds), "bounds")


def test_brackets_of_few_architectures(
    benchmark: BenchmarkFixture, llama: list[tuple[ScheduleGraph, Durations]]
) -> None:
    """All layers, 16 architectures at a time, as the exploration asks for them."""

    def bracket_all() -> int:
        return sum(
            len(bracket_s(graph, *(array[first : first + 16] for array in durations)).lower_s)
            for graph, durations in llama
            for first in range(0, len(durations[0]), 1024)
        )

    count = benchmark.pedantic(bracket_all, rounds=3, warmup_rounds=1)
    report(benchmark, count, "brackets")


def test_proofs_together(benchmark: BenchmarkFixture, open_problems: list[ScheduleProblem]) -> None:
    """Schedules that need the exact search."""
    solved = benchmark.pedantic(lambda: solve_many(open_problems), rounds=3, warmup_rounds=1)
    assert all(schedule.status == "optimal" for schedule in solved)
    report(benchmark, len(solved), "schedules")


def test_proofs_one_by_one(benchmark: BenchmarkFixture, open_problems: list[ScheduleProblem]) -> None:
    """Some of the same."""
    few = open_problems[::8]
    solved = benchmark.pedantic(lambda: [solve(problem) for problem in few], rounds=3, warmup_rounds=1)
    assert all(schedule.status == "optimal" for schedule in solved)
    report(benchmark, len(solved), "schedules")


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
