"""The backward operator graph of one transformer block on one tensor-parallel device.

The mirror of the forward graph: what was cut by rows needs nothing, what was cut by columns needs an all-reduce of its
input's gradient (Shoeybi et al. 2019, arXiv:1909.08053, section 3), after the gradients that meet there are summed.
Nothing waits for a weight gradient. The last operator gives the gradient of the block's input.
"""

from archplace.workloads import _vector
from archplace.workloads._block_forward import rotation
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._shard import Shard
from archplace.workloads.operators import Gemm, Operator, Phase


def block_backward(shard: Shard) -> tuple[Operator, ...]:
    """The operators of one block, each after its inputs."""
    graph = Graph(shard, Phase.DATA_GRADIENT)
    if shard.model.norm_first:
        inner = _mlp_gradient(graph, shard, OUTSIDE)
        inner = _norm_gradient(graph, shard, "mlp_norm", inner)
        joined = _join(graph, shard, "ffn_out", inner, OUTSIDE)
        inner = _attention_gradient(graph, shard, joined)
        inner = _norm_gradient(graph, shard, "attention_norm", inner)
    else:
        joined = _norm_gradient(graph, shard, "mlp_norm", OUTSIDE)
        inner = _mlp_gradient(graph, shard, joined)
        inner = _join(graph, shard, "ffn_out", inner, joined)
        joined = _norm_gradient(graph, shard, "attention_norm", inner)
        inner = _attention_gradient(graph, shard, joined)
    _join(graph, shard, "projection", inner, joined)
    return graph.operators


def _norm_gradient(graph: Graph, shard: Shard, name: str, gradient: str) -> str:
    work = _vector.norm_gradient(shard.model.norm, shard.tokens, shard.model.d_model, shard.element_bytes)
    return graph.vector(f"{name}.gradient", work, gradient)


def _join(graph: Graph, shard: Shard, name: str, inner: str, around: str) -> str:
    """The sum of the gradients that came through a branch and around it."""
    work = _vector.addition(shard.tokens, shard.model.d_model, shard.element_bytes)
    return graph.vector(f"{name}.residual.gradient", work, inner, around)


def _dropout_gradient(graph: Graph, shard: Shard, name: str, gradient: str) -> str:
    """The gradient before the dropout on an output that joins the residual, which is the same where there is none."""
    if not shard.model.dropout:
        return gradient
    work = _vector.dropout_gradient(shard.tokens, shard.model.d_model, shard.element_bytes)
    return graph.vector(f"{name}.dropout.gradient", work, gradient)


def _sum(graph: Graph, shard: Shard, name: str, *gradients: str) -> str:
    """The gradient of a tensor that several linear layers read."""
    if len(gradients) == 1:
        return gradients[0]
    work = _vector.addition(shard.tokens, shard.model.d_model, shard.element_bytes, addends=len(gradients))
    return graph.vector(name, work, *gradients)


def _mlp_gradient(graph: Graph, shard: Shard, gradient: str) -> str:
    """From the gradient of the feed-forward part's output to that of its input, after the all-reduce."""
    model, e = shard.model, shard.element_bytes
    tokens, d, width = shard.tokens, model.d_model, shard.ff_width
    gradient = _dropout_gradient(graph, shard, "ffn_out", gradient)
    gradient = graph.linear_gradients("ffn_out", gradient, k=width, n=d, rows=tokens)
    if model.gated_mlp:
        work = _vector.gated_activation_gradient(model.activation, tokens, width, e)
        names = ["gate", "up"]
    else:
        work = _vector.activation_gradient(model.activation, tokens, width, e)
        names = ["ffn_in"]
    gradient = graph.vector("activation.gradient", work, gradient)
    inputs = [graph.linear_gradients(name, gradient, k=d, n=width, rows=tokens) for name in names]
    total = _sum(graph, shard, "mlp_input.gradient_sum", *inputs)
    return graph.collective("mlp_input.gradient_all_reduce", shard.hidden_bytes, total)


def _attention_gradient(graph: Graph, shard: Shard, gradient: str) -> str:
    """From the gradient of the projected attention output to that of attention's input, after the all-reduce."""
    model, e = shard.model, shard.element_bytes
    tokens, d = shard.tokens, model.d_model
    batch, rows, s, head = shard.attention_batch, shard.attention_rows, shard.sequence_length, model.head_dim
    gradient = _dropout_gradient(graph, shard, "projection", gradient)
    gradient = graph.linear_gradients("projection", gradient, k=shard.query_width, n=d, rows=tokens)
    # context = P · V: of V, one product per key head sums over all query rows that share it
    value = graph.product("context.value_gradient", Gemm(batch=batch, m=s, n=head, k=rows), gradient)
    probabilities = graph.product("context.probability_gradient", Gemm(batch=batch, m=rows, n=s, k=head), gradient)
    softmax = _vector.softmax_gradient(batch * rows, s, e, dropout=model.attention_dropout > 0)
    scores = graph.vector("softmax.gradient", softmax, probabilities)
    # rotary positions turn back as the gradients of the rotated queries and keys leave their products
    query = graph.product(
        "scores.query_gradient",
        Gemm(batch=batch, m=rows, n=head, k=s),
        scores,
        epilogue=rotation(shard, shard.query_width, shard.query_width),
    )
    key = graph.product(
        "scores.key_gradient",
        Gemm(batch=batch, m=s, n=head, k=rows),
        scores,
        epilogue=rotation(shard, shard.kv_width, shard.kv_width),
    )
    if model.fused_qkv:
        columns = shard.query_width + 2 * shard.kv_width
        total = graph.linear_gradients("qkv", query, key, value, k=d, n=columns, rows=tokens)
    else:
        parts = (("query", shard.query_width, query), ("key", shard.kv_width, key), ("value", shard.kv_width, value))
        inputs = [graph.linear_gradients(name, output, k=d, n=width, rows=tokens) for name, width, output in parts]
        total = _sum(graph, shard, "attention_input.gradient_sum", *inputs)
    return graph.collective("attention_input.gradient_all_reduce", shard.hidden_bytes, total)
