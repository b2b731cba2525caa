"""What must hold between the dimensions of a model."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the model checks itself here
    from archplace.workloads.model import Model

_POSITIVE = "n_layers d_model n_heads n_kv_heads head_dim d_ff max_positions"
_NOT_NEGATIVE = (
    "vocabulary padded_vocabulary position_offset token_types decoder_layers relative_buckets classes "
    "multi_token_prediction"
)


def problems_of(model: "Model") -> list[str]:
    """Return what is wrong with the model's dimensions, each with its name and value; empty where nothing is."""
    problems = _ranges(model)
    if problems:
        return problems
    return [*_attention(model), *_ends(model), *_encoder_decoder(model), *_classifier(model), *_experts(model)]


def _ranges(model: "Model") -> list[str]:
    problems = []
    if not model.name.strip():
        problems.append("name is empty: give the model a name")
    for field in _POSITIVE.split():
        if getattr(model, field) < 1:
            problems.append(f"{field} is {getattr(model, field)}, must be at least 1")
    if model.patches is None:
        for field in ("vocabulary", "padded_vocabulary", "embedding_width"):
            if getattr(model, field) < 1:
                problems.append(f"{field} is {getattr(model, field)}, must be at least 1")
    for field in _NOT_NEGATIVE.split():
        if getattr(model, field) < 0 and not any(problem.startswith(field) for problem in problems):
            problems.append(f"{field} is {getattr(model, field)}, must not be negative")
    for field in ("dropout", "embedding_dropout", "attention_dropout"):
        if not 0 <= getattr(model, field) < 1:  # NaN fails both comparisons
            problems.append(f"{field} is {getattr(model, field)}, must be at least 0 and less than 1")
    return problems


def _attention(model: "Model") -> list[str]:
    problems = []
    if model.n_heads % model.n_kv_heads:
        problems.append(
            f"n_kv_heads {model.n_kv_heads} does not divide n_heads {model.n_heads}: every key and value head "
            "serves the same number of query heads"
        )
    latent = model.latent_attention
    if latent is None:
        if model.positions == "rope" and model.head_dim % 2:
            problems.append(f"head_dim {model.head_dim} is odd: rotary positions turn pairs of elements")
    else:
        if model.head_dim != latent.qk_head_dim:
            problems.append(
                f"head_dim {model.head_dim} is not latent_attention's qk_nope_head_dim {latent.qk_nope_head_dim} + "
                f"qk_rope_head_dim {latent.qk_rope_head_dim}: leave head_dim out"
            )
        if model.n_kv_heads != model.n_heads:
            problems.append(
                f"n_kv_heads is {model.n_kv_heads}, but latent_attention projects keys and values up for each of the "
                f"{model.n_heads} heads: leave n_kv_heads out"
            )
        if model.positions != "rope":
            problems.append("latent_attention needs positions: rope")
        if model.qkv_bias or model.bias or model.fused_qkv:
            problems.append("latent_attention has no biases and no fused projection: set bias and fused_qkv to false")
        if model.attention_dropout:
            problems.append("latent_attention has no attention_dropout: leave it out")
    if (model.positions == "relative") != (model.relative_buckets > 0):
        problems.append(
            f"relative_buckets is {model.relative_buckets} with positions: {model.positions}; positions: relative "
            "needs at least 1 bucket, others need 0"
        )
    return problems


def _ends(model: "Model") -> list[str]:
    problems = []
    if model.padded_vocabulary < model.vocabulary:
        problems.append(f"padded_vocabulary {model.padded_vocabulary} is less than vocabulary {model.vocabulary}")
    if model.positions != "learned" and model.position_offset:
        problems.append("position_offset needs positions: learned")
    if model.kind != "encoder" and model.next_sentence:
        problems.append("next_sentence needs kind: encoder")
    if model.multi_token_prediction:
        fits = (
            model.kind == "decoder"
            and model.norm_first
            and model.final_norm
            and not model.projects_embedding
            and model.positions != "learned"
            and not model.embedding_norm
            and not model.token_types
            and not model.embedding_dropout
        )
        if not fits:
            problems.append(
                "multi_token_prediction needs kind: decoder, norms first, a final norm, an embedding of d_model "
                "columns, no learned positions, and no norm, segments or dropout on the embedding"
            )
    return problems


def _encoder_decoder(model: "Model") -> list[str]:
    if model.kind != "encoder_decoder":
        if model.decoder_layers:
            return [f"decoder_layers is {model.decoder_layers}, which needs kind: encoder_decoder"]
        return []
    problems = []
    if model.decoder_layers < 1:
        problems.append(f"decoder_layers is {model.decoder_layers}; kind: encoder_decoder needs at least 1")
    if model.latent_attention is not None or model.experts is not None or model.fused_qkv:
        problems.append("kind: encoder_decoder has no latent_attention, no experts, and no fused_qkv")
    if not model.norm_first or not model.final_norm:
        problems.append("kind: encoder_decoder needs norm_first and final_norm")
    if model.projects_embedding or model.embedding_norm or model.token_types:
        problems.append("kind: encoder_decoder needs an embedding of d_model columns, without norm and segments")
    return problems


def _classifier(model: "Model") -> list[str]:
    if model.kind != "classifier":
        if model.patches is not None or model.classes:
            return ["patches and classes need kind: classifier"]
        return []
    problems = []
    if model.patches is None:
        problems.append("kind: classifier needs patches")
    elif model.positions == "learned" and model.max_positions != model.patches.tokens:
        problems.append(
            f"max_positions is {model.max_positions}, but an image has {model.patches.count} patches and a class "
            f"token: {model.patches.tokens} positions"
        )
    if model.classes < 1:
        problems.append(f"classes is {model.classes}; kind: classifier needs at least 1")
    if model.vocabulary or model.padded_vocabulary:
        problems.append(f"vocabulary is {model.vocabulary}, but an image classifier has none: leave it out")
    if model.embedding_width != model.d_model or model.tied_head or model.token_types or model.position_offset:
        problems.append("kind: classifier has no embedding_width, tied_head, token_types or position_offset")
    if not model.final_norm:
        problems.append("kind: classifier needs final_norm")
    return problems


def _experts(model: "Model") -> list[str]:
    experts = model.experts
    if experts is None:
        return []
    problems = []
    if model.kind == "classifier":
        problems.append("experts need another kind than classifier")
    if model.bias:
        problems.append("experts have no biases: set bias to false (and qkv_bias to true where it is so)")
    if model.dropout:
        problems.append(f"dropout is {model.dropout}, but experts have none on their output: set it to 0")
    if experts.dense_layers >= model.n_layers:
        problems.append(
            f"experts.dense_layers is {experts.dense_layers} of {model.n_layers} layers, which leaves no block with "
            "experts"
        )
    return problems
