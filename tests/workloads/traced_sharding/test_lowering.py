"""A block lowered from its tensor graph is the built-in block; operators keep the laws of layers."""

from collections import Counter
from dataclasses import replace

import pytest
from tensor_layers import DATA, FORWARD, WEIGHT, LayerBuilder, gpt_block

from archplace.workloads import CollectiveKind, LayerSharding, Phase, Precision, Unit, load_workload
from archplace.workloads.precision import Format
from archplace.workloads.traced.lowered_work import gemm_of
from archplace.workloads.traced.lowering import lower
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.sharded_layer import ShardedLayer
from archplace.workloads.traced.sharding_program import solve_sharding
from archplace.workloads.traced.states import Cutting
from archplace.workloads.traced.tensor_graph import Symbol, TensorOpKind
from archplace.workloads.traced.views import without_views

WIDTHS = [(1, False), (2, False), (4, False), (8, False), (2, True), (8, True)]


@pytest.fixture(scope="module")
def gpt3():
    workload = load_workload("gpt3-175b")
    model = replace(workload.model, dropout=0.0, attention_dropout=0.0, embedding_dropout=0.0)
    return replace(workload, model=model, precision=Precision.BF16)


def lowered(block, tensor, *, sequence=False):
    sharded = ShardedLayer.whole(without_views(block))
    if tensor > 1:
        cutting = Cutting.tensor(tensor, sequence=sequence)
        sharded = sharded.shared(solve_sharding(sharded.layer, cutting, Rates()), cutting)
    return lower(sharded, precision=Format.BF16)


def collectives(operators):
    return Counter((op.collective.kind, op.collective.payload_bytes) for op in operators if op.collective is not None)


def moved(operators):
    return sum(op.vector.read_bytes + op.vector.write_bytes for op in operators if op.vector is not None)


@pytest.mark.parametrize(("tensor", "sequence"), WIDTHS)
def test_a_gpt_block_is_the_built_in_one(gpt3, tensor, sequence):
    model, length = gpt3.model, gpt3.sequence_length
    block = gpt_block(d_model=model.d_model, heads=model.n_heads, sequence=length)
    found = lowered(block, tensor, sequence=sequence)
    built = gpt3.step(LayerSharding(microbatch=1, tensor=tensor, sequence=sequence)).layers[1][0]
    for mine, theirs in ((found.forward, built.forward), (found.backward, built.backward)):
        assert sum(op.macs for op in mine) == sum(op.macs for op in theirs)
        assert collectives(mine) == collectives(theirs)
    assert found.parameters == built.parameters
    assert (found.input_bytes, found.output_bytes) == (built.input_bytes, built.output_bytes)
    # norms keep two fp32 statistics of each row, of which the built-in block does not speak
    statistics = 2 * 2 * 4 * length // (tensor if sequence else 1)
    assert found.stash_bytes == built.stash_bytes + statistics
    # the probabilities of attention are dropped, and scores and softmax run again; context is not needed again
    assert found.selective_stash_bytes == built.selective_stash_bytes + statistics
    assert found.selective_replay == ("scores", "softmax")
    # a norm writes them, and its gradient reads them
    assert moved(found.forward) == pytest.approx(moved(built.forward), rel=1e-3)
    # PyTorch adds biases' gradients up and joins queries', keys' and values' in operators of their own
    assert moved(built.backward) < moved(found.backward) < 1.25 * moved(built.backward)


@pytest.mark.parametrize(("tensor", "sequence"), WIDTHS)
def test_operators_keep_the_laws_of_layers(tensor, sequence):
    layer = lowered(gpt_block(d_model=1024, heads=16, sequence=256), tensor, sequence=sequence)
    for graph in (layer.forward, layer.backward):
        seen = {}
        for op in graph:
            assert op.name not in seen
            assert set(op.inputs) <= seen.keys()
            if op.phase is Phase.DATA_GRADIENT:
                assert all(seen[name] is Phase.DATA_GRADIENT for name in op.inputs)
            seen[op.name] = op.phase
    assert {op.phase for op in layer.forward} == {Phase.FORWARD}
    assert layer.stash_bytes == sum(op.stash_bytes for op in layer.forward)
    assert layer.parameters == sum(op.parameters for op in layer.forward)


def test_an_activation_is_its_products_epilogue():
    layer = lowered(gpt_block(d_model=64, heads=4, sequence=32), 1)
    operators = {op.name: op for op in (*layer.forward, *layer.backward)}
    fused = operators["ffn_in"]
    assert fused.unit is Unit.FUSED
    assert "gelu" not in operators
    # the product's result is kept for the gradient and written beside the activation's
    assert (fused.vector.read_bytes, fused.vector.write_bytes) == (0, 2 * 32 * 256 * 2)
    assert operators["ffn_out"].inputs == ("ffn_in",)
    assert operators["residual1"].unit is Unit.VECTOR  # reads more than the product's result


