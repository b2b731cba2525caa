"""PyTorch's execution traces: what the observer saw on the host, one node for each call, as a tree of calls.

Schemas 1.0.1 to 1.1.1-chakra.*: in 1.0.1 a node is flat (``parent``, ``input_shapes``); from 1.0.2 it has ``ctrl_deps``
(the caller, one number), ``inputs`` and ``outputs`` of parallel lists, and ``attrs``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from archplace.workloads.traces._json_stream import JsonStream
from archplace.workloads.traces._source import Source

_KNOWN_SCHEMAS = re.compile(r"1\.0\.[1-9](\.\d+)?(-chakra\..+)?|1\.1\.\d+(-chakra\..+)?")
_FLAT = {
    "parent": "ctrl_deps",
    "rf_id": "rf_id",
    "fw_parent": "fw_parent",
    "seq_id": "seq_id",
    "scope": "scope",
    "tid": "tid",
    "fw_tid": "fw_tid",
    "op_schema": "op_schema",
}
_PARTS = ("values", "shapes", "types")
_TENSOR_TYPE = re.compile(r"Tensor\(([^)]*)\)")

_LARGEST = 2**63 - 1
BACKWARD_SCOPE = 1
ANNOTATION_SCOPE = 7


class Tensor(NamedTuple):
    """One tensor that enters or leaves a call. A tuple: traces have millions."""

    id: int
    storage: int
    """Number of the memory behind it, which other memory gets when it has been freed; 0 for no tensor at all."""
    begin: int
    """First byte in its storage."""
    end: int
    """After its last byte; where strides are known, that of the element that lies furthest back."""
    elements: int
    item_bytes: int
    device: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    """Steps in elements along each dimension; None in traces older than schema 1.1.1."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements."""
        return self.elements * self.item_bytes


