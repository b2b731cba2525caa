"""Prices of collectives: hand calculations, loads of links counted message by message, bounds and laws."""

from math import ceil, log2

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from archplace.arch_configs import Cluster, Endpoint, NetworkDimension, Topology, load_cluster
from archplace.costmodel import Algorithm, Group, NetworkPricer, PricingMode
from archplace.costmodel.network import lay
from archplace.costmodel.network.algorithms import options
from archplace.costmodel.network.layout import Share
from archplace.costmodel.network.links import Links, transfer_curve
from archplace.workloads import CollectiveKind as Kind

REDUCING = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)


def dimension(topology, size, *, bandwidth=1e9, latency=1e-6, achievable=(), name="d"):
    return NetworkDimension(
        name=name,
        topology=topology,
        size=size,
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
        achievable=achievable,
    )


def network(*dimensions, endpoint=None):
    return Cluster(name="net", dimensions=dimensions, sources={}, endpoint=endpoint or Endpoint())


def ways(kind, topology, n, payload, *, size=None, distance=1):
    """Seconds by algorithm, of several the best, with B = 1 GB/s and α = 1 µs."""
    share = Share(members=n, reduced=n, dimension=dimension(topology, size or n), distance=distance)
    found = {}
    for option in options(kind, share):
        seconds = float(option.curve.at(np.array(payload)))
        found[option.algorithm] = min(seconds, found.get(option.algorithm, np.inf))
    return found


def test_algorithms_of_eight_on_a_switch_by_hand():
    # 8 MB at 1 GB/s: 8 ms for all of it, 1 ms for an eighth; each step 1 µs.
    us = pytest.approx
    assert ways(Kind.ALL_GATHER, Topology.SWITCH, 8, 8e6) == {
        Algorithm.RING: us(7 * 1.001e-3),
        Algorithm.HALVING_DOUBLING: us(7e-3 + 3e-6),
    }
    found = ways(Kind.ALL_REDUCE, Topology.SWITCH, 8, 8e6)
    assert found[Algorithm.RING] == us(14 * 1.001e-3)
    assert found[Algorithm.HALVING_DOUBLING] == us(14e-3 + 6e-6)
    assert found[Algorithm.RECURSIVE_DOUBLING] == us(3 * 8.001e-3)
    # Two trees of height 3 with 64 segments each: 2 (2·3 + 2·64 − 2) steps of 8 MB / 128 (16 or 256 take longer).
    assert found[Algorithm.DOUBLE_TREE] == us(2 * 132 * (62.5e-6 + 1e-6))
    assert ways(Kind.ALL_TO_ALL, Topology.SWITCH, 8, 8e6) == {
        Algorithm.DIRECT: us(7 * 1.001e-3),
        Algorithm.BRUCK: us(3 * 4.001e-3),
    }
    found = ways(Kind.BROADCAST, Topology.SWITCH, 8, 8e6)
    assert found[Algorithm.TREE] == us(3 * 8.001e-3)
    assert found[Algorithm.SCATTER_GATHER] == us(14 * 1.001e-3)
    assert found[Algorithm.DOUBLE_TREE] == us(132 * (62.5e-6 + 1e-6))
    assert ways(Kind.POINT_TO_POINT, Topology.SWITCH, 8, 8e6) == {Algorithm.NEIGHBOUR: us(8.001e-3)}


def test_six_are_four_and_two_spare_ones():
    found = ways(Kind.ALL_REDUCE, Topology.SWITCH, 6, 6e6)
    # Halving-doubling among four, 2 · (3 + 1.5) ms, and the spare ones' 6 MB twice.
    assert found[Algorithm.HALVING_DOUBLING] == pytest.approx(2 * 4.5e-3 + 4e-6 + 2 * 6.001e-3)
    assert found[Algorithm.RECURSIVE_DOUBLING] == pytest.approx((2 + 2) * 6.001e-3)
    # Bruck gathers 1, 2 and then the last 2 shards of 1 MB.
    assert ways(Kind.ALL_GATHER, Topology.SWITCH, 6, 6e6)[Algorithm.BRUCK] == pytest.approx(5e-3 + 3e-6)
    # Parts 1, 3, 5 have bit 0, 2 and 3 bit 1, 4 and 5 bit 2: 3 + 2 + 2 parts of 1 MB.
    assert ways(Kind.ALL_TO_ALL, Topology.SWITCH, 6, 6e6)[Algorithm.BRUCK] == pytest.approx(7e-3 + 3e-6)


