"""Ring collectives over network dimensions, by hand and by law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import cluster

from archplace.costmodel import collective_s, ring_s, spread, transfer_s
from archplace.workloads.operators import Collective, CollectiveKind


def members(size, stride):
    return [(share.members, share.dimension.name) for share in spread(cluster(), size=size, stride=stride)]


def test_groups_lie_on_the_fast_dimension_first():
    assert members(4, 1) == [(4, "node")]
    assert members(16, 1) == [(8, "node"), (2, "fabric")]
    assert members(16, 8) == [(16, "fabric")]
    assert members(4, 4) == [(2, "node"), (2, "fabric")]
    assert members(1, 1) == []


def test_group_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="64 devices at stride 4"):
        spread(cluster(), size=64, stride=4)


def test_hierarchical_all_reduce_by_hand():
    # 16 devices: reduce-scatter and all-gather of 800 MB among 8 at 400 GB/s, and of the remaining 100 MB between 2.
    inside = 2 * 7 * (800e6 / 8 / 400e9 + 1e-6)
    between = 2 * 1 * (100e6 / 2 / 50e9 + 5e-6)
    assert ring_s(CollectiveKind.ALL_REDUCE, 800e6, spread(cluster(), size=16, stride=1)) == pytest.approx(
        inside + between
    )


def test_transfer_uses_the_dimension_it_crosses():
    assert transfer_s(4e6, cluster(), stride=1) == pytest.approx(4e6 / 400e9 + 1e-6)
    assert transfer_s(4e6, cluster(), stride=8) == pytest.approx(4e6 / 50e9 + 5e-6)
    with pytest.raises(ValueError, match="2 groups of 128 devices do not fit"):
        transfer_s(4e6, cluster(), stride=128)


def test_a_lone_device_in_a_node_carries_the_whole_payload():
    # 9 devices: 8 in one node, 1 in the next, which exchanges everything between the nodes: 2 · ½ · 800 MB at 50 GB/s.
    inside = 2 * 7 * (800e6 / 8 / 400e9 + 1e-6)
    between = 2 * 1 * (800e6 / 2 / 50e9 + 5e-6)
    shares = spread(cluster(), size=9, stride=1)
    assert ring_s(CollectiveKind.ALL_REDUCE, 800e6, shares) == pytest.approx(inside + between)


def test_a_group_that_straddles_a_node_runs_at_the_fabric_s_pace():
    # Groups of 3 in nodes of 8: devices 6, 7 and 8 form one.
    collective = Collective(kind=CollectiveKind.ALL_REDUCE, payload_bytes=3 * 10**6, group_size=3)
    assert collective_s(collective, cluster()) == pytest.approx(2 * 2 * (1e6 / 50e9 + 5e-6))


@given(st.integers(1, 127), st.integers(2, 128))
def test_slowest_transfer_is_that_of_some_pair_of_neighbours(stride, members):
    members = min(members, cluster().size // stride)
    if members < 2:
        with pytest.raises(ValueError, match="do not fit"):
            transfer_s(1e6, cluster(), stride=stride, members=2)
        return
    slowest = 0.0
    for device in range(stride * (members - 1)):
        reach = 1
        for dimension in cluster().dimensions:
            reach *= dimension.size
            if device // reach == (device + stride) // reach:
                slowest = max(slowest, 1e6 / dimension.bandwidth_bytes_per_s + dimension.latency_s)
                break
    assert transfer_s(1e6, cluster(), stride=stride, members=members) == pytest.approx(slowest)


@given(st.integers(1, 128), st.floats(0, 1e10))
def test_never_faster_than_a_flat_ring_on_the_fastest_links(size, payload):
    fastest = max(dimension.bandwidth_bytes_per_s for dimension in cluster().dimensions)
    seconds = ring_s(CollectiveKind.ALL_REDUCE, payload, spread(cluster(), size=size, stride=1))
    assert seconds >= 2 * (size - 1) / size * payload / fastest * (1 - 1e-12)


@given(st.integers(1, 128), st.floats(0, 1e10))
def test_all_reduce_is_reduce_scatter_and_all_gather(size, payload):
    shares = spread(cluster(), size=size, stride=1)
    halves = ring_s(CollectiveKind.REDUCE_SCATTER, payload, shares) + ring_s(CollectiveKind.ALL_GATHER, payload, shares)
    assert ring_s(CollectiveKind.ALL_REDUCE, payload, shares) == pytest.approx(halves)
