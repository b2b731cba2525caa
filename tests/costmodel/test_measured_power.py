"""Watts of training jobs against published measurements.

What a chip draws is its static power, and the joules of a floating-point operation by the model's operators times the
rate that was published for the run. Only the rate is taken from the run, nothing is fitted here; what was fitted
elsewhere says so in its technology table (the host's share of TPU v3 and of TPU v4, the energy of control).
"""

from dataclasses import dataclass, replace

import pytest

from archplace.arch_configs import (
    Architectures,
    load_accelerator,
    load_cluster,
    load_technology,
    price_accelerator_area,
)
from archplace.costmodel import Pricer, energy_parts, static_power_w
from archplace.workloads import LayerSharding, Model, Precision, Workload, load_model
from archplace.workloads.training_step import OptimizerKind

LLAMA_7B = load_model("llama2-7b")
# OLMo 2 (OLMo team, arXiv:2501.00656, table 1): the 7B model is as Llama 2's, with a vocabulary of 100,278.
OLMO_7B = replace(LLAMA_7B, name="olmo2-7b", vocabulary=100_352, padded_vocabulary=100_352)
OLMO_13B = replace(
    OLMO_7B, name="olmo2-13b", n_layers=40, d_model=5120, embedding_width=5120, n_heads=40, n_kv_heads=40, d_ff=13_824
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training run: where, what, how fast, and the measured watts of one accelerator."""

    accelerator: str
    model: Model
    sequence_length: int
    watts: float
    teraflops: float = 0.0
    """Published FLOP/s of one accelerator."""
    tokens_per_s: float = 0.0
    tensor: int = 1
    precision: Precision = Precision.BF16
    host: bool = True
    recompute: bool = False
    fused_attention: bool = False


# Patterson et al. 2021, arXiv:2104.10350, table 4: watts of an accelerator with its share of the host, and total FLOPs
# by chips and days (4.05e22, 1.12e23, 1.33e22, 8.22e22 and 3.14e23). The models that are no built-in ones have
# stand-ins: joules per operation hardly depend on the depth. PaLM (Chowdhery et al. 2022, arXiv:2204.02311, section 4
# and appendix B): 46.2 % of the peak, recomputation not counted.
WITH_HOST = {
    "T5-11B on TPU v3": Run(
        accelerator="tpu-v3", model=load_model("t5-11b"), sequence_length=512, watts=310, teraflops=45.6
    ),
    "Meena 2.6B on TPU v3": Run(
        accelerator="tpu-v3", model=load_model("gpt2-xl"), sequence_length=128, watts=289, teraflops=42.3
    ),
    "GShard-600B on TPU v3": Run(
        accelerator="tpu-v3", model=load_model("gpt2-xl"), sequence_length=128, watts=288, teraflops=48.0
    ),
    "Switch on TPU v3": Run(
        accelerator="tpu-v3", model=load_model("gpt2-xl"), sequence_length=512, watts=245, teraflops=34.4
    ),
    "GPT-3 175B on V100": Run(
        accelerator="v100-sxm",
        model=load_model("gpt3-175b"),
        sequence_length=2048,
        watts=330,
        teraflops=24.6,
        tensor=8,
        precision=Precision.FP16,
    ),
    "PaLM-540B on TPU v4": Run(
        accelerator="tpu-v4",
        model=load_model("gpt3-175b"),
        sequence_length=2048,
        watts=378.5,
        teraflops=0.462 * 275,
        tensor=8,
        recompute=True,
    ),
}
# The accelerators alone. TPU v4's mean power: Google Cloud documentation. OLMo 2 7B and 13B: throughputs of OLMo-core
# 1.2 (its README: 9,700 to 10,000 and 4,400 to 4,600 tokens per second and H100); while they train, the GPUs draw 85 %
# of 700 W (Morrison et al. 2025, arXiv:2503.05804, section 4).
ALONE = {
    "TPU v4, mean": replace(WITH_HOST["PaLM-540B on TPU v4"], watts=170, host=False),
    "OLMo 2 7B on H100": Run(
        accelerator="h100-sxm",
        model=OLMO_7B,
        sequence_length=4096,
        watts=0.85 * 700,
        tokens_per_s=9850,
        host=False,
        fused_attention=True,
    ),
    "OLMo 2 13B on H100": Run(
        accelerator="h100-sxm",
        model=OLMO_13B,
        sequence_length=4096,
        watts=0.85 * 700,
        tokens_per_s=4500,
        host=False,
        fused_attention=True,
    ),
}
RUNS = WITH_HOST | ALONE


def predicted_w(run: Run) -> float:
    accelerator = load_accelerator(run.accelerator)
    technology = load_technology(accelerator.technology)
    chip = Architectures.of(accelerator, area_mm2=price_accelerator_area(accelerator, technology))
    pricer = Pricer(chip, load_cluster("a100-superpod"))
    workload = Workload(
        name="run",
        model=run.model,
        sequence_length=run.sequence_length,
        global_batch=8,
        precision=run.precision,
        optimizer=OptimizerKind.ADAM,
        fused_attention=run.fused_attention,
    )
    step = workload.step(LayerSharding(microbatch=1, tensor=run.tensor))
    joules = 0.0
    for layer, count in step.layers:
        again = layer.forward if run.recompute and count > 1 else ()
        for operator in (*layer.forward, *layer.backward, *again):
            joules += count * float(energy_parts(pricer, operator, technology).total_j[0])
    flops = step.flops_per_token * run.sequence_length / run.tensor
    rate = 1e12 * run.teraflops or run.tokens_per_s * step.flops_per_token
    return joules / flops * rate + float(static_power_w(chip, technology, host=run.host)[0])


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_power_of_training_jobs(run):
    assert predicted_w(run) == pytest.approx(run.watts, rel=0.2)


def test_energy_of_a_training_run():
    """OLMo 2 13B took 257 MWh of its GPUs for 5.6·10¹² tokens (OLMo team, arXiv:2501.00656).

    That is 0.165 J per token, restarts and evaluations included. (7B is not here: its 131 MWh for 4.05·10¹² tokens
    would be 1,150 W per GPU at the throughput that its software had later.)
    """
    run = RUNS["OLMo 2 13B on H100"]
    measured_j_per_token = 257e6 * 3600 / 5.6e12
    assert predicted_w(run) / run.tokens_per_s == pytest.approx(measured_j_per_token, rel=0.2)
