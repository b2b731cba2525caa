"""Multi-head latent attention on one device: the part of a block between a norm and a sum with the residual.

The form that training executes (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1 and equations 37 to 47), shared by a
tensor-parallel group as in Megatron-Core: every device has whole downward projections and applies them to the tokens
that it holds outside attention; the upward projections are cut by columns, whole heads on each device. So what is
gathered with sequence parallelism are latents, ``q_lora_rank`` and ``kv_lora_rank + qk_rope_head_dim`` wide, and what
is reduced in the backward pass are their gradients. Without sequence parallelism all devices of the group compute the
downward projections of the same tokens. The sums of the whole projections' weight gradients over the group, once per
step, are not counted. Exchanges of latents are not cut into overlap pieces. Where linear layers read a narrower format,
the input and the normed latents are cast, and gathered as cast; the rotary part of the keys is not.
"""

from dataclasses import replace

from archplace.workloads import _vector
from archplace.workloads._attention import attention_core
from archplace.workloads._attention_core import core_backward, core_forward
from archplace.workloads._attention_sizes import AttentionCore
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._linear import column_cut, column_cut_gradients, row_cut, row_cut_gradients
from archplace.workloads._shard import Shard
from archplace.workloads.model import Norm
from archplace.workloads.model_parts import LatentAttention
from archplace.workloads.operators import Gemm, Phase, VectorWork


def latent_attention_forward(
    graph: Graph, shard: Shard, source: str, residual: str, *, input_stash_bytes: int, sum_stash_bytes: int
) -> str:
    """Add attention on ``source`` and its sum with ``residual``; return the sum.

    ``input_stash_bytes`` are kept of the source where nothing before has kept it, ``sum_stash_bytes`` of the sum.
    """
    latent, e, heads = _latent(shard), shard.element_bytes, _heads(shard)
    columns = heads * latent.qk_head_dim
    kept = shard.tokens * columns * e
    source = graph.cast("attention_input.cast", shard.row_tokens, shard.model.d_model, source, kept=True)
    if latent.q_lora_rank:
        arrived = _down(graph, shard, "query", latent.q_lora_rank, 0, source)
        query: tuple[str, ...] = (
            graph.linear(
                "query_up",
                Gemm(m=shard.tokens, n=columns, k=latent.q_lora_rank),
                arrived,
                epilogue=_rotation(shard),
                parameters=latent.q_lora_rank * columns,
                stash_bytes=kept,
            ),
        )
    else:
        payload = shard.operand_bytes(shard.tokens * shard.model.d_model)
        sources = (graph.gather_rows("attention_input.", payload, source),)
        query = column_cut(
            graph, shard, "query", columns, sources, bias=False, epilogue=_rotation(shard), stash_bytes=kept
        )
    arrived = _down(
        graph,
        shard,
        "key_value",
        latent.kv_lora_rank,
        latent.qk_rope_head_dim,
        source,
        input_stash_bytes=input_stash_bytes,
    )
    width = heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    projected = graph.linear(
        "key_value_up",
        Gemm(m=shard.tokens, n=width, k=latent.kv_lora_rank),
        arrived,
        parameters=latent.kv_lora_rank * width,
        stash_bytes=shard.tokens * heads * latent.v_head_dim * e,
    )
    key = graph.vector("key_join", _join(shard), projected, stash_bytes=kept)
    context = core_forward(graph, _core(shard), query, (key,), (projected,))
    return row_cut(
        graph, shard, "projection", heads * latent.v_head_dim, (context,), residual, stash_bytes=sum_stash_bytes
    )


def latent_attention_backward(graph: Graph, shard: Shard, gradient: str) -> tuple[str, ...]:
    """Add the gradients of attention, from that of the sum; return the gradient of its source."""
    latent, heads, d = _latent(shard), _heads(shard), shard.model.d_model
    columns = heads * latent.qk_head_dim
    gradients = row_cut_gradients(graph, shard, "projection", heads * latent.v_head_dim, gradient)
    query, key, value = core_backward(
        graph, _core(shard), gradients, query_epilogue=_rotation(shard), key_epilogue=None
    )
    key = graph.vector("key_join.gradient", _join_gradient(shard), key)
    width = heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    inputs = [
        _down_gradients(graph, shard, "key_value", latent.kv_lora_rank, latent.qk_rope_head_dim, width, key, value)
    ]
    if latent.q_lora_rank:
        inputs.append(_down_gradients(graph, shard, "query", latent.q_lora_rank, 0, columns, query))
    else:
        inputs += column_cut_gradients(graph, shard, "attention_input", (("query", columns, (query,)),))
    work = _vector.addition(shard.row_tokens, d, shard.element_bytes)
    return (graph.vector("attention_input.latents_sum", work, *inputs),)


def _latent(shard: Shard) -> LatentAttention:
    latent = shard.model.latent_attention
    assert latent is not None
    return latent


def _heads(shard: Shard) -> int:
    return shard.model.n_heads // shard.tensor_parallel


