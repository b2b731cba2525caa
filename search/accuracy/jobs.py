"""A measured training step as a question to the strategy engine.

What a row leaves open is taken as follows. Models with a gated feed-forward part are like Llama (SiLU, RMS norm, rotary
positions, no biases, a head of its own), others like GPT-3 (GELU, layer norm, learned positions, biases, the
embedding as head). Vocabularies are padded to whole multiples of 128 on every tensor-parallel device (Megatron-LM).
Where scores of attention are not fused, runs predate FlashAttention and train with GPT-3's dropout of 0.1.

Neighbouring stages wait for each other's messages. The cluster's software says whether exchanges between replicas run
behind computing, into how many pieces sequence-parallel jobs cut products to hide theirs, and whether recomputation
stops early. Fully sharded jobs with tensor parallelism share what lies between blocks as well, as compilers do that
shard every array (Xu et al. 2021, arXiv:2105.04663, section 3.2); on several pods they share states inside each pod
and copy them across (MaxText's data parallelism between slices). Stages hold equal numbers of blocks.

Published jobs need not divide as the engine wants. A batch that does not is rounded up to whole microbatches, which the
slowest replica runs; blocks that do not divide over virtual stages are rounded up to what the fullest device holds, in
as many virtual stages as divide that;
microbatches that do not divide over interleaved stages run without interleaving, and sequences that do not divide over
tensor-parallel devices without sequence parallelism. Where there are more tensor-parallel
devices than key and value heads, each has a copy of one.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from archplace.arch_configs import (
    Accelerator,
    Cluster,
    accelerator_names,
    cluster_names,
    load_accelerator,
    load_cluster,
)
from archplace.arch_configs.cluster import Software
from archplace.arch_configs.errors import ConfigError
from archplace.arch_configs.slices import pod_size, slice_of
from archplace.costmodel import SharedStates, StateSharding
from archplace.search.accuracy.rows import MeasuredStep
from archplace.search.pipeline import PipelineSchedule
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import Overlap, Strategy
from archplace.workloads import (
    Activation,
    Experts,
    LayerSharding,
    Model,
    ModelKind,
    Norm,
    OptimizerKind,
    Positions,
    Workload,
)

_TILE = 128
_DROPOUT = 0.1
_PODS = re.compile(r"\bslices=(\d+)\b")
FULLY_SHARDED = 3
"""The ZeRO stage at which parameters are shared too."""
_STATES = (SharedStates.NONE, SharedStates.OPTIMIZER, SharedStates.GRADIENTS, SharedStates.PARAMETERS)
"""By ZeRO stage (Rajbhandari et al. 2020, arXiv:1910.02054)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """What the strategy engine is asked about a row."""

    step: MeasuredStep
    problem: PlanProblem
    strategy: Strategy
    held: tuple[tuple[int, ...], ...] | None
    """Layers of each stage by kind; None where the schedule deals equal parts itself."""
    flops: float
    """Model FLOPs of the row's step, over all devices: of the model and batch as they are, not rounded up."""


def hardware_of(name: str) -> tuple[Accelerator, Cluster]:
    """Return the accelerator and the cluster that a row's ``hardware`` means.

    A cluster by name or path stands for itself and the accelerator that it names; ``ACCELERATOR@CLUSTER`` for any two;
    an accelerator by name for the built-in cluster that consists of it, of several the one whose uncertainty is drawn
    from the most published steps, or the first by name.

    Raises :class:`ConfigError` for an unknown name, and for a cluster that names no accelerator.
    """
    accelerator, joined, where = name.partition("@")
    if joined:
        return load_accelerator(accelerator), load_cluster(where)
    if name in accelerator_names() and name not in cluster_names():
        name = _cluster_of(name)
    cluster = load_cluster(name)
    if cluster.accelerator is None:
        raise ConfigError(
            f"the cluster {name!r} does not say of which accelerators it consists; write ACCELERATOR@{name}, or name a "
            "cluster whose file has the key 'accelerator'"
        )
    return load_accelerator(cluster.accelerator), cluster


def _cluster_of(accelerator: str) -> str:
    """Return the built-in cluster that an accelerator stands for."""
    clusters = [cluster for cluster in map(load_cluster, cluster_names()) if cluster.accelerator == accelerator]
    if not clusters:
        raise ConfigError(
            f"no built-in cluster consists of {accelerator!r}; name one to put it in: {accelerator}@CLUSTER, allowed "
            f"clusters: {', '.join(cluster_names())}"
        )
    known = [0 if cluster.uncertainty is None else cluster.uncertainty.steps for cluster in clusters]
    return clusters[known.index(max(known))].name


