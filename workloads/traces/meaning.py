"""What the attributes of Chakra traces mean, whoever wrote them.

The schema does not define attributes; what simulators read has become the custom, and writers differ: in the kind of
integer, in ``is_cpu_op`` as a number, in ``comm_group`` before there was ``pg_name``, in host calls that launch a
collective and are labelled as one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from archplace.workloads.traces.attributes import Value
from archplace.workloads.traces.node import CollectiveType, Node, NodeKind

_LAUNCHER = re.compile(r"c10d::|_?c10d_functional::|nccl:|gloo:|record_param_comms")


class Role(StrEnum):
    """What a node occupies while it runs."""

    HOST = "host"
    """A call on the processor, launchers of kernels and of collectives among them."""
    COMPUTE = "compute"
    MEMORY = "memory"
    COLLECTIVE = "collective"
    POINT_TO_POINT = "point_to_point"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a node does, in numbers; 0 and None where the trace does not say."""

    role: Role
    mislabelled: bool
    """Whether it is labelled as a collective and only launches one."""
    flops: int
    size_bytes: int
    """Bytes that a computation touches, or that a communication takes from each member."""
    collective: CollectiveType | None
    group: str | None
    """Process group; None for all devices."""
    involved_dimensions: tuple[bool, ...]
    """Network dimensions that a collective spans; empty where the trace does not say."""
    duration_ns: int
    start_ns: int | None


def meaning_of(node: Node) -> Meaning:
    """Return what a node means."""
    values = node.values()
    kind = node.kind
    on_host = bool(whole(values, "is_cpu_op"))
    launcher = kind is NodeKind.COLLECTIVE and on_host and bool(_LAUNCHER.match(node.name))
    communicates = kind in (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE) and not launcher
    number = whole(values, "comm_type")
    collective = CollectiveType(number) if number in set(CollectiveType) else None
    nanoseconds, begun = whole(values, "duration_ns"), whole(values, "start_ns")
    if begun is None and node.start_micros:
        begun = node.start_micros * 1000
    return Meaning(
        role=_role(kind, on_host, launcher),
        mislabelled=launcher,
        flops=max(0, whole(values, "num_ops") or 0),
        size_bytes=max(0, whole(values, "comm_size" if communicates else "tensor_size") or 0),
        collective=collective if kind is NodeKind.COLLECTIVE and not launcher else None,
        group=group_of(values) if communicates else None,
        involved_dimensions=_dimensions(values.get("involved_dim")),
        duration_ns=node.duration_micros * 1000 if nanoseconds is None else nanoseconds,
        start_ns=begun,
    )


def whole(values: Mapping[str, Value | None], name: str) -> int | None:
    """Return a whole number, of whatever kind it was written; None for none."""
    value = values.get(name)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def group_of(values: Mapping[str, Value | None]) -> str | None:
    """Return the process group; None for all devices, which is also what ``""`` and ``"0"`` stand for."""
    name = values.get("pg_name", values.get("comm_group"))
    text = "" if name is None or isinstance(name, tuple | bytes) else str(name)
    return None if text in ("", "0") else text


def _role(kind: NodeKind, on_host: bool, launcher: bool) -> Role:
    if kind is NodeKind.METADATA:
        return Role.METADATA
    if on_host and (launcher or kind is NodeKind.COMPUTE):
        return Role.HOST
    if kind is NodeKind.COLLECTIVE:
        return Role.COLLECTIVE
    if kind in (NodeKind.SEND, NodeKind.RECEIVE):
        return Role.POINT_TO_POINT
    return Role.MEMORY if kind in (NodeKind.MEMORY_LOAD, NodeKind.MEMORY_STORE) else Role.COMPUTE


def _dimensions(value: Value | None) -> tuple[bool, ...]:
    return tuple(map(bool, value)) if isinstance(value, tuple) else ()
