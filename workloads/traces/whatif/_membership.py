"""Nodes of communications whose group has other members than before."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces.meaning import group_of
from archplace.workloads.traces.node import Node, NodeKind
from archplace.workloads.traces.whatif._edit import copied, drop, number, put


def communicates(node: Node) -> bool:
    """Whether ranks and groups occur in a node."""
    return bool(node.message.type >= NodeKind.SEND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A group as its members' nodes describe it."""

    name: str | None
    """None for all ranks."""
    size: int
    first: int
    stride: int | None
    """Distance of its ranks; None where they are not in equal steps."""

    @classmethod
    def of(cls, name: str | None, members: tuple[int, ...]) -> "Membership":
        """Describe a group of at least one rank."""
        steps = {after - before for before, after in pairwise(members)}
        regular = len(steps) <= 1 and min(steps, default=1) > 0
        return cls(name=name, size=len(members), first=members[0], stride=max(steps, default=1) if regular else None)


def with_members(message: chakra_pb2.Node, group: Membership) -> None:
    """Set the group of a collective and what the node says of its members; what it does not say is not added."""
    values = Node(message).values()
    if group.name is not None and group_of(values) != group.name:
        given = "comm_group" if "comm_group" in values and "pg_name" not in values else "pg_name"
        numbered = isinstance(values.get(given), int)
        put(message, given, int(group.name) if numbered else group.name)
    if "pg_size" in values:
        put(message, "pg_size", group.size)
    if group.stride is None:
        drop(message, "pg_rank_stride", "pg_first_rank")
        return
    if "pg_first_rank" in values:
        put(message, "pg_first_rank", group.first)
    if "pg_rank_stride" in values:
        put(message, "pg_rank_stride", group.stride)


def with_peers(node: Node, renumber: Callable[[int], int]) -> Node:
    """Return a send or a receive with other numbers for both ends."""
    values = node.values()
    message = copied(node)
    for name in ("comm_src", "comm_dst"):
        rank = number(values, name)
        if rank is not None:
            put(message, name, renumber(rank))
    return Node(message)
