"""Where a group lies in the network: how many of its members each dimension joins."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import ceil

from archplace.arch_configs.cluster import Cluster, NetworkDimension, Topology
from archplace.costmodel.network.groups import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many members of a group one network dimension joins."""

    members: int
    """Of the fullest ring in this dimension."""
    reduced: int
    """Members of the emptiest part in this and the faster dimensions together: what the payload is divided by."""
    dimension: NetworkDimension
    distance: int = 1
    """On a ring, steps from one member to the next, and so how many groups share each link; elsewhere 1."""
    even: bool = True
    """Whether all groups lie alike in this dimension and fill it evenly."""

    @property
    def closed(self) -> bool:
        """Whether the members go all the way round the dimension, so that a ring of them closes over its own link."""
        return self.even and self.members * self.distance == self.dimension.size


def spread(cluster: Cluster, *, size: int, stride: int) -> tuple[Share, ...]:
    """Return how a group of ``size`` devices from device 0 on, ``stride`` apart, lies in the network, fast to slow.

    Dimensions that join no two members are left out. Where the group does not fill its parts evenly the fullest ring
    decides the rounds and the emptiest part the payload that each of its members carries on. Raises ``ValueError`` when
    the group does not fit the cluster.
    """
    if size * stride > cluster.size:
        raise ValueError(f"a group of {size} devices at stride {stride} does not fit {cluster.name}'s {cluster.size}")
    even = _is_even(cluster, size, stride)
    shares = []
    below, inside = 1, 1
    for dimension in cluster.dimensions:
        reach = below * dimension.size
        members = min(size, max(1, -(-reach // stride)))
        if members > inside:
            share = Share(
                members=ceil(members / inside),
                reduced=size % members or members,
                dimension=dimension,
                distance=max(1, stride // below) if dimension.topology is Topology.RING else 1,
                even=even,
            )
            shares.append(share)
            inside = members
        below = reach
    return tuple(shares)


def _is_even(cluster: Cluster, size: int, stride: int) -> bool:
    """Whether every group (size, stride) of the cluster's devices lies alike: no boundary between parts cuts one
    unevenly."""
    reach = 1
    for dimension in cluster.dimensions[:-1]:
        reach *= dimension.size
        if stride % reach and (reach % stride or ((reach // stride) % size and size % (reach // stride))):
            return False
    return True


@lru_cache(maxsize=1 << 16)
def lay(cluster: Cluster, group: Group) -> tuple[Share, ...]:
    """Return how the groups lie in the network, fast to slow; empty for groups of one.

    Exact where sizes divide. Where groups do not fill the parts of the network evenly, those larger than a part are
    priced as :func:`spread` says for the group of device 0. Of those smaller than a part some straddle its edge, and of
    those whose stride does not divide it some have neighbours in it where others do not: they run at the pace of the
    next slower dimension. Raises ``ValueError`` when the group does not fit the cluster.
    """
    if group.extent > cluster.size:
        levels = ", then ".join(f"{size} at stride {stride}" for size, stride in group.levels)
        raise ValueError(
            f"a group of {group.size} devices ({levels}) spans {group.extent} devices; {cluster.name} has "
            f"{cluster.size}"
        )
    shares: list[Share] = []
    inside = 1
    for size, stride in group.levels:
        found = _straddle(cluster, size, stride) or _regular(cluster, size, stride)
        shares += [replace(share, reduced=share.reduced * inside) for share in found]
        inside *= size
    return _merged(shares)


def _straddle(cluster: Cluster, size: int, stride: int) -> tuple[Share, ...]:
    """Return the one share of groups of which some straddle the edge of a part that could hold them, or nothing."""
    reach = 1
    for dimension, slower in pairwise(cluster.dimensions):
        reach *= dimension.size
        if size * stride <= reach and reach % (size * stride):
            return (Share(members=size, reduced=size, dimension=slower, even=False),)
    return ()


def _regular(cluster: Cluster, size: int, stride: int) -> tuple[Share, ...]:
    """Return the spread, with what lies in parts that the stride does not divide moved to the next slower dimension."""
    shares = spread(cluster, size=size, stride=stride)
    reach, moved = 1, None
    for dimension, slower in pairwise(cluster.dimensions):
        reach *= dimension.size
        if stride < reach and reach % stride:
            members = min(size, -(-reach * slower.size // stride))
            moved = Share(members=members, reduced=size % members or members, dimension=slower, even=False)
    if moved is None:
        return shares
    slowest = cluster.dimensions.index(moved.dimension)
    return (moved, *(share for share in shares if cluster.dimensions.index(share.dimension) > slowest))


def _merged(shares: Iterable[Share]) -> tuple[Share, ...]:
    """Return the shares with neighbours in one dimension joined, where the distance of members does not matter."""
    merged: list[Share] = []
    for share in shares:
        last = merged[-1] if merged else None
        joins = last is not None and last.dimension == share.dimension and last.even and share.even
        if last is not None and joins and share.dimension.topology is not Topology.RING:
            merged[-1] = replace(last, members=last.members * share.members, reduced=share.reduced)
        else:
            merged.append(share)
    return tuple(merged)
