"""Models of several families, and traces of others, lift to what they are."""

from dataclasses import replace
from pathlib import Path

import pytest
from traced_models import LENGTH, VOCABULARY, image_step, token_step

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.model import Activation, Model, ModelKind, Norm, Positions
from archplace.workloads.operators import Phase
from archplace.workloads.traced.attention_sizes import fused_attention
from archplace.workloads.traced.calls import Pass
from archplace.workloads.traced.lift import lift
from archplace.workloads.traced.scaling import lift_pair, scale
from archplace.workloads.traced.tensor_graph import LoopKind, Symbol, TensorOpKind, TensorRole, TracedModel
from archplace.workloads.traces.host_trace import load_host_trace
from archplace.workloads.traces.kineto import load_kineto_trace
from archplace.workloads.traces.matching import match

DATA = Path(__file__).resolve().parents[1] / "traces" / "data"


def counts(model: TracedModel) -> list[int]:
    return [count for _, count in model.layers]


def parameters(model: TracedModel) -> int:
    return sum(layer.parameters * count for layer, count in model.layers)


def test_llama_is_its_closed_form() -> None:
    model = lift(token_step("llama")).model
    built_in = Model(
        name="llama",
        kind=ModelKind.DECODER,
        n_layers=3,
        d_model=32,
        n_heads=4,
        n_kv_heads=2,
        head_dim=8,
        d_ff=48,
        gated_mlp=True,
        activation=Activation.SILU,
        norm=Norm.RMS_NORM,
        positions=Positions.ROPE,
        max_positions=LENGTH,
        vocabulary=VOCABULARY,
        padded_vocabulary=VOCABULARY,
        embedding_width=32,
        tied_head=False,
        bias=False,
        qkv_bias=False,
    )
    assert counts(model) == [1, 3, 1]
    assert parameters(model) == built_in.parameters
    assert model.model_flops == built_in.flops_per_token(LENGTH) * LENGTH * model.batch


def test_where_numbers_stand_in_memory_is_no_matter() -> None:
    """Of the epsilons of the norms the first four share memory that was given out again, the others do not."""
    host = token_step("llama")
    nodes, count = [], 0
    for node in host.nodes:
        if node.name == "aten::add" and len(node.inputs[1].tensors) == 1 and not node.inputs[1].tensors[0].shape:
            count += 1
            storage = -1 if count < 5 else -count
            moved = node.inputs[1].tensors[0]._replace(storage=storage, begin=0, end=8)
            second = node.inputs[1]._replace(tensors=(moved,))
            node = replace(node, inputs=(node.inputs[0], second, *node.inputs[2:]))
        nodes.append(node)
    assert count > 6
    assert lift(replace(host, nodes=tuple(nodes))).model.layers == lift(host).model.layers


def test_attention_knows_heads_rows_and_keys() -> None:
    block = lift(token_step("llama")).model.layers[1][0]
    fused = [fused_attention(op) for op in block.operators if op.kind is TensorOpKind.ATTENTION]
    assert [(one.batch, one.rows, one.keys, one.head_dim, one.value_dim) for one in fused] == [(8, 12, 12, 8, 8)] * 2
    assert [one.gradients for one in fused] == [False, True]


def test_heads_can_be_cut_through_rotations() -> None:
    """Whatever queries and keys go through, their heads stay loops up to attention, and are those of the weights."""
    block = lift(token_step("llama")).model.layers[1][0]
    (attention,) = [op for op in block.operators if op.kind is TensorOpKind.ATTENTION and op.phase is Phase.FORWARD]
    weights = [t for t in block.tensors if t.role is TensorRole.PARAMETER and len(t.dims) == 2]
    assert [[atom.size for atom in weight.dims[0]] for weight in weights[:3]] == [[2, 2, 2, 4], [2, 2, 4], [2, 8]]
    assert all(None not in dim for dim in attention.reads[0].loops)


def test_norms_after_the_sum_keep_blocks_equal() -> None:
    """The gradients of what a post-norm block reads twice are added up while the last reader's gradient runs."""
    model = lift(token_step("encoder")).model
    assert counts(model) == [1, 4, 1]
    assert all(len(layer.gradients_enter) == len(layer.leaves) for layer, _ in model.layers)


def test_experts_are_known_by_weights_of_their_own() -> None:
    model = lift(token_step("experts")).model
    assert counts(model) == [1, 3, 1]
    block = model.layers[1][0]
    up = next(t for t in block.tensors if t.role is TensorRole.PARAMETER and len(t.dims) == 3)
    assert [[(atom.size, atom.symbol) for atom in dim] for dim in up.dims] == [
        [(4, Symbol.EXPERT)],
        [(16, Symbol.FIXED)],
        [(24, Symbol.FIXED)],
    ]
    gathered = next(op for op in block.operators if op.kind is TensorOpKind.LOOKUP)
    assert [loop.kind for loop in gathered.loops].count(LoopKind.SUMMED) == 2  # the tokens: batch and sequence


