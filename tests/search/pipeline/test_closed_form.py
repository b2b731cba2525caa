"""The closed form is exact for equal stages and never below the schedule's exact time for uneven ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_helpers import SHAPES, equal_stages, passes_s, pipelines, shape, shapes

from archplace.search.pipeline import (
    PipelineSchedule,
    StageSeconds,
    closed_form_s,
    coefficients,
    makespan_s,
)

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, DUALPIPE = PipelineSchedule
passes = st.integers(1, 40).map(lambda tenth: tenth / 10)


def bubble_s(one, *values, **more):
    """What the step takes beyond the work of a device whose passes do not overlap."""
    seconds = equal_stages(one, *values, **more)
    return closed_form_s(one, seconds, overlap_transfers=True) - one.microbatches * sum(values) * one.virtual


@given(one=shapes, forward=passes, backward=passes, weight=passes, gain=st.floats(0, 1))
def test_exact_for_equal_stages(one, forward, backward, weight, gain):
    seconds = equal_stages(one, forward, backward, weight, gain=gain)
    exact = makespan_s(one, seconds, overlap_transfers=True)
    assert closed_form_s(one, seconds, overlap_transfers=True) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("stages", [8, 16])
@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_exact_for_equal_stages_of_deep_pipelines(schedule, stages):
    virtual = 4 if schedule is INTERLEAVED else 1
    one = shape(schedule, stages, 3 * stages, virtual)
    for values in ((1.0, 1.25, 0.75), (1.0, 0.5, 0.5), (0.5, 2.0, 0.25), (1.0, 0.5, 2.0)):
        seconds = equal_stages(one, *values, gain=0.5)
        exact = makespan_s(one, seconds, overlap_transfers=True)
        assert closed_form_s(one, seconds, overlap_transfers=True) == pytest.approx(exact, rel=1e-12)


@given(pipelines(), st.booleans())
def test_never_below_the_exact_time(pipeline, overlap):
    one, seconds = pipeline
    exact = makespan_s(one, seconds, overlap_transfers=overlap)
    assert closed_form_s(one, seconds, overlap_transfers=overlap) >= exact * (1 - 1e-12)


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_never_below_the_exact_time_of_many_random_pipelines(schedule):
    rng = np.random.default_rng(20241227)
    n = 300
    for one in (each for each in SHAPES if each.schedule is schedule):
        layers = rng.choice([0.2, 1.0, 2.0, 5.0], (n, one.virtual_stages))
        shares = rng.uniform(0.2, 1.5, (3, n, 1)) + rng.choice([0.0, 1.0], (3, n, 1)) * rng.uniform(
            0, 2, (3, n, one.virtual_stages)
        )
        forward, backward, weight = shares * layers
        other = (backward + weight)[:, ::-1]
        least_gain = rng.uniform(0, 1, (n, 1)) * np.ones(one.virtual_stages)
        seconds = StageSeconds.of(
            forward,
            backward,
            weight,
            rng.choice([0.0, 0.1, 3.0], (n, 1)) * rng.uniform(0, 1, (n, one.virtual_stages - 1)),
            forward + other - rng.uniform(least_gain, 1) * np.minimum(forward, other) if schedule is DUALPIPE else None,
        )
        for overlap in (False, True):
            exact = makespan_s(one, seconds, overlap_transfers=overlap)
            assert (closed_form_s(one, seconds, overlap_transfers=overlap) >= exact * (1 - 1e-12)).all(), one


@given(data=st.data(), one=shapes.filter(lambda each: each.schedule is GPIPE))
def test_gpipe_is_exact_for_uneven_stages_too(data, one):
    forward, backward, weight = (data.draw(passes_s(one.stages)) for _ in range(3))
    seconds = StageSeconds.of(forward, backward, weight, data.draw(passes))
    exact = makespan_s(one, seconds, overlap_transfers=True)
    assert closed_form_s(one, seconds, overlap_transfers=True) == pytest.approx(exact, rel=1e-12)


@given(data=st.data(), one=shapes)
def test_stages_of_more_and_fewer_equal_layers_have_no_skew(data, one):
    # Then one largest load and a sum are all there is, and what a search minimises is never below the time.
    layers = np.tile(data.draw(passes_s(one.stages)), one.virtual)
    forward, backward, weight = data.draw(passes), data.draw(passes), data.draw(passes)
    seconds = StageSeconds.of(forward * layers, backward * layers, weight * layers)
    terms = coefficients(one.schedule, one.stages, one.virtual, one.microbatches)
    on_device = layers[: one.stages] * one.virtual
    devices = forward * on_device, backward * on_device, weight * on_device
    load = sum(devices)
    pair = (load + load[::-1]) / 2
    time = terms.pace * load.max() + terms.pair_pace * pair.max() + terms.fill_s(*devices).sum()
    time += terms.tail_s(*devices).max() - terms.saved * np.min(devices)
    assert time == pytest.approx(closed_form_s(one, seconds, overlap_transfers=True), rel=1e-12)
    assert time >= makespan_s(one, seconds, overlap_transfers=True) * (1 - 1e-12)


def test_the_skew_is_needed():
    # Of two stages the first is slow forward and the second slow backward: while the first runs its two forward
    # passes, the second has nothing to do, and nor has the first while the second runs backward.
    one = shape(ONE_F_ONE_B, 2, 2)
    seconds = StageSeconds.of([1.0, 0.0], [0.0, 1.0], [0.0, 0.0])
    # F0 F1 on the first stage end at 1 and 2; B0 on the second runs from 1 to 2, B1 from 2 to 3.
    assert makespan_s(one, seconds, overlap_transfers=True) == 3.0
    assert closed_form_s(one, seconds, overlap_transfers=True) == 1.0 * 1 + 2.0 + 1.0
    reverse = StageSeconds.of([0.0, 1.0], [1.0, 0.0], [0.0, 0.0])
    # F0 on the second stage ends at 1, F1 at 2; B0 on the first runs from 1 to 2, B1 from 2 to 3.
    assert makespan_s(one, reverse, overlap_transfers=True) == 3.0


def test_devices_wait_for_pairs_that_gain_less():
    # One of the two kinds of pairs gains all it can and the other nothing; both devices run the other at some time.
    one = shape(DUALPIPE, 2, 4)
    seconds = StageSeconds.of([3.0, 3.0], [2.0, 2.0], [0.0, 0.0], 0.0, [3.0, 5.0])
    exact = makespan_s(one, seconds, overlap_transfers=True)
    assert exact > 4 * 5.0 - 1.0  # no more than half of what one pair gains is left
    assert closed_form_s(one, seconds, overlap_transfers=True) >= exact


@pytest.mark.parametrize(
    ("schedule", "most"), [(GPIPE, 0.13), (ONE_F_ONE_B, 1e-12), (INTERLEAVED, 0.09), (ZB_H1, 0.05), (DUALPIPE, 0.05)]
)
def test_what_a_search_minimises_when_some_stages_recompute(schedule, most):
    rng = np.random.default_rng(11)
    n = 400
    for stages in (2, 4, 8):
        one = shape(schedule, stages, 2 * stages, 2 if schedule is INTERLEAVED else 1)
        layers, again = rng.integers(3, 9, (n, stages)), rng.integers(0, 2, (n, stages))
        inputs, weights = rng.uniform(1, 1.3, (n, 1)), rng.uniform(0.6, 1, (n, 1))
        devices = 1.0 * layers, (inputs + again) * layers, weights * layers
        chunks = (np.tile(each, one.virtual) / one.virtual for each in devices)
        exact = makespan_s(one, StageSeconds.of(*chunks), overlap_transfers=True)
        terms = coefficients(schedule, [[stages]], [[one.virtual]], [[one.microbatches]])
        load = sum(devices)
        largest = (terms.pace * load + terms.pair_pace * load + terms.tail_s(*devices)).max(axis=1)
        time = largest + terms.fill_s(*devices).sum(axis=1)
        assert (time >= exact * (1 - most)).all()


@given(data=st.data(), one=shapes)
def test_sums_over_layers_make_the_time_no_less(data, one):
    # Two layers on each stage, priced one by one or together.
    layers = [data.draw(passes_s(2, one.stages)) for _ in range(3)]
    terms = coefficients(one.schedule, one.stages, one.virtual, one.microbatches)
    together = [each.sum(axis=0) for each in layers]
    load = terms.pace * sum(together)
    for largest in (lambda tail: (load + tail).max(), lambda tail: load.max() + tail.max()):
        one_by_one = largest(terms.tail_s(*layers).sum(axis=0)) + terms.fill_s(*layers).sum()
        assert one_by_one >= (largest(terms.tail_s(*together)) + terms.fill_s(*together).sum()) * (1 - 1e-12) - 1e-9


@given(one=shapes, forward=passes, backward=passes, weight=passes, transfer=st.integers(0, 60), gain=st.floats(0, 1))
def test_transfers_behind_computing_are_exact_for_equal_stages_that_can_hide_them(
    one, forward, backward, weight, transfer, gain
):
    c = transfer / 10
    half = one.stages / 2 - 1
    hides = {
        GPIPE: True,
        ONE_F_ONE_B: True,
        INTERLEAVED: c <= (forward + backward + weight) / 2,
        ZB_H1: weight <= min(forward, backward),
        DUALPIPE: weight <= backward and half * c <= min(forward, backward) - half * max(backward - forward, 0),
    }[one.schedule]
    seconds = equal_stages(one, forward, backward, weight, c, gain)
    exact = makespan_s(one, seconds, overlap_transfers=True)
    found = closed_form_s(one, seconds, overlap_transfers=True)
    assert found >= exact * (1 - 1e-12)
    if hides:
        assert found == pytest.approx(exact, rel=1e-12)


def test_transfers_of_1f1b_by_hand():
    # Two stages, passes of 1 and transfers of 1/2. Stage 0 runs F0 F1 B0 F2 B1 B2, stage 1 F0 B0 F1 B1 F2 B2:
    # stage 0: F0 0-1, F1 1-2, B0 4-5, F2 5-6, B1 6-7, B2 9-10,
    # stage 1: F0 1.5-2.5, B0 2.5-3.5, F1 3.5-4.5, B1 4.5-5.5, F2 6.5-7.5, B2 7.5-8.5.
    one = shape(ONE_F_ONE_B, 2, 3)
    seconds = equal_stages(one, 1.0, 0.5, 0.5, 0.5)
    assert makespan_s(one, seconds, overlap_transfers=True) == 10.0
    assert closed_form_s(one, seconds, overlap_transfers=True) == 10.0


@given(pipelines())
def test_transfers_behind_computing_are_never_slower(pipeline):
    one, seconds = pipeline
    behind, waiting = (makespan_s(one, seconds, overlap_transfers=overlap) for overlap in (True, False))
    assert behind <= waiting * (1 + 1e-12)


@given(one=shapes, forward=passes, backward=passes, weight=passes)
def test_published_bubbles(one, forward, backward, weight):
    p, v = one.stages, one.virtual
    weight = min(weight, forward, backward)
    found = bubble_s(one, forward, backward, weight)
    load = forward + backward + weight
    if one.schedule is ZB_H1 and one.microbatches < p:
        return  # the paper has at least as many microbatches as stages
    if one.schedule is DUALPIPE:
        # DeepSeek-V3's table 2, where B stands for the whole backward pass, holds for equally long F and input pass.
        found = bubble_s(one, forward, forward, weight)
        published = (p / 2 - 1) * ((2 * forward + weight) + (forward + weight) - 3 * weight)
    else:
        published = {
            GPIPE: (p - 1) * load,
            ONE_F_ONE_B: (p - 1) * load,
            # Seconds are those of one chunk; the paper's are those of all v.
            INTERLEAVED: (p - 1) * (load * v) / v,
            ZB_H1: (p - 1) * (forward + backward - weight),
        }[one.schedule]
    assert found == pytest.approx(published, abs=1e-9)


def test_zb_h1_needs_a_third_of_the_bubble_of_1f1b_for_equal_passes():
    # Qi et al. 2023, section 2.1.
    zero, classic = (bubble_s(shape(schedule, 8, 24), 1.0, 1.0, 1.0) for schedule in (ZB_H1, ONE_F_ONE_B))
    assert zero == pytest.approx(classic / 3)


def test_bubble_of_deepseek_v3_with_overlapped_passes():
    # 16 stages, F = 1, B = 2 of which W = 1; a pair gains half of what it could: (16/2 - 1) (2.5 + 2 - 3).
    one = shape(DUALPIPE, 16, 64)
    seconds = equal_stages(one, 1.0, 1.0, 1.0, gain=0.5)
    # The middle devices overlap all but the 17 passes before and after, and run those apart.
    busy = (64 - 17) * 2.5 + 17 * 3.0
    assert closed_form_s(one, seconds, overlap_transfers=True) == pytest.approx(busy + 7 * (2.5 + 2 - 3))


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_arrays_are_many_pipelines_at_once(schedule):
    accepted = [(each.stages, each.virtual, each.microbatches) for each in SHAPES if each.schedule is schedule]
    stages, virtual, microbatches = np.array(accepted).T
    terms = coefficients(schedule, stages, virtual, microbatches)
    by_layer = coefficients(schedule, stages[:, None], virtual[:, None], microbatches[:, None])
    layers = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 4.0]), np.array([0.5, 2.0, 5.0])
    for row, counts in enumerate(accepted):
        alone = coefficients(schedule, *counts)
        for name in ("pace", "pair_pace", "saved", "skew"):
            assert getattr(terms, name)[row] == getattr(alone, name)
        assert (by_layer.fill_s(*layers)[row] == alone.fill_s(*layers)).all()
        assert (by_layer.tail_s(*layers)[row] == alone.tail_s(*layers)).all()
        assert by_layer.transfers_s(0.7, *layers)[row] == pytest.approx(alone.transfers_s(0.7, *layers))
