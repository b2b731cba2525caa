"""What if there are more replicas, or fewer? The data-parallel axis of a job, made longer or shorter.

A rank's own work stays: the global batch grows with the replicas (weak scaling). To keep the global batch, scale the
batch of each rank as well. What collectives among replicas carry follows from what their size means:

======================================  ================================================================
all-reduce, reduce, broadcast, scatter  the whole buffer: stays
reduce-scatter                          the whole buffer that goes in: stays
all-gather, gather                      one member's part of a buffer that stays: × old / new members
all-to-all                              all that one member sends, which is its own work: stays
======================================  ================================================================

What a rank does with its part of a sharded optimizer state is computing, and stays as it is: no trace says which
computing follows the number of parts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces.meaning import meaning_of, whole
from archplace.workloads.traces.node import CollectiveType, Node, NodeKind
from archplace.workloads.traces.whatif._bridges import without
from archplace.workloads.traces.whatif._edit import copied, put
from archplace.workloads.traces.whatif._membership import Membership, communicates, with_members, with_peers
from archplace.workloads.traces.whatif.job import MOST_RANKS, Job, RankTrace
from archplace.workloads.traces.whatif.laws import SCALING, laws_text, read_laws
from archplace.workloads.traces.whatif.record import WHAT_IF
from archplace.workloads.traces.whatif.step import Record

_PARTS = frozenset((CollectiveType.ALL_GATHER, CollectiveType.GATHER))


@dataclass(frozen=True, slots=True)
class Axis:
    """One parallel axis: ranks ``low + stride · (digit + size · high)``, with ``low`` below ``stride``."""

    size: int
    stride: int

    def digit(self, rank: int) -> int:
        """Return the place of a rank along the axis."""
        return rank // self.stride % self.size

    def moved(self, rank: int, digit: int, size: int) -> int:
        """Return the number of the rank at place ``digit`` beside ``rank`` once the axis has ``size`` places."""
        high, low = rank // (self.stride * self.size), rank % self.stride
        return low + self.stride * (digit + size * high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Another number of ranks, by another number of data-parallel replicas.

    Replica ``d`` is a copy of replica ``d`` modulo their old number, and what reaches beyond the new number is dropped.
    Groups inside a replica are copied with it; groups among replicas take all of them in. A collective that is left
    with one member is taken out, and who waited for it waits for what it waited for.
    """

    count: int
    """Ranks there are to be."""
    axis: Axis | None = None
    """The data-parallel axis; ``None``: the outermost that groups, messages and the metadata's tensor and context
    widths allow, with the smallest replicas."""

    def apply(self, job: Job) -> tuple[Job, Record]:
        """Return the job of the other size.

        Ranks whose replica of the same place is not at hand get no trace. Raises ConfigError where no axis fits, or the
        ranks do not divide.
        """
        axis = self.axis or _find_axis(job)
        wrong = _objection(job, axis)
        if wrong:
            raise ConfigError(f"--ranks: data-parallel degree {axis.size} at distance {axis.stride}: {wrong}")
        rest = job.n_ranks // axis.size
        if self.count < rest or self.count % rest or self.count > MOST_RANKS:
            raise ConfigError(
                f"--ranks: found {self.count:,}; {job.n_ranks:,} ranks are {axis.size:,} replicas of {rest:,}: needs a "
                f"multiple of {rest:,}" + (f", at most {MOST_RANKS:,}" if self.count > MOST_RANKS else "")
            )
        size = self.count // rest
        record: Record = {"step": "ranks", "from": job.n_ranks, "to": self.count}
        record |= {"data_parallel": axis.size, "distance": axis.stride}
        if size == axis.size:
            return job, record
        if axis.size == 1:
            raise ConfigError(
                f"--ranks: nothing joins replicas in a job of {job.n_ranks} ranks that is one replica: its gradients "
                "are reduced nowhere. Start from a trace with two replicas at least"
            )
        return _resized(job, axis, size), record


