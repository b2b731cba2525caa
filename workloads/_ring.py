"""Ring attention: keys and values travel round a context-parallel group, each step behind the attention of the last.

Each of the group's members computes its queries on its own keys, then on those that arrive from its neighbour, and so
on (Liu, Zaharia and Abbeel 2023, arXiv:2310.01889, section 3). A block of keys and values is sent context − 1 times
forward. Backward the ring starts with the block that the forward pass ended with, so that the last one is a member's
own: keys and values are sent context − 1 times again, and so are their gradients, each hop after the sum with what the
member adds. The arrivals of one direction and its attentions overlap as far as their dependencies allow.

With a causal mask and the mirrored shares of :mod:`_attention_core` every step computes half of its scores. Context,
statistics and the queries' gradient are read and written again at each step.
"""

from archplace.workloads import _fused_attention, _vector
from archplace.workloads._attention_sizes import AttentionCore
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads.operators import Axis, CollectiveKind


def ring_forward(graph: Graph, core: AttentionCore, query: tuple[str, ...], keys: tuple[str, ...]) -> str:
    """Add the steps behind the pieces of queries and of keys and values; return the context."""
    local = core.keys // core.context
    attention = _fused_attention.products(core, local)
    held, context = keys, OUTSIDE
    for step in range(core.context):
        if step:
            held = (_send(graph, core, f"{core.prefix}keys.{step}", *held),)
        last = step == core.context - 1
        context = graph.fused_attention(
            f"{core.prefix}attention.{step}",
            attention,
            _fused_attention.forward_work(core, local, accumulates=step > 0),
            *query,
            *held,
            context,
            stash_bytes=core.kept_bytes if last else 0,
        )
    return context


def ring_backward(graph: Graph, core: AttentionCore, gradients: tuple[str, ...]) -> tuple[str, str]:
    """Add the steps behind the pieces of the context's gradient; return the gradients of queries, and of keys with
    values."""
    local = core.keys // core.context
    attention = _fused_attention.products(core, local, gradients=True)
    addition = _vector.addition(core.batch * local, core.head_dim + core.value_dim, core.element_bytes)
    held = query = key = OUTSIDE
    for step in range(core.context):
        if step:
            held = _send(graph, core, f"{core.prefix}keys.saved.{step}", held)
        query = graph.fused_attention(
            f"{core.prefix}attention.gradient.{step}",
            attention,
            _fused_attention.backward_work(core, local, accumulates=step > 0),
            *gradients,
            held,
            query,
        )
        if step:
            arrived = _send(graph, core, f"{core.prefix}keys_gradient.{step}", key)
            key = graph.vector(f"{core.prefix}keys_gradient.{step}.sum", addition, query, arrived)
        else:
            key = query
    return query, key


def _send(graph: Graph, core: AttentionCore, name: str, *inputs: str) -> str:
    """One hop of one member's keys and values, or of their gradients."""
    payload = core.keys_bytes // core.context
    return graph.collective(name, payload, *inputs, kind=CollectiveKind.POINT_TO_POINT, axis=Axis.CONTEXT)
