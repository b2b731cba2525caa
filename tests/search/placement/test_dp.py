"""The dynamic program under arbitrary prices: loads by position, any devices per stage, any synchronisation."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.search.placement import StagePrices, place
from archplace.search.placement.prices import FloatArray, IntArray


@st.composite
def arbitrary_prices(draw: st.DrawFn) -> StagePrices:
    """No structure at all: nothing grows with anything, some intervals are forbidden."""
    n = draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (n + 1, n + 1)
    positions = draw(st.integers(1, n + 1))
    loads = [random.integers(1, 30, shape).astype(np.float64) for _ in range(positions)]
    for load in loads:
        load[random.random(shape) < 0.1] = np.inf
    delays = random.integers(0, 60, (32, 64, n + 1)).astype(np.float64)

    def synchronisation_s(replicas: IntArray, pipeline_devices: int, first_ends: IntArray) -> FloatArray:
        table: FloatArray = delays[replicas % 32, pipeline_devices % 64]
        return table[:, first_ends]

    # Right with any floors, even those above the loads.
    floors = random.integers(0, 20, (2, n)).astype(np.float64)
    return StagePrices(
        tensor_parallel=draw(st.integers(1, 3)),
        load_s=tuple(loads),
        base_bytes=random.integers(0, 10, shape).astype(np.float64),
        in_flight_bytes=random.integers(0, 4, shape).astype(np.float64),
        devices=random.choice(draw(st.sampled_from([(1,), (2, 5), (1, 3, 7), (4,)])), shape),
        synchronisation_s=synchronisation_s,
        synchronisation_grows=False,
        layer_floor_s=(floors[0], floors[1]),
    )


def brute_force(prices: StagePrices, max_devices: int, microbatches: int, memory_bytes: float) -> list[float]:
    n = prices.n_layers
    times = []
    for stages in range(1, n + 1):
        for inner in combinations(range(1, n), stages - 1):
            intervals = list(pairwise([0, *inner, n]))
            positions = range(stages, 0, -1)
            if any(
                prices.base_bytes[i] + (p - 1) * prices.in_flight_bytes[i] > memory_bytes
                for p, i in zip(positions, intervals, strict=True)
            ):
                continue
            bottleneck = max(
                float(prices.load_s[min(p, len(prices.load_s)) - 1][i])
                for p, i in zip(positions, intervals, strict=True)
            )
            devices = sum(int(prices.devices[i]) for i in intervals)
            for replicas in range(1, min(max_devices // devices, microbatches) + 1):
                wait = prices.synchronisation_s(np.array([replicas]), devices, np.array([intervals[0][1]]))
                times.append(bottleneck * (-(-microbatches // replicas) + stages - 1) + float(wait[0, 0]))
    return [time for time in times if np.isfinite(time)]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(arbitrary_prices(), min_size=1, max_size=3),
    st.integers(1, 30),
    st.sampled_from([1, 2, 7, 16]),
    st.integers(0, 25),
)
def test_equals_brute_force(widths: list[StagePrices], max_devices: int, microbatches: int, memory_bytes: int) -> None:
    times = [time for width in widths for time in brute_force(width, max_devices, microbatches, memory_bytes)]
    result = place(widths, max_devices=max_devices, microbatches=microbatches, memory_bytes=memory_bytes)
    assert result.feasible == bool(times)
    assert result.time_per_batch_s == min(times, default=np.inf)
    assert result.devices <= max_devices
    assert bool(result.reason) != result.feasible


@settings(max_examples=100, deadline=None)
@given(arbitrary_prices(), st.floats(0.0, 50.0), st.floats(0.1, 3.0))
def test_last_position_is_the_largest_that_fits(prices: StagePrices, memory_bytes: float, scale: float) -> None:
    n = prices.n_layers
    object.__setattr__(prices, "in_flight_bytes", prices.in_flight_bytes * scale)
    fits = np.array([prices.memory_at(position) <= memory_bytes for position in range(1, n + 1)])
    assert (prices.last_position(memory_bytes) == fits.sum(axis=0)).all()


def uniform(n: int, load_s: float) -> StagePrices:
    """``n`` layers of ``load_s`` each, one device a stage, one byte a layer, nothing in flight."""
    starts, ends = np.indices((n + 1, n + 1))
    layers = np.maximum(ends - starts, 0).astype(np.float64)
    return StagePrices(
        tensor_parallel=1,
        load_s=(layers * load_s,),
        base_bytes=layers,
        in_flight_bytes=np.zeros_like(layers),
        devices=np.ones((n + 1, n + 1), dtype=np.int64),
        synchronisation_s=lambda replicas, _, first_ends: np.zeros((len(replicas), len(first_ends))),
        layer_floor_s=(np.full(n, load_s), np.full(n, load_s)),
    )


def test_equal_layers_are_cut_evenly() -> None:
    """12 layers of 2 s, memory for 3: 4 stages of 6 s on 4 of 5 devices, 6 · (10 + 3) = 78 s."""
    result = place([uniform(12, 2.0)], max_devices=5, microbatches=10, memory_bytes=3.0)
    assert [stage.end_layer - stage.first_layer for stage in result.stages] == [3, 3, 3, 3]
    assert (result.time_per_batch_s, result.devices) == (78.0, 4)


def test_ties_leave_devices_unused() -> None:
    """One microbatch gains nothing from a second replica or stage."""
    result = place([uniform(4, 1.0)], max_devices=8, microbatches=1, memory_bytes=4.0)
    assert (result.time_per_batch_s, result.devices, result.pipeline_parallel) == (4.0, 1, 1)


def test_prices_that_forbid_everything_are_a_reason() -> None:
    prices = uniform(3, 1.0)
    object.__setattr__(prices, "load_s", (np.full((4, 4), np.inf),))
    result = place([prices], max_devices=8, microbatches=1, memory_bytes=4.0)
    assert not result.feasible
    assert "prices forbid" in (result.reason or "")


@pytest.mark.parametrize(("max_devices", "microbatches"), [(0, 1), (1, 0), (-3, 5)])
def test_refuses_no_devices_and_no_microbatches(max_devices: int, microbatches: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        place([uniform(2, 1.0)], max_devices=max_devices, microbatches=microbatches, memory_bytes=1.0)


def test_refuses_no_width_and_no_layers() -> None:
    with pytest.raises(ValueError, match="no tensor-parallel width"):
        place([], max_devices=1, microbatches=1, memory_bytes=1.0)
    with pytest.raises(ValueError, match="without layers"):
        place([uniform(0, 1.0)], max_devices=1, microbatches=1, memory_bytes=1.0)