def test_all_links_of_a_full_set_work_in_one_step():
    # Eight devices, each with 1 GB/s over seven links: an eighth of 8 MB on each link takes 7 ms, all at once.
    for kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
        assert ways(kind, Topology.FULLY_CONNECTED, 8, 8e6)[Algorithm.DIRECT] == pytest.approx(7.001e-3)
    assert ways(Kind.ALL_REDUCE, Topology.FULLY_CONNECTED, 8, 8e6)[Algorithm.DIRECT] == pytest.approx(14.002e-3)
    # Four of the eight have three of their seven links among themselves.
    found = ways(Kind.ALL_TO_ALL, Topology.FULLY_CONNECTED, 4, 8e6, size=8)
    assert found[Algorithm.DIRECT] == pytest.approx(14.001e-3)
    assert ways(Kind.POINT_TO_POINT, Topology.FULLY_CONNECTED, 8, 8e6) == {
        Algorithm.NEIGHBOUR: pytest.approx(56.001e-3)
    }


def test_rings_that_close_and_lines_that_do_not():
    # All eight round the ring use the links of both directions; four of them only go there and back.
    assert ways(Kind.ALL_GATHER, Topology.RING, 8, 8e6)[Algorithm.RING] == pytest.approx(7 * 1.001e-3)
    line = ways(Kind.ALL_GATHER, Topology.RING, 4, 8e6, size=8)
    assert line[Algorithm.RING] == pytest.approx(3 * (2 * 2e-3 + 2e-6))
    # Every second one of eight: two groups share the links, two hops each.
    comb = ways(Kind.ALL_GATHER, Topology.RING, 4, 8e6, size=8, distance=2)
    assert comb[Algorithm.RING] == pytest.approx(3 * (2 * 2e-3 + 2e-6))
    # One way there is only one link of two.
    assert ways(Kind.POINT_TO_POINT, Topology.RING, 8, 8e6) == {Algorithm.NEIGHBOUR: pytest.approx(16e-3 + 1e-6)}


@given(st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 3]), st.booleans(), st.data())
def test_no_link_of_a_ring_carries_more_than_is_charged(n, distance, closed, data):
    """All groups of the ring exchange messages at once; count those on each link and direction."""
    size = n * distance if closed else 2 * n * distance
    share = Share(members=n, reduced=n, dimension=dimension(Topology.RING, size, latency=0.0), distance=distance)
    links = Links.of(share)
    groups = [
        [base + block + i * distance for i in range(n)]
        for block in range(0, size, n * distance)
        for base in range(distance)
    ]
    apart = data.draw(st.sampled_from([2**i for i in range(n.bit_length() - 1)]))
    pairs = [(g[i], g[i ^ apart]) for g in groups for i in range(n)]
    everyone = [(a, b) for g in groups for a in g for b in g if a != b]
    for messages, curve in ((pairs, links.exchange(1.0, apart)), (everyone, links.everyone(1.0))):
        load = np.zeros((size, 2))
        for a, b in messages:
            ahead = (b - a) % size
            # Half of a message that is equally far both ways goes each way.
            for way, hops, part in ((0, ahead, 1.0), (1, size - ahead, 1.0)):
                share_of = part * (1.0 if hops < size - hops else 0.5 if 2 * hops == size else 0.0)
                # Exchanges keep inside their block of the line.
                if messages is pairs or not closed:
                    share_of = float((way == 0) == (b > a))
                    hops = abs(b - a)
                for hop in range(hops):
                    link = (a + hop) % size if way == 0 else (a - hop - 1) % size
                    load[link, way] += share_of
        seconds = load.max() * 1e6 / 0.5e9
        assert float(curve.at(np.array(1e6))) == pytest.approx(seconds)


