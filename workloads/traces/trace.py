"""What is said about a trace as a whole, and a trace that is held in memory."""

import re
from dataclasses import dataclass

from archplace.workloads.traces.attributes import Attribute
from archplace.workloads.traces.node import Node

SCHEMA_VERSION = "0.0.4"
"""What is written: the newest number that all readers know. Schema 1.0.0 has the same messages."""

_KNOWN_VERSIONS = re.compile(r"|0\.0\.4|1\.\d+\.\d+")
MAX_ATTRIBUTES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What stands before the nodes. ``version`` is the schema's; converters of PyTorch traces leave it empty."""

    version: str = SCHEMA_VERSION
    attributes: tuple[Attribute, ...] = ()

    @property
    def control_is_caller(self) -> bool:
        """Whether control parents are no dependencies but who called: so write converters of PyTorch traces.

        Callers may be missing, call themselves, and end after what they called. Such traces tell by their metadata,
        which is that of the execution trace.
        """
        return {"schema", "start_ts", "finish_ts"} <= {attribute.name for attribute in self.attributes}

    def value(self, name: str) -> object:
        """Return an attribute's value, the last of that name, or None."""
        return next((found.value for found in reversed(self.attributes) if found.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rank's trace in memory. Nodes are in the file's order, which need not be that of their parents."""

    metadata: Metadata
    nodes: tuple[Node, ...]


def version_complaint(version: str) -> str | None:
    """Return what is wrong with a schema version, or None for one that is understood."""
    if _KNOWN_VERSIONS.fullmatch(version):
        return None
    return (
        f"schema version {version!r:.60}: understood are 0.0.4, 1.x.y and none at all; convert the trace with the "
        "tools of its own version first"
    )


def node_complaint(node: Node) -> str | None:
    """Return what no node may be, whatever the trace, or None."""
    message = node.message
    if not 1 <= message.type <= 7:
        return (
            f"node {message.id} ({message.name!r:.60}) has type {message.type}; types are 1 (metadata) to 7 "
            "(collective): the file is damaged, of another schema, or no Chakra trace"
        )
    if len(message.attr) > MAX_ATTRIBUTES:
        return f"node {message.id} has {len(message.attr):,} attributes; at most {MAX_ATTRIBUTES:,} are read"
    return None
