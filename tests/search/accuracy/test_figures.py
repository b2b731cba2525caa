"""Figures of merit against hand calculations, and laws that any prediction keeps."""

import math

import numpy as np
import pytest
from accuracy_helpers import step
from hypothesis import given
from hypothesis import strategies as st

from archplace.search.accuracy import Prediction, figures_of
from archplace.search.accuracy.figures import constant_rate_errors, groups_of
from archplace.search.accuracy.tables import accuracy_text, flat_row, prediction_row


def prediction(predicted_s, *, flops=1e15, fits=True, **values):
    return Prediction(
        step=step(**values), predicted_s=predicted_s, parts_s={"tensor compute": predicted_s}, fits=fits, flops=flops
    )


def rows(pairs, **values):
    return [
        prediction(predicted, id=str(i), step_s=measured, **values) for i, (predicted, measured) in enumerate(pairs)
    ]


def test_errors_are_shares_of_the_measured_seconds():
    (found,) = figures_of(rows([(1.1, 1.0), (0.8, 1.0), (1.5, 1.5)]))
    assert (found.mean_error, found.median_error) == pytest.approx((0.1, 0.1))
    assert found.bias == pytest.approx(-0.1 / 3)
    assert (found.rows, found.priced, found.coverage) == (3, 3, 1.0)


def test_what_is_not_priced_counts_against_coverage_alone():
    refused = Prediction(step=step(id="r"), reason="no", parts_s={})
    (found,) = figures_of([*rows([(1.1, 1.0), (0.9, 1.0)]), refused])
    assert (found.rows, found.priced, found.coverage) == (3, 2, pytest.approx(2 / 3))
    assert found.mean_error == pytest.approx(0.1)


def test_a_source_of_which_nothing_is_priced_has_no_errors():
    (found,) = figures_of([Prediction(step=step(), reason="no", parts_s={})])
    assert found.coverage == 0.0
    assert all(math.isnan(value) for value in (found.mean_error, found.bias, found.skill, found.top_regret))


def test_skill_compares_with_the_median_rate_of_the_source():
    # Rates of 1, 2 and 4 in units of the median, 2: the constant rate predicts 1/2, 1 and 2 of what was measured.
    found = [
        prediction(1.0, id="a", flops=1.0, step_s=1.0),
        prediction(1.0, id="b", flops=2.0, step_s=1.0),
        prediction(0.5, id="c", flops=4.0, step_s=1.0),
    ]
    assert constant_rate_errors(found) == pytest.approx([-0.5, 0.0, 1.0])
    assert figures_of(found)[0].skill == pytest.approx(1 - (0.5 / 3) / (1.5 / 3))


def test_the_constant_rate_is_per_device():
    found = [prediction(1.0, id="a", flops=8.0, n_devices=8), prediction(1.0, id="b", flops=64.0, n_devices=64)]
    assert constant_rate_errors(found) == pytest.approx([0.0, 0.0])


def test_groups_are_of_one_model_on_as_many_devices_and_large_enough_to_rank():
    found = [*rows([(1.0, 1.0)] * 3), *rows([(1.0, 1.0)] * 2, n_devices=16), *rows([(1.0, 1.0)] * 3, n_layers=2)]
    assert sorted(len(group) for group in groups_of(found)) == [3, 3]


def test_order_and_regret_within_a_group():
    # Ranks 1, 2, 3 against 1, 3, 2: 1 - 6 · 2 / (3 · 8); the row predicted fastest is the fastest.
    (found,) = figures_of(rows([(1.0, 1.0), (2.0, 4.0), (3.0, 3.0)]))
    assert found.rank_correlation == pytest.approx(0.5)
    assert found.top_regret == 0.0
    (wrong,) = figures_of(rows([(2.0, 1.0), (1.0, 1.5), (3.0, 3.0)]))
    assert wrong.top_regret == pytest.approx(0.5)


def test_times_are_compared_per_token():
    twice = rows([(2.0, 2.0)], global_batch=128, seq_len=2048)
    (found,) = figures_of([*twice, *rows([(1.2, 1.2), (1.4, 1.4)])])
    assert (found.rank_correlation, found.top_regret) == (pytest.approx(1.0), 0.0)


def test_sources_have_lines_of_their_own_and_one_together():
    found = figures_of([*rows([(1.1, 1.0)], source="a"), *rows([(1.3, 1.0)], source="b")])
    assert [each.name for each in found] == ["a", "b", "all"]
    assert found[-1].mean_error == pytest.approx(0.2)


positive = st.floats(0.1, 10)


@given(st.lists(st.tuples(positive, positive), min_size=3, max_size=12), positive)
def test_order_does_not_depend_on_a_common_factor(pairs, factor):
    found = figures_of(rows(pairs))[0]
    scaled = figures_of(rows([(predicted * factor, measured) for predicted, measured in pairs]))[0]
    assert np.isclose(found.rank_correlation, scaled.rank_correlation, equal_nan=True)
    assert found.top_regret == pytest.approx(scaled.top_regret)
    assert found.top_regret >= 0
    if not math.isnan(found.rank_correlation):
        assert -1 - 1e-9 <= found.rank_correlation <= 1 + 1e-9


def test_rows_for_machines_have_the_stack():
    found = prediction(1.1, step_s=1.0)
    row = prediction_row(found)
    assert (row["id"], row["predicted_step_s"], row["measured_step_s"]) == ("a", 1.1, 1.0)
    assert row["stack"] == {"tensor compute": 1.1}
    assert flat_row(found)["tensor_compute_s"] == 1.1
    refused = prediction_row(Prediction(step=step(), reason="no", parts_s={}))
    assert (refused["predicted_step_s"], refused["reason"], refused["stack"]) == (None, "no", {})


def test_text_lists_sources_and_what_is_not_priced():
    text = accuracy_text([*rows([(1.1, 1.0)]), Prediction(step=step(id="r"), reason="too wide", parts_s={})])
    assert "1 step of 2 priced: coverage 50.0 %" in text
    assert "steps.csv:2: r: too wide" in text