class Argument(NamedTuple):
    """One argument or result of a call."""

    value: object
    """As the trace has it."""
    shape: object
    type: str
    tensors: tuple[Tensor, ...]
    """All tensors in it, however deep in lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """One call. Ids rise in the order in which calls began."""

    id: int
    parent: int
    """The caller; corrupt where a collective ended on another thread."""
    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    op_schema: str = ""
    rf_id: int = 0
    """Number of the call in the profiler's trace of the same run."""
    seq_id: int = -1
    """Number that a forward operator and its gradient share; -1 for none."""
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0
    """Thread of the forward call, in a gradient's call; 0 for none."""
    kernel_backend: str = ""
    extras: Mapping[str, object] = field(default_factory=dict)
    """Further attributes: what is known of a communication, for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTrace:
    """All calls of one process in a window, ordered by id."""

    path: Path
    schema: str
    pid: int
    nodes: tuple[HostNode, ...]


def load_host_trace(path: str | Path) -> HostTrace:
    """Return the trace that the observer wrote. Raises :class:`ConfigError` with the place of what is wrong."""
    with Source(path) as source:
        nodes: dict[int, HostNode] = {}
        offsets: dict[int, int] = {}
        schema, pid, offset = None, 0, 0
        for name, index, offset, value in JsonStream(source).members(frozenset(("nodes",))):
            if name == "schema":
                schema = str(value)
                if not _KNOWN_SCHEMAS.fullmatch(schema):
                    raise source.error(
                        f"schema {schema!r:.60}: understood are 1.0.1 to 1.1.x, with or without '-chakra.…'; collect "
                        "the trace with PyTorch 2.1 or newer",
                        offset,
                    )
            elif name == "traceEvents":
                raise source.error(
                    "a trace of PyTorch's profiler, which says when calls ran, not what they did: give the observer's "
                    "trace of the same script, calls.RANK.json.gz of archplace workload collect",
                    0,
                )
            elif name == "pid" and type(value) is int:
                try:
                    pid = _whole(value, "pid")
                except ValueError as error:
                    raise source.error(str(error), offset) from None
            elif name == "nodes" and index is not None:
                try:
                    node = _read_node(value)
                except (TypeError, ValueError, KeyError) as error:
                    what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                    raise source.error(f"node {_named(value)}: {what}", offset) from None
                if node.id in nodes:
                    raise source.error(f"node id {node.id} stands twice, first at byte {offsets[node.id]:,}", offset)
                nodes[node.id], offsets[node.id] = node, offset
        if schema is None:
            raise source.error("no 'schema': this is no execution trace of PyTorch", 0)
        if not nodes:
            raise source.error("no nodes: the observer was never started, or stopped before a step ran", offset)
        circle = _circle(nodes)
        if circle is not None:
            raise source.error(f"node {circle} is its own caller, over others", offsets[circle])
    ordered = tuple(nodes[number] for number in sorted(nodes))
    return HostTrace(path=Path(path), schema=schema, pid=pid, nodes=ordered)


def _named(value: object) -> str:
    return f"{value.get('id')!r:.30} ({value.get('name')!r:.60})" if isinstance(value, dict) else repr(value)[:60]


def _circle(nodes: Mapping[int, HostNode]) -> int | None:
    """Return a node that calls itself over others; the process is its own caller, and that is its end."""
    sound: set[int] = set()
    for start in nodes:
        path: dict[int, None] = {}
        number = start
        while number in nodes and number not in sound and nodes[number].parent != number:
            if number in path:
                return number
            path[number] = None
            number = nodes[number].parent
        sound.update(path)
    return None


def _read_node(value: object) -> HostNode:
    if not isinstance(value, dict):
        raise TypeError("a node is an object")
    if "attrs" in value:
        attributes = {item["name"]: item["value"] for item in value["attrs"]}
        parent, inputs, outputs = value["ctrl_deps"], value["inputs"], value["outputs"]
        given = [(*(side[part] for part in _PARTS), side.get("strides")) for side in (inputs, outputs)]
    else:
        attributes = {new: value[old] for old, new in _FLAT.items() if old in value}
        parent = attributes.pop("ctrl_deps")
        given = [
            (value[f"{side}s"], value[f"{side}_shapes"], value[f"{side}_types"], None) for side in ("input", "output")
        ]
    known = ("rf_id", "seq_id", "scope", "tid", "fw_tid")
    return HostNode(
        id=_whole(value["id"], "id"),
        parent=_whole(parent, "caller"),
        name=str(value["name"]),
        inputs=_arguments("input", given[0]),
        outputs=_arguments("output", given[1]),
        op_schema=str(attributes.pop("op_schema", "")),
        kernel_backend=str(attributes.pop("kernel_backend", "")),
        **{name: _whole(attributes.pop(name), name) for name in known if name in attributes},
        extras={name: found for name, found in attributes.items() if name not in ("fw_parent", "kernel_file")},
    )


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is a whole number, found {value!r:.60}")
    if abs(value) > _LARGEST:
        raise ValueError(f"{what} is {value!r:.60}, which is no 64-bit number")
    return value


def read_arguments(side: str, values: object, shapes: object, types: object) -> tuple[Argument, ...]:
    """Return the arguments or results of a call from three lists as the observer writes them, ``side`` for messages.

    Raises ``TypeError`` and ``ValueError`` for lists that are none or do not go together.
    """
    return _arguments(side, (values, shapes, types, None))


def _arguments(side: str, given: tuple[object, ...]) -> tuple[Argument, ...]:
    values, shapes, types, strides = given
    if not (isinstance(values, list) and isinstance(shapes, list) and isinstance(types, list)):
        raise TypeError(f"{side}s are lists of values, shapes and types")
    if not len(values) == len(shapes) == len(types):
        raise ValueError(
            f"{len(values)} {side}s, and {len(shapes)} shapes and {len(types)} types of them: shapes are missing; "
            "collect the trace with record_shapes"
        )
    steps = strides if isinstance(strides, list) and len(strides) == len(values) else [None] * len(values)
    found = []
    for place, (value, shape, kind, step) in enumerate(zip(values, shapes, types, steps, strict=True)):
        tensors: list[Tensor] = []
        if isinstance(value, list) and value:
            dtypes = iter(_TENSOR_TYPE.findall(str(kind)))
            _take_tensors(value, shape, step, dtypes, tensors, f"{side} {place}")
        found.append(Argument(value, shape, str(kind), tuple(tensors)))
    return tuple(found)


def _take_tensors(
    value: list[object], shape: object, strides: object, dtypes: Iterator[str], found: list[Tensor], where: str
) -> None:
    """Add the tensors in ``value``: six fields ``[id, storage, offset, elements, bytes of one, device]``, or a list."""
    if len(value) == 6 and isinstance(value[5], str) and all(type(number) is int for number in value[:5]):
        number, storage, offset, elements, item_bytes, device = cast(tuple[int, int, int, int, int, str], tuple(value))
        dtype = next(dtypes, found[-1].dtype if found else "")
        if not storage and not elements:
            return
        if not isinstance(shape, list) or not all(type(size) is int for size in shape):
            raise ValueError(f"{where} is a tensor without a shape (found {shape!r:.60}); collect with record_shapes")
        if min(storage, offset, elements, item_bytes) < 0 or max(offset, elements) * item_bytes > _LARGEST:
            raise ValueError(f"{where} is a tensor of {elements!r:.30} elements of {item_bytes!r:.30} bytes")
        begin = offset * item_bytes
        end = begin + _span(elements, shape, strides) * item_bytes
        steps = _steps(shape, strides)
        found.append(Tensor(number, storage, begin, end, elements, item_bytes, device, tuple(shape), dtype, steps))
        return
    for place, item in enumerate(value):
        if isinstance(item, list) and item:
            shape_of = shape[place] if isinstance(shape, list) and place < len(shape) else None
            step = strides[place] if isinstance(strides, list) and place < len(strides) else None
            _take_tensors(item, shape_of, step, dtypes, found, where)


def lies_in_rows(tensor: Tensor) -> bool:
    """Whether a tensor's elements lie one behind the other in the order of its dimensions, as far as is known."""
    step = 1
    for size, stride in reversed(list(zip(tensor.shape, tensor.strides or (), strict=False))):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def with_strides(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """Return a tensor of which no strides were known. Raises ``ValueError`` for others than its dimensions have."""
    if len(strides) != len(tensor.shape) or not all(type(step) is int and 0 <= step < _LARGEST for step in strides):
        raise ValueError(f"strides {strides!r:.60} of a tensor with {len(tensor.shape)} dimensions")
    span = _span(tensor.elements, list(tensor.shape), list(strides))
    return tensor._replace(strides=strides, end=tensor.begin + span * tensor.item_bytes)


def _steps(shape: list[int], strides: object) -> tuple[int, ...] | None:
    if not isinstance(strides, list) or len(strides) != len(shape) or not all(type(step) is int for step in strides):
        return None
    return tuple(strides)


def _span(elements: int, shape: list[int], strides: object) -> int:
    """Return over how many elements of its storage a tensor reaches."""
    if not elements or not isinstance(strides, list) or len(strides) != len(shape):
        return elements
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True) if isinstance(step, int))
