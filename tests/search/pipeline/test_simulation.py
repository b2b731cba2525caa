"""Events and recurrence agree, work is conserved, and a timeline says what was busy and what was not."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_helpers import SHAPES, equal_stages, passes_s, pipelines, shape, shapes

from archplace.search.pipeline import (
    OperationKind,
    PipelineSchedule,
    StageSeconds,
    closed_form_s,
    device_order,
    makespan_s,
    messages_sent,
)
from archplace.search.pipeline.simulation import simulate

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, DUALPIPE = PipelineSchedule


@given(pipelines(), st.booleans())
def test_events_and_recurrence_agree(pipeline, overlap):
    one, seconds = pipeline
    exact = makespan_s(one, seconds, overlap_transfers=overlap)
    assert simulate(one, seconds, overlap_transfers=overlap).makespan_s == pytest.approx(exact, rel=1e-12, abs=1e-12)


@given(pipelines(), st.booleans())
def test_devices_do_their_work_and_nothing_else(pipeline, overlap):
    one, seconds = pipeline
    timeline = simulate(one, seconds, overlap_transfers=overlap)
    assert max(spans[-1].end_s for spans in timeline.spans) == timeline.makespan_s
    for device, spans in enumerate(timeline.spans):
        assert tuple(span.slot for span in spans) == device_order(one, device)
        assert all(span.begin_s <= span.computed_s <= span.end_s for span in spans)
        assert all(before.end_s <= after.begin_s for before, after in pairwise(spans))
        idle = sum(end - begin for begin, end in timeline.idle_s(device))
        work = timeline.busy_s[device] + timeline.sending_s[device]
        assert work + idle == pytest.approx(timeline.makespan_s, rel=1e-12, abs=1e-12)
        if overlap:
            assert timeline.sending_s[device] == pytest.approx(0.0, abs=1e-12)
        if seconds.overlapped_s is None:
            if one.schedule is DUALPIPE:
                loads = (seconds.load_s[device] + seconds.load_s[one.stages - 1 - device]) / 2
            else:
                loads = seconds.load_s[device :: one.stages].sum()
            assert timeline.busy_s[device] == pytest.approx(one.microbatches * loads, rel=1e-12, abs=1e-12)


@given(pipelines(), st.booleans())
def test_no_operation_begins_before_its_inputs_arrive(pipeline, overlap):
    one, seconds = pipeline
    begins, ends = {}, {}
    for spans in simulate(one, seconds, overlap_transfers=overlap).spans:
        for span in spans:
            for each in span.slot:
                kinds = (each.kind,)
                if each.kind is OperationKind.BACKWARD:
                    kinds = (OperationKind.BACKWARD_INPUT, OperationKind.BACKWARD_WEIGHT)
                for kind in kinds:
                    begins[kind, each.stage, each.microbatch] = span.begin_s
                    ends[kind, each.stage, each.microbatch] = span.computed_s
    last, slack = one.virtual_stages - 1, 1e-9
    for (kind, stage, microbatch), begin in begins.items():
        if kind is OperationKind.FORWARD and stage > 0:
            arrival = ends[kind, stage - 1, microbatch] + seconds.transfer_s[stage - 1]
        elif kind is OperationKind.BACKWARD_INPUT and stage < last:
            arrival = ends[kind, stage + 1, microbatch] + seconds.transfer_s[stage]
        elif kind is OperationKind.BACKWARD_INPUT:
            arrival = ends[OperationKind.FORWARD, stage, microbatch]
        else:
            arrival = 0.0
        assert begin >= arrival - slack


@pytest.mark.parametrize("one", SHAPES[:: len(SHAPES) // 40], ids=str)
def test_messages_are_those_that_neighbours_exchange(one):
    timeline = simulate(one, equal_stages(one, 1.0, 1.0, 1.0, 0.25), overlap_transfers=True)
    assert list(timeline.messages) == [messages_sent(one, device) for device in range(one.stages)]


def test_bubble_share_of_equal_stages():
    # Narayanan et al. 2021, section 2.2: bubble over ideal time is (p - 1) / m, and (p - 1) / (v m) interleaved.
    for one, over_ideal in (
        (shape(ONE_F_ONE_B, 4, 8), 3 / 8),
        (shape(GPIPE, 4, 8), 3 / 8),
        (shape(INTERLEAVED, 4, 8, 2), 3 / 16),
        (shape(INTERLEAVED, 4, 8, 4), 3 / 32),
    ):
        share = simulate(one, equal_stages(one, 1.0, 1.5, 0.5), overlap_transfers=True).bubble_share
        assert share == pytest.approx(over_ideal / (1 + over_ideal))


def test_a_timeline_by_hand():
    # Two stages that take 1 forward and 2 backward, sending takes 1/2 and keeps the sender busy.
    # 0: F0 0-1 sends -1.5, F1 1.5-2.5 sends -3, B0 from 5 to 7 and B1 from 8.5 to 10.5.
    # 1: F0 1.5-2.5, B0 2.5-4.5 sends -5, F1 5-6, B1 6-8 sends -8.5.
    one = shape(ONE_F_ONE_B, 2, 2)
    timeline = simulate(one, equal_stages(one, 1.0, 1.0, 1.0, 0.5), overlap_transfers=False)
    assert timeline.makespan_s == 10.5
    assert [(span.begin_s, span.computed_s, span.end_s) for span in timeline.spans[0]] == [
        (0.0, 1.0, 1.5),
        (1.5, 2.5, 3.0),
        (5.0, 7.0, 7.0),
        (8.5, 10.5, 10.5),
    ]
    assert timeline.idle_s(0) == ((3.0, 5.0), (7.0, 8.5))
    assert timeline.idle_s(1) == ((0.0, 1.5), (8.5, 10.5))
    assert timeline.busy_s == (6.0, 6.0)
    assert timeline.sending_s == (1.0, 1.0)
    assert timeline.bubble_share == pytest.approx(1 - 14 / 21)


def test_a_step_that_takes_no_time_has_no_bubble():
    one = shape(ONE_F_ONE_B, 2, 2)
    timeline = simulate(one, equal_stages(one, 0.0, 0.0, 0.0), overlap_transfers=True)
    assert (timeline.makespan_s, timeline.bubble_share, timeline.idle_s(0)) == (0.0, 0.0, ())


@given(data=st.data(), one=shapes)
def test_recurrence_of_many_is_that_of_each(data, one):
    passes = [data.draw(passes_s(3, one.virtual_stages)) for _ in range(3)]
    transfers = data.draw(passes_s(3, one.virtual_stages - 1))
    whole = StageSeconds.of(*passes, transfers)
    for evaluate in (makespan_s, closed_form_s):
        together = evaluate(one, whole, overlap_transfers=True)
        for row in range(3):
            alone = StageSeconds.of(*(each[row] for each in passes), transfers[row])
            assert together[row] == pytest.approx(evaluate(one, alone, overlap_transfers=True), rel=1e-12, abs=1e-12)


def test_refused_shapes_and_wrong_seconds_are_errors():
    good = shape(ONE_F_ONE_B, 2, 2)
    bad, seconds = shape(DUALPIPE, 3, 6), equal_stages(shape(ONE_F_ONE_B, 3, 2), 1.0, 1.0, 1.0)
    for evaluate in (simulate, makespan_s, closed_form_s):
        with pytest.raises(ValueError, match=r"schedule: dualpipe needs an even number of stages; found 3"):
            evaluate(bad, seconds, overlap_transfers=True)
        with pytest.raises(ValueError, match=r"forward_s: found shape \(3,\), the last axis needs 2: 2 stages x 1 v"):
            evaluate(good, seconds, overlap_transfers=True)


def test_one_pipeline_is_simulated_at_a_time():
    one = shape(ONE_F_ONE_B, 2, 2)
    two = StageSeconds.of(*(np.ones((2, 2)) for _ in range(3)))
    with pytest.raises(ValueError, match=r"forward_s: found shape \(2, 2\); one pipeline is simulated at a time"):
        simulate(one, two, overlap_transfers=True)


@pytest.mark.parametrize(
    ("passes", "more", "text"),
    [
        (([1.0, -1.0], [1.0, 1.0], [1.0, 1.0]), {}, r"forward_s: found -1\.0; seconds must be finite and not negative"),
        (([1.0, 1.0], [1.0, np.nan], [1.0, 1.0]), {}, r"backward_input_s: found nan"),
        (([1.0, 1.0], [1.0, 1.0], [1.0]), {}, r"backward_weight_s: found shape \(1,\), forward_s has \(2,\)"),
        (([1.0, 1.0], [1.0, 1.0], [1.0, 1.0]), {"transfer_s": -0.5}, r"transfer_s: found -0\.5"),
        (
            ([1.0, 1.0], [1.0, 1.0], [1.0, 1.0]),
            {"overlapped_s": [3.0, 1.0]},
            r"overlapped_s: found 1\.0; .* 2\.0 s, .* 3\.0 s",
        ),
    ],
)
def test_impossible_seconds_are_errors(passes, more, text):
    with pytest.raises(ValueError, match=text):
        StageSeconds.of(*passes, **more)
