"""What stands around the parts of a block on one device: norms of the activation between layers, and residual sums."""

from archplace.workloads import _vector
from archplace.workloads._graph import Graph
from archplace.workloads._shard import Shard


def norm(graph: Graph, shard: Shard, name: str, source: str, *, stash_bytes: int) -> str:
    """Add a norm of the activation between layers."""
    model = shard.model
    work = _vector.norm(model.norm, shard.row_tokens, model.d_model, shard.element_bytes)
    return graph.vector(name, work, source, parameters=model.norm_parameters, stash_bytes=stash_bytes)


def norm_gradient(graph: Graph, shard: Shard, name: str, *gradients: str) -> str:
    """Add the gradient of a norm's input, gain and bias, from the pieces of its output's gradient."""
    work = _vector.norm_gradient(shard.model.norm, shard.row_tokens, shard.model.d_model, shard.element_bytes)
    return graph.vector(f"{name}.gradient", work, *gradients)


def join(graph: Graph, shard: Shard, name: str, inner: tuple[str, ...], around: str) -> str:
    """Add the sum of the gradients that came through a part, in pieces, and around it."""
    work = _vector.addition(shard.row_tokens, shard.model.d_model, shard.element_bytes)
    return graph.vector(f"{name}.residual.gradient", work, *inner, around)
