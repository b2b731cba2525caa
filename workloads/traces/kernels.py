"""Kernels of operators: who launched them, in what order streams run them, and who waits for them on the host."""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from archplace.workloads.traces.call_tree import Operator
from archplace.workloads.traces.kineto import Event, Spans, Thread
from archplace.workloads.traces.matching import Match

_SLACK_US = 2.0
"""Host and device have different clocks, which the profiler brings together to about a microsecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel, copy or fill in the first step of a profile."""

    event: Event
    launch: Event
    operator: int | None
    """Place of the operator that launched it; None for what no operator launched."""
    duration_us: float
    """Median of the steps where they launch the same kernels."""
    before: tuple[int, ...]
    """Places of kernels that must be done before: the one ahead on its stream, and those of streams it waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels in the order of their launches."""

    kernels: tuple[Kernel, ...]
    awaited: Mapping[int, tuple[int, ...]]
    """By operator, kernels that the host had waited for when it was called."""


def find_kernels(operators: Sequence[Operator], found: Match) -> Kernels:
    """Return the kernels of the first step, by launches inside the operators' spans, and what they wait for."""
    launched = _launched(operators, found)
    first = [item for item in launched if item[2] == 0]
    steps: dict[int, dict[int, list[Event]]] = {}
    for _, event, step, place in launched:
        if place is not None:
            steps.setdefault(place, {}).setdefault(step, []).append(event)
    used: dict[int, int] = {}
    durations = []
    for _, event, _, place in first:
        durations.append(event.end_us - event.begin_us)
        if place is not None:
            at = used[place] = used.get(place, -1) + 1
            others = [kernels for kernels in steps[place].values() if _names(kernels) == _names(steps[place][0])]
            durations[-1] = median(kernels[at].end_us - kernels[at].begin_us for kernels in others)
    before = _before([(launch, event) for launch, event, _, _ in first], found.profile.stream_waits)
    kernels = tuple(
        Kernel(event=event, launch=launch, operator=place, duration_us=duration, before=ahead)
        for (launch, event, _, place), duration, ahead in zip(first, durations, before, strict=True)
    )
    return Kernels(kernels=kernels, awaited=_awaited(operators, found, kernels))


def _names(kernels: Sequence[Event]) -> list[str]:
    return [kernel.name for kernel in kernels]


def _launched(operators: Sequence[Operator], found: Match) -> list[tuple[Event, Event, int, int | None]]:
    """Return launch, kernel, step and operator of all kernels in the steps, in the order of launches."""
    spans: dict[Thread, list[tuple[float, float, int]]] = {}
    steps: list[tuple[float, float]] = []
    for place, operator in enumerate(operators):
        for step, event in enumerate(found.events.get(operator.node.id, ())):
            spans.setdefault(event.thread, []).append((event.begin_us, event.end_us, place * found.n_steps + step))
            if step == len(steps):
                steps.append((event.begin_us, event.end_us))
            steps[step] = min(steps[step][0], event.begin_us), max(steps[step][1], event.end_us)
    lookups = {thread: Spans(own) for thread, own in spans.items()}
    result: list[tuple[Event, Event, int, int | None]] = []
    for event in found.profile.device:
        launch = found.profile.launches.get(event.correlation)
        if launch is None:
            continue
        lookup = lookups.get(launch.thread)
        code = lookup.at(launch.begin_us) if lookup else None
        if code is not None:
            result.append((launch, event, code % found.n_steps, code // found.n_steps))
        elif steps and steps[0][0] <= launch.begin_us <= steps[0][1]:
            result.append((launch, event, 0, None))
    return sorted(result, key=lambda item: (item[0].begin_us, item[1].begin_us))


def _before(kernels: Sequence[tuple[Event, Event]], stream_waits: Sequence[Event]) -> list[tuple[int, ...]]:
    ahead: list[set[int]] = [set() for _ in kernels]
    streams: dict[Thread, list[int]] = {}
    for place in sorted(range(len(kernels)), key=lambda at: (kernels[at][1].begin_us, at)):
        own = streams.setdefault(kernels[place][1].thread, [])
        if own:
            ahead[place].add(own[-1])
        own.append(place)
    order = {thread: sorted(own, key=lambda at: kernels[at][0].begin_us) for thread, own in streams.items()}
    begins = {thread: [kernels[at][0].begin_us for at in own] for thread, own in order.items()}
    recorded = {launch.correlation: launch.begin_us for launch, _ in kernels}
    for wait in stream_waits:
        device = wait.args.get("device", wait.thread[0])
        waiting, awaited = (device, wait.args.get("stream")), (device, wait.args.get("wait_on_stream"))
        if waiting not in order or awaited not in order:
            continue
        mark = wait.args.get("wait_on_cuda_event_record_corr_id")
        until = recorded.get(mark, wait.begin_us) if isinstance(mark, int) else wait.begin_us
        source = bisect.bisect_right(begins[awaited], until) - 1
        follower = bisect.bisect_left(begins[waiting], wait.begin_us)
        if source >= 0 and follower < len(order[waiting]):
            ahead[order[waiting][follower]].add(order[awaited][source])
    return [tuple(sorted(found)) for found in ahead]


def _awaited(operators: Sequence[Operator], found: Match, kernels: Sequence[Kernel]) -> dict[int, tuple[int, ...]]:
    """Say what synchronisations on the host make operators wait for.

    One returns when the kernels are done; the next operator on its thread comes after the last that had ended.
    """
    ended = sorted((kernel.event.end_us, place) for place, kernel in enumerate(kernels))
    begins: dict[Thread, list[tuple[float, int]]] = {}
    for place, operator in enumerate(operators):
        event = found.reference(operator.node.id)
        if event is not None:
            begins.setdefault(event.thread, []).append((event.begin_us, place))
    for own in begins.values():
        own.sort()
    awaited: dict[int, set[int]] = {}
    for wait in found.profile.waits:
        own = begins.get(wait.thread, [])
        following = bisect.bisect_left(own, (wait.end_us, -1))
        done = bisect.bisect_right(ended, (wait.end_us + _SLACK_US, len(kernels))) - 1
        if done >= 0 and following < len(own):
            awaited.setdefault(own[following][1], set()).add(ended[done][1])
    return {place: tuple(sorted(sources)) for place, sources in awaited.items()}
