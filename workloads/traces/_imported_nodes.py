"""Nodes of an imported trace: drafted in the order of calls, then numbered so that parents come first."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from archplace.workloads.traces._flops import product_flops
from archplace.workloads.traces.attributes import Attribute, AttributeKind
from archplace.workloads.traces.call_tree import Operator
from archplace.workloads.traces.communication import Communication
from archplace.workloads.traces.dependencies import Dependencies, is_view
from archplace.workloads.traces.host_trace import Argument, HostNode, lies_in_rows
from archplace.workloads.traces.kernels import Kernel, Kernels
from archplace.workloads.traces.kineto import Thread
from archplace.workloads.traces.matching import Match
from archplace.workloads.traces.node import Node, NodeKind, Operands

_COPIES = {"memcpy htod": NodeKind.MEMORY_LOAD, "memcpy dtoh": NodeKind.MEMORY_STORE}
_LIBRARY_KERNELS = ("nccl", "rccl", "oneccl", "msccl")
_NS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What an imported trace is made of. Sequences and mappings go by the place of the operator."""

    operators: Sequence[Operator]
    dependencies: Dependencies
    communications: Sequence[Communication | None]
    spans: Mapping[int, int]
    """Of communications that another thread carries out, the call there."""
    matches: Sequence[Match]
    """Profiles, those that know durations best first."""
    kernels: Kernels
    on_device: bool
    """Whether operators only launch what kernels do."""


@dataclass(slots=True, kw_only=True)
class _Item:
    """A node before it has a number. Parents are places in the list of items."""

    kind: NodeKind
    name: str
    attributes: list[Attribute]
    data: set[int] = field(default_factory=set)
    control: set[int] = field(default_factory=set)
    start_us: float | None = None
    duration_us: float | None = None
    inputs: Operands | None = None
    outputs: Operands | None = None


def build_nodes(draft: Draft) -> tuple[Node, ...]:
    """Return the nodes, numbered from 0, parents before children."""
    operator_at, kernel_at, count = _places(draft)
    items: list[_Item | None] = [None] * count
    origin = _origin(draft)
    own_kernels: dict[int, list[int]] = {}
    for number, kernel in enumerate(draft.kernels.kernels):
        if kernel.operator is not None:
            own_kernels.setdefault(kernel.operator, []).append(number)
    for place, operator in enumerate(draft.operators):
        items[operator_at[place]] = _operator_item(draft, place, operator, own_kernels.get(place, []), origin)
    for number, kernel in enumerate(draft.kernels.kernels):
        items[kernel_at[number]] = _kernel_item(draft, kernel, origin)
    made = [item for item in items if item is not None]
    assert len(made) == count
    _connect(draft, made, operator_at, kernel_at, own_kernels)
    return tuple(_numbered(made))


def _places(draft: Draft) -> tuple[list[int], list[int], int]:
    """Return the place of each operator and of each kernel: kernels after who launched them, or was called before."""
    begins: list[tuple[float, int]] = []
    for place, operator in enumerate(draft.operators):
        event = next((found.reference(operator.node.id) for found in draft.matches if found.profile.device), None)
        if event is not None:
            begins.append((event.begin_us, place))
    begins.sort()
    keys: list[tuple[int, int, int]] = [(place, 0, place) for place in range(len(draft.operators))]
    for number, kernel in enumerate(draft.kernels.kernels):
        after = kernel.operator
        if after is None:
            earlier = [place for begin, place in begins if begin <= kernel.launch.begin_us]
            after = earlier[-1] if earlier else 0
        keys.append((after, 1, number))
    order = {key: place for place, key in enumerate(sorted(keys))}
    n_operators = len(draft.operators)
    return [order[key] for key in keys[:n_operators]], [order[key] for key in keys[n_operators:]], len(keys)


def _origin(draft: Draft) -> dict[int, float]:
    """Return of each profile the time of its first operator, by the profile's place in the list."""
    found: dict[int, float] = {}
    for at, one in enumerate(draft.matches):
        begins = [event.begin_us for item in draft.operators if (event := one.reference(item.node.id))]
        if begins:
            found[at] = min(begins)
    return found