def _core(shard: Shard) -> AttentionCore:
    return replace(attention_core(shard), value_dim=_latent(shard).v_head_dim)


def _down(
    graph: Graph, shard: Shard, name: str, rank: int, beside: int, source: str, *, input_stash_bytes: int = 0
) -> str:
    """A latent of ``rank`` columns, normed, and ``beside`` more columns that are not, for all tokens of the group.

    Kept are the latent before and behind its norm, of the tokens that the device holds.
    """
    rows, e, d = shard.row_tokens, shard.element_bytes, shard.model.d_model
    latent = graph.linear(
        f"{name}_down",
        Gemm(m=rows, n=rank + beside, k=d),
        source,
        parameters=d * (rank + beside),
        stash_bytes=rows * rank * e + input_stash_bytes,
    )
    normed = graph.vector(
        f"{name}_norm",
        _vector.norm(Norm.RMS_NORM, rows, rank, e),
        latent,
        parameters=rank,
        stash_bytes=rows * rank * shard.kept_element_bytes,
    )
    normed = graph.cast(f"{name}_latent.cast", rows, rank, normed, kept=True)
    payload = shard.operand_bytes(shard.tokens * rank) + shard.tokens * beside * e
    return graph.gather_rows(f"{name}_latent.", payload, normed)


def _down_gradients(
    graph: Graph, shard: Shard, name: str, rank: int, beside: int, columns: int, *gradients: str
) -> str:
    """Both gradients of a pair of projections, from those of the ``columns`` that the upward one gives."""
    rows, e, d = shard.row_tokens, shard.element_bytes, shard.model.d_model
    saved_bytes = shard.operand_bytes(shard.tokens * rank)
    saved = graph.gather_rows(f"{name}_latent.saved_", saved_bytes, OUTSIDE, phase=Phase.WEIGHT_GRADIENT)
    inner = _linear_gradients(graph, shard, f"{name}_up", *gradients, k=rank, n=columns, rows=shard.tokens, saved=saved)
    inner = graph.reduce_rows(f"{name}_latent.gradient_", shard.tokens * (rank + beside) * e, inner)
    inner = graph.vector(f"{name}_norm.gradient", _vector.norm_gradient(Norm.RMS_NORM, rows, rank, e), inner)
    return _linear_gradients(graph, shard, f"{name}_down", inner, k=d, n=rank + beside, rows=rows)


def _linear_gradients(
    graph: Graph, shard: Shard, name: str, *gradients: str, k: int, n: int, rows: int, saved: str = OUTSIDE
) -> str:
    """Both gradients of a linear layer (``rows`` × k → ``rows`` × n), cast where it reads narrower operands."""
    if shard.casts:
        gradients = (graph.cast(f"{name}.gradient_cast", rows, n, *gradients),)
    graph.linear(f"{name}.weight_gradient", Gemm(m=k, n=n, k=rows), *gradients, saved, phase=Phase.WEIGHT_GRADIENT)
    return graph.linear(f"{name}.data_gradient", Gemm(m=rows, n=k, k=n), *gradients)


def _rotation(shard: Shard) -> VectorWork:
    """The epilogue that turns the rotary part of each query head, or its gradient back."""
    latent, columns = _latent(shard), _heads(shard) * _latent(shard).qk_head_dim
    return VectorWork(
        rows=shard.tokens,
        row_length=columns,
        operations_per_element=_vector.ROTATION * latent.qk_rope_head_dim / latent.qk_head_dim,
        read_bytes=shard.local_length * latent.qk_rope_head_dim * shard.element_bytes,
        write_bytes=shard.tokens * columns * shard.element_bytes,
    )


def _join(shard: Shard) -> VectorWork:
    """Keys put together: each head's own part, and the one rotary part, turned once and copied to all heads."""
    latent, heads, tokens, e = _latent(shard), _heads(shard), shard.tokens, shard.element_bytes
    columns = heads * latent.qk_head_dim
    table_bytes = shard.local_length * latent.qk_rope_head_dim * e
    return VectorWork(
        rows=tokens,
        row_length=columns,
        operations_per_element=1 + _vector.ROTATION * latent.qk_rope_head_dim / columns,
        read_bytes=tokens * (heads * latent.qk_nope_head_dim + latent.qk_rope_head_dim) * e + table_bytes,
        write_bytes=tokens * columns * e,
    )


def _join_gradient(shard: Shard) -> VectorWork:
    """Keys' gradients taken apart: the rotary parts of all heads summed and turned back."""
    latent, heads, tokens, e = _latent(shard), _heads(shard), shard.tokens, shard.element_bytes
    columns = heads * latent.qk_head_dim
    table_bytes = shard.local_length * latent.qk_rope_head_dim * e
    return VectorWork(
        rows=tokens,
        row_length=columns,
        operations_per_element=1 + _vector.ROTATION * latent.qk_rope_head_dim / columns,
        read_bytes=tokens * columns * e + table_bytes,
        write_bytes=tokens * (heads * latent.qk_nope_head_dim + latent.qk_rope_head_dim) * e,
    )
