"""Sequence parallelism and pieces of exchanges, against Korthikanti et al. 2022 (arXiv:2205.05198) and by hand."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_helpers import layer, models, operator, step_macs, workload_of

from archplace.workloads import (
    Collective,
    CollectiveKind,
    LayerSharding,
    Model,
    Operator,
    Phase,
    TrainingStep,
    load_model,
)


def step_of(model: Model, *, microbatch: int = 2, sequence_length: int = 128, **degrees: int | bool) -> TrainingStep:
    workload = workload_of(model, sequence_length=sequence_length, global_batch=microbatch)
    return workload.step(LayerSharding(microbatch=microbatch, **degrees))


def exchanges(operators: tuple[Operator, ...]) -> list[Collective]:
    return [found.collective for found in operators if found.collective is not None]


def sent_bytes(found: Collective) -> float:
    """What a ring sends from each device (Thakur, Rabenseifner and Gropp 2005, sections 4.1, 4.4 and 4.5)."""
    rounds = 2 if found.kind is CollectiveKind.ALL_REDUCE else 1
    return rounds * found.payload_bytes * (found.group_size - 1) / found.group_size


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-gpt-8.3b"])
@pytest.mark.parametrize("t", [2, 4, 8])
def test_a_block_keeps_what_korthikanti_et_al_count(name: str, t: int) -> None:
    model = load_model(name)
    s, b, h, a = model.max_positions, 2, model.d_model, model.n_heads
    block = layer(step_of(model, microbatch=b, sequence_length=s, tensor=t, sequence=True), "block")
    # equation 4: sbh/t (34 + 5as/h); with selective recomputation, table 2: 34 sbh/t
    assert block.stash_bytes * t == s * b * (34 * h + 5 * a * s)
    assert block.selective_stash_bytes is not None
    assert block.selective_stash_bytes * t == 34 * s * b * h
    assert block.input_bytes * t == block.output_bytes * t == 2 * s * b * h


@pytest.mark.parametrize("t", [1, 8])
def test_selective_recomputation_without_sequence_parallelism(t: int) -> None:
    s, b, h = 2048, 1, 12288
    block = layer(step_of(load_model("gpt3-175b"), microbatch=b, sequence_length=s, tensor=t), "block")
    # table 2: sbh (10 + 24/t)
    assert block.selective_stash_bytes is not None
    assert block.selective_stash_bytes * t == s * b * h * (10 * t + 24)
    assert block.selective_replay == ("scores", "softmax", "context")
    # Both products of attention run again: a third of attention's 12·s·b·s·h FLOPs of a step
    again = sum(operator(block.forward, name).macs for name in block.selective_replay)
    assert again * t == 2 * b * s * s * h


def test_ends_keep_their_share() -> None:
    s, b, h, v, t = 2048, 1, 12288, 51200, 8
    step = step_of(load_model("gpt3-175b"), microbatch=b, sequence_length=s, tensor=t, sequence=True)
    # section 4.3 and equation 5: the embedding's dropout, the final norm's and the projection's input, divided by t too
    assert layer(step, "embedding").stash_bytes * t == s * b * h
    assert layer(step, "head").stash_bytes * t == 4 * s * b * h + 4 * s * b * v


@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-70b", "bert-large"])
def test_a_block_moves_as_much_as_with_all_reduces_and_gathers_kept_inputs_again(name: str) -> None:
    # Section 4.2.2: a reduce-scatter and an all-gather move what an all-reduce does; the column-cut layers' inputs,
    # of which each device keeps a share, are gathered once more in the backward pass.
    model = load_model(name)
    plain, shared = (layer(step_of(model, tensor=4, sequence=sequence), "block") for sequence in (False, True))
    hidden = 2 * 128 * model.d_model * 2
    once = hidden * 3 / 4
    assert sum(map(sent_bytes, exchanges(plain.forward))) == 4 * once
    assert sum(map(sent_bytes, exchanges(shared.forward))) == 4 * once
    assert sum(map(sent_bytes, exchanges(plain.backward))) == 4 * once
    assert sum(map(sent_bytes, exchanges(shared.backward))) == (4 + 2) * once
    kinds = Counter(found.kind for found in exchanges(shared.forward))
    assert kinds == {CollectiveKind.ALL_GATHER: 2, CollectiveKind.REDUCE_SCATTER: 2}
    kinds = Counter(found.kind for found in exchanges(shared.backward))
    assert kinds == {CollectiveKind.ALL_GATHER: 4, CollectiveKind.REDUCE_SCATTER: 2}


def test_only_weight_gradients_wait_for_inputs_gathered_again() -> None:
    backward = layer(step_of(load_model("llama2-7b"), tensor=4, sequence=True), "block").backward
    for name in ("attention_input.saved_all_gather", "mlp_input.saved_all_gather"):
        assert operator(backward, name).phase is Phase.WEIGHT_GRADIENT
        assert operator(backward, name).inputs == ()
        readers = [found for found in backward if name in found.inputs]
        assert readers
        assert all(found.phase is Phase.WEIGHT_GRADIENT for found in readers)


def test_norms_and_sums_see_a_share_of_the_tokens() -> None:
    step = step_of(load_model("gpt3-175b"), tensor=8, sequence=True)
    block = layer(step, "block")
    for name in ("attention_norm", "projection.residual", "mlp_norm", "ffn_out.residual"):
        work = operator(block.forward, name).vector
        assert work is not None
        assert work.rows == 2 * 128 // 8
    scores, ffn = operator(block.forward, "scores").gemm, operator(block.forward, "ffn_in").gemm
    assert scores is not None
    assert ffn is not None
    assert (scores.m, scores.n, ffn.m) == (128, 128, 2 * 128)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), t=st.sampled_from([2, 4]), pieces=st.sampled_from([1, 2, 4]), sequence=st.booleans())
def test_shares_and_pieces_change_neither_products_nor_parameters(
    data: st.DataObject, t: int, pieces: int, sequence: bool
) -> None:
    model = data.draw(models(width=t))
    plain = step_of(model, sequence_length=16, tensor=t)
    other = step_of(model, sequence_length=16, tensor=t, sequence=sequence, overlap_pieces=pieces)
    assert step_macs(other) == step_macs(plain)
    for (one, _), (two, _) in zip(plain.layers, other.layers, strict=True):
        assert two.parameters == one.parameters
        assert two.stash_bytes <= one.stash_bytes
        assert two.stash_bytes == one.stash_bytes or sequence


@settings(max_examples=40, deadline=None)
@given(data=st.data(), t=st.sampled_from([2, 4]), pieces=st.sampled_from([2, 4]), sequence=st.booleans())
def test_pieces_exchange_the_same_bytes(data: st.DataObject, t: int, pieces: int, sequence: bool) -> None:
    model = data.draw(models(width=t))
    whole, cut = (
        step_of(model, sequence_length=16, tensor=t, sequence=sequence, overlap_pieces=count) for count in (1, pieces)
    )
    for (one, _), (two, _) in zip(whole.layers, cut.layers, strict=True):
        for before, after in ((one.forward, two.forward), (one.backward, two.backward)):
            totals = [Counter[CollectiveKind](), Counter[CollectiveKind]()]
            for total, operators in zip(totals, (before, after), strict=True):
                for found in exchanges(operators):
                    total[found.kind] += found.payload_bytes
            assert totals[0] == totals[1]


@pytest.mark.parametrize("sequence", [False, True])
def test_one_piece_is_exchanged_while_the_next_is_multiplied(sequence: bool) -> None:
    block = layer(step_of(load_model("gpt3-175b"), tensor=8, sequence=sequence, overlap_pieces=4), "block")
    exchange = "reduce_scatter" if sequence else "all_reduce"
    for i in range(4):
        assert operator(block.forward, f"ffn_out.{i}.{exchange}").inputs == (f"ffn_out.{i}",)
        assert operator(block.backward, f"mlp_input.gradient.{i}_{exchange}").inputs == (f"ffn_in.data_gradient.{i}",)
        product = operator(block.forward, f"ffn_out.{i}").gemm
        assert product is not None
        assert product.m == 2 * 128 // 4
        if sequence:
            assert operator(block.forward, f"ffn_in.{i}").inputs == (f"mlp_input.{i}.all_gather",)
            assert operator(block.forward, f"ffn_out.{i}").inputs == (f"ffn_in.{i}",)
            assert operator(block.backward, f"ffn_out.data_gradient.{i}").inputs == (
                f"ffn_out.gradient.{i}_all_gather",
            )
    assert len(operator(block.forward, "ffn_out.residual").inputs) == 4 + 1
    # what is not followed by an exchange of its own stays whole
    assert operator(block.backward, "ffn_in.weight_gradient").gemm is not None


@pytest.mark.parametrize(
    ("degrees", "reason"),
    [
        ({"sequence": True}, "sequence parallelism shares tokens among the tensor-parallel group, which has 1 device"),
        ({"tensor": 8, "sequence": True}, "tensor parallel width 8 does not divide the 2052 tokens of a sequence"),
        ({"overlap_pieces": 2}, "2 overlap pieces hide tensor-parallel exchanges; at tensor parallel width 1 are none"),
        ({"tensor": 2, "overlap_pieces": 0}, "overlap pieces 0: must be at least 1"),
        ({"tensor": 2, "overlap_pieces": 5}, "5 overlap pieces do not divide the 2052 tokens of a microbatch"),
        (
            {"tensor": 4, "sequence": True, "overlap_pieces": 2},
            "2 overlap pieces of whole tokens on 4 devices do not divide the 2052 tokens of a microbatch",
        ),
    ],
)
def test_refuses_what_does_not_divide(degrees: dict[str, int | bool], reason: str) -> None:
    workload = workload_of(load_model("llama2-7b"), sequence_length=2052)
    refusal = workload.refusal(LayerSharding(microbatch=1, **degrees))
    assert refusal is not None
    assert reason in refusal
