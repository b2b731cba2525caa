"""Prices of kernels against measured ones, by class of shape, and the fit that the A100 presets come from."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import accelerator
from measured_kernels import attentions, kernels, operator

from archplace.arch_configs import Calibration, load_accelerator
from archplace.costmodel.kernel_fit import LIMITS, MeasuredKernel, fit_calibration, kernel_errors
from archplace.workloads.operators import Gemm, Unit, VectorWork

ROWS = kernels()
SXM, PCIE = load_accelerator("a100-80gb"), load_accelerator("a100-80gb-pcie")


def of(source, *kinds):
    return [row for row in ROWS if row.source == source and row.kind in kinds]


def errors(chip, rows):
    return kernel_errors(chip, [row.kernel for row in rows])


def mean(found):
    return float(np.abs(found).mean())


def shape_class(row):
    _, m, n, k = row.shape
    return "thin" if min(m, n) < 1024 else "short" if k < 1024 else "large"


def test_products_of_llmcompass_within_ten_percent():
    rows = of("llmcompass", "gemm")
    assert len(rows) == 20
    assert mean(errors(SXM, rows)) < 0.06
    # Rows that the fit did not see, and thin ones.
    assert mean(errors(SXM, rows[1::2])) < 0.06
    thin = [row for row in rows if shape_class(row) == "thin"]
    assert len(thin) == 8
    assert mean(errors(SXM, thin)) < 0.10


def test_products_of_simumax_within_ten_percent():
    rows = of("simumax", "gemm")
    assert len(rows) == 183
    assert mean(errors(PCIE, rows)) < 0.04
    assert mean(errors(PCIE, rows[1::2])) < 0.04
    assert abs(errors(PCIE, rows).mean()) < 0.01
    bounds = {"large": 0.03, "short": 0.08, "thin": 0.12}
    for name, bound in bounds.items():
        found = errors(PCIE, [row for row in rows if shape_class(row) == name])
        assert mean(found) < bound, name


def test_batched_products_within_ten_percent_unseen_by_the_fit():
    rows = of("simumax", "grouped")
    assert len(rows) == 12
    assert mean(errors(PCIE, rows)) < 0.05


@pytest.mark.parametrize(("kind", "bound"), [("softmax", 0.10), ("layer_norm", 0.12), ("gelu", 0.06)])
def test_vector_kernels_within_twenty_percent(kind, bound):
    found = errors(SXM, of("llmcompass", kind))
    assert mean(found) < bound
    assert mean(found[1::2]) < bound


@pytest.mark.parametrize(("gradients", "bound"), [(False, 0.12), (True, 0.10)])
def test_fused_attention_unseen_by_the_fit(gradients, bound):
    kind = "attention gradients" if gradients else "attention"
    rows = [row for row in attentions() if row.kind == kind]
    assert len(rows) == 12
    assert mean(errors(PCIE, rows)) < bound
    # Half as many heads never take half of the time when few are left: the waves of tiles are no longer full.
    eight, four = (row for row in rows if row.shape in {(8, 2, 128, 128), (4, 1, 128, 128)})
    priced = [(errors(PCIE, [row])[0] + 1) * row.kernel.seconds for row in (eight, four)]
    assert 1.2 < priced[0] / priced[1] < 2.0


def test_data_sheet_rates_alone_are_far_off():
    """What the calibration is there for, and what the blocks explain that no rate does."""
    rows = of("simumax", "gemm")
    divided = replace(PCIE, tensor_units=replace(PCIE.tensor_units, blocks=None))
    assert errors(replace(divided, calibration=Calibration()), rows).mean() < -0.25
    assert mean(errors(divided, rows)) > 2 * mean(errors(PCIE, rows))
    batched = of("simumax", "grouped")
    assert mean(errors(divided, batched)) > 4 * mean(errors(PCIE, batched))
    gradients = [row for row in attentions() if row.kind == "attention gradients"]
    assert mean(errors(divided, gradients)) > 4 * mean(errors(PCIE, gradients))


def test_the_preset_of_the_pcie_card_is_what_the_fit_finds():
    rows = of("simumax", "gemm")[::2]
    fields = ("tensor_rate", "global_buffer_bandwidth")
    fitted = fit_calibration(PCIE, [row.kernel for row in rows], fields=fields)
    for field in fields:
        assert getattr(fitted.calibration, field) == pytest.approx(getattr(PCIE.calibration, field), abs=0.01)
    assert fitted.mean_error <= mean(errors(PCIE, rows))
    assert fitted.calibration.hbm_bandwidth == PCIE.calibration.hbm_bandwidth


def test_the_preset_of_the_sxm_module_is_what_the_fit_finds():
    products = [row.kernel for row in of("llmcompass", "gemm")[::2]]
    vectors = [row.kernel for row in of("llmcompass", "softmax", "layer_norm", "gelu")[::2]]
    for found, fields in (
        (products, ("tensor_rate", "global_buffer_bandwidth", "hbm_bandwidth")),
        (vectors, ("lane_rate",)),
    ):
        fitted = fit_calibration(SXM, found, fields=fields)
        for field in fields:
            assert getattr(fitted.calibration, field) == pytest.approx(getattr(SXM.calibration, field), abs=0.02)
        assert fitted.mean_error <= mean(kernel_errors(SXM, found)) + 1e-3


# Bound by the arrays, by the lanes, by the HBM, and by nothing.
KNOWN = (
    operator(Unit.TENSOR, gemm=Gemm(m=4096, n=4096, k=4096)),
    operator(
        Unit.VECTOR,
        vector=VectorWork(rows=4096, row_length=4096, operations_per_element=50, read_bytes=1, write_bytes=1),
    ),
    operator(
        Unit.VECTOR,
        vector=VectorWork(rows=4096, row_length=4096, operations_per_element=1, read_bytes=10**9, write_bytes=1),
    ),
    operator(
        Unit.VECTOR, vector=VectorWork(rows=1, row_length=1, operations_per_element=1, read_bytes=1, write_bytes=1)
    ),
)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.4, 1.0), st.floats(0.2, 1.0), st.floats(0.4, 1.0), st.floats(1e-6, 10e-6))
def test_a_known_calibration_is_found_again(tensor_rate, lane_rate, hbm_bandwidth, launch_s):
    truth = Calibration(tensor_rate=tensor_rate, lane_rate=lane_rate, hbm_bandwidth=hbm_bandwidth, launch_s=launch_s)
    chip = accelerator(calibration=truth)
    exact = 1 + kernel_errors(chip, [MeasuredKernel(operator=known, seconds=1.0) for known in KNOWN])
    measured = [
        MeasuredKernel(operator=known, seconds=seconds) for known, seconds in zip(KNOWN, (exact).tolist(), strict=True)
    ]
    assert np.abs(kernel_errors(chip, measured)).max() < 1e-9
    fitted = fit_calibration(accelerator(), measured, fields=("launch_s", "tensor_rate", "lane_rate", "hbm_bandwidth"))
    assert fitted.mean_error < 0.02


def test_what_cannot_be_fitted_is_said():
    measured = [MeasuredKernel(operator=KNOWN[0], seconds=1e-3)]
    with pytest.raises(ValueError, match=r"no field 'clock_hz' to fit; allowed: tensor_rate, .*launch_s"):
        fit_calibration(SXM, measured, fields=("clock_hz",))
    with pytest.raises(ValueError, match="found 1 kernels for 5 fields"):
        fit_calibration(SXM, measured, fields=tuple(LIMITS))
