"""Prices under ASTRA-sim's assumptions, to the nanosecond.

The three values with a name were found by running ASTRA-sim (commit 518bd513, analytical backend without congestion) on
switches of 8 devices at 400 and of 4 at 50 of its GB/s, which are 2**30 bytes per second.
"""

from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import Cluster, NetworkDimension, Topology
from archplace.costmodel import AllToAllImplementation, AstraSimSystem, Group, NetworkPricer, PricingMode
from archplace.workloads import CollectiveKind as Kind

GB = 2**30
MEMORY = AstraSimSystem(local_memory_bytes_per_s=1e12)


def cluster(*dimensions):
    return Cluster(
        name="simulated",
        dimensions=tuple(
            NetworkDimension(
                name=f"d{i}", topology=topology, size=size, bandwidth_bytes_per_s=gb * GB, latency_s=ns * 1e-9
            )
            for i, (topology, size, gb, ns) in enumerate(dimensions)
        ),
        sources={},
    )


def nanoseconds(where, kind, payload, group, system=None):
    pricer = NetworkPricer(where, PricingMode.ASTRA_SIM, astra_sim=system)
    return round(float(pricer.seconds(kind, payload, group)) * 1e9)


TWO_LEVELS = cluster((Topology.SWITCH, 8, 400, 500), (Topology.SWITCH, 4, 50, 2000))


def test_all_reduce_of_all_devices_as_simulated():
    assert nanoseconds(TWO_LEVELS, Kind.ALL_REDUCE, 2**26, Group.neighbours(32), MEMORY) == 741_057


def test_sends_as_simulated():
    assert nanoseconds(TWO_LEVELS, Kind.POINT_TO_POINT, 2**26, Group.neighbours(8)) == 157_250
    assert nanoseconds(TWO_LEVELS, Kind.POINT_TO_POINT, 2**26, Group.neighbours(4, stride=8)) == 1_254_000


def by_hand(kind, size, n, *, hops, latency, gb, memory, delay, all_to_all):
    """The formulas; the simulator divides in double precision before it truncates."""
    message = max(size, n) // n
    network = floor(hops * latency + message / (gb * GB / 1e9))
    add = 3 * floor(message / memory * 1e9) if memory else 0
    steps = n * (n - 1) // 2
    return {
        Kind.ALL_REDUCE: 2 * (n - 1) * network + (n - 1) * add + (2 * (n - 1) + 1) * delay,
        Kind.REDUCE_SCATTER: (n - 1) * (network + add) + n * delay,
        Kind.ALL_GATHER: (n - 1) * network + n * delay,
        Kind.ALL_TO_ALL: {
            AllToAllImplementation.RING: steps * network + (steps + 1) * delay,
            AllToAllImplementation.DIRECT_1: (n - 1) * network + n * delay,
            AllToAllImplementation.DIRECT: network + 2 * delay,
        }[all_to_all],
    }[kind]


@given(
    st.sampled_from([Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL]),
    st.sampled_from(AllToAllImplementation),
    st.sampled_from([(Topology.SWITCH, 2), (Topology.RING, 1), (Topology.FULLY_CONNECTED, 1)]),
    st.integers(2, 64),
    st.integers(1, 2**34),
    st.integers(1, 400),
    st.integers(0, 10_000),
    st.sampled_from([None, 10**12, 2 * 10**12]),
    st.integers(1, 50),
)
def test_one_dimension_by_the_formulas(kind, all_to_all, shape, n, size, gb, latency, memory, delay):
    topology, hops = shape
    links = n - 1 if topology is Topology.FULLY_CONNECTED else 1
    where = cluster((topology, n, gb * links, latency))
    system = AstraSimSystem(endpoint_delay_ns=delay, local_memory_bytes_per_s=memory, all_to_all=all_to_all)
    expected = by_hand(
        kind,
        size,
        n,
        hops=hops,
        latency=latency,
        gb=gb,
        memory=memory,
        delay=delay,
        all_to_all=all_to_all,
    )
    assert nanoseconds(where, kind, size, Group.neighbours(n), system) == expected


def test_subgroups_always_wait_ten_nanoseconds_a_step():
    system = AstraSimSystem(endpoint_delay_ns=500)
    whole = nanoseconds(TWO_LEVELS, Kind.ALL_GATHER, 2**20, Group.neighbours(32), system)
    part = nanoseconds(TWO_LEVELS, Kind.ALL_GATHER, 2**20, Group.neighbours(8), system)
    # 8 steps of 500 ns in a node and 4 between; alone 8 of 10 ns.
    assert whole == 7 * (1000 + 305) + 8 * 500 + 3 * (4000 + 610) + 4 * 500
    assert part == 7 * (1000 + 305) + 8 * 10


def test_a_ring_goes_the_shorter_way_round():
    # Members 6 apart on a ring of 8: the next one is 2 hops back.
    ring = cluster((Topology.RING, 8, 100, 1000))
    assert nanoseconds(ring, Kind.POINT_TO_POINT, 100 * GB, Group.neighbours(2, stride=4)) == 4000 + 10**9
    # Three of eight in a row: back from the last to the first are two hops.
    assert nanoseconds(ring, Kind.ALL_GATHER, 3, Group.neighbours(3)) == 2 * 2000 + 3 * 10


def test_arrays_and_groups_of_one():
    pricer = NetworkPricer(TWO_LEVELS, PricingMode.ASTRA_SIM, astra_sim=MEMORY)
    sizes = np.array([[2.0**20, 2.0**26], [1.0, 3.0]])
    found = pricer.seconds(Kind.ALL_REDUCE, sizes, Group.neighbours(32))
    assert found.shape == sizes.shape
    for index in np.ndindex(sizes.shape):
        assert found[index] == pricer.seconds(Kind.ALL_REDUCE, sizes[index], Group.neighbours(32))
    for kind in (Kind.ALL_REDUCE, Kind.POINT_TO_POINT):
        assert pricer.seconds(kind, sizes, Group.neighbours(1)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_broadcasts_are_not_simulated():
    with pytest.raises(ValueError, match="ASTRA-sim simulates no broadcast; price it with mode 'best' or 'ring'"):
        nanoseconds(TWO_LEVELS, Kind.BROADCAST, 1, Group.neighbours(8))
