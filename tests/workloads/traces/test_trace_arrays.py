"""Graphs of traces as arrays: orders and longest chains are those that networkx finds."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.workloads.traces import Node, NodeKind, TraceArrays
from archplace.workloads.traces._seen import SeenIds


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    edges = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))))
    names = draw(st.permutations(range(count)))
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[a], names[b]) for a, b in edges if a < b)
    return graph, draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))


@given(graphs())
def test_orders_and_longest_chains(drawn):
    graph, durations = drawn
    items = [
        Node.build(
            id=node,
            kind=NodeKind.COMPUTE,
            data_parents=list(graph.predecessors(node)),
            control_parents=list(graph.predecessors(node))[:1],
            duration_micros=durations[node],
        )
        for node in graph
    ]
    arrays = TraceArrays.collect(items)
    assert len(arrays.parents) == graph.number_of_edges()
    order = [int(arrays.ids[place]) for place in arrays.order()]
    assert sorted(order) == sorted(graph)
    assert all(order.index(a) < order.index(b) for a, b in graph.edges)
    assert arrays.longest([1] * len(graph)) == nx.dag_longest_path_length(graph) + 1
    weighted = nx.DiGraph((("in", a), ("out", a), {"w": durations[a]}) for a in graph)
    weighted.add_edges_from((("out", a), ("in", b), {"w": 0}) for a, b in graph.edges)
    assert arrays.longest([durations[node] for node in graph]) == nx.dag_longest_path_length(weighted, weight="w")


def test_no_nodes():
    arrays = TraceArrays.collect([])
    assert arrays.order() == []
    assert arrays.longest([]) == 0


@given(st.lists(st.sets(st.sampled_from([*range(40), 2**64 - 2, 2**64 - 1]), max_size=10), max_size=8))
def test_seen_ids_are_a_set(batches):
    seen, model = SeenIds(), set()
    for batch in batches:
        fresh = sorted(batch - model)
        seen.add(np.array(fresh, dtype=np.uint64))
        model |= batch
        for number in [*range(42), 2**64 - 3, 2**64 - 2, 2**64 - 1]:
            assert (number in seen) == (number in model)
        assert seen.runs == sum(number - 1 not in model for number in model)


def test_parents_that_do_not_exist():
    with pytest.raises(ValueError, match="node 4 has the parent 9, which does not exist"):
        TraceArrays.collect([Node.build(id=4, kind=NodeKind.COMPUTE, data_parents=[9])])
    twice = Node.build(id=4, kind=NodeKind.COMPUTE)
    with pytest.raises(ValueError, match="node id 4 stands twice"):
        TraceArrays.collect([twice, twice])