def test_products_by_their_loops():
    g = LayerBuilder({"b": 3, "s": 5, "t": 7, "h": 4, "e": 6, "f": 8})
    g.tensor("p", "b h s e")
    g.tensor("q", "b h t e")
    g.tensor("w", "he f")
    g.tensor("bias", "f")
    g.product("scores", FORWARD, {"p": "b h s e", "q": "b h t e"}, {"r": "b h s t"})
    g.product("linear", FORWARD, {"bias": "f", "p": "b h s e", "w": "he f"}, {"y": "bs f"})
    g.product("outer", FORWARD, {"p": "b h s e", "bias": "f"}, {"z": "b h s e f"})
    scores, linear, outer = (gemm_of(op) for op in g.operators)
    assert (scores.batch, scores.m, scores.n, scores.k) == (12, 5, 7, 6)
    assert (linear.batch, linear.m, linear.n, linear.k) == (1, 15, 8, 24)
    assert (outer.batch, outer.m, outer.n, outer.k) == (1, 360, 8, 1)
    assert all(gemm.macs == op.macs for gemm, op in zip((scores, linear, outer), g.operators, strict=True))


def test_a_convolution_multiplies_its_unrolled_windows():
    # 2 images, 3 to 8 channels, windows of 5 × 5, results of 6 × 6
    g = LayerBuilder({"n": 2, "c": 3, "o": 8, "y": 6, "x": 6, "k": 5, "l": 5, "i": 10})
    g.tensor("image", "n c i i")
    g.tensor("filters", "o c k l")
    g.tensor("dimage", "n c i i")
    whole = {"whole": "yxkl"}
    g.product("forward", FORWARD, {"image": "n c _ _", "filters": "o c k l"}, {"y": "n o y x"}, **whole)
    g.product("data", DATA, {"y": "n o y x", "filters": "o c k l"}, {"dimage": "n c _ _"}, **whole)
    g.product("weight", WEIGHT, {"y": "n o y x", "image": "n c _ _"}, {"dfilters": "o c k l"}, **whole)
    forward, data, weight = (gemm_of(op) for op in g.operators)
    assert (forward.m, forward.n, forward.k) == (2 * 36, 8, 3 * 25)
    assert (data.m, data.n, data.k) == (2 * 36, 3 * 25, 8)
    assert (weight.m, weight.n, weight.k) == (8, 3 * 25, 2 * 36)


def test_a_shared_softmax_exchanges_its_statistics():
    g = LayerBuilder({"s": 2048, "v": 32000, "a": 4096}, {"s": Symbol.SEQUENCE})
    g.tensor("x", "s a")
    g.parameter("w", "v a")
    g.product("logits.product", FORWARD, {"x": "s a", "w": "v a"}, {"logits": "s v"})
    g.op("softmax", TensorOpKind.ROWS, FORWARD, {"logits": "s v"}, {"p": "s v"}, whole="v", passes=3, reductions=2)
    g.gradient("dw", "v a", "w")
    g.product("weight", WEIGHT, {"p": "s v", "x": "s a"}, {"dw": "v a"})
    g.product("data", DATA, {"p": "s v", "w": "v a"}, {"dx": "s a"}, linear=True)
    layer = lowered(g.layer(enters=["x"], gradients_leave=["dx"]), 2)
    assert collectives(layer.forward) == {(CollectiveKind.ALL_REDUCE, 2048 * 4): 2}
    assert collectives(layer.backward) == {(CollectiveKind.ALL_REDUCE, 2048 * 4096 * 2): 1}
    assert layer.parameters == 32000 * 4096 // 2


def test_the_gradient_of_a_table_added_to_every_sequence_is_stored_as_the_table():
    g = LayerBuilder({"b": 64, "s": 2048, "a": 4096}, {"b": Symbol.BATCH, "s": Symbol.SEQUENCE})
    g.tensor("x", "b s a")
    g.parameter("positions", "s a")
    g.map("sum", FORWARD, {"x": "b s a", "positions": "s a"}, {"y": "b s a"})
    g.tensor("dy", "b s a")
    g.gradient("dpositions", "1 s a", "positions")
    g.op("add_up", TensorOpKind.REDUCTION, WEIGHT, {"dy": "b s a"}, {"dpositions": "1 s a"}, linear=True)
    layer = lowered(g.layer(enters=["x"], leaves=["y"], gradients_enter=["dy"]), 2, sequence=True)
    assert layer.parameters == 2048 * 4096 // 2
    assert not collectives((*layer.forward, *layer.backward))


def test_what_cannot_be_brought_back_is_kept():
    """Scores that enter from the layer before, and are not kept themselves, cannot be computed again."""
    g = LayerBuilder({"s": 8, "t": 8}, {"s": Symbol.SEQUENCE, "t": Symbol.SEQUENCE})
    g.tensor("scores", "s t")
    g.map("square", FORWARD, {"scores": "s t"}, {"squared": "s t"})
    g.map("again", FORWARD, {"squared": "s t"}, {"result": "s t"})
    g.tensor("dresult", "s t")
    g.map("back", DATA, {"dresult": "s t", "squared": "s t"}, {"dscores": "s t"})
    ends = {"leaves": ["result"], "gradients_enter": ["dresult"], "gradients_leave": ["dscores"]}
    layer = lowered(g.layer(enters=["scores"], **ends), 1)
    assert layer.stash_bytes == 8 * 8 * 2
    assert (layer.selective_stash_bytes, layer.selective_replay) == (None, ())
