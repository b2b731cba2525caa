"""Traces by their path: what kind of file it is tells its beginning, not its name."""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traces._source import Source
from archplace.workloads.traces.audit import Audit, Auditor, Reader, audit
from archplace.workloads.traces.chakra_files import ChakraReader, ChakraWriter
from archplace.workloads.traces.chakra_json import ChakraJsonReader, ChakraJsonWriter
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.trace import Metadata, Trace

_BEGINNING_BYTES = 1 << 16
_KEY = re.compile(rb'[\s{,]*"((?:[^"\\]|\\.)*)"\s*:')


class TraceFormat(StrEnum):
    """What a trace file is."""

    CHAKRA = "chakra"
    CHAKRA_JSON = "chakra-json"
    PYTORCH = "pytorch"
    """An execution trace of PyTorch's observer."""
    KINETO = "kineto"
    """A Chrome trace of PyTorch's profiler."""


_OF_KEY = {
    b"metadata": TraceFormat.CHAKRA_JSON,
    b"nodes": TraceFormat.CHAKRA_JSON,
    b"schema": TraceFormat.PYTORCH,
    b"pid": TraceFormat.PYTORCH,
    b"schemaVersion": TraceFormat.KINETO,
    b"traceEvents": TraceFormat.KINETO,
    b"deviceProperties": TraceFormat.KINETO,
    b"distributedInfo": TraceFormat.KINETO,
}


class Writer(Protocol):
    """What writes a trace node by node."""

    def write(self, nodes: Iterable[Node]) -> int:
        """Write ``nodes`` and return how many they were."""


class MemoryReader:
    """Gives the nodes of a trace that is in memory, as the readers of files do."""

    def __init__(self, trace: Trace, path: str | Path) -> None:
        """Take ``trace``; ``path`` is what errors name."""
        self.metadata = trace.metadata
        self.offset = 0
        self._nodes = trace.nodes
        self._path = path

    @property
    def share(self) -> float | None:
        """How many of the nodes have been given, from 0 to 1."""
        return (self.offset + 1) / len(self._nodes) if self._nodes else None

    def __iter__(self) -> Iterator[Node]:
        for place, node in enumerate(self._nodes):
            self.offset = place
            yield node

    def error(self, message: str, offset: int | None = None) -> ConfigError:
        """Return the error for what is wrong with the node at the place ``offset``, or the last that was given."""
        place = self.offset if offset is None else offset
        return ConfigError([Problem(place=str(self._path), key=f"node {place:,} of the trace", message=message)])


def trace_format(path: str | Path) -> TraceFormat:
    """Return what kind of trace a file is, by its first bytes. Raises :class:`ConfigError` for JSON of another kind."""
    with Source(path) as source:
        beginning = source.read(_BEGINNING_BYTES)
        # A record of 123 bytes begins with a brace, too; what follows in JSON is space or a quotation mark, and then no
        # control character.
        if not re.match(rb'\s*\{\s*["}]', beginning):
            return TraceFormat.CHAKRA
        key = _KEY.match(beginning)
        if key is None or key[1] not in _OF_KEY:
            found = repr(key[1].decode(errors="replace")[:60]) if key else "no member"
            raise source.error(
                f"JSON that begins with {found}: known are Chakra traces ('metadata', 'nodes'), execution traces of "
                "PyTorch's observer ('schema', …, 'nodes') and Chrome traces of its profiler ('schemaVersion', …, "
                "'traceEvents')",
                0,
            )
        return _OF_KEY[key[1]]


def open_reader(path: str | Path) -> AbstractContextManager[Reader]:
    """Open a Chakra trace, of either kind. Raises :class:`ConfigError` where it is none."""
    kind = trace_format(path)
    if kind is TraceFormat.CHAKRA:
        return ChakraReader(path)
    if kind is TraceFormat.CHAKRA_JSON:
        return ChakraJsonReader(path)
    advice = {
        TraceFormat.PYTORCH: "an execution trace of PyTorch: make a Chakra trace of it with archplace workload import",
        TraceFormat.KINETO: "a trace of PyTorch's profiler, which says when calls ran, not what they did: give it with "
        "an execution trace of PyTorch's observer, as --profile",
    }
    raise ConfigError([Problem(place=str(path), key="", message=advice[kind])])


def open_writer(path: str | Path, metadata: Metadata) -> AbstractContextManager[Writer]:
    """Begin a Chakra trace: as JSON where the name ends in ``.json`` or ``.json.gz``, as records otherwise."""
    name = Path(path).name.removesuffix(".gz")
    return ChakraJsonWriter(path, metadata) if name.endswith(".json") else ChakraWriter(path, metadata)


def audit_file(path: str | Path) -> Audit:
    """Look at a whole Chakra trace. Raises :class:`ConfigError` for whatever is wrong with it."""
    return audit(lambda: open_reader(path))


def load_trace(path: str | Path) -> Trace:
    """Return a whole Chakra trace, in memory. Raises :class:`ConfigError` for whatever is wrong with it."""
    with open_reader(path) as reader:
        auditor = Auditor(reader)
        nodes = tuple(auditor)
        metadata = reader.metadata
    if auditor.found.n_forward:
        audit_file(path)
    return Trace(metadata=metadata, nodes=nodes)


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace. Raises :class:`ConfigError` where it cannot be written."""
    with open_writer(path, trace.metadata) as writer:
        writer.write(trace.nodes)
