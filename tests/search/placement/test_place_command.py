"""``archplace place`` as a user runs it."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from archplace.cli import main

REFERENCE = Path(__file__).parent / "data" / "phaze_placement.json.gz"


def test_json_has_a_row_per_instance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", str(REFERENCE), "--format", "json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    rows = json.loads(output.out)
    assert len(rows) == 40
    for row in rows:
        assert row["seconds"] >= 0.0
        assert row["feasible"] == (row["reason"] is None)
        if row["feasible"]:
            assert row["pipeline_parallel"] == len(row["stages"]) >= 1
            assert sum(stage["bottleneck"] for stage in row["stages"]) == 1
            firsts = [stage["first_layer"] for stage in row["stages"]]
            assert firsts == [-1, *(stage["last_layer"] + 1 for stage in row["stages"][:-1])]
        else:
            assert (row["time_per_batch"], row["tensor_parallel"], row["stages"]) == (None, None, [])


@pytest.mark.parametrize("style", ["table", "csv", "yaml"])
def test_every_format_names_every_instance(capsys: pytest.CaptureFixture[str], style: str) -> None:
    assert main(["place", str(REFERENCE), "--format", style]) == 0
    out = capsys.readouterr().out
    if style == "yaml":
        names = [row["name"] for row in yaml.safe_load(out)]
    elif style == "csv":
        names = [row["name"] for row in csv.DictReader(io.StringIO(out))]
    else:
        names = [line.split()[0] for line in out.splitlines()[1:]]
    assert names[:2] == ["case00", "case02"]
    assert len(names) == 40


def test_nothing_feasible_is_exit_3_and_still_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = {
        "id": 0,
        "parameterSize": 10.0,
        "activationSize": 1.0,
        "optimalLatencyFw": 1.0,
        "optimalLatencyBw": 1.0,
        "isTensorParallelized": False,
    }
    question = {
        "maxMemoryPerDevice": 20.5,
        "maxDevices": 1,
        "bandwidth": 1.0,
        "mbsInBatch": 1,
        "nodes": {"1": [layer]},
        "edges": {"1": []},
        "activationRecomputation": False,
        "optimizerAlgorithm": "SGD",
    }
    path = tmp_path / "tight.json"
    path.write_text(json.dumps(question))
    assert main(["place", str(path), "--format", "json"]) == 3
    (row,) = json.loads(capsys.readouterr().out)
    assert "no stage can hold layer 0: it needs 21.0 B of 20.5 B" in row["reason"]


def test_bad_files_are_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"archplace: {tmp_path}: cannot be read: it is a directory; name a file\n"
