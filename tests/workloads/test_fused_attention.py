"""Attention whose scores stay on chip: products, bytes and stash by hand, and what it changes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from workload_helpers import layer, models, operator, step_macs, workload_of

from archplace.workloads import (
    FusedAttention,
    Gemm,
    LayerSharding,
    Model,
    ModelKind,
    TrainingStep,
    Unit,
    load_model,
)

CORE = {"scores", "softmax", "context"}


def steps(model: Model, *, sequence_length: int = 64, tensor: int = 1) -> tuple[TrainingStep, TrainingStep]:
    """A step without and with fusion."""
    sharding = LayerSharding(tensor=tensor, microbatch=2)
    plain, fused = (
        workload_of(model, sequence_length=sequence_length, fused=fused).step(sharding) for fused in (False, True)
    )
    return plain, fused


def test_one_operator_takes_the_place_of_three_and_of_five() -> None:
    plain, fused = (layer(step, "block") for step in steps(load_model("gpt3-175b"), tensor=8))
    assert {o.name for o in plain.forward} - {o.name for o in fused.forward} == CORE
    assert {o.name for o in fused.forward} - {o.name for o in plain.forward} == {"attention"}
    attention = operator(fused.forward, "attention")
    assert attention.unit is Unit.FUSED
    assert attention.inputs == ("qkv",)
    # 2 sequences · 12 heads; 64 queries, of whose 64 keys a causal mask leaves half
    sizes = {"batch": 24, "rows": 64, "keys": 64, "met_keys": 32, "head_dim": 128, "value_dim": 128}
    assert attention.attention == FusedAttention(**sizes)
    assert operator(fused.backward, "attention.gradient").attention == FusedAttention(**sizes, gradients=True)
    assert attention.attention.products == (
        Gemm(batch=24, m=64, n=32, k=128),
        Gemm(batch=24, m=64, n=128, k=32),
    )


def test_bytes_are_those_of_each_operand_and_result_once() -> None:
    b, s, heads, kv_heads, d = 2, 64, 64, 8, 128
    block = layer(steps(load_model("llama2-70b"))[1], "block")
    queries, keys = 2 * b * s * heads * d, 2 * b * s * kv_heads * d
    statistics = 4 * b * s * heads
    forward, backward = (
        operator(operators, name).vector
        for operators, name in ((block.forward, "attention"), (block.backward, "attention.gradient"))
    )
    assert forward is not None
    assert backward is not None
    # Dao 2023, algorithm 1: Q, K, V in; O and the statistics out
    assert (forward.read_bytes, forward.write_bytes) == (queries + 2 * keys, queries + statistics)
    # algorithm 2: Q, K, V, O, dO and the statistics in; dQ, dK, dV out
    assert (backward.read_bytes, backward.write_bytes) == (3 * queries + 2 * keys + statistics, queries + 2 * keys)


def test_only_the_statistics_of_scores_are_kept() -> None:
    b, s, h, a = 2, 2048, 12288, 96
    plain, fused = (layer(step, "block") for step in steps(load_model("gpt3-175b"), sequence_length=s, tensor=8))
    assert plain.selective_stash_bytes is not None
    assert fused.stash_bytes == plain.selective_stash_bytes + 4 * b * s * a // 8
    assert fused.stash_bytes * 8 == s * b * (h * (10 * 8 + 24) + 4 * a)
    # nothing is left that selective recomputation could drop
    assert (fused.selective_stash_bytes, fused.selective_replay) == (None, ())


def test_scores_are_computed_again_in_the_backward_pass() -> None:
    # Five products for four (Dao 2023, section 3.1.1), each half of all positions behind a causal mask.
    plain, fused = (layer(step, "block") for step in steps(load_model("megatron-gpt-8.3b")))
    core = [operator(plain.forward, name).macs for name in ("scores", "context")]
    assert core[0] == core[1]
    assert operator(fused.forward, "attention").macs == 2 * core[0] // 2
    assert operator(fused.backward, "attention.gradient").macs == 5 * core[0] // 2


@settings(max_examples=40, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2]), half_length=st.integers(1, 10))
def test_executed_flops_differ_from_model_flops_by_the_skipped_and_repeated_scores(
    data: st.DataObject, width: int, half_length: int
) -> None:
    model = data.draw(models(width=width))
    s = 2 * half_length
    plain, fused = steps(model, sequence_length=s, tensor=width)
    scores = 2 * s * model.n_layers * model.n_heads * s * model.head_dim // width
    # 6 products of all positions without fusion; 7 with it, of half of them behind a causal mask
    causal = model.kind is ModelKind.DECODER
    assert step_macs(fused) - step_macs(plain) == scores * 7 // (2 if causal else 1) - 6 * scores
    assert fused.flops_per_token == plain.flops_per_token


def test_rotary_positions_turn_back_after_fused_gradients() -> None:
    backward = layer(steps(load_model("llama2-7b"))[1], "block").backward
    for name, reader in (("query", "query.data_gradient"), ("key", "key.data_gradient")):
        rotation = operator(backward, f"{name}.rotation_gradient")
        assert rotation.inputs == ("attention.gradient",)
        assert rotation.vector is not None
        tensor, table = 2 * 64 * 4096 * 2, 64 * 128 * 2
        assert (rotation.vector.read_bytes, rotation.vector.write_bytes) == (tensor + table, tensor)
        assert operator(backward, reader).inputs == (rotation.name,)


def test_a_random_seed_stands_for_the_mask() -> None:
    # The mask of the attention's dropout is drawn again from the seed, so that no byte of it is kept or moved.
    assert load_model("gpt3-175b").attention_dropout == 0.1
    forward = layer(steps(load_model("gpt3-175b"))[1], "block").forward
    llama = layer(steps(load_model("llama2-7b"))[1], "block").forward
    for operators, heads in ((forward, 96), (llama, 32)):
        attention = operator(operators, "attention")
        assert attention.vector is not None
        assert attention.vector.write_bytes == 2 * 64 * heads * (128 * 2 + 4) == attention.stash_bytes