def _operator_item(
    draft: Draft, place: int, operator: Operator, kernels: Sequence[int], origin: Mapping[int, float]
) -> _Item:
    node, communication = operator.node, draft.communications[place]
    carried = _communication_kernels(draft, kernels) if communication else []
    attributes = [
        # Who simulates skips what a processor does: only what launches kernels is such, where kernels are known.
        Attribute.of("is_cpu_op", draft.on_device and not (communication and not carried)),
        Attribute.of("op_schema", node.op_schema),
        Attribute.of("phase", operator.phase.value),
        Attribute.of("rf_id", node.rf_id),
        Attribute.of("seq_id", node.seq_id),
        Attribute.of("tid", node.tid),
        Attribute.of("fw_tid", node.fw_tid),
        Attribute.of("scope", node.scope),
        Attribute.of("within", operator.within, AttributeKind.STRINGS),
    ]
    if is_view(node):
        attributes.append(Attribute.of("is_view", True))
    if operator.gradient_seq >= 0:
        attributes.append(Attribute.of("gradient_seq_id", operator.gradient_seq))
    for side, arguments in (("input", node.inputs), ("output", node.outputs)):
        strides = _strides(arguments)
        if strides:
            attributes.append(Attribute.of(f"{side}_strides", strides))
    item = _Item(
        kind=NodeKind.COMPUTE,
        name=node.name,
        attributes=attributes,
        inputs=_operands(node.inputs),
        outputs=_operands(node.outputs),
    )
    if communication and not carried:
        item.kind = communication.kind
        attributes += _communication_attributes(communication)
    else:
        attributes.append(Attribute.of("tensor_size", _touched_bytes(node), AttributeKind.UINT64))
        flops = product_flops(node)
        if flops is not None:
            attributes.append(Attribute.of("num_ops", flops))
    # The call that takes the time may be on another thread; where it was not seen, the call itself is the best guess.
    for number in (draft.spans.get(place), node.id):
        for at, one in enumerate(draft.matches):
            event = one.reference(number) if number is not None else None
            if event is not None and number is not None and item.duration_us is None:
                item.start_us, item.duration_us = (
                    event.begin_us - origin.get(at, event.begin_us),
                    one.duration_us(number),
                )
    return item


def _kernel_item(draft: Draft, kernel: Kernel, origin: Mapping[int, float]) -> _Item:
    event = kernel.event
    name = event.name.lower()
    kind = next((kind for begin, kind in _COPIES.items() if name.startswith(begin)), NodeKind.COMPUTE)
    device, stream = event.thread
    attributes = [
        Attribute.of("is_cpu_op", False),
        Attribute.of("stream", stream if isinstance(stream, int) else str(stream)),
        Attribute.of("device", device if isinstance(device, int) else str(device)),
        Attribute.of("correlation", event.correlation),
    ]
    if kernel.operator is not None:
        attributes.append(Attribute.of("phase", draft.operators[kernel.operator].phase.value))
        communication = draft.communications[kernel.operator]
        if communication and _is_library_kernel(event.name):
            kind = communication.kind
            attributes += _communication_attributes(communication)
    size = event.args.get("bytes")
    if isinstance(size, int) and 0 <= size < 2**63:
        attributes.append(Attribute.of("tensor_size", size, AttributeKind.UINT64))
    first = next((origin[at] for at, one in enumerate(draft.matches) if one.profile.device and at in origin), 0.0)
    return _Item(
        kind=kind,
        name=event.name,
        attributes=attributes,
        start_us=event.begin_us - first,
        duration_us=kernel.duration_us,
    )


def _connect(
    draft: Draft,
    items: Sequence[_Item],
    operator_at: Sequence[int],
    kernel_at: Sequence[int],
    own_kernels: Mapping[int, Sequence[int]],
) -> None:
    kernels = draft.kernels.kernels
    for number, kernel in enumerate(kernels):
        item = items[kernel_at[number]]
        item.control |= {kernel_at[ahead] for ahead in kernel.before}
        if kernel.operator is not None:
            item.data.add(operator_at[kernel.operator])
    for place in range(len(draft.operators)):
        item, own = items[operator_at[place]], own_kernels.get(place, ())
        heads = list(_per_stream(reversed(own), kernels))
        for sources, data in (
            (draft.dependencies.reads_from[place], True),
            (draft.dependencies.writes_over[place], False),
        ):
            for source in sources:
                tails = [kernel_at[tail] for tail in _per_stream(own_kernels.get(source, ()), kernels)]
                if not tails:
                    (item.data if data else item.control).add(operator_at[source])
                for head in heads:
                    waiting = items[kernel_at[head]]
                    (waiting.data if data else waiting.control).update(tails)
        item.control |= {kernel_at[number] for number in draft.kernels.awaited.get(place, ())}
    last: dict[str | None, list[int]] = {}
    for place, communication in enumerate(draft.communications):
        if communication is None:
            continue
        carried = [kernel_at[number] for number in _communication_kernels(draft, own_kernels.get(place, ()))]
        here = carried or [operator_at[place]]
        if communication.kind is NodeKind.COLLECTIVE:
            # All members of a group must meet in the same order: the order in which this one called.
            items[here[0]].control |= set(last.get(communication.group, ()))
            last[communication.group] = here[-1:]
    for item in items:
        item.control -= item.data


