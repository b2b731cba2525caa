"""Sums over intervals are the true sums: the same layers have the same sum wherever they stand."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from archplace.search.placement._intervals import interval_sums

amounts = st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 1e30), st.integers(0, 10**12).map(float))


@given(st.lists(amounts, min_size=1, max_size=30))
@example([0.0])
@example([5e-324, 1e-310])
@example([1e30, 1.0, 1e30])
def test_each_sum_is_rounded_once(values: list[float]) -> None:
    sums = interval_sums(np.array(values))
    total = math.fsum(values)
    for start in range(len(values)):
        for end in range(start, len(values) + 1):
            exact = math.fsum(values[start:end])
            assert abs(sums[start, end] - exact) <= 2.0**-52 * exact + 2.0**-90 * total


@given(st.lists(st.integers(0, 2**45), min_size=1, max_size=60))
def test_whole_numbers_are_exact(values: list[int]) -> None:
    sums = interval_sums(np.array(values, dtype=np.float64))
    assert all(sums[i, j] == sum(values[i:j]) for i in range(len(values)) for j in range(i, len(values) + 1))


@given(st.lists(amounts, max_size=8), st.lists(amounts, min_size=1, max_size=8), st.lists(amounts, max_size=8))
def test_equal_runs_have_equal_sums(before: list[float], run: list[float], between: list[float]) -> None:
    sums = interval_sums(np.array([*before, *run, *between, *reversed(run)]))
    first, second = len(before), len(before) + len(run) + len(between)
    assert sums[first, first + len(run)] == sums[second, second + len(run)]
