"""A traced GPT is what its dimensions say: FLOPs, parameters, layers, and which loops index what."""

from math import prod

import pytest
from traced_gpt import HEADS, VOCABULARY, WIDTH, built_in_gpt, gpt_step_with, gpt_trace, lifted_gpt

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.operators import Phase
from archplace.workloads.traced.lift import lift
from archplace.workloads.traced.tensor_graph import (
    Access,
    LoopKind,
    Symbol,
    TensorLayer,
    TensorOp,
    TensorOpKind,
    TensorRole,
)
from archplace.workloads.traces.host_trace import HostTrace

SHAPES = [
    {"layers": 2},
    {"layers": 4},
    {"layers": 2, "attention": "plain"},
    {"layers": 2, "tied": True},
    {"layers": 2, "batch": 3, "sequence": 7},
]


def parameters(layers: tuple[tuple[TensorLayer, int], ...]) -> int:
    """All parameters, a table that two layers share once."""
    shared = {layer.tensors[t].elements for layer, _ in layers for t in layer.shared_parameters}
    return sum(layer.parameters * count for layer, count in layers) - sum(shared)


def products(layer: TensorLayer) -> list[TensorOp]:
    return [op for op in layer.operators if op.kind is TensorOpKind.PRODUCT]


@pytest.mark.parametrize("given", SHAPES)
def test_flops_are_the_closed_form(given: dict) -> None:
    model = lifted_gpt(**given).model
    own = {name: given[name] for name in ("layers", "tied") if name in given}
    closed = built_in_gpt(**own).flops_per_token(model.sequence_length)
    assert model.model_flops == closed * model.sequence_length * model.batch


@pytest.mark.parametrize("given", SHAPES)
def test_parameters_are_the_closed_form(given: dict) -> None:
    own = {name: given[name] for name in ("layers", "tied") if name in given}
    assert parameters(lifted_gpt(**given).model.layers) == built_in_gpt(**own).parameters


@pytest.mark.parametrize("given", SHAPES)
def test_equal_blocks_are_one_layer_many_times(given: dict) -> None:
    layers = lifted_gpt(**given).model.layers
    assert [(layer.name, count) for layer, count in layers] == [("first", 1), ("block", given["layers"]), ("last", 1)]
    built_in = built_in_gpt(given["layers"])
    assert layers[1][0].parameters == built_in.block_parameters(built_in.blocks[0])


def test_sizes_of_the_step_are_read_from_the_tokens() -> None:
    model = lifted_gpt(2, batch=3, sequence=7).model
    assert (model.batch, model.sequence_length) == (3, 7)


def test_all_is_known() -> None:
    found = lifted_gpt(2)
    assert found.coverage.share == 1
    assert found.coverage.n_known == found.coverage.n_operators
    assert not found.coverage.unknown
    assert found.optimizer == "AdamW"
    assert not found.notes


