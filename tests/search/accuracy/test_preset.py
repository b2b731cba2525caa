"""Fitted values go into cluster files with their source, and come back."""

from dataclasses import replace

import numpy as np
import pytest

from archplace.arch_configs import load_cluster
from archplace.arch_configs.calibration import Uncertainty
from archplace.arch_configs.errors import ConfigError
from archplace.search.accuracy.calibrate import Fit
from archplace.search.accuracy.preset import fitted_text, software_section, uncertainty_section, write_section

FIT = Fit(
    clusters=("mine",),
    values={"dispatch_s": 74.96e-6, "tensor_rate": 0.78125, "vector_traffic": 1.0},
    errors=np.array([0.1, -0.02, 0.03]),
    held_out_errors=np.array([-0.05]),
)
TEXT = fitted_text(FIT, ["a table"], "2026-01-31")
FILE = """\
cluster:
  name: mine
  dimensions:
    - {name: node, topology: switch, size: 8, bandwidth: 100 GB/s, latency: 1 us, source: a data sheet}
"""
FACTS = """\
  software:
    data_overlap: false
    source: "as published"
"""
HOST = """\
  host: {bandwidth: 16 GB/s, memory: 250 GB, source: a data sheet}
"""


def load(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path, load_cluster(path)


def test_the_source_names_date_rows_and_errors():
    assert TEXT == (
        "Fitted 2026-01-31 by archplace calibrate to 3 published steps (a table) on mine: mean error 5.0%, median 3.0%"
        "; of the 1 steps that were held out: mean error 5.0%, median 5.0%"
    )


@pytest.mark.parametrize("text", [FILE, FILE + FACTS, FILE + FACTS + HOST, FILE + HOST])
def test_what_is_written_is_what_is_loaded(tmp_path, text):
    path, before = load(tmp_path, text)
    write_section(path, "software", software_section(before, FIT, TEXT))
    after = load_cluster(path)
    assert (after.software.dispatch_s, after.software.tensor_rate) == (pytest.approx(75e-6), 0.781)
    assert after.software.data_overlap == before.software.data_overlap
    assert after.sources["software.dispatch"] == TEXT
    assert after.sources["software.tensor_rate"] == "With dispatch"
    assert after.sources.get("software.data_overlap") == before.sources.get("software.data_overlap")
    assert (after.host, after.name) == (before.host, before.name)


def test_writing_again_replaces_what_was_there(tmp_path):
    path, before = load(tmp_path, FILE + FACTS + HOST)
    section = software_section(before, FIT, TEXT)
    write_section(path, "software", section)
    once = path.read_text()
    write_section(path, "software", software_section(load_cluster(path), FIT, TEXT))
    assert path.read_text() == once


UNCERTAIN = replace(FIT, uncertainty=Uncertainty(low=0.91234, high=1.1, compared=0.0512, steps=20))


@pytest.mark.parametrize("text", [FILE, FILE + FACTS, FILE + FACTS + HOST])
def test_intervals_are_written_beside_the_values_and_come_back(tmp_path, text):
    path, before = load(tmp_path, text)
    section = uncertainty_section(UNCERTAIN, ["a table"], "2026-01-31")
    write_section(path, "software", software_section(before, FIT, TEXT))
    write_section(path, "uncertainty", section)
    once, found = path.read_text(), load_cluster(path)
    assert found.uncertainty == Uncertainty(low=0.912, high=1.1, compared=0.0512, steps=20)
    assert "20 published steps (a table) on mine, 1 of them held out of the fit" in found.sources["uncertainty.low"]
    assert found.software.tensor_rate == 0.781
    write_section(path, "uncertainty", section)
    assert path.read_text() == once


def test_too_few_steps_leave_no_interval_behind(tmp_path):
    path, _ = load(tmp_path, FILE + HOST)
    plain = path.read_text()
    assert uncertainty_section(FIT, ["a table"], "2026-01-31") == ""
    write_section(path, "uncertainty", "")
    assert path.read_text() == plain
    write_section(path, "uncertainty", uncertainty_section(UNCERTAIN, ["a table"], "2026-01-31"))
    assert load_cluster(path).uncertainty is not None
    write_section(path, "uncertainty", "")
    assert path.read_text() == plain
    assert load_cluster(path).uncertainty is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{low: 1.2, high: 1.1, steps: 9, source: fit}", "found low 1.2 above high 1.1"),
        ("{low: 0.9, high: 1.1, source: fit}", "steps"),
        ("{low: 0.9, high: 1.1, steps: 9}", "source"),
        ("{low: 0, high: 1.1, steps: 9, source: fit}", "low"),
    ],
)
def test_intervals_that_cannot_be_are_refused(tmp_path, section, message):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{FILE}  uncertainty: {section}\n")
    with pytest.raises(ConfigError, match=message):
        load_cluster(path)


def test_other_forms_are_left_alone(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("cluster: {name: mine}\n")
    with pytest.raises(ConfigError, match="must be indented by two spaces"):
        write_section(path, "software", "  software: {}\n")
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write_section(tmp_path / "none.yaml", "software", "")
