"""``archplace workload trace`` and ``what-if``, as a user calls them."""

import json
from pathlib import Path

import pytest

from archplace.cli import main
from archplace.workloads.traces import Attribute, Metadata, Node, NodeKind, Trace, load_trace, save_trace

DATA = Path(__file__).resolve().parents[1] / "workloads" / "traces" / "data"
RESNET = str(DATA / "resnet50_ddp.0.et.gz")


def workload(*words):
    return main(["workload", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The traces of GPT-2 on two replicas."""
    found = tmp_path_factory.mktemp("job") / "gpt"
    assert workload("trace", "gpt2-xl", "--data", 2, "--out", found) == 0
    return found


def test_a_workload_becomes_traces_of_all_ranks(folder):
    names = ["gpt2-xl.0.et", "gpt2-xl.1.et", "groups.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert json.loads((folder / "groups.json").read_text()) == {"1": [0, 1]}
    for rank in (0, 1):
        assert load_trace(folder / names[rank]).metadata.value("rank") == rank


def test_one_rank_s_trace_and_what_is_in_it(tmp_path, capsys):
    out = tmp_path / "g.json.gz"
    sharding = ["--tensor", 8, "--sequence-parallel", "--rank", 5]
    assert workload("trace", "llama2-7b", *sharding, "--out", out, "--format", "json") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["ranks"], row["traces"], row["process groups"]) == (8, 1, 1)
    assert workload("info", out, "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"] == row["nodes"]
    for action, name in (("timeline", "t.json"), ("graph", "g.graphml")):
        assert workload(action, out, "--out", tmp_path / name) == 0


def test_everything_at_once(folder, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--hidden", 2, "--layers", "block=5", "--ranks", 4, "--layout", "d2,e2=e,d", "--slow", "1=1.5"]
    traces = sorted(folder.glob("*.et"))
    assert workload("what-if", *traces, *words, "--delay", "2=5 ms", "--out", out, "--format", "json") == 0
    captured = capsys.readouterr()
    assert [row["step"] for row in json.loads(captured.out)] == ["scale", "layers", "ranks", "layout", "slow", "slow"]
    assert captured.err.count(" nodes\n") == 4
    assert sorted(path.name for path in out.iterdir()) == [*(f"gpt2-xl.{rank}.et" for rank in range(4)), "groups.json"]
    capsys.readouterr()
    assert workload("diff", out / "gpt2-xl.0.et", out / "gpt2-xl.1.et", "--format", "json") == 0
    rows = {row["which"]: (row["trace"], row["other"]) for row in json.loads(capsys.readouterr().out)}
    assert rows["flops"][1] == rows["flops"][0] * 3 / 2


def test_a_folder_is_its_traces(folder, tmp_path, capsys):
    for name, given in (("one", [folder]), ("two", sorted(folder.glob("*.et")))):
        assert workload("what-if", *given, "--hidden", 2, "--out", tmp_path / name) == 0
    for path in folder.iterdir():
        assert (tmp_path / "one" / path.name).read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    (tmp_path / "none").mkdir()
    capsys.readouterr()
    assert workload("what-if", tmp_path / "none", "--hidden", 2, "--out", tmp_path / "x") == 2
    assert "none: no traces NAME.RANK.et in this folder" in capsys.readouterr().err


def test_traces_of_another_job_beside_are_warned_of(tmp_path, capsys):
    for data in (4, 2):
        assert workload("trace", "bert-large", "--data", data, "--out", tmp_path / "out") == 0
    assert "out has 2 further traces, of another job: bert-large.2.et is the first" in capsys.readouterr().err
    for ranks in (4, 2):
        job = [tmp_path / "out" / f"bert-large.{rank}.et" for rank in (0, 1)]
        assert workload("what-if", *job, "--ranks", ranks, "--out", tmp_path / "other") == 0
    assert "other has 2 further traces, of another job" in capsys.readouterr().err


def test_a_case_for_simulators(tmp_path):
    """Traces in a folder of their own, without metadata, and the groups beside it."""
    case = tmp_path / "case"
    (case / "traces").mkdir(parents=True)
    attributes = {"comm_type": 0, "comm_size": 8, "pg_name": "3"}
    node = Node.build(
        id=0, kind=NodeKind.COLLECTIVE, attributes=[Attribute.of(name, value) for name, value in attributes.items()]
    )
    for rank in range(2):
        save_trace(Trace(metadata=Metadata(), nodes=(node,)), case / "traces" / f"npu.{rank}.et")
    (case / "groups.json").write_text('{"3": [0, 1]}')
    (case / "manifest.json").write_text("{}")
    assert workload("what-if", case, "--ranks", 4, "--out", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out" / "groups.json").read_text()) == {"3": [0, 1, 2, 3]}
    assert load_trace(tmp_path / "out" / "npu.3.et").metadata.value("world_size") == 4


def test_one_trace_into_one_file(folder, tmp_path, capsys):
    out = tmp_path / "one.et"
    assert workload("what-if", folder / "gpt2-xl.1.et", "--sequence", "1/2", "--out", out) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1] == "scale  sequence 1/2"
    assert "rank 1 of 2" in captured.err


def test_missing_ranks_are_warned_of(folder, tmp_path, capsys):
    assert workload("what-if", folder / "gpt2-xl.1.et", "--slow", "1=2", "--out", tmp_path / "out") == 0
    assert "warning: 1 of 2 ranks have no trace, rank 0 the first" in capsys.readouterr().err


def test_a_trace_of_another_tool_with_an_assumption(tmp_path, capsys):
    """A converter's trace of ResNet on eight devices: collectives of all ranks, and no laws."""
    out = tmp_path / "r.et"
    assert workload("what-if", RESNET, "--ranks", 32, "--world", 8, "--out", out) == 0
    assert "rank 0 of 32" in capsys.readouterr().err
    assert workload("what-if", RESNET, "--batch", 2, "--out", out) == 2
    assert "working nodes do not say what their work follows" in capsys.readouterr().err
    laws = "product: batch; other: batch; exchange: 1"
    assert workload("what-if", RESNET, "--assume", laws, "--batch", 2, "--out", tmp_path / "s.et") == 0
    assert "exchange 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "nothing to change: give --hidden, --layers"),
        (["--hidden", "x"], "--hidden: found 'x', needs a factor above 0"),
        (["--hidden", "-2"], "needs a factor above 0"),
        (["--experts", "2"], "--experts: nothing in these traces follows the size experts"),
        (["--layers", "many"], "--layers: found 'many', needs a whole number"),
        (["--layers", "head=2"], "--layers: there is one layer 'head'"),
        (["--ranks", "3", "--replicas", "2:x"], "--replicas: found 'x', needs a whole number"),
        (["--replicas", "2:1"], "--replicas: goes with --ranks"),
        (["--layout", "a2=b"], "--layout: axes a are to stand as b"),
        (["--slow", "1"], "--slow: found '1', needs a rank and its value, as 3=1.5"),
        (["--slow", "7=2"], "--slow: rank 7 has no trace here"),
        (["--delay", "1=5 parsecs"], "--delay: "),
        (["--slow", "1=2", "--groups", "none.json"], "none.json: cannot be read"),
        (["--slow", "1=2", "--world", "1"], "2 ranks are known of"),
    ],
)
def test_mistakes_are_one_line(folder, tmp_path, capsys, words, text):
    assert workload("what-if", folder / "gpt2-xl.1.et", *words, "--out", tmp_path / "x.et") == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert text in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["gpt9"], "gpt9"),
        (["gpt2-xl", "--tensor", "3"], "gpt2-xl: tensor parallel width 3 does not divide the 25 heads"),
        (["gpt2-xl", "--data", "0"], "--data: found 0, needs at least 1"),
        (["gpt2-xl", "--rank", "4"], "rank 4: there are ranks 0 to 0"),
    ],
)
def test_workloads_that_cannot_be_traced(tmp_path, capsys, words, text):
    assert workload("trace", *words, "--out", tmp_path / "x.et") == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert text in captured.err
    assert list(tmp_path.iterdir()) == []


def test_two_traces_do_not_go_into_one_file(folder, tmp_path, capsys):
    assert workload("what-if", *sorted(folder.glob("*.et")), "--hidden", 2, "--out", tmp_path / "x.et") == 2
    assert "x.et is one file, and 2 traces are changed: name a folder" in capsys.readouterr().err
