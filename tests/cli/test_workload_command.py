"""``archplace workload``: traces in and out, as a user does it."""

import gzip
import json
from pathlib import Path

import pytest
import yaml

from archplace.cli import main
from archplace.workloads.traces import Metadata, Node, NodeKind, Trace, load_trace, save_trace

DATA = Path(__file__).resolve().parents[1] / "workloads" / "traces" / "data"
RESNET = str(DATA / "resnet50_ddp.0.et.gz")
TRANSFORMER = str(DATA / "transformer_host.json.gz")


def test_info_as_table(capsys):
    assert main(["workload", "info", RESNET, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "nodes                               3664" in lines
    assert "host nodes labelled as collectives  14" in lines
    assert "communication (the first 2 of 7)" in lines
    assert "all_reduce  all    31502336  1" in lines


@pytest.mark.parametrize("style", ["json", "yaml"])
def test_info_as_document(capsys, style):
    assert main(["workload", "info", RESNET, "--format", style]) == 0
    out = capsys.readouterr().out
    found = json.loads(out) if style == "json" else yaml.safe_load(out)
    assert (found["nodes"], found["dependencies"], found["host_nodes"]) == (3664, 181_878, 2448)
    assert found["communication"][0] == {"kind": "all_reduce", "group": "all", "bytes": 31_502_336, "count": 1}
    assert len(found["names"]) == 10


def test_import_then_all_the_rest(tmp_path, capsys):
    chakra, document, back = tmp_path / "a.et", tmp_path / "a.json.gz", tmp_path / "b.et"
    profile = str(DATA / "transformer_profile_alone.json.gz")
    assert (
        main(["workload", "import", TRANSFORMER, "--profile", profile, "--out", str(chakra), "--format", "json"]) == 0
    )
    row = json.loads(capsys.readouterr().out)
    assert (row["nodes"], row["operators"], row["calls"], row["timed operators"]) == (475, 475, 1777, 475)
    assert main(["workload", "convert", str(chakra), "--out", str(document)]) == 0
    assert main(["workload", "convert", str(document), "--out", str(back)]) == 0
    assert back.read_bytes() == chakra.read_bytes()
    assert len(json.loads(gzip.decompress(document.read_bytes()))["nodes"]) == 475
    capsys.readouterr()
    assert main(["workload", "diff", str(chakra), str(back)]) == 0
    assert capsys.readouterr().out == "no difference in figures, communications and names\n"
    for name in ("a.dot", "a.graphml", "a.graphml.gz"):
        assert main(["workload", "graph", str(chakra), "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 10_000 or name.endswith(".gz")
    assert main(["workload", "timeline", str(chakra), "--out", str(tmp_path / "t.json")]) == 0
    assert "475 nodes in 1 lane, " in capsys.readouterr().err
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} >= {"aten::linear", "aten::mm"}


def test_execution_traces_are_read_where_chakra_traces_are(tmp_path, capsys):
    profile = str(DATA / "linear_profile.json.gz")
    linear = str(DATA / "linear_host.json.gz")
    assert main(["workload", "info", linear, "--profile", profile, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["host_nodes"] == 320
    assert found["compute_nodes"] == 261
    assert main(["workload", "convert", linear, "--out", str(tmp_path / "a.et")]) == 0
    assert len(load_trace(tmp_path / "a.et").nodes) == 320


def test_diff_of_two_ranks(capsys):
    ranks = [str(DATA / f"ddp_host.{rank}.json.gz") for rank in (0, 1)]
    assert main(["workload", "diff", *ranks, "--format", "json"]) == 0
    rows = {(row["what"], row["which"]): (row["trace"], row["other"]) for row in json.loads(capsys.readouterr().out)}
    assert rows["name", "c10d::send"] == (1, None)
    assert rows["name", "c10d::recv_"] == (None, 1)
    assert rows["communication", "send all 64"] == (1, None)


def write(tmp_path, *nodes):
    path = tmp_path / "a.et"
    save_trace(Trace(metadata=Metadata(), nodes=nodes), path)
    return str(path)


def cyclic(tmp_path):
    one = Node.build(id=1, kind=NodeKind.COMPUTE, data_parents=[2])
    two = Node.build(id=2, kind=NodeKind.COMPUTE, data_parents=[1])
    return write(tmp_path, one, two)


@pytest.mark.parametrize("action", ["info", "convert", "timeline"])
def test_cycles_are_refused_and_leave_no_file(tmp_path, capsys, action):
    path = cyclic(tmp_path)
    out = [] if action == "info" else ["--out", str(tmp_path / "x.json")]
    assert main(["workload", action, path, *out]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"archplace: {path}: ")
    assert "2 nodes wait for each other: 1 <- 2 <- 1" in captured.err
    assert [file.name for file in tmp_path.iterdir()] == ["a.et"]


def test_a_cycle_can_be_drawn(tmp_path, capsys):
    path = cyclic(tmp_path)
    assert main(["workload", "graph", path, "--out", str(tmp_path / "x.dot")]) == 0
    assert f"warning: {path}: " in capsys.readouterr().err
    assert "  2 -> 1;" in (tmp_path / "x.dot").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["info", "missing.et"], "missing.et: cannot be read: No such file"),
        (["info", str(DATA / "README.md")], "README.md: byte 0: "),
        (["info", str(DATA / "linear_profile.json.gz")], "a trace of PyTorch's profiler, which says when calls ran"),
        (["info", RESNET, "--profile", "x"], "--profile: goes with an execution trace of PyTorch, and "),
        (["info", RESNET, "--top", "-1"], "--top: found -1, needs a number from 0"),
        (["import", RESNET, "--out", "x.et"], "a chakra trace; import takes an execution trace of PyTorch's observer"),
        (
            ["import", TRANSFORMER, "--profile", str(DATA / "ddp_profile.0.json.gz"), "--out", "x.et"],
            "ddp_profile.0.json.gz: belongs to another run than ",
        ),
        (["graph", RESNET, "--out", "x.png"], "--out: found 'x.png'; the name ends in .dot, .gv, .graphml"),
        (["convert", RESNET, "--out", "nowhere/x.et"], "nowhere/x.et: cannot be written: No such file"),
    ],
)
def test_mistakes_are_one_line(arguments, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["workload", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert text in captured.err
    assert list(tmp_path.iterdir()) == []


def test_an_action_is_needed(capsys):
    assert main(["workload"]) == 2
    assert "ACTION" in capsys.readouterr().err
