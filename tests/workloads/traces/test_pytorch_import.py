"""PyTorch's traces as Chakra traces: real ones, whose operators and dependencies were counted independently."""

import gzip
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import (
    CollectiveType,
    NodeKind,
    Role,
    TraceArrays,
    audit_file,
    import_pytorch,
    load_trace,
    meaning_of,
    save_trace,
    statistics_of,
)

DATA = Path(__file__).parent / "data"


def rewritten(tmp_path, name, change):
    """Write a copy of a trace with something changed, and return its path."""
    document = json.loads(gzip.decompress((DATA / name).read_bytes()))
    change(document)
    path = tmp_path / name.removesuffix(".gz")
    path.write_text(json.dumps(document))
    return path


def edges(trace, kind="data_parents"):
    return sum(len(getattr(node, kind)) for node in trace.nodes)


@pytest.fixture(scope="module")
def transformer():
    return import_pytorch(DATA / "transformer_host.json.gz")


@pytest.fixture(scope="module")
def linear():
    return import_pytorch(DATA / "linear_host.json.gz", [DATA / "linear_profile.json.gz"])


def test_operators_and_dependencies_of_a_transformer(transformer):
    """475 operators, 501 edges from last writers, a longest chain of 61: counted by a script of a few lines.

    Storages that come from outside are 252: parameters, the optimizer's state, scalars.
    """
    trace = transformer.trace
    assert len(trace.nodes) == transformer.n_operators == 475
    assert edges(trace) == 501
    assert TraceArrays.collect(trace.nodes, control=False).longest([1] * 475) == 61
    assert transformer.external_storages == 252
    names = Counter(node.name for node in trace.nodes)
    assert names["aten::linear"] == 9
    assert names["aten::mm"] == 18  # two gradients of each linear layer
    assert names["aten::addcdiv_"] == 29  # AdamW, once for each parameter
    assert not names.keys() & {"aten::addmm", "aten::as_strided", "aten::empty"}


def test_phases(transformer):
    phases = {}
    for node in transformer.trace.nodes:
        phases.setdefault(node.name, set()).add(node.value("phase"))
    assert phases["aten::linear"] == {"forward"}
    assert phases["aten::mm"] == phases["aten::gelu_backward"] == {"backward"}
    assert phases["aten::addcdiv_"] == {"optimizer"}
    assert phases["aten::mul_"] == {"optimizer"}


def test_what_a_node_says(transformer):
    node = next(node for node in transformer.trace.nodes if node.name == "aten::linear")
    values = node.values()
    assert values["op_schema"] == "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
    assert values["is_cpu_op"] is False
    assert values["within"] == ("ProfilerStep#2", "## forward ##")
    shapes = json.loads(node.inputs.shapes)
    assert shapes[1] == [192, 64]
    # Bytes of input, weight, bias and result, each once, in floats.
    rows = 1
    for size in shapes[0][:-1]:
        rows *= size
    assert values["tensor_size"] == 4 * (rows * 64 + 192 * 64 + 192 + rows * 192)
    views = [node for node in transformer.trace.nodes if node.value("is_view")]
    assert {node.name for node in views} <= {
        f"aten::{name}" for name in ("t", "view", "reshape", "transpose", "permute", "unbind", "detach")
    }
    assert all(node.value("tensor_size") == 0 for node in views)


def test_flops_of_products(transformer):
    """Forward by hand from the model's sizes; the gradients of a product are two products of its size."""
    flops = Counter()
    for node in transformer.trace.nodes:
        flops[node.name] += node.value("num_ops") or 0
    linears = [node for node in transformer.trace.nodes if node.name == "aten::linear"]
    by_hand = 0
    for node in linears:
        entered, weight = json.loads(node.inputs.shapes)[:2]
        rows = entered[0] * entered[1]
        assert entered[-1] == weight[1]
        by_hand += 2 * rows * weight[0] * weight[1]
    assert flops["aten::linear"] == by_hand > 0
    assert flops["aten::mm"] == 2 * flops["aten::linear"]
    attention = next(node for node in transformer.trace.nodes if node.name == "aten::scaled_dot_product_attention")
    batch, heads, rows, width = json.loads(attention.inputs.shapes)[0]
    assert attention.value("num_ops") == 2 * 2 * batch * heads * rows * rows * width
    backward = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    assert 2 * flops[backward] == 5 * flops["aten::scaled_dot_product_attention"]
    assert flops["aten::add"] == flops["aten::layer_norm"] == 0


