"""Products whose operands and results have different formats, as recipes for fp8 give them, on a machine."""

import pytest
from machines import cluster

from archplace.arch_configs import load_accelerator
from archplace.arch_configs.architectures import Architectures
from archplace.costmodel import Pricer
from archplace.workloads import (
    LayerSharding,
    Operator,
    OptimizerKind,
    Precision,
    Workload,
    load_model,
)


def gate(precision: Precision) -> Operator:
    """The product of 4096 tokens with one feed-forward matrix of 4096 × 11008."""
    workload = Workload(
        name="w",
        model=load_model("llama2-7b"),
        sequence_length=4096,
        global_batch=1,
        precision=precision,
        optimizer=OptimizerKind.ADAM,
    )
    block = workload.step(LayerSharding(microbatch=1)).layers[1][0]
    return next(found for found in block.forward if found.name == "gate")


def test_operands_take_one_byte_and_results_two() -> None:
    archs = Architectures.of(load_accelerator("h100-sxm"))
    operands, results = 4096 * 4096 + 4096 * 11008, 4096 * 11008
    pricer = Pricer(archs, cluster())
    # What both have in common is how often operands pass; results are written once.
    wide, narrow = (
        float(pricer.activity(gate(precision)).hbm_bytes[0]) for precision in (Precision.BF16, Precision.FP8)
    )
    assert wide >= 2 * (operands + results)
    assert operands + 2 * results <= narrow < wide


@pytest.mark.parametrize(("precision", "scalings"), [(Precision.FP8, 1), (Precision.FP8_BLOCKS, 4096 // 128)])
def test_lanes_scale_partial_sums(precision: Precision, scalings: int) -> None:
    archs = Architectures.of(load_accelerator("h100-sxm"))
    pricer = Pricer(archs, cluster())
    done = pricer.activity(gate(precision))
    assert done.lane_operations == 4096 * 11008 * scalings
    # arrays run at the rate of fp8: twice that of bf16
    narrow, wide = (pricer.parts(gate(p), one_unit=False).array_s.item() for p in (precision, Precision.BF16))
    assert narrow == pytest.approx(wide / 2, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "rate"), [(Precision.FP8, 2), (Precision.MXFP8, 2), (Precision.NVFP4, 4), (Precision.TF32, 0.5)]
)
def test_products_run_at_the_rate_of_their_format(precision: Precision, rate: float) -> None:
    # B200: 2,250 TFLOP/s in bf16, 4,500 in 8 bits, 9,000 in 4 bits, 1,125 in tf32 (data sheet, dense).
    pricer = Pricer(Architectures.of(load_accelerator("b200-sxm")), cluster())
    own, bf16 = (pricer.array_s(gate(p))[0].item() for p in (precision, Precision.BF16))
    assert own == pytest.approx(bf16 / rate, rel=0.01)
