"""Encoder–decoders by hand on T5-11B, and image classifiers by hand on ViT-Huge."""

from dataclasses import replace

import pytest
from workload_helpers import layer, operator

from archplace.workloads import (
    CollectiveKind,
    Gemm,
    LayerSharding,
    Patches,
    Phase,
    Positions,
    load_model,
    load_workload,
)

D, INNER, FF, HEADS, SOURCE, TARGET = 1024, 128 * 128, 65536, 128, 512, 114


def test_layers_of_t5() -> None:
    step = load_workload("t5-11b").step(LayerSharding(microbatch=2))
    source, target = 2 * 2 * SOURCE * D, 2 * 2 * TARGET * D
    rows = [(o.name, count, o.input_bytes, o.output_bytes, o.carried_bytes) for o, count in step.layers]
    assert rows == [
        ("embedding", 1, 0, source, 0),
        ("encoder_block", 24, source, source, 0),
        ("decoder_embedding", 1, source, source + target, 0),
        # the encoder's output goes along to the last decoder block
        ("decoder_block", 24, source + target, source + target, source),
        ("head", 1, target, 0, 0),
    ]
    assert step.tokens == 2 * SOURCE


def test_decoder_blocks_attend_to_the_encoder() -> None:
    t = 8
    block = layer(load_workload("t5-11b").step(LayerSharding(microbatch=2, tensor=t)), "decoder_block")
    assert operator(block.forward, "query").gemm == Gemm(m=2 * TARGET, n=INNER // t, k=D)
    assert operator(block.forward, "cross_query").gemm == Gemm(m=2 * TARGET, n=INNER // t, k=D)
    assert operator(block.forward, "cross_key").gemm == Gemm(m=2 * SOURCE, n=INNER // t, k=D)
    assert operator(block.forward, "cross_key").inputs == ()  # from outside
    assert operator(block.forward, "cross_scores").gemm == Gemm(batch=2 * HEADS // t, m=TARGET, n=SOURCE, k=128)
    reduced = {o.name: o.collective.payload_bytes for o in (*block.forward, *block.backward) if o.collective}
    source, target = 2 * 2 * SOURCE * D, 2 * 2 * TARGET * D
    assert reduced == {
        "projection.all_reduce": target,
        "cross_projection.all_reduce": target,
        "ffn_out.all_reduce": target,
        "mlp_input.gradient_all_reduce": target,
        "cross_input.gradient_all_reduce": target,
        "encoded.gradient_all_reduce": source,
        "attention_input.gradient_all_reduce": target,
    }
    # the encoder's gradient waits for keys and values, and is summed with what later blocks have made of it
    assert operator(block.backward, "encoded.residual.gradient").inputs == ("encoded.gradient_all_reduce",)
    addition = operator(block.backward, "encoded.residual.gradient").vector
    assert addition is not None
    assert (addition.read_bytes, addition.write_bytes) == (2 * source, source)


def test_what_blocks_of_t5_keep() -> None:
    step = load_workload("t5-11b").step(LayerSharding(microbatch=1))
    e, mask = 2, 1

    def attention(queries: int, keys: int) -> int:
        heads = e * (2 * queries + 2 * keys) * INNER  # queries and context; keys and values
        return heads + HEADS * queries * keys * (2 * e + mask)

    def feed_forward(tokens: int) -> int:
        return e * tokens * FF  # ReLU keeps its output only

    def around(tokens: int, parts: int) -> int:
        return parts * tokens * D * (2 * e + mask)  # a norm's input and output; the mask of the sum

    encoder, decoder = layer(step, "encoder_block"), layer(step, "decoder_block")
    assert encoder.stash_bytes == attention(SOURCE, SOURCE) + feed_forward(SOURCE) + around(SOURCE, 2)
    # not the encoder's output, which a stage keeps once
    own, cross = attention(TARGET, TARGET), attention(TARGET, SOURCE)
    assert decoder.stash_bytes == own + cross + feed_forward(TARGET) + around(TARGET, 3)
    # selective recomputation drops the scores of both attentions
    scores = HEADS * TARGET * (TARGET + SOURCE) * (2 * e + mask)
    assert decoder.selective_stash_bytes == decoder.stash_bytes - scores
    assert set(decoder.selective_replay) == {
        "scores",
        "softmax",
        "context",
        "cross_scores",
        "cross_softmax",
        "cross_context",
    }


def test_relative_positions_are_added_to_the_scores() -> None:
    t = 4
    step = load_workload("t5-11b").step(LayerSharding(microbatch=4, tensor=t))
    biases = HEADS // t * SOURCE * SOURCE * 2
    table = operator(layer(step, "embedding").forward, "relative_positions")
    assert table.parameters == 32 * HEADS // t
    assert table.vector is not None
    assert table.vector.write_bytes == biases
    block = layer(step, "encoder_block")
    softmax = operator(block.forward, "softmax").vector
    assert softmax is not None
    assert softmax.read_bytes == 4 * biases + biases  # scores of 4 sequences, one table for all
    gradient = operator(block.backward, "position_bias.gradient")
    assert gradient.phase is Phase.WEIGHT_GRADIENT
    assert gradient.vector is not None
    assert (gradient.vector.read_bytes, gradient.vector.write_bytes) == (5 * biases, biases)


def test_relative_positions_are_read_by_fused_attention_too() -> None:
    training = replace(load_workload("t5-11b"), fused_attention=True)
    without = replace(training.model, positions=Positions.NONE, relative_buckets=0)
    read = []
    for model in (training.model, without):
        block = layer(replace(training, model=model).step(LayerSharding(microbatch=1)), "encoder_block")
        work = operator(block.forward, "attention").vector
        assert work is not None
        read.append(work.read_bytes)
    assert read[0] - read[1] == HEADS * SOURCE * SOURCE * 2


def test_decoders_mask_and_encoders_do_not() -> None:
    training = replace(load_workload("t5-11b"), fused_attention=True)
    step = training.step(LayerSharding(microbatch=1))
    encoder, decoder = layer(step, "encoder_block"), layer(step, "decoder_block")
    met = {
        "encoder": operator(encoder.forward, "attention").attention,
        "decoder": operator(decoder.forward, "attention").attention,
        "cross": operator(decoder.forward, "cross_attention").attention,
    }
    assert {name: found.met_keys for name, found in met.items() if found is not None} == {
        "encoder": SOURCE,
        "decoder": TARGET // 2,
        "cross": SOURCE,
    }


def test_sequences_of_encoder_and_decoder_must_divide() -> None:
    training = load_workload("t5-11b")
    refusal = training.refusal(LayerSharding(microbatch=1, tensor=4, sequence=True))
    assert refusal == (
        "decoder: sequence parallelism at tensor parallel width 4 does not divide the 114 tokens of a sequence on each "
        "device"
    )
    assert training.refusal(LayerSharding(microbatch=1, tensor=2, sequence=True)) is None


def test_sequence_parallel_decoders_gather_the_encoders_output() -> None:
    block = layer(load_workload("t5-11b").step(LayerSharding(microbatch=1, tensor=2, sequence=True)), "decoder_block")
    gathered = operator(block.forward, "encoded.all_gather").collective
    assert gathered is not None
    assert (gathered.kind, gathered.payload_bytes) == (CollectiveKind.ALL_GATHER, 2 * SOURCE * D)
    assert block.carried_bytes == 2 * SOURCE * D // 2


def test_flops_of_t5_by_hand() -> None:
    training = load_workload("t5-11b")
    s, t, attention = SOURCE, TARGET, 4 * D * INNER
    encoder = s * (attention + 2 * D * FF) + 2 * s * s * INNER
    cross = (2 * t + 2 * s) * D * INNER + 2 * t * s * INNER
    decoder = t * (attention + 2 * D * FF) + 2 * t * t * INNER + cross
    macs = 24 * (encoder + decoder) + t * 32128 * D
    assert training.flops_per_step == pytest.approx(2048 * 6 * macs, rel=1e-12)
    assert replace(training, target_length=None).flops_per_step > training.flops_per_step


def test_targets_need_a_decoder_behind_an_encoder() -> None:
    with pytest.raises(ValueError, match="target_length is 8, but gpt2-xl has no decoder behind an encoder"):
        replace(load_workload("gpt2-xl"), target_length=8)
    with pytest.raises(ValueError, match="target_length is 0, must be at least 1"):
        replace(load_workload("t5-11b"), target_length=0)
    learned = replace(load_model("t5-11b"), positions=Positions.LEARNED, relative_buckets=0)
    with pytest.raises(ValueError, match="target_length is 513, but t5-11b has learned positions for 512 tokens"):
        replace(load_workload("t5-11b"), model=learned, target_length=513)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_layers": 0}, "decoder_layers is 0; kind: encoder_decoder needs at least 1"),
        ({"fused_qkv": True}, "no latent_attention, no experts, and no fused_qkv"),
        ({"norm_first": False}, "needs norm_first and final_norm"),
        ({"token_types": 2}, "needs an embedding of d_model columns"),
        ({"relative_buckets": 0}, "relative_buckets is 0 with positions: relative"),
    ],
)
def test_encoder_decoders_refuse_what_does_not_fit(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(load_model("t5-11b"), **changes)


def test_layers_of_vit() -> None:
    b, t, d = 4, 8, 1280
    step = load_workload("vit-huge").step(LayerSharding(microbatch=b, tensor=t))
    assert [(found.name, count) for found, count in step.layers] == [("embedding", 1), ("block", 32), ("head", 1)]
    embedding, head = layer(step, "embedding"), layer(step, "head")
    patches = operator(embedding.forward, "patches")
    assert patches.gemm == Gemm(m=b * 256, n=d // t, k=14 * 14 * 3)
    assert patches.parameters == (588 + 1) * d // t
    assert operator(embedding.forward, "embedding_sum").parameters == (257 + 1) * d
    # pixels need no gradient
    assert {o.name: o.phase for o in embedding.backward} == {
        "embedding_sum.weight_gradient": Phase.WEIGHT_GRADIENT,
        "patches.weight_gradient": Phase.WEIGHT_GRADIENT,
    }
    assert operator(head.forward, "logits").gemm == Gemm(m=b, n=1000 // t, k=d)
    assert layer(step, "block").input_bytes == 2 * b * 257 * d


def test_flops_of_vit_by_hand() -> None:
    d, tokens = 1280, 257
    blocks = 32 * (tokens * 12 * d * d + 2 * tokens * tokens * d)
    macs = 3 * (blocks + 1000 * d) + 2 * 256 * 588 * d
    assert load_workload("vit-huge").flops_per_step == pytest.approx(4096 * 2 * macs, rel=1e-12)


def test_images_are_not_shared_along_their_tokens() -> None:
    training = load_workload("vit-huge")
    refusal = training.refusal(LayerSharding(microbatch=1, tensor=2, sequence=True))
    assert refusal == (
        "sequence parallelism does not share the 257 tokens of an image in vit-huge: its class token is read on every "
        "device"
    )
    refusal = training.refusal(LayerSharding(microbatch=1, tensor=16))
    assert refusal == "tensor parallel width 16 does not divide the 1000 classes of vit-huge"
    with pytest.raises(ValueError, match="an image of vit-huge has 256 patches and a class token: set it to 257"):
        replace(training, sequence_length=256)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 0}, "classes is 0; kind: classifier needs at least 1"),
        ({"patches": None}, "vocabulary is 0, must be at least 1"),
        ({"vocabulary": 9, "padded_vocabulary": 9}, "an image classifier has none"),
        ({"max_positions": 256}, "max_positions is 256, but an image has 256 patches and a class token: 257 positions"),
        ({"tied_head": True}, "kind: classifier has no embedding_width, tied_head"),
        ({"final_norm": False}, "kind: classifier needs final_norm"),
    ],
)
def test_classifiers_refuse_what_does_not_fit(changes: dict[str, int | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(load_model("vit-huge"), **changes)


def test_patches_must_tile_the_image() -> None:
    with pytest.raises(ValueError, match=r"patch_size 15 does not divide patches\.image_size 224"):
        Patches(image_size=224, patch_size=15)
    with pytest.raises(ValueError, match=r"patches\.channels is 0, must be at least 1"):
        Patches(image_size=224, patch_size=14, channels=0)
