"""Cuts and bounds of strategies against every cut there is."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.search.strategy.bounds import balanced_s, least_recomputed
from archplace.search.strategy.chain import ChainRows
from archplace.search.strategy.cuts import Cut, best_cuts
from archplace.search.strategy.least_sums import least_sums_of_any, least_sums_of_equal
from archplace.search.strategy.packing import packed_loads

N_POLICIES = 3


@st.composite
def chains(draw: st.DrawFn) -> ChainRows:
    """A short chain of up to three segments with random prices, one row."""
    counts = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    stages = draw(st.integers(1, min(4, sum(counts))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    segments, exchanges = len(counts), draw(st.integers(0, 2))
    load = np.sort(rng.integers(1, 9, (1, N_POLICIES, segments)).astype(float), axis=1)
    fill = np.sort(rng.integers(0, 9, (1, N_POLICIES, segments)).astype(float), axis=1)
    flight = -np.sort(-rng.integers(0, 6, (1, N_POLICIES, segments)).astype(float), axis=1)
    in_flight = -np.sort(-rng.integers(1, 5, (1, stages)).astype(float), axis=1)
    return ChainRows(
        counts=counts,
        stages=np.array([stages]),
        load_s=load,
        fill_s=fill,
        boundary_s=rng.integers(0, 3, 1).astype(float),
        pace=rng.integers(0, 12, 1).astype(float),
        constant_s=rng.random(1),
        tail_s=rng.integers(0, 20, (1, segments)).astype(float),
        hidden_base_s=rng.integers(0, 20, (1, exchanges)).astype(float),
        hidden_slope_s=rng.integers(-6, 6, (1, exchanges, segments)).astype(float),
        hidden_floor_s=rng.integers(0, 3, (1, exchanges)).astype(float),
        hidden_whole_s=rng.integers(0, 9, (1, exchanges, segments)).astype(float),
        least_recomputed=np.zeros((1, N_POLICIES)),
        capacity_bytes=rng.integers(5, 80, 1).astype(float),
        state_bytes=rng.integers(0, 6, (1, segments)).astype(float),
        flight_bytes=flight,
        working_bytes=rng.integers(0, 5, (1, N_POLICIES, segments)).astype(float),
        in_flight=in_flight,
    )


def naive_s(rows: ChainRows, ends: tuple[int, ...], policies: tuple[int, ...]) -> float:
    """The time of a cut with these policies, straight from the definition; infinite where memory is short."""
    kinds = [k for k, count in enumerate(rows.counts) for _ in range(count)]
    loads, fills = [], 0.0
    start = 0
    for j, (end, policy) in enumerate(zip(ends, policies, strict=True)):
        inside = kinds[start:end]
        neighbours = (j > 0) + (j < len(ends) - 1)
        loads.append(sum(rows.load_s[0, policy, k] for k in inside) + neighbours * rows.boundary_s[0])
        fills += sum(rows.fill_s[0, policy, k] for k in inside)
        held = sum(rows.state_bytes[0, k] + rows.in_flight[0, j] * rows.flight_bytes[0, policy, k] for k in inside)
        if held + max(rows.working_bytes[0, policy, k] for k in inside) > rows.capacity_bytes[0]:
            return float("inf")
        start = end
    first = kinds[: ends[0]]
    tail = sum(rows.tail_s[0, k] for k in first)
    for x in range(rows.hidden_base_s.shape[1]):
        hidden = rows.hidden_base_s[0, x] + sum(rows.hidden_slope_s[0, x, k] for k in first)
        whole = sum(rows.hidden_whole_s[0, x, k] for k in first)
        tail += max(rows.hidden_floor_s[0, x], min(hidden, whole))
    return float(rows.pace[0] * max(loads) + fills + tail + rows.constant_s[0])


def ends_of(cut: Cut) -> tuple[int, ...]:
    return tuple(itertools.accumulate(sum(layers) for layers in cut.held))


def exhaustive_s(rows: ChainRows) -> float:
    """The least time over all cuts and, of each stage, the first policy that fits or any later one."""
    n = sum(rows.counts)
    times = [float("inf")]
    for cuts in itertools.combinations(range(1, n), rows.n_stages - 1):
        for policies in itertools.product(range(N_POLICIES), repeat=rows.n_stages):
            times.append(naive_s(rows, (*cuts, n), policies))
    return min(times)


@settings(max_examples=150, deadline=None)
@given(chains())
def test_the_best_cut_is_the_best_of_all(rows: ChainRows) -> None:
    best_s = exhaustive_s(rows)
    packed = packed_loads(rows)
    cut = best_cuts(rows, packed).at(0)
    if cut is None:
        assert best_s == float("inf")
        return
    assert cut.time_s == pytest.approx(best_s, rel=1e-12)
    assert naive_s(rows, ends_of(cut), cut.policies) == pytest.approx(cut.time_s, rel=1e-12)
    assert max(cut.loads_s) == cut.load_s


@settings(max_examples=150, deadline=None)
@given(chains())
def test_bounds_are_never_above_the_best_cut(rows: ChainRows) -> None:
    best_s = exhaustive_s(rows)
    packed = packed_loads(rows)
    assert balanced_s(rows)[0] <= best_s
    assert balanced_s(rows)[0] <= packed.bounds_s(rows)[0] * (1 + 1e-9)
    assert packed.bounds_s(rows)[0] <= best_s


@settings(max_examples=150, deadline=None)
@given(chains())
def test_every_cut_recomputes_what_memory_forces_it_to(rows: ChainRows) -> None:
    if len(rows.counts) < 3:
        return
    # Ends keep everything, as in models: their policies are alike.
    for values in (rows.load_s, rows.fill_s, rows.flight_bytes, rows.working_bytes):
        values[:, :, 0], values[:, :, -1] = values[:, :1, 0], values[:, :1, -1]
    least = least_recomputed(rows)
    sharper = replace(rows, least_recomputed=least)
    best_s = exhaustive_s(rows)
    assert balanced_s(rows)[0] <= balanced_s(sharper)[0]
    assert balanced_s(sharper)[0] <= best_s
    packed = packed_loads(sharper)
    assert packed.bounds_s(sharper)[0] <= best_s
    cut = best_cuts(sharper, packed).at(0)
    assert (cut is None) == (best_s == float("inf"))
    if cut is not None:
        assert cut.time_s == pytest.approx(best_s, rel=1e-12)
        inner = [sum(layers[1:-1]) for layers in cut.held]
        for number in range(1, N_POLICIES):
            assert sum(n for n, p in zip(inner, cut.policies, strict=True) if p >= number) >= least[0, number]


@settings(max_examples=60, deadline=None)
@given(chains(), st.floats(0.5, 1.5))
def test_only_cuts_below_the_limit_are_returned(rows: ChainRows, factor: float) -> None:
    best_s = exhaustive_s(rows)
    packed = packed_loads(rows)
    limit_s = best_s * factor if best_s < float("inf") else 1.0
    cut = best_cuts(rows, packed, limit_s).at(0)
    if best_s < limit_s * (1 - 1e-12):
        assert cut is not None
        assert cut.time_s == pytest.approx(best_s, rel=1e-12)
    elif best_s > limit_s * (1 + 1e-12):
        assert cut is None


def test_rows_do_not_influence_each_other() -> None:
    one = ChainRows(
        counts=(1, 6, 1),
        stages=np.array([3]),
        load_s=np.array([[[1.0, 4.0, 2.0], [1.0, 5.0, 2.0]]]),
        fill_s=np.array([[[1.0, 4.0, 2.0], [1.0, 5.0, 2.0]]]),
        boundary_s=np.zeros(1),
        pace=np.array([7.0]),
        constant_s=np.zeros(1),
        tail_s=np.zeros((1, 3)),
        hidden_base_s=np.zeros((1, 0)),
        hidden_slope_s=np.zeros((1, 0, 3)),
        hidden_floor_s=np.zeros((1, 0)),
        hidden_whole_s=np.zeros((1, 0, 3)),
        least_recomputed=np.zeros((1, 2)),
        capacity_bytes=np.array([60.0]),
        state_bytes=np.array([[2.0, 10.0, 3.0]]),
        flight_bytes=np.array([[[1.0, 6.0, 1.0], [1.0, 1.0, 1.0]]]),
        working_bytes=np.zeros((1, 2, 3)),
        in_flight=np.array([[3.0, 2.0, 1.0]]),
    )
    alone = packed_loads(one)
    assert alone.least_s[0] == pytest.approx(11.0, rel=1e-4)  # two blocks a stage; the first must recompute: 1 + 2 · 5
    twice = one.take(np.array([0, 0]))
    assert packed_loads(twice).least_s.tolist() == [alone.least_s[0]] * 2
    both = best_cuts(twice, packed_loads(twice))
    assert both.at(0) == both.at(1) == best_cuts(one, alone).at(0)
    cut = best_cuts(one, alone).at(0)
    assert cut is not None
    assert cut.held == ((1, 2, 0), (0, 2, 0), (0, 2, 1))
    assert cut.policies == (1, 0, 0)
    assert cut.loads_s == (11.0, 8.0, 10.0)


@settings(max_examples=150, deadline=None)
@given(chains(), st.integers(1, 5))
def test_equal_layers_are_cut_as_any_layers(rows: ChainRows, n_layers: int) -> None:
    if len(rows.counts) != 3 or rows.n_stages > n_layers + 2:
        return
    plain = replace(rows, counts=(1, n_layers, 1))
    assert plain.is_plain
    limits_s = np.array([1.5 * plain.load_s.max() * n_layers / plain.n_stages])
    equal, any_ = least_sums_of_equal(plain, limits_s), least_sums_of_any(plain, limits_s)
    assert equal.sum_s[0] == pytest.approx(any_.sum_s[0], rel=1e-12)
    if np.isfinite(equal.sum_s[0]):
        ends = tuple(equal.ends[0].tolist())
        total_s = naive_s(plain, ends, tuple(equal.policies[0].tolist()))
        expected = plain.pace[0] * equal.loads_s[0].max() + equal.sum_s[0] + plain.constant_s[0]
        assert total_s == pytest.approx(expected, rel=1e-12)
        assert (equal.loads_s[0] < limits_s).all()