def test_a_second_trace_shows_that_capacity_follows_the_batch() -> None:
    one, other = token_step("experts"), token_step("experts", batch=4)
    assert scale(lift(one).model, batch=4) != lift(other).model
    found = lift_pair(one, other)
    assert any("only the second trace shows" in note for note in found.notes)
    scaled, traced = scale(found.model, batch=4), lift(other).model
    assert scaled.model_flops == traced.model_flops
    for (left, _), (right, _) in zip(scaled.layers, traced.layers, strict=True):
        assert [tensor.bytes for tensor in left.tensors] == [tensor.bytes for tensor in right.tensors]


def test_convolutions_are_products_with_taps() -> None:
    found = lift(image_step(3))
    assert counts(found.model) == [1, 3, 1]
    assert found.coverage.share == 1
    images = 4
    first = images * 16 * 16 * 8 * 3 * 9
    block = images * 8 * 8 * 8 * (8 + 4) * 9  # the second has two groups of four channels
    # Images need no gradient, so that the first has two products instead of three.
    assert found.model.model_flops == 2 * (2 * first + 3 * 3 * block + 3 * images * 8 * 10)
    assert parameters(found.model) == 8 * 27 + 16 + 3 * (8 * 72 + 8 + 16 + 8 * 36 + 8) + 90
    assert (found.model.batch, found.model.sequence_length) == (4, None)
    assert any("no dimension is known to be the sequence" in note for note in found.notes)


def test_scaled_images_equal_a_trace_of_that_many() -> None:
    assert scale(lift(image_step(3)).model, batch=8) == lift(image_step(3, batch=8)).model


def test_what_no_rule_is_for_is_named_and_stays_whole() -> None:
    found = lift(token_step("fourier"))
    assert {name for name, _ in found.coverage.unknown} >= {"_fft_r2c", "_fft_c2r"}
    assert 0 < found.coverage.share < 1
    unknown = [op for layer, _ in found.model.layers for op in layer.operators if "_fft" in op.name]
    assert unknown
    assert all(op.kind is TensorOpKind.MOVE for op in unknown)
    assert all(loop.kind is LoopKind.WHOLE for op in unknown for loop in op.loops)
    assert found.model.batch == 2


def test_of_several_microbatches_the_first_is_the_model() -> None:
    once, twice = lift(token_step("encoder")), lift(token_step("encoder", microbatches=2))
    assert counts(twice.model) == counts(once.model)
    assert twice.model.model_flops == once.model.model_flops
    assert twice.coverage.n_calls[Pass.BETWEEN] > once.coverage.n_calls[Pass.FORWARD]


def test_a_stack_of_linear_layers() -> None:
    """``linear_host`` runs 21 linear layers of 1024 by 1024 on 512 samples, each but the last behind a ReLU."""
    found = lift(DATA / "linear_host.json.gz")
    assert sum(counts(found.model)) >= 21
    # The samples need no gradient.
    assert found.model.model_flops == 2 * 512 * 1024 * 1024 * (3 * 21 - 1)
    assert found.optimizer == "SGD"


def test_data_parallel_buckets_are_no_work_of_the_model() -> None:
    found = lift(DATA / "ddp_host.0.json.gz")
    assert not found.coverage.unknown
    assert found.coverage.n_calls[Pass.ACCUMULATION] > 0
    names = {op.name.partition(".")[0] for layer, _ in found.model.layers for op in layer.operators}
    assert "copy" not in names
    gradients = [t for layer, _ in found.model.layers for t in layer.tensors if t.role is TensorRole.GRADIENT]
    assert len(gradients) == 6
    assert all(tensor.gradient_of is not None for tensor in gradients)


def test_callers_of_a_profile_of_the_same_run_change_nothing_where_the_trace_is_right() -> None:
    host = load_host_trace(DATA / "transformer_host.json.gz")
    found = match(host, load_kineto_trace(DATA / "transformer_profile.json.gz"))
    assert lift(host, callers=found.callers) == lift(host)
    assert counts(lift(host).model) == [1, 2, 1]


def test_a_trace_without_a_backward_pass_has_its_forward_pass() -> None:
    host = token_step("llama")
    begin = next(at for at, node in enumerate(host.nodes) if node.name.startswith("autograd::engine"))
    forward = type(host)(path=host.path, schema=host.schema, pid=host.pid, nodes=host.nodes[:begin])
    found = lift(forward)
    assert counts(found.model) == [1, 3, 1]
    assert any("no backward pass" in note for note in found.notes)
    assert 3 * found.model.model_flops == lift(host).model.model_flops


def test_a_window_that_begins_in_a_backward_pass_is_refused_without_another_step() -> None:
    host = token_step("llama")
    begin = next(at for at, node in enumerate(host.nodes) if node.name.startswith("autograd::engine"))
    rest = type(host)(path=host.path, schema=host.schema, pid=host.pid, nodes=host.nodes[begin:])
    with pytest.raises(ConfigError, match="no forward pass"):
        lift(rest)
