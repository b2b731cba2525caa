"""Cases written by hand: a network, and what each device does on it."""

from types import SimpleNamespace

import numpy as np

from archplace.arch_configs.cluster import Cluster, NetworkDimension, Topology
from archplace.costmodel.network import Group
from archplace.search.export.case import ProcessGroup
from archplace.search.export.communicators import Numbering, Team
from archplace.search.export.nodes import Peer, Step
from archplace.workloads.traces import CollectiveType, NodeKind

GB = 2**30


def dimension(size, gib_per_s=50.0, latency_ns=500.0, topology=Topology.SWITCH, name="net"):
    return NetworkDimension(
        name=name, topology=topology, size=size, bandwidth_bytes_per_s=gib_per_s * GB, latency_s=latency_ns / 1e9
    )


def cluster(*dimensions):
    """Return a cluster, the fastest dimension first."""
    return Cluster(name="by hand", sources={}, dimensions=tuple(dimensions))


def compute(nanoseconds, *after, name="compute"):
    return Step(name=name, kind=NodeKind.COMPUTE, part="forward", after=after, nanoseconds=nanoseconds)


def collective(kind, group, size, *after):
    team = Team(Group.neighbours(2, stride=group), None)
    return Step(
        name=f"{kind.name} in {group}",
        kind=NodeKind.COLLECTIVE,
        part="gradient reduction",
        after=after,
        collective=kind,
        team=team,
        size_bytes=size,
    )


def reduce(group, size, *after):
    return collective(CollectiveType.ALL_REDUCE, group, size, *after)


def _message(kind, other, size, tag, after):
    peer = Peer(Group.neighbours(2), other)
    return Step(name=kind.name, kind=kind, part="pipeline transfers", after=after, peer=peer, size_bytes=size, tag=tag)


def send(other, size, *after, tag=0):
    return _message(NodeKind.SEND, other, size, tag, after)


def receive(other, size, *after, tag=0):
    return _message(NodeKind.RECEIVE, other, size, tag, after)


class HandCase:
    """What a replay and an encoder ask of a case; every device has a program of its own.

    ``groups`` are members by number; a collective's group, and a message's other end, stand in the program.
    """

    def __init__(self, network, programs, groups=None):
        self.programs = tuple(map(tuple, programs))
        self.n_npus = len(programs)
        self.role = np.arange(self.n_npus)
        self.communicators = SimpleNamespace(numbering=Numbering(network))
        self._groups = {
            number: ProcessGroup(number=number, members=members) for number, members in (groups or {}).items()
        }

    def group(self, _npu, team):
        ((_, number),) = team.group.levels
        return self._groups[number]

    def peer(self, _npu, peer):
        return peer.step

    def process_groups(self):
        return self._groups.values()
