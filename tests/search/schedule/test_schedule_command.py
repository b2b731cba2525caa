"""``archplace schedule`` as a user runs it."""

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from schedule_helpers import PHAZE

from archplace.cli import main

ONE = {
    "name": "one",
    "num_tc": 2,
    "num_vc": 1,
    "nodes": [
        {"id": 4, "core_type": "TC", "latency": 3, "intra_op_latency": 2.5},
        {"id": 9, "core_type": "TC", "latency": 3.5, "intra_op_latency": 2.5},
        {"id": 2, "core_type": "Network", "latency": 1},
    ],
    "edges": [[4, 2]],
}


def write(folder: Path, value: object) -> Path:
    path = folder / "case.json"
    path.write_text(json.dumps(value))
    return path


def node(**changes: object) -> dict[str, object]:
    return {"id": 0, "core_type": "TC", "latency": 1, "intra_op_latency": 1} | changes


def instance(**changes: object) -> dict[str, object]:
    return {"num_tc": 1, "num_vc": 1, "nodes": [node()], "edges": []} | changes


def test_json_has_a_row_per_instance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", str(PHAZE), "--format", "json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    rows = json.loads(output.out)
    expected = json.loads(gzip.decompress(PHAZE.read_bytes()))
    assert [row["makespan"] for row in rows] == [each["makespan"] for each in expected]
    assert [row["name"] for row in rows] == [str(each["seed"]) for each in expected]
    assert all(list(row) == ["name", "makespan", "lower_bound", "status", "seconds"] for row in rows)
    assert {row["status"] for row in rows} == {"optimal"}


@pytest.mark.parametrize("engine", ["auto", "exact", "cpsat", "milp", "list"])
def test_engines_and_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str) -> None:
    # Side by side 3.5 s; the collective of 1 s follows the 3 s operator, 4 s. On all units: 2.5 + 2.5 s.
    path = write(tmp_path, [ONE, ONE | {"name": "two"}])
    assert main(["schedule", str(path), "--engine", engine, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["name"], float(row["makespan"]), row["status"]) for row in rows] == [
        ("one", 4.0, "optimal"),
        ("two", 4.0, "optimal"),
    ]
    assert main(["schedule", str(path), "--engine", engine, "--format", "yaml"]) == 0
    assert [row["lower_bound"] for row in yaml.safe_load(capsys.readouterr().out)] == [4.0, 4.0]
    assert main(["schedule", str(path), "--engine", engine]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["name", "one", "two"]


def test_a_single_instance_without_a_name_is_called_by_its_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", str(write(tmp_path, instance())), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "0"


def test_a_latency_of_null_is_a_mode_that_is_not_available(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node(latency=None, intra_op_latency=2), node(id=1, latency=3, intra_op_latency=None)]
    assert main(["schedule", str(write(tmp_path, instance(num_tc=4, nodes=nodes))), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["makespan"] == 5.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (instance(num_tc=0), "0.num_tc: found 0;"),
        (instance(num_vc=1.5), "0.num_vc: found 1.5;"),
        (instance(nodes=[]), "0.nodes:"),
        (instance(nodes=[node(latency=-1)]), "0.nodes.0.latency: found -1;"),
        (instance(nodes=[node(latency="3")]), "0.nodes.0.latency: found '3';"),
        (instance(nodes=[node(latency=1e40)]), "0.nodes.0.latency: found 1e+40;"),
        (instance(nodes=[node(latency=None, intra_op_latency=None)]), "operator 0 has neither latency"),
        (instance(nodes=[node(core_type="TCandVc")]), "did you mean 'TCandVC'?"),
        (instance(nodes=[node(), node()]), "operator 0 is given twice"),
        (instance(nodes=[node(latencyy=1)]), "unknown key; did you mean 'latency'?"),
        (instance(edges=[[0, 5]]), "there is no operator 5; operators are [0]"),
        (instance(edges=[[0]]), "0.edges.0:"),
        (instance(edges=[[0, 0]]), "found the cycle 0 -> 0"),
        ({"num_tc": 1, "nodes": [], "edges": []}, "0.num_vc: missing; add it"),
        ([], "an empty list"),
        (3, "0: found 3;"),
        ([instance(), "x"], "1: found 'x';"),
    ],
)
def test_wrong_files_are_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: object, words: str
) -> None:
    path = write(tmp_path, wrong)
    assert main(["schedule", str(path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err
    assert all(line.startswith(f"archplace: {path}: ") for line in output.err.splitlines())


def test_all_problems_of_all_instances_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [
        instance(nodes=[node(latency=-1), node(id=1, latency=-2)]),
        instance(),
        instance(nodes=[node(core_type="X"), node()], edges=[[0, 8]]),
    ]
    assert main(["schedule", str(write(tmp_path, wrong))]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 5


def test_unreadable_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(name: str, content: bytes | None) -> str:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        assert main(["schedule", str(path)]) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        return message.removeprefix(f"archplace: {path}")

    assert said("none.json", None).startswith(": cannot be read: No such file")
    assert said("", None) == ": cannot be read: it is a directory; name a file\n"
    assert said("text.json", b"[1, 2").startswith(":1:6: not valid JSON")
    assert "cut off" in said("cut.json.gz", PHAZE.read_bytes()[:700])
    assert "neither gzip nor text" in said("binary.json", b"\xff\xfe\x00")
    assert "found NaN" in said("nan.json", json.dumps(instance(nodes=[node(latency=float("nan"))])).encode())
    assert "given twice" in said("twice.json", b'{"num_tc": 1, "num_tc": 2}')
    assert "nested too deeply" in said("deep.json", b"[" * 200_000)


def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, instance()))
    assert main(["schedule", path, "--time-limit", "0"]) == 2
    assert "above 0" in capsys.readouterr().err
    assert main(["schedule", path, "--engine", "milp", "--solver", "NoSuch"]) == 2
    assert "available are" in capsys.readouterr().err


def test_solvers_are_imported_only_where_they_are_used() -> None:
    code = (
        "import sys, archplace.search.schedule\n"
        "print([name for name in ('ortools', 'pulp', 'highspy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_names_can_be_imported() -> None:
    import archplace.search.schedule as public

    assert sorted(public.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)) == public.__all__
    assert all(hasattr(public, name) for name in public.__all__)
