"""What one look at a rank's trace tells: its hash, its groups and peers, the order of its collectives."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces._records import frame
from archplace.workloads.traces.attributes import attribute_fields
from archplace.workloads.traces.meaning import meaning_of, whole
from archplace.workloads.traces.node import Node, NodeKind
from archplace.workloads.traces.trace import Metadata

_ORDER_BYTES = 16


@dataclass(slots=True, kw_only=True)
class GroupUse:
    """How one rank uses one process group."""

    count: int = 0
    """Collectives of the group."""
    members: range | None = None
    """Its ranks, where the nodes say so: first rank, distance and size."""
    size: int | None = None
    order: bytes = b""
    """Hash of the kinds and sizes of its collectives, in the trace's order: members that agree have the same."""


@dataclass(slots=True, kw_only=True)
class Survey:
    """What was seen of one rank."""

    sha256: str = ""
    """Of metadata and nodes as records, whatever the file's format and compression."""
    n_nodes: int = 0
    groups: dict[str | None, GroupUse] = field(default_factory=dict)
    """By name; None is all ranks."""
    peers: set[int] = field(default_factory=set)
    """Ranks that it sends to or receives from."""


def surveying(metadata: Metadata, nodes: Iterable[Node], survey: Survey) -> Iterator[Node]:
    """Pass ``nodes`` on and fill ``survey``; its hash stands when all have passed."""
    fields = [attribute_fields(attribute) for attribute in metadata.attributes]
    head = chakra_pb2.GlobalMetadata(version=metadata.version, attr=fields)
    whole_file = hashlib.sha256(frame(head.SerializeToString()))
    for node in nodes:
        whole_file.update(frame(node.message.SerializeToString()))
        survey.n_nodes += 1
        if node.message.type >= NodeKind.SEND:
            _note(node, survey)
        yield node
    survey.sha256 = whole_file.hexdigest()


def _note(node: Node, survey: Survey) -> None:
    values = node.values()
    if node.kind is not NodeKind.COLLECTIVE:
        peer = whole(values, "comm_dst" if node.kind is NodeKind.SEND else "comm_src")
        if peer is not None:
            survey.peers.add(peer)
        return
    found = meaning_of(node)
    if found.mislabelled:
        return
    use = survey.groups.setdefault(found.group, GroupUse())
    use.count += 1
    step = f"{found.collective} {found.size_bytes}".encode()
    use.order = hashlib.blake2b(use.order + step, digest_size=_ORDER_BYTES).digest()
    size, first, stride = (whole(values, name) for name in ("pg_size", "pg_first_rank", "pg_rank_stride"))
    use.size = size if size is not None else use.size
    if size and first is not None and (stride or size == 1) and min(size, first, stride or 1) >= 0:
        use.members = range(first, first + size * (stride or 1), stride or 1)
