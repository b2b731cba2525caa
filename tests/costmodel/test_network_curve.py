"""Piecewise linear prices: sums and envelopes equal those of their values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from archplace.costmodel.network.curve import Curve, largest, least, total

number = st.integers(0, 1000).map(float)


@st.composite
def curves(draw):
    start = [0.0, *sorted(draw(st.sets(st.integers(1, 10**6), max_size=4)))]
    slope = [draw(number) for _ in start]
    value = [draw(number) * 1000]
    for i in range(1, len(start)):
        value.append(value[-1] + slope[i - 1] * (start[i] - start[i - 1]))
    return Curve(start=np.array(start), value=np.array(value), slope=np.array(slope))


@given(st.lists(curves(), min_size=1, max_size=6), st.lists(st.floats(0, 1e7), min_size=1, max_size=20))
def test_values_of_sums_and_envelopes(several, places):
    at = np.array([0.0, *places, 1e12])
    values = np.array([curve.at(at) for curve in several])
    np.testing.assert_allclose(total(several).at(at), values.sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(least(several).at(at), values.min(axis=0), rtol=1e-9)
    np.testing.assert_allclose(largest(several).at(at), values.max(axis=0), rtol=1e-9)


@given(curves(), st.floats(0.5, 100), st.floats(0.01, 1), number, st.floats(0, 1e8))
def test_a_part_of_the_payload(curve, factor, of, plus, at):
    found = curve.times(factor, of=of, plus=plus).at(np.array(at))
    np.testing.assert_allclose(found, factor * curve.at(np.array(at * of)) + plus, rtol=1e-9)


def test_an_empty_sum_is_free():
    assert total([]).at(np.array([0.0, 1e9])).tolist() == [0.0, 0.0]


def test_a_middle_line_shows_between_two_others():
    # 10 x, 4 + 4 x and 9 + x cross at 4/6 and at 5/3; the first and the last alone would cross at 1.
    lines = [Curve.line(0.0, 10.0), Curve.line(9.0, 1.0), Curve.line(4.0, 4.0)]
    envelope = least(lines)
    np.testing.assert_allclose(envelope.start, [0.0, 4.0 / 6.0, 5.0 / 3.0])
    np.testing.assert_allclose(envelope.slope, [10.0, 4.0, 1.0])
