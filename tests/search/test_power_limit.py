"""Runs within a power limit: whose clock falls, and what is compared with what."""

import json
from dataclasses import replace

import numpy as np
import pytest

from archplace.arch_configs import Architectures, load_accelerator, load_cluster, load_space, load_technology
from archplace.arch_configs.calibration import NOMINAL
from archplace.arch_configs.errors import ConfigError
from archplace.cli import main
from archplace.costmodel import kept_clock, within_limit
from archplace.search.power_limit import throttled, throttled_chip
from archplace.search.runfile import load_run

RUN = """\
run:
  workload: llama2-7b
  space: gpu
  cluster: h100-sxm-dgx
  accelerators: 64
"""
FIVE = load_technology("5nm")
GPUS = load_space("gpu").enumerate()


def loaded(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return load_run(path)


def test_a_run_file_limits_every_architecture(tmp_path):
    plain, run = loaded(tmp_path, RUN), loaded(tmp_path, RUN + "  power_limit: 400 W\n")
    assert plain.architectures().throttled is None
    found = run.architectures()
    assert run.choices.power_limit_w == run.choices.most_power_w == 400
    assert (found.throttled.power_w <= 400 * (1 + 1e-6)).all()
    assert (found.clock_hz < plain.architectures().clock_hz).any()
    assert run.digest != plain.digest
    both = loaded(tmp_path, RUN + "  power_limit: 400 W\n  budgets: {power: 300 W}\n")
    assert both.choices.most_power_w == 300


def test_a_limit_is_more_than_nothing(tmp_path):
    with pytest.raises(ConfigError, match=r"run\.power_limit: found '0 W'"):
        loaded(tmp_path, RUN + "  power_limit: 0 W\n")


def test_a_calibrated_chip_at_its_own_limit_is_as_fast_as_it_was_measured():
    cluster = load_cluster("h100-sxm-dgx")
    chip = load_accelerator("h100-sxm")
    nominal = Architectures.of(chip, area_mm2=600.0)
    found = throttled_chip(chip, nominal, 300.0, FIVE, cluster, ["bf16"])
    # By the area of its working parts it draws a little less than by that of its whole die.
    assert found.clock_hz[0] == pytest.approx(nominal.clock_hz[0], rel=1e-3)
    assert found.throttled.clock_hz[0] < 0.95 * nominal.clock_hz[0]


def test_calibrations_stand_for_the_clock_that_their_chip_kept():
    cluster = load_cluster("h100-sxm-dgx")
    kept = kept_clock(load_accelerator("h100-sxm"), FIVE, cluster, "bf16")
    found = throttled(GPUS, 450.0, FIVE, cluster, ["bf16"])
    expected = within_limit(GPUS, 450.0, FIVE, cluster, ["bf16"], known=kept)
    np.testing.assert_array_equal(found.clock_hz, expected.clock_hz)


def test_calibrations_of_a_chip_without_a_precision_stand_for_its_clock_in_others():
    cluster, chip = load_cluster("a100-80gb-selene"), load_accelerator("a100-80gb")
    rates = chip.tensor_units.macs_per_element_per_cycle
    assert "fp8" not in rates
    seven = load_technology("7nm")
    kept = {precision: kept_clock(chip, seven, cluster, precision) for precision in rates}
    for precisions, known in ((["fp8"], min(kept.values())), (["bf16", "fp8"], kept["bf16"])):
        expected = within_limit(GPUS, 450.0, FIVE, cluster, precisions, known=known)
        np.testing.assert_array_equal(throttled(GPUS, 450.0, FIVE, cluster, precisions).clock_hz, expected.clock_hz)


def test_where_nothing_is_calibrated_all_of_the_limit_counts():
    bare, cluster = replace(GPUS, calibration=NOMINAL), load_cluster("h100-superpod")
    expected = within_limit(bare, 450.0, FIVE, cluster, ["bf16"])
    np.testing.assert_array_equal(throttled(bare, 450.0, FIVE, cluster, ["bf16"]).clock_hz, expected.clock_hz)
    # Without a chip that was measured, the rate that kernels reach stands for the clock.
    rate = GPUS.calibration.tensor_rate
    expected = within_limit(GPUS, 450.0, FIVE, cluster, ["bf16"], known=rate)
    np.testing.assert_array_equal(throttled(GPUS, 450.0, FIVE, cluster, ["bf16"]).clock_hz, expected.clock_hz)


def test_a_run_within_a_limit_is_searched_shown_reported_and_certified(tmp_path, capsys):
    path, out = tmp_path / "run.yaml", tmp_path / "out"
    path.write_text(
        RUN
        + "  power_limit: 400 W\n  baseline: h100-sxm\n  objectives: [throughput, power]\n"
        + "  placement: {tensor_parallel: 1, microbatch: 1, pipeline_parallel: 2, hbm: 80 GB}\n"
    )
    assert main(["search", str(path), "--out", str(out)]) == 0
    assert main(["certify", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    assert "clock that the power limit leaves" in (out / "report.html").read_text()
    capsys.readouterr()
    assert main(["show", str(out), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    # Nobody draws more than the limit, neither under large products nor in the mean of a step.
    host_w = FIVE.need_power().host_w_per_accelerator
    for row in rows:
        assert row["peak_power_w"] <= 400
        assert row["mean_power_w"] - host_w <= 400
        assert row["clock_under_load_hz"] <= row["clock_hz"]
    assert min(row["clock_under_load_hz"] / row["clock_hz"] for row in rows) < 1
    assert main(["show", str(out), "baseline", "--format", "json"]) == 0
    baseline = json.loads(capsys.readouterr().out)
    assert 400 < baseline["peak_power_w"] <= 700
