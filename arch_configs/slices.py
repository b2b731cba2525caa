"""The part of a cluster that a job gets where its devices are chosen for it: compact boxes of tori, whole pods.

:meth:`Cluster.sized` fills the dimensions from fast to slow, which suits nodes behind switches. Of a torus a scheduler
gives a job a box as near to a cube as possible, because the optical switches can close a ring over any of its sides
(Jouppi et al. 2023, ISCA, arXiv:2304.01433, section 2.1), and a job on several pods gets as much of each.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from math import prod

from archplace.arch_configs.cluster import Cluster, NetworkDimension, Topology


def slice_of(cluster: Cluster, n_devices: int, *, pods: int = 1, innermost: int = 1) -> Cluster:
    """Return the part of ``cluster`` with ``n_devices`` that a scheduler gives a job.

    The fastest dimensions, where they are rings, form a torus: the job gets a box of it, one on each of ``pods``, with
    the least surface; of its sides those are numbered first that together hold ``innermost`` neighbouring devices, as
    the frameworks' device meshes have it. Other clusters are sized as :meth:`Cluster.sized` does, and ``pods`` means
    nothing. Raises ``ValueError`` where no such part exists.
    """
    torus = tuple(_torus(cluster))
    if not torus:
        return cluster.sized(n_devices)
    if n_devices % pods:
        raise ValueError(f"found {n_devices} devices, which do not divide over {pods} pods")
    others = cluster.dimensions[len(torus) :]
    if pods > prod(dimension.size for dimension in others):
        raise ValueError(f"found {pods} pods; the cluster {cluster.name!r} has {prod(d.size for d in others)}")
    box = _box(n_devices // pods, torus, innermost)
    slower = replace(cluster, dimensions=others).sized(pods).dimensions if pods > 1 else ()
    sized = [replace(dimension, size=size) for dimension, size in box if size > 1]
    return replace(cluster, dimensions=tuple(sized) + slower or (replace(torus[0], size=1),))


def pod_size(cluster: Cluster) -> int | None:
    """Return the devices of one torus of the cluster; None where its fastest dimension is no ring."""
    torus = tuple(_torus(cluster))
    return prod(dimension.size for dimension in torus) if torus else None


def _torus(cluster: Cluster) -> Iterator[NetworkDimension]:
    for dimension in cluster.dimensions:
        if dimension.topology is not Topology.RING:
            return
        yield dimension


def _box(n_devices: int, torus: tuple[NetworkDimension, ...], innermost: int) -> list[tuple[NetworkDimension, int]]:
    """Return the sides of the best box, in the order in which devices are numbered along them."""
    limits = sorted(dimension.size for dimension in torus)
    boxes = list(_factors(n_devices, limits))
    if not boxes:
        shape = " x ".join(str(dimension.size) for dimension in torus)
        raise ValueError(f"found {n_devices} devices, which form no box of a torus of {shape}; try a power of two")
    # The sum of the sides settles boxes of equal surface; the last entry makes the choice unique.
    sides = min(boxes, key=lambda box: (sum(n_devices // side for side in box), sum(box), box))
    by_size = sorted(torus, key=lambda dimension: dimension.size)
    box = list(zip(by_size, sides, strict=True))
    for order in permutations(box[::-1]):
        products = [prod(size for _, size in order[: count + 1]) for count in range(len(order))]
        if innermost in (1, *products):
            return list(order)
    return box[::-1]


def _factors(number: int, limits: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as ascending factors, each within its limit; limits ascend too."""
    if len(limits) == 1:
        if number <= limits[0]:
            yield (number,)
        return
    for first in range(1, min(number, limits[0]) + 1):
        if number % first == 0:
            for rest in _factors(number // first, limits[1:]):
                if first <= rest[0]:
                    yield (first, *rest)
