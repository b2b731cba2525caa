"""What an operator of a traced layer multiplies and moves on one device."""

from collections.abc import Sequence

from archplace.workloads.traced.attention_sizes import fused_attention
from archplace.workloads.traced.states import State, local_tensor
from archplace.workloads.traced.tensor_graph import Access, Tensor, TensorOp, TensorOpKind


def product_macs(op: TensorOp) -> int:
    """Return the multiply-accumulates of all products, those of fused attention included."""
    return fused_attention(op).macs if op.kind is TensorOpKind.ATTENTION else op.macs


def moved_bytes(
    op: TensorOp, tensors: Sequence[Tensor], reads: Sequence[State], writes: Sequence[State], degree: int
) -> float:
    """Return the bytes of operands and results, each once, of one device that holds them in the states given."""
    return read_bytes(op, tensors, reads, degree) + written_bytes(op, tensors, writes, degree)


def read_bytes(op: TensorOp, tensors: Sequence[Tensor], states: Sequence[State], degree: int) -> float:
    """Return the bytes that one device reads: each tensor once; of a table that is looked up only the rows met.

    These are as many as what goes in or comes out beside the table. A view reads nothing.
    """
    return _bytes(op, op.reads, tensors, states, degree)


def written_bytes(op: TensorOp, tensors: Sequence[Tensor], states: Sequence[State], degree: int) -> float:
    """Return the bytes that one device writes, counted likewise."""
    return _bytes(op, op.writes, tensors, states, degree)


def is_table(op: TensorOp, access: Access) -> bool:
    """Whether an operand of a lookup is the table, or its gradient.

    A loop runs along it that no other operand has, or it is met in irregular order.
    """
    if op.kind is not TensorOpKind.LOOKUP:
        return False
    others = {index for other in (*op.reads, *op.writes) if other is not access for dim in other.loops for index in dim}
    return any(index is None or index not in others for dim in access.loops for index in dim)


def _bytes(
    op: TensorOp, operands: Sequence[Access], tensors: Sequence[Tensor], states: Sequence[State], degree: int
) -> float:
    if op.kind is TensorOpKind.VIEW:
        return 0.0
    beside = [tensors[access.tensor].bytes for access in (*op.reads, *op.writes) if not is_table(op, access)]
    held = {}
    for access, state in zip(operands, states, strict=True):
        size = local_tensor(tensors[access.tensor], state, degree).bytes
        held[access.tensor, state] = min(size, max(beside, default=0.0)) if is_table(op, access) else size
    return sum(held.values())
