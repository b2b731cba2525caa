"""Seconds of ring collectives and of point-to-point transfers over the dimensions of a network.

A group of ``size`` devices at distance ``stride`` is spread over the dimensions from fast to slow; the collective runs
hierarchically, each dimension's ring working on what the faster ones have already reduced (Thakur, Rabenseifner and
Gropp, 2005, section 4; Cho et al., BlueConnect, MLSys 2019).
"""

from dataclasses import dataclass
from math import ceil

from archplace.arch_configs.cluster import Cluster, NetworkDimension
from archplace.workloads.operators import Collective, CollectiveKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many members of a group one network dimension joins."""

    members: int
    dimension: NetworkDimension


def spread(cluster: Cluster, *, size: int, stride: int) -> tuple[Share, ...]:
    """Return how a group of ``size`` devices, ``stride`` apart, lies in the network, from fast to slow.

    Dimensions that join no two members are left out. Where a dimension would be filled unevenly the larger part counts.
    Raises ``ValueError`` when the group does not fit the cluster.
    """
    if size * stride > cluster.size:
        raise ValueError(f"a group of {size} devices at stride {stride} does not fit {cluster.name}'s {cluster.size}")
    shares = []
    reach, inside = 1, 1
    for dimension in cluster.dimensions:
        reach *= dimension.size
        members = min(size, max(1, reach // stride))
        if members > inside:
            shares.append(Share(members=ceil(members / inside), dimension=dimension))
            inside = members
    if inside < size:  # strides that do not divide a dimension leave a remainder to the slowest
        shares.append(Share(members=ceil(size / inside), dimension=cluster.dimensions[-1]))
    return tuple(shares)


def ring_s(kind: CollectiveKind, payload_bytes: float, shares: tuple[Share, ...]) -> float:
    """Return the seconds of a hierarchical ring collective on ``payload_bytes`` (the full buffer of each device).

    Per dimension with n members, bandwidth B, latency α and what is left of the payload P: reduce-scatter and
    all-gather (n−1)/n · P/B + (n−1)·α each; all-reduce is both (Patarasuk and Yuan, 2009, bandwidth-optimal ring).
    The next slower dimension works on P/n. A group of one costs nothing.
    """
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    seconds, left = 0.0, payload_bytes
    for share in shares:
        n = share.members
        seconds += rounds * (n - 1) * (left / n / share.dimension.bandwidth_bytes_per_s + share.dimension.latency_s)
        left /= n
    return seconds


def collective_s(collective: Collective, cluster: Cluster) -> float:
    """Return the seconds of a collective of neighbours: a tensor-parallel group lies on the fastest links."""
    return ring_s(
        collective.kind, float(collective.payload_bytes), spread(cluster, size=collective.group_size, stride=1)
    )


def transfer_s(payload_bytes: float, cluster: Cluster, *, stride: int) -> float:
    """Return the seconds of a transfer to the device ``stride`` away: bytes/B + α of the slowest dimension crossed."""
    reach = 1
    for dimension in cluster.dimensions:
        reach *= dimension.size
        if stride < reach:
            return payload_bytes / dimension.bandwidth_bytes_per_s + dimension.latency_s
    raise ValueError(f"no device is {stride} away in {cluster.name} of {cluster.size} devices")
