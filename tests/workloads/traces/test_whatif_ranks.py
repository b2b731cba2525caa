"""What if there were other ranks, or in another order? Groups and messages must still fit together on all of them."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whatif_helpers import GPT, after, job, plain_job, ring_step, step_of

from archplace.arch_configs.errors import ConfigError
from archplace.workloads import ContextKind
from archplace.workloads.traces import Attribute, AttributeKind, Metadata, Node, NodeKind, Trace, statistics_of
from archplace.workloads.traces.whatif import Axis, Ranks, Renumber, disagreements, job_of, read_layout

SMALL = replace(GPT, n_layers=1)
SHARED = {
    "alone": {},
    "tensor": {"tensor": 2},
    "sequence and context": {"tensor": 2, "sequence": True, "context": 2, "context_kind": ContextKind.ALL_GATHER},
}


@cache
def of(name, data):
    return job(ring_step(model=SMALL, data=data) if name == "ring" else step_of(SMALL, data=data, **SHARED[name]))


def is_sound(found):
    """All ranks' traces fit together: no cycles, one order of collectives in a group, each send with its receive."""
    again = job_of(
        {rank: Trace(metadata=Metadata(), nodes=tuple(trace.nodes())) for rank, trace in found.traces.items()},
        groups=found.groups,
        n_ranks=found.n_ranks,
    )
    ends = {NodeKind.SEND: Counter(), NodeKind.RECEIVE: Counter()}
    for rank, trace in again.traces.items():
        statistics_of(trace.nodes())  # refuses cycles and unknown parents
        for node in trace.nodes():
            if node.kind is NodeKind.COLLECTIVE:
                members = again.members(node.value("pg_name"))
                assert rank in members
                assert node.value("pg_size") == len(members) > 1
            elif node.kind in ends:
                assert rank == node.value("comm_src" if node.kind is NodeKind.SEND else "comm_dst")
                ends[node.kind][tuple(node.value(name) for name in ("comm_src", "comm_dst", "comm_tag"))] += 1
    return disagreements(again) == [] and ends[NodeKind.SEND] == ends[NodeKind.RECEIVE]


@settings(deadline=None, max_examples=12)
@given(st.sampled_from([*SHARED, "ring"]), st.sampled_from([2, 3, 4]), st.integers(2, 6))
def test_other_replicas_are_the_other_job(name, before, now):
    """Each rank's trace is that of the job with so many replicas; groups may have other names."""
    small, expected = of(name, before), of(name, now)
    found = after(small, Ranks(count=expected.n_ranks))
    assert found.n_ranks == expected.n_ranks
    assert plain_job(found) == plain_job(expected)
    assert sorted(found.groups.values()) == sorted(expected.groups.values())
    assert is_sound(found)


@pytest.mark.parametrize("name", ["alone", "tensor"])
def test_one_replica_left_reduces_nothing(name):
    """Collectives of one rank go, and who waited for them waits for what they waited for."""
    expected = of(name, 1)
    found = after(of(name, 2), Ranks(count=expected.n_ranks))
    assert is_sound(found)
    numbered = {rank: without_ids(trace.nodes()) for rank, trace in found.traces.items()}
    assert numbered == {rank: without_ids(trace.nodes()) for rank, trace in expected.traces.items()}


def without_ids(nodes):
    """Names, values and the places of parents: ids have gaps where nodes have gone."""
    nodes = list(nodes)
    places = {node.id: place for place, node in enumerate(nodes)}
    drop = ("pg_name",)
    return [
        (
            node.name,
            {name: value for name, value in node.values().items() if name not in drop},
            sorted(places[one] for one in node.data_parents),
            sorted(places[one] for one in node.control_parents),
        )
        for node in nodes
    ]


def test_parts_of_a_gathered_whole_shrink_and_wholes_stay():
    """An all-gather's payload is one member's part."""
    sizes = {"all-gather": 2, "gather": 3, "all-reduce": 0, "reduce-scatter": 7, "all-to-all": 6, "broadcast": 5}
    nodes = tuple(
        Node.build(
            id=number,
            kind=NodeKind.COLLECTIVE,
            name=name,
            attributes=[
                Attribute.of("comm_type", kind),
                Attribute.of("comm_size", 1200),
                Attribute.of("pg_name", "7"),
                Attribute.of("scaling", "comm_size = 1200 hidden"),
            ],
        )
        for number, (name, kind) in enumerate(sizes.items())
    )
    before = job_of({rank: Trace(metadata=Metadata(), nodes=nodes) for rank in range(2)}, groups={"7": (0, 1)})
    found = after(before, Ranks(count=6))
    assert found.groups == {"7": (0, 1, 2, 3, 4, 5)}
    for trace in found.traces.values():
        payloads = {node.name: (node.value("comm_size"), node.value("scaling")) for node in trace.nodes()}
        part, whole = (400, "comm_size = 400 hidden"), (1200, "comm_size = 1200 hidden")
        assert payloads == {name: part if "gather" in name else whole for name in sizes}


