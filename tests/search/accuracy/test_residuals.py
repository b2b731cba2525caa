"""What residuals say of predictions to come: coverage is a law, and leaving rows out is exact for linear models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.search.accuracy.residuals import central_interval, comparison_error, left_out, uncertainty_of

residual = st.floats(-1, 1, allow_nan=False)


@given(st.lists(residual, min_size=10, max_size=60))
def test_intervals_drawn_from_all_others_cover_four_of_five(values):
    """The law of conformal prediction, by leaving out each in turn; ties can only help."""
    found = np.array(values)
    covered = 0
    for index, value in enumerate(found):
        low, high = central_interval(np.delete(found, index))
        covered += low <= value <= high
    assert covered >= 0.8 * len(found) - 1e-9


@given(st.lists(residual, min_size=9, max_size=60, unique=True))
def test_intervals_leave_out_a_tenth_on_either_side_and_no_more(values):
    low, high = central_interval(np.array(values))
    for outside in (sum(value < low for value in values), sum(value > high for value in values)):
        assert outside + 1 <= 0.1 * (len(values) + 1) + 1e-9
        assert outside + 2 > 0.1 * (len(values) + 1) - 1e-9


def test_too_few_residuals_say_nothing():
    assert central_interval(np.zeros(8)) is None
    assert central_interval(np.arange(9.0)) == (0.0, 8.0)
    assert uncertainty_of(np.zeros(8), ["a"] * 8) is None


def test_bounds_by_hand():
    # Of 19 residuals the second least and the second greatest: (19 + 1) / 10.
    assert central_interval(np.arange(19.0)) == (1.0, 17.0)


def test_comparisons_are_within_groups_and_every_group_weighs_the_same():
    # One group with differences 0.1, 0.2, 0.3, two with one difference each.
    residuals = np.array([0.0, 0.1, 0.3, 5.0, 5.04, -7.0, -7.5, 9.0])
    error, groups = comparison_error(residuals, ["a", "a", "a", "b", "b", "c", "c", "alone"])
    # By weight of thirds and ninths: 0.04 (1/3), 0.1, 0.2 and 0.3 (1/9 each) reach 2/3, so that 4/5 is at 0.5.
    assert (error, groups) == (pytest.approx(0.5), 3)
    assert comparison_error(residuals, ["a", "a", "a", "b", "b", "c", "c", "alone"], share=0.5)[0] == pytest.approx(0.2)
    nothing, none = comparison_error(residuals, range(8))
    assert np.isnan(nothing)
    assert none == 0


@given(st.lists(residual, min_size=12, max_size=40), st.floats(-3, 3))
def test_a_common_factor_moves_the_interval_and_no_comparison(values, shift):
    groups = [index // 2 for index in range(len(values))]
    here, there = (uncertainty_of(np.array(values) + by, groups) for by in (0.0, shift))
    assert there.low == pytest.approx(here.low * np.exp(shift))
    assert there.high == pytest.approx(here.high * np.exp(shift))
    if here.compared > 1e-6:
        assert there.compared == pytest.approx(here.compared, rel=1e-6)
    assert here.low <= here.high
    assert here.steps == len(values)


def test_leaving_out_a_group_is_exact_for_a_linear_model_with_a_prior():
    rng = np.random.default_rng(7)
    slopes, targets, groups = rng.normal(size=(12, 3)), rng.normal(size=12), [i // 3 for i in range(12)]
    prior = np.array([0.5, 1.0, 2.0])

    def fit(rows):
        return np.linalg.solve(slopes[rows].T @ slopes[rows] + np.diag(prior), slopes[rows].T @ targets[rows])

    everything = slopes @ fit(np.arange(12)) - targets
    found = left_out(everything, slopes, everything, slopes, prior, groups)
    for group in range(4):
        rows = np.array(groups) == group
        expected = slopes[rows] @ fit(~rows) - targets[rows]
        assert found[rows] == pytest.approx(expected)


def test_without_parameters_nothing_moves():
    ratios = np.array([0.1, 0.2])
    assert left_out(ratios, np.zeros((2, 0)), ratios, np.zeros((2, 0)), np.zeros(0), ["a", "b"]) is ratios
