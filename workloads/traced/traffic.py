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

    These are as many as the result has. A view reads nothing.
    """
    if op.kind is TensorOpKind.VIEW:
        return 0.0
    held = {
        (access.tensor, state): local_tensor(tensors[access.tensor], state, degree).bytes
        for access, state in zip(op.reads, states, strict=True)
    }
    if op.kind is not TensorOpKind.LOOKUP:
        return sum(held.values())
    result = sum(tensors[access.tensor].bytes for access in op.writes)
    tables = {access.tensor for access in op.reads if _is_table(op, access)}
    return sum(min(size, result) if tensor in tables else size for (tensor, _), size in held.items())


def written_bytes(op: TensorOp, tensors: Sequence[Tensor], states: Sequence[State], degree: int) -> float:
    """Return the bytes that one device writes; a view writes nothing."""
    if op.kind is TensorOpKind.VIEW:
        return 0.0
    return sum(
        local_tensor(tensors[access.tensor], state, degree).bytes
        for access, state in zip(op.writes, states, strict=True)
    )


def _is_table(op: TensorOp, access: Access) -> bool:
    """Whether a loop runs along the operand that no other operand of a lookup has, or meets it in irregular order."""
    others = {index for other in (*op.reads, *op.writes) if other is not access for dim in other.loops for index in dim}
    return any(index is None or index not in others for dim in access.loops for index in dim)
