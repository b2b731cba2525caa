"""Traces as pictures: graphs for Graphviz and graph libraries, timelines for Chrome and Perfetto."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from archplace.workloads.traces._sink import Sink
from archplace.workloads.traces.arrays import TraceArrays
from archplace.workloads.traces.meaning import Meaning, Role, meaning_of
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.trace import Trace

_COLOURS = {
    Role.HOST: "#eeeeee",
    Role.COMPUTE: "#cfe2f3",
    Role.MEMORY: "#d9ead3",
    Role.COLLECTIVE: "#f9cb9c",
    Role.POINT_TO_POINT: "#ffe599",
    Role.METADATA: "#ffffff",
}
_LONGEST_LABEL = 60
_UNTIMED_NS = 1000


def write_dot(nodes: Iterable[Node], path: str | Path, *, control: bool = True) -> int:
    """Write a graph for Graphviz and return how many nodes it has; data solid, control dashed, colours by role.

    ``control`` says whether control parents are dependencies; others are not drawn.
    """
    count = 0
    with Sink(path) as sink:
        sink.write(b'digraph trace {\n  node [shape=box, style=filled, fontname="sans-serif"];\n')
        for node in nodes:
            label = json.dumps(f"{node.name[:_LONGEST_LABEL]}\n{node.id}", ensure_ascii=False)
            colour = _COLOURS[meaning_of(node).role]
            lines = [f'  {node.id} [label={label}, fillcolor="{colour}"];\n']
            lines += [f"  {parent} -> {node.id};\n" for parent in node.data_parents]
            if control:
                lines += [f"  {parent} -> {node.id} [style=dashed];\n" for parent in node.control_parents]
            sink.write("".join(lines).encode())
            count += 1
        sink.write(b"}\n")
    return count


def write_graphml(nodes: Iterable[Node], path: str | Path, *, control: bool = True) -> int:
    """Write a graph as GraphML, with name, role and figures of each node, and return how many nodes it has.

    ``control`` says whether control parents are dependencies; others are not written.
    """
    keys = {"name": "string", "role": "string", "duration_ns": "long", "flops": "long", "size_bytes": "long"}
    count = 0
    with Sink(path) as sink:
        head = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
        for key, kind in keys.items():
            head += f'<key id="{key}" for="node" attr.name="{key}" attr.type="{kind}"/>\n'
        head += '<key id="kind" for="edge" attr.name="kind" attr.type="string"/>\n<graph edgedefault="directed">\n'
        sink.write(head.encode())
        for node in nodes:
            found = meaning_of(node)
            values = {"name": _printable(node.name)} | {key: getattr(found, key) for key in keys if key != "name"}
            data = "".join(f"<data key={quoteattr(key)}>{escape(str(value))}</data>" for key, value in values.items())
            lines = [f'<node id="{node.id}">{data}</node>\n']
            for kind, parents in (("data", node.data_parents), ("control", node.control_parents if control else ())):
                for parent in parents:
                    edge = f'<edge source="{parent}" target="{node.id}"><data key="kind">{kind}</data></edge>\n'
                    lines.append(edge)
            sink.write("".join(lines).encode())
            count += 1
        sink.write(b"</graph>\n</graphml>\n")
    return count


def _printable(text: str) -> str:
    # XML has no way to write control characters.
    return "".join(character if character >= " " else "?" for character in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When nodes run."""

    recorded: bool
    """Whether the trace says so; otherwise each lane runs what is ready in the order of the nodes."""
    timed: bool
    """Whether the trace has durations; otherwise each node is drawn as a microsecond."""
    lanes: tuple[str, ...]
    """By node."""
    starts_ns: tuple[int, ...]
    durations_ns: tuple[int, ...]

    @property
    def end_ns(self) -> int:
        """When the last node ends; 0 for none."""
        return max((start + lasts for start, lasts in zip(self.starts_ns, self.durations_ns, strict=True)), default=0)


