"""Operators of the network are priced among the groups of their axis."""

import pytest
from machines import cluster, table

from archplace.costmodel import DeviceOrder, Group, NetworkPricer, Pricer, PricingMode, collective_s, sent_bytes
from archplace.workloads import Axis, Collective, CollectiveKind, Operator, Phase, Unit


def operator(size, axis=Axis.TENSOR, kind=CollectiveKind.ALL_REDUCE):
    collective = Collective(kind=kind, payload_bytes=10**6, group_size=size, axis=axis)
    return Operator(name="exchange", unit=Unit.NETWORK, phase=Phase.FORWARD, collective=collective)


def seconds(pricer, one):
    prices = pricer.price([one])
    assert prices.one_s.tolist() == prices.all_s.tolist()
    return float(prices.all_s[0, 0])


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 16, 128])
def test_neighbours_over_ideal_rings_by_default(size):
    one, pricer = operator(size), Pricer(table(), cluster())
    assert seconds(pricer, one) == collective_s(one.collective, cluster())
    assert pricer.activity(one).network_bytes == sent_bytes(one.collective, cluster())


def test_each_axis_has_its_groups():
    order = DeviceOrder(((Axis.TENSOR, 4), (Axis.CONTEXT, 4), (Axis.DATA, 8)))
    network = NetworkPricer(cluster())
    groups = {axis: order.group(axis) for axis in (Axis.TENSOR, Axis.CONTEXT)}
    pricer = Pricer(table(), cluster(), network=network, groups=groups)
    # Four neighbours in a node of eight; of the four 4 apart two in each node.
    inside = network.seconds(CollectiveKind.ALL_REDUCE, 1e6, Group.neighbours(4))
    across = network.seconds(CollectiveKind.ALL_REDUCE, 1e6, Group.neighbours(4, stride=4))
    assert seconds(pricer, operator(4)) == inside
    assert seconds(pricer, operator(4, Axis.CONTEXT)) == across > inside
    sent = network.sent_bytes(CollectiveKind.ALL_REDUCE, 1e6, Group.neighbours(4, stride=4))
    assert pricer.activity(operator(4, Axis.CONTEXT)).network_bytes == sent
    assert seconds(pricer.subset(slice(0, 1)), operator(4, Axis.CONTEXT)) == across


def test_a_group_of_another_size_is_refused():
    pricer = Pricer(table(), cluster(), groups={Axis.TENSOR: Group.neighbours(4)})
    with pytest.raises(ValueError, match="a collective among 8 devices of the tensor axis, whose groups have 4"):
        pricer.price([operator(8)])


def test_the_mode_of_the_network_decides():
    best = Pricer(table(), cluster(), network=NetworkPricer(cluster(), PricingMode.BEST))
    # Three exchanges of a microsecond each instead of fourteen steps.
    assert seconds(best, operator(8)) < seconds(Pricer(table(), cluster()), operator(8))