def test_times_of_the_same_run_and_of_another():
    host = DATA / "transformer_host.json.gz"
    same = import_pytorch(host, [DATA / "transformer_profile.json.gz"])
    alone = import_pytorch(host, [DATA / "transformer_profile_alone.json.gz"])
    both = import_pytorch(host, [DATA / "transformer_profile.json.gz", DATA / "transformer_profile_alone.json.gz"])
    for one in (same, alone, both):
        assert one.n_timed == 475
        assert edges(one.trace) == 501
    # Under the observer 16.6 ms pass in operators.
    total = {
        name: sum(meaning_of(node).duration_ns for node in one.trace.nodes)
        for name, one in (("same", same), ("alone", alone), ("both", both))
    }
    assert total["same"] == pytest.approx(16.6e6, rel=0.005)
    # Times without the observer are believed, though the nesting comes from the run with it.
    assert total["both"] == total["alone"] < total["same"]
    assert same.trace.nodes[0].value("start_ns") == 0
    assert all(meaning_of(node).start_ns >= 0 for node in same.trace.nodes)


def test_communications_of_two_ranks():
    """98 operators on each rank; twelve communicate, and their times are those of gloo's own threads."""
    kinds = []
    for rank in (0, 1):
        host, profile = DATA / f"ddp_host.{rank}.json.gz", DATA / f"ddp_profile.{rank}.json.gz"
        for profiles in ([], [profile]):
            imported = import_pytorch(host, profiles)
            assert imported.n_operators == len(imported.trace.nodes) == 98
            assert imported.n_communications == 12
            assert edges(imported.trace) == 103
        found = [meaning_of(node) for node in imported.trace.nodes]
        sizes = Counter((one.collective, one.size_bytes) for one in found if one.collective is not None)
        # Two buckets of the gradients of 98,880 floats, one of 16 floats, one of 4.
        for size in (4 * 82_240, 4 * 16_640, 4 * 16, 4 * 4):
            assert sizes[CollectiveType.ALL_REDUCE, size] == 1
        assert sizes[CollectiveType.ALL_GATHER, 64] == 2  # what one rank gives
        assert sizes[CollectiveType.REDUCE_SCATTER, 64] == 1  # the whole
        assert sizes[CollectiveType.ALL_TO_ALL, 32] == 1
        assert sizes[CollectiveType.BARRIER, 0] == 1
        assert sum(sizes.values()) == 11
        kinds.append([node for node in imported.trace.nodes if node.kind in (NodeKind.SEND, NodeKind.RECEIVE)])
        bucket = next(
            node
            for node in imported.trace.nodes
            if meaning_of(node).size_bytes == 4 * 16_640 and node.kind is NodeKind.COLLECTIVE
        )
        assert meaning_of(bucket).duration_ns > 100_000  # the call itself returns within microseconds
        assert json.loads(imported.trace.metadata.value("process_groups")) == {"0": [0, 1], "1": [0, 1]}
        assert imported.trace.metadata.value("rank") == rank
    (send,), (receive,) = kinds
    assert (send.kind, send.value("comm_dst"), send.value("comm_tag")) == (NodeKind.SEND, 1, 7)
    assert (receive.kind, receive.value("comm_src"), receive.value("comm_tag")) == (NodeKind.RECEIVE, 0, 7)
    assert send.value("comm_size") == receive.value("comm_size") == 64


