"""What is left out because whole layers have no room: nothing that could have won, on chains long enough to ask."""

from functools import cache
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.search.placement import StagePrices, dp, place
from archplace.search.placement._floors import StageFloors
from archplace.search.placement._suffixes import Suffixes


@st.composite
def layered_prices(draw: st.DrawFn) -> StagePrices:
    """Loads are sums over layers, transfers besides that differ by the boundary and by the position."""
    n = draw(st.integers(1, 24))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    layers = random.choice(draw(st.sampled_from([(1.0,), (1.0, 2.0), (0.0, 1.0, 7.0), (1.1, 2.3, 3.7, 0.4)])), n)
    last_layers = layers * draw(st.sampled_from([1.0, 0.5]))
    starts, ends = np.indices((n + 1, n + 1))
    prefix = np.concatenate(([0.0], np.cumsum(layers)))
    last_prefix = np.concatenate(([0.0], np.cumsum(last_layers)))
    enters, leaves = random.choice([0.0, 0.5, 2.0], (2, 4, n + 1)) * draw(st.sampled_from([0.0, 1.0, 4.0]))
    enters[:, 0] = leaves[:, n] = 0.0
    loads = [
        sums[ends] - sums[starts] + enters[index, starts] + leaves[index, ends]
        for index, sums in enumerate([last_prefix, prefix, prefix, prefix])
    ]
    # The same arrays come again, as where a network has levels.
    order = [0, *random.integers(1, 4, n).tolist()]
    held = np.concatenate(([0.0], np.cumsum(random.integers(1, 4, n))))
    delay = random.uniform(0.0, draw(st.sampled_from([0.0, 1.0, 30.0])), n + 1)
    floors = (last_layers, layers)
    if draw(st.booleans()):
        floors = (random.uniform(0.0, 3.0, n), random.uniform(0.0, 3.0, n))  # right with any floors
    return StagePrices(
        tensor_parallel=1,
        load_s=tuple(loads[index] for index in order),
        base_bytes=held[ends] - held[starts],
        in_flight_bytes=draw(st.sampled_from([0.0, 0.25])) * (ends - starts),
        devices=np.broadcast_to(np.int64(draw(st.integers(1, 2))), (n + 1, n + 1)),
        synchronisation_s=lambda replicas, _, first_ends: (1.0 - 1.0 / replicas)[:, None] * delay[first_ends],
        synchronisation_grows=True,
        synchronisation_by_devices=draw(st.booleans()),
        layer_floor_s=floors,
    )


def least_bottlenecks(prices: StagePrices, memory_bytes: float) -> list[list[float]]:
    """By stages - 1 and the end of the first stage: the least bottleneck, one interval after the other."""
    n = prices.n_layers

    @cache
    def load(start: int, end: int, position: int) -> float:
        fits = prices.stage_memory_bytes(start, end, position) <= memory_bytes
        return float(prices.load_at(position)[start, end]) if fits else np.inf

    @cache
    def least(start: int, stages: int) -> float:
        if stages == 1:
            return load(start, n, 1)
        ends = range(start + 1, n - stages + 2)
        return min((max(load(start, end, stages), least(end, stages - 1)) for end in ends), default=np.inf)

    table = [[np.inf] * n + [load(0, n, 1)]]
    for stages in range(2, n + 1):
        ends = range(1, n - stages + 2)
        row = {end: max(load(0, end, stages), least(end, stages - 1)) for end in ends}
        table.append([row.get(end, np.inf) for end in range(n + 1)])
    return table


@settings(max_examples=200, deadline=None)
@given(
    layered_prices(), st.integers(1, 24), st.sampled_from([1, 20, 1000]), st.integers(4, 90), st.sampled_from([1, 2, 8])
)
def test_equals_a_search_that_leaves_nothing_out(
    prices: StagePrices, max_devices: int, microbatches: int, memory_bytes: int, first_check: int
) -> None:
    best = np.inf
    devices = int(prices.devices[0, 0])
    for index, row in enumerate(least_bottlenecks(prices, memory_bytes)):
        most = max_devices // ((index + 1) * devices)
        for replicas in range(1, min(most, microbatches) + 1):
            ends = np.arange(prices.n_layers + 1)
            wait = prices.synchronisation_s(np.array([replicas]), replicas * (index + 1) * devices, ends)[0]
            best = min(best, float((np.array(row) * (-(-microbatches // replicas) + index) + wait).min()))
    # Short chains are through before the search asks how many stages can still be of use: let it ask early too.
    with patch.object(dp, "_FIRST_CHECK", first_check):
        result = place([prices], max_devices=max_devices, microbatches=microbatches, memory_bytes=memory_bytes)
    assert result.time_per_batch_s == best


@settings(max_examples=150, deadline=None)
@given(layered_prices(), st.integers(4, 60), st.integers(1, 10), st.floats(0.9, 1.2))
def test_whole_layers_are_a_lower_bound(prices: StagePrices, memory_bytes: int, fewest: int, scale: float) -> None:
    """No pipeline has fewer stages than its bottleneck takes, and none with more than the most keeps its limit."""
    n = prices.n_layers
    suffixes = Suffixes(prices, max_devices=10**6, memory_bytes=memory_bytes)
    floors = StageFloors(prices, suffixes, n)
    bottlenecks = [min(row) for row in least_bottlenecks(prices, memory_bytes)]
    for index, bottleneck in enumerate(bottlenecks):
        if bottleneck < np.inf:
            assert floors.fewest_stages(bottleneck) <= index + 1
    fewest = min(fewest, n)
    finite = [each for each in bottlenecks if each < np.inf]
    limits = scale * min(finite, default=1.0) * np.linspace(2.0, 0.9, n)[fewest - 1 :]
    most = floors.most_stages(limits, fewest)
    assert most == 0 or fewest <= most <= n
    for index, limit in enumerate(limits.tolist()):
        if bottlenecks[fewest - 1 + index] <= limit:
            assert most >= fewest + index


def test_by_hand() -> None:
    """Seven layers of 2 s: within 5 s a stage holds two whole layers, so four stages; sums alone would allow three."""
    n = 7
    starts, ends = np.indices((n + 1, n + 1))
    prices = StagePrices(
        tensor_parallel=1,
        load_s=(2.0 * (ends - starts),),
        base_bytes=np.ones((n + 1, n + 1)),
        in_flight_bytes=np.zeros((n + 1, n + 1)),
        devices=np.broadcast_to(np.int64(1), (n + 1, n + 1)),
        synchronisation_s=lambda replicas, _, first_ends: np.zeros((len(replicas), len(first_ends))),
        layer_floor_s=(np.full(n, 2.0), np.full(n, 2.0)),
    )
    floors = StageFloors(prices, Suffixes(prices, max_devices=7, memory_bytes=1.0), n)
    assert [floors.fewest_stages(limit) for limit in (14.0, 13.0, 8.0, 5.0, 3.0, 1.0)] == [1, 2, 2, 4, 7, 8]
    # 2 stages: 6 s are too few; 3: 5 s; 4 stages stay within 5 s, and neither do 5 within 3 s nor more within 1 s.
    assert floors.most_stages(np.array([6.0, 5.0, 5.0, 3.0, 1.0, 1.0]), 2) == 4
    assert floors.most_stages(np.array([5.0]), 3) == 0
