"""What one operator of a device's layer is to the cost model: products, lane work, bytes, payloads."""

from collections.abc import Sequence
from math import ceil, prod

from archplace.workloads import _vector
from archplace.workloads.operators import Collective, FusedAttention, Gemm, VectorWork
from archplace.workloads.traced.attention_sizes import fused_attention
from archplace.workloads.traced.sharded_layer import Exchange
from archplace.workloads.traced.states import REPLICATED
from archplace.workloads.traced.tensor_graph import (
    Access,
    LoopKind,
    Tensor,
    TensorOp,
    TensorOpKind,
    TensorRole,
)
from archplace.workloads.traced.traffic import is_table, read_bytes, written_bytes


def gemm_of(op: TensorOp) -> Gemm:
    """Return the matrix product that a contraction is.

    The two factors are the operands that the summed loops index; with fewer than two such, the largest nests of loops.
    Loops of both factors and the result are independent products, those of one factor and the result its rows or
    columns, all others are summed. Further operands, as a bias, enter on the way out and cost nothing here.

    What an operand meets in an irregular order, as a convolution its windows, may be any loop that nothing may cut: the
    product is then that of the unrolled windows (Chellapilla, Puri and Simard 2006, "High performance convolutional
    neural networks for document processing", section 2).
    """
    result = _reached(op, *op.writes)
    met = [_reached(op, access) for access in op.reads]
    summed = frozenset(range(len(op.loops))) - frozenset().union(*(_loops(access) for access in op.writes))
    order = sorted(
        range(len(met)), key=lambda r: (not _loops(op.reads[r]) & summed, -_size(op, _loops(op.reads[r])), r)
    )
    first, *others = (met[r] for r in sorted(order[:2]))
    second = others[0] if others else frozenset[int]()
    batch, rows, columns = first & second & result, (first - second) & result, (second - first) & result
    inner = frozenset(range(len(op.loops))) - batch - rows - columns
    return Gemm(batch=_size(op, batch), m=_size(op, rows), n=_size(op, columns), k=_size(op, inner))


def vector_work(op: TensorOp, tensors: Sequence[Tensor]) -> VectorWork:
    """Return the lane work of an operator that multiplies no matrices."""
    rows, length = _rows(op, tensors)
    read, written = _moved(op, tensors)
    return VectorWork(
        rows=rows,
        row_length=length,
        operations_per_element=op.operations_per_element,
        passes=max(op.passes, 1),
        reductions=op.reductions,
        read_bytes=read,
        write_bytes=written,
    )


def epilogue_work(
    gemm: Gemm, product: TensorOp, maps: Sequence[TensorOp], tensors: Sequence[Tensor], kept: frozenset[int]
) -> VectorWork:
    """Return the lane work of maps on a product's result, which pass each result on without memory between.

    Written are the last map's results, whatever else the maps give, and of what is passed on the tensors in ``kept``.
    """
    passed = {access.tensor for op in (product, *maps[:-1]) for access in op.writes[:1]}
    given = {access.tensor for op in (product, *maps) for access in op.writes}
    read = {access.tensor for op in maps for access in op.reads} - given
    written = (given - passed) | (passed & kept)
    return VectorWork(
        rows=gemm.batch * gemm.m,
        row_length=gemm.n,
        operations_per_element=sum(op.operations_per_element for op in maps),
        read_bytes=ceil(sum(tensors[t].bytes for t in read)),
        write_bytes=ceil(sum(tensors[t].bytes for t in written)),
    )


def attention_work(op: TensorOp, tensors: Sequence[Tensor]) -> tuple[FusedAttention, VectorWork]:
    """Return fused attention's products, and the lane work on its scores with all bytes it moves."""
    sizes = fused_attention(op)
    read, written = _moved(op, tensors)
    rows = sizes.batch * sizes.rows
    if not sizes.gradients:
        work = _vector.online_softmax(rows, sizes.met_keys, dropout=False, read_bytes=read, write_bytes=written)
    else:
        work = _vector.online_softmax_gradient(
            rows, sizes.met_keys, sizes.value_dim, dropout=False, read_bytes=read, write_bytes=written
        )
    return sizes, work


def collective_of(op: TensorOp, tensors: Sequence[Tensor], exchange: Exchange) -> Collective:
    """Return the collective of an operator that exchanges tensors: its payload is the larger of both its sides."""
    sides = (op.reads, op.writes)
    payload = max(sum(tensors[access.tensor].bytes for access in side) for side in sides)
    return Collective(
        kind=exchange.kind, payload_bytes=ceil(payload), group_size=exchange.group_size, axis=exchange.axis
    )


def _moved(op: TensorOp, tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Bytes read and written; a single number that a program knows, as a scale, is none worth counting."""
    read = read_bytes(op, tensors, (REPLICATED,) * len(op.reads), 1)
    written = written_bytes(op, tensors, (REPLICATED,) * len(op.writes), 1)
    return ceil(read), ceil(written)


def _rows(op: TensorOp, tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Rows and their length: what is whole is a row; of other nests the last dimension of what is largest."""
    operands = [access for access in (*op.reads, *op.writes) if not is_table(op, access)]
    largest = max(operands, key=lambda access: tensors[access.tensor].elements, default=None)
    elements = prod(loop.size for loop in op.loops)
    if op.kind in (TensorOpKind.LOOKUP, TensorOpKind.MOVE) or not op.loops:
        # a lookup's nest has the table's rows, of which it meets one at a time; a copy's may know no loops
        elements = 1 if largest is None else tensors[largest.tensor].elements
    whole = prod(loop.size for loop in op.loops if loop.kind is LoopKind.WHOLE)
    if op.kind is TensorOpKind.ROWS and whole > 1:
        return elements // whole, whole
    last = 1
    if largest is not None and tensors[largest.tensor].dims:
        last = prod(atom.size for atom in tensors[largest.tensor].dims[-1])
    return (elements // last, last) if elements % last == 0 else (elements, 1)


def _loops(access: Access) -> frozenset[int]:
    return frozenset(index for dim in access.loops for index in dim if index is not None)


def _reached(op: TensorOp, *accesses: Access) -> frozenset[int]:
    """The loops that index operands, or may: those that nothing may cut, of operands met in an irregular order."""
    known = frozenset[int]().union(*(_loops(access) for access in accesses))
    if any(index is None for access in accesses for dim in access.loops for index in dim):
        known |= {i for i, loop in enumerate(op.loops) if loop.kind is LoopKind.WHOLE}
    return known


def _size(op: TensorOp, loops: frozenset[int]) -> int:
    return prod(op.loops[loop].size for loop in loops)


def is_state(tensor: Tensor) -> bool:
    """Whether a tensor is there before the step's activations: a parameter, or what the batch gives."""
    return tensor.role in (TensorRole.PARAMETER, TensorRole.CONSTANT)
