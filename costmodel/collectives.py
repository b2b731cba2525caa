"""Seconds and bytes of ring collectives and of point-to-point transfers over the dimensions of a network.

A group of ``size`` devices at distance ``stride`` is spread over the dimensions from fast to slow; the collective runs
hierarchically, each dimension's ring working on what the faster ones have already reduced (Thakur, Rabenseifner and
Gropp, 2005, section 4; Cho et al., BlueConnect, MLSys 2019).
"""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from archplace.arch_configs.cluster import Cluster, NetworkDimension
from archplace.workloads.operators import Collective, CollectiveKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many members of a group one network dimension joins."""

    members: int
    """Of the fullest ring in this dimension."""
    reduced: int
    """Members of the emptiest part in this and the faster dimensions together: what the payload is divided by."""
    dimension: NetworkDimension


def spread(cluster: Cluster, *, size: int, stride: int) -> tuple[Share, ...]:
    """Return how a group of ``size`` devices from device 0 on, ``stride`` apart, lies in the network, fast to slow.

    Dimensions that join no two members are left out. Where the group does not fill its parts evenly the fullest ring
    decides the rounds and the emptiest part the payload that each of its members carries on. Raises ``ValueError`` when
    the group does not fit the cluster.
    """
    if size * stride > cluster.size:
        raise ValueError(f"a group of {size} devices at stride {stride} does not fit {cluster.name}'s {cluster.size}")
    shares = []
    reach, inside = 1, 1
    for dimension in cluster.dimensions:
        reach *= dimension.size
        members = min(size, max(1, -(-reach // stride)))
        if members > inside:
            shares.append(Share(members=ceil(members / inside), reduced=size % members or members, dimension=dimension))
            inside = members
    return tuple(shares)


def ring_s(kind: CollectiveKind, payload_bytes: float, shares: tuple[Share, ...]) -> float:
    """Return the seconds of a hierarchical ring collective on ``payload_bytes`` (the full buffer of each device).

    Per dimension with n members, bandwidth B, latency α and what is left of the payload P: reduce-scatter and
    all-gather (n−1)/n · P/B + (n−1)·α each; all-reduce is both (Patarasuk and Yuan, 2009, bandwidth-optimal ring). The
    next slower dimension works on the payload divided by the members that the emptiest part has. A group of one costs
    nothing.
    """
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    seconds, left = 0.0, payload_bytes
    for share in shares:
        n = share.members
        seconds += rounds * (n - 1) * (left / n / share.dimension.bandwidth_bytes_per_s + share.dimension.latency_s)
        left = payload_bytes / share.reduced
    return seconds


def ring_bytes(kind: CollectiveKind, payload_bytes: float, shares: tuple[Share, ...]) -> float:
    """Return the bytes that each device of the fullest rings sends in the collective that :func:`ring_s` times.

    Per dimension with n members (n−1)/n of what is left of the payload, twice for an all-reduce.
    """
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    sent, left = 0.0, payload_bytes
    for share in shares:
        sent += rounds * (share.members - 1) * (left / share.members)
        left = payload_bytes / share.reduced
    return sent


def collective_s(collective: Collective, cluster: Cluster) -> float:
    """Return the seconds of a collective of neighbours: a tensor-parallel group lies on the fastest links.

    A group size that does not divide a dimension makes some group straddle its edge; the whole ring then runs at the
    pace of the slower dimension.
    """
    return ring_s(collective.kind, float(collective.payload_bytes), _neighbours(collective, cluster))


def sent_bytes(collective: Collective, cluster: Cluster) -> float:
    """Return the bytes that one device sends in a collective of neighbours, in the rings of :func:`collective_s`."""
    return ring_bytes(collective.kind, float(collective.payload_bytes), _neighbours(collective, cluster))


def _neighbours(collective: Collective, cluster: Cluster) -> tuple[Share, ...]:
    size = collective.group_size
    shares = spread(cluster, size=size, stride=1)
    reach = 1
    for dimension, slower in pairwise(cluster.dimensions):
        reach *= dimension.size
        if size <= reach and reach % size:
            shares = (Share(members=size, reduced=size, dimension=slower),)
            break
    return shares


def transfer_s(payload_bytes: float, cluster: Cluster, *, stride: int, members: int = 2) -> float:
    """Return the seconds of the slowest transfer from a device to the one ``stride`` further on.

    The devices are those of ``members`` neighbouring groups of ``stride`` devices (pipeline stages). Bytes/B + α of the
    slowest dimension in which some pair lies: from the first that joins devices a stride apart to the one that holds
    all. Raises ``ValueError`` when the groups do not fit the cluster.
    """
    if stride * members > cluster.size:
        raise ValueError(f"{members} groups of {stride} devices do not fit {cluster.name}'s {cluster.size} devices")
    slowest, reach = 0.0, 1
    for dimension in cluster.dimensions:
        reach *= dimension.size
        if dimension.size > 1 and stride < reach:
            slowest = max(slowest, payload_bytes / dimension.bandwidth_bytes_per_s + dimension.latency_s)
        if stride * members <= reach:
            break
    return slowest
