"""Steps of small models as jobs, and what can be compared between two jobs."""

import json

from workload_helpers import workload_of

from archplace.workloads import (
    Activation,
    ContextKind,
    LayerSharding,
    Model,
    ModelKind,
    Norm,
    Positions,
)
from archplace.workloads.traces import Trace
from archplace.workloads.traces.from_workload import StepTrace
from archplace.workloads.traces.whatif import SCALING, change, job_of

GPT = Model(
    name="gpt",
    kind=ModelKind.DECODER,
    n_layers=3,
    d_model=16,
    n_heads=4,
    n_kv_heads=4,
    head_dim=4,
    d_ff=64,
    gated_mlp=False,
    activation=Activation.GELU,
    norm=Norm.LAYER_NORM,
    positions=Positions.LEARNED,
    max_positions=32,
    vocabulary=48,
    padded_vocabulary=48,
    embedding_width=16,
    tied_head=True,
    bias=True,
    qkv_bias=True,
)


def step_of(model=GPT, *, sequence_length=32, global_batch=64, fused=False, **given):
    """One step of a small model; ``given`` are fields of the step, the rest of the sharding."""
    fields = {name: given.pop(name) for name in ("data", "microbatches", "recompute") if name in given}
    sharding = LayerSharding(**({"microbatch": 1} | given))
    workload = workload_of(model, sequence_length=sequence_length, global_batch=global_batch, fused=fused)
    return StepTrace(workload=workload, sharding=sharding, **fields)


def ring_step(**given):
    """A step in which keys and values travel round a ring."""
    return step_of(fused=True, context=2, context_kind=ContextKind.RING, **given)


def job(step):
    """All ranks of a step."""
    return job_of({rank: step.trace(rank) for rank in range(step.groups.n_ranks)})


def after(before, *steps):
    """The job after what-ifs."""
    return change(before, steps).job


def traces_of(changed):
    """All ranks' traces after what-ifs, in memory."""
    return {
        rank: Trace(metadata=changed.metadata(rank), nodes=tuple(trace.nodes()))
        for rank, trace in changed.job.traces.items()
    }


def plain(node, groups=None):
    """What a node says, as something that compares and prints well; the name of its group replaced by the members."""
    values = dict(node.values())
    if groups is not None and "pg_name" in values:
        values["pg_name"] = groups[values["pg_name"]]
    return (node.id, node.name, node.kind, tuple(node.data_parents), tuple(node.control_parents), values)


def plain_nodes(trace_or_nodes, groups=None, *, without=()):
    """All nodes so, without some attributes."""
    found = []
    for node in trace_or_nodes:
        one = plain(node, groups)
        for name in without:
            one[-1].pop(name, None)
        found.append(one)
    return found


def plain_job(found, **options):
    """All ranks' nodes so."""
    return {rank: plain_nodes(trace.nodes(), found.groups, **options) for rank, trace in found.traces.items()}


def records_of(metadata):
    """What the metadata say was done."""
    return [json.loads(text) for text in metadata.value("what_if")]


__all__ = ["GPT", "SCALING", "after", "job", "plain", "plain_job", "plain_nodes", "records_of", "ring_step", "step_of"]