def _find_axis(job: Job) -> Axis:
    least = _least_replica(job)
    if job.n_ranks % least:
        least = 1
    sizes = [stride for stride in range(least, job.n_ranks + 1, least) if job.n_ranks % stride == 0]
    for stride in sizes:
        axis = Axis(job.n_ranks // stride, stride)
        if _objection(job, axis) is None:
            return axis
    raise AssertionError("one replica is always possible")


def _least_replica(job: Job) -> int:
    """Return how many ranks share a replica's layers, where the traces' metadata state it.

    A single group of all ranks may be either: one of replicas, or one that shares tensors.
    """
    least = 1
    for trace in job.traces.values():
        facts = {attribute.name: attribute.value for attribute in trace.metadata.attributes}
        earlier = facts.get(WHAT_IF)
        renumbered = isinstance(earlier, tuple) and any('"step": "layout"' in str(step) for step in earlier)
        if facts.get("source") == "archplace" and not renumbered:
            least = max(least, (whole(facts, "tensor") or 1) * (whole(facts, "context") or 1))
    return least


def _objection(job: Job, axis: Axis) -> str | None:
    """Return why an axis is not that of the replicas: a group or a message lies across it."""
    if axis.size < 1 or axis.stride < 1 or job.n_ranks % (axis.size * axis.stride):
        return f"they do not divide the {job.n_ranks} ranks"
    for name, ranks in job.groups.items():
        if not _is_inside(axis, ranks) and not _spans(axis, ranks):
            return f"group {name} of ranks {_shown(ranks)} is neither inside a replica nor among all of them"
    for rank, trace in job.traces.items():
        for peer in sorted(trace.survey.peers):
            if axis.digit(peer) != axis.digit(rank):
                return f"rank {rank} exchanges messages with rank {peer} of another replica"
    return None


def _is_inside(axis: Axis, ranks: tuple[int, ...]) -> bool:
    return len({axis.digit(rank) for rank in ranks}) <= 1


def _spans(axis: Axis, ranks: tuple[int, ...]) -> bool:
    lines = Counter(axis.moved(rank, 0, axis.size) for rank in ranks)
    return all(count == axis.size for count in lines.values())


def _shown(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")


def _resized(job: Job, axis: Axis, size: int) -> Job:
    names, groups = _new_groups(job, axis, size)
    by_members = {frozenset(ranks): name for name, ranks in reversed(list(job.groups.items()))}
    count = job.n_ranks // axis.size * size
    new = replace(job, n_ranks=count, groups=groups)
    traces = {}
    for rank in range(count):
        old = Axis(size, axis.stride).moved(rank, axis.digit(0), axis.size)  # the same place of replica 0
        digit = rank // axis.stride % size
        places = [axis.moved(old, place, axis.size) for place in (digit % axis.size, *range(axis.size))]
        source = next((place for place in places if place in job.traces), None)
        if source is not None:
            traces[rank] = _moved(job.traces[source], job, new, _Move(axis, size, digit, names, by_members))
    return replace(new, traces=traces)


def _new_groups(job: Job, axis: Axis, size: int) -> tuple[dict[tuple[str, int], str], dict[str, tuple[int, ...]]]:
    """Return the name of each group inside a replica by old name and new replica, and all groups."""
    names: dict[tuple[str, int], str] = {}
    groups: dict[str, tuple[int, ...]] = {}
    fresh = _fresh_names(job.groups)
    for name, ranks in job.groups.items():
        if not ranks or not _is_inside(axis, ranks):
            groups[name] = _among(axis, ranks, size)
            continue
        first = axis.digit(ranks[0])
        for digit in range(size):
            if digit % axis.size == first:
                names[name, digit] = name if digit == first else next(fresh)
                groups[names[name, digit]] = tuple(axis.moved(rank, digit, size) for rank in ranks)
    return names, groups


def _among(axis: Axis, ranks: tuple[int, ...], size: int) -> tuple[int, ...]:
    beside = [rank for rank in ranks if axis.digit(rank) == 0]
    found = [axis.moved(rank, digit, size) for digit in range(size) for rank in beside]
    return tuple(sorted(found) if list(ranks) == sorted(ranks) else found)


def _fresh_names(groups: Mapping[str, object]) -> Iterator[str]:
    """Give names that no group has: numbers, because simulators take no others."""
    number = max((int(name) for name in groups if name.isdecimal() and len(name) < 10), default=0)
    while True:
        number += 1
        if str(number) not in groups:
            yield str(number)


@dataclass(frozen=True, slots=True)
class _Move:
    """Where a copy of a rank's trace goes."""

    axis: Axis
    size: int
    digit: int
    names: Mapping[tuple[str, int], str]
    by_members: Mapping[frozenset[int], str]

    def group(self, job: Job, name: str | None) -> str | None:
        """Return the new name of a group."""
        if name is None:
            return None
        members = job.members(name)
        if not members or not _is_inside(self.axis, members):
            return name
        # The source may be another replica than the one that names the copy: the group of the same place there.
        beside = self.digit % self.axis.size
        wanted = frozenset(self.axis.moved(rank, beside, self.axis.size) for rank in members)
        own = self.by_members.get(wanted)
        if own is None:
            raise ConfigError(
                f"--ranks: group {name} has no counterpart of ranks {_shown(tuple(sorted(wanted)))} in another "
                "replica: give all groups as --groups FILE.json"
            )
        return self.names[own, self.digit]

    def peer(self, rank: int) -> int:
        """Return the new number of a rank of the same replica."""
        return self.axis.moved(rank, self.digit, self.size)


def _moved(trace: RankTrace, job: Job, new: Job, move: _Move) -> RankTrace:
    known: dict[str | None, tuple[Membership, Fraction]] = {}

    def change(node: Node) -> Node:
        if not communicates(node):
            return node
        if node.kind is not NodeKind.COLLECTIVE:
            return with_peers(node, move.peer)
        found = meaning_of(node)
        if found.mislabelled:
            return node
        if found.group not in known:
            name = move.group(job, found.group)
            after = new.members(name)
            known[found.group] = Membership.of(name, after), Fraction(len(job.members(found.group)), len(after))
        membership, part = known[found.group]
        message = copied(node)
        with_members(message, membership)
        if found.collective in _PARTS and part != 1:
            _shrink(message, part)
        return Node(message)

    def is_alone(node: Node) -> bool:
        if node.kind is not NodeKind.COLLECTIVE or meaning_of(node).mislabelled:
            return False
        return len(new.members(move.group(job, meaning_of(node).group))) == 1

    shrinks = new.n_ranks < job.n_ranks
    before = trace.nodes
    return replace(trace, nodes=lambda: map(change, without(before, is_alone) if shrinks else before()))


def _shrink(message: chakra_pb2.Node, factor: Fraction) -> None:
    values = Node(message).values()
    size, text = whole(values, "comm_size"), values.get(SCALING)
    if size:
        put(message, "comm_size", round(size * factor))
    if isinstance(text, str):
        laws = tuple((name, law.times(factor) if name == "comm_size" else law) for name, law in read_laws(text))
        put(message, SCALING, laws_text(laws))
