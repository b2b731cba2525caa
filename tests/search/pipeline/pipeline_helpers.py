"""Random pipelines for the tests of schedules."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from archplace.search.pipeline import PipelineSchedule, ScheduleShape, StageSeconds, refusal

SHORTEST_S, LONGEST_S = 0.0, 4.0


def shape(schedule, stages, microbatches, virtual=1):
    return ScheduleShape(schedule=schedule, stages=stages, virtual=virtual, microbatches=microbatches)


def all_shapes(most_stages=6, most_microbatches=13, most_virtual=3):
    """Every small pipeline that some schedule accepts."""
    candidates = (
        shape(schedule, stages, microbatches, virtual)
        for schedule in PipelineSchedule
        for virtual in range(1, most_virtual + 1)
        for stages in range(1, most_stages + 1)
        for microbatches in range(1, most_microbatches + 1)
    )
    return [each for each in candidates if refusal(each) is None]


SHAPES = all_shapes()
shapes = st.sampled_from(SHAPES)


def passes_s(*axes):
    # Few distinct values, so that ties and zeros are frequent.
    return arrays(np.float64, axes, elements=st.integers(0, 16).map(lambda quarter: quarter / 4))


def equal_stages(one, forward_s, backward_input_s, backward_weight_s, transfer_s=0.0, gain=0.0):
    """Equal stages; an overlapped pair gains ``gain`` of the most that it can."""
    whole = np.ones(one.virtual_stages)
    shorter = min(forward_s, backward_input_s + backward_weight_s)
    pair = forward_s + backward_input_s + backward_weight_s - gain * shorter
    return StageSeconds.of(
        forward_s * whole,
        backward_input_s * whole,
        backward_weight_s * whole,
        transfer_s,
        pair * whole if one.schedule is PipelineSchedule.DUALPIPE else None,
    )


@st.composite
def pipelines(draw, among=shapes):
    """A shape, and uneven stages on it."""
    one = draw(among)
    n = one.virtual_stages
    forward, backward, weight = (draw(passes_s(n)) for _ in range(3))
    pair = None
    if one.schedule is PipelineSchedule.DUALPIPE and draw(st.booleans()):
        other = (backward + weight)[::-1]
        pair = forward + other - draw(arrays(np.float64, n, elements=st.floats(0, 1))) * np.minimum(forward, other)
    return one, StageSeconds.of(forward, backward, weight, draw(passes_s(n - 1)) / 4, pair)
