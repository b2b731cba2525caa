"""``archplace workload info`` says what model a trace ran."""

import json
from pathlib import Path

import pytest

from archplace.cli import main

DATA = Path(__file__).resolve().parents[1] / "workloads" / "traces" / "data"
TRANSFORMER = str(DATA / "transformer_host.json.gz")
D_MODEL, D_FF, LENGTH, VOCABULARY, BATCH = 64, 256, 32, 256, 4


def test_a_transformer_as_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "info", TRANSFORMER]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["batch", str(BATCH)] in lines
    assert ["sequence", "length", str(LENGTH)] in lines
    assert ["known", "operators", "166", "of", "166"] in lines
    table = lines[lines.index(["layers"]) + 2 :][:3]
    assert [line[:2] for line in table] == [["first", "1"], ["block", "2"], ["last", "1"]]


def test_a_transformer_as_document(capsys: pytest.CaptureFixture[str]) -> None:
    profile = str(DATA / "transformer_profile.json.gz")
    assert main(["workload", "info", TRANSFORMER, "--profile", profile, "--format", "json"]) == 0
    model = json.loads(capsys.readouterr().out)["model"]
    first, block, last = model["layers"]
    norm = 2 * D_MODEL
    matrices = 4 * D_MODEL * D_MODEL + 2 * D_MODEL * D_FF
    assert block["parameters"] == 2 * norm + matrices + 3 * D_MODEL + D_MODEL + D_FF + D_MODEL
    assert first["parameters"] == VOCABULARY * D_MODEL + LENGTH * D_MODEL
    assert last["parameters"] == norm + VOCABULARY * D_MODEL
    rows = BATCH * LENGTH
    assert block["flops"] == 6 * rows * (matrices + 2 * LENGTH * D_MODEL)
    assert block["leaving_bytes"] == rows * D_MODEL * 4
    # What the backward pass reads: what came in, 2 normed rows and 2 statistics of each, queries, keys and values, the
    # context and its statistic for each head, the sum, and the feed-forward part's inner rows before and after GELU.
    assert block["kept_bytes"] == 4 * rows * ((1 + 2 + 3 + 1 + 1) * D_MODEL + 2 * 2 + 4 + 2 * D_FF)
    assert model["model_flops"] == 2 * block["flops"] + last["flops"]
    assert model["parameters"] == first["parameters"] + 2 * block["parameters"] + last["parameters"]
    assert model["unknown"] == []


ZERO = "aten::zero_(Tensor(a!) self) -> Tensor(a!)"


def test_a_trace_without_a_forward_pass_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = {
        "schema": "1.1.1-chakra.0.0.4",
        "pid": 1,
        "nodes": [
            {
                "id": 2,
                "name": "aten::zero_",
                "ctrl_deps": 1,
                "inputs": {
                    "values": [[3, 4, 0, 6, 4, "cpu"]],
                    "shapes": [[6]],
                    "types": ["Tensor(float)"],
                },
                "outputs": {"values": [], "shapes": [], "types": []},
                "attrs": [{"name": "op_schema", "type": "string", "value": ZERO}],
            }
        ],
    }
    path = tmp_path / "host.json"
    path.write_text(json.dumps(calls))
    assert main(["workload", "info", str(path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] is None
    assert "no forward pass" in found["no_model"]
    assert main(["workload", "info", str(path)]) == 0
    shown = capsys.readouterr()
    assert "no model in this trace" in shown.err
    assert "layers" not in shown.out
