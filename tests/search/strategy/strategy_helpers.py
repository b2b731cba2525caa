"""A small job for strategies: few layers on few devices, with memory that matters."""

from dataclasses import replace

from archplace.arch_configs import Cluster, load_accelerator, load_cluster
from archplace.costmodel import Allowance, SharedStates, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import Overlap
from archplace.workloads import Model, ModelKind, OptimizerKind, Precision, Recompute, Workload

MODEL = Model(
    name="small",
    kind=ModelKind.DECODER,
    n_layers=4,
    d_model=1024,
    n_heads=8,
    n_kv_heads=8,
    head_dim=128,
    d_ff=4096,
    max_positions=512,
    vocabulary=8192,
    padded_vocabulary=8192,
    embedding_width=1024,
)

AXES = Axes(
    tensor=(1, 2),
    microbatch=(1, 2),
    schedules=(PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED, PipelineSchedule.ZB_H1),
    virtual=(2,),
    states=(StateSharding(), StateSharding(states=SharedStates.OPTIMIZER)),
    overlap=(Overlap(), Overlap(data=False, pipeline=False)),
)
"""Every axis has a choice, but few."""


def small_problem(*, hbm_bytes: int = 600_000_000, model: Model = MODEL) -> PlanProblem:
    """Return a job of 8 sequences on 8 devices of 600 MB."""
    workload = Workload(
        name="small",
        model=model,
        sequence_length=512,
        global_batch=8,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
    )
    accelerator = load_accelerator("a100-80gb")
    accelerator = replace(accelerator, hbm=replace(accelerator.hbm, capacity_bytes=hbm_bytes))
    return PlanProblem(
        workload=workload, accelerator=accelerator, cluster=small_cluster(), allowance=Allowance(reserved_bytes=0.0)
    )


def small_cluster() -> Cluster:
    """Return 2 nodes of 4."""
    cluster = load_cluster("a100-superpod")
    node, fabric = cluster.dimensions
    return replace(cluster, dimensions=(replace(node, size=4), replace(fabric, size=2)))


RECOMPUTE = tuple(Recompute)
