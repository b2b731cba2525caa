"""Small random models of today's kinds, and the shardings that fit them."""

from dataclasses import replace

from hypothesis import strategies as st

from archplace.workloads import (
    Activation,
    ContextKind,
    Experts,
    LatentAttention,
    LayerSharding,
    Model,
    ModelKind,
    Norm,
    OptimizerKind,
    Patches,
    Positions,
    Precision,
    Workload,
)

LENGTH = 64
"""Tokens per sequence: enough that the load of 8 experts is whole on every device."""


def _base(draw: st.DrawFn) -> Model:
    """A decoder that 2 devices can share in every way."""
    heads = 4 * draw(st.integers(1, 2))
    vocabulary, d_model = draw(st.integers(9, 200)), 8 * draw(st.integers(1, 4))
    return Model(
        name="random",
        kind=ModelKind.DECODER,
        n_layers=draw(st.integers(2, 4)),
        d_model=d_model,
        n_heads=heads,
        n_kv_heads=draw(st.sampled_from([4, heads])),
        head_dim=2 * draw(st.integers(1, 6)),
        d_ff=4 * draw(st.integers(1, 20)),
        gated_mlp=draw(st.booleans()),
        activation=draw(st.sampled_from(Activation)),
        norm=draw(st.sampled_from(Norm)),
        positions=Positions.ROPE,
        max_positions=2 * LENGTH,
        vocabulary=vocabulary,
        padded_vocabulary=-(-vocabulary // 8) * 8,
        embedding_width=d_model,
        bias=False,
        qkv_bias=False,
        tied_head=draw(st.booleans()),
    )


@st.composite
def today_models(draw: st.DrawFn) -> Model:
    """A model with experts, latent attention, modules for further tokens, an encoder and a decoder, or patches."""
    model = _base(draw)
    kind = draw(st.sampled_from(["experts", "decoder", "encoder_decoder", "classifier"]))
    if kind == "encoder_decoder":
        relative = draw(st.booleans())
        return replace(
            model,
            kind=ModelKind.ENCODER_DECODER,
            decoder_layers=draw(st.integers(1, 3)),
            positions=Positions.RELATIVE if relative else Positions.LEARNED,
            relative_buckets=4 if relative else 0,
            bias=draw(st.booleans()),
            dropout=draw(st.sampled_from([0.0, 0.1])),
            embedding_dropout=draw(st.sampled_from([0.0, 0.1])),
            attention_dropout=draw(st.sampled_from([0.0, 0.1])),
        )
    if kind == "classifier":
        patches = Patches(image_size=12, patch_size=draw(st.sampled_from([2, 3, 4, 6])))
        return replace(
            model,
            kind=ModelKind.CLASSIFIER,
            patches=patches,
            classes=4 * draw(st.integers(1, 3)),
            positions=Positions.LEARNED,
            max_positions=patches.tokens,
            vocabulary=0,
            padded_vocabulary=0,
            tied_head=False,
            head_bias=draw(st.booleans()),
            bias=draw(st.booleans()),
            embedding_norm=draw(st.booleans()),
            embedding_dropout=draw(st.sampled_from([0.0, 0.1])),
        )
    if draw(st.booleans()):
        latent = LatentAttention(
            q_lora_rank=draw(st.sampled_from([0, 6])),
            kv_lora_rank=draw(st.integers(1, 9)),
            qk_nope_head_dim=draw(st.integers(1, 5)),
            qk_rope_head_dim=2 * draw(st.integers(1, 3)),
            v_head_dim=draw(st.integers(1, 5)),
        )
        model = replace(model, n_kv_heads=model.n_heads, head_dim=latent.qk_head_dim, latent_attention=latent)
    experts = Experts(
        n_experts=8,
        top_k=draw(st.sampled_from([1, 2, 4])),
        d_ff=4 * draw(st.integers(1, 5)),
        shared_experts=draw(st.integers(0, 2)),
        shared_d_ff=4,
        dense_layers=draw(st.integers(0, 1)),
    )
    if kind == "experts":
        model = replace(model, experts=experts)
    return replace(model, multi_token_prediction=draw(st.integers(0, 2)))


@st.composite
def shardings(draw: st.DrawFn, model: Model) -> LayerSharding:
    """A sharding that the model takes for sequences of ``LENGTH`` tokens."""
    tensor = draw(st.sampled_from([1, 2, 4]))
    sequence = tensor > 1 and model.patches is None and (model.experts is not None or draw(st.booleans()))
    context = 1 if model.patches is not None else draw(st.sampled_from([1, 2]))
    return LayerSharding(
        microbatch=draw(st.sampled_from([1, 2])),
        tensor=tensor,
        sequence=sequence,
        context=context,
        context_kind=ContextKind.ALL_GATHER,
        expert=draw(st.sampled_from([1, 2, 8])) if model.experts is not None else 1,
        expert_tensor=draw(st.sampled_from([1, 2])) if model.experts is not None else 1,
        overlap_pieces=draw(st.sampled_from([1, 2])) if tensor > 1 and model.patches is None else 1,
    )


def workload(model: Model, precision: Precision = Precision.BF16) -> Workload:
    """The model in training on short sequences; targets are half as long."""
    return Workload(
        name="w",
        model=model,
        sequence_length=LENGTH if model.patches is None else model.patches.tokens,
        target_length=LENGTH // 2 if model.decoder_layers else None,
        global_batch=2,
        precision=precision,
        optimizer=OptimizerKind.ADAM,
    )
