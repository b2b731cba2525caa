"""The replay: what hand calculations say, what ASTRA-sim found for the same traces, and what must not be written."""

import pytest
from hand_cases import GB, HandCase, cluster, collective, compute, dimension, receive, reduce, send
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs.cluster import Topology
from archplace.search.export.replay import UnfinishedError, replay
from archplace.workloads.traces import CollectiveType

MIB = 2**20
PAIR = cluster(dimension(2))


def finish(case):
    return replay(case).finish_ns.tolist()


def message_ns(size, gib_per_s=50.0, latency_ns=500.0, hops=2):
    return int(hops * latency_ns + size / (gib_per_s * GB / 1e9))


def all_reduce_ns(n, size):
    return 2 * (n - 1) * message_ns(size // n) + (2 * (n - 1) + 1) * 10


def test_computing_is_one_thing_at_a_time():
    case = HandCase(PAIR, [[compute(70), compute(30)], [compute(1)]])
    assert finish(case) == [100, 1]


def test_collectives_run_beside_computing_and_never_beside_each_other():
    both = [reduce(1, MIB), reduce(2, MIB), compute(5_000)]
    case = HandCase(PAIR, [both, both], {1: (0, 1), 2: (0, 1)})
    assert finish(case) == [2 * all_reduce_ns(2, MIB)] * 2
    long = [reduce(1, MIB), compute(1_000_000)]
    assert finish(HandCase(PAIR, [long, long], {1: (0, 1)})) == [1_000_000] * 2


def test_members_wait_for_the_last():
    early, late = [reduce(1, MIB)], [compute(10_000), reduce(1, MIB, 0)]
    first, second = finish(HandCase(PAIR, [early, late], {1: (0, 1)}))
    # What the first sends at once the second has before it sends itself: the first ends a message sooner.
    arrived = 10 + message_ns(MIB // 2)
    assert first == arrived + 10 + message_ns(MIB // 2) + 10
    assert second == 10_000 + all_reduce_ns(2, MIB)


def test_a_message_ends_when_it_arrives_and_is_received_when_it_is_asked_for():
    ns = message_ns(MIB)
    assert finish(HandCase(PAIR, [[send(1, MIB)], [receive(0, MIB)]])) == [ns, ns]
    late = [compute(3 * ns), receive(0, MIB, 0)]
    assert finish(HandCase(PAIR, [[send(1, MIB)], late])) == [ns, 3 * ns]


def test_a_message_and_a_collective_take_turns():
    first = [send(1, MIB), reduce(1, MIB)]
    second = [receive(0, MIB), reduce(1, MIB, 0)]
    assert finish(HandCase(PAIR, [first, second], {1: (0, 1)})) == [message_ns(MIB) + all_reduce_ns(2, MIB)] * 2


def test_the_lowest_number_goes_first():
    ready = [compute(10), compute(200, 0), compute(5), reduce(1, MIB, 1)]
    waits = [compute(210), reduce(1, MIB, 0)]
    # After the first come those that are ready then: the second, not the third.
    second_first = 10 + 200
    assert finish(HandCase(PAIR, [ready, waits], {1: (0, 1)})) == [second_first + all_reduce_ns(2, MIB)] * 2


def test_messages_of_one_tag_keep_their_order():
    case = HandCase(PAIR, [[send(1, MIB), send(1, MIB)], [receive(0, MIB), compute(50_000, 0), receive(0, MIB)]])
    ns = message_ns(MIB)
    assert finish(case) == [2 * ns, ns + 50_000]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.integers(1, 10**8))
def test_a_chain_takes_the_sum_of_its_parts(durations, size):
    chain = [compute(ns, *([place - 1] if place else [])) for place, ns in enumerate(durations)]
    exchange = reduce(1, size, len(chain) - 1)
    expected = sum(durations) + all_reduce_ns(2, max(size, 2))
    assert finish(HandCase(PAIR, [[*chain, exchange]] * 2, {1: (0, 1)})) == [expected] * 2


def test_two_groups_in_two_orders_never_end():
    one, other = [reduce(1, MIB), reduce(2, MIB, 0)], [reduce(2, MIB), reduce(1, MIB, 0)]
    with pytest.raises(UnfinishedError, match="2 of 2 devices never finish: device 0 has 2 steps left"):
        replay(HandCase(PAIR, [one, other], {1: (0, 1), 2: (0, 1)}))


def test_messages_that_nobody_sends_or_receives_are_refused():
    with pytest.raises(UnfinishedError, match="1 of 2 devices never finish"):
        replay(HandCase(PAIR, [[compute(1)], [receive(0, MIB)]]))
    with pytest.raises(UnfinishedError, match="1 messages are never received, the first has tag 7"):
        replay(HandCase(PAIR, [[send(1, MIB, tag=7)], [compute(1)]]))
    # One byte is a difference, as it is in the simulator.
    with pytest.raises(UnfinishedError, match="never finish"):
        replay(HandCase(PAIR, [[send(1, MIB)], [receive(0, MIB + 1)]]))


def test_members_that_exchange_different_things_are_refused():
    with pytest.raises(UnfinishedError, match=r"meet for different exchanges: ALL_REDUCE of 1,048,576 bytes; ALL_RED"):
        replay(HandCase(PAIR, [[reduce(1, MIB)], [reduce(1, 2 * MIB)]], {1: (0, 1)}))


def test_a_step_that_waits_for_a_later_one_is_refused():
    with pytest.raises(UnfinishedError, match="waits for step 1"):
        replay(HandCase(PAIR, [[compute(1, 1), compute(1)], [compute(1)]]))


SLOW = dimension(2, 12.5, 2000.0, name="slow")
FAST = dimension(4, 200.0, 700.0, name="fast")
TORUS = (dimension(4, 40.0, 300.0, Topology.RING, "x"), dimension(2, 40.0, 300.0, Topology.RING, "y"))
MESH = dimension(4, 90.0, 250.0, Topology.FULLY_CONNECTED, "mesh")
NODES = {1: (0, 2, 4, 6), 2: (1, 3, 5, 7)}
"""Numbers of devices in two nodes of four: the slow dimension counts first."""
ACROSS = {3: (0, 1), 4: (2, 3), 5: (4, 5), 6: (6, 7)}


def hierarchical():
    """A reduction in nodes and across them, members starting at different moments, and a message between nodes."""
    kinds = CollectiveType
    programs = []
    for npu in range(8):
        node, across = 1 + npu % 2, 3 + npu // 2
        programs.append(
            [
                compute(1_000 * (npu + 1)),
                collective(kinds.REDUCE_SCATTER, node, 8 * MIB, 0),
                reduce(across, 2 * MIB, 1),
                collective(kinds.ALL_GATHER, node, 2 * MIB, 2),
                compute(123_457, 0),
                collective(kinds.ALL_TO_ALL, node, 3 * MIB + 5, 3),
                send(npu + 1, MIB, 4) if npu % 2 == 0 else receive(npu - 1, MIB, 4),
            ]
        )
    return HandCase(cluster(FAST, SLOW), programs, NODES | ACROSS)


def torus():
    """Rings whose way back differs, and messages over several hops."""
    rings = {1: (0, 2, 4, 6), 2: (1, 3, 5, 7), 3: (0, 4), 4: (1, 5), 5: (2, 6), 6: (3, 7)}
    programs = []
    for npu in range(8):
        place = npu // 2
        programs.append(
            [
                reduce(1 + npu % 2, 5 * MIB + 3),
                collective(CollectiveType.ALL_GATHER, 3 + npu % 4, MIB, 0),
                compute(40_000 - 777 * npu, 1),
                collective(CollectiveType.ALL_TO_ALL, 1 + npu % 2, 4 * MIB, 2),
                send((npu + 6) % 8, 2 * MIB + place, 3, tag=npu),
                receive((npu + 2) % 8, 2 * MIB + (place + 1) % 4, 2, tag=(npu + 2) % 8),
            ]
        )
    return HandCase(cluster(*TORUS), programs, rings)


def mesh():
    """Links of their own."""
    programs = []
    for npu in range(4):
        programs.append(
            [
                collective(CollectiveType.REDUCE_SCATTER, 1, 7 * MIB),
                compute(9_999 * (npu + 1)),
                collective(CollectiveType.ALL_TO_ALL, 1, 7 * MIB, 1),
            ]
        )
    return HandCase(cluster(MESH), programs, {1: (0, 1, 2, 3)})


# Cycles in the lines "finished" of ASTRA-sim (commit 518bd513, analytical backend without congestion), run on the files
# that are written for these cases.
@pytest.mark.parametrize(
    ("case", "cycles"),
    [
        (hierarchical, [330639, 330639, 331701, 331701, 333701, 333701, 335701, 335701]),
        (torus, [370508, 369731, 373616, 372839, 373616, 372839, 372062, 371285]),
        (mesh, [343376, 343376, 343376, 343376]),
    ],
)
def test_astra_sim_found_the_same(case, cycles):
    assert finish(case()) == cycles
