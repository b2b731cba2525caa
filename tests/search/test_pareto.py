"""Dominance is a partial order, and a front is what nothing dominates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from archplace.search.pareto import dominated_by, front_mask


def dominates(a, b):
    return (a <= b).all() and (a < b).any()


def point_sets(k):
    # Few distinct values, so that ties are frequent.
    values = st.integers(0, 6).map(float) | st.just(np.inf)
    return st.integers(0, 25).flatmap(lambda n: arrays(np.float64, (n, k), elements=values))


@pytest.mark.parametrize("k", [1, 2, 3])
@given(data=st.data())
def test_front_is_what_nothing_dominates(k, data):
    points = data.draw(point_sets(k))
    mask = front_mask(points)
    for i, point in enumerate(points):
        expected = np.isfinite(point).all() and not any(
            dominates(other, point) for other in points if np.isfinite(other).all()
        )
        assert mask[i] == expected


@pytest.mark.parametrize("k", [1, 2, 3])
@given(data=st.data())
def test_who_dominates_is_named_truly(k, data):
    candidates, points = data.draw(point_sets(k)), data.draw(point_sets(k))
    front = candidates[front_mask(candidates)]
    by = dominated_by(points, front)
    for point, i in zip(points, by, strict=True):
        if i >= 0:
            assert dominates(front[i], point)
        else:
            assert not any(dominates(member, point) for member in front)


def test_by_hand():
    points = np.array([[1.0, 5.0], [2.0, 3.0], [2.0, 3.0], [3.0, 3.0], [4.0, 1.0], [np.nan, 0.0]])
    assert front_mask(points).tolist() == [True, True, True, False, True, False]
    assert dominated_by(np.array([[3.0, 3.0], [2.0, 3.0], [0.5, 9.0]]), points[[0, 1, 4]]).tolist() == [1, -1, -1]