def _per_stream(numbers: Iterable[int], kernels: Sequence[Kernel]) -> Iterator[int]:
    """Give the last of ``numbers`` on each stream."""
    last: dict[Thread, int] = {}
    for number in numbers:
        last[kernels[number].event.thread] = number
    yield from last.values()


def _numbered(items: Sequence[_Item]) -> Iterator[Node]:
    """Give the nodes in the items' order as far as parents allow.

    Clocks and guesses may contradict each other: of items that wait for each other the first goes ahead, and drops the
    parents that it cannot wait for.
    """
    waiting = [len(item.data | item.control) for item in items]
    followers: list[list[int]] = [[] for _ in items]
    for place, item in enumerate(items):
        for parent in item.data | item.control:
            followers[parent].append(place)
    ready = [place for place, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    numbers: dict[int, int] = {}
    stuck = 0
    while len(numbers) < len(items):
        if not ready:
            while stuck in numbers:
                stuck += 1
            items[stuck].data &= numbers.keys()
            items[stuck].control &= numbers.keys()
            waiting[stuck] = 0
            ready.append(stuck)
        place = heapq.heappop(ready)
        numbers[place] = len(numbers)
        for follower in followers[place]:
            waiting[follower] -= 1
            if not waiting[follower] and follower not in numbers:
                heapq.heappush(ready, follower)
        yield _node(items[place], numbers[place], numbers)


def _node(item: _Item, number: int, numbers: Mapping[int, int]) -> Node:
    attributes = list(item.attributes)
    if item.duration_us is not None:
        attributes.append(Attribute.of("duration_ns", round(item.duration_us * _NS)))
    if item.start_us is not None:
        attributes.append(Attribute.of("start_ns", round(item.start_us * _NS)))
    try:
        return Node.build(
            id=number,
            kind=item.kind,
            name=item.name,
            data_parents=sorted(numbers[parent] for parent in item.data),
            control_parents=sorted(numbers[parent] for parent in item.control),
            start_micros=max(0, round(item.start_us or 0)),
            duration_micros=round(item.duration_us or 0),
            inputs=item.inputs,
            outputs=item.outputs,
            attributes=attributes,
        )
    except ValueError as error:
        raise ValueError(f"{item.name!r:.60}: {error}") from None


def _operands(arguments: Sequence[Argument]) -> Operands:
    return Operands(
        values=str([argument.value for argument in arguments]),
        shapes=str([argument.shape for argument in arguments]),
        types=str([argument.type for argument in arguments]),
    )


def _strides(arguments: Sequence[Argument]) -> str:
    """The strides of all tensors in order, None for those that lie row by row; empty where all do."""
    tensors = [tensor for argument in arguments for tensor in argument.tensors]
    strides = [None if lies_in_rows(tensor) else list(tensor.strides or ()) for tensor in tensors]
    return "" if all(each is None for each in strides) else str(strides)


def _touched_bytes(node: HostNode) -> int:
    """Return the bytes of all operands and results, each once; of a view none, because nothing moves."""
    if is_view(node):
        return 0
    touched = {tensor for side in (node.inputs, node.outputs) for argument in side for tensor in argument.tensors}
    return sum(tensor.size_bytes for tensor in touched)


def _is_library_kernel(name: str) -> bool:
    return any(library in name.lower() for library in _LIBRARY_KERNELS)


def _communication_kernels(draft: Draft, kernels: Sequence[int]) -> list[int]:
    return [number for number in kernels if _is_library_kernel(draft.kernels.kernels[number].event.name)]


def _communication_attributes(found: Communication) -> list[Attribute]:
    """Return what simulators read, in the kinds that they read, and what else is known."""
    attributes = [Attribute.of("comm_size", found.size_bytes), Attribute.of("comm_dtype", found.dtype)]
    if found.type is not None:
        attributes.append(Attribute.of("comm_type", int(found.type)))
    if found.group is not None:
        attributes.append(Attribute.of("pg_name", found.group))
    peer = "comm_dst" if found.kind is NodeKind.SEND else "comm_src"
    for name, value in ((peer, found.peer), ("comm_tag", found.tag)):
        if value is not None:
            attributes.append(Attribute.of(name, value, AttributeKind.INT32))
    further = {
        "pg_size": found.group_size,
        "pg_first_rank": found.first_rank,
        "pg_rank_stride": found.rank_stride,
        "comm_root": found.root,
    }
    return attributes + [Attribute.of(name, value) for name, value in further.items() if value is not None]
