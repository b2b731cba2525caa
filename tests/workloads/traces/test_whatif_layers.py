"""What if the model had other layers? Then its trace is that of the deeper or shallower model."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whatif_helpers import GPT, after, job, plain_job, ring_step, step_of

from archplace.arch_configs.errors import ConfigError
from archplace.workloads import Recompute
from archplace.workloads.traces import Attribute, Metadata, Node, NodeKind, Trace, statistics_of
from archplace.workloads.traces.whatif import Layers, job_of

SHARDED = [
    {},
    {"tensor": 2, "data": 2, "microbatches": 2},
    {"recompute": Recompute.FULL, "microbatches": 3},
    {"recompute": Recompute.SELECTIVE},
]


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 6), st.integers(1, 7), st.sampled_from(SHARDED))
def test_other_layers_are_the_other_model_s(before, count, fields):
    """Node by node, dependencies and ids included."""
    found = after(job(step_of(replace(GPT, n_layers=before), **fields)), Layers(count=count))
    expected = job(step_of(replace(GPT, n_layers=count), **fields))
    assert plain_job(found) == plain_job(expected)
    for trace in found.traces.values():
        statistics_of(trace.nodes())  # refuses cycles and unknown parents


@settings(deadline=None, max_examples=8)
@given(st.integers(2, 5), st.integers(2, 5), st.integers(1, 5))
def test_only_the_last_count_matters(first, second, third):
    before = job(step_of(replace(GPT, n_layers=first)))
    assert plain_job(after(before, Layers(count=second), Layers(count=third))) == plain_job(
        after(before, Layers(count=third))
    )


def test_tags_of_messages_are_not_told_apart():
    """Ring steps of a copied layer have the tags of its model: all else is the other model's."""
    found = after(job(ring_step()), Layers(count=5))
    expected = job(ring_step(model=replace(GPT, n_layers=5)))
    assert plain_job(found, without=("comm_tag",)) == plain_job(expected, without=("comm_tag",))


def layered(*nodes):
    """A trace of nodes (kind of layer, its index, parents)."""
    found = []
    for number, (kind, index, parents) in enumerate(nodes):
        values = {"layer": kind, "layer_index": index} if kind else {}
        attributes = [Attribute.of(name, value) for name, value in values.items()]
        found.append(
            Node.build(id=number, kind=NodeKind.COMPUTE, name="n", data_parents=parents, attributes=attributes)
        )
    return job_of({0: Trace(metadata=Metadata(), nodes=tuple(found))})


def test_who_reads_the_last_layer_reads_the_new_last():
    before = layered((None, 0, []), ("a", 0, [0]), ("a", 1, [1]), (None, 0, [2]), (None, 0, [1, 2]))
    found = list(after(before, Layers(count=4)).traces[0].nodes())
    assert [list(node.data_parents) for node in found] == [[], [0], [1], [2], [3], [4], [1, 2, 3, 4]]
    assert [node.value("layer_index") for node in found] == [None, 0, 1, 2, 3, None, None]


@pytest.mark.parametrize(
    ("nodes", "count", "message"),
    [
        ([(None, 0, [])], 2, "no node says which layer it belongs to"),
        ([("a", 0, [])], 2, "there is one layer 'a', which does not show how"),
        ([("a", 0, []), ("a", 2, [])], 3, r"not next to each other: \[0, 2\]"),
        ([("a", 0, []), ("a", 1, []), ("a", 1, [])], 3, "layer 1 has 2 nodes, and the first of its kind 1"),
        ([("a", 0, []), ("a", 1, [0]), ("a", 2, [0])], 4, "node 2 waits for node 0, 2 layers away"),
        ([("a", 0, []), ("a", 1, [0]), ("a", 2, [1]), (None, 0, [1])], 4, r"node 3 .* waits for layers in the middle"),
    ],
)
def test_layers_that_cannot_be_repeated(nodes, count, message):
    with pytest.raises(ConfigError, match=rf"rank\.0\.et: --layers: .*{message}"):
        after(layered(*nodes), Layers(count=count))


def test_a_kind_that_there_is_not():
    with pytest.raises(ConfigError, match=r"no layer is a 'b'; there are: a \(2\)"):
        after(layered(("a", 0, []), ("a", 1, [0])), Layers(count=3, kind="b"))
    with pytest.raises(ValueError, match="1 to 100,000 layers of a kind, found 0"):
        Layers(count=0)
