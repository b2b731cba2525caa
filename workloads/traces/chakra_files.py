"""Chakra execution traces (``.et``): metadata first, then one record for each node, plain or gzip."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from google.protobuf.message import DecodeError

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces._records import frame, read_records
from archplace.workloads.traces._sink import Sink
from archplace.workloads.traces._source import Source
from archplace.workloads.traces.attributes import attribute_fields, read_attribute
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.trace import Metadata, node_complaint, version_complaint


class ChakraReader:
    """Reads a trace node by node; a context manager. What is in memory at a time is one block and one node.

    ``metadata`` is there at once. Iterating gives the nodes in the file's order, once. Raises :class:`ConfigError` with
    the offset in the file for everything that is no trace; what concerns several nodes (parents, cycles, doubles) is
    :mod:`~archplace.workloads.traces.audit`'s.
    """

    def __init__(self, path: str | Path) -> None:
        """Open ``path`` and read the metadata."""
        self._source = Source(path)
        try:
            self._records = read_records(self._source)
            self.metadata = self._read_metadata()
        except BaseException:
            self._source.close()
            raise
        self.offset = 0
        """Where the last node that was given begins."""

    def __enter__(self) -> "ChakraReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._source.close()

    def __iter__(self) -> Iterator[Node]:
        parse = chakra_pb2.Node.FromString
        for offset, record in self._records:
            self.offset = offset
            try:
                node = Node(parse(record))
            except DecodeError:
                raise self._source.error(
                    f"{len(record):,} bytes that are no node: the file is damaged, or no Chakra trace", offset
                ) from None
            complaint = node_complaint(node)
            if complaint:
                raise self._source.error(complaint, offset)
            yield node

    @property
    def share(self) -> float | None:
        """How much of the file has been read, from 0 to 1; None where its size is not known."""
        return self._source.share

    def error(self, message: str, offset: int | None = None) -> ConfigError:
        """Return the error for what is wrong with the node at ``offset``, or with the last that was given."""
        return self._source.error(message, self.offset if offset is None else offset)

    def _read_metadata(self) -> Metadata:
        first = next(self._records, None)
        if first is None:
            raise self._source.error("an empty file: a trace begins with its metadata", 0)
        try:
            message = chakra_pb2.GlobalMetadata.FromString(first[1])
        except DecodeError:
            raise self._source.error("the first record is no metadata: this is no Chakra trace", 0) from None
        if _looks_like_node(first[1]):
            raise self._source.error(
                "the first record is a node, not metadata, and other readers would lose it: write metadata first, be "
                "it empty (one byte 0)",
                0,
            )
        complaint = version_complaint(message.version)
        if complaint:
            raise self._source.error(complaint, 0)
        return Metadata(version=message.version, attributes=tuple(map(read_attribute, message.attr)))


class ChakraWriter:
    """Writes a trace node by node; a context manager. With the suffix ``.gz`` it is compressed.

    The file appears under its name when all is written. The same nodes give the same bytes.
    """

    def __init__(self, path: str | Path, metadata: Metadata) -> None:
        """Begin the file with ``metadata``. Raises :class:`ConfigError` where it cannot be written."""
        self._sink = Sink(path)
        fields = [attribute_fields(attribute) for attribute in metadata.attributes]
        message = chakra_pb2.GlobalMetadata(version=metadata.version, attr=fields)
        self._sink.write(frame(message.SerializeToString()))

    def __enter__(self) -> "ChakraWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._sink.close(keep=kind is None)

    def write(self, nodes: Iterable[Node]) -> int:
        """Write ``nodes`` and return how many they were."""
        count = 0
        put = self._sink.write
        for node in nodes:
            put(frame(node.message.SerializeToString()))
            count += 1
        return count


def _looks_like_node(record: bytes) -> bool:
    # The numbers of a node's id and type are none of a metadata's numbers, or of another kind there.
    try:
        node = chakra_pb2.Node.FromString(record)
    except DecodeError:
        return False
    return node.id != 0 or node.type != 0
