"""Who waits for whom in PyTorch's traces: the last writer of each byte that is read.

Storages are numbered by their address, so that a number comes back when memory was freed and given out again: an
operator whose result lies in a storage that did not enter it makes a new storage. What is changed in place says the
operator's schema (``Tensor(a!)``), and for c10d's operators the names of their arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from archplace.workloads.traces._op_schema import schema_arguments
from archplace.workloads.traces.call_tree import Operator
from archplace.workloads.traces.communication import incoming, is_c10d, outgoing
from archplace.workloads.traces.host_trace import HostNode, Tensor

# One piece of a storage: first byte, after its last, place of the last writer or -1, places of who read it since.
_Piece = tuple[int, int, int, frozenset[int]]
_OUTSIDE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """By operator: places of others in the same sequence, ascending."""

    reads_from: tuple[tuple[int, ...], ...]
    """Who wrote what it reads, or gives another form."""
    writes_over: tuple[tuple[int, ...], ...]
    """Who read or wrote before what it changes in place, and is not in ``reads_from``."""
    external_storages: int
    """Storages that are read and were written by none of the operators: parameters, batches, scalars."""


def find_dependencies(operators: Sequence[Operator]) -> Dependencies:
    """Return who waits for whom among ``operators``, which are in the order in which they were called."""
    storages: dict[int, list[_Piece]] = {}
    reads_from: list[tuple[int, ...]] = []
    writes_over: list[tuple[int, ...]] = []
    external: set[int] = set()
    for place, operator in enumerate(operators):
        node = operator.node
        reads, writes, fresh = _accesses(node)
        looks = is_view(node)
        sources: set[int] = set()
        for tensor in reads:
            pieces = storages.setdefault(tensor.storage, [])
            found = {writer for begin, end, writer, _ in pieces if _meets(tensor, begin, end) and writer != _OUTSIDE}
            if not found:
                external.add(tensor.storage)
            sources |= found
            if not looks:
                _note_read(pieces, tensor, place)
        before: set[int] = set()
        for tensor in writes:
            for begin, end, writer, readers in storages.setdefault(tensor.storage, []):
                if _meets(tensor, begin, end):
                    before |= readers | {writer}
            _overwrite(storages[tensor.storage], tensor, place)
        for storage in {tensor.storage for tensor in fresh}:
            storages[storage] = []
        for tensor in fresh:
            _overwrite(storages[tensor.storage], tensor, place)
        reads_from.append(tuple(sorted(sources - {place})))
        writes_over.append(tuple(sorted(before - sources - {place, _OUTSIDE})))
    return Dependencies(reads_from=tuple(reads_from), writes_over=tuple(writes_over), external_storages=len(external))


def is_view(node: HostNode) -> bool:
    """Whether a call only gives another form of what enters it: nothing is read, nothing moves."""
    entered = {tensor.storage for argument in node.inputs for tensor in argument.tensors}
    left = [tensor.storage for result in node.outputs for tensor in result.tensors]
    aliases = any(argument.aliased and not argument.written for argument in schema_arguments(node.op_schema))
    return aliases and bool(left) and entered.issuperset(left)


def _accesses(node: HostNode) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the tensors that a call reads, changes, and makes."""
    entered = {tensor.storage for argument in node.inputs for tensor in argument.tensors}
    fresh = [tensor for result in node.outputs for tensor in result.tensors if tensor.storage not in entered]
    if is_c10d(node):
        return list(incoming(node)), list(outgoing(node)), fresh
    arguments = schema_arguments(node.op_schema)
    reads: list[Tensor] = []
    writes: list[Tensor] = []
    for place, argument in enumerate(node.inputs):
        reads.extend(argument.tensors)
        # Compiled kernels do not say what they change; their later arguments are results, all may be.
        if arguments[place].written if place < len(arguments) else bool(node.kernel_backend):
            writes.extend(argument.tensors)
    return reads, writes, fresh


def _meets(tensor: Tensor, begin: int, end: int) -> bool:
    return tensor.begin < end and begin < tensor.end


def _note_read(pieces: list[_Piece], tensor: Tensor, place: int) -> None:
    cut: list[_Piece] = []
    rest = tensor.begin
    for begin, end, writer, readers in sorted(pieces, key=_first_byte):
        if not _meets(tensor, begin, end):
            cut.append((begin, end, writer, readers))
            continue
        low, high = max(begin, tensor.begin), min(end, tensor.end)
        cut += [(begin, low, writer, readers), (low, high, writer, readers | {place}), (high, end, writer, readers)]
        cut.append((rest, low, _OUTSIDE, frozenset((place,))))
        rest = high
    cut.append((rest, tensor.end, _OUTSIDE, frozenset((place,))))
    pieces[:] = [piece for piece in cut if piece[0] < piece[1]]


def _first_byte(piece: _Piece) -> int:
    return piece[0]


def _overwrite(pieces: list[_Piece], tensor: Tensor, place: int) -> None:
    kept: list[_Piece] = []
    for begin, end, writer, readers in pieces:
        if begin < tensor.begin:
            kept.append((begin, min(end, tensor.begin), writer, readers))
        if end > tensor.end:
            kept.append((max(begin, tensor.end), end, writer, readers))
    pieces[:] = [piece for piece in kept if piece[0] < piece[1]]
    pieces.append((tensor.begin, tensor.end, place, frozenset()))
