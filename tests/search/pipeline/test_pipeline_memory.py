"""What devices hold follows from their order, and is what the papers say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_helpers import SHAPES, equal_stages, shapes

from archplace.search.pipeline import OperationKind, PipelineSchedule, device_order, in_flight
from archplace.search.pipeline.simulation import simulate

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, DUALPIPE = PipelineSchedule


def held(one, device):
    return in_flight(one.schedule, one.stages, one.virtual, one.microbatches, device)


@given(one=shapes)
def test_what_the_simulation_holds(one):
    timeline = simulate(one, equal_stages(one, 1.0, 1.0, 1.0), overlap_transfers=True)
    for device, found in enumerate(timeline.held):
        expected = held(one, device)
        assert found.activations == expected.activations * one.virtual + expected.mirrored
        assert found.weight_inputs == expected.weight_inputs


@given(one=shapes, share=st.floats(0, 1))
def test_no_moment_holds_more_whatever_share_weight_gradients_need(one, share):
    for device in range(one.stages):
        most = activations = waiting = 0
        for slot in device_order(one, device):
            activations += sum(each.kind is OperationKind.FORWARD for each in slot)
            most = max(most, activations + share * waiting)
            for each in slot:
                ended = each.kind in (OperationKind.BACKWARD, OperationKind.BACKWARD_INPUT)
                activations -= ended
                waiting += (each.kind is OperationKind.BACKWARD_INPUT) - (each.kind is OperationKind.BACKWARD_WEIGHT)
            most = max(most, activations + share * waiting)
        expected = held(one, device)
        whole = expected.activations * one.virtual + expected.mirrored + share * expected.weight_inputs
        assert most == pytest.approx(whole)
        assert activations == waiting == 0


@given(one=shapes)
def test_earlier_devices_hold_at_least_as_much(one):
    found = held(one, np.arange(one.stages))
    total = found.activations + found.mirrored + found.weight_inputs
    assert (np.diff(total) <= 0).all()


def test_interleaving_costs_what_korthikanti_says():
    # arXiv:2205.05198, section 4.2.3: 1 + (p - 1) / (p v) times the first stage's activations of 1F1B, p microbatches.
    p, v = 8, 3
    found = in_flight(INTERLEAVED, p, v, 4 * p, 0).activations
    assert found == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_zb_h1_never_holds_more_than_1f1b_on_its_first_stage():
    # arXiv:2401.10241, section 2.1.
    found = in_flight(ZB_H1, 8, 1, 32, np.arange(8))
    assert (found.activations + found.weight_inputs <= in_flight(ONE_F_ONE_B, 8, 1, 32, 0).activations).all()
    assert found.activations[0] == 8
    assert found.weight_inputs.tolist() == list(range(8))


def test_dualpipe_holds_one_microbatch_more_than_stages():
    # arXiv:2412.19437, table 2.
    found = in_flight(DUALPIPE, 8, 1, 20, np.arange(8))
    assert (found.activations + found.mirrored == 9).all()


def test_gpipe_holds_all_microbatches():
    assert in_flight(GPIPE, 4, 1, np.array([1, 5, 32]), 2).activations.tolist() == [1, 5, 32]


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_arrays_are_many_pipelines_at_once(schedule):
    accepted = [each for each in SHAPES if each.schedule is schedule]
    counts = np.array([(each.stages, each.virtual, each.microbatches) for each in accepted]).T
    found = in_flight(schedule, *counts, 0)
    for row, one in enumerate(accepted):
        for name in ("activations", "mirrored", "weight_inputs"):
            assert getattr(found, name)[row] == getattr(held(one, 0), name)