def timeline_of(trace: Trace) -> Timeline:
    """Return when the nodes of a trace run: as recorded where it says when they began, and otherwise as soon as can be.

    As soon as can be: one host, one compute lane for each stream, one lane for communication, in which a node begins
    when its parents are done and the lane is free. Raises ValueError for graphs that cannot be ordered.
    """
    found = [meaning_of(node) for node in trace.nodes]
    lanes = tuple(_lane(node, one) for node, one in zip(trace.nodes, found, strict=True))
    timed = any(one.duration_ns for one in found)
    durations = tuple(one.duration_ns if timed else _UNTIMED_NS for one in found)
    recorded = any(one.start_ns for one in found)
    if recorded:
        starts = tuple(max(0, one.start_ns or 0) for one in found)
    else:
        starts = _as_soon_as_can_be(
            TraceArrays.collect(trace.nodes, control=not trace.metadata.control_is_caller), lanes, durations
        )
    return Timeline(recorded=recorded, timed=timed, lanes=lanes, starts_ns=starts, durations_ns=durations)


def _lane(node: Node, found: Meaning) -> str:
    if found.role is Role.HOST:
        return "host " + str(node.value("tid") or 0)
    given = node.value("stream")
    stream = None if given is None else str(given)
    if found.role in (Role.COLLECTIVE, Role.POINT_TO_POINT):
        return "communication" if stream is None else f"communication, stream {stream}"
    return found.role.value if stream is None else f"stream {stream}"


def _as_soon_as_can_be(arrays: TraceArrays, lanes: tuple[str, ...], durations: tuple[int, ...]) -> tuple[int, ...]:
    before: list[list[int]] = [[] for _ in lanes]
    for parent, child in zip(arrays.parents.tolist(), arrays.children.tolist(), strict=True):
        before[child].append(parent)
    free: dict[str, int] = {}
    starts = [0] * len(lanes)
    for place in arrays.order():
        ready = max((starts[parent] + durations[parent] for parent in before[place]), default=0)
        starts[place] = max(ready, free.get(lanes[place], 0))
        free[lanes[place]] = starts[place] + durations[place]
    return tuple(starts)


def write_timeline(trace: Trace, path: str | Path) -> Timeline:
    """Write a timeline that chrome://tracing and ui.perfetto.dev show, and return it."""
    timeline = timeline_of(trace)
    numbers = {lane: number for number, lane in enumerate(dict.fromkeys(sorted(timeline.lanes)))}
    with Sink(path) as sink:
        note = "as recorded" if timeline.recorded else "as soon as dependencies and lanes allow"
        note += "" if timeline.timed else "; the trace has no durations: each node is drawn as 1 microsecond"
        sink.write(f'{{"displayTimeUnit": "ns", "otherData": {{"starts": {json.dumps(note)}}},\n'.encode())
        sink.write(b'"traceEvents": [')
        for place, event in enumerate(_events(trace, timeline, numbers)):
            sink.write((",\n" if place else "\n").encode() + json.dumps(event).encode())
        sink.write(b"\n]}\n")
    return timeline


def _events(trace: Trace, timeline: Timeline, numbers: dict[str, int]) -> Iterator[dict[str, object]]:
    for lane, number in numbers.items():
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": lane}}
    for node, lane, start, lasts in zip(
        trace.nodes, timeline.lanes, timeline.starts_ns, timeline.durations_ns, strict=True
    ):
        found = meaning_of(node)
        args: dict[str, object] = {"id": node.id, "data parents": list(node.data_parents)}
        if node.control_parents:
            args["control parents"] = list(node.control_parents)
        if found.flops:
            args["flops"] = found.flops
        if found.size_bytes:
            args["bytes"] = found.size_bytes
        yield {
            "ph": "X",
            "name": node.name,
            "cat": found.role.value,
            "pid": 0,
            "tid": numbers[lane],
            "ts": start / 1000,
            "dur": lasts / 1000,
            "args": args,
        }
