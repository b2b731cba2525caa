"""Communications in PyTorch's traces: what, among whom, how much, from c10d's calls, the library's notes, and gloo's.

Sizes are those of what goes in, as Chakra's traces have them: of an all-gather one rank's part, of a reduce-scatter the
whole, of an all-to-all all that one rank sends.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from archplace.workloads.traces._op_schema import schema_arguments
from archplace.workloads.traces.call_tree import Operator, recorded_name
from archplace.workloads.traces.host_trace import Argument, HostNode, Tensor
from archplace.workloads.traces.node import CollectiveType, NodeKind

_TYPES: tuple[tuple[str, CollectiveType | NodeKind], ...] = (
    # The first that the name begins with, when all but letters are gone.
    ("allreduce", CollectiveType.ALL_REDUCE),
    ("allgather", CollectiveType.ALL_GATHER),
    ("alltoall", CollectiveType.ALL_TO_ALL),
    ("reducescatter", CollectiveType.REDUCE_SCATTER),
    ("reduce", CollectiveType.REDUCE),
    ("broadcast", CollectiveType.BROADCAST),
    ("gather", CollectiveType.GATHER),
    ("scatter", CollectiveType.SCATTER),
    ("barrier", CollectiveType.BARRIER),
    ("monitoredbarrier", CollectiveType.BARRIER),
    ("send", NodeKind.SEND),
    ("isend", NodeKind.SEND),
    ("recv", NodeKind.RECEIVE),
    ("irecv", NodeKind.RECEIVE),
)
_LIBRARIES = ("c10d::", "_c10d_functional::", "c10d_functional::")
_ITEM_BYTES = {
    "byte": 1,
    "char": 1,
    "bool": 1,
    "float8": 1,
    "half": 2,
    "bfloat16": 2,
    "short": 2,
    "double": 8,
    "long": 8,
}
_OTHER_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """One communication as one rank sees it. What the trace does not say is None."""

    kind: NodeKind
    """COLLECTIVE, SEND or RECEIVE."""
    type: CollectiveType | None
    size_bytes: int
    dtype: str
    group: str | None
    group_size: int | None
    first_rank: int | None
    """The group's lowest rank in the whole job; further ranks follow at ``rank_stride``."""
    rank_stride: int | None
    root: int | None
    peer: int | None
    tag: int | None


def communication_kind(name: str) -> tuple[NodeKind, CollectiveType | None] | None:
    """Return what a collective's name means, whoever spells it, or None for what is no communication."""
    letters = re.sub(r"[^a-z]", "", name.lower().removeprefix("nccl:").removeprefix("gloo:"))
    for begin, meaning in _TYPES:
        if letters.startswith(begin):
            if isinstance(meaning, NodeKind):
                return meaning, None
            return NodeKind.COLLECTIVE, meaning
    return None


def communication_of(operator: Operator) -> Communication | None:
    """Return what an operator communicates, or None where it does not.

    The library's note inside is believed first, then the name of c10d's own operators.
    """
    node, record = operator.node, operator.record
    own = next((node.name.removeprefix(library) for library in _LIBRARIES if node.name.startswith(library)), None)
    kind = communication_kind(recorded_name(record)) if record else None
    kind = kind or (communication_kind(own) if own is not None else None)
    if kind is None:
        return None
    given = _named_values(node)
    extras = record.extras if record else {}
    moved = tuple(incoming(node)) or tuple(outgoing(node))
    if not moved and record:
        moved = tuple(tensor for argument in record.inputs for tensor in argument.tensors)
    size = sum(tensor.size_bytes for tensor in moved)
    dtype = moved[0].dtype if moved else str(extras.get("dtype", ""))
    if not size and record:
        size = (_whole(extras.get("in_msg_nelems")) or 0) * _item_bytes(dtype)
    rooted = kind[1] in (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
    peer = given.get("dst") if kind[0] is NodeKind.SEND else given.get("src") if kind[0] is NodeKind.RECEIVE else None
    return Communication(
        kind=kind[0],
        type=kind[1],
        size_bytes=size,
        dtype=dtype,
        group=_text(extras.get("pg_name")) or _text(given.get("group_name")),
        group_size=_whole(extras.get("pg_size")) or _whole(given.get("group_size")),
        first_rank=_whole(extras.get("global_rank_start")),
        rank_stride=_whole(extras.get("global_rank_stride")),
        root=_whole(given.get("root_rank", given.get("src"))) if rooted else None,
        peer=_whole(peer),
        tag=_whole(given.get("tag")),
    )


def incoming(node: HostNode) -> Iterator[Tensor]:
    """Give the tensors whose contents a call of c10d reads."""
    for name, argument in _named(node):
        if not _is_result(node, name) and node.name != "c10d::barrier":
            yield from argument.tensors


def outgoing(node: HostNode) -> Iterator[Tensor]:
    """Give the tensors that a call of c10d changes, though its schema does not say so."""
    for name, argument in _named(node):
        in_place = name == "tensors" and not re.search("send|barrier", node.name)
        if _is_result(node, name) or in_place:
            yield from argument.tensors


def is_c10d(node: HostNode) -> bool:
    """Whether a call's schema hides what it changes."""
    return node.name.startswith("c10d::")


def process_groups(nodes: Sequence[HostNode]) -> dict[str, dict[str, object]]:
    """Return what the trace says of its process groups, by name; none where it says nothing, or no JSON."""
    groups: dict[str, dict[str, object]] = {}
    for node in nodes:
        if node.name != "## process_group:init ##":
            continue
        for argument in node.inputs:
            try:
                found = json.loads(str(argument.value))
            except (ValueError, RecursionError):
                continue
            for group in found if isinstance(found, list) else []:
                if isinstance(group, dict) and "pg_name" in group:
                    groups[str(group["pg_name"])] = group
    return groups


def _named(node: HostNode) -> Iterator[tuple[str, Argument]]:
    arguments = schema_arguments(node.op_schema)
    for place, argument in enumerate(node.inputs):
        yield arguments[place].name if place < len(arguments) else "", argument


def _named_values(node: HostNode) -> dict[str, object]:
    return {name: argument.value for name, argument in _named(node)}


def _is_result(node: HostNode, name: str) -> bool:
    return name.startswith("output") or (name == "tensors" and node.name.startswith("c10d::recv"))


def _item_bytes(dtype: str) -> int:
    letters = dtype.lower().replace(" int", "").replace("c10::", "")
    return next((size for name, size in _ITEM_BYTES.items() if letters.startswith(name)), _OTHER_ITEM_BYTES)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
