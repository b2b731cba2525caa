"""What each call of a trace reads and writes, as values that never change.

A trace names memory: storages by their address, which is given out again after it was freed, changed in place, and
looked at in several shapes. Here a *value* is what one call wrote, in one shape. A result in memory that did not enter
the call begins a storage anew; what is changed in place becomes a new value; a view is found again by its place, shape
and strides, and is another value only where one of these differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from archplace.workloads.traced.calls import Call
from archplace.workloads.traces._op_schema import schema_arguments
from archplace.workloads.traces.host_trace import HostNode, Tensor

_Key = tuple[int, int, tuple[int, ...], tuple[int, ...] | None, str]
"""First byte, after the last byte, shape, strides, type of elements."""
VIEW, PIECES = "view", "pieces"
"""Names of steps that no call made: a tensor looked at in another shape; a tensor put together of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor that is written once."""

    shape: tuple[int, ...]
    item_bytes: int
    dtype: str
    storage: int
    """Number of the memory it lies in; memory that is given out again gets a new number."""
    is_external: bool
    """Whether no call of the trace wrote it: parameters, batches, scalars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call, with values instead of tensors."""

    name: str
    call: Call
    """Of a step that no call made, the call that looked."""
    arguments: tuple[tuple[int, ...], ...]
    """For each argument its values; tensors without elements are left out."""
    results: tuple[int, ...]
    """The values that it makes; none for a look at what is there already, and for what only reads."""
    moves: bool
    """Whether results lie in other memory than what entered."""
    is_synthetic: bool = False


@dataclass(slots=True)
class _Storage:
    number: int
    roots: list[tuple[int, int, int]] = field(default_factory=list)
    """What was written, oldest first: first byte, after the last, value."""
    views: dict[_Key, int] = field(default_factory=dict)


class _Memory:
    def __init__(self) -> None:
        self.values: list[Value] = []
        self.steps: list[Step] = []
        self._storages: dict[int, _Storage] = {}
        self._count = 0

    def read(self, tensor: Tensor, call: Call) -> int:
        """Return the value that a tensor is now."""
        storage = self._storages.get(tensor.storage)
        if storage is None or not self._fits(storage, tensor):
            storage = self._fresh(tensor.storage)
        key = _key(tensor)
        known = storage.views.get(key)
        if known is not None:
            return known
        written = [root for root in storage.roots if root[0] < tensor.end and tensor.begin < root[1]]
        if not written:
            value = self._value(tensor, storage, is_external=True)
            storage.roots.insert(0, (tensor.begin, tensor.end, value))
            storage.views[key] = value
            return value
        same = _in_same_order(storage, tensor)
        sources: tuple[int, ...]
        if same is not None:
            sources, whole = (same,), True
        else:
            # The last that covers all of it, and what was written over it since.
            last = max((at for at, one in enumerate(written) if _covers(one, tensor)), default=0)
            sources = tuple(value for _, _, value in written[last:])
            first = self.values[sources[0]]
            whole = len(sources) == 1 and bool(first.shape) and _is_whole(first, tensor)
        value = self._value(tensor, storage, is_external=False)
        self.steps.append(
            Step(
                name=VIEW if whole else PIECES,
                call=call,
                arguments=(sources,),
                results=(value,),
                moves=False,
                is_synthetic=True,
            )
        )
        storage.views[key] = value
        return value

    def run(self, call: Call) -> None:
        """Take a call's step."""
        node = call.node
        arguments = tuple(
            tuple(self.read(tensor, call) for tensor in argument.tensors if tensor.elements) for argument in node.inputs
        )
        entered = {tensor.storage for argument in node.inputs for tensor in argument.tensors}
        written = _written(node)
        changed = {(*_key(tensor), tensor.storage) for tensor in written}
        results: list[int] = []
        begun: set[int] = set()
        moves = False
        for tensor in (tensor for result in node.outputs for tensor in result.tensors if tensor.elements):
            if tensor.storage not in entered:
                moves = True
                if tensor.storage not in begun:
                    begun.add(tensor.storage)
                    self._fresh(tensor.storage)
                results.append(self._write(tensor))
            elif (*_key(tensor), tensor.storage) in changed or any(_meet(tensor, one) for one in written):
                changed.discard((*_key(tensor), tensor.storage))
                moves = True
                results.append(self._write(tensor))
            elif _key(tensor) not in self._storages[tensor.storage].views:
                results.append(self._look(tensor))
        for tensor in written:
            if (*_key(tensor), tensor.storage) in changed and tensor.elements:
                moves = True
                results.append(self._write(tensor))
        if results or not any(tensor.elements for out in node.outputs for tensor in out.tensors):
            self.steps.append(Step(name=call.name, call=call, arguments=arguments, results=tuple(results), moves=moves))

    def _fits(self, storage: _Storage, tensor: Tensor) -> bool:
        """Whether a tensor can be of this storage: memory that was given out outside the trace shows by its type."""
        known = storage.views or {_key(tensor): 0}
        return any(key[4] == tensor.dtype for key in known)

    def _fresh(self, number: int) -> _Storage:
        self._count += 1
        self._storages[number] = _Storage(self._count)
        return self._storages[number]

    def _look(self, tensor: Tensor) -> int:
        storage = self._storages[tensor.storage]
        value = self._value(tensor, storage, is_external=False)
        storage.views[_key(tensor)] = value
        return value

    def _write(self, tensor: Tensor) -> int:
        storage = self._storages[tensor.storage]
        storage.views = {key: one for key, one in storage.views.items() if not _overlaps(key, tensor)}
        storage.roots = [root for root in storage.roots if not (tensor.begin <= root[0] and root[1] <= tensor.end)]
        value = self._look(tensor)
        storage.roots.append((tensor.begin, tensor.end, value))
        return value

    def _value(self, tensor: Tensor, storage: _Storage, *, is_external: bool) -> int:
        self.values.append(
            Value(
                shape=tensor.shape,
                item_bytes=tensor.item_bytes,
                dtype=tensor.dtype,
                storage=storage.number,
                is_external=is_external,
            )
        )
        return len(self.values) - 1


