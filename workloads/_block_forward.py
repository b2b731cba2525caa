"""The forward operator graph of one transformer block on one tensor-parallel device.

Megatron's split (Shoeybi et al. 2019, arXiv:1909.08053, section 3): queries, keys, values and the feed-forward input
are cut by columns, attention projection and feed-forward output by rows; an all-reduce follows each row-cut product.
A bias alone is preloaded into the accumulators and costs no vector work.

What is kept for the backward pass is counted at the operator that writes it; the block's input at the first operator
that reads it; the block's output at the next layer. Summed, a GPT block gives Korthikanti et al. 2022
(arXiv:2205.05198), equations 1 and 2.
"""

from archplace.workloads import _vector
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._shard import Shard
from archplace.workloads.model import Positions
from archplace.workloads.operators import Gemm, Operator, Phase, VectorWork
from archplace.workloads.precision import MASK_BYTES


def block_forward(shard: Shard) -> tuple[Operator, ...]:
    """The operators of one block, each after its inputs."""
    model = shard.model
    graph = Graph(shard, Phase.FORWARD)
    hidden = shard.hidden_bytes
    if model.norm_first:
        normed = _norm(graph, shard, "attention_norm", OUTSIDE, stash_bytes=2 * hidden)
        attended = _attention(graph, shard, normed, input_stash_bytes=0)
        joined = _row_parallel(graph, shard, "projection", shard.query_width, attended, OUTSIDE, stash_bytes=hidden)
        normed = _norm(graph, shard, "mlp_norm", joined, stash_bytes=hidden)
        activated = _mlp_inward(graph, shard, normed)
        _row_parallel(graph, shard, "ffn_out", shard.ff_width, activated, joined, stash_bytes=0)
    else:
        attended = _attention(graph, shard, OUTSIDE, input_stash_bytes=hidden)
        joined = _row_parallel(graph, shard, "projection", shard.query_width, attended, OUTSIDE, stash_bytes=hidden)
        normed = _norm(graph, shard, "attention_norm", joined, stash_bytes=hidden)
        activated = _mlp_inward(graph, shard, normed)
        joined = _row_parallel(graph, shard, "ffn_out", shard.ff_width, activated, normed, stash_bytes=hidden)
        _norm(graph, shard, "mlp_norm", joined, stash_bytes=0)
    return graph.operators


def rotation(shard: Shard, columns: int, rotated_columns: int) -> VectorWork | None:
    """The epilogue that turns ``rotated_columns`` of a product's ``columns``; None where positions are not rotary."""
    if shard.model.positions is not Positions.ROPE:
        return None
    table_bytes = shard.sequence_length * shard.model.head_dim * shard.element_bytes  # cosines and sines, half each
    return VectorWork(
        rows=shard.tokens,
        row_length=columns,
        operations_per_element=_vector.ROTATION * rotated_columns / columns,
        read_bytes=table_bytes,
        write_bytes=shard.tokens * columns * shard.element_bytes,
    )


def _norm(graph: Graph, shard: Shard, name: str, source: str, *, stash_bytes: int) -> str:
    model = shard.model
    work = _vector.norm(model.norm, shard.tokens, model.d_model, shard.element_bytes)
    return graph.vector(name, work, source, parameters=model.norm_parameters, stash_bytes=stash_bytes)


