"""What one step of a collective costs in one dimension: the α–β model with hops, shared links and message sizes.

A message of m bytes takes hops · α + load · m / (B · f(m)): α the latency of a hop, B what a device can send in the
dimension over all its links, as far as programs sustain it, f the achievable fraction for messages of that size, and
load by how much the message has less than all of B: because it uses one of several links, or because it shares links
with the messages of others.

- Switch: one hop, the whole port (load 1).
- Fully connected, N devices: a message to one partner has one of N−1 links (load N−1); messages to all at once, all.
- Ring, N devices, members t apart, so that t groups share every link: a step round the closed ring uses the links of
  both directions (load t, t hops). Members that do not go all the way round lie on a line, on which the two directions
  of a ring are used up by its way there and back (load 2t); folded, so that neighbours in the ring are at most two
  members apart (2t hops; t for two members). A message one way has one of two links (load 2t).
"""

from dataclasses import dataclass

import numpy as np

from archplace.arch_configs.cluster import NetworkDimension, Topology
from archplace.costmodel.network.curve import Curve
from archplace.costmodel.network.layout import Share


def transfer_curve(dimension: NetworkDimension) -> Curve:
    """Return the seconds of m bytes on the wire, m / (B · f(m)), without latency.

    f is constant up to the first size of the dimension's table and from the last on; between two sizes it is the
    seconds that are interpolated linearly.
    """
    bandwidth = dimension.bandwidth_bytes_per_s * dimension.sustained
    if not dimension.achievable:
        return Curve.line(0.0, 1.0 / bandwidth)
    sizes = np.array([float(size) for size, _ in dimension.achievable])
    fractions = np.array([fraction for _, fraction in dimension.achievable])
    seconds = sizes / (bandwidth * fractions)
    slopes = np.concatenate(
        [[1.0 / (bandwidth * fractions[0])], np.diff(seconds) / np.diff(sizes), [1.0 / (bandwidth * fractions[-1])]]
    )
    return Curve(start=np.append(0.0, sizes), value=np.append(0.0, seconds), slope=slopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The members of a group in one dimension, and what messages between them cost."""

    members: int
    hop_s: float
    wire: Curve
    topology: Topology
    size: int
    """Of the whole dimension."""
    distance: int
    closed: bool

    @classmethod
    def of(cls, share: Share) -> "Links":
        """Return the links of a share."""
        dimension, topology, wire = share.dimension, share.dimension.topology, transfer_curve(share.dimension)
        if topology is Topology.FULLY_CONNECTED and not share.even:
            # Members that meet on one link: each has that link alone, as a port that all its messages pass.
            topology, wire = Topology.SWITCH, wire.times(max(1, dimension.size - 1))
        return cls(
            members=share.members,
            hop_s=dimension.latency_s,
            wire=wire,
            topology=topology,
            size=dimension.size,
            distance=share.distance,
            closed=share.closed,
        )

    def message(self, part: float, *, load: float = 1.0, hops: float = 1.0, times: int = 1) -> Curve:
        """Return the seconds of ``times`` messages of ``part`` of the payload, one after another."""
        return self.wire.times(times * load, of=part, plus=times * hops * self.hop_s)

    def ring_step(self, part: float, *, times: int = 1) -> Curve:
        """Return the seconds of steps in which each member sends ``part`` of the payload to the next in a ring."""
        if self.topology is Topology.SWITCH:
            return self.message(part, times=times)
        if self.topology is Topology.FULLY_CONNECTED:
            return self.message(part, load=self.size - 1, times=times)
        if self.closed:
            return self.message(part, load=self.distance, hops=self.distance, times=times)
        hops = self.distance * (2 if self.members > 2 else 1)
        return self.message(part, load=2 * self.distance, hops=hops, times=times)

    def neighbour(self) -> Curve:
        """Return the seconds of a step in which each member sends its payload to the next one, all in one direction."""
        if self.topology is Topology.RING and self.closed:
            return self.message(1.0, load=2 * self.distance, hops=self.distance)
        return self.ring_step(1.0)

    def exchange(self, part: float, apart: int) -> Curve:
        """Return the seconds in which each member exchanges ``part`` of the payload with the one ``apart`` further on.

        Pairs in blocks of twice ``apart``: on a ring the link in the middle of a block carries ``apart`` messages each
        way, and each message has only the links of its direction.
        """
        if self.topology is Topology.SWITCH:
            return self.message(part)
        if self.topology is Topology.FULLY_CONNECTED:
            return self.message(part, load=self.size - 1)
        return self.message(part, load=2 * apart * self.distance, hops=apart * self.distance)

    def everyone(self, part: float) -> Curve:
        """Return the seconds in which each member sends ``part`` of the payload to every other one.

        Over a switch one message after another, each with its latency (the port model, pairwise exchange: Thakur et
        al., 2005, section 4.3); over a full set of links all in one step. On a ring the busiest link carries, each way,
        half of ⌊n²/4⌋ messages, on a line all of them, at half of B each way; the farthest member adds the hops.
        """
        n = self.members
        if self.topology is Topology.SWITCH:
            return self.message(part, times=n - 1)
        if self.topology is Topology.FULLY_CONNECTED:
            return self.message(part, load=self.size - 1)
        load, farthest = (1, n // 2) if self.closed else (2, n - 1)
        return self.message(part, load=load * (n * n // 4) * self.distance, hops=farthest * self.distance)