def test_gradients_pass_through_buckets():
    """Gradient → bucket → all-reduce → gradient → optimizer, though buckets are views at offsets of one storage."""
    trace = import_pytorch(DATA / "ddp_host.0.json.gz").trace
    nodes = {node.id: node for node in trace.nodes}
    first = next(node for node in trace.nodes if node.value("comm_size") == 4 * 82_240)
    into = [nodes[parent] for parent in first.data_parents]
    # The bucket has two layers' weights and biases, each written by its own scaled copy.
    assert [node.name for node in into] == ["aten::mul"] * 4
    readers = [node for node in trace.nodes if first.id in node.data_parents]
    copies = [node for node in readers if node.name == "aten::copy_"]
    assert len(copies) == 4
    for copy in copies:
        steps = [node for node in trace.nodes if copy.id in node.data_parents and node.value("phase") == "optimizer"]
        assert [node.name for node in steps] == ["aten::add_"]


def test_collectives_of_a_group_keep_their_order():
    trace = import_pytorch(DATA / "ddp_host.0.json.gz").trace
    collectives = [node.id for node in trace.nodes if node.kind is NodeKind.COLLECTIVE]
    nodes = {node.id: node for node in trace.nodes}
    for before, after in pairwise(collectives):
        assert before in {*nodes[after].control_parents, *nodes[after].data_parents}


def test_notes_of_the_communication_library():
    imported = import_pytorch(DATA / "resnet50_nccl_host.json.gz")
    found = [node for node in imported.trace.nodes if node.kind is NodeKind.COLLECTIVE]
    assert [meaning_of(node).size_bytes for node in found] == [4 * 53_120, 8 * 53]
    for node in found:
        values = node.values()
        assert values["comm_type"] == CollectiveType.BROADCAST
        assert (values["pg_name"], values["pg_size"], values["comm_root"]) == ("0", 2, 0)
        assert (values["pg_first_rank"], values["pg_rank_stride"]) == (0, 1)
    assert [node.value("comm_dtype") for node in found] == ["float", "long"]


def test_kernels_on_their_stream(linear):
    """Every kernel of a step hangs on the operator that launched it and on the kernel before."""
    trace = linear.trace
    assert (linear.n_operators, linear.n_steps) == (320, 3)
    launchers = [node for node in trace.nodes if meaning_of(node).role is Role.HOST]
    kernels = [node for node in trace.nodes if node.value("stream") is not None]
    assert len(launchers) == 320
    assert len(kernels) == linear.n_kernels == len(trace.nodes) - 320
    nodes = {node.id: node for node in trace.nodes}
    by_start = sorted(kernels, key=lambda node: node.value("start_ns"))
    for before, after in pairwise(by_start):
        assert before.id in {*after.control_parents, *after.data_parents}
        assert after.value("start_ns") >= before.value("start_ns")
    products = [node for node in kernels if "sgemm" in node.name]
    launched_by = Counter(nodes[min(node.data_parents)].name if node.data_parents else "" for node in products)
    parents = [{nodes[parent].name for parent in node.data_parents if nodes[parent] in launchers} for node in products]
    assert all(names and names <= {"aten::linear", "aten::mm", "aten::addmm"} for names in parents), launched_by
    assert statistics_of(trace.nodes).critical_path_ns >= sum(node.value("duration_ns") for node in kernels)


def test_kernels_take_the_median_of_the_steps(linear):
    """Of kernels that run once in each of the profile's steps, of which three are whole."""
    document = json.loads(gzip.decompress((DATA / "linear_profile.json.gz").read_bytes()))
    kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
    names = Counter(event["name"] for event in kernels)
    once = {name for name, count in names.items() if count == 4}
    assert once
    for node in linear.trace.nodes:
        if node.name in once:
            lasts = [event["dur"] for event in sorted(kernels, key=lambda one: one["ts"]) if event["name"] == node.name]
            assert node.value("duration_ns") / 1000 in {median(lasts[:3]), median(lasts[1:])}


