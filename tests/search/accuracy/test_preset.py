"""Fitted values go into cluster files with their source, and come back."""

import numpy as np
import pytest

from archplace.arch_configs import load_cluster
from archplace.arch_configs.errors import ConfigError
from archplace.search.accuracy.calibrate import Fit
from archplace.search.accuracy.preset import fitted_text, software_section, write_section

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
    write_section(path, software_section(before, FIT, TEXT))
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
    write_section(path, section)
    once = path.read_text()
    write_section(path, software_section(load_cluster(path), FIT, TEXT))
    assert path.read_text() == once


def test_other_forms_are_left_alone(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("cluster: {name: mine}\n")
    with pytest.raises(ConfigError, match="must be indented by two spaces"):
        write_section(path, "  software: {}\n")
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write_section(tmp_path / "none.yaml", "")
