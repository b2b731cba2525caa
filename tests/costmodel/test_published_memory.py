"""Memory per device against what Korthikanti et al. 2022 (arXiv:2205.05198) publish.

Figure 1 as the authors of Calculon (Isaev et al. 2023, SC '23) read it for their validation, in GiB: parameters and
optimizer states, and activations, of the first of so many pipeline stages at tensor parallel width 8. What it shows are
the blocks of a stage (the embedding's parameters are not in it) at 18 bytes per parameter, so at fp32 gradients. Stages
and virtual stages are those of table 3, microbatches those of table 5. Where the pipeline interleaves v virtual stages,
the first stage has p + (p − 1) / v microbatches in flight, p where it does not (section 4.2.3).
"""

import csv
from io import StringIO

import pytest

from archplace.costmodel import Allowance, Replicas, StateSharding, memory_coefficients, memory_items
from archplace.workloads import LayerSharding, ParameterBytes, Recompute, load_workload

TABLES_3_AND_5 = {
    "22B": ("megatron-gpt-22b", 1, 1, 4),
    "175B": ("gpt3-175b", 8, 3, 1),
    "530B": ("megatron-gpt-530b", 35, 3, 1),
    "1T": ("megatron-gpt-1t", 64, 1, 1),
}
"""Model, pipeline stages, virtual stages on each, sequences per microbatch."""

FIGURE_1 = """\
model,mode,param_optim_gib,activation_gib
22B,none,45.5625,59.25
22B,seqsel,45.5625,9.5625
175B,none,45.5625,66.84375
175B,seqsel,45.5625,12.3515625
530B,none,31.640625,114.0234375
530B,seqsel,31.640625,23.076171875
1T,none,32.958984375,131.25
1T,seqsel,32.958984375,26.5625
"""

FIGURE_7 = """\
model,none,seq,sel,seqsel,full
22B,100,66.84,49.42,16.18,7.64
175B,100,62.04,56.53,18.49,8.71
530B,100,58.31,62.04,20.27,9.42
1T,100,58.31,62.04,20.27,9.42
"""
"""Activations in percent of those without sequence parallelism and recomputation, also from Calculon's validation."""

MODES = {
    "none": (False, Recompute.NONE),
    "seq": (True, Recompute.NONE),
    "sel": (False, Recompute.SELECTIVE),
    "seqsel": (True, Recompute.SELECTIVE),
    "full": (False, Recompute.FULL),
}
"""Sequence parallelism, and what is recomputed."""

MEGATRON = ParameterBytes(weight=2, gradient=4, optimizer=12)
"""Megatron-Core user guide, distributed optimizer: 18 bytes per parameter where gradients are summed in fp32."""


def first_stage(model, mode, *, embedding=0):
    name, stages, virtual, microbatch = TABLES_3_AND_5[model]
    sequence, recompute = MODES[mode]
    workload = load_workload(name)
    step = workload.step(LayerSharding(microbatch=microbatch, tensor=8, sequence=sequence))
    states = StateSharding()
    coefficients = memory_coefficients(
        step.layers,
        MEGATRON,
        states=states,
        replicas=Replicas.of(step.sharding, states, 1),
        allowance=Allowance(fragmentation=0, reserved_bytes=0),
    )
    (_, _), (_, blocks), (_, _) = step.layers
    return memory_items(
        coefficients,
        [embedding, blocks // stages, 0],
        recompute,
        stages + (stages - 1) / virtual if virtual > 1 else stages,
        entering_bytes=0,
        leaving_bytes=step.layers[1][0].output_bytes if stages > 1 else 0,
    )


def rows(table):
    return [pytest.param(row, id="-".join(list(row.values())[:2])) for row in csv.DictReader(StringIO(table))]


@pytest.mark.parametrize("row", rows(FIGURE_1))
def test_figure_1(row):
    found = first_stage(row["model"], row["mode"])
    states = found.weights_bytes + found.gradients_bytes + found.optimizer_bytes
    assert states / 2**30 == pytest.approx(float(row["param_optim_gib"]), rel=1e-3)
    assert found.activations_bytes / 2**30 == pytest.approx(float(row["activation_gib"]), rel=1e-3)


@pytest.mark.parametrize("row", rows(FIGURE_1))
def test_figure_1_leaves_the_embedding_out(row):
    # a table of 51,200 rows beside 2 to 48 blocks
    blocks, whole = first_stage(row["model"], row["mode"]), first_stage(row["model"], row["mode"], embedding=1)
    assert 1.01 < whole.weights_bytes / blocks.weights_bytes < 1.12
    assert blocks.activations_bytes < whole.activations_bytes < 1.03 * blocks.activations_bytes


@pytest.mark.parametrize("row", rows(FIGURE_7))
def test_figure_7(row):
    alone = first_stage(row["model"], "none").activations_bytes
    for mode in MODES:
        percent = 100 * first_stage(row["model"], mode).activations_bytes / alone
        assert percent == pytest.approx(float(row[mode]), abs=0.15)
