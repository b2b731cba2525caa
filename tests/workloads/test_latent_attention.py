"""Latent attention and modules for further tokens, by hand on DeepSeek-V3."""

from dataclasses import replace

import pytest
from workload_helpers import layer, operator

from archplace.workloads import (
    Axis,
    CollectiveKind,
    Gemm,
    LatentAttention,
    Layer,
    LayerSharding,
    Phase,
    Precision,
    TrainingStep,
    load_model,
    load_workload,
)

D, S = 7168, 4096


def step_of(sharding: LayerSharding, *, fused: bool = False) -> TrainingStep:
    training = load_workload("deepseek-v3")
    return replace(training, fused_attention=fused, precision=Precision.BF16).step(sharding)


def tensor_exchanges(found: Layer) -> dict[str, tuple[CollectiveKind, int]]:
    every = [(o.name, o.collective) for o in (*found.forward, *found.backward) if o.collective is not None]
    return {name: (one.kind, one.payload_bytes) for name, one in every if one.axis is Axis.TENSOR}


def test_projections_down_and_up() -> None:
    t = 8
    block = layer(step_of(LayerSharding(microbatch=1, tensor=t, sequence=True)), "dense_block")
    # down: whole matrices on a device's own tokens; up: 16 of 128 heads for all tokens
    assert operator(block.forward, "query_down").gemm == Gemm(m=S // t, n=1536, k=D)
    assert operator(block.forward, "key_value_down").gemm == Gemm(m=S // t, n=512 + 64, k=D)
    assert operator(block.forward, "query_up").gemm == Gemm(m=S, n=16 * 192, k=1536)
    assert operator(block.forward, "key_value_up").gemm == Gemm(m=S, n=16 * 256, k=512)
    assert operator(block.forward, "scores").gemm == Gemm(batch=16, m=S, n=S, k=192)
    assert operator(block.forward, "context").gemm == Gemm(batch=16, m=S, n=128, k=S)
    assert operator(block.forward, "projection").gemm == Gemm(m=S, n=D, k=16 * 128)
    assert operator(block.backward, "query_down.data_gradient").gemm == Gemm(m=S // t, n=D, k=1536)
    assert operator(block.backward, "key_value_up.weight_gradient").gemm == Gemm(m=512, n=16 * 256, k=S)


def test_latents_are_gathered_instead_of_activations() -> None:
    block = layer(step_of(LayerSharding(microbatch=1, tensor=8, sequence=True)), "dense_block")
    gather, scatter = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
    query, keys, hidden = 2 * S * 1536, 2 * S * (512 + 64), 2 * S * D
    exchanged = tensor_exchanges(block)
    attention = {name: value for name, value in exchanged.items() if "latent" in name}
    assert attention == {
        "query_latent.all_gather": (gather, query),
        "key_value_latent.all_gather": (gather, keys),
        # for the weight gradients once more, without the part that no projection reads
        "query_latent.saved_all_gather": (gather, query),
        "key_value_latent.saved_all_gather": (gather, 2 * S * 512),
        "query_latent.gradient_reduce_scatter": (scatter, query),
        "key_value_latent.gradient_reduce_scatter": (scatter, keys),
    }
    assert exchanged["projection.reduce_scatter"] == (scatter, hidden)
    assert "attention_input.all_gather" not in exchanged


def test_without_sequence_parallelism_latents_are_whole() -> None:
    model = replace(load_model("deepseek-v3"), experts=None, multi_token_prediction=0)
    training = replace(load_workload("deepseek-v3"), model=model, fused_attention=False, precision=Precision.BF16)
    block = layer(training.step(LayerSharding(microbatch=1, tensor=8)), "block")
    assert operator(block.forward, "query_down").gemm == Gemm(m=S, n=1536, k=D)
    reduced = CollectiveKind.ALL_REDUCE
    assert {name: value for name, value in tensor_exchanges(block).items() if "latent" in name} == {
        "query_latent.gradient_all_reduce": (reduced, 2 * S * 1536),
        "key_value_latent.gradient_all_reduce": (reduced, 2 * S * (512 + 64)),
    }


def test_what_latent_attention_keeps() -> None:
    block = layer(step_of(LayerSharding(microbatch=1), fused=True), "dense_block")
    norms = 4 * D
    latents = 2 * (1536 + 512)  # before and behind their norms
    heads = 128 * (192 + 192 + 128 + 128)  # queries, keys, values, context
    statistics = 128 * 2  # fp32, of each head; in units of 2 bytes
    inner = 3 * 18432
    assert block.stash_bytes == 2 * S * (norms + latents + heads + statistics + inner)


def test_queries_may_be_projected_at_once() -> None:
    latent = LatentAttention(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    model = replace(load_model("deepseek-v3"), latent_attention=latent)
    training = replace(load_workload("deepseek-v3"), model=model, precision=Precision.BF16)
    block = layer(training.step(LayerSharding(microbatch=1, tensor=8, sequence=True)), "dense_block")
    assert operator(block.forward, "query").gemm == Gemm(m=S, n=16 * 192, k=D)
    assert tensor_exchanges(block)["attention_input.all_gather"] == (CollectiveKind.ALL_GATHER, 2 * S * D)


def test_context_parallel_groups_exchange_keys_and_values_of_all_heads() -> None:
    block = layer(step_of(LayerSharding(microbatch=1, context=4), fused=True), "dense_block")
    hops = [o for o in block.forward if o.collective is not None]
    assert [o.collective.kind for o in hops if o.collective] == [CollectiveKind.POINT_TO_POINT] * 3
    assert {o.collective.payload_bytes for o in hops if o.collective} == {2 * S // 4 * 128 * (192 + 128)}


def test_layers_of_deepseek_v3() -> None:
    step = step_of(LayerSharding(microbatch=1))
    hidden = 2 * S * D
    assert [(found.name, count, found.input_bytes, found.output_bytes) for found, count in step.layers] == [
        ("embedding", 1, 0, hidden),
        ("dense_block", 3, hidden, hidden),
        ("expert_block", 58, hidden, hidden),
        ("prediction_block", 1, hidden, 2 * hidden),
        ("head", 1, 2 * hidden, 0),
    ]
    expert, prediction = layer(step, "expert_block"), layer(step, "prediction_block")
    # two more norms, the product of both, and a copy of the token table
    assert prediction.parameters - expert.parameters == 2 * D + 2 * D * D + 129280 * D
    assert prediction.expert_parameters == expert.expert_parameters


def test_a_further_token_joins_activation_and_embedding() -> None:
    t = 8
    block = layer(step_of(LayerSharding(microbatch=1, tensor=t, sequence=True)), "prediction_block")
    merge = operator(block.forward, "merge")
    assert merge.gemm == Gemm(m=S, n=D // t, k=2 * D)
    exchanged = tensor_exchanges(block)
    assert exchanged["merge_input.all_gather"] == (CollectiveKind.ALL_GATHER, 2 * 2 * S * D)
    assert exchanged["merge.all_gather"] == (CollectiveKind.ALL_GATHER, 2 * S * D)
    assert exchanged["merge_input.gradient_reduce_scatter"] == (CollectiveKind.REDUCE_SCATTER, 2 * 2 * S * D)
    # the gradient that goes on is the sum of what came through the module and from the head
    last = [o for o in block.backward if o.phase is not Phase.WEIGHT_GRADIENT][-1]
    assert last.inputs == ("hidden_norm.gradient",)


def test_the_head_predicts_all_tokens_with_one_matrix() -> None:
    head = layer(step_of(LayerSharding(microbatch=1)), "head")
    logits = [o for o in head.forward if o.name.endswith("logits")]
    assert [o.gemm for o in logits] == [Gemm(m=S, n=129280, k=D)] * 2
    assert [o.parameters for o in logits] == [129280 * D, 0]
    assert head.parameters == 129280 * D + 2 * D


def test_several_modules_pass_on_what_the_head_reads() -> None:
    model = replace(load_model("deepseek-v3"), multi_token_prediction=3)
    step = replace(load_workload("deepseek-v3"), model=model).step(LayerSharding(microbatch=1))
    hidden = 2 * S * D
    modules = [found for found, _ in step.layers if found.name.startswith("prediction_block")]
    assert [(o.name, o.input_bytes, o.carried_bytes, o.output_bytes) for o in modules] == [
        ("prediction_block_1", hidden, 0, 2 * hidden),
        ("prediction_block_2", 2 * hidden, hidden, 3 * hidden),
        ("prediction_block_3", 3 * hidden, 2 * hidden, 4 * hidden),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_lora_rank": 0}, "latent_attention.kv_lora_rank is 0, must be at least 1"),
        ({"q_lora_rank": -1}, "latent_attention.q_lora_rank is -1, must be at least 0"),
        ({"qk_rope_head_dim": 63}, "latent_attention.qk_rope_head_dim 63 is odd"),
    ],
)
def test_latents_refuse_widths_out_of_range(changes: dict[str, int], message: str) -> None:
    latent = load_model("deepseek-v3").latent_attention
    assert latent is not None
    with pytest.raises(ValueError, match=message):
        replace(latent, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_kv_heads": 8}, "n_kv_heads is 8, but latent_attention projects keys and values up for each of the 128"),
        ({"head_dim": 128}, "head_dim 128 is not latent_attention's qk_nope_head_dim 128 . qk_rope_head_dim 64"),
        ({"attention_dropout": 0.1}, "latent_attention has no attention_dropout"),
        ({"embedding_width": 512}, "multi_token_prediction needs kind: decoder"),
    ],
)
def test_models_refuse_latents_that_do_not_fit(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(load_model("deepseek-v3"), **changes)


def test_latents_travel_as_they_were_cast() -> None:
    training = load_workload("deepseek-v3")
    assert training.precision is Precision.FP8_BLOCKS
    block = layer(training.step(LayerSharding(microbatch=1, tensor=8, sequence=True)), "dense_block")
    exchanged = tensor_exchanges(block)
    assert exchanged["query_latent.all_gather"] == (CollectiveKind.ALL_GATHER, S * 1536)
    # the rotary part of the keys stays as it is
    assert exchanged["key_value_latent.all_gather"] == (CollectiveKind.ALL_GATHER, S * (512 + 2 * 64))
    assert exchanged["key_value_latent.gradient_reduce_scatter"] == (CollectiveKind.REDUCE_SCATTER, 2 * S * (512 + 64))
    # one cast of the input for both projections
    assert operator(block.forward, "query_down").inputs == ("attention_input.cast",)
    assert operator(block.forward, "key_value_down").inputs == ("attention_input.cast",)
    assert operator(block.forward, "query_down").precision == "fp8"