def follow(calls: Sequence[Call]) -> tuple[tuple[Value, ...], tuple[Step, ...]]:
    """Return the values of a trace, and the steps that make them of others, in order."""
    memory = _Memory()
    for call in calls:
        memory.run(call)
    return tuple(memory.values), tuple(memory.steps)


def _key(tensor: Tensor) -> _Key:
    return tensor.begin, tensor.end, tensor.shape, tensor.strides, tensor.dtype


def _covers(root: tuple[int, int, int], tensor: Tensor) -> bool:
    return root[0] <= tensor.begin and tensor.end <= root[1]


def _overlaps(key: _Key, tensor: Tensor) -> bool:
    return key[0] < tensor.end and tensor.begin < key[1]


def _meet(one: Tensor, other: Tensor) -> bool:
    return one.storage == other.storage and one.begin < other.end and other.begin < one.end


def _in_same_order(storage: _Storage, tensor: Tensor) -> int | None:
    """The value of another shape whose elements are known to lie as those of a tensor do, one behind the other."""
    if tensor.strides is None or not _is_contiguous(tensor):
        return None
    for (begin, end, shape, strides, dtype), value in reversed(storage.views.items()):
        same_bytes = (begin, end, dtype) == (tensor.begin, tensor.end, tensor.dtype)
        if same_bytes and shape and strides and _is_contiguous(tensor._replace(shape=shape, strides=strides)):
            return value
    return None


def _is_whole(source: Value, tensor: Tensor) -> bool:
    """Whether a tensor is all of a value, in the order of its elements."""
    return prod(source.shape) == tensor.elements and (tensor.strides is None or _is_contiguous(tensor))


def _is_contiguous(tensor: Tensor) -> bool:
    expected = 1
    for size, step in zip(reversed(tensor.shape), reversed(tensor.strides or ()), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _written(node: HostNode) -> list[Tensor]:
    """Return the tensors that a call changes."""
    found: list[Tensor] = []
    arguments = schema_arguments(node.op_schema)
    for place, argument in enumerate(node.inputs):
        # Compiled kernels do not say what they change; their later arguments are results, all may be.
        if arguments[place].written if place < len(arguments) else bool(node.kernel_backend):
            found.extend(argument.tensors)
    return found