@pytest.mark.parametrize("attention", ["fused", "plain"])
def test_heads_are_loops_of_the_products_around_attention(attention: str) -> None:
    """The columns of the fused projection are (3, heads, elements), and those of the rows behind it are heads."""
    block = lifted_gpt(2, attention=attention).model.layers[1][0]
    first, *_ = products(block)
    (last,) = [
        op
        for op in products(block)
        if op.phase is Phase.FORWARD and block.tensors[op.reads[1].tensor].elements == WIDTH * WIDTH
    ]
    weight = block.tensors[first.reads[1].tensor]
    assert [atom.size for atom in weight.dims[0]] == [3, HEADS, WIDTH // HEADS]
    inner = block.tensors[last.reads[1].tensor]
    assert [atom.size for atom in inner.dims[1]] == [HEADS, WIDTH // HEADS]
    assert all(last.loops[loop].kind is LoopKind.SUMMED for loop in last.reads[1].loops[1])


def width_of(layer: TensorLayer, access: Access) -> int:
    return prod(atom.size for atom in layer.tensors[access.tensor].dims[-1])


def test_rows_follow_batch_and_sequence() -> None:
    for layer, _ in lifted_gpt(2).model.layers:
        for op in products(layer):
            if op.phase is Phase.FORWARD:
                rows = layer.tensors[op.writes[0].tensor].dims[0]
                assert [atom.symbol for atom in rows] == [Symbol.BATCH, Symbol.SEQUENCE]
        for tensor in layer.tensors:
            if tensor.role is TensorRole.PARAMETER:
                symbols = {atom.symbol for dim in tensor.dims for atom in dim}
                assert symbols == {Symbol.FIXED}


def test_every_parameter_has_its_gradient() -> None:
    for layer, _ in lifted_gpt(2).model.layers:
        parameters = {i for i, tensor in enumerate(layer.tensors) if tensor.role is TensorRole.PARAMETER}
        gradients = [tensor for tensor in layer.tensors if tensor.role is TensorRole.GRADIENT]
        assert {tensor.gradient_of for tensor in gradients} == parameters
        for tensor in gradients:
            assert tensor.elements == layer.tensors[tensor.gradient_of].elements


def test_every_block_hands_rows_on_and_their_gradient_back() -> None:
    rows = 2 * 12 * WIDTH
    layers = [layer for layer, _ in lifted_gpt(2).model.layers]
    for layer, inward, outward in zip(layers, (0, 1, 1), (1, 1, 0), strict=True):
        assert [layer.tensors[t].elements for t in layer.enters] == [rows] * inward
        assert [layer.tensors[t].elements for t in layer.leaves] == [rows] * outward
        assert [layer.tensors[t].elements for t in layer.gradients_enter] == [rows] * outward
        assert [layer.tensors[t].elements for t in layer.gradients_leave] == [rows] * inward


def test_operators_stand_behind_what_they_read() -> None:
    for given in SHAPES:
        for layer, _ in lifted_gpt(**given).model.layers:
            written = {access.tensor for op in layer.operators for access in op.writes}
            known = {*layer.enters, *layer.gradients_enter}
            for op in layer.operators:
                for access in op.reads:
                    assert access.tensor in known or access.tensor not in written, (layer.name, op.name)
                known.update(access.tensor for access in op.writes)


def test_indices_fit_what_they_index() -> None:
    """A loop runs along atoms of its own size, and every loop indexes something."""
    for given in SHAPES:
        for layer, _ in lifted_gpt(**given).model.layers:
            for op in layer.operators:
                used = set()
                for access in (*op.reads, *op.writes):
                    dims = layer.tensors[access.tensor].dims
                    for dim, loops in zip(dims, access.loops, strict=True):
                        for atom, loop in zip(dim, loops, strict=True):
                            if loop is not None:
                                used.add(loop)
                                assert op.loops[loop].size == atom.size
                                assert op.loops[loop].symbol is atom.symbol
                assert used == set(range(len(op.loops))), op.name


def test_losses_gradient_is_no_constant_and_weights_wait_for_nobody() -> None:
    last = lifted_gpt(2).model.layers[-1][0]
    (logits,) = [op for op in products(last) if op.phase is Phase.FORWARD]
    assert width_of(last, logits.writes[0]) == VOCABULARY
    assert [op.phase for op in products(last)] == [Phase.FORWARD, Phase.WEIGHT_GRADIENT, Phase.DATA_GRADIENT]


def test_a_trace_of_the_optimizer_alone_is_refused() -> None:
    host = gpt_trace(2)
    begin = next(place for place, node in enumerate(host.nodes) if node.name.startswith("Optimizer.step"))
    alone = HostTrace(path=host.path, schema=host.schema, pid=host.pid, nodes=host.nodes[begin:])
    with pytest.raises(ConfigError, match="no forward pass"):
        lift(alone)


def test_a_size_that_nothing_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch is 5.*\[2, 12\]"):
        lift(gpt_trace(2), batch=5)


def test_lifting_twice_gives_the_same() -> None:
    assert lift(gpt_trace(2)) == lift(gpt_trace(2))


@pytest.mark.parametrize("kind", ["autocast", "clipping", "dropout"])
def test_what_training_scripts_add_changes_neither_layers_nor_products(kind: str) -> None:
    """Casts of weights, norms of gradients and masks are work, and no other model."""
    found = lift(gpt_step_with(kind))
    closed = built_in_gpt(3)
    assert [count for _, count in found.model.layers] == [1, 3, 1]
    assert found.model.model_flops == closed.flops_per_token(12) * 12 * 2
    assert parameters(found.model.layers) == closed.parameters
    assert not found.coverage.unknown


def test_checkpoints_of_activations_are_refused() -> None:
    with pytest.raises(ConfigError, match="operators of the forward pass again: turn activation checkpointing off"):
        lift(gpt_step_with("checkpoints"))
