"""Published runs with tuned microbatches: they must fit their devices, and leave little room.

MosaicML's llm-foundry, scripts/train/benchmarking/README.md, tables of A100 80 GB and A100 40 GB in bf16 (optimized
configurations, as it calls them): MPT models at sequences of 2048 tokens, everything shared among all devices (FSDP),
flash attention, and nothing or whole blocks recomputed. MPT has neither biases nor dropout.
"""

import csv
from io import StringIO

import pytest

from archplace.costmodel import Allowance, Replicas, SharedStates, StateSharding, memory_coefficients
from archplace.workloads import (
    LayerSharding,
    Model,
    ModelKind,
    OptimizerKind,
    ParameterBytes,
    Precision,
    Recompute,
    Workload,
)

RUNS = """\
model,hbm_gib,gpus,n_layers,d_model,n_heads,microbatch,recompute
7b,80,8,32,4096,32,6,none
3b,80,8,32,2560,20,10,none
760m,80,8,24,1536,12,24,none
350m,80,8,24,1024,16,32,none
70b,40,64,80,8192,64,2,full
13b,40,16,40,5120,40,10,full
3b,40,8,32,2560,20,5,none
1b,40,64,24,2048,16,10,none
760m,40,8,24,1536,12,12,none
350m,40,64,24,1024,16,18,none
"""

SHARED = ParameterBytes(weight=2, gradient=2, optimizer=12)
"""FSDP keeps fp32 shards of weights, gradients and two moments, 16 bytes in all, and gathers 2-byte weights."""


def needed_bytes(run, allowance):
    d_model, n_heads = int(run["d_model"]), int(run["n_heads"])
    model = Model(
        name=run["model"],
        kind=ModelKind.DECODER,
        n_layers=int(run["n_layers"]),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=d_model // n_heads,
        d_ff=4 * d_model,
        max_positions=2048,
        vocabulary=50368,
        padded_vocabulary=50368,
        embedding_width=d_model,
        bias=False,
        qkv_bias=False,
        fused_qkv=True,
    )
    microbatch, gpus = int(run["microbatch"]), int(run["gpus"])
    workload = Workload(
        name=run["model"],
        model=model,
        sequence_length=2048,
        global_batch=microbatch * gpus,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
        fused_attention=True,
    )
    step = workload.step(LayerSharding(microbatch=microbatch))
    states = StateSharding(states=SharedStates.PARAMETERS)
    found = memory_coefficients(
        step.layers,
        SHARED,
        states=states,
        replicas=Replicas.of(step.sharding, states, gpus),
        allowance=allowance,
    )
    counts = [count for _, count in step.layers]
    return float(found.stage_bytes(counts, Recompute(run["recompute"]), 1, entering_bytes=0, leaving_bytes=0))


@pytest.mark.parametrize(
    "run", [pytest.param(row, id=f"{row['model']}-{row['hbm_gib']}") for row in csv.DictReader(StringIO(RUNS))]
)
def test_tuned_runs_fill_the_memory(run):
    capacity = int(run["hbm_gib"]) * 2**30
    assert needed_bytes(run, Allowance(fragmentation=0)) < capacity
    assert 0.7 < needed_bytes(run, Allowance()) / capacity < 1.03