def test_hierarchical_collectives_by_hand():
    fast = dimension(Topology.SWITCH, 4, bandwidth=4e9, latency=1e-6, name="node")
    slow = dimension(Topology.SWITCH, 2, bandwidth=1e9, latency=5e-6, name="fabric")
    pricer, group = NetworkPricer(network(fast, slow)), Group.neighbours(8)
    # 8 MB: three quarters at 4 GB/s each way in the node; between the nodes all of 2 MB in one step at 1 GB/s.
    inside, between = 1.5e-3 + 2e-6, 2e-3 + 5e-6
    assert pricer.seconds(Kind.ALL_REDUCE, 8e6, group) == pytest.approx(2 * inside + between)
    assert pricer.seconds(Kind.ALL_GATHER, 8e6, group) == pytest.approx(inside + 1e-3 + 5e-6)
    phases = pricer.algorithm(Kind.ALL_REDUCE, 8e6, group)
    assert [(phase.kind, phase.dimension, phase.payload_bytes) for phase in phases] == [
        (Kind.REDUCE_SCATTER, "node", 8e6),
        (Kind.ALL_REDUCE, "fabric", 2e6),
        (Kind.ALL_GATHER, "node", 8e6),
    ]
    assert pricer.sent_bytes(Kind.ALL_REDUCE, 8e6, group) == pytest.approx(2 * 6e6 + 2e6)
    # Small ones: two exchanges in the node and one between.
    small = pricer.algorithm(Kind.ALL_REDUCE, 8.0, group)
    assert {phase.algorithm for phase in small} == {Algorithm.RECURSIVE_DOUBLING}
    assert pricer.seconds(Kind.ALL_REDUCE, 8.0, group) == pytest.approx(2 * (2e-9 + 1e-6) + 8e-9 + 5e-6)
    # All-to-all straight to everyone: 1 MB each, three partners in the node, four outside.
    assert pricer.seconds(Kind.ALL_TO_ALL, 8e6, group) == pytest.approx(3 * 0.251e-3 + 4 * 1.005e-3)


def test_rings_of_a_torus_work_at_the_same_time():
    rings = [dimension(Topology.RING, 4, latency=0.0, name=name) for name in "xyz"]
    pricer = NetworkPricer(network(*rings))
    # 63/64 of the payload over three rings of 1 GB/s.
    assert pricer.seconds(Kind.ALL_GATHER, 64e6, Group.neighbours(64)) == pytest.approx(63e-3 / 3)
    assert pricer.seconds(Kind.ALL_REDUCE, 64e6, Group.neighbours(64)) == pytest.approx(2 * 63e-3 / 3)
    (phase,) = pricer.algorithm(Kind.ALL_REDUCE, 64e6, Group.neighbours(64))
    assert (phase.algorithm, phase.dimension) == (Algorithm.TORUS, "x+y+z")
    # Each ring moves all parts through, ⌊n²/4⌋ of a quarter: 4/4 of the payload, a third at a time.
    assert pricer.seconds(Kind.ALL_TO_ALL, 64e6, Group.neighbours(64)) == pytest.approx(64e-3)
    # A single ring of it has its own links only.
    assert pricer.seconds(Kind.ALL_GATHER, 64e6, Group.neighbours(4, stride=4)) == pytest.approx(48e-3)


def test_unequal_rings_of_a_torus_wait_for_the_slowest():
    wide, narrow = (
        dimension(Topology.RING, 4, latency=0.0, name="x"),
        dimension(Topology.RING, 2, latency=0.0, name="y"),
    )
    pricer = NetworkPricer(network(wide, narrow))
    # Halves of 8 MB: first 3/4 · 4 MB on x beside 1/2 · 4 MB on y, then 3/4 · 2 MB on x beside 1/2 · 1 MB on y: 4.5 ms,
    # all of them on x; one ring after the other takes 6 + 1 ms.
    assert pricer.seconds(Kind.REDUCE_SCATTER, 8e6, Group.neighbours(8)) == pytest.approx(4.5e-3)


