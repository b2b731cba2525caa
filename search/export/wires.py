"""What messages and collectives take in ASTRA-sim's network without congestion, from the moments their ends begin.

A message of m bytes takes ⌊hops · latency + m / bandwidth⌋ nanoseconds in the lowest dimension of the network file in
which its ends differ: 2 hops through a switch, 1 between fully connected devices, on a ring the shorter way round. A
ring of n members passes on in steps: member i begins step 1 at its start plus the delay d of the endpoint, has step
j's message when its predecessor's has arrived, and begins the next one d later; an all-reduce has 2(n−1) steps,
reduce-scatter and all-gather n−1. In a direct all-to-all step j's message goes to the member j places further on. Read
off the simulator's source (astra-sim, commit 518bd513, March 2026) and confirmed by running it.
"""

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.cluster import Topology
from archplace.search.export.communicators import Numbering
from archplace.workloads.traces import CollectiveType

DELAY_NS = 10
"""Of an endpoint, per step: what groups that are not the whole cluster always have."""


class Wires:
    """Nanoseconds of messages and collectives between numbered devices."""

    def __init__(self, numbering: Numbering) -> None:
        self._dimensions = numbering.dimensions
        strides = np.cumprod([1, *(dimension.size for dimension in self._dimensions)])
        self._strides: list[int] = strides.tolist()
        self._known: dict[tuple[int, int, int], int] = {}
        self._ends: dict[tuple[CollectiveType, int, int, tuple[int, ...]], list[int]] = {}

    def link(self, source: int, target: int) -> tuple[int, int]:
        """Return the dimension in which a message travels, and its hops. Two different devices are needed."""
        for place, dimension in enumerate(self._dimensions):
            stride, size = self._strides[place], dimension.size
            apart = abs(source // stride % size - target // stride % size)
            if apart:
                if dimension.topology is Topology.SWITCH:
                    return place, 2
                return place, 1 if dimension.topology is Topology.FULLY_CONNECTED else min(apart, size - apart)
        raise ValueError(f"a message from device {source} to itself")

    def message_ns(self, source: int, target: int, size_bytes: int) -> int:
        """Return the nanoseconds of a message."""
        place, hops = self.link(source, target)
        return self.link_ns(place, hops, size_bytes)

    def link_ns(self, place: int, hops: int, size_bytes: int) -> int:
        """Return the nanoseconds of a message over so many hops of one dimension."""
        key = place, hops, size_bytes
        if key not in self._known:
            dimension = self._dimensions[place]
            bandwidth = link_bytes_per_s(dimension.topology, dimension.size, dimension.bandwidth_bytes_per_s)
            latency_ns = round(dimension.latency_s * 1e9, 3)
            self._known[key] = int(hops * latency_ns + size_bytes / (bandwidth / 1e9))
        return self._known[key]

    def collective_ns(
        self, kind: CollectiveType, size_bytes: int, members: tuple[int, ...], starts: tuple[int, ...]
    ) -> list[int]:
        """Return when each member of a collective ends, given when each starts; both in the order of the ring."""
        begin = min(starts)
        if max(starts) == begin:
            key = kind, size_bytes, len(members), members if self._mixed(members) else members[:2]
            if key not in self._ends:
                self._ends[key] = self._run(kind, size_bytes, members, [0] * len(members))
            return [begin + end for end in self._ends[key]]
        return self._run(kind, size_bytes, members, starts)

    def _mixed(self, members: tuple[int, ...]) -> bool:
        """Whether the members' distances could differ."""
        place, _ = self.link(members[0], members[1])
        stride, size = self._strides[place], self._dimensions[place].size
        if self._dimensions[place].topology is Topology.RING:
            return True
        rest = {member - member // stride % size * stride for member in members}
        return len(rest) > 1

    def _run(
        self, kind: CollectiveType, size_bytes: int, members: tuple[int, ...], starts: list[int] | tuple[int, ...]
    ) -> list[int]:
        n = len(members)
        message = size_bytes if kind is CollectiveType.ALL_GATHER else max(1, size_bytes // n)
        steps = 2 * (n - 1) if kind is CollectiveType.ALL_REDUCE else n - 1
        direct = kind is CollectiveType.ALL_TO_ALL
        hops = self._hops(members, 1, message)
        sent: NDArray[np.int64] = np.array(starts, dtype=np.int64) + DELAY_NS
        for step in range(1, steps + 1):
            apart = step if direct else 1
            if direct and step > 1:
                hops = self._hops(members, apart, message)
            # What arrives at member i left member i - apart.
            arrived = np.roll(sent + hops, apart)
            sent = np.maximum(arrived, sent) + DELAY_NS
        found: list[int] = sent.tolist()
        return found

    def _hops(self, members: tuple[int, ...], apart: int, message: int) -> NDArray[np.int64]:
        n = len(members)
        times = [self.message_ns(member, members[(i + apart) % n], message) for i, member in enumerate(members)]
        return np.array(times, dtype=np.int64)


def link_bytes_per_s(topology: Topology, size: int, bandwidth_bytes_per_s: float) -> float:
    """Return the bandwidth of what the network file calls a link: one of several between fully connected devices."""
    return bandwidth_bytes_per_s / max(1, size - 1) if topology is Topology.FULLY_CONNECTED else bandwidth_bytes_per_s
