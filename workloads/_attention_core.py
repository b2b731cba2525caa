"""The core of attention on one device: scores, softmax and context, and their gradients.

The queries of all heads that share a key head form one product with it. Everything here is inside one device's heads.
"""

from dataclasses import dataclass

from archplace.workloads import _vector
from archplace.workloads._graph import Graph
from archplace.workloads.operators import Gemm, VectorWork
from archplace.workloads.precision import MASK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCore:
    """The sizes of one attention on one device."""

    batch: int
    """Independent attentions: one per sequence and key head."""
    heads_per_key_head: int
    queries: int
    """Tokens of one sequence whose queries the device holds."""
    keys: int
    """Tokens of a whole sequence of keys and values."""
    head_dim: int
    """Elements of a query or key head."""
    value_dim: int
    """Elements of a value head."""
    element_bytes: int
    dropout: bool
    prefix: str = ""
    """Stands before the operators' names, where a block has more than one attention."""

    @property
    def rows(self) -> int:
        """Query rows of one product: those of every head that shares the key head."""
        return self.queries * self.heads_per_key_head


def core_forward(
    graph: Graph, core: AttentionCore, query: tuple[str, ...], key: tuple[str, ...], value: tuple[str, ...]
) -> str:
    """Add the core behind the pieces of queries, keys and values (which may be the same); return the context."""
    batch, rows, e = core.batch, core.rows, core.element_bytes
    scores = graph.product(
        f"{core.prefix}scores", Gemm(batch=batch, m=rows, n=core.keys, k=core.head_dim), *query, *key
    )
    probability_bytes = batch * rows * core.keys * (2 * e + MASK_BYTES if core.dropout else e)
    probabilities = graph.vector(
        f"{core.prefix}softmax",
        _vector.softmax(batch * rows, core.keys, e, dropout=core.dropout),
        scores,
        stash_bytes=probability_bytes,
    )
    context = graph.product(
        f"{core.prefix}context",
        Gemm(batch=batch, m=rows, n=core.value_dim, k=core.keys),
        probabilities,
        *value,
        stash_bytes=batch * rows * core.value_dim * e,
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

    The epilogues are what happens to the gradients of queries and keys on their way out.
    """
    batch, rows, keys, e = core.batch, core.rows, core.keys, core.element_bytes
    # context = P · V: of V, one product per key head sums over all query rows that share it
    value = graph.product(
        f"{core.prefix}context.value_gradient", Gemm(batch=batch, m=keys, n=core.value_dim, k=rows), *gradients
    )
    probabilities = graph.product(
        f"{core.prefix}context.probability_gradient", Gemm(batch=batch, m=rows, n=keys, k=core.value_dim), *gradients
    )
    softmax = _vector.softmax_gradient(batch * rows, keys, e, dropout=core.dropout)
    scores = graph.vector(f"{core.prefix}softmax.gradient", softmax, probabilities)
    query = graph.product(
        f"{core.prefix}scores.query_gradient",
        Gemm(batch=batch, m=rows, n=core.head_dim, k=keys),
        scores,
        epilogue=query_epilogue,
    )
    key = graph.product(
        f"{core.prefix}scores.key_gradient",
        Gemm(batch=batch, m=keys, n=core.head_dim, k=rows),
        scores,
        epilogue=key_epilogue,
    )
    return query, key, value
