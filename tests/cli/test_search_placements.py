"""`archplace search` along every axis of a placement, as a user runs it: search, report, show, certify."""

import json
import re

import pytest

from archplace.cli import main
from archplace.search.explain import PARTS
from archplace.search.tables import part_column
from archplace.workloads import load_workload

ACCELERATORS, BATCH = 8, 32

RUN = """\
run:
  workload: {workload}
  space: {space}
  cluster: a100-superpod
  accelerators: 8
  global_batch: 32
  placement: {{{placement}}}
"""

PLAIN = (
    "tensor_parallel: [1, 2], pipeline_parallel: [2, 4], microbatch: 1, recompute: [false, true], hbm: [8 GB, 12 GB]"
)
TODAY = (
    "tensor_parallel: [1, 2], sequence_parallel: [false, true], pipeline_parallel: [2, 4], microbatch: 1, "
    "schedule: [1f1b, interleaved, zb-h1], virtual_stages: [2, 3], state_sharding: [none, zero-1], "
    "recompute: [none, selective, full], hbm: [8 GB, 12 GB]"
)

EXPERTS = """\
model:
  name: few-experts
  source: a test
  kind: decoder
  n_layers: 6
  d_model: 1024
  n_heads: 16
  n_kv_heads: 4
  d_ff: 4096
  gated_mlp: true
  activation: silu
  norm: rms_norm
  positions: rope
  max_positions: 1024
  vocabulary: 32000
  tied_head: false
  bias: false
  experts: {n_experts: 8, top_k: 2, d_ff: 2048, dense_layers: 2}
"""
"""After the embedding two dense blocks, then four with experts, then the head."""

JOB = """\
workload:
  name: few-experts
  source: a test
  model: model.yaml
  sequence_length: 1024
  global_batch: 32
  precision: bf16
  optimizer: adam
  fused_attention: true
"""

SPACE = """\
space:
  name: few
  description: Four architectures.
  technology: 7nm
  clock: [1 GHz]
  source: a test
  tensor_units:
    count: [1, 2]
    rows: [128]
    cols: [64, 128]
    macs_per_element_per_cycle: {bf16: 1, fp16: 1}
    local_buffer: {per_element: 64 B, at_least: 64 KiB}
    local_bandwidth: {per_cycle_and_edge_element: 4 B}
    source: a test
  vector_units:
    count: [2]
    lanes: 1024
    local_buffer: {per_lane: 256 B}
    source: a test
  global_buffer:
    capacity: [32 MiB]
    bandwidth: {per_cycle: 4 KiB}
    source: a test
  hbm:
    stacks: [4]
    capacity_per_stack: 16 GB
    bandwidth_per_stack: 400 GB/s
    source: a test
  budget:
    area: 900 mm2
    source: a test
"""


def searched(folder, name, capsys, **run):
    """Search, and return the folder of the run and its front."""
    (folder / "few.yaml").write_text(SPACE)
    (folder / "model.yaml").write_text(EXPERTS)
    (folder / "job.yaml").write_text(JOB)
    path = folder / f"{name}.yaml"
    path.write_text(RUN.format(**run))
    out = folder / name
    assert main(["search", str(path), "--out", str(out), "--format", "json", "--jobs", "1"]) == 0
    return out, json.loads(capsys.readouterr().out)


def shown(out, design, capsys):
    """What ``show`` says of a design's only workload."""
    assert main(["show", str(out), str(design), "--format", "json"]) == 0
    (workload,) = json.loads(capsys.readouterr().out)["workloads"]
    return workload


