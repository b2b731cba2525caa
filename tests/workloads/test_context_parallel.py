"""Sequences shared by a context-parallel group: what is exchanged, what overlaps, what stays the same."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_helpers import layer, models, operator, step_macs, workload_of

from archplace.workloads import (
    Axis,
    Collective,
    CollectiveKind,
    ContextKind,
    Layer,
    LayerSharding,
    Model,
    Operator,
    Phase,
    TrainingStep,
    load_model,
)

RING, ALL_GATHER = ContextKind.RING, ContextKind.ALL_GATHER


def step_of(
    model: Model, context: int, kind: ContextKind, *, sequence_length: int = 96, fused: bool = True, tensor: int = 1
) -> TrainingStep:
    workload = workload_of(model, sequence_length=sequence_length, fused=fused)
    return workload.step(LayerSharding(microbatch=2, tensor=tensor, context=context, context_kind=kind))


def exchanges(operators: tuple[Operator, ...]) -> list[Collective]:
    found = [one.collective for one in operators if one.collective is not None]
    return [one for one in found if one.axis is Axis.CONTEXT]


def sent_bytes(found: Collective) -> float:
    """What each device sends: its payload to a neighbour, or what a ring's collective does."""
    if found.kind is CollectiveKind.POINT_TO_POINT:
        return found.payload_bytes
    return found.payload_bytes * (found.group_size - 1) / found.group_size


def block_of(step: TrainingStep) -> Layer:
    return layer(step, "block")


@pytest.mark.parametrize("name", ["llama2-70b", "gpt3-175b"])
@pytest.mark.parametrize("t", [1, 8])
@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("kind", ContextKind)
def test_keys_and_values_are_all_that_is_exchanged(name: str, t: int, cp: int, kind: ContextKind) -> None:
    model = load_model(name)
    b, s = 2, 96
    block = block_of(step_of(model, cp, kind, tensor=t))
    # Grouped key heads only. Of the keys and values of whole sequences a device lacks (cp − 1)/cp; forward it gets
    # these, backward these again and the gradients of as many (Liu, Zaharia and Abbeel 2023, section 3).
    keys_and_values = 2 * b * s * model.n_kv_heads * model.head_dim * 2 / t
    assert sum(map(sent_bytes, exchanges(block.forward))) == keys_and_values * (cp - 1) / cp
    assert sum(map(sent_bytes, exchanges(block.backward))) == 2 * keys_and_values * (cp - 1) / cp
    assert all(one.group_size == cp for one in exchanges(block.forward) + exchanges(block.backward))


def test_a_step_of_the_ring_waits_for_what_arrived_and_for_the_step_before() -> None:
    forward = block_of(step_of(load_model("gpt3-175b"), 4, RING)).forward
    assert operator(forward, "attention.0").inputs == ("qkv",)
    assert operator(forward, "keys.1").inputs == ("qkv",)
    assert operator(forward, "attention.1").inputs == ("qkv", "keys.1", "attention.0")
    # what arrived is passed on at once, beside the attention to it
    assert operator(forward, "keys.2").inputs == ("keys.1",)
    assert operator(forward, "attention.3").inputs == ("qkv", "keys.3", "attention.2")
    assert operator(forward, "projection").inputs == ("attention.3",)


def test_gradients_follow_their_keys_round_the_ring() -> None:
    backward = block_of(step_of(load_model("gpt3-175b"), 3, RING)).backward
    assert operator(backward, "keys.saved.1").inputs == ()
    assert operator(backward, "attention.gradient.0").inputs == ("projection.data_gradient",)
    assert operator(backward, "keys_gradient.1").inputs == ("attention.gradient.0",)
    assert operator(backward, "attention.gradient.1").inputs == (
        "projection.data_gradient",
        "keys.saved.1",
        "attention.gradient.0",
    )
    # the sum with what a member adds stands between two hops, and no attention waits for it
    assert operator(backward, "keys_gradient.1.sum").inputs == ("attention.gradient.1", "keys_gradient.1")
    assert operator(backward, "keys_gradient.2").inputs == ("keys_gradient.1.sum",)
    assert operator(backward, "qkv.data_gradient").inputs == ("attention.gradient.2", "keys_gradient.2.sum")
    assert all(found.phase is Phase.DATA_GRADIENT for found in backward if found.collective is not None)


