"""Attention with its projections on one device: the part of a block between a norm and a sum with the residual.

Queries, keys and values are cut by columns, whole heads on each device, and the projection behind them by rows (Shoeybi
et al. 2019, arXiv:1909.08053, section 3). A bias alone is preloaded into the accumulators and costs no vector work.
"""

from archplace.workloads import _vector
from archplace.workloads._attention_core import core_backward, core_forward
from archplace.workloads._attention_sizes import AttentionCore
from archplace.workloads._graph import Graph
from archplace.workloads._linear import column_cut, column_cut_gradients, enter, row_cut, row_cut_gradients
from archplace.workloads._shard import Shard
from archplace.workloads.model import Positions
from archplace.workloads.operators import VectorWork


def attention_forward(
    graph: Graph, shard: Shard, source: str, residual: str, *, input_stash_bytes: int, sum_stash_bytes: int
) -> str:
    """Add attention on ``source`` and its sum with ``residual``; return the sum.

    ``input_stash_bytes`` are kept of the source where nothing before has kept it, ``sum_stash_bytes`` of the sum.
    """
    model = shard.model
    query, key_value = shard.query_width, shard.kv_width
    sources = enter(graph, shard, "attention_input", source)

    def linear(name: str, columns: int, rotated: int, input_stash_bytes: int = 0) -> tuple[str, ...]:
        return column_cut(
            graph,
            shard,
            name,
            columns,
            sources,
            bias=model.qkv_bias,
            epilogue=rotation(shard, columns, rotated) if rotated else None,
            stash_bytes=shard.tokens * columns * shard.element_bytes + input_stash_bytes,
        )

    if model.fused_qkv:
        q = k = v = linear("qkv", query + 2 * key_value, query + key_value, input_stash_bytes)
    else:
        q = linear("query", query, query, input_stash_bytes)
        k = linear("key", key_value, key_value)
        v = linear("value", key_value, 0)
    context = core_forward(graph, attention_core(shard), q, k, v)
    return row_cut(graph, shard, "projection", query, (context,), residual, stash_bytes=sum_stash_bytes)


def attention_backward(graph: Graph, shard: Shard, gradient: str) -> tuple[str, ...]:
    """Add the gradients of attention, from that of the sum; return the gradient of its source."""
    query_width, kv_width = shard.query_width, shard.kv_width
    gradients = row_cut_gradients(graph, shard, "projection", query_width, gradient)
    # rotary positions turn back as the gradients of the rotated queries and keys leave their products
    query, key, value = core_backward(
        graph,
        attention_core(shard),
        gradients,
        query_epilogue=rotation(shard, query_width, query_width),
        key_epilogue=rotation(shard, kv_width, kv_width),
    )
    if shard.model.fused_qkv:
        layers: tuple[tuple[str, int, tuple[str, ...]], ...] = (
            ("qkv", query_width + 2 * kv_width, (query, key, value)),
        )
    else:
        layers = (("query", query_width, (query,)), ("key", kv_width, (key,)), ("value", kv_width, (value,)))
    return column_cut_gradients(graph, shard, "attention_input", layers)


def attention_core(shard: Shard) -> AttentionCore:
    """The core of a block's self-attention."""
    model = shard.model
    return AttentionCore(
        batch=shard.microbatch * model.n_kv_heads // shard.tensor_parallel,
        heads_per_key_head=model.heads_per_kv_head,
        queries=shard.local_length,
        keys=shard.sequence_length,
        head_dim=model.head_dim,
        value_dim=model.head_dim,
        element_bytes=shard.element_bytes,
        dropout=model.attention_dropout > 0,
        causal=shard.causal,
        fused=shard.fused_attention,
        context=shard.sharding.context,
        keeps_context=not shard.casts,
        context_kind=shard.sharding.context_kind,
        position_bias_bytes=shard.position_bias_bytes,
    )


def rotation(shard: Shard, columns: int, rotated_columns: int) -> VectorWork | None:
    """The epilogue that turns ``rotated_columns`` of a product's ``columns``; None where positions are not rotary."""
    if shard.model.positions is not Positions.ROPE:
        return None
    table_bytes = shard.local_length * shard.model.head_dim * shard.element_bytes  # cosines and sines, half each
    return VectorWork(
        rows=shard.tokens,
        row_length=columns,
        operations_per_element=_vector.ROTATION * rotated_columns / columns,
        read_bytes=table_bytes,
        write_bytes=shard.tokens * columns * shard.element_bytes,
    )