def check_rows(front, n_layers):
    """What holds for every placement of a run of :data:`ACCELERATORS` on :data:`BATCH` sequences."""
    assert front
    for row in front:
        degrees = row["tensor_parallel"] * row["context_parallel"] * row["data_parallel"] * row["pipeline_stages"]
        assert degrees == row["accelerators_used"] == ACCELERATORS
        assert row["microbatches_per_replica"] * row["microbatch"] * row["data_parallel"] == BATCH
        layers = [int(number) for number in row["layers_per_stage"].split()]
        assert len(layers) == row["pipeline_stages"]
        assert sum(layers) == n_layers
        assert sum(row[part_column(part)] for part in PARTS) == pytest.approx(row["step_s"])
        assert 0 < row["memory_bytes"] <= row["hbm_bytes"]
        assert row["throughput_samples_per_s"] == pytest.approx(BATCH / row["step_s"])
        assert 0 < row["mfu"] < 1


def check_certificate(out, capsys):
    assert main(["certify", str(out), "--jobs", "1", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["certified"] is True


def test_today_s_axes_through_report_show_and_certificate(tmp_path, capsys):
    out, front = searched(tmp_path, "today", capsys, workload="opt-1.3b", space="tiny", placement=TODAY)
    check_rows(front, load_workload("opt-1.3b").model.n_layers + 2)
    # Whatever the plain axes give on some area, these give at least: they offer the same and more.
    _, plain = searched(tmp_path, "plain", capsys, workload="opt-1.3b", space="tiny", placement=PLAIN)
    for one in plain:
        assert any(
            row["throughput_samples_per_s"] >= one["throughput_samples_per_s"] and row["area_mm2"] <= one["area_mm2"]
            for row in front
        )
    best, base = front[0], plain[0]
    assert best["throughput_samples_per_s"] > base["throughput_samples_per_s"]
    check_certificate(out, capsys)

    workload = shown(out, best["id"], capsys)
    assert workload["placement"]["strategy"] == best["strategy"]
    assert len(workload["stages"]) == best["pipeline_stages"]
    for stage in workload["stages"]:
        assert stage["devices"] == ACCELERATORS // best["pipeline_stages"]
        assert stage["recompute"] in best["recompute"]
    assert main(["show", str(out)]) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert {"placement", "recompute", "HBM_GB"} <= set(heads.split())
    assert [line.split()[0] for line in lines] == [str(row["id"]) for row in front]
    assert best["strategy"] in lines[0]
    assert main(["report", str(out)]) == 0
    capsys.readouterr()
    page = (out / "report.html").read_text()
    for words in (best["strategy"], "1f1b, interleaved, zb-h1", "none, optimizer", "none, selective, full"):
        assert words in page


def stage_layers(words):
    """Layers of a stage by kind: ``2 × block + head`` is two of one kind and one of another."""
    found = {}
    for part in words.split(" + "):
        number, kind = re.fullmatch(r"(?:(\d+) × )?(\w+)", part).groups()
        found[kind] = int(number or 1)
    return found


@pytest.mark.parametrize("experts", ["[1, 4]", "4"])
def test_several_kinds_of_blocks_through_report_show_and_certificate(experts, tmp_path, capsys):
    placement = TODAY.replace("[8 GB, 12 GB]", "4 GB") + f", expert_parallel: {experts}"
    out, front = searched(tmp_path, "kinds", capsys, workload="job.yaml", space="few.yaml", placement=placement)
    check_rows(front, 8)
    check_certificate(out, capsys)
    for row in front:
        if experts == "4":
            assert row["expert_parallel"] == 4
            assert row["expert_parallel_communication_s"] > 0
        held = [stage_layers(stage["layers"]) for stage in shown(out, row["id"], capsys)["stages"]]
        totals = {}
        for stage in held:
            for kind, number in stage.items():
                totals[kind] = totals.get(kind, 0) + number
        assert totals == {"embedding": 1, "dense_block": 2, "expert_block": 4, "head": 1}
        # The chain is cut: kinds come in its order.
        order = list(dict.fromkeys(kind for stage in held for kind in stage))
        assert order == list(totals)
    assert main(["report", str(out)]) == 0
    capsys.readouterr()
    page = (out / "report.html").read_text()
    assert "expert_block" in page
    assert "expert-parallel communication" in page