def test_one_replica_s_traces_are_enough():
    """Copies of it are written; the groups of others must be known."""
    step = step_of(SMALL, tensor=2, data=2)
    before = job_of({rank: step.trace(rank) for rank in (0, 1)})
    assert before.n_ranks == 4
    found = after(before, Ranks(count=8))
    assert plain_job(found) == plain_job(of("tensor", 4))


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Ranks(count=7), "--ranks: found 7; 4 ranks are 2 replicas of 2: needs a multiple of 2"),
        (Ranks(count=1), "needs a multiple of 2"),
        (Ranks(count=2**30), "at most 1,048,576"),
        (Ranks(count=8, axis=Axis(4, 1)), "group 1 of ranks 0, 1 is neither inside a replica nor among all"),
        (Ranks(count=8, axis=Axis(3, 1)), "degree 3 at distance 1: they do not divide the 4 ranks"),
    ],
)
def test_ranks_that_cannot_be(step, text):
    with pytest.raises(ConfigError, match=text):
        after(of("tensor", 2), step)


def test_messages_between_replicas_are_no_replicas():
    with pytest.raises(ConfigError, match="rank 0 exchanges messages with rank 1 of another replica"):
        after(of("ring", 1), Ranks(count=4, axis=Axis(2, 1)))


def test_one_replica_has_nothing_that_reduces():
    with pytest.raises(ConfigError, match="a job of 2 ranks that is one replica"):
        after(of("ring", 1), Ranks(count=4))


def test_a_group_that_shares_tensors_is_not_one_of_replicas():
    """One group of all ranks could be either; the traces say which."""
    with pytest.raises(ConfigError, match="a job of 2 ranks that is one replica"):
        after(of("tensor", 1), Ranks(count=4))
    assert after(of("alone", 2), Ranks(count=4)).n_ranks == 4
    unsaid = of("tensor", 1)
    unsaid = replace(
        unsaid, traces={rank: replace(trace, metadata=Metadata()) for rank, trace in unsaid.traces.items()}
    )
    assert after(unsaid, Ranks(count=4)).n_ranks == 4


def test_renumbered_ranks_are_not_told_by_widths():
    """Behind another layout replicas stand next to each other: what widths say of distances is no longer so."""
    job = of("tensor", 2)
    note = Attribute.of("what_if", ('{"step": "layout"}',), AttributeKind.STRINGS)
    turned = after(job, Renumber(axes=(("tensor", 2), ("data", 2)), to=("data", "tensor")))
    noted = {
        rank: replace(trace, metadata=replace(trace.metadata, attributes=(*trace.metadata.attributes, note)))
        for rank, trace in turned.traces.items()
    }
    found = after(replace(turned, traces=noted), Ranks(count=8))
    assert (found.n_ranks, is_sound(found)) == (8, True)


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([("tensor", 2), ("tensor", 3), ("ring", 3)]), st.booleans())
def test_a_layout_there_and_back(drawn, swapped):
    before = of(*drawn)
    axes = (("inner", 2), ("outer", before.n_ranks // 2))
    order = ("outer", "inner") if swapped else ("inner", "outer")
    there = Renumber(axes=axes, to=order)
    found = after(before, there)
    assert is_sound(found)
    sizes = dict(axes)
    back = Renumber(axes=tuple((name, sizes[name]) for name in order), to=("inner", "outer"))
    again = after(found, back)
    assert again.groups == before.groups
    assert plain_job(again) == plain_job(before)
    if not swapped:
        assert plain_job(found) == plain_job(before)


def test_a_layout_by_hand():
    """Six ranks, pairs along tensor: rank t + 2·d becomes d + 3·t."""
    found = after(of("tensor", 3), read_layout("tensor2,data3=data,tensor"))
    assert found.groups["1"] == (0, 3)
    assert set(found.groups.values()) == {(0, 3), (1, 4), (2, 5), (0, 1, 2), (3, 4, 5)}


def test_what_nodes_say_of_their_group_follows():
    attributes = {
        "comm_type": 0,
        "comm_size": 4,
        "comm_group": 3,
        "pg_first_rank": 0,
        "pg_rank_stride": 1,
        "pg_size": 2,
    }
    node = Node.build(
        id=0, kind=NodeKind.COLLECTIVE, attributes=[Attribute.of(name, value) for name, value in attributes.items()]
    )
    other = Node.build(
        id=0,
        kind=NodeKind.COLLECTIVE,
        attributes=[
            Attribute.of(name, value) for name, value in (attributes | {"comm_group": 4, "pg_first_rank": 2}).items()
        ],
    )
    traces = {rank: Trace(metadata=Metadata(), nodes=(node if rank < 2 else other,)) for rank in range(4)}
    before = job_of(traces)
    assert before.groups == {"3": (0, 1), "4": (2, 3)}
    found = after(before, read_layout("a2,b2=b,a"))
    values = next(found.traces[2].nodes()).values()  # rank 1 = (a 1, b 0) is now called 2
    assert values == attributes | {"pg_rank_stride": 2}
    assert next(found.traces[1].nodes()).value("pg_first_rank") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor,data4=data,tensor", "expected axes with their degrees"),
        ("tensor8,data4", "expected the new order behind '='"),
        ("tensor8,data4=data", "each stands once, before and after"),
        ("a2,a2=a,a", "each stands once, before and after"),
        ("a0=a", "degrees are at least 1"),
    ],
)
def test_layouts_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        read_layout(text)


def test_a_layout_of_other_ranks():
    with pytest.raises(ConfigError, match="--layout: tensor 8 x data 4 are 32 ranks, and the job has 2"):
        after(of("alone", 2), read_layout("tensor8,data4=data,tensor"))
