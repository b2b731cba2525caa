"""Every device runs every operation of its stages once, in an order in which no device waits for ever."""

import pytest
from pipeline_helpers import SHAPES, shape

from archplace.search.pipeline import OperationKind, PipelineSchedule, device_order

F, B = OperationKind.FORWARD, OperationKind.BACKWARD
BI, BW = OperationKind.BACKWARD_INPUT, OperationKind.BACKWARD_WEIGHT
LETTERS = {F: "F", B: "B", BI: "b", BW: "w"}


def text(one, device):
    """The order as in the papers' figures: F forward, B whole backward, b input gradients, w weight gradients."""
    return " ".join(
        "&".join(f"{LETTERS[each.kind]}{each.microbatch}" for each in slot) for slot in device_order(one, device)
    )


def stages_on(one, device):
    if one.schedule is PipelineSchedule.DUALPIPE:
        return {device, one.stages - 1 - device}
    return {chunk * one.stages + device for chunk in range(one.virtual)}


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_every_operation_runs_once_in_a_possible_order(schedule):
    for one in (each for each in SHAPES if each.schedule is schedule):
        run = {}
        for device in range(one.stages):
            for position, slot in enumerate(device_order(one, device)):
                for each in slot:
                    assert each.stage in stages_on(one, device)
                    keys = {B: (BI, BW)}.get(each.kind, (each.kind,))
                    for kind in keys:
                        key = kind, each.stage, each.microbatch
                        assert key not in run, f"{key} of {one} runs twice"
                        run[key] = device, position
        wanted = {
            (kind, stage, microbatch)
            for kind in (F, BI, BW)
            for stage in range(one.virtual_stages)
            for microbatch in range(one.microbatches)
        }
        assert set(run) == wanted
        for stage in range(one.virtual_stages):
            for microbatch in range(one.microbatches):
                forward, inputs, weights = (run[kind, stage, microbatch] for kind in (F, BI, BW))
                assert forward[0] == inputs[0] == weights[0], "activations never move"
                assert forward[1] < inputs[1] <= weights[1]


def test_gpipe_runs_all_forward_passes_first():
    one = shape(PipelineSchedule.GPIPE, 2, 3)
    assert [text(one, device) for device in range(2)] == ["F0 F1 F2 B2 B1 B0"] * 2


def test_1f1b_alternates_after_a_warm_up_that_shrinks_along_the_pipeline():
    # Narayanan et al. 2021 (arXiv:2104.04473), figure 4: 3, 2, 1 and 0 passes before forward and backward alternate.
    one = shape(PipelineSchedule.ONE_F_ONE_B, 4, 6)
    assert [text(one, device) for device in range(4)] == [
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
    ]


def test_interleaved_goes_through_the_chunks_in_groups_of_as_many_microbatches_as_stages():
    # Narayanan et al. 2021, figure 4: the first device of 4 warms up with 2 * 3 + 4 passes.
    one = shape(PipelineSchedule.INTERLEAVED, 4, 8, virtual=2)
    order = [(each.kind, each.stage, each.microbatch) for (each,) in device_order(one, 0)]
    warm_up = [(F, 0, k) for k in range(4)] + [(F, 4, k) for k in range(4)] + [(F, 0, k) for k in (4, 5)]
    assert order[:10] == warm_up
    assert order[10:14] == [(F, 0, 6), (B, 4, 0), (F, 0, 7), (B, 4, 1)]
    last = [(each.kind, each.stage, each.microbatch) for (each,) in device_order(one, 3)]
    assert last[:6] == [(F, 3, 0), (F, 3, 1), (F, 3, 2), (F, 3, 3), (F, 7, 0), (B, 7, 0)]


def test_zb_h1_puts_off_more_weight_gradients_the_later_the_stage():
    # Qi et al. 2023, figure 3: the first stage puts none off, the fourth three, which it runs at the very end.
    one = shape(PipelineSchedule.ZB_H1, 4, 6)
    assert text(one, 0) == "F0 F1 F2 F3 b0 w0 F4 b1 w1 F5 b2 w2 b3 w3 b4 w4 b5 w5"
    assert text(one, 1) == "F0 F1 F2 b0 F3 b1 w0 F4 b2 w1 F5 b3 w2 b4 w3 b5 w4 w5"
    assert text(one, 3) == "F0 b0 F1 b1 F2 b2 F3 b3 w0 F4 b4 w1 F5 b5 w2 w3 w4 w5"


def test_dualpipe_overlaps_opposite_directions():
    # Two stages, four microbatches: 0 and 1 enter at device 0, 2 and 3 at device 1.
    one = shape(PipelineSchedule.DUALPIPE, 2, 4)
    assert text(one, 0) == "F0 F2 F1 B2 F3&B0 B3 b1 w1"
    assert text(one, 1) == "F2 F0 F3 B0 F1&B2 B1 b3 w3"


def test_dualpipe_pairs_only_opposite_directions():
    for one in (each for each in SHAPES if each.schedule is PipelineSchedule.DUALPIPE):
        for device in range(one.stages):
            pairs = [slot for slot in device_order(one, device) if len(slot) == 2]
            assert pairs
            for forward, backward in pairs:
                assert (forward.kind, backward.kind) == (F, B)
                assert forward.stage + backward.stage == one.stages - 1


def test_a_device_outside_the_pipeline_is_an_error():
    with pytest.raises(ValueError, match=r"device: found 4, the pipeline has devices 0 to 3"):
        device_order(shape(PipelineSchedule.GPIPE, 4, 1), 4)
