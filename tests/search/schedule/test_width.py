"""The widest antichain, against the matching of a library, and orders of operators against its sort."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs.errors import ConfigError
from archplace.search.schedule import ScheduleGraph
from archplace.search.schedule._part import antichain_width


@st.composite
def orders(draw):
    """Some operators, and the pairs of them of which one directly precedes the other; numbers in any order."""
    count = draw(st.integers(0, 12))
    number = draw(st.permutations(range(count)))
    pairs = [(number[i], number[j]) for i in range(count) for j in range(i + 1, count)]
    return count, draw(st.lists(st.sampled_from(pairs), max_size=30)) if pairs else []


def library(count, edges):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    return graph


@given(orders(), st.data())
def test_width_is_what_a_maximum_matching_leaves(order, data):
    count, edges = order
    before = np.zeros((count, count), dtype=np.bool_)
    for i, j in nx.transitive_closure_dag(library(count, edges)).edges:
        before[i, j] = True
    members = data.draw(st.lists(st.sampled_from(range(count)), unique=True) if count else st.just([]))
    halves = nx.Graph()
    halves.add_nodes_from(("from", i) for i in members)
    halves.add_nodes_from(("to", i) for i in members)
    halves.add_edges_from((("from", i), ("to", j)) for i in members for j in members if before[i, j])
    top = [("from", i) for i in members]
    matched = len(nx.bipartite.hopcroft_karp_matching(halves, top)) // 2 if members else 0
    assert antichain_width(before, np.array(members, dtype=np.int64)) == len(members) - matched


def test_long_chains_need_no_recursion():
    before = np.triu(np.ones((1500, 1500), dtype=np.bool_), 1)
    assert antichain_width(before, np.arange(1500)) == 1
    assert antichain_width(before.T, np.arange(1500)) == 1


@given(orders())
def test_operators_stand_in_the_topological_order_that_comes_first(order):
    count, edges = order
    graph = ScheduleGraph.build(kinds=[0] * count, edges=edges)
    assert graph.order.tolist() == list(nx.lexicographical_topological_sort(library(count, edges)))


@pytest.mark.parametrize("edges", [[(0, 0)], [(0, 1), (1, 0)], [(3, 0), (0, 1), (1, 2), (2, 0)]])
def test_a_cycle_is_named(edges):
    with pytest.raises(ConfigError, match=r"found the cycle .* -> .*; precedence must be acyclic"):
        ScheduleGraph.build(kinds=[0] * 4, edges=edges)
