"""Schedules refuse what they cannot run, with numbers, and say what they copy and send."""

import pytest
from pipeline_helpers import shape

from archplace.search.pipeline import PipelineSchedule, messages_sent, parameter_copies, refusal

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, DUALPIPE = PipelineSchedule


@pytest.mark.parametrize(
    ("one", "n_layers", "reason"),
    [
        (
            shape(ONE_F_ONE_B, 0, 4),
            None,
            "1f1b needs at least 1 stage, 1 virtual stage per device and 1 microbatch; found 0, 1 and 4",
        ),
        (shape(ONE_F_ONE_B, 8, 4), 6, "8 stages need at least as many layers; found 6; use fewer stages"),
        (
            shape(INTERLEAVED, 4, 8, 3),
            11,
            "4 stages x 3 virtual stages = 12 parts need at least as many layers; found 11; use fewer stages",
        ),
        (
            shape(INTERLEAVED, 4, 6, 2),
            64,
            "interleaved needs microbatches divisible by stages; found 6 microbatches on 4 stages",
        ),
        (
            shape(INTERLEAVED, 4, 8, 1),
            None,
            "interleaved needs at least 2 virtual stages per device; found 1; use 1f1b or virtual >= 2",
        ),
        (shape(INTERLEAVED, 1, 8, 2), None, "interleaved needs at least 2 stages; found 1; use 1f1b"),
        (
            shape(ZB_H1, 4, 8, 2),
            None,
            "zb-h1 runs one virtual stage per device; found 2; use interleaved or virtual = 1",
        ),
        (shape(DUALPIPE, 5, 10), None, "dualpipe needs an even number of stages; found 5"),
        (shape(DUALPIPE, 4, 9), None, "dualpipe needs an even number of microbatches, half from each end; found 9"),
        (
            shape(DUALPIPE, 4, 6),
            None,
            "dualpipe needs at least 2 microbatches per stage; found 6 microbatches on 4 stages",
        ),
    ],
)
def test_refusals_carry_their_numbers(one, n_layers, reason):
    assert refusal(one, n_layers) == reason


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_what_is_not_refused(schedule):
    virtual = 3 if schedule is INTERLEAVED else 1
    assert refusal(shape(schedule, 4, 8, virtual), 4 * virtual) is None


def test_only_dualpipe_holds_parameters_twice():
    assert {schedule: parameter_copies(schedule) for schedule in PipelineSchedule} == {
        GPIPE: 1,
        ONE_F_ONE_B: 1,
        INTERLEAVED: 1,
        ZB_H1: 1,
        DUALPIPE: 2,
    }


def test_messages():
    # Ends send one way, the others both ways; interleaved chunks also wrap around from the last device to the first.
    assert [messages_sent(shape(ONE_F_ONE_B, 3, 5), device) for device in range(3)] == [5, 10, 5]
    assert [messages_sent(shape(INTERLEAVED, 3, 6, 2), device) for device in range(3)] == [18, 24, 18]
    assert messages_sent(shape(GPIPE, 1, 5), 0) == 0
