"""Recomputation that stops early leaves out what nothing waits for, and nothing else."""

import pytest

from archplace.arch_configs import load_accelerator, load_cluster
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.evaluate import evaluate
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import Strategy
from archplace.workloads import LayerSharding, OptimizerKind, Precision, Recompute, Workload, load_model
from archplace.workloads.early_stop import needed_again


def workload(name="llama2-7b", **options):
    return Workload(
        name="job",
        model=load_model(name),
        sequence_length=2048,
        global_batch=8,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
        fused_attention=True,
        **options,
    )


def block(job):
    (found,) = [layer for layer, _ in job.step(LayerSharding(microbatch=1)).layers if layer.name == "block"]
    return found


def test_the_last_product_of_a_block_and_its_residual_are_not_needed():
    forward = block(workload()).forward
    left_out = [operator.name for operator in forward if operator.name not in needed_again(forward)]
    assert left_out == ["ffn_out", "ffn_out.residual"]


def test_what_a_mask_of_dropout_is_fused_with_is_needed():
    forward = block(workload("megatron-gpt-22b")).forward
    names = needed_again(forward)
    assert "ffn_out" in names
    assert "ffn_out.residual" not in names


def test_whatever_is_needed_has_its_inputs():
    for name in ("llama2-7b", "megatron-gpt-22b", "mixtral-8x7b", "deepseek-v3"):
        for layer, _ in workload(name).step(LayerSharding(microbatch=1)).layers:
            again = needed_again(layer.forward)
            for operator in layer.forward:
                if operator.name in again:
                    assert set(operator.inputs) <= set(again)
                else:
                    assert operator.stash_bytes == 0


def test_layers_say_what_runs_again_only_where_it_stops_early():
    assert block(workload()).full_replay == ()
    assert block(workload(early_stop=True)).full_replay == needed_again(block(workload()).forward)


def test_a_step_takes_less_by_the_products_that_do_not_run_again():
    cluster = load_cluster("a100-superpod").sized(8)
    strategy = Strategy(sharding=LayerSharding(microbatch=1), stages=1, data=8, policies=(Recompute.FULL,))

    def found(**options):
        problem = PlanProblem(workload=workload(**options), accelerator=load_accelerator("a100-80gb"), cluster=cluster)
        return evaluate(problem, strategy, cache=ScheduleCache())

    whole, early = found(), found(early_stop=True)
    tokens, layers = 2048, 32
    left_out = 2.0 * 4096 * 11008 * tokens * layers * 8
    peak = 312e12 * 8
    assert (whole.hfu * whole.step_s - early.hfu * early.step_s) * peak == pytest.approx(left_out, rel=1e-3)
    assert early.step_s < whole.step_s
    assert early.parts_s["tensor compute"] == pytest.approx(whole.parts_s["tensor compute"], rel=1e-9)