def test_fractions_of_the_bandwidth_by_message_size():
    table = ((1_000, 0.1), (10_000, 0.5), (1_000_000, 0.8))
    wire = transfer_curve(dimension(Topology.SWITCH, 2, achievable=table))
    assert wire.at(np.array([0.0, 500, 1_000, 10_000, 1e6, 1e9])).tolist() == pytest.approx(
        [0.0, 5e-6, 1e-5, 2e-5, 1.25e-3, 1.25]
    )
    # Halfway between two sizes, half of the seconds between theirs.
    assert wire.at(np.array(5_500.0)) == pytest.approx(1.5e-5)


def test_endpoints_cost_once_whatever_the_group():
    levels = dimension(Topology.SWITCH, 4, name="node"), dimension(Topology.SWITCH, 4, name="fabric")
    bare = NetworkPricer(network(*levels))
    charged = NetworkPricer(network(*levels, endpoint=Endpoint(start_s=1e-3, pass_bytes_per_s=1e9)))
    for group in (Group.neighbours(2), Group.neighbours(16)):
        for kind, passed in ((Kind.ALL_REDUCE, 1.0), (Kind.ALL_GATHER, 0.5), (Kind.REDUCE_SCATTER, 0.5)):
            extra = charged.seconds(kind, 1e6, group) - bare.seconds(kind, 1e6, group)
            assert extra == pytest.approx(1e-3 + passed * 1e-3)
        for kind in (Kind.ALL_TO_ALL, Kind.BROADCAST, Kind.POINT_TO_POINT):
            assert charged.seconds(kind, 1e6, group) - bare.seconds(kind, 1e6, group) == pytest.approx(1e-3)
    assert charged.seconds(Kind.ALL_REDUCE, 1e6, Group.neighbours(1)) == 0.0


def test_uneven_groups_are_priced_as_device_zero_s():
    node = dimension(Topology.SWITCH, 8, bandwidth=400e9, name="node")
    fabric = dimension(Topology.SWITCH, 16, bandwidth=50e9, latency=5e-6, name="fabric")
    pricer = NetworkPricer(network(node, fabric), PricingMode.RING)
    # 9 devices: 8 in one node, 1 in the next, which exchanges everything between the nodes.
    inside, between = 2 * 7 * (800e6 / 8 / 400e9 + 1e-6), 2 * (800e6 / 2 / 50e9 + 5e-6)
    assert pricer.seconds(Kind.ALL_REDUCE, 800e6, Group.neighbours(9)) == pytest.approx(inside + between)
    # Groups of 3 in nodes of 8 straddle an edge; 3 at stride 2 as well.
    for stride in (1, 2):
        expected = 4 * (1e6 / 50e9 + 5e-6)
        assert pricer.seconds(Kind.ALL_REDUCE, 3e6, Group.neighbours(3, stride=stride)) == pytest.approx(expected)


def test_an_uneven_group_has_one_link_of_a_full_set():
    # Groups of 3 in fours of which two are joined: a member has one link to both others, each of which sends a third.
    four, fours = dimension(Topology.SWITCH, 4, name="four"), dimension(Topology.FULLY_CONNECTED, 2, name="fours")
    pricer = NetworkPricer(network(four, fours))
    assert pricer.seconds(Kind.ALL_GATHER, 3e6, Group.neighbours(3)) == pytest.approx(2e-3 + 2e-6)


def test_bad_payloads_are_refused():
    pricer = NetworkPricer(network(dimension(Topology.SWITCH, 8)))
    for bad in (-1.0, float("nan"), np.array([1.0, -2.0])):
        with pytest.raises(ValueError, match=r"payload_bytes: found (-1|nan|-2).*; allowed: 0 or more"):
            pricer.seconds(Kind.ALL_REDUCE, bad, Group.neighbours(2))


