"""The solver finds the least squares inside bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.search.accuracy._least_squares import least_squares


def test_a_linear_problem_is_solved_exactly():
    matrix = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
    right = matrix @ np.array([0.7, -1.3]) + np.array([0.1, -0.05, 0.2])
    found = least_squares(lambda x: matrix @ x - right, np.zeros(2), np.full(2, -9.0), np.full(2, 9.0), most_rounds=50)
    assert found == pytest.approx(np.linalg.lstsq(matrix, right, rcond=None)[0], abs=0.02)


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_bounds_hold_and_the_nearest_point_is_found(a, b):
    low, high = np.array([-1.0, 0.0]), np.array([1.0, 2.0])
    found = least_squares(lambda x: x - np.array([a, b]), np.array([5.0, 5.0]), low, high, most_rounds=50)
    assert found == pytest.approx(np.clip([a, b], low, high), abs=0.02)


def test_a_curved_valley_is_followed():
    # Rosenbrock's function, whose least value is at (1, 1).
    found = least_squares(
        lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]),
        np.array([-1.2, 1.0]),
        np.full(2, -2.0),
        np.full(2, 2.0),
        most_rounds=200,
    )
    assert found == pytest.approx([1.0, 1.0], abs=0.1)
