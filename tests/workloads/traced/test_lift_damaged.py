"""Traces that contradict themselves lift to something or are refused; there is never a traceback."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traced.lift import lift
from archplace.workloads.traced.tensor_graph import LoopKind, TensorOpKind

DATA = Path(__file__).resolve().parents[1] / "traces" / "data"
DOCUMENT = json.loads(gzip.decompress((DATA / "ddp_host.0.json.gz").read_bytes()))
NAMES = (
    *("mm", "bmm", "addmm", "linear", "matmul", "dot", "embedding", "index", "index_put", "gather", "scatter_add"),
    *("cat", "stack", "view", "permute", "transpose", "slice", "select_backward", "unbind", "expand", "sum"),
    *("_softmax", "native_layer_norm", "native_batch_norm", "nll_loss_forward", "topk", "max_pool2d_with_indices"),
    *("convolution", "convolution_backward", "_scaled_dot_product_flash_attention"),
)
SHAPES = st.sampled_from([[], [1], [0], [3, 5], [2, 2, 2], [7] * 5, [64, 64]])


@st.composite
def damages(draw):
    """What to do to a node: its place, what to change, and into what."""
    place = draw(st.integers(0, len(DOCUMENT["nodes"]) - 1))
    what = draw(st.sampled_from(["name", "shape", "number", "value", "caller", "remove"]))
    into = {
        "name": st.sampled_from(NAMES).map("aten::{}".format),
        "shape": SHAPES,
        "number": st.tuples(st.integers(0, 4), st.sampled_from([0, 1, 5, 10**6])),
        "value": st.sampled_from([-1, 0, 5, [2, 0, 1], "<None>", []]),
        "caller": st.integers(1, 400),
        "remove": st.none(),
    }[what]
    return place, what, draw(st.sampled_from(["inputs", "outputs"])), draw(into)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(done=st.lists(damages(), min_size=1, max_size=10))
def test_damaged_traces_are_lifted_or_refused(tmp_path: Path, done: list) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    for place, what, side, into in done:
        node = document["nodes"][place]
        operands = node[side]
        if what == "name":
            node["name"] = into
        elif what == "caller":
            node["ctrl_deps"] = into
        elif what == "shape" and operands["shapes"]:
            operands["shapes"][0] = into
        elif what == "value" and operands["values"]:
            operands["values"][-1] = into
        elif what == "number" and operands["values"] and len(str(operands["values"][0]).split(",")) == 6:
            operands["values"][0][into[0]] = into[1]
    gone = {place for place, what, _, _ in done if what == "remove"}
    document["nodes"] = [node for place, node in enumerate(document["nodes"]) if place not in gone]
    path = tmp_path / "host.json"
    path.write_text(json.dumps(document))
    try:
        found = lift(path)
    except ConfigError:
        return
    assert found.model.layers
    assert 0 <= found.coverage.share <= 1


def test_an_operator_of_other_shapes_than_its_name_has_stays_whole(tmp_path: Path) -> None:
    """A norm over the last two dimensions, whose gain has one, is nothing that a rule knows."""
    document = json.loads(gzip.decompress((DATA / "transformer_host.json.gz").read_bytes()))
    node = next(node for node in document["nodes"] if node["name"] == "aten::native_layer_norm")
    node["inputs"]["values"][1] = [3, 64]
    path = tmp_path / "host.json"
    path.write_text(json.dumps(document))
    found = lift(path)
    assert dict(found.coverage.unknown) == {"native_layer_norm": 1}
    (odd,) = [
        op
        for layer, _ in found.model.layers
        for op in layer.operators
        if op.name.startswith("native_layer_norm") and op.kind is TensorOpKind.MOVE
    ]
    assert all(loop.kind is LoopKind.WHOLE for loop in odd.loops)


def test_nothing_at_all_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}))
    with pytest.raises(ConfigError, match="no nodes"):
        lift(path)