def test_what_is_imported_is_a_sound_trace(tmp_path, transformer, linear):
    for number, imported in enumerate((transformer, linear)):
        path = tmp_path / f"{number}.et.gz"
        save_trace(imported.trace, path)
        again = load_trace(path)
        assert again.metadata == imported.trace.metadata
        assert [node.message for node in again.nodes] == [node.message for node in imported.trace.nodes]
        assert audit_file(path).n_forward == 0
        assert [node.id for node in again.nodes] == list(range(len(again.nodes)))


def test_the_same_files_give_the_same_bytes(tmp_path):
    for name in ("a.et", "b.et"):
        imported = import_pytorch(DATA / "linear_host.json.gz", [DATA / "linear_profile.json.gz"])
        save_trace(imported.trace, tmp_path / name)
    assert (tmp_path / "a.et").read_bytes() == (tmp_path / "b.et").read_bytes()


@pytest.mark.parametrize(
    "schema", ["1.0.1", "1.0.2-chakra.0.0.4", "1.0.3-chakra.0.0.4", "1.1.0-chakra.0.0.4", "1.1.1-chakra.1.0.0"]
)
def test_schemas(tmp_path, schema):
    path = rewritten(tmp_path, "transformer_host.json.gz", lambda document: document.update(schema=schema))
    assert import_pytorch(path).n_operators == 475


def test_a_profile_of_another_run_is_refused():
    host, other = DATA / "transformer_host.json.gz", DATA / "ddp_profile.0.json.gz"
    with pytest.raises(ConfigError, match="belongs to another run than") as error:
        import_pytorch(host, [other])
    text = str(error.value)
    assert text.startswith(str(other))
    assert "of 1,777 calls have a partner with their number and name" in text or "calls have a partner" in text
    assert "process 17364 there, 17642 here" in text
    # The other rank ran the same script, but its threads met gloo's at other times.
    with pytest.raises(ConfigError, match="process 17642 there, 17644 here"):
        import_pytorch(DATA / "ddp_host.0.json.gz", [DATA / "ddp_profile.1.json.gz"])


def test_a_profile_of_other_sizes_is_refused(tmp_path):
    def halve(document):
        for event in document["traceEvents"]:
            for dims in event["args"].get("Input Dims", []):
                if dims and isinstance(dims[0], int):
                    dims[0] //= 2

    path = rewritten(tmp_path, "transformer_profile.json.gz", halve)
    with pytest.raises(ConfigError, match=r"operands have other sizes: aten::\w+ of node \d+ has \["):
        import_pytorch(DATA / "transformer_host.json.gz", [path])


def drop(name):
    def change(document):
        for node in document["nodes"]:
            node["inputs"].pop(name)

    return change


def twice(document):
    document["nodes"].append(document["nodes"][7])


def circle(document):
    nodes = {node["id"]: node for node in document["nodes"]}
    nodes[9]["ctrl_deps"] = 10
    nodes[10]["ctrl_deps"] = 9


def shapeless(document):
    node = next(node for node in document["nodes"] if node["name"] == "aten::linear")
    node["inputs"]["shapes"] = []


def unshaped(document):
    node = next(node for node in document["nodes"] if node["name"] == "aten::linear")
    node["inputs"]["shapes"][0] = None


