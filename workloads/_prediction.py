"""The start of a module that predicts a further token, on one device (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2).

The activation of the module before it and the embedding of the next token are normed, and one product of both gives
the input of the module's block. As in Megatron-Core the product is cut by columns, which are then gathered. The token
table is the model's; a stage that does not have it keeps a copy, which counts here.
"""

from archplace.workloads._embedding import embed, embed_gradients
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._residual import join, norm, norm_gradient
from archplace.workloads._shard import Shard
from archplace.workloads.operators import CollectiveKind, Gemm, Phase

NEXT = "next_"
"""Stands before the names of the embedding's operators."""


def merge_forward(graph: Graph, shard: Shard) -> str:
    """Add what gives the block's input, and return it."""
    d, both = shard.model.d_model, 2 * shard.hidden_bytes
    kept = 2 * shard.boundary_bytes  # a norm keeps its input and its output
    hidden = norm(graph, shard, "hidden_norm", OUTSIDE, stash_bytes=kept)
    token = norm(graph, shard, "next_norm", embed(graph, shard, prefix=NEXT), stash_bytes=kept)
    sources: tuple[str, ...] = (hidden, token)
    if shard.sharding.sequence:
        kind = CollectiveKind.ALL_GATHER
        sources = (graph.collective(f"merge_input.{kind}", both, hidden, token, kind=kind),)
    columns = graph.product(
        "merge", Gemm(m=shard.tokens, n=shard.d_width, k=2 * d), *sources, parameters=2 * d * shard.d_width
    )
    return graph.collective("merge.all_gather", shard.hidden_bytes, columns, kind=CollectiveKind.ALL_GATHER)


def merge_backward(graph: Graph, shard: Shard, gradient: str) -> str:
    """Add the gradients of all that, from that of the block's input; return that of the module's input.

    The module's input is also what the head reads, whose gradient is added.
    """
    d, both = shard.model.d_model, 2 * shard.hidden_bytes
    gradient = graph.gather_rows("merge.gradient_", shard.hidden_bytes, gradient)
    saved = graph.gather_rows("merge_input.saved_", both, OUTSIDE, phase=Phase.WEIGHT_GRADIENT)
    gradient = graph.linear_gradients("merge", gradient, k=2 * d, n=shard.d_width, rows=shard.tokens, saved=saved)
    gradient = graph.reduce_rows("merge_input.gradient_", both, gradient)
    embed_gradients(graph, shard, norm_gradient(graph, shard, "next_norm", gradient), prefix=NEXT)
    hidden = norm_gradient(graph, shard, "hidden_norm", gradient)
    return join(graph, shard, "hidden", (hidden,), OUTSIDE)
