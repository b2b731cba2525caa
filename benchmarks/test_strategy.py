"""How many strategies of one accelerator are searched per second: 10⁵ on one core is the target, GPT-3 175B the job."""

import time

from pytest_benchmark.fixture import BenchmarkFixture

from archplace.arch_configs import load_accelerator, load_cluster
from archplace.costmodel import Offload, SharedStates, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.plan import Plan, plan
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import Overlap
from archplace.workloads import load_workload

SHARED = (SharedStates.OPTIMIZER, SharedStates.GRADIENTS, SharedStates.PARAMETERS)

WIDE = Axes(
    tensor=(1, 2, 4, 8, 16),
    microbatch=(1, 2, 4, 8, 16),
    schedules=tuple(PipelineSchedule),
    states=(
        StateSharding(),
        *(StateSharding(states=states, group=group) for states in SHARED for group in (None, 2, 4, 8)),
    ),
    overlap=tuple(Overlap(data=data, pipeline=pipeline) for data in (True, False) for pipeline in (True, False)),
    offload=tuple(Offload(activations=a, optimizer=o) for a in (0.0, 1.0) for o in (0.0, 1.0)),
)
"""Everything that 1,024 devices can be asked for, cuts and each stage's recomputation not counted."""


def job() -> PlanProblem:
    return PlanProblem(
        workload=load_workload("gpt3-175b"),
        accelerator=load_accelerator("a100-80gb"),
        cluster=load_cluster("a100-superpod").sized(1024),
    )


def timed(benchmark: BenchmarkFixture, axes: Axes) -> tuple[Plan, float]:
    """Return the plan, and the seconds of one core that it took."""
    began = time.process_time()
    found = benchmark.pedantic(plan, args=(job(), axes), rounds=1)
    return found, time.process_time() - began


def test_strategies_per_second(benchmark: BenchmarkFixture) -> None:
    found, seconds = timed(benchmark, WIDE)
    assert found.best
    assert found.n_bounded + found.n_evaluated + found.n_memory == found.n_strategies
    print(f"\n{found.n_strategies:,} strategies, {found.n_strategies / seconds:,.0f} per second (target 100,000)")


def test_the_default_plan(benchmark: BenchmarkFixture) -> None:
    found, seconds = timed(benchmark, Axes())
    assert len(found.best) == 10
    print(f"\n{found.n_strategies:,} strategies in {seconds:.2f} s of one core, start not counted (target 2 s with it)")