def _attention(graph: Graph, shard: Shard, source: str, *, input_stash_bytes: int) -> str:
    """Queries, keys, values, and what attention makes of them, before the projection."""
    model, e = shard.model, shard.element_bytes
    query, key_value, bias = shard.query_width, shard.kv_width, model.qkv_bias

    def linear(name: str, columns: int, rotated: int, input_stash_bytes: int = 0) -> str:
        return graph.product(
            name,
            Gemm(m=shard.tokens, n=columns, k=model.d_model),
            source,
            epilogue=rotation(shard, columns, rotated) if rotated else None,
            parameters=(model.d_model + (1 if bias else 0)) * columns,
            stash_bytes=shard.tokens * columns * e + input_stash_bytes,
        )

    if model.fused_qkv:
        q = k = v = linear("qkv", query + 2 * key_value, query + key_value, input_stash_bytes)
    else:
        q = linear("query", query, query, input_stash_bytes)
        k = linear("key", key_value, key_value)
        v = linear("value", key_value, 0)

    batch, rows, s = shard.attention_batch, shard.attention_rows, shard.sequence_length
    dropout = model.attention_dropout > 0
    scores = graph.product("scores", Gemm(batch=batch, m=rows, n=s, k=model.head_dim), *dict.fromkeys((q, k)))
    probabilities = graph.vector(
        "softmax",
        _vector.softmax(batch * rows, s, e, dropout=dropout),
        scores,
        stash_bytes=batch * rows * s * (2 * e + MASK_BYTES if dropout else e),
    )
    return graph.product(
        "context",
        Gemm(batch=batch, m=rows, n=model.head_dim, k=s),
        probabilities,
        v,
        stash_bytes=shard.tokens * query * e,
    )


def _mlp_inward(graph: Graph, shard: Shard, source: str) -> str:
    """The feed-forward part up to its activation."""
    model, e = shard.model, shard.element_bytes
    tokens, width = shard.tokens, shard.ff_width
    gemm = Gemm(m=tokens, n=width, k=model.d_model)
    parameters = (model.d_model + (1 if model.bias else 0)) * width
    inner = tokens * width * e
    if model.gated_mlp:
        gate = graph.product("gate", gemm, source, parameters=parameters, stash_bytes=inner)
        up = graph.product("up", gemm, source, parameters=parameters, stash_bytes=inner)
        work = _vector.gated_activation(model.activation, tokens, width, e)
        return graph.vector("activation", work, gate, up, stash_bytes=inner)
    kept = 2 if _vector.keeps_input(model.activation) else 1
    epilogue = _vector.elementwise(
        tokens,
        width,
        _vector.activation_operations(model.activation),
        read_bytes_per_element=0,
        write_bytes_per_element=kept * e,
    )
    return graph.product("ffn_in", gemm, source, epilogue=epilogue, parameters=parameters, stash_bytes=kept * inner)


def _row_parallel(
    graph: Graph, shard: Shard, name: str, width: int, source: str, residual: str, *, stash_bytes: int
) -> str:
    """A row-cut linear layer, its all-reduce, bias, dropout, and the sum with the residual.

    On one device the epilogue of the product applies bias and dropout. Behind an all-reduce only the sum can. The
    residual that comes from outside the block and the product are the sum's two inputs.
    """
    model, e = shard.model, shard.element_bytes
    tokens, d = shard.tokens, model.d_model
    alone = shard.tensor_parallel == 1
    dropout = model.dropout > 0
    mask_bytes = tokens * d * MASK_BYTES if dropout else 0
    masking = _vector.elementwise(
        tokens, d, _vector.DROPOUT, read_bytes_per_element=0, write_bytes_per_element=e + MASK_BYTES
    )
    product = graph.product(
        name,
        Gemm(m=tokens, n=d, k=width),
        source,
        epilogue=masking if alone and dropout else None,
        parameters=width * d + (d if model.bias else 0),
        stash_bytes=mask_bytes if alone else 0,
    )
    reduced = graph.collective(f"{name}.all_reduce", shard.hidden_bytes, product)
    behind = not alone
    work = _vector.elementwise(
        tokens,
        d,
        1 + (behind and model.bias) + (_vector.DROPOUT if behind and dropout else 0),
        read_bytes_per_element=2 * e,
        write_bytes_per_element=e + (MASK_BYTES if behind and dropout else 0),
    )
    return graph.vector(
        f"{name}.residual", work, reduced, residual, stash_bytes=stash_bytes + (mask_bytes if behind else 0)
    )
