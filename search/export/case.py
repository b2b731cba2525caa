"""One step on a simulated cluster: the programs of all devices, with the groups and partners of each."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from archplace.search.export.communicators import Communicators, IntArray, Team, numbered
from archplace.search.export.nodes import Peer, Program
from archplace.search.export.passes import Granularity, Passes
from archplace.search.export.placed import Placed
from archplace.search.export.program import programs_of
from archplace.workloads import Axis


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessGroup:
    """A group of devices that runs collectives."""

    number: int
    """What the traces call it."""
    members: tuple[int, ...]
    """In the order of the ring."""


class Case:
    """Programs and who runs them."""

    def __init__(self, placed: Placed, granularity: Granularity) -> None:
        """Expand a placement. Raises ``ValueError`` with the reason where the simulator has no room for it."""
        self.placed, self.granularity = placed, granularity
        self.communicators = Communicators(placed.placement.cluster)
        self.programs: tuple[Program, ...] = programs_of(Passes(placed, self.communicators, granularity))
        """Of each device of a pipeline."""
        self.role: IntArray = self._roles()
        """``(N,)``: which of the programs each device runs, by the simulator's numbers."""
        self._used: dict[Team, None] = {}
        self._peers: dict[Peer, IntArray] = {}
        for program in self.programs:
            for step in program:
                if step.team is not None:
                    self._used[step.team] = None
                if step.peer is not None and step.peer not in self._peers:
                    self._peers[step.peer] = self.communicators.neighbour(step.peer.group, step.peer.step)
        self.groups: dict[tuple[Team, int], ProcessGroup] = {
            (team, instance): ProcessGroup(
                number=number, members=tuple(self.communicators.members(team)[instance].tolist())
            )
            for team, instance, number in numbered(self.communicators, tuple(self._used))
        }
        self._instances = {team: self.communicators.instances(team) for team in self._used}

    def _roles(self) -> IntArray:
        levels = self.placed.order.group(Axis.PIPELINE).levels
        devices = np.arange(self.n_npus, dtype=np.int64)
        stage = np.zeros_like(devices)
        for size, stride in levels:
            stage = devices // stride % size
        role = np.empty_like(stage)
        role[self.communicators.numbering.npu] = stage
        return role

    @property
    def n_npus(self) -> int:
        """Devices of the cluster."""
        return self.communicators.n_devices

    @property
    def n_nodes(self) -> int:
        """Nodes of all traces together."""
        lengths = np.array([len(program) for program in self.programs])
        return int(lengths[self.role].sum())

    def program(self, npu: int) -> Program:
        """Return what a device runs."""
        return self.programs[int(self.role[npu])]

    def group(self, npu: int, team: Team) -> ProcessGroup:
        """Return the group in which a device meets its team."""
        return self.groups[team, int(self._instances[team][npu])]

    def peer(self, npu: int, peer: Peer) -> int:
        """Return the partner of a device."""
        return int(self._peers[peer][npu])

    def process_groups(self) -> Iterator[ProcessGroup]:
        """Yield all groups, by number."""
        yield from sorted(self.groups.values(), key=lambda group: group.number)