TABLES = st.sampled_from([(), ((1 << 16, 0.04), (1 << 22, 0.6), (1 << 28, 0.95)), ((1 << 10, 0.5),)])
MODES = st.sampled_from([PricingMode.BEST, PricingMode.RING])


@st.composite
def cases(draw, topologies=tuple(Topology), tables=TABLES):
    """A network and a group in it, even or not."""
    dimensions = tuple(
        dimension(
            draw(st.sampled_from(topologies)),
            draw(st.sampled_from([2, 3, 4, 8])),
            bandwidth=draw(st.sampled_from([1e9, 5e9, 100e9])),
            latency=draw(st.sampled_from([0.0, 1e-6, 1e-5])),
            achievable=draw(tables),
            name=f"d{i}",
        )
        for i in range(draw(st.integers(1, 3)))
    )
    endpoint = draw(st.sampled_from([Endpoint(), Endpoint(start_s=1e-5, pass_bytes_per_s=5e11)]))
    where = network(*dimensions, endpoint=endpoint)
    levels, reach = [], draw(st.sampled_from([1, 2, 4]))
    for _ in range(draw(st.integers(1, 2))):
        size = draw(st.sampled_from([1, 2, 3, 4, 8]))
        levels.append((size, reach))
        reach *= size * draw(st.sampled_from([1, 2]))
    group = Group.of(levels)
    assume(group.extent <= where.size)
    return where, group


PAYLOAD = st.just(0.0) | st.floats(1e-3, 1e11)


@given(cases(), PAYLOAD, MODES)
def test_never_below_the_bounds_of_bandwidth(case, payload, mode):
    where, group = case
    pricer, n = NetworkPricer(where, mode), group.size
    # What a device can send at most: all dimensions at once.
    rate = sum(d.bandwidth_bytes_per_s for d in where.dimensions)
    least = dict.fromkeys(Kind, (n - 1) / n)
    least |= {Kind.ALL_REDUCE: 2 * (n - 1) / n, Kind.POINT_TO_POINT: float(n > 1)}
    for kind in Kind:
        assert pricer.seconds(kind, payload, group) >= least[kind] * payload / rate * (1 - 1e-9)


@given(cases(topologies=(Topology.SWITCH,)), PAYLOAD)
def test_never_below_the_bounds_of_latency_on_switches(case, payload):
    # One partner at a time: after k steps at most 2**k members can know of one (Chan et al. 2007, section 3).
    where, group = case
    steps = ceil(log2(group.size))
    latency = min(d.latency_s for d in where.dimensions)
    for kind in (*REDUCING, Kind.ALL_TO_ALL, Kind.BROADCAST):
        assert NetworkPricer(where).seconds(kind, payload, group) >= steps * latency * (1 - 1e-9)


@given(cases(), st.lists(PAYLOAD, min_size=2, max_size=8), MODES)
def test_more_bytes_never_take_less_time(case, payloads, mode):
    where, group = case
    for kind in Kind:
        seconds = NetworkPricer(where, mode).seconds(kind, np.sort(payloads), group)
        assert (np.diff(seconds) >= -1e-9 * seconds[1:]).all()


@given(cases(), PAYLOAD, st.integers(0, 2), st.floats(1, 10), MODES)
def test_more_bandwidth_never_takes_more_time(case, payload, index, factor, mode):
    where, group = case
    assume(index < len(where.dimensions))
    dimensions = list(where.dimensions)
    old = dimensions[index]
    dimensions[index] = dimension(
        old.topology,
        old.size,
        bandwidth=old.bandwidth_bytes_per_s * factor,
        latency=old.latency_s,
        achievable=old.achievable,
        name=old.name,
    )
    faster = NetworkPricer(network(*dimensions, endpoint=where.endpoint), mode)
    for kind in Kind:
        before = NetworkPricer(where, mode).seconds(kind, payload, group)
        assert faster.seconds(kind, payload, group) <= before * (1 + 1e-9)


