"""The estimate of a traced step is close to that of the built-in model of the same sizes."""

from dataclasses import replace
from pathlib import Path

import pytest

from archplace.arch_configs import load_accelerator, load_cluster
from archplace.costmodel import Offload, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.schedule import ScheduleCache
from archplace.search.sharding_rates import at_rates_of
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.single import step_s
from archplace.search.strategy.strategy import DEFAULT_ORDER, Overlap, Strategy
from archplace.workloads import LayerSharding, Recompute, Workload, load_job, load_model

RUNS = Path(__file__).parents[2] / "runs"


@pytest.mark.parametrize(("tensor", "sequence"), [(1, False), (2, False), (4, False), (4, True)])
def test_a_traced_step_takes_as_long_as_the_built_in_one(tensor, sequence):
    """PyTorch adds bias gradients up and joins queries, keys and values in kernels of their own, which takes longer."""
    cluster, accelerator = load_cluster("a100-superpod").sized(16), load_accelerator("a100-80gb")
    traced = at_rates_of(load_job(RUNS / "traced-gpt-workload.yaml"), cluster, accelerator)
    sizes = {"d_model": 1024, "embedding_width": 1024, "n_heads": 16, "n_kv_heads": 16, "head_dim": 64, "d_ff": 4096}
    model = replace(
        load_model("gpt3-175b"),
        n_layers=6,
        **sizes,
        vocabulary=32768,
        padded_vocabulary=32768,
        tied_head=False,
        dropout=0.0,
        embedding_dropout=0.0,
        attention_dropout=0.0,
    )
    built = Workload(
        name="built",
        model=model,
        sequence_length=traced.sequence_length,
        global_batch=traced.global_batch,
        precision=traced.precision,
        optimizer=traced.optimizer,
        fused_attention=True,
    )
    strategy = Strategy(
        sharding=LayerSharding(microbatch=1, tensor=tensor, sequence=sequence),
        stages=1,
        data=16 // tensor,
        schedule=PipelineSchedule.ONE_F_ONE_B,
        virtual=1,
        states=StateSharding(),
        offload=Offload(),
        overlap=Overlap(),
        order=DEFAULT_ORDER,
        policies=(Recompute.NONE,),
    )
    problem = PlanProblem(workload=built, accelerator=accelerator, cluster=cluster)
    mine, theirs = (
        step_s(replace(problem, workload=job), strategy, ((1, 6, 1),), ScheduleCache()) for job in (traced, built)
    )
    assert 0.97 * theirs <= mine <= 1.05 * theirs