def huge(document):
    for node in document["nodes"]:
        for shape in node["inputs"]["shapes"]:
            if isinstance(shape, list) and shape and isinstance(shape[0], int):
                shape[:] = [2**60] * len(shape)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.update(schema="2.0.0"), "schema '2.0.0': understood are 1.0.1 to 1.1.x"),
        (lambda document: document.pop("schema"), "no 'schema'"),
        (lambda document: document.update(nodes=[]), "no nodes: the observer was never started"),
        (lambda document: document.update(nodes=document["nodes"][:1]), "no operators"),
        (drop("shapes"), r"node \d+ \('.*'\): it has no 'shapes'"),
        (shapeless, r"node 50 \('aten::linear'\): 3 inputs, and 0 shapes and 3 types of them: shapes are missing"),
        (unshaped, r"node 50 \('aten::linear'\): input 0 is a tensor without a shape \(found None\)"),
        (twice, r"node id \d+ stands twice, first at byte"),
        (circle, "node (9|10) is its own caller, over others"),
        (lambda document: document["nodes"][5].update(id="x"), "id is a whole number, found 'x'"),
        (lambda document: document["nodes"].append(5), "node 5: a node is an object"),
        (lambda document: document.update(pid=2**70), r"byte \d+: pid is 1180591620717411303424, which is no 64-bit"),
        (huge, "numbers that no trace can hold: 'aten::"),
    ],
)
def test_damaged_execution_traces(tmp_path, change, message):
    path = rewritten(tmp_path, "transformer_host.json.gz", change)
    with pytest.raises(ConfigError, match=message) as error:
        import_pytorch(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.pop("traceEvents"), "no 'traceEvents'"),
        (lambda document: document["traceEvents"][0].pop("ts"), r"event 0 \('.*'\): it has no 'ts'"),
        (lambda document: document["traceEvents"][3].update(dur=-1), "event 3 .* lasts -1 microseconds"),
        (lambda document: document.update(traceEvents=[]), "belongs to another run"),
    ],
)
def test_damaged_profiles(tmp_path, change, message):
    path = rewritten(tmp_path, "transformer_profile.json.gz", change)
    with pytest.raises(ConfigError, match=message):
        import_pytorch(DATA / "transformer_host.json.gz", [path])


@pytest.mark.parametrize("value", [2**70, -1, True, "x"])
def test_ranks_that_are_none_are_not_taken(tmp_path, value):
    def other_ranks(document):
        document["distributedInfo"] |= {"rank": value, "world_size": value}
        document["distributedInfo"]["pg_config"][0]["ranks"] = [value, 1]

    path = rewritten(tmp_path, "ddp_profile.0.json.gz", other_ranks)
    metadata = import_pytorch(DATA / "ddp_host.0.json.gz", [path]).trace.metadata
    assert (metadata.value("rank"), metadata.value("world_size")) == (None, None)
    assert json.loads(str(metadata.value("process_groups")))["0"] == [1]


def test_callers_outside_the_window(tmp_path):
    """A window that begins in the middle of a call has its callees, and they are operators all the same."""

    def begin_later(document):
        document["nodes"] = [node for node in document["nodes"] if node["id"] >= 9]

    path = rewritten(tmp_path, "transformer_host.json.gz", begin_later)
    assert import_pytorch(path).n_operators == 474


WRONG = st.sampled_from([None, -1, 2**70, 1.5, "x", [], {}, [[[]]], [1, 2, 3, 4, 5, "cpu"], True])


def places(document):
    """Give all places of a document: container and key."""
    found, rest = [], [document]
    while rest:
        here = rest.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], dict | list):
                rest.append(here[key])
    return found


@settings(max_examples=60)
@given(st.data())
def test_wrong_values_are_never_a_traceback(tmp_path_factory, data):
    """Anything anywhere in either trace is imported, or refused with the file's name."""
    folder = tmp_path_factory.mktemp("fuzz")
    paths = []
    for name in ("ddp_host.0.json.gz", "ddp_profile.0.json.gz"):
        document = json.loads(gzip.decompress((DATA / name).read_bytes()))
        every = places(document)
        for _ in range(data.draw(st.integers(0, 2))):
            container, key = every[data.draw(st.integers(0, len(every) - 1))]
            container[key] = data.draw(WRONG)
        paths.append(folder / name.removesuffix(".gz"))
        paths[-1].write_text(json.dumps(document))
    refusals = []
    try:
        import_pytorch(paths[0], paths[1:])
    except ConfigError as error:
        refusals = error.problems
    assert all(problem.place in map(str, paths) for problem in refusals)