@given(cases(), PAYLOAD)
def test_rings_all_reduce_by_reduce_scatter_and_all_gather(case, payload):
    where, group = case
    pricer = NetworkPricer(where, PricingMode.RING)
    halves = [pricer.seconds(kind, payload, group) for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)]
    assert pricer.seconds(Kind.ALL_REDUCE, payload, group) == pytest.approx(sum(halves))


@given(cases(), PAYLOAD)
def test_an_all_reduce_is_never_slower_than_its_halves(case, payload):
    where, group = case
    pricer = NetworkPricer(where)
    halves = [pricer.seconds(kind, payload, group) for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)]
    assert pricer.seconds(Kind.ALL_REDUCE, payload, group) <= sum(halves) * (1 + 1e-9)


@given(cases(topologies=(Topology.SWITCH,), tables=st.just(())), PAYLOAD)
def test_the_best_is_never_slower_than_rings_on_switches(case, payload):
    where, group = case
    where = network(*where.dimensions)
    assume(all(share.even for share in lay(where, group)))
    for kind in (*REDUCING, Kind.ALL_TO_ALL, Kind.POINT_TO_POINT):
        ring = NetworkPricer(where, PricingMode.RING).seconds(kind, payload, group)
        assert NetworkPricer(where).seconds(kind, payload, group) <= ring * (1 + 1e-9)


@given(cases(), st.lists(PAYLOAD, min_size=1, max_size=6), st.sampled_from(PricingMode))
def test_arrays_are_priced_element_by_element(case, payloads, mode):
    where, group = case
    pricer = NetworkPricer(where, mode)
    for kind in Kind:
        if mode is PricingMode.ASTRA_SIM and kind is Kind.BROADCAST:
            continue
        array = np.array([payloads])
        for price in (pricer.seconds, pricer.sent_bytes):
            found = price(kind, array, group)
            assert found.shape == array.shape
            np.testing.assert_allclose(found[0], [price(kind, each, group) for each in payloads], rtol=1e-12)


@given(cases(), PAYLOAD)
def test_phases_are_what_the_seconds_consist_of(case, payload):
    where, group = case
    where = network(*where.dimensions)
    pricer = NetworkPricer(where)
    for kind in Kind:
        phases = pricer.algorithm(kind, payload, group)
        assert sum(phase.seconds for phase in phases) == pytest.approx(float(pricer.seconds(kind, payload, group)))


@given(cases(), PAYLOAD)
def test_enough_bytes_are_sent(case, payload):
    where, group = case
    pricer, n = NetworkPricer(where), group.size
    for kind in (*REDUCING, Kind.ALL_TO_ALL):
        least = (2 if kind is Kind.ALL_REDUCE else 1) * (n - 1) / n * payload
        assert pricer.sent_bytes(kind, payload, group) >= least * (1 - 1e-9)
    assert pricer.sent_bytes(Kind.POINT_TO_POINT, payload, group) == (payload if n > 1 else 0.0)


@given(cases(), PAYLOAD, st.sampled_from(PricingMode))
def test_a_group_of_one_is_free(case, payload, mode):
    pricer = NetworkPricer(case[0], mode)
    for kind in set(Kind) - {Kind.BROADCAST}:
        assert pricer.seconds(kind, payload, Group.neighbours(1)) == 0.0
        assert pricer.sent_bytes(kind, payload, Group.neighbours(1)) == 0.0


def test_pipeline_neighbours_wait_for_the_slowest_boundary():
    pricer = NetworkPricer(load_cluster("h100-superpod").sized(64), PricingMode.RING)
    # Stages of 4 devices: every second boundary is one between nodes; two stages in one node have none.
    assert pricer.transfer_s(5e6, Group.neighbours(16, stride=4)) == pytest.approx(5e6 / 50e9 + 2.7e-6)
    assert pricer.transfer_s(5e6, Group.neighbours(2, stride=4)) == pytest.approx(5e6 / 450e9 + 0.6e-6)
