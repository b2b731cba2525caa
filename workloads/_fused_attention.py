"""Attention whose scores stay on chip, on some of a device's keys: its products, lane work and bytes.

Bytes are those of each operand and result once (Dao et al. 2022, arXiv:2205.14135, section 3.1); how often keys and
values pass again because not all rows fit on chip is the cost model's business. The backward pass reads queries, keys,
values, context, its gradient and one fp32 statistic per row, computes the scores again, and writes three gradients
(Dao 2023, arXiv:2307.08691, algorithms 1 and 2).
"""

from archplace.workloads import _vector
from archplace.workloads._attention_sizes import AttentionCore
from archplace.workloads.operators import FusedAttention, VectorWork


def products(core: AttentionCore, keys: int, *, gradients: bool = False) -> FusedAttention:
    """The products of all rows on ``keys`` keys, or those of their ``gradients``."""
    return FusedAttention(
        batch=core.batch,
        rows=core.rows,
        keys=keys,
        met_keys=_met(core, keys),
        head_dim=core.head_dim,
        value_dim=core.value_dim,
        gradients=gradients,
    )


def forward_work(core: AttentionCore, keys: int, *, accumulates: bool = False) -> VectorWork:
    """The forward lane work; where it ``accumulates``, context and statistics are read before they are written."""
    results = core.context_bytes + core.statistics_bytes
    operands = _query_bytes(core) + _key_bytes(core, keys) + _bias_bytes(core, keys)
    return _vector.online_softmax(
        core.batch * core.rows,
        _met(core, keys),
        dropout=core.dropout,
        read_bytes=operands + (results if accumulates else 0),
        write_bytes=results,
    )


def backward_work(core: AttentionCore, keys: int, *, accumulates: bool = False) -> VectorWork:
    """The lane work of the gradients; where it ``accumulates``, the queries' gradient is read before it is written."""
    query, key, bias = _query_bytes(core), _key_bytes(core, keys), _bias_bytes(core, keys)
    context = 2 * core.context_bytes + core.statistics_bytes  # and its gradient
    return _vector.online_softmax_gradient(
        core.batch * core.rows,
        _met(core, keys),
        core.value_dim,
        dropout=core.dropout,
        read_bytes=query + key + bias + context + (query if accumulates else 0),
        write_bytes=query + key + bias,
    )


def _met(core: AttentionCore, keys: int) -> int:
    """Keys whose scores a row computes on average: behind a causal mask half, rounded up."""
    return -(-keys // 2) if core.causal else keys


def _bias_bytes(core: AttentionCore, keys: int) -> int:
    """Bytes of the position biases of these keys; their gradient is as large."""
    return core.position_bias_bytes * keys // core.keys


def _query_bytes(core: AttentionCore) -> int:
    return core.batch * core.rows * core.head_dim * core.element_bytes


def _key_bytes(core: AttentionCore, keys: int) -> int:
    return core.batch * keys * (core.head_dim + core.value_dim) * core.element_bytes
