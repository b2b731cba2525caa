"""Real traces, damaged: whatever is done to one, each command works or refuses with a line that names the file."""

import gzip
import json
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_helpers import attributes
from whatif_helpers import ring_step, step_of

from archplace.cli import main
from archplace.workloads.traces import Node, Trace, load_trace, save_trace
from archplace.workloads.traces.attributes import attribute_fields

DATA = Path(__file__).parent / "data"
ASSUMED = "product: hidden^2; other: hidden; exchange: 1"
ACTIONS = {
    "info": ["info", "IN"],
    "convert": ["convert", "IN", "--out", "out.json"],
    "timeline": ["timeline", "IN", "--out", "out.json"],
    "graph": ["graph", "IN", "--out", "out.graphml"],
    "sizes": ["what-if", "IN", "--assume", ASSUMED, "--hidden", "3/2", "--out", "out.et"],
    "layers": ["what-if", "IN", "--layers", "4", "--out", "out.et"],
    "ranks": ["what-if", "IN", "--ranks", "4", "--layout", "a4=a", "--out", "out.et"],
    "slow": ["what-if", "IN", "--slow", "0=3/2", "--delay", "0=1 ms", "--out", "out.et"],
}
NAMES = (
    *("num_ops", "tensor_size", "comm_size", "comm_type", "comm_src", "comm_dst", "comm_tag", "pg_name", "comm_group"),
    *("pg_size", "pg_first_rank", "pg_rank_stride", "is_cpu_op", "duration_ns", "start_ns", "layer", "layer_index"),
    *("scaling", "loops", "involved_dim", "phase"),
)
FUZZ = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@cache
def corpus(name):
    """A trace from another tool, and two of this one."""
    if name == "resnet":
        return load_trace(DATA / "resnet50_ddp.0.et.gz")
    return (ring_step(data=2) if name == "ring" else step_of(tensor=2, data=2)).trace()


@st.composite
def damaged(draw):
    """A stretch of a real trace, some of whose nodes have wrong numbers, parents, kinds and attributes."""
    trace = corpus(draw(st.sampled_from(["resnet", "ring", "tensor"])))
    first = draw(st.integers(0, len(trace.nodes) - 1))
    messages = []
    for node in trace.nodes[first : first + draw(st.integers(1, 40))]:
        message = type(node.message)()
        message.CopyFrom(node.message)
        messages.append(message)
    ids = {message.id for message in messages}
    for message in messages:
        for parents in (message.data_deps, message.ctrl_deps):
            kept = [one for one in parents if one in ids]
            del parents[:]
            parents.extend(kept)
    for _ in range(draw(st.integers(0, 4))):
        message = draw(st.sampled_from(messages))
        what = draw(st.sampled_from(["attribute", "attribute", "attribute", "id", "parent", "type", "duration"]))
        if what == "attribute":
            message.attr.add(**attribute_fields(draw(attributes())._replace(name=draw(st.sampled_from(NAMES)))))
        elif what == "id":
            message.id = draw(st.integers(0, 2**64 - 1))
        elif what == "parent":
            message.data_deps.append(draw(st.sampled_from(sorted(ids)) | st.integers(0, 2**64 - 1)))
        elif what == "type":
            message.type = draw(st.integers(1, 7))
        else:
            message.duration_micros = draw(st.integers(0, 2**64 - 1))
    return Trace(metadata=trace.metadata, nodes=tuple(map(Node, messages)))


@FUZZ
@given(damaged(), st.sampled_from(sorted(ACTIONS)), st.sampled_from(["a.et", "a.json", "a.et.gz"]))
def test_damaged_chakra_traces(tmp_path, monkeypatch, capsys, trace, action, name):
    monkeypatch.chdir(tmp_path)
    save_trace(trace, name)
    worked = holds(capsys, [word.replace("IN", name) for word in ACTIONS[action]])
    if worked and action in ("sizes", "layers", "ranks", "slow"):
        # What comes out is as sound as what went in: no doubled ids, unknown parents or cycles.
        assert holds(capsys, ["info", "out.et"])


def holds(capsys, words):
    """Whether a command worked; it may refuse, in lines of its own."""
    code = main(["workload", *words])
    lines = capsys.readouterr().err.splitlines()
    assert code in (0, 2), lines
    assert code == 0 or all(line.startswith("archplace: ") for line in lines)
    return code == 0


@cache
def documents(name):
    return gzip.decompress((DATA / f"{name}.json.gz").read_bytes()).decode()


VALUES = st.sampled_from(
    [None, True, -1, 0, 2**31, 2**64, 1e308, "", "x", "Tensor(float)", [], {}, [[]], [0, 0, 0, 0, 0, "cpu"], {"a": 1}]
)


@st.composite
def damaged_document(draw, name):
    """A document some of whose values are of another type, gone, or doubled; of its long lists a stretch."""
    document = json.loads(documents(name))
    long = "nodes" if "nodes" in document else "traceEvents"
    first = draw(st.integers(0, len(document[long]) - 1))
    document[long] = document[long][first : first + draw(st.integers(1, 60))]
    for _ in range(draw(st.integers(0, 4))):
        within = document[long] if draw(st.booleans()) else document
        while True:
            keys = range(len(within)) if isinstance(within, list) else sorted(within)
            key = draw(st.sampled_from(list(keys)))
            deeper = within[key]
            if not isinstance(deeper, dict | list) or not deeper or draw(st.integers(0, 5)) == 0:
                break
            within = deeper
        what = draw(st.sampled_from(["value", "gone", "twice"]))
        if what == "gone" and len(within) > 1:
            del within[key]
        elif what == "twice" and isinstance(within, list):
            within.insert(key, within[key])
        else:
            within[key] = draw(VALUES)
    return json.dumps(document)


@FUZZ
@given(st.data(), st.sampled_from(["transformer", "linear", "ddp"]), st.booleans())
def test_damaged_traces_of_pytorch(tmp_path, monkeypatch, capsys, data, name, profiled):
    monkeypatch.chdir(tmp_path)
    number = ".0" if name == "ddp" else ""
    Path("host.json").write_text(data.draw(damaged_document(f"{name}_host{number}")))
    words = ["import", "host.json", "--out", "out.et"]
    if profiled:
        Path("profile.json").write_text(data.draw(damaged_document(f"{name}_profile{number}")))
        words += ["--profile", "profile.json"]
    if holds(capsys, words):
        assert holds(capsys, ["info", "out.et"])
    holds(capsys, ["trace", "host.json", "--out", "step.et"])
