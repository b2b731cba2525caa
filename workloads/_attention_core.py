"""The core of attention on one device: scores, softmax and context, and their gradients.

The queries of all heads that share a key head form one product with it. Without fusion the scores of all positions are
computed, masked ones included; fused attention skips the tiles that a causal mask hides, which is half of them.

The members of a context-parallel group hold equal shares of the sequence. Behind a causal mask a member's share is two
pieces, one from the front and its mirror image from the back, so that all members compute as many scores (Dubey et al.
2024, arXiv:2407.21783, section 3.3.2). Keys and values are either gathered, and gathered again for the gradients, whose
sums are scattered; or they travel round a ring (Liu, Zaharia and Abbeel 2023, arXiv:2310.01889): :mod:`_ring`.
"""

from dataclasses import replace

from archplace.workloads import _fused_attention, _ring, _vector
from archplace.workloads._attention_sizes import AttentionCore
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads.operators import Axis, CollectiveKind, Gemm, Phase, VectorWork
from archplace.workloads.precision import MASK_BYTES


def core_forward(
    graph: Graph, core: AttentionCore, query: tuple[str, ...], key: tuple[str, ...], value: tuple[str, ...]
) -> str:
    """Add the core behind the pieces of queries, keys and values (which may be the same); return the context."""
    if core.is_ring:
        return _ring.ring_forward(graph, core, query, (*key, *value))
    if core.context > 1:
        key = value = (
            graph.collective(
                f"{core.prefix}keys.all_gather",
                core.keys_bytes,
                *key,
                *value,
                kind=CollectiveKind.ALL_GATHER,
                axis=Axis.CONTEXT,
            ),
        )
    if core.fused:
        work = _fused_attention.forward_work(core, core.keys)
        attention = _fused_attention.products(core, core.keys)
        inputs = (*query, *key, *value)
        return graph.fused_attention(f"{core.prefix}attention", attention, work, *inputs, stash_bytes=core.kept_bytes)
    batch, rows, e = core.batch, core.rows, core.element_bytes
    scores = graph.product(
        f"{core.prefix}scores", Gemm(batch=batch, m=rows, n=core.keys, k=core.head_dim), *query, *key
    )
    probability_bytes = batch * rows * core.keys * (2 * e + MASK_BYTES if core.dropout else e)
    softmax = _vector.softmax(batch * rows, core.keys, e, dropout=core.dropout)
    # adding a position bias takes the operation that hides a position otherwise
    softmax = replace(softmax, read_bytes=softmax.read_bytes + core.position_bias_bytes)
    probabilities = graph.vector(
        f"{core.prefix}softmax",
        softmax,
        scores,
        stash_bytes=probability_bytes,
    )
    context = graph.product(
        f"{core.prefix}context",
        Gemm(batch=batch, m=rows, n=core.value_dim, k=core.keys),
        probabilities,
        *value,
        stash_bytes=core.kept_bytes,
    )
    graph.recomputed(scores)
    graph.recomputed(probabilities, dropped_bytes=probability_bytes)
    return graph.recomputed(context)


def core_backward(
    graph: Graph,
    core: AttentionCore,
    gradients: tuple[str, ...],
    *,
    query_epilogue: VectorWork | None,
    key_epilogue: VectorWork | None,
) -> tuple[str, str, str]:
    """Add the core's gradients behind those of the context; return the gradients of queries, keys and values.

    The epilogues are what happens to the gradients of this device's queries and keys on their way out.
    """
    if core.is_ring:
        query, key = _ring.ring_backward(graph, core, gradients)
        return (
            _behind(graph, f"{core.prefix}query.rotation_gradient", query, query_epilogue),
            _behind(graph, f"{core.prefix}key.rotation_gradient", key, key_epilogue),
            key,
        )
    gathered = (OUTSIDE,)
    if core.context > 1:
        gathered = (
            graph.collective(
                f"{core.prefix}keys.saved_all_gather",
                core.keys_bytes,
                OUTSIDE,
                kind=CollectiveKind.ALL_GATHER,
                axis=Axis.CONTEXT,
            ),
        )
    if core.fused:
        work = _fused_attention.backward_work(core, core.keys)
        attention = _fused_attention.products(core, core.keys, gradients=True)
        query = graph.fused_attention(f"{core.prefix}attention.gradient", attention, work, *gradients, *gathered)
        key = value = query
        query = _behind(graph, f"{core.prefix}query.rotation_gradient", query, query_epilogue)
    else:
        own = core.context == 1
        query, key, value = _products_backward(
            graph, core, gradients, gathered, query_epilogue, key_epilogue if own else None
        )
        if own:
            return query, key, value
    if core.context > 1:
        key = value = graph.collective(
            f"{core.prefix}keys.gradient_reduce_scatter",
            core.keys_bytes,
            *dict.fromkeys((key, value)),
            kind=CollectiveKind.REDUCE_SCATTER,
            axis=Axis.CONTEXT,
        )
    return query, _behind(graph, f"{core.prefix}key.rotation_gradient", key, key_epilogue), value


def _products_backward(
    graph: Graph,
    core: AttentionCore,
    gradients: tuple[str, ...],
    gathered: tuple[str, ...],
    query_epilogue: VectorWork | None,
    key_epilogue: VectorWork | None,
) -> tuple[str, str, str]:
    """The gradients of queries, keys and values where scores are kept."""
    batch, rows, keys, e = core.batch, core.rows, core.keys, core.element_bytes
    # context = P · V: of V, one product per key head sums over all query rows that share it
    value = graph.product(
        f"{core.prefix}context.value_gradient", Gemm(batch=batch, m=keys, n=core.value_dim, k=rows), *gradients
    )
    probabilities = graph.product(
        f"{core.prefix}context.probability_gradient",
        Gemm(batch=batch, m=rows, n=keys, k=core.value_dim),
        *gradients,
        *gathered,
    )
    softmax = _vector.softmax_gradient(batch * rows, keys, e, dropout=core.dropout)
    scores = graph.vector(f"{core.prefix}softmax.gradient", softmax, probabilities)
    if core.position_bias_bytes:
        score_bytes = batch * rows * keys * e
        work = VectorWork(
            rows=batch * rows,
            row_length=keys,
            operations_per_element=1,
            read_bytes=score_bytes + core.position_bias_bytes,
            write_bytes=core.position_bias_bytes,
        )
        graph.vector(f"{core.prefix}position_bias.gradient", work, scores, phase=Phase.WEIGHT_GRADIENT)
    query = graph.product(
        f"{core.prefix}scores.query_gradient",
        Gemm(batch=batch, m=rows, n=core.head_dim, k=keys),
        scores,
        *gathered,
        epilogue=query_epilogue,
    )
    key = graph.product(
        f"{core.prefix}scores.key_gradient",
        Gemm(batch=batch, m=keys, n=core.head_dim, k=rows),
        scores,
        epilogue=key_epilogue,
    )
    return query, key, value


def _behind(graph: Graph, name: str, source: str, epilogue: VectorWork | None) -> str:
    """The epilogue as work of its own behind ``source``, which passes where there is none."""
    return source if epilogue is None else graph.vector(name, _vector.alone(epilogue), source)