def job_of(step: MeasuredStep, accelerator: Accelerator, cluster: Cluster) -> MeasuredJob:
    """Return the row's job on its accelerator in its cluster.

    Raises ``ValueError`` with the numbers where the row contradicts itself or cannot be expressed.
    """
    devices = step.tp * step.cp * step.dp * step.pp
    if devices != step.n_devices:
        raise ValueError(
            f"tp {step.tp} x cp {step.cp} x dp {step.dp} x pp {step.pp} = {devices} devices, but n_devices is "
            f"{step.n_devices}"
        )
    if step.d_ff == 0:
        raise ValueError("d_ff is 0, and moe_d_ff as well; give the width of the feed-forward part or of an expert")
    pods = _pods(step, cluster)
    part = slice_of(cluster, step.n_devices, pods=pods, innermost=step.tp * step.cp)
    strategy = _strategy(step, pods, cluster.software)
    interleaved = strategy.schedule is PipelineSchedule.INTERLEAVED
    layers = _rounded_up(step.n_layers, strategy.stages) if interleaved else step.n_layers
    batch = _rounded_up(step.global_batch, step.dp * step.micro_batch)
    kv_heads = step.tp if step.n_kv_heads < step.tp and step.tp % step.n_kv_heads == 0 else step.n_kv_heads
    rounded = replace(step, n_layers=layers, global_batch=batch, n_kv_heads=kv_heads)
    return MeasuredJob(
        step=step,
        problem=PlanProblem(workload=_workload(rounded, cluster.software), accelerator=accelerator, cluster=part),
        strategy=strategy,
        held=None if interleaved else _even(step.n_layers, step.pp),
        flops=_workload(step, cluster.software).flops_per_step,
    )


def _rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _pods(step: MeasuredStep, cluster: Cluster) -> int:
    """Return the pods that the row names, or else the fewest on which its devices fit."""
    found = _PODS.search(step.note)
    if found:
        return int(found.group(1))
    room = pod_size(cluster) or step.n_devices
    return next(
        pods for pods in range(1, step.n_devices + 1) if step.n_devices % pods == 0 and step.n_devices <= pods * room
    )


def _even(n_layers: int, stages: int) -> tuple[tuple[int, ...], ...]:
    """Return the blocks dealt out evenly, embedding and head on the ends."""
    blocks = [len(part) for part in np.array_split(np.arange(n_layers), stages)]
    return tuple((int(stage == 0), count, int(stage == stages - 1)) for stage, count in enumerate(blocks))


def _workload(step: MeasuredStep, software: Software) -> Workload:
    return Workload(
        name=step.id,
        model=_model(step),
        sequence_length=step.seq_len,
        global_batch=step.global_batch,
        precision=step.precision,
        optimizer=OptimizerKind.ADAM,
        fused_attention=step.fused_attention,
        early_stop=software.early_stop,
    )


def _model(step: MeasuredStep) -> Model:
    like_llama = step.gated_mlp
    dense = step.n_experts == 0
    dropout = 0.0 if step.fused_attention or not dense else _DROPOUT
    tile = _TILE * step.tp
    experts = None
    if not dense:
        experts = Experts(n_experts=step.n_experts, top_k=step.top_k, d_ff=step.moe_d_ff or step.d_ff)
    return Model(
        name=step.id,
        kind=ModelKind.DECODER,
        n_layers=step.n_layers,
        d_model=step.d_model,
        n_heads=step.n_heads,
        n_kv_heads=step.n_kv_heads,
        head_dim=step.head_dim,
        d_ff=step.d_ff,
        gated_mlp=step.gated_mlp,
        activation=Activation.SILU if like_llama else Activation.GELU,
        norm=Norm.RMS_NORM if like_llama else Norm.LAYER_NORM,
        positions=Positions.ROPE if like_llama else Positions.LEARNED,
        max_positions=step.seq_len,
        vocabulary=step.vocab,
        padded_vocabulary=-(-step.vocab // tile) * tile,
        embedding_width=step.d_model,
        tied_head=not like_llama,
        bias=dense and not like_llama,
        qkv_bias=dense and not like_llama,
        fused_qkv=True,
        dropout=dropout,
        embedding_dropout=dropout,
        attention_dropout=dropout,
        experts=experts,
    )


def _strategy(step: MeasuredStep, pods: int, software: Software) -> Strategy:
    microbatches = _rounded_up(step.global_batch, step.dp * step.micro_batch) // (step.dp * step.micro_batch)
    fullest = -(-step.n_layers // step.pp)
    virtual = next(count for count in range(min(step.vpp, fullest), 0, -1) if fullest % count == 0)
    interleaved = virtual > 1 and step.pp > 1 and microbatches % step.pp == 0
    sequence = step.tp > 1 and (step.sequence_parallel or step.zero_stage == FULLY_SHARDED)
    sequence = sequence and step.seq_len // step.cp % step.tp == 0
    return Strategy(
        sharding=LayerSharding(
            microbatch=step.micro_batch,
            tensor=step.tp,
            sequence=sequence,
            context=step.cp,
            expert=step.ep,
            expert_tensor=_expert_tensor(step),
            overlap_pieces=software.tensor_pieces if sequence else 1,
        ),
        stages=step.pp,
        data=step.dp,
        schedule=PipelineSchedule.INTERLEAVED if interleaved else PipelineSchedule.ONE_F_ONE_B,
        virtual=virtual if interleaved else 1,
        states=_states(step, pods),
        overlap=Overlap(data=software.data_overlap, pipeline=False),
        policies=(step.recompute,),
    )


def _states(step: MeasuredStep, pods: int) -> StateSharding:
    if step.zero_stage == 0 or step.dp * step.cp == 1:
        return StateSharding()
    states = _STATES[step.zero_stage]
    return StateSharding(states=states, group=step.dp * step.cp // pods if pods > 1 else None)


def _expert_tensor(step: MeasuredStep) -> int:
    """Return over how many devices each expert is spread: as wide as the other layers where there is room."""
    if step.n_experts == 0:
        return 1
    room = step.tp * step.cp * step.dp
    return step.tp if room % (step.ep * step.tp) == 0 and step.ep * step.tp <= room else 1
