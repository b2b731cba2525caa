"""``archplace validate``: one line per good file, every problem of the others, exit code 2."""

from pathlib import Path

import pytest

from archplace.arch_configs import load_space
from archplace.cli import main

ROOT = Path(__file__).resolve().parents[2]
BUILT_IN = sorted((ROOT / "arch_configs").glob("*/*.yaml")) + sorted((ROOT / "workloads").glob("*/*.yaml"))


def test_every_built_in_file_is_valid(capsys):
    assert main(["validate", *map(str, BUILT_IN)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split(": ok (")[0] for line in out.splitlines()] == [str(path) for path in BUILT_IN]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("spaces/phaze.yaml", "design space, 75,712 raw combinations, 29,360 architectures"),
        ("accelerators/tpu-v4.yaml", "accelerator, 275.3 TFLOP/s bf16, HBM 32 GB"),
        (
            "clusters/a100-superpod.yaml",
            "cluster, 4,480 devices: switch of 8 at 300 GB/s, then switch of 560 at 25 GB/s",
        ),
        ("technology/7nm.yaml", "technology table, prices a TPU v4 at "),
    ],
)
def test_a_good_file_is_described_in_a_line(file, text, capsys):
    path = ROOT / "arch_configs" / file
    assert main(["validate", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: ok ({text}")
    assert out.count("\n") == 1


def test_all_problems_of_all_files_and_the_good_ones_too(tmp_path, capsys):
    bad, kind = tmp_path / "bad.yaml", tmp_path / "kind.yaml"
    good = ROOT / "arch_configs" / "clusters" / "flat-4gib.yaml"
    bad.write_text("cluster: {name: x, name: y, dimension: []}\n")
    kind.write_text("acelerator: {}\n")
    missing = tmp_path / "missing.yaml"
    assert main(["validate", str(bad), str(good), str(kind), str(missing), str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out.startswith(f"{good}: ok (cluster, ")
    assert err.splitlines() == [
        f"archplace: {bad}:1:1: cluster.dimensions: the key 'dimensions' is missing in 'cluster'; add 'dimensions: …'",
        f"archplace: {bad}:1:20: cluster.name: the key stands twice, first at {bad}:1:11; remove one of them",
        f"archplace: {bad}:1:29: cluster.dimension: unknown key 'dimension'; did you mean 'dimensions'? allowed: name, "
        "description, accelerator, dimensions, endpoint, host, software, uncertainty",
        f"archplace: {kind}:1:1: acelerator: unknown kind of file 'acelerator'; did you mean 'accelerator'? allowed: "
        "accelerator, cluster, space, technology, model, workload, run",
        f"archplace: {missing}: no such file",
        f"archplace: {tmp_path}: found a directory; a YAML file is needed",
    ]


def test_a_space_with_nothing_under_budget_is_a_problem(tmp_path, capsys):
    text = (ROOT / "arch_configs" / "spaces" / "tiny.yaml").read_text()
    path = tmp_path / "small.yaml"
    path.write_text(text.replace("area: 600 mm2", "area: 6 mm2"))
    smallest = load_space("tiny").enumerate().area_mm2.min()
    assert main(["validate", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"archplace: {path}: no architecture of the design space 'tiny' has an area of 0 to 6 mm2")
    assert f"has {smallest:.6g} mm2 (tensor_units.count 2," in line


def test_a_file_without_the_usual_ending(tmp_path, capsys):
    path = tmp_path / "tiny"
    path.write_text((ROOT / "arch_configs" / "spaces" / "tiny.yaml").read_text())
    assert main(["validate", str(path)]) == 0
    assert "design space" in capsys.readouterr().out
