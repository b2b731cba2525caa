"""One strategy's seconds alone are those of its full evaluation."""

from dataclasses import replace

import pytest

from archplace.arch_configs import load_accelerator, load_cluster
from archplace.search.pipeline import PipelineSchedule
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.evaluate import evaluate
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.single import step_s
from archplace.search.strategy.strategy import Strategy
from archplace.workloads import LayerSharding, OptimizerKind, Precision, Recompute, Workload, load_model

PROBLEM = PlanProblem(
    workload=Workload(
        name="job",
        model=load_model("megatron-gpt-22b"),
        sequence_length=2048,
        global_batch=64,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
    ),
    accelerator=load_accelerator("a100-80gb"),
    cluster=load_cluster("a100-superpod").sized(64),
)
STRATEGY = Strategy(sharding=LayerSharding(microbatch=1, tensor=8), stages=4, data=2, policies=(Recompute.FULL,))
HELD = ((1, 12, 0), (0, 12, 0), (0, 12, 0), (0, 12, 1))


def test_seconds_are_those_of_the_evaluation():
    found = evaluate(PROBLEM, STRATEGY, held=HELD)
    assert found.feasible
    assert step_s(PROBLEM, STRATEGY, HELD, ScheduleCache()) == found.step_s


def test_seconds_of_equal_parts_are_those_of_the_evaluation():
    interleaved = replace(STRATEGY, schedule=PipelineSchedule.INTERLEAVED, virtual=2)
    assert step_s(PROBLEM, interleaved, None, ScheduleCache()) == evaluate(PROBLEM, interleaved).step_s


def test_memory_is_no_limit():
    little = replace(
        PROBLEM, accelerator=replace(PROBLEM.accelerator, hbm=replace(PROBLEM.accelerator.hbm, capacity_bytes=2**30))
    )
    assert step_s(little, STRATEGY, HELD, ScheduleCache()) == step_s(PROBLEM, STRATEGY, HELD, ScheduleCache())


def test_what_is_refused_has_a_reason():
    with pytest.raises(ValueError, match="microbatch 3 does not divide the global batch of 64"):
        step_s(PROBLEM, replace(STRATEGY, sharding=LayerSharding(microbatch=3, tensor=8)), HELD, ScheduleCache())
