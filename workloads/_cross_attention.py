"""Attention of a decoder block to the encoder's output, on one device (Vaswani et al. 2017, arXiv:1706.03762, 3.2.3).

Cut as a block's own attention is: queries, keys and values by columns, the projection by rows. Queries are those of the
target sequence, keys and values those of the encoder's output, which enters every decoder block from outside and leaves
it unchanged; with sequence parallelism a device has its share of it, gathered before the products. Its gradient is
summed from block to block on the way back.
"""

from archplace.workloads import _vector
from archplace.workloads._attention_core import core_backward, core_forward
from archplace.workloads._attention_sizes import AttentionCore
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._linear import column_cut, column_cut_gradients, enter, row_cut, row_cut_gradients
from archplace.workloads._shard import Shard


def cross_attention_forward(
    graph: Graph, shard: Shard, encoder: Shard, source: str, residual: str, *, sum_stash_bytes: int
) -> str:
    """Add the attention of ``source``, which is kept elsewhere, and its sum with ``residual``; return the sum.

    ``shard`` is that of the target sequence, ``encoder`` that of the encoder's. ``sum_stash_bytes`` are kept of the
    sum.
    """
    query, key_value, e, bias = shard.query_width, shard.kv_width, shard.element_bytes, shard.model.qkv_bias
    sources = enter(graph, shard, "cross_input", source)
    q = column_cut(graph, shard, "cross_query", query, sources, bias=bias, stash_bytes=shard.tokens * query * e)
    encoded = enter(graph, encoder, "encoded", OUTSIDE)
    kept = encoder.tokens * key_value * e
    k = column_cut(graph, encoder, "cross_key", key_value, encoded, bias=bias, stash_bytes=kept)
    v = column_cut(graph, encoder, "cross_value", key_value, encoded, bias=bias, stash_bytes=kept)
    context = core_forward(graph, _core(shard, encoder), q, k, v)
    return row_cut(graph, shard, "cross_projection", query, (context,), residual, stash_bytes=sum_stash_bytes)


def cross_attention_backward(graph: Graph, shard: Shard, encoder: Shard, gradient: str) -> tuple[str, ...]:
    """Add the gradients of the attention, from that of the sum; return the gradient of its source.

    That of the encoder's output is summed with what the blocks behind have made of it.
    """
    gradients = row_cut_gradients(graph, shard, "cross_projection", shard.query_width, gradient)
    query, key, value = core_backward(graph, _core(shard, encoder), gradients, query_epilogue=None, key_epilogue=None)
    layers = (("cross_key", shard.kv_width, (key,)), ("cross_value", shard.kv_width, (value,)))
    encoded = column_cut_gradients(graph, encoder, "encoded", layers)
    work = _vector.addition(encoder.row_tokens, encoder.model.d_model, encoder.element_bytes)
    graph.vector("encoded.residual.gradient", work, *encoded, OUTSIDE)
    return column_cut_gradients(graph, shard, "cross_input", (("cross_query", shard.query_width, (query,)),))


def _core(shard: Shard, encoder: Shard) -> AttentionCore:
    model = shard.model
    return AttentionCore(
        batch=shard.microbatch * model.n_kv_heads // shard.tensor_parallel,
        heads_per_key_head=model.heads_per_kv_head,
        queries=shard.local_length,
        keys=encoder.sequence_length,
        head_dim=model.head_dim,
        value_dim=model.head_dim,
        element_bytes=shard.element_bytes,
        dropout=model.attention_dropout > 0,
        causal=False,
        fused=shard.fused_attention,
        context=shard.sharding.context,
        context_kind=shard.sharding.context_kind,
        keeps_context=not shard.casts,
        prefix="cross_",
    )
