"""Messages and collectives in the simulator's network: the prices of its mode, and steps followed one by one."""

import numpy as np
import pytest
from hand_cases import cluster, dimension
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs.cluster import Topology
from archplace.costmodel.network import DeviceOrder, Group, NetworkPricer, PricingMode
from archplace.search.export.communicators import MOST_GROUPS, Communicators, Numbering, numbered
from archplace.search.export.wires import DELAY_NS, Wires
from archplace.workloads import Axis, CollectiveKind
from archplace.workloads.traces import CollectiveType

NETWORKS = [
    cluster(dimension(8)),
    cluster(dimension(4, 200.0, 700.0), dimension(4, 12.5, 2000.0)),
    cluster(dimension(2, 300.0, 100.0), dimension(2, 50.0, 500.0), dimension(4, 10.0, 5000.0)),
    cluster(dimension(4, 90.0, 250.0, Topology.FULLY_CONNECTED), dimension(4)),
]
KINDS = [kind for kind in CollectiveKind if kind not in (CollectiveKind.BROADCAST, CollectiveKind.POINT_TO_POINT)]


@given(st.sampled_from(NETWORKS), st.sampled_from(KINDS), st.integers(0, 2**32), st.data())
def test_collectives_one_by_one_take_what_the_price_says(network, kind, payload, data):
    sizes = [size for size in (2, 4, 8, 16) if size <= network.size]
    size = data.draw(st.sampled_from(sizes))
    stride = data.draw(st.sampled_from([s for s in (1, 2, 4, 8) if size * s <= network.size]))
    group = Group.neighbours(size, stride=stride)
    communicators, wires = Communicators(network), Wires(Numbering(network))
    total = 0
    for each in communicators.lower(kind, payload, group):
        members = communicators.members(each.team)
        ends = [
            wires.collective_ns(each.kind, each.size_bytes, tuple(row), (0,) * len(row)) for row in members.tolist()
        ]
        (ns,) = {end for some in ends for end in some}
        total += ns
    price = NetworkPricer(network, PricingMode.ASTRA_SIM).seconds(kind, payload, group)
    assert total == round(float(price) * 1e9)


@given(st.lists(st.integers(0, 10**5), min_size=2, max_size=6), st.integers(6, 10**7))
def test_an_all_reduce_of_latecomers_goes_step_by_step(starts, size):
    n = len(starts)
    network = cluster(dimension(n))
    wires = Wires(Numbering(network))
    found = wires.collective_ns(CollectiveType.ALL_REDUCE, size, tuple(range(n)), tuple(starts))
    message = wires.message_ns(0, 1, size // n)
    sent = [start + DELAY_NS for start in starts]
    for _ in range(2 * (n - 1)):
        received = [max(sent[i - 1] + message, sent[i]) for i in range(n)]
        sent = [moment + DELAY_NS for moment in received]
    assert found == sent
    assert min(found) > max(starts)


def test_a_message_is_charged_by_the_slow_dimension_between_nodes():
    network = NETWORKS[1]
    numbering = Numbering(network)
    wires = Wires(numbering)
    npu = numbering.npu
    inside, across = (wires.message_ns(int(npu[0]), int(npu[device]), 2**20) for device in (3, 4))
    assert inside == int(2 * 700 + 2**20 / (200 * 2**30 / 1e9))
    assert across == int(2 * 2000 + 2**20 / (12.5 * 2**30 / 1e9))
    # Also where the place in the node differs.
    assert wires.message_ns(int(npu[1]), int(npu[6]), 2**20) == across
    with pytest.raises(ValueError, match="device 3 to itself"):
        wires.message_ns(3, 3, 1)


@pytest.mark.parametrize("network", NETWORKS)
def test_numbers_are_those_of_all_devices(network):
    assert sorted(Numbering(network).npu.tolist()) == list(range(network.size))


def test_neighbours_go_round():
    order = DeviceOrder(((Axis.TENSOR, 4), (Axis.PIPELINE, 4)))
    communicators = Communicators(NETWORKS[1])
    group = order.group(Axis.PIPELINE)
    ahead, back = communicators.neighbour(group, 1), communicators.neighbour(group, -1)
    np.testing.assert_array_equal(back[ahead], np.arange(16))
    assert len(set(ahead.tolist())) == 16


def test_a_broadcast_is_refused():
    with pytest.raises(ValueError, match="simulates no such collective"):
        Communicators(NETWORKS[0]).lower(CollectiveKind.BROADCAST, 1, Group.neighbours(2))


@pytest.mark.parametrize("size", [64, 256, 1024])
def test_groups_that_share_two_members_have_tags_of_their_own(size):
    network = cluster(dimension(8), dimension(size // 8))
    communicators = Communicators(network)
    order = DeviceOrder(((Axis.TENSOR, 8), (Axis.DATA, size // 16), (Axis.PIPELINE, 2)))
    groups = [order.group(Axis.TENSOR), order.group(Axis.DATA), order.union(Axis.TENSOR, Axis.DATA)]
    teams = dict.fromkeys(
        each.team for group in groups for each in communicators.lower(CollectiveKind.ALL_REDUCE, 2**20, group)
    )
    named = list(numbered(communicators, tuple(teams)))
    assert len({number for *_, number in named}) == len(named)
    members = {number: set(communicators.members(team)[instance].tolist()) for team, instance, number in named}
    assert all(1 <= number <= MOST_GROUPS for number in members)
    by_residue = {}
    for number, found in members.items():
        for other in by_residue.setdefault(number % 500, []):
            assert len(found & other) < 2
        by_residue[number % 500].append(found)


def test_more_groups_than_numbers_are_refused():
    communicators = Communicators(cluster(dimension(2), dimension(4096)))
    teams = [each.team for each in communicators.lower(CollectiveKind.ALL_REDUCE, 2, Group.neighbours(2))]
    with pytest.raises(ValueError, match="4,096 process groups; ASTRA-sim tells at most 2,147 apart"):
        list(numbered(communicators, teams))
