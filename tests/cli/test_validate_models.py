"""Run files that name each workload of the package."""

from pathlib import Path

import pytest

from archplace.cli import main
from archplace.workloads import workload_names

RUN = """\
run:
  workload: NAME
  space: tiny
  cluster: a100-superpod
  accelerators: 64
  placement:
    tensor_parallel: [1, 2]
    microbatch: [1]
  objectives: [throughput, area]
"""


@pytest.mark.parametrize("name", workload_names())
def test_runs_of_every_workload_are_valid(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("NAME", name), encoding="utf-8")
    assert main(["validate", str(file)]) == 0
    assert f"run of {name} on 64 accelerators" in capsys.readouterr().out
