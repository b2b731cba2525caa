"""In which orders devices can be numbered: which parallel axis lies on which dimension of the network."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import permutations

from archplace.arch_configs.cluster import Cluster
from archplace.costmodel.network.groups import ORDERED_AXES, DeviceOrder
from archplace.costmodel.network.layout import Share, lay
from archplace.workloads.operators import Axis


def distinct_orders(
    cluster: Cluster, degrees: Mapping[Axis, int], *, expert: int = 1, expert_tensor: int = 1
) -> tuple[DeviceOrder, ...]:
    """Return one order of each set of orders in which the groups of every axis lie alike in the network.

    ``degrees`` of the axes along which devices are numbered; those of degree 1 or left out need no place. At most
    4! = 24, the conventional one (tensor innermost, then context, data, pipeline) first; one when no axis is shared.
    Orders in which the expert groups do not divide the axes are left out. Raises ``ValueError`` with the reason where
    no order is possible: more devices than the cluster has, or expert degrees that divide none.
    """
    wide = tuple((axis, degrees[axis]) for axis in ORDERED_AXES if degrees.get(axis, 1) != 1)
    strange = [axis for axis in degrees if axis not in ORDERED_AXES]
    return _distinct_orders(cluster, (*wide, *((axis, degrees[axis]) for axis in strange)), expert, expert_tensor)


@lru_cache(maxsize=1 << 16)
def _distinct_orders(
    cluster: Cluster, wide: tuple[tuple[Axis, int], ...], expert: int, expert_tensor: int
) -> tuple[DeviceOrder, ...]:
    found: dict[tuple[tuple[Share, ...], ...], DeviceOrder] = {}
    refusal: ValueError | None = None
    for degrees in permutations(wide):
        try:
            order = DeviceOrder(degrees, expert=expert, expert_tensor=expert_tensor)
        except ValueError as error:
            refusal = refusal or error
            continue
        if order.size > cluster.size:
            product = " x ".join(f"{axis} {degree}" for axis, degree in order.degrees)
            raise ValueError(f"{product} = {order.size} devices; {cluster.name} has {cluster.size}")
        groups = [order.group(axis) for axis in (*ORDERED_AXES, Axis.EXPERT, Axis.EXPERT_TENSOR)]
        groups += [order.gradient_group, order.expert_gradient_group]
        found.setdefault(tuple(lay(cluster, group) for group in groups), order)
    if refusal is not None and not found:
        raise refusal
    return tuple(found.values())


def order_refusal(
    cluster: Cluster, degrees: Mapping[Axis, int], *, expert: int = 1, expert_tensor: int = 1
) -> str | None:
    """Return why :func:`distinct_orders` finds no order, with the numbers, or None."""
    try:
        distinct_orders(cluster, degrees, expert=expert, expert_tensor=expert_tensor)
    except ValueError as error:
        return str(error)
    return None
