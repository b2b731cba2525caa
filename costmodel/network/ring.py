"""Ring collectives over ideal links: the plain price, linear in the payload.

The collective runs hierarchically, each dimension's ring working on what the faster ones have already reduced (Thakur,
Rabenseifner and Gropp, 2005, section 4; Cho et al., BlueConnect, MLSys 2019). Each dimension counts as a ring of the
members with the dimension's full bandwidth, whatever its topology and the size of the messages.
"""

from typing import TypeVar

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel.network.groups import Group
from archplace.costmodel.network.layout import Share, lay
from archplace.workloads.operators import Collective, CollectiveKind

Number = TypeVar("Number", float, FloatArray)

_ROUNDS = {CollectiveKind.ALL_REDUCE: 2, CollectiveKind.BROADCAST: 2}
"""A broadcast is a scatter and an all-gather (van de Geijn; Thakur et al., 2005, section 4.2)."""


def ring_s(kind: CollectiveKind, payload_bytes: Number, shares: tuple[Share, ...]) -> Number:
    """Return the seconds of a hierarchical ring collective on ``payload_bytes`` (the full buffer of each device).

    Per dimension with n members, bandwidth B, latency α and what is left of the payload P: reduce-scatter and
    all-gather (n−1)/n · P/B + (n−1)·α each; all-reduce and broadcast are both (Patarasuk and Yuan, 2009,
    bandwidth-optimal ring). The next slower dimension works on the payload divided by the members that the emptiest
    part has. In an all-to-all every dimension carries the whole payload, each device its n−1 parts in turn; in a
    point-to-point step the slowest dimension of the group does. A group of one costs nothing.
    """
    if kind is CollectiveKind.POINT_TO_POINT:
        return _step_s(payload_bytes, shares)
    rounds = _ROUNDS.get(kind, 1)
    seconds, left = 0.0 * payload_bytes, payload_bytes
    for share in shares:
        n = share.members
        seconds = seconds + rounds * (n - 1) * (
            left / n / share.dimension.bandwidth_bytes_per_s + share.dimension.latency_s
        )
        if kind is not CollectiveKind.ALL_TO_ALL:
            left = payload_bytes / share.reduced
    return seconds


def _step_s(payload_bytes: Number, shares: tuple[Share, ...]) -> Number:
    seconds = 0.0 * payload_bytes
    for share in shares:
        step = payload_bytes / share.dimension.bandwidth_bytes_per_s + share.dimension.latency_s
        # The larger of two without a function that differs between numbers and arrays.
        seconds = seconds + (step - seconds) * (step > seconds)
    return seconds


def ring_bytes(kind: CollectiveKind, payload_bytes: Number, shares: tuple[Share, ...]) -> Number:
    """Return the bytes that each device of the fullest rings sends in the collective that :func:`ring_s` times.

    Per dimension with n members (n−1)/n of what is left of the payload, twice for an all-reduce or a broadcast; the
    payload itself in a point-to-point step.
    """
    if kind is CollectiveKind.POINT_TO_POINT:
        return payload_bytes * (1.0 if shares else 0.0)
    rounds = _ROUNDS.get(kind, 1)
    sent, left = 0.0 * payload_bytes, payload_bytes
    for share in shares:
        sent = sent + rounds * (share.members - 1) * (left / share.members)
        if kind is not CollectiveKind.ALL_TO_ALL:
            left = payload_bytes / share.reduced
    return sent


def collective_s(collective: Collective, cluster: Cluster) -> float:
    """Return the seconds of a collective of neighbours: a tensor-parallel group lies on the fastest links.

    A group size that does not divide a dimension makes some group straddle its edge; the whole ring then runs at the
    pace of the slower dimension.
    """
    shares = lay(cluster, Group.neighbours(collective.group_size))
    return ring_s(collective.kind, float(collective.payload_bytes), shares)


def sent_bytes(collective: Collective, cluster: Cluster) -> float:
    """Return the bytes that one device sends in a collective of neighbours, in the rings of :func:`collective_s`."""
    shares = lay(cluster, Group.neighbours(collective.group_size))
    return ring_bytes(collective.kind, float(collective.payload_bytes), shares)


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
