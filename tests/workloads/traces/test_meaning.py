"""What attributes mean, whoever wrote them, and the figures of a real Chakra trace."""

import json
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest
from trace_helpers import chain

from archplace.workloads.traces import (
    Attribute,
    AttributeKind,
    CollectiveType,
    Metadata,
    Node,
    NodeKind,
    Role,
    Trace,
    load_trace,
    meaning_of,
    statistics_of,
)
from archplace.workloads.traces.drawing import timeline_of, write_dot, write_graphml, write_timeline

RESNET = Path(__file__).parent / "data" / "resnet50_ddp.0.et.gz"


@pytest.fixture(scope="module")
def resnet():
    return load_trace(RESNET)


def test_figures_of_a_real_trace(resnet):
    """2,448 host calls of 52.3 ms, 1,216 kernels of 329.5 ms, 181,878 dependencies, 7 collectives of 102 MB."""
    assert resnet.metadata.control_is_caller
    found = statistics_of(resnet.nodes, control=False)
    assert (found.n_nodes, found.n_dependencies) == (3664, 181_878)
    assert found.n_by_role == {Role.HOST: 2448, Role.COMPUTE: 1209, Role.COLLECTIVE: 7}
    assert found.n_mislabelled == 14
    kernels = found.duration_ns[Role.COMPUTE] + found.duration_ns[Role.COLLECTIVE]
    assert kernels == pytest.approx(329.5e6, rel=1e-3)
    assert found.duration_ns[Role.HOST] == pytest.approx(52.3e6, rel=1e-3)
    reduced = sorted(one.size_bytes for one in found.exchanges if one.kind == "all_reduce")
    assert [round(size / 1e6, 1) for size in reduced] == [8.2, 9.7, 26.3, 26.6, 31.5]
    assert sum(one.count for one in found.exchanges if one.kind == "broadcast") == 2


@pytest.mark.parametrize("kind", [kind for kind in AttributeKind if "int" in kind or "fixed" in kind])
def test_any_kind_of_integer(kind):
    if kind.is_list:
        return
    node = Node.build(
        id=1,
        kind=NodeKind.COLLECTIVE,
        attributes=[
            Attribute.of("comm_type", 2, kind),
            Attribute.of("comm_size", 77, kind),
            Attribute.of("is_cpu_op", 0, kind),
            Attribute.of("comm_group", 4, kind),
        ],
    )
    found = meaning_of(node)
    assert (found.role, found.collective, found.size_bytes, found.group) == (
        Role.COLLECTIVE,
        CollectiveType.ALL_GATHER,
        77,
        "4",
    )
    host = Node.build(id=1, kind=NodeKind.COMPUTE, attributes=[Attribute.of("is_cpu_op", 1, kind)])
    assert meaning_of(host).role is Role.HOST


def test_groups_and_dimensions():
    def found(*attributes):
        return meaning_of(Node.build(id=1, kind=NodeKind.COLLECTIVE, attributes=attributes))

    assert found(Attribute.of("pg_name", "7"), Attribute.of("comm_group", 4)).group == "7"
    for everybody in ("", "0"):
        assert found(Attribute.of("pg_name", everybody)).group is None
    assert found(Attribute.of("involved_dim", (True, False))).involved_dimensions == (True, False)
    assert found().involved_dimensions == ()


def test_times_in_nanoseconds_before_microseconds():
    node = Node.build(
        id=1, kind=NodeKind.COMPUTE, start_micros=5, duration_micros=3, attributes=[Attribute.of("duration_ns", 2600)]
    )
    assert (meaning_of(node).duration_ns, meaning_of(node).start_ns) == (2600, 5000)
    assert meaning_of(chain(1)[0]).duration_ns == 3000


def test_statistics_of_a_small_graph():
    """Two products of 1 and 2 µs, both after a load of 4, and a reduction of 5 after the second."""
    nodes = [
        Node.build(id=0, kind=NodeKind.MEMORY_LOAD, duration_micros=4),
        Node.build(id=1, kind=NodeKind.COMPUTE, duration_micros=1, data_parents=[0]),
        Node.build(
            id=2,
            kind=NodeKind.COMPUTE,
            duration_micros=2,
            data_parents=[0],
            attributes=[Attribute.of("num_ops", 10), Attribute.of("tensor_size", 6, AttributeKind.UINT64)],
        ),
        Node.build(
            id=3,
            kind=NodeKind.COLLECTIVE,
            duration_micros=5,
            control_parents=[2],
            attributes=[Attribute.of("comm_type", 0), Attribute.of("comm_size", 100)],
        ),
    ]
    found = statistics_of(nodes)
    assert found.critical_path_ns == 11_000
    assert found.parallelism == pytest.approx(12 / 11)
    assert (found.longest_chain, found.flops, found.touched_bytes, found.communicated_bytes) == (3, 10, 6, 100)
    assert statistics_of(nodes, control=False).critical_path_ns == 6000
    timeline = timeline_of(Trace(metadata=Metadata(), nodes=tuple(nodes)))
    assert timeline.starts_ns == (0, 4000, 5000, 7000)  # one product at a time
    assert timeline.end_ns == 12_000


def test_graphs_can_be_read_elsewhere(tmp_path, resnet):
    first = [node for node in resnet.nodes if node.id < 1000]
    assert write_graphml(first, tmp_path / "a.graphml", control=False) == len(first)
    graph = nx.read_graphml(tmp_path / "a.graphml")
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (len(first), sum(len(n.data_parents) for n in first))
    assert nx.is_directed_acyclic_graph(graph)
    odd = Node.build(id=1, kind=NodeKind.COMPUTE, name='<&"\\\x00ä\n')
    write_graphml([odd], tmp_path / "b.graphml")
    assert nx.read_graphml(tmp_path / "b.graphml").nodes["1"]["name"] == '<&"\\?ä?'
    both = [odd, Node.build(id=2, kind=NodeKind.COMPUTE, data_parents=[1], control_parents=[1])]
    write_dot(both, tmp_path / "b.dot")
    lines = (tmp_path / "b.dot").read_text().splitlines()
    assert "  1 -> 2;" in lines
    assert "  1 -> 2 [style=dashed];" in lines


def test_timelines_keep_order_and_lanes(tmp_path, resnet):
    timeline = write_timeline(resnet, tmp_path / "a.json")
    assert not timeline.recorded
    starts = dict(zip((node.id for node in resnet.nodes), timeline.starts_ns, strict=True))
    ends = dict(zip(starts, map(sum, zip(timeline.starts_ns, timeline.durations_ns, strict=True)), strict=True))
    for node in resnet.nodes:
        assert starts[node.id] >= max((ends[parent] for parent in node.data_parents), default=0)
    for lane in set(timeline.lanes):
        spans = sorted(
            (starts[node.id], ends[node.id])
            for node, own in zip(resnet.nodes, timeline.lanes, strict=True)
            if own == lane
        )
        assert all(after[0] >= before[1] for before, after in pairwise(spans))
    document = json.loads((tmp_path / "a.json").read_text())
    assert sum(event["ph"] == "X" for event in document["traceEvents"]) == 3664


def test_traces_without_durations(tmp_path):
    trace = Trace(metadata=Metadata(), nodes=tuple(chain(4, duration_micros=0)))
    timeline = write_timeline(trace, tmp_path / "a.json")
    assert (timeline.timed, timeline.end_ns) == (False, 4000)
    assert statistics_of(trace.nodes).parallelism is None
