"""The sizes of fused attention, read from which of its operands each loop indexes."""

from math import prod

from archplace.workloads.operators import FusedAttention, Phase
from archplace.workloads.traced.tensor_graph import Access, TensorOp, TensorOpKind


def fused_attention(op: TensorOp) -> FusedAttention:
    """Return the sizes of an operator of kind :attr:`TensorOpKind.ATTENTION`.

    Queries, keys and values are the first three reads forward, and what the first three writes are gradients of
    backward. A loop of queries and keys both is an independent attention if values have it too, else a head's
    elements; one of keys and values alone runs along the keys, one of queries alone along rows, one of values alone
    along a value's elements.
    """
    assert op.kind is TensorOpKind.ATTENTION, op.name
    backward = op.phase is not Phase.FORWARD
    query, key, value = (_indices(access) for access in (op.writes if backward else op.reads)[:3])

    def size(loops: frozenset[int]) -> int:
        return prod(op.loops[loop].size for loop in loops)

    keys = size((key & value) - query)
    return FusedAttention(
        batch=size(query & key & value),
        rows=size(query - key),
        keys=keys,
        met_keys=-(-keys // 2) if op.causal else keys,
        head_dim=size((query & key) - value),
        value_dim=size(value - key),
        gradients=backward,
    )


def _indices(access: Access) -> frozenset[int]:
    return frozenset(index for dim in access.loops for index in dim if index is not None)
