"""Who communicates with whom: groups of a placement as process groups of a simulator, each inside one dimension.

ASTRA-sim charges a message by the lowest dimension in which the numbers of its two ends differ, and runs a group that
is not the whole cluster as one ring. So devices are numbered with the slowest dimension first, which makes every
message between nodes one between nodes, and a group that lies in several dimensions becomes one group for each of
them: its collectives run hierarchically, reduce-scatter from the fast to the slow dimensions, an all-reduce in the
last, all-gather back (Cho et al., BlueConnect, MLSys 2019), as the prices of :mod:`archplace.costmodel.network` have
it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.cluster import Cluster, NetworkDimension
from archplace.costmodel.network import Group
from archplace.workloads import CollectiveKind
from archplace.workloads.traces import CollectiveType

IntArray = NDArray[np.int64]

_TYPES = {
    CollectiveKind.ALL_REDUCE: CollectiveType.ALL_REDUCE,
    CollectiveKind.ALL_GATHER: CollectiveType.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER: CollectiveType.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL: CollectiveType.ALL_TO_ALL,
}


@dataclass(frozen=True, slots=True)
class Team:
    """The part of a group that lies in one dimension: all devices that differ in nothing but its members' places."""

    group: Group
    dimension: int | None
    """Place of the dimension in the network file; None for a group that fills no part of the network evenly and runs
    as one ring through several dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """One collective of a simulator."""

    kind: CollectiveType
    team: Team
    size_bytes: int
    """As its trace has it: of an all-gather the shard of each member, otherwise the whole buffer."""


class Numbering:
    """The numbers of a cluster's devices in the simulator: the slowest dimension counts first."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.dimensions: tuple[NetworkDimension, ...] = tuple(
            dimension for dimension in reversed(cluster.dimensions) if dimension.size > 1
        )
        """Those that join any devices, in the network file's order."""
        devices = np.arange(cluster.size, dtype=np.int64)
        places: list[IntArray] = []
        below = 1
        for dimension in cluster.dimensions:
            if dimension.size > 1:
                places.append(devices // below % dimension.size)
            below *= dimension.size
        self.places: IntArray = np.stack(places[::-1]) if places else np.zeros((0, cluster.size), dtype=np.int64)
        """``(D, N)``: where each device lies in each dimension."""
        npu, stride = np.zeros_like(devices), 1
        for dimension, place in zip(self.dimensions, self.places, strict=True):
            npu += place * stride
            stride *= dimension.size
        self.npu: IntArray = npu
        """``(N,)``: the simulator's number of each device."""


class Communicators:
    """The teams of a placement's groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.numbering = Numbering(cluster)
        self._members: dict[Team, IntArray] = {}
        self._known_counts: dict[Group, tuple[int, ...] | None] = {}

    @property
    def n_devices(self) -> int:
        """Devices of the cluster."""
        return len(self.numbering.npu)

    def lower(self, kind: CollectiveKind, payload_bytes: float, group: Group) -> tuple[Lowered, ...]:
        """Return what the simulator runs for one collective, in order; nothing for a group of one.

        Sizes are whole bytes, divided without rest, at least one for each member, as the simulator has them. Raises
        ``ValueError`` for a broadcast, which it does not simulate, and for a step to the neighbour, which is a message.
        """
        if kind not in _TYPES:
            raise ValueError(f"{kind}: ASTRA-sim simulates no such collective; there are {', '.join(_TYPES)}")
        size = int(payload_bytes)
        teams = self._teams(group)
        if kind is CollectiveKind.ALL_TO_ALL:
            return tuple(self._one(kind, team, size) for team in teams)
        sizes = [size]
        for team in teams[:-1]:
            sizes.append(sizes[-1] // self.size(team))
        levels = list(zip(teams, sizes, strict=True))
        if kind is CollectiveKind.REDUCE_SCATTER:
            return tuple(self._one(kind, *level) for level in levels)
        if kind is CollectiveKind.ALL_GATHER:
            return tuple(self._one(kind, *level) for level in reversed(levels))
        up = [self._one(CollectiveKind.REDUCE_SCATTER, *level) for level in levels[:-1]]
        down = [self._one(CollectiveKind.ALL_GATHER, *level) for level in reversed(levels[:-1])]
        last = [self._one(kind, *level) for level in levels[-1:]]
        return (*up, *last, *down)

    def _one(self, kind: CollectiveKind, team: Team, size: int) -> Lowered:
        members = self.size(team)
        whole = max(size, members)
        shard = kind is CollectiveKind.ALL_GATHER
        return Lowered(kind=_TYPES[kind], team=team, size_bytes=whole // members if shard else whole)

    def is_even(self, group: Group) -> bool:
        """Whether the group's instances all fill parts of the network evenly, so that teams lie in one dimension."""
        return self._counts(group) is not None

    def _teams(self, group: Group) -> tuple[Team, ...]:
        """Return the teams of a group, the fastest dimension first."""
        if group.size == 1:
            return ()
        counts = self._counts(group)
        if counts is None:
            return (Team(group, None),)
        # The network file has the slowest dimension first.
        return tuple(Team(group, d) for d in reversed(range(len(counts))) if counts[d] > 1)

    def size(self, team: Team) -> int:
        """Return the number of members."""
        return int(self.members(team).shape[1])

    def members(self, team: Team) -> IntArray:
        """Return the members of every instance of a team by the simulator's numbers, in the order of the ring."""
        if team not in self._members:
            self._members[team] = self._rings(team)
        return self._members[team]

    def _rings(self, team: Team) -> IntArray:
        npu, places = self.numbering.npu, self.numbering.places
        instances = self._instances(team.group)
        if team.dimension is None:
            return npu[instances]
        rings: list[list[int]] = []
        for members in instances:
            others = np.delete(places[:, members], team.dimension, axis=0)
            _, which = np.unique(others, axis=1, return_inverse=True)
            which = which.ravel()
            for ring in range(int(which.max()) + 1):
                mine = members[which == ring]
                rings.append(npu[mine[np.argsort(places[team.dimension, mine], kind="stable")]].tolist())
        return np.array(rings, dtype=np.int64)

    def instances(self, team: Team) -> IntArray:
        """Return of each of the simulator's devices the instance that it belongs to, ``(N,)``."""
        members = self.members(team)
        instance = np.empty(self.n_devices, dtype=np.int64)
        instance[members] = np.arange(len(members))[:, None]
        return instance

    def neighbour(self, group: Group, step: int) -> IntArray:
        """Return of each of the simulator's devices the one ``step`` further round its group's ring, ``(N,)``."""
        instances, npu = self._instances(group), self.numbering.npu
        found = np.empty(self.n_devices, dtype=np.int64)
        found[npu[instances]] = npu[np.roll(instances, -step, axis=1)]
        return found

    def _instances(self, group: Group) -> IntArray:
        """Return the devices of every instance of a group, in the order in which its levels count them."""
        first = np.arange(self.n_devices, dtype=np.int64)
        for size, stride in group.levels:
            first -= first // stride % size * stride
        return np.unique(first)[:, None] + np.array(group.members(), dtype=np.int64)[None, :]

    def _counts(self, group: Group) -> tuple[int, ...] | None:
        """Return how many places the group has in each dimension, or None where instances fill none evenly."""
        if group not in self._known_counts:
            self._known_counts[group] = self._count(group)
        return self._known_counts[group]

    def _count(self, group: Group) -> tuple[int, ...] | None:
        counts: tuple[int, ...] | None = None
        for members in self._instances(group):
            own = tuple(len(np.unique(row)) for row in self.numbering.places[:, members])
            if int(np.prod(own)) != len(members) or (counts is not None and own != counts):
                return None
            counts = own
        return counts


_COLLISION = 500
"""The simulator tells groups apart by their number modulo this: its tags are number · 10⁶ + count, modulo 5 · 10⁸."""
MOST_GROUPS = 2147
"""Above it, number · 10⁶ does not fit the simulator's 32 bits."""


def numbered(communicators: Communicators, teams: Sequence[Team]) -> Iterator[tuple[Team, int, int]]:
    """Yield team, instance and process-group number for all instances; numbers are 1 or more.

    Two groups that have two members in common get numbers that differ modulo 500. Raises ``ValueError`` where there are
    more groups than numbers.
    """
    total = sum(len(communicators.members(team)) for team in teams)
    if total > MOST_GROUPS:
        raise ValueError(
            f"{total:,} process groups; ASTRA-sim tells at most {MOST_GROUPS:,} apart: choose degrees with larger "
            "groups, or fewer devices"
        )
    residues: list[dict[int, int]] = [{} for _ in range(communicators.n_devices)]
    free = list(range(1, MOST_GROUPS + 1))
    for team in teams:
        for instance, members in enumerate(communicators.members(team).tolist()):
            seen: dict[int, int] = {}
            for npu in members:
                for residue, times in residues[npu].items():
                    seen[residue] = seen.get(residue, 0) + times
            place = next((i for i, number in enumerate(free) if seen.get(number % _COLLISION, 0) < 2), None)
            if place is None:
                raise ValueError(
                    f"{total:,} process groups cannot be numbered so that ASTRA-sim tells them apart: choose degrees "
                    "with larger groups"
                )
            number = free.pop(place)
            for npu in members:
                residues[npu][number % _COLLISION] = residues[npu].get(number % _COLLISION, 0) + 1
            yield team, instance, number
