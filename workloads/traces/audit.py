"""What must hold of a trace's nodes together: no id twice, all parents there, nobody waits for itself."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces._seen import Ids, SeenIds
from archplace.workloads.traces.arrays import TraceArrays
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.trace import Metadata

_CHUNK = 1 << 16
MOST_NAMED = 5


class Reader(Protocol):
    """What reads a trace node by node."""

    metadata: Metadata
    offset: int

    @property
    def share(self) -> float | None:
        """How much has been read, from 0 to 1; None where that is not known."""

    def __iter__(self) -> Iterator[Node]:
        """Give the nodes in the file's order, once."""

    def error(self, message: str, offset: int | None = None) -> ConfigError:
        """Return the error for what is wrong with the node at ``offset``, or with the last that was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found in a sound trace."""

    n_nodes: int
    n_edges: int
    """Dependencies as the file has them, without control parents that are callers."""
    n_forward: int
    """Dependencies on nodes that come later in the file."""


class Auditor:
    """Passes the nodes of ``reader`` on and looks at them on the way.

    Memory: a few bytes where ids rise without gaps and parents stand before their children, as simulators need them;
    otherwise up to 16 bytes for each gap and each dependency on a later node.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._seen = SeenIds()
        self._waiting: list[tuple[Ids, Ids]] = []
        self._nodes = self._edges = self._forward = 0

    def __iter__(self) -> Iterator[Node]:
        """Give the nodes. Raises :class:`ConfigError` at the end of a chunk that breaks a rule, or of the file."""
        callers = self._reader.metadata.control_is_caller
        ids: list[int] = []
        offsets: list[int] = []
        parents: list[int] = []
        counts: list[int] = []
        for node in self._reader:
            message = node.message
            control, data = () if callers else message.ctrl_deps, message.data_deps
            ids.append(message.id)
            offsets.append(self._reader.offset)
            counts.append(len(control) + len(data))
            parents.extend(control)
            parents.extend(data)
            yield node
            if len(ids) + len(parents) >= _CHUNK:
                self._take(ids, offsets, parents, counts)
                ids, offsets, parents, counts = [], [], [], []
        self._take(ids, offsets, parents, counts)
        self._finish()

    @property
    def found(self) -> Audit:
        """What was found; whole when all nodes have passed."""
        return Audit(n_nodes=self._nodes, n_edges=self._edges, n_forward=self._forward)

    def _take(self, ids: list[int], offsets: list[int], parents: list[int], counts: list[int]) -> None:
        own = np.array(ids, dtype=np.uint64)
        wanted = np.array(parents, dtype=np.uint64)
        children = np.repeat(np.arange(len(own)), counts) if len(own) else np.zeros(0, dtype=np.int64)
        order = np.argsort(own, kind="stable")
        ordered = own[order]
        double = self._seen.holds(ordered)
        double[1:] |= ordered[1:] == ordered[:-1]
        if double.any():
            at = int(order[double].min())
            raise self._reader.error(f"node id {ids[at]} stands twice: ids are unique within a trace", offsets[at])
        selves = np.flatnonzero(own[children] == wanted)
        if len(selves):
            at = int(children[selves[0]])
            raise self._reader.error(f"node {ids[at]} waits for itself", offsets[at])
        known = self._seen.holds(wanted)
        place = np.searchsorted(ordered, wanted)
        here = place < len(own)
        here[here] = ordered[place[here]] == wanted[here]
        known[here] |= order[place[here]] < children[here]
        later = ~known
        if later.any():
            self._waiting.append((own[children[later]], wanted[later]))
        self._seen.add(ordered)
        self._nodes += len(own)
        self._edges += len(wanted)
        self._forward += int(later.sum())

    def _finish(self) -> None:
        lost = 0
        examples: list[str] = []
        for children, parents in self._waiting:
            missing = ~self._seen.holds(parents)
            lost += int(missing.sum())
            for child, parent in zip(children[missing], parents[missing], strict=True):
                if len(examples) == MOST_NAMED:
                    break
                examples.append(f"node {child} waits for {parent}")
        if lost:
            more = ", …" if lost > len(examples) else ""
            raise self._reader.error(
                f"{lost:,} dependencies on nodes that the trace does not have: {', '.join(examples)}{more}; it was cut "
                "out of a larger one, or its end is missing"
            )


def audit(open_reader: Callable[[], AbstractContextManager[Reader]]) -> Audit:
    """Look at a whole trace; a second time, with its graph in memory, only where it is not ordered.

    Raises :class:`ConfigError` for doubled ids, missing parents and cycles.
    """
    with open_reader() as reader:
        auditor = Auditor(reader)
        for _ in auditor:
            pass
    if auditor.found.n_forward:
        with open_reader() as reader:
            try:
                TraceArrays.collect(reader, control=not reader.metadata.control_is_caller).order()
            except ValueError as error:
                raise reader.error(str(error)) from None
    return auditor.found
