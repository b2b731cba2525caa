"""Workloads as traces: all of their work, in the order that the operators' graphs allow, on consistent groups."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from today_helpers import shardings as today_shardings
from today_helpers import today_models
from today_helpers import workload as today_workload
from whatif_helpers import GPT, SCALING, after, job, plain_job, ring_step, step_of
from workload_helpers import sharded_jobs, step_macs

from archplace.workloads import CollectiveKind, LayerSharding, Recompute
from archplace.workloads.job_files import load_job
from archplace.workloads.traces import CollectiveType, NodeKind, load_trace, meaning_of, save_trace, statistics_of
from archplace.workloads.traces.device_groups import DeviceGroups, Reduction
from archplace.workloads.traces.from_workload import StepTrace
from archplace.workloads.traces.whatif import Scale, Size, disagreements, read_assumption, read_laws


@st.composite
def jobs(draw):
    """Any small model, dense or not, under a sharding that it takes."""
    if draw(st.booleans()):
        return draw(sharded_jobs())
    model = draw(today_models())
    workload, sharding = today_workload(model), draw(today_shardings(model))
    return (workload, sharding) if workload.refusal(sharding) is None else (workload, LayerSharding(microbatch=1))


@settings(deadline=None, max_examples=12)
@given(jobs(), st.integers(1, 2))
def test_macs_and_bytes_are_the_workload_s(drawn, microbatches):
    workload, sharding = drawn
    sharding = replace(sharding, microbatch=1, overlap_pieces=1)
    workload = replace(workload, global_batch=2 * 8)
    data = sharding.expert * sharding.expert_tensor  # enough devices for any sharding of experts
    step = StepTrace(workload=workload, sharding=sharding, data=data, microbatches=microbatches)
    expected = workload.step(sharding)
    found = statistics_of(step.nodes())  # refuses cycles
    assert found.flops == 2 * microbatches * step_macs(expected)

    operators = [
        one
        for layer, count in expected.layers
        for _ in range(count * microbatches)
        for one in (*layer.forward, *layer.backward)
    ]
    vector_bytes = sum(one.vector.read_bytes + one.vector.write_bytes for one in operators if one.vector)
    for layer, count in expected.layers:
        work = workload.optimizer_work(layer.parameters)
        vector_bytes += count * (work.read_bytes + work.write_bytes)
    alone = sum(  # products of sole operands, in two bytes, whose result no vector work writes
        2 * (one.gemm.m * one.gemm.k + one.gemm.k * one.gemm.n + one.gemm.m * one.gemm.n)
        for one in operators
        if one.gemm and one.gemm.batch == 1 and not one.vector
    )
    assert found.touched_bytes >= vector_bytes + alone

    exchanged = Counter()
    for one in operators:
        if one.collective and one.collective.kind is not CollectiveKind.POINT_TO_POINT:
            exchanged[one.collective.kind.name.lower()] += one.collective.payload_bytes
    traced = Counter()
    for node in step.nodes():
        if node.kind is NodeKind.COLLECTIVE and node.value("phase") != "optimizer" and "gradients" not in node.name:
            meaning = meaning_of(node)
            parts = node.value("pg_size") if meaning.collective is CollectiveType.ALL_GATHER else 1
            traced[meaning.collective.name.lower()] += meaning.size_bytes * parts
    # An all-gather's payload is the whole, and a part that is no whole byte is rounded up.
    assert traced.keys() == exchanged.keys()
    for kind, size in exchanged.items():
        assert size <= traced[kind] <= size + 16 * len(operators)


def test_a_product_by_hand():
    """Up in the first block's feed-forward part: 32 tokens, 16 wide, times 16 by 64."""
    node = next(node for node in step_of().nodes() if node.value("loops") == (1, 32, 64, 16))
    assert (node.value("layer"), node.value("layer_index"), node.value("phase")) == ("block", 1, "forward")
    assert node.value("num_ops") == 2 * 32 * 64 * 16
    laws = dict(read_laws(node.value("scaling")))
    assert str(laws["num_ops"]) == "65536 batch sequence hidden^2"
    assert str(laws["loops[1]"]) == "32 batch sequence"


def test_reduction_and_optimizer():
    step = step_of(data=4, microbatches=2)
    nodes = list(step.nodes(3))
    reductions = [node for node in nodes if node.name.endswith("dense gradients all_reduce")]
    parameters = sum(layer.parameters for layer in step.layers)
    gradient_bytes = step.workload.parameter_bytes.gradient
    assert sum(node.value("comm_size") for node in reductions) == parameters * gradient_bytes
    assert {node.value("pg_size") for node in reductions} == {4}
    updates = {node.value("layer_index"): node for node in nodes if node.value("phase") == "optimizer"}
    for node in reductions:
        assert list(updates[node.value("layer_index")].data_parents) == [node.id]
    # Without replicas nothing is reduced, and the optimizer waits for the weight gradients of both microbatches.
    alone = list(step_of(microbatches=2).nodes())
    assert not any(node.kind is NodeKind.COLLECTIVE for node in alone)
    by_id = {node.id: node for node in alone}
    for node in alone:
        if node.value("phase") == "optimizer":
            parents = [by_id[one] for one in node.data_parents]
            assert {parent.value("microbatch") for parent in parents} == {0, 1}
            assert {parent.value("layer_index") for parent in parents} == {node.value("layer_index")}


