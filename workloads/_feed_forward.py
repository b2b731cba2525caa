"""The dense feed-forward part of a block on one device: what stands between a norm and a sum with the residual.

The input layers are cut by columns, the output layer by rows (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
"""

from archplace.workloads import _vector
from archplace.workloads._graph import Graph, piece_names
from archplace.workloads._linear import column_cut, column_cut_gradients, enter, row_cut, row_cut_gradients
from archplace.workloads._shard import Shard


def feed_forward_forward(
    graph: Graph, shard: Shard, source: str, residual: str, *, width: int, sum_stash_bytes: int, prefix: str = ""
) -> str:
    """Add the feed-forward part on ``source``, which is kept elsewhere, and its sum with ``residual``; return the sum.

    ``width`` are its columns on this device; ``prefix`` stands before the operators' names; ``sum_stash_bytes`` are
    kept of the sum.
    """
    model, e = shard.model, shard.element_bytes
    inner = shard.tokens * width * e
    activated_bytes = shard.tokens * width * shard.kept_element_bytes
    sources = enter(graph, shard, f"{prefix}mlp_input", source)
    if model.gated_mlp:
        gate = column_cut(graph, shard, f"{prefix}gate", width, sources, bias=model.bias, stash_bytes=inner)
        up = column_cut(graph, shard, f"{prefix}up", width, sources, bias=model.bias, stash_bytes=inner)
        work = _vector.part(_vector.gated_activation(model.activation, shard.tokens, width, e), len(sources))
        activated = tuple(
            graph.vector(name, work, one, other, stash_bytes=activated_bytes if i == 0 else 0)
            for i, (name, one, other) in enumerate(
                zip(piece_names(f"{prefix}activation", len(sources)), gate, up, strict=True)
            )
        )
    else:
        keeps_input = _vector.keeps_input(model.activation)
        epilogue = _vector.elementwise(
            shard.tokens,
            width,
            _vector.activation_operations(model.activation),
            read_bytes_per_element=0,
            write_bytes_per_element=(2 if keeps_input else 1) * e,
        )
        activated = column_cut(
            graph,
            shard,
            f"{prefix}ffn_in",
            width,
            sources,
            bias=model.bias,
            epilogue=epilogue,
            stash_bytes=(inner if keeps_input else 0) + activated_bytes,
        )
    return row_cut(graph, shard, f"{prefix}ffn_out", width, activated, residual, stash_bytes=sum_stash_bytes)


def feed_forward_backward(
    graph: Graph, shard: Shard, gradient: str, *, width: int, prefix: str = ""
) -> tuple[str, ...]:
    """Add the gradients of the feed-forward part, from that of the sum; return the gradient of its source."""
    model, e, tokens = shard.model, shard.element_bytes, shard.tokens
    gradients = row_cut_gradients(graph, shard, f"{prefix}ffn_out", width, gradient)
    if model.gated_mlp:
        work = _vector.gated_activation_gradient(model.activation, tokens, width, e)
        names: tuple[str, ...] = (f"{prefix}gate", f"{prefix}up")
    else:
        work = _vector.activation_gradient(model.activation, tokens, width, e)
        names = (f"{prefix}ffn_in",)
    pieces = len(gradients)
    inner = tuple(
        graph.vector(name, _vector.part(work, pieces), one)
        for name, one in zip(piece_names(f"{prefix}activation.gradient", pieces), gradients, strict=True)
    )
    layers = tuple((name, width, inner) for name in names)
    return column_cut_gradients(graph, shard, f"{prefix}mlp_input", layers, in_pieces=pieces > 1)
