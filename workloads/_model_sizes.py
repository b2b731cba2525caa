"""Parameters and multiply-accumulates of a model's parts, in closed form.

A *weight* takes part in a matrix product, once for every token that passes; biases, gains and tables do not.
"""

from typing import TYPE_CHECKING

from archplace.workloads.model_parts import Block, Experts

if TYPE_CHECKING:  # the model's own properties are computed here
    from archplace.workloads.model import Model


def attention_weights(model: "Model") -> int:
    """Weights of one block's own attention."""
    d, latent = model.d_model, model.latent_attention
    if latent is None:
        return d * (model.query_columns + 2 * model.kv_columns) + model.query_columns * d
    queries = model.n_heads * latent.qk_head_dim
    rank = latent.q_lora_rank
    weights = d * rank + rank * queries if rank else d * queries
    weights += d * (latent.kv_lora_rank + latent.qk_rope_head_dim)
    weights += latent.kv_lora_rank * model.n_heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return weights + model.n_heads * latent.v_head_dim * d


def attention_parameters(model: "Model") -> int:
    """Parameters of one block's own attention, without the norm before it."""
    latent = model.latent_attention
    if latent is not None:
        return attention_weights(model) + latent.q_lora_rank + latent.kv_lora_rank  # gains of the latents' RMS norms
    return attention_weights(model) + _attention_biases(model)


def cross_attention_weights(model: "Model") -> int:
    """Weights of the attention to the encoder's output: of queries and projection, then of keys and values."""
    return 2 * model.d_model * (model.query_columns + model.kv_columns)


def cross_attention_parameters(model: "Model") -> int:
    """Parameters of the attention to the encoder's output, without the norm before it."""
    return cross_attention_weights(model) + _attention_biases(model)


def dense_weights(model: "Model", width: int) -> int:
    """Weights of a feed-forward part of ``width`` columns."""
    return (3 if model.gated_mlp else 2) * model.d_model * width


def dense_parameters(model: "Model", width: int) -> int:
    """Parameters of a feed-forward part of ``width`` columns, without the norm before it."""
    biases = (2 if model.gated_mlp else 1) * width + model.d_model
    return dense_weights(model, width) + (biases if model.bias else 0)


def router_weights(model: "Model", experts: Experts) -> int:
    """Weights, and parameters, of the router of one block."""
    return model.d_model * experts.n_experts


def routed_parameters(model: "Model", block: Block) -> int:
    """Parameters of the routed experts of one block."""
    experts = model.experts
    if experts is None or not block.has_experts:
        return 0
    return experts.n_experts * dense_weights(model, experts.d_ff)


def block_parameters(model: "Model", block: Block) -> int:
    """Parameters of one block."""
    experts = model.experts
    count = attention_parameters(model) + 2 * model.norm_parameters
    if experts is not None and block.has_experts:
        count += router_weights(model, experts) + dense_weights(model, experts.shared_width)
        count += routed_parameters(model, block)
    else:
        count += dense_parameters(model, model.d_ff)
    if block.cross_attention:
        count += cross_attention_parameters(model) + model.norm_parameters
    if block.prediction:
        count += 2 * model.d_model * model.d_model + 2 * model.norm_parameters
    return count


def block_macs(model: "Model", block: Block, sequence_length: int, target_length: int) -> int:
    """Multiply-accumulates of the forward pass of one block over one sequence, masked positions included.

    A block with cross attention runs on ``target_length`` tokens and attends to ``sequence_length``.
    """
    experts, latent = model.experts, model.latent_attention
    weights = attention_weights(model)
    if experts is not None and block.has_experts:
        weights += router_weights(model, experts)
        weights += dense_weights(model, experts.top_k * experts.d_ff + experts.shared_width)
    else:
        weights += dense_weights(model, model.d_ff)
    if block.prediction:
        weights += 2 * model.d_model * model.d_model
    tokens = target_length if block.cross_attention else sequence_length
    per_pair = model.n_heads * (2 * model.head_dim if latent is None else latent.qk_head_dim + latent.v_head_dim)
    macs = tokens * (weights + tokens * per_pair)
    if block.cross_attention:
        macs += 2 * model.d_model * (tokens * model.query_columns + sequence_length * model.kv_columns)
        macs += tokens * sequence_length * per_pair
    return macs


def training_macs(model: "Model", sequence_length: int, target_length: int) -> int:
    """Multiply-accumulates of forward and backward pass over one sequence, without recomputation.

    Each product costs as much again for either gradient. Only the patches' map has no data gradient: pixels need none.
    """
    d, width = model.d_model, model.embedding_width
    forward = sum(block.count * block_macs(model, block, sequence_length, target_length) for block in model.blocks)
    head_tokens = target_length if model.decoder_layers else sequence_length
    ends = model.padded_vocabulary * width * (1 + model.multi_token_prediction)
    if model.projects_embedding:
        ends += 2 * d * width
    if model.has_transform:
        ends += d * d
    forward += head_tokens * ends
    if model.next_sentence:
        forward += d * d + 2 * d
    forward += model.classes * d
    patches = 0 if model.patches is None else model.patches.count * model.patches.pixels * d
    return 3 * forward + 2 * patches


def _attention_biases(model: "Model") -> int:
    queries_keys_values = model.query_columns + 2 * model.kv_columns
    return (queries_keys_values if model.qkv_bias else 0) + (model.d_model if model.bias else 0)
