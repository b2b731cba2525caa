"""Which events of the profiler are which calls of an execution trace: by number in one run, by order between two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traces.host_trace import ANNOTATION_SCOPE, HostNode, HostTrace
from archplace.workloads.traces.kineto import Event, KinetoTrace, Thread, callers_by_time

_SAME_RUN = 0.9
_SAME_STEPS = 0.9
_SAME_SIZES = 0.9
"""Shares of calls that must find a partner. Helpers' threads come and go, and the first and last call of a window may
be in one of the traces only; a step of another model shares a few calls in a row at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Calls of a host trace in a profile."""

    profile: KinetoTrace
    same_run: bool
    """Whether both traces saw the same step; otherwise the profile has other steps of the same script."""
    events: Mapping[int, tuple[Event, ...]]
    """By node id, the call in each step that the profile has, in order of time."""
    callers: Mapping[int, int] | None
    """Who called whom, by nesting in time; None between two runs."""

    @property
    def n_steps(self) -> int:
        """How many steps of the profile were found."""
        return max((len(found) for found in self.events.values()), default=0)

    def duration_us(self, number: int) -> float | None:
        """Return how long a call took, as median of the steps; None where it was not found."""
        found = self.events.get(number)
        return median(event.end_us - event.begin_us for event in found) if found else None

    def reference(self, number: int) -> Event | None:
        """Return a call in the first step; None where it was not found."""
        found = self.events.get(number)
        return found[0] if found else None


def match(host: HostTrace, profile: KinetoTrace) -> Match:
    """Find ``host``'s calls in ``profile``.

    Raises :class:`ConfigError` with the evidence where they belong to different programs.
    """
    numbered, found = _by_number(host, profile)
    evidence = ""
    if found is None:
        events, evidence = _by_order(host, profile)
        if events is not None:
            found = Match(profile=profile, same_run=False, events=events, callers=None)
    if found is not None:
        evidence = _other_sizes(host, found)
        if not evidence:
            return found
    processes = ", ".join(sorted(map(str, profile.pids)))
    raise ConfigError(
        [
            Problem(
                place=str(profile.path),
                key="",
                message=f"belongs to another run than {host.path}, and not to the same steps: {numbered}; {evidence}; "
                f"process {host.pid} there, {processes or 'none'} here; profile the run of the trace, or further steps "
                "of the same script with the same sizes",
            )
        ]
    )


def _by_number(host: HostTrace, profile: KinetoTrace) -> tuple[str, Match | None]:
    by_number = {event.rf_id: event for events in profile.calls.values() for event in events if event.rf_id}
    called = [node for node in host.nodes if node.rf_id]
    same = {node.id: by_number[node.rf_id] for node in called if _is_same(node, by_number.get(node.rf_id))}
    said = f"{len(same):,} of {len(called):,} calls have a partner with their number and name"
    # Another process that runs the same script counts its calls alike.
    if not called or len(same) < _SAME_RUN * len(called) or (host.pid and host.pid not in profile.pids):
        return said, None
    node_of = {event.rf_id: number for number, event in same.items()}
    callers: dict[int, int] = {}
    for events in profile.calls.values():
        around = callers_by_time(events)
        for place, event in enumerate(events):
            number = node_of.get(event.rf_id)
            above = around[place]
            while above is not None and events[above].rf_id not in node_of:
                above = around[above]
            if number is not None:
                callers[number] = number if above is None else node_of[events[above].rf_id]
    matched = {number: (event,) for number, event in same.items()}
    return said, Match(profile=profile, same_run=True, events=matched, callers=callers)


def _is_same(node: HostNode, event: Event | None) -> bool:
    return event is not None and event.name == node.name


def _by_order(host: HostTrace, profile: KinetoTrace) -> tuple[dict[int, tuple[Event, ...]] | None, str]:
    threads: dict[int, list[HostNode]] = {}
    for node in host.nodes:
        if node.scope != ANNOTATION_SCOPE and not node.name.startswith("[pytorch|"):
            threads.setdefault(node.tid, []).append(node)
    names: dict[str, int] = {}
    there = {
        thread: [event for event in events if event.category == "cpu_op"] for thread, events in profile.calls.items()
    }
    codes = {thread: _codes([event.name for event in events], names) for thread, events in there.items()}
    found: list[tuple[list[HostNode], list[Event], list[int]]] = []
    free: set[Thread] = set(there)
    evidence = "no operators in one of them"
    longest = max(map(len, threads.values()), default=0)
    for nodes in sorted(threads.values(), key=len, reverse=True):
        wanted = _codes([node.name for node in nodes], names)
        places, thread = max(
            ((_occurrences(codes[thread], wanted), thread) for thread in sorted(free, key=str)),
            key=lambda pair: len(pair[0]),
            default=([], None),
        )
        if thread is not None and places:
            free.discard(thread)
            found.append((nodes, there[thread], places))
        elif len(nodes) == longest:
            evidence = _first_difference(nodes, [there[one] for one in sorted(free, key=str)])
    matched = _side_by_side(found)
    total = sum(map(len, threads.values()))
    if not matched or len(matched) < _SAME_STEPS * total:
        if matched:
            evidence = f"only {len(matched):,} of {total:,} calls stand in the same order"
        return None, evidence
    return matched, ""


def _side_by_side(
    found: Sequence[tuple[Sequence[HostNode], Sequence[Event], Sequence[int]]],
) -> dict[int, tuple[Event, ...]]:
    """Return the calls by node id, from the first step that the thread which calls first has whole.

    A profile may begin in the middle of a step: what other threads do of it belongs to no step that can be compared.
    """
    if not found:
        return {}
    _, events, places = min(found, key=lambda item: item[0][0].id)
    begin = events[places[0]].begin_us
    matched: dict[int, tuple[Event, ...]] = {}
    for nodes, events, places in found:
        whole = [place for place in places if events[place].begin_us >= begin]
        if whole:
            matched |= {node.id: tuple(events[place + at] for place in whole) for at, node in enumerate(nodes)}
    return matched


def _other_sizes(host: HostTrace, found: Match) -> str:
    """Return the evidence that calls have other sizes in the profile, empty where they agree or it does not say."""
    compared = different = 0
    example = ""
    for node in host.nodes:
        event = found.reference(node.id)
        dims = event.args.get("Input Dims") if event is not None else None
        if not node.op_schema or not isinstance(dims, list) or len(dims) != len(node.inputs):
            continue
        for argument, size in zip(node.inputs, dims, strict=True):
            if len(argument.tensors) == 1 and argument.type.startswith("Tensor("):
                compared += 1
                shape = list(argument.tensors[0].shape)
                if shape != size:
                    different += 1
                    example = example or f"{node.name} of node {node.id} has {shape} there and {size!r:.60} here"
    if different <= (1 - _SAME_SIZES) * compared:
        return ""
    return f"{different:,} of {compared:,} operands have other sizes: {example}"


def _codes(names: Sequence[str], known: dict[str, int]) -> NDArray[np.uint32]:
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.uint32)


def _occurrences(sequence: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> list[int]:
    """Return where ``wanted`` begins in ``sequence``, without overlaps."""
    found: list[int] = []
    text, part = sequence.tobytes(), wanted.tobytes()
    place = text.find(part) if part else -1
    while place >= 0:
        if place % sequence.itemsize:
            place = text.find(part, place + 1)
            continue
        found.append(place // sequence.itemsize)
        place = text.find(part, place + len(part))
    return found


def _first_difference(nodes: Sequence[HostNode], threads: Sequence[Sequence[Event]]) -> str:
    """Say how far the longest agreement with any thread goes, begun anywhere."""
    wanted = [node.name for node in nodes]
    best, other = 0, ""
    for events in threads:
        names = [event.name for event in events]
        for start in range(len(names)):
            if names[start] != wanted[0]:
                continue
            length = 1
            while length < len(wanted) and start + length < len(names) and names[start + length] == wanted[length]:
                length += 1
            if length > best:
                best, other = length, names[start + length] if start + length < len(names) else "the end"
    if not best:
        return f"{wanted[0]!r:.60}, the first of {len(wanted):,} operators, is never called"
    missing = wanted[best] if best < len(wanted) else "the end"
    return (
        f"at most {best:,} of {len(wanted):,} operators stand in the same order, up to {missing!r:.60} there and "
        f"{other!r:.60} here"
    )
