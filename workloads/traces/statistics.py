"""What is in a trace: counts, work, communication by kind and size, and how much of it could run side by side."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from archplace.workloads.traces.arrays import TraceArrays, collecting
from archplace.workloads.traces.meaning import Role, meaning_of
from archplace.workloads.traces.node import Node, NodeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """All communications of one kind, group and size."""

    kind: str
    group: str | None
    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Figures of one trace."""

    n_nodes: int
    n_dependencies: int
    """Pairs of nodes, whichever kind of dependency connects them."""
    n_by_role: dict[Role, int]
    n_mislabelled: int
    """Host calls that launch a collective and are labelled as one."""
    flops: int
    touched_bytes: int
    """Of computations and memory operations."""
    exchanges: tuple[Exchange, ...]
    """Most bytes first."""
    duration_ns: dict[Role, int]
    """Sum by role."""
    longest_chain: int
    """Nodes that must run one after another."""
    critical_path_ns: int
    """The longest chain of durations: no hardware of these speeds is faster, whatever runs side by side."""
    names: tuple[tuple[str, int, int], ...]
    """Name, count and nanoseconds, most time first, then most nodes."""

    @property
    def parallelism(self) -> float | None:
        """Work by critical path: how many nodes run side by side on average; None without durations."""
        return sum(self.duration_ns.values()) / self.critical_path_ns if self.critical_path_ns else None

    @property
    def communicated_bytes(self) -> int:
        """Bytes of all communications of this rank, of what goes in."""
        return sum(one.size_bytes * one.count for one in self.exchanges)


def statistics_of(nodes: Iterable[Node], *, control: bool = True) -> Statistics:
    """Return the figures of ``nodes``; in memory at a time is their graph, and one of them.

    ``control`` says whether control parents are dependencies.

    Raises ValueError for doubled ids, missing parents and cycles.
    """
    roles: Counter[Role] = Counter()
    times: Counter[Role] = Counter()
    exchanges: Counter[tuple[str, str | None, int]] = Counter()
    names: Counter[str] = Counter()
    name_times: Counter[str] = Counter()
    flops = touched = mislabelled = 0
    durations: list[int] = []
    passing, collector = collecting(nodes, control=control)
    for node in passing:
        found = meaning_of(node)
        roles[found.role] += 1
        times[found.role] += found.duration_ns
        names[node.name] += 1
        name_times[node.name] += found.duration_ns
        durations.append(found.duration_ns)
        flops += found.flops
        mislabelled += found.mislabelled
        if found.role in (Role.COLLECTIVE, Role.POINT_TO_POINT):
            exchanges[_kind(node, found.collective), found.group, found.size_bytes] += 1
        else:
            touched += found.size_bytes
    arrays: TraceArrays = collector.arrays()
    order = arrays.order()
    rows = [Exchange(kind=kind, group=group, size_bytes=size, count=n) for (kind, group, size), n in exchanges.items()]
    ranked = sorted(names, key=lambda name: (-name_times[name], -names[name], name))
    return Statistics(
        n_nodes=len(arrays.ids),
        n_dependencies=len(arrays.parents),
        n_by_role=dict(roles),
        n_mislabelled=mislabelled,
        flops=flops,
        touched_bytes=touched,
        exchanges=tuple(sorted(rows, key=lambda row: (-row.size_bytes * row.count, row.kind, row.group or ""))),
        duration_ns=dict(times),
        longest_chain=arrays.longest([1] * len(durations), order),
        critical_path_ns=arrays.longest(durations, order),
        names=tuple((name, names[name], name_times[name]) for name in ranked),
    )


def _kind(node: Node, collective: object) -> str:
    if node.kind is NodeKind.COLLECTIVE:
        return str(getattr(collective, "name", "unknown")).lower()
    return node.kind.name.lower()
