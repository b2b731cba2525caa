"""Programs as Chakra traces, as ASTRA-sim reads them: one file for each device.

Devices with one program have the same nodes, but for the groups and partners that these name: a node is encoded once,
and what differs is put behind it (of a message in protobuf's encoding, two parts one after the other are the message
with the fields of both). Devices that also share groups and partners have the same file.

ASTRA-sim computes in whole microseconds, or by operations and bytes; a system file of one operation per picosecond
makes of 1000 · t + 1 operations t nanoseconds exactly (the one more because it rounds down). Traces for other readers
have durations in microseconds, rounded so that they do not drift, and the nanoseconds beside them.
"""

from collections.abc import Iterator
from enum import StrEnum

from archplace.search.export.case import Case
from archplace.search.export.communicators import Team
from archplace.search.export.nodes import Peer, Program, Step
from archplace.workloads.traces import Attribute, AttributeKind, Node, NodeKind
from archplace.workloads.traces._records import frame
from archplace.workloads.traces.trace import SCHEMA_VERSION

_PICOSECONDS = 1000


class Style(StrEnum):
    """For whom traces are."""

    ASTRA_SIM = "astra-sim"
    """Computing as operations that take so many nanoseconds."""
    PLAIN = "plain"
    """Computing as durations."""


_BASE_OF_ATTRIBUTES = 0x52
"""Tag of a node's attributes in the encoding: field 10, of a length."""

_HEAD = frame(b"\x0a" + frame(SCHEMA_VERSION.encode()))
"""The metadata that a trace begins with: its version."""

_Content = tuple[int, tuple[str | int | None, ...]]


class TraceEncoder:
    """Encodes what each device of a case runs."""

    def __init__(self, case: Case, style: Style = Style.ASTRA_SIM) -> None:
        self._case = case
        self._bases = [_nodes(program, style) for program in case.programs]
        self._attributes: dict[tuple[NodeKind, str | int], bytes] = {}
        self._ends = [_ends(program) for program in case.programs]

    def content(self, npu: int) -> _Content:
        """Return what a device's trace depends on: those of two devices are the same where this is."""
        role = int(self._case.role[npu])
        teams, peers = self._ends[role]
        case = self._case
        groups = tuple(case.group(npu, team).number for team in teams)
        return role, (*groups, *(case.peer(npu, peer) for peer in peers))

    def records(self, npu: int) -> Iterator[bytes]:
        """Yield the parts of a device's trace, first to last."""
        case = self._case
        role = int(case.role[npu])
        yield _HEAD
        for step, base in zip(case.programs[role], self._bases[role], strict=True):
            if step.team is not None:
                yield frame(base + self._attribute(step.kind, str(case.group(npu, step.team).number)))
            elif step.peer is not None:
                yield frame(base + self._attribute(step.kind, case.peer(npu, step.peer)))
            else:
                yield frame(base)

    def _attribute(self, kind: NodeKind, value: str | int) -> bytes:
        """Return the encoded attribute that says with whom a node exchanges."""
        key = kind, value
        if key not in self._attributes:
            if kind is NodeKind.COLLECTIVE:
                attribute = Attribute(name="pg_name", kind=AttributeKind.STRING, value=value)
            else:
                name = "comm_dst" if kind is NodeKind.SEND else "comm_src"
                attribute = Attribute(name=name, kind=AttributeKind.INT32, value=value)
            node = Node.build(id=0, kind=NodeKind.INVALID, attributes=[attribute])
            encoded = node.message.SerializeToString()
            assert encoded[0] == _BASE_OF_ATTRIBUTES
            self._attributes[key] = encoded
        return self._attributes[key]


def _nodes(program: Program, style: Style) -> list[bytes]:
    """Return the nodes of a program without what differs between the devices that run it."""
    found = []
    computed_ns = 0
    for place, step in enumerate(program):
        # The end of all computing so far, rounded, less its begin: what one loses to rounding the next one gains.
        micros = round((computed_ns + step.nanoseconds) / 1000) - round(computed_ns / 1000)
        computed_ns += step.nanoseconds
        found.append(_node(place, step, max(1, micros) if step.kind is NodeKind.COMPUTE else 0, style))
    return found


def _node(place: int, step: Step, micros: int, style: Style) -> bytes:
    attributes = [Attribute(name="is_cpu_op", kind=AttributeKind.BOOL, value=False)]
    if step.kind is NodeKind.COMPUTE:
        if style is Style.ASTRA_SIM:
            operations = _PICOSECONDS * step.nanoseconds + 1
            attributes.append(Attribute(name="num_ops", kind=AttributeKind.INT64, value=operations))
            attributes.append(Attribute(name="tensor_size", kind=AttributeKind.UINT64, value=1))
        else:
            attributes.append(Attribute(name="duration_ns", kind=AttributeKind.UINT64, value=step.nanoseconds))
    else:
        attributes.append(Attribute(name="comm_size", kind=AttributeKind.INT64, value=step.size_bytes))
        if step.collective is not None:
            attributes.append(Attribute(name="comm_type", kind=AttributeKind.INT64, value=int(step.collective)))
        else:
            attributes.append(Attribute(name="comm_tag", kind=AttributeKind.INT32, value=step.tag))
    node = Node.build(
        id=place,
        kind=step.kind,
        name=step.name,
        data_parents=step.after,
        duration_micros=micros,
        attributes=attributes,
    )
    return node.message.SerializeToString()


def _ends(program: Program) -> tuple[tuple[Team, ...], tuple[Peer, ...]]:
    """Return the teams and partners that a program names, each once."""
    teams = dict.fromkeys(step.team for step in program if step.team is not None)
    peers = dict.fromkeys(step.peer for step in program if step.peer is not None)
    return tuple(teams), tuple(peers)
