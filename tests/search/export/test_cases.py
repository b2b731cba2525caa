"""Expanded placements: what every case must keep to run at the first try, and that it takes what was predicted."""

import itertools

import numpy as np
import pytest
from export_helpers import PLACEMENTS, case_of

from archplace.search.export.one_port import OnePort
from archplace.search.export.passes import Granularity
from archplace.search.export.replay import replay
from archplace.workloads.traces import CollectiveType, NodeKind

SIMULATED = {
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
}

SLOW = ("slow network", "parameters on a slow network")


@pytest.fixture(scope="module", name="folder")
def one_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("export")


@pytest.fixture(params=PLACEMENTS, name="placement")
def one_of_many(request):
    return request.param


@pytest.mark.parametrize("granularity", Granularity)
def test_the_replay_takes_what_was_predicted_to_one_percent(folder, placement, granularity):
    case = case_of(folder, placement, granularity)
    # Where most of a step is communication, what does not fit between a layer's exchanges counts.
    assert replay(case).step_ns / 1e9 == pytest.approx(
        OnePort(case.placed).step_s, rel=0.05 if placement in SLOW else 0.01
    )


def test_one_exchange_at_a_time_takes_no_less(folder, placement):
    placed = case_of(folder, placement).placed
    one_port = OnePort(placed)
    assert one_port.step_s >= placed.evaluation.simulated_step_s * (1 - 1e-9)
    assert sum(one_port.parts_s().values()) == pytest.approx(one_port.step_s, rel=1e-12)
    # Only a network that is slow beside the computing makes a difference.
    assert (one_port.step_s > 1.005 * placed.evaluation.simulated_step_s) == (placement in SLOW)


def test_one_device_stands_for_its_stage_where_all_of_them_do_the_same(folder, placement):
    case = case_of(folder, placement)
    some, every = replay(case), replay(case, whole=True)
    # In a torus the ways back of rings differ.
    assert len(some.actors) == (case.n_npus if placement == "torus" else case.placed.shape.stages)
    np.testing.assert_array_equal(some.finish_ns, every.finish_ns)


def test_operators_compute_together_what_layers_do(folder, placement):
    placed = case_of(folder, placement).placed
    layers, operators = (case_of(folder, placement, each) for each in (Granularity.LAYER, Granularity.OPERATOR))
    assert case_of(folder, placement).n_nodes < layers.n_nodes < operators.n_nodes
    for stage in range(placed.shape.stages):
        totals = [_computing_ns(case.programs[stage]) for case in (layers, operators)]
        assert totals[0] == pytest.approx(totals[1], rel=1e-9)


def _computing_ns(program):
    return sum(step.nanoseconds for step in program if step.kind is NodeKind.COMPUTE and step.part != "waiting")


def test_programs_keep_what_the_simulator_asks_of_nodes(folder, placement):
    case = case_of(folder, placement)
    for program in case.programs:
        assert any(not step.after for step in program)
        for place, step in enumerate(program):
            assert all(0 <= before < place for before in step.after)
            if step.kind is NodeKind.COMPUTE:
                assert step.nanoseconds > 0
            else:
                assert step.size_bytes > 0
            if step.kind is NodeKind.COLLECTIVE:
                assert step.collective in SIMULATED
                assert step.team is not None
            if step.kind in (NodeKind.SEND, NodeKind.RECEIVE):
                assert 0 <= step.tag < 500_000_000


def test_groups_have_members_inside_one_dimension_and_one_collective_order(folder, placement):
    case = case_of(folder, placement)
    sizes = [dimension.size for dimension in case.communicators.numbering.dimensions]
    assert np.prod(sizes) == case.n_npus
    issued = {}
    for npu in range(case.n_npus):
        for step in case.program(npu):
            if step.team is not None:
                group = case.group(npu, step.team)
                assert npu in group.members
                issued.setdefault(group.number, {}).setdefault(npu, []).append((step.collective, step.size_bytes))
    groups = list(case.process_groups())
    assert len({group.number for group in groups}) == len(groups)
    for group in groups:
        assert group.number >= 1
        assert len(set(group.members)) == len(group.members) >= 2
        assert set(issued[group.number]) == set(group.members)
        orders = list(issued[group.number].values())
        assert all(order == orders[0] for order in orders)
        places = np.array(np.unravel_index(group.members, sizes[::-1]))
        assert (places != places[:, :1]).any(axis=1).sum() == 1


def test_every_message_has_one_receiver(folder, placement):
    case = case_of(folder, placement)
    ends = {NodeKind.SEND: [], NodeKind.RECEIVE: []}
    for npu in range(case.n_npus):
        for step in case.program(npu):
            if step.peer is not None:
                other = case.peer(npu, step.peer)
                assert other != npu
                pair = (npu, other) if step.kind is NodeKind.SEND else (other, npu)
                ends[step.kind].append((*pair, step.tag, step.size_bytes))
    assert sorted(ends[NodeKind.SEND]) == sorted(ends[NodeKind.RECEIVE])
    assert len(set(ends[NodeKind.SEND])) == len(ends[NodeKind.SEND])


def test_collectives_of_a_device_follow_one_another(folder, placement):
    for program in case_of(folder, placement).programs:
        places = [place for place, step in enumerate(program) if step.kind is NodeKind.COLLECTIVE]
        for before, place in itertools.pairwise(places):
            assert before in program[place].after