@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.FULL])
def test_what_is_recomputed_runs_twice(recompute):
    kept, dropped = ([*step_of(recompute=kind).nodes()] for kind in (Recompute.NONE, recompute))
    again = [node for node in dropped if node.value("recomputed")]
    step = step_of().workload.step(LayerSharding(microbatch=1))
    block = next(layer for layer, _ in step.layers if layer.name == "block")
    names = block.selective_replay if recompute is Recompute.SELECTIVE else [one.name for one in block.forward]
    in_blocks = [node.name.removeprefix("block.again.") for node in again if node.value("layer") == "block"]
    assert sorted(in_blocks) == sorted(list(names) * GPT.n_layers)
    assert len(dropped) == len(kept) + len(again)


@given(
    st.sampled_from([(1, 1), (2, 1), (4, 2), (2, 2)]),
    st.sampled_from([(1, 1), (2, 1), (2, 2), (8, 1)]),
    st.sampled_from([1, 2, 4, 8]),
)
def test_groups_part_the_ranks(dense, routed, data):
    sharding = LayerSharding(microbatch=1, tensor=dense[0], context=dense[1], expert=routed[0], expert_tensor=routed[1])
    count = dense[0] * dense[1] * data
    if count % (routed[0] * routed[1]):
        with pytest.raises(ValueError, match="ranks do not divide"):
            DeviceGroups(sharding=sharding, data=data, experts=True)
        return
    groups = DeviceGroups(sharding=sharding, data=data, experts=True)
    names = groups.named()
    assert len(set(names.values())) == len(names)
    uses = {members for use in Reduction for rank in range(count) if len(members := groups.members(use, rank)) > 1}
    assert uses <= set(names.values())
    for use, size in ((Reduction.DENSE, dense[1] * data), (Reduction.EXPERT, count // (routed[0] * routed[1]))):
        found = {groups.members(use, rank) for rank in range(count)}
        assert sorted(rank for members in found for rank in members) == list(range(count))
        assert {len(members) for members in found} == {size}


def test_members_call_the_same_collectives():
    step = step_of(tensor=2, sequence=True, data=2, microbatches=2)
    found = job(step)
    assert found.n_ranks == 4
    assert disagreements(found) == []
    for rank, trace in found.traces.items():
        for node in trace.nodes():
            if node.kind is NodeKind.COLLECTIVE:
                assert rank in found.groups[node.value("pg_name")]
                assert len(found.groups[node.value("pg_name")]) == node.value("pg_size")


def test_every_send_has_its_receive():
    found = job(ring_step(data=2))
    ends = {NodeKind.SEND: Counter(), NodeKind.RECEIVE: Counter()}
    for rank, trace in found.traces.items():
        for node in trace.nodes():
            if node.kind in ends:
                assert rank == node.value("comm_src" if node.kind is NodeKind.SEND else "comm_dst")
                key = tuple(node.value(name) for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                ends[node.kind][key] += 1
    assert ends[NodeKind.SEND]
    assert ends[NodeKind.SEND] == ends[NodeKind.RECEIVE]
    assert set(ends[NodeKind.SEND].values()) == {1}


def test_a_traced_workload_is_one_too():
    """A transformer's trace, read as a workload and written as one step of two sequences at a time."""
    traced = load_job(Path(__file__).parent / "data" / "transformer_host.json.gz")
    small, large = (
        StepTrace(workload=traced.resized(global_batch=8), sharding=LayerSharding(microbatch=size)) for size in (1, 2)
    )
    found = statistics_of(small.nodes())
    assert found.flops == 2 * step_macs(traced.step(LayerSharding(microbatch=1))) > 0
    # A lookup reads as many rows as there are tokens, or as the table has: no polynomial, and so no law.
    steps = read_assumption("other: batch"), Scale(factors=((Size.BATCH, Fraction(2)),))
    assert plain_job(after(job(small), *steps), without=[SCALING]) == plain_job(job(large), without=[SCALING])


def test_what_the_metadata_say(tmp_path):
    step = step_of(tensor=2, data=2)
    path = tmp_path / "a.et"
    save_trace(step.trace(3), path)
    found = load_trace(path)
    assert found == step.trace(3)
    assert {name: found.metadata.value(name) for name in ("rank", "world_size", "tensor", "data", "model")} == {
        "rank": 3,
        "world_size": 4,
        "tensor": 2,
        "data": 2,
        "model": "gpt",
    }
    assert found.metadata.value("process_groups") == '{"1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}'


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"microbatches": 0}, "microbatches is 0, must be at least 1"),
        ({"microbatches": 8, "data": 16}, "are 128 sequences; w has 64 per step"),
        ({"data": 0}, "data parallel degree 0: must be at least 1"),
        ({"tensor": 3}, "3 does not divide the 4 heads"),
        ({"expert": 3}, "expert"),
    ],
)
def test_what_cannot_be_is_refused(given, text):
    with pytest.raises(ValueError, match=text):
        step_of(**given)


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_there_is_not(rank):
    with pytest.raises(ValueError, match=f"rank {rank}: there are ranks 0 to 1"):
        step_of(data=2).nodes(rank)