def test_gathered_keys_come_before_attention_and_their_gradients_are_scattered() -> None:
    for fused in (False, True):
        block = block_of(step_of(load_model("llama2-7b"), 4, ALL_GATHER, fused=fused))
        gather = operator(block.forward, "keys.all_gather")
        assert gather.inputs == ("key", "value")
        first = "attention" if fused else "scores"
        assert operator(block.forward, first).inputs == ("query", "keys.all_gather")
        assert operator(block.backward, "keys.saved_all_gather").inputs == ()
        scatter = operator(block.backward, "keys.gradient_reduce_scatter")
        assert scatter.collective is not None
        assert scatter.collective.kind is CollectiveKind.REDUCE_SCATTER
        assert operator(block.backward, "value.data_gradient").inputs == (scatter.name,)
        # the gradient of rotated keys turns back when it is complete
        assert operator(block.backward, "key.rotation_gradient").inputs == (scatter.name,)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    width=st.sampled_from([1, 2]),
    context=st.sampled_from([1, 2, 3, 4]),
    kind=st.sampled_from(ContextKind),
    fused=st.booleans(),
)
def test_the_group_computes_what_one_device_would(
    data: st.DataObject, width: int, context: int, kind: ContextKind, fused: bool
) -> None:
    model = replace(data.draw(models(width=width)), next_sentence=False, max_positions=96)
    kind = kind if fused else ALL_GATHER
    one = step_of(model, 1, kind, fused=fused, sequence_length=48)
    many = step_of(model, context, kind, fused=fused, sequence_length=48, tensor=width)
    assert step_macs(many) * context * width == step_macs(one)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), context=st.sampled_from([2, 3, 4]), kind=st.sampled_from(ContextKind), fused=st.booleans())
def test_every_activation_is_shared_and_every_weight_is_whole(
    data: st.DataObject, context: int, kind: ContextKind, fused: bool
) -> None:
    model = replace(data.draw(models()), next_sentence=False)
    kind = kind if fused else ALL_GATHER
    one, many = (step_of(model, degree, kind, fused=fused, sequence_length=48) for degree in (1, context))
    assert many.tokens == one.tokens
    for (whole, _), (share, _) in zip(one.layers, many.layers, strict=True):
        assert share.parameters == whole.parameters
        assert share.stash_bytes * context == whole.stash_bytes
        assert share.input_bytes * context == whole.input_bytes
        assert share.output_bytes * context == whole.output_bytes


def test_unfused_attention_keeps_the_scores_of_its_queries_with_all_keys() -> None:
    block = block_of(step_of(load_model("llama2-70b"), 4, ALL_GATHER, fused=False))
    scores = operator(block.forward, "scores").gemm
    assert scores is not None
    # 8 query heads share a key head; 24 of 96 tokens
    assert (scores.batch, scores.m, scores.n) == (2 * 8, 8 * 24, 96)


@pytest.mark.parametrize(
    ("name", "fused", "sharding", "reason"),
    [
        (
            "llama2-7b",
            True,
            LayerSharding(microbatch=1, context=3),
            "context parallel width 3 does not divide the 1028 tokens of a sequence in 2 · 3 = 6 pieces",
        ),
        (
            "llama2-7b",
            True,
            LayerSharding(microbatch=1, context=4),
            "width 4 does not divide the 1028 tokens of a sequence in 2 · 4 = 8 pieces (two for each device, behind a",
        ),
        ("llama2-7b", False, LayerSharding(microbatch=1, context=2), "set fused_attention: true, or gather keys"),
        ("llama2-7b", True, LayerSharding(microbatch=1, context=0), "context parallel width 0: must be at least 1"),
        (
            "llama2-7b",
            True,
            LayerSharding(microbatch=1, tensor=4, sequence=True, context=2),
            "tensor parallel width 4 does not divide the 514 tokens of a sequence on each device",
        ),
    ],
)
def test_refuses_with_the_numbers(name: str, fused: bool, sharding: LayerSharding, reason: str) -> None:
    refusal = workload_of(load_model(name), sequence_length=1028, fused=fused).refusal(sharding)
    assert refusal is not None
    assert reason in refusal


def test_refuses_to_share_the_first_token_of_a_sequence() -> None:
    bert = load_model("bert-large")
    sharding = LayerSharding(microbatch=1, context=3)
    refusal = workload_of(bert, sequence_length=96, fused=True).refusal(sharding)
    assert refusal == (
        "context parallel width 3: the next-sentence classifier of bert-large reads the first token of a sequence, "
        "which 1 of 3 devices holds"
    )
    # without a causal mask a share is one piece
    without = replace(bert, next_sentence=False)
    assert workload_of(without, sequence_length=99, fused=True).refusal(sharding) is None
