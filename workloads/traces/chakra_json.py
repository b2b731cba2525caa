"""Chakra traces as JSON: one valid document, ``{"metadata": {...}, "nodes": [...]}``, one node on a line.

Metadata and nodes are as protobuf's JSON mapping has them: names in lower camel case, 64-bit numbers as text, types by
name, bytes in base 64. Names as in the schema and numbers as numbers are read, too. Nothing is lost but the fields of
newer schemas.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces._json_stream import JsonStream
from archplace.workloads.traces._json_values import MOST_DIGITS, add_attributes, attribute_text, from_json, quoted
from archplace.workloads.traces._sink import Sink
from archplace.workloads.traces._source import Source
from archplace.workloads.traces.attributes import attribute_fields, read_attribute
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.trace import Metadata, node_complaint, version_complaint

_NODE = {
    "id": "id",
    "name": "name",
    "type": "type",
    "ctrlDeps": "ctrl_deps",
    "dataDeps": "data_deps",
    "startTimeMicros": "start_time_micros",
    "durationMicros": "duration_micros",
    "inputs": "inputs",
    "outputs": "outputs",
    "attr": "attr",
}
_NODE_FIELDS = _NODE | {field: field for field in _NODE.values()}
_METADATA_FIELDS = {"version": "version", "attr": "attr"}
_OPERANDS = ("values", "shapes", "types")
_TYPES = dict(chakra_pb2.NodeType.items())
_TYPE_NAMES = {number: name for name, number in _TYPES.items()}


class ChakraJsonReader:
    """Reads a JSON trace node by node, as :class:`~archplace.workloads.traces.ChakraReader` reads the other kind.

    ``metadata`` is there at once where the document begins with it, as it does when it was written here; otherwise when
    all nodes have been given.
    """

    def __init__(self, path: str | Path) -> None:
        """Open ``path`` and read up to the first node."""
        self._source = Source(path)
        self.offset = 0
        self.metadata = Metadata(version="")
        try:
            self._members = JsonStream(self._source).members(frozenset(("nodes",)))
            self._first = self._next()
        except BaseException:
            self._source.close()
            raise

    def __enter__(self) -> "ChakraJsonReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._source.close()

    def __iter__(self) -> Iterator[Node]:
        node = self._first
        while node is not None:
            yield node
            node = self._next()

    @property
    def share(self) -> float | None:
        """How much of the file has been read, from 0 to 1; None where its size is not known."""
        return self._source.share

    def error(self, message: str, offset: int | None = None) -> ConfigError:
        """Return the error for what is wrong with the node at ``offset``, or with the last that was given."""
        return self._source.error(message, self.offset if offset is None else offset)

    def _next(self) -> Node | None:
        for name, index, offset, value in self._members:
            if name == "metadata":
                self.metadata = self._read_metadata(value, offset)
            elif name == "nodes" and index is not None:
                self.offset = offset
                return self._read_node(value, offset)
            elif name != "nodes" or value != []:
                raise self._source.error(
                    f'member {name!r:.60}: a Chakra trace in JSON has "metadata" and a list of "nodes"', offset
                )
        return None

    def _read_metadata(self, value: object, offset: int) -> Metadata:
        try:
            fields = _renamed(value, _METADATA_FIELDS, "metadata")
            message = chakra_pb2.GlobalMetadata(version=_text(fields.get("version", "")))
            add_attributes(message.attr, _list(fields.get("attr", []), "attr"))
        except (TypeError, ValueError) as error:
            raise self._source.error(f"metadata: {error}", offset) from None
        complaint = version_complaint(message.version)
        if complaint:
            raise self._source.error(complaint, offset)
        return Metadata(version=message.version, attributes=tuple(map(read_attribute, message.attr)))

    def _read_node(self, value: object, offset: int) -> Node:
        try:
            node = Node(node_message(value))
        except (TypeError, ValueError) as error:
            named = value.get("id") if isinstance(value, dict) else None
            raise self._source.error(f"node {named!r:.30}: {error}", offset) from None
        complaint = node_complaint(node)
        if complaint:
            raise self._source.error(complaint, offset)
        return node


class ChakraJsonWriter:
    """Writes a JSON trace node by node; a context manager, as :class:`~archplace.workloads.traces.ChakraWriter`."""

    def __init__(self, path: str | Path, metadata: Metadata) -> None:
        """Begin the file with ``metadata``. Raises :class:`ConfigError` where it cannot be written."""
        self._sink = Sink(path)
        self._empty = True
        attributes = ",".join(
            attribute_text(chakra_pb2.AttributeProto(**attribute_fields(attribute)))  # type: ignore[arg-type]
            for attribute in metadata.attributes
        )
        version = quoted(metadata.version)
        self._sink.write(f'{{"metadata": {{"version":{version},"attr":[{attributes}]}},\n"nodes": ['.encode())

    def __enter__(self) -> "ChakraJsonWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._sink.write(b"\n]}\n")
        self._sink.close(keep=kind is None)

    def write(self, nodes: Iterable[Node]) -> int:
        """Write ``nodes`` and return how many they were."""
        count = 0
        put = self._sink.write
        for node in nodes:
            put((b"\n" if self._empty else b",\n") + node_text(node).encode())
            self._empty = False
            count += 1
        return count


def node_text(node: Node) -> str:
    """Return a node as JSON has it."""
    message = node.message
    text = f'{{"id":"{message.id}","name":{quoted(message.name)},"type":"{_TYPE_NAMES[message.type]}"'
    if message.ctrl_deps:
        text += f',"ctrlDeps":{_ids_text(message.ctrl_deps)}'
    if message.data_deps:
        text += f',"dataDeps":{_ids_text(message.data_deps)}'
    if message.start_time_micros:
        text += f',"startTimeMicros":"{message.start_time_micros}"'
    if message.duration_micros:
        text += f',"durationMicros":"{message.duration_micros}"'
    if message.HasField("inputs"):
        text += f',"inputs":{_operands_text(message.inputs)}'
    if message.HasField("outputs"):
        text += f',"outputs":{_operands_text(message.outputs)}'
    if message.attr:
        text += f',"attr":[{",".join(map(attribute_text, message.attr))}]'
    return text + "}"


def _ids_text(ids: Iterable[int]) -> str:
    return '["' + '","'.join(map(str, ids)) + '"]'


def _operands_text(message: chakra_pb2.IOInfo) -> str:
    return f'{{"values":{quoted(message.values)},"shapes":{quoted(message.shapes)},"types":{quoted(message.types)}}}'


def node_message(value: object) -> chakra_pb2.Node:
    """Return the message of a node that JSON describes. Raises TypeError or ValueError for what no node is."""
    if not isinstance(value, dict) or not value.keys() <= _NODE.keys():
        value = _renamed(value, _NODE_FIELDS, "a node")
    attributes: list[object] = []
    fields: dict[str, object] = {}
    for name, found in value.items():
        field = _NODE_FIELDS[name]
        if field == "attr":
            attributes = _list(found, field)
        else:
            fields[field] = _READ[field](found)
    message = chakra_pb2.Node(**fields)  # type: ignore[arg-type]  # the readers see to it
    add_attributes(message.attr, attributes)
    return message


def _number(found: object) -> object:
    # The form in which 64-bit numbers stand, without a detour.
    if type(found) is str and len(found) <= MOST_DIGITS and found.isdecimal():
        return int(found)
    return from_json("uint64", found)


def _ids(found: object) -> list[object]:
    return list(map(_number, _list(found, "a list of parents")))


def _type(found: object) -> object:
    if isinstance(found, str) and found in _TYPES:
        return _TYPES[found]
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    raise ValueError(f"type {found!r:.60}: allowed are {', '.join(_TYPES)}")


def _operands(found: object) -> dict[str, object]:
    operands = _renamed(found, {name: name for name in _OPERANDS}, "inputs and outputs")
    return {name: _text(item) for name, item in operands.items()}


def _renamed(value: object, names: dict[str, str], what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} is an object, found {value!r:.60}")
    found: dict[str, object] = {}
    for name, item in value.items():
        if name not in names:
            raise ValueError(f"unknown member {name!r:.60}; {what} has {', '.join(sorted(set(names)))}")
        if names[name] in found:
            raise ValueError(f"member {name!r:.60} stands twice, in two spellings")
        found[names[name]] = item
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r:.60}")
    return value


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{what} is a list, found {value!r:.60}")
    return value


_READ: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(("id", "start_time_micros", "duration_micros"), _number),
    **dict.fromkeys(("ctrl_deps", "data_deps"), _ids),
    **dict.fromkeys(("inputs", "outputs"), _operands),
    "name": _text,
    "type": _type,
}
