"""`archplace search` and what comes after it, as a user runs them."""

import json
from pathlib import Path

import pytest

from archplace.cli import main
from archplace.search.explain import PARTS
from archplace.search.tables import part_column

RUN = """\
run:
  workload: {workload}
  space: {space}
  cluster: a100-superpod
  accelerators: 8
  global_batch: 16
  placement: {{tensor_parallel: [2], microbatch: [2], recompute: [false]}}
  budgets: {{area: {area}}}
  baseline: a100-80gb
"""

SPACE = """\
space:
  name: few
  description: A handful of architectures.
  technology: 7nm
  clock: [1 GHz]
  source: a test
  tensor_units:
    count: [2, 4, 8]
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
    stacks: [2, 4]
    capacity_per_stack: 16 GB
    bandwidth_per_stack: 400 GB/s
    source: a test
  budget:
    area: 900 mm2
    source: a test
"""


@pytest.fixture
def run_file(tmp_path):
    def write(workload="bert-large", space="few.yaml", area="900 mm2"):
        (tmp_path / "few.yaml").write_text(SPACE)
        path = tmp_path / "run.yaml"
        path.write_text(RUN.format(workload=workload, space=space, area=area))
        return str(path)

    return write


def test_search_report_show(run_file, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["search", run_file(), "--out", str(out), "--format", "json", "--jobs", "1"]) == 0
    captured = capsys.readouterr()
    front = json.loads(captured.out)
    assert front
    assert "architectures decided" in captured.err
    for row in front:
        assert row["throughput_samples_per_s"] == pytest.approx(16 / row["step_s"])
        assert 0 < row["mfu"] < 1
        parts = sum(row[part_column(part)] for part in PARTS)
        assert parts == pytest.approx(row["step_s"])
    assert main(["report", str(out)]) == 0
    for line in capsys.readouterr().out.split():
        assert Path(line).stat().st_size > 0
    assert main(["show", str(out), str(front[0]["id"])]) == 0
    assert "Placement" in capsys.readouterr().out


def test_same_inputs_give_the_same_bytes(run_file, tmp_path, capsys):
    outputs = []
    for name in ("one", "two"):
        folder = tmp_path / name
        assert main(["search", run_file(), "--out", str(folder), "--jobs", "1"]) == 0
        assert main(["report", str(folder)]) == 0
        outputs.append([(folder / file).read_bytes() for file in ("report.html", "front.csv", "front.json")])
    capsys.readouterr()
    assert outputs[0] == outputs[1]


def test_searching_again_finds_everything_stored(run_file, tmp_path, capsys):
    out = str(tmp_path / "out")
    path = run_file()
    assert main(["search", path, "--out", out, "--format", "json", "--jobs", "1"]) == 0
    first = capsys.readouterr().out
    assert main(["search", path, "--out", out, "--format", "json", "--jobs", "1"]) == 0
    again = capsys.readouterr()
    assert again.out == first
    assert "is finished: its front follows, nothing is computed again" in again.err


def test_other_inputs_into_the_same_folder_are_refused(run_file, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["search", run_file(), "--out", out, "--jobs", "1"]) == 0
    assert main(["search", run_file(area="500 mm2"), "--out", out]) == 2
    assert "other inputs" in capsys.readouterr().err
    assert main(["show", out]) == 0


def test_dry_run_prints_the_size(run_file, capsys):
    assert main(["search", run_file(), "--dry-run", "--format", "json"]) == 0
    (size,) = json.loads(capsys.readouterr().out)
    # 3 counts × 2 widths × 2 numbers of stacks, one placement option for each own HBM capacity
    assert size["raw_combinations"] == 12
    assert size["architectures"] == 12
    assert size["placement_options"] == 1


def test_nothing_under_the_budget(run_file, tmp_path, capsys):
    assert main(["search", run_file(area="1 mm2"), "--out", str(tmp_path / "out")]) == 3
    error = capsys.readouterr().err
    assert "mm² exceeds the budget of 1 mm²" in error
    assert "nan" not in error
    assert "Traceback" not in error


def test_model_that_fits_no_placement(run_file, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["search", run_file(workload="gpt3-175b"), "--out", out]) == 3
    assert "memory: needs at least" in capsys.readouterr().err
    assert main(["report", out]) == 3


def test_width_that_does_not_divide_the_heads_is_told(run_file, tmp_path, capsys):
    # GPT-2 XL has 25 heads.
    assert main(["search", run_file(workload="gpt2-xl"), "--out", str(tmp_path / "out")]) == 3
    assert "25" in capsys.readouterr().err


def test_precision_the_tensor_units_lack(run_file, tmp_path, capsys):
    path = run_file()
    (tmp_path / "few.yaml").write_text(SPACE.replace("{bf16: 1, fp16: 1}", "{bf16: 1}"))
    assert main(["search", path, "--out", str(tmp_path / "out")]) == 2
    assert "fp16" in capsys.readouterr().err
