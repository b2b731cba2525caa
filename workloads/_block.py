"""The operator graphs of one transformer block on one device: norms and residual sums around its parts.

A part stands between a norm and the sum with the residual: attention, in some decoders attention to an encoder's
output, then the feed-forward part or experts. With sequence parallelism norms and sums see the device's share of the
tokens (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2). The gradients of the norms' gains, which the
tensor-parallel group must then sum once per step, are not counted.

What is kept for the backward pass is counted at the operator that writes it; the block's input at the first operator
that reads it; the block's output at the next layer. Summed, a GPT block gives Korthikanti et al. 2022, equations 1, 2
and 4. Nothing but weight gradients waits for a weight gradient. The last other operator of the backward graph gives the
gradient of the block's input.
"""

from archplace.workloads._attention import attention_backward, attention_forward
from archplace.workloads._cross_attention import cross_attention_backward, cross_attention_forward
from archplace.workloads._experts import experts_backward, experts_forward
from archplace.workloads._feed_forward import feed_forward_backward, feed_forward_forward
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._latent_attention import latent_attention_backward, latent_attention_forward
from archplace.workloads._prediction import merge_backward, merge_forward
from archplace.workloads._residual import join, norm, norm_gradient
from archplace.workloads._shard import Shard
from archplace.workloads.model_parts import Block
from archplace.workloads.operators import Phase


def block_forward(shard: Shard, block: Block, encoder: Shard | None = None) -> Graph:
    """The operators of one block, each after its inputs; ``encoder`` is the shard of what cross attention reads."""
    graph = Graph(shard, Phase.FORWARD)
    kept = shard.boundary_bytes
    # of a tensor that only linear layers read, where they do not keep what they cast of it; a router keeps it as it is
    read_bytes = shard.row_tokens * shard.model.d_model * shard.kept_element_bytes
    inner_bytes = kept if block.has_experts else read_bytes
    if not shard.model.norm_first:
        joined = _attention_forward(graph, shard, OUTSIDE, OUTSIDE, input_stash_bytes=read_bytes, sum_stash_bytes=kept)
        normed = norm(graph, shard, "attention_norm", joined, stash_bytes=inner_bytes)
        joined = _inner_forward(graph, shard, block, normed, normed, sum_stash_bytes=kept)
        norm(graph, shard, "mlp_norm", joined, stash_bytes=0)
        return graph
    source = merge_forward(graph, shard) if block.prediction else OUTSIDE
    normed = norm(graph, shard, "attention_norm", source, stash_bytes=kept + read_bytes)
    joined = _attention_forward(graph, shard, normed, source, input_stash_bytes=0, sum_stash_bytes=kept)
    if block.cross_attention:
        assert encoder is not None
        normed = norm(graph, shard, "cross_norm", joined, stash_bytes=read_bytes)
        joined = cross_attention_forward(graph, shard, encoder, normed, joined, sum_stash_bytes=kept)
    normed = norm(graph, shard, "mlp_norm", joined, stash_bytes=inner_bytes)
    _inner_forward(graph, shard, block, normed, joined, sum_stash_bytes=0)
    return graph


def block_backward(shard: Shard, block: Block, encoder: Shard | None = None) -> Graph:
    """The operators of one block's gradients, each after its inputs."""
    graph = Graph(shard, Phase.DATA_GRADIENT)
    if not shard.model.norm_first:
        joined = norm_gradient(graph, shard, "mlp_norm", OUTSIDE)
        inner = _inner_backward(graph, shard, block, joined)
        joined = join(graph, shard, "ffn_out", inner, joined)
        joined = norm_gradient(graph, shard, "attention_norm", joined)
        inner = _attention_backward(graph, shard, joined)
        join(graph, shard, "projection", inner, joined)
        return graph
    inner = _inner_backward(graph, shard, block, OUTSIDE)
    joined = join(graph, shard, "ffn_out", (norm_gradient(graph, shard, "mlp_norm", *inner),), OUTSIDE)
    if block.cross_attention:
        assert encoder is not None
        inner = cross_attention_backward(graph, shard, encoder, joined)
        joined = join(graph, shard, "cross_projection", (norm_gradient(graph, shard, "cross_norm", *inner),), joined)
    inner = _attention_backward(graph, shard, joined)
    joined = join(graph, shard, "projection", (norm_gradient(graph, shard, "attention_norm", *inner),), joined)
    if block.prediction:
        merge_backward(graph, shard, joined)
    return graph


def _attention_forward(
    graph: Graph, shard: Shard, source: str, residual: str, *, input_stash_bytes: int, sum_stash_bytes: int
) -> str:
    """Add the block's own attention, and its sum with ``residual``; return the sum."""
    forward = attention_forward if shard.model.latent_attention is None else latent_attention_forward
    return forward(graph, shard, source, residual, input_stash_bytes=input_stash_bytes, sum_stash_bytes=sum_stash_bytes)


def _attention_backward(graph: Graph, shard: Shard, gradient: str) -> tuple[str, ...]:
    """Add the gradients of the block's own attention; return that of its source."""
    backward = attention_backward if shard.model.latent_attention is None else latent_attention_backward
    return backward(graph, shard, gradient)


def _inner_forward(
    graph: Graph, shard: Shard, block: Block, source: str, residual: str, *, sum_stash_bytes: int
) -> str:
    """Add what stands behind the second norm, and its sum with ``residual``; return the sum."""
    if block.has_experts:
        return experts_forward(graph, shard, source, residual, sum_stash_bytes=sum_stash_bytes)
    return feed_forward_forward(graph, shard, source, residual, width=shard.ff_width, sum_stash_bytes=sum_stash_bytes)


def _inner_backward(graph: Graph, shard: Shard, block: Block, gradient: str) -> tuple[str, ...]:
    """Add the gradients of what stands behind the second norm; return that of its source."""
    if block.has_experts:
        return experts_backward(graph, shard, gradient)
    return feed_forward_backward(graph, shard, gradient, width=shard.ff_width)
