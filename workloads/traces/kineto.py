"""Chrome traces of PyTorch's profiler (Kineto): when calls ran on the host's threads and kernels on streams."""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeGuard

from archplace.workloads.traces._json_stream import JsonStream
from archplace.workloads.traces._source import Source

_CALLS = frozenset(("cpu_op", "user_annotation"))
_LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime", "runtime", "privateuse1_runtime"))
_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_SYNCHRONISED = "cuda_sync"
_STEP_US = 1.0
_LATEST_US = 1e17
"""Three thousand years: what is later, or not a number, is no time."""
_LONGEST_NAME = 60

Thread = tuple[object, object]
"""Process and thread, as the trace names them."""


class Event(NamedTuple):
    """Something that lasted."""

    name: str
    category: str
    begin_us: float
    end_us: float
    thread: Thread
    """Of a kernel, device and stream."""
    rf_id: int
    """Number that the execution trace of the same run gives to the call; 0 for none."""
    correlation: int
    """Number that a launch and its kernel share; 0 for none."""
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KinetoTrace:
    """What the profiler saw in one process."""

    path: Path
    calls: Mapping[Thread, tuple[Event, ...]]
    """Operators and annotations by thread, in the order in which they began; callers before what they call."""
    launches: Mapping[int, Event]
    """Calls of the driver by correlation."""
    waits: tuple[Event, ...]
    """Calls of the driver that wait for the device, in the order in which they began."""
    device: tuple[Event, ...]
    """Kernels, copies and fills, in the order in which they began."""
    stream_waits: tuple[Event, ...] = ()
    """Streams that wait for events of others, where the profiler notes them."""
    pids: frozenset[object] = frozenset()
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Ranks of each process group, where the trace says."""
    rank: int | None = None
    world_size: int | None = None

    @property
    def n_calls(self) -> int:
        """How many operators were called."""
        return sum(event.category == "cpu_op" for events in self.calls.values() for event in events)


def load_kineto_trace(path: str | Path) -> KinetoTrace:
    """Return the trace that the profiler exported. Raises :class:`ConfigError` with the place of what is wrong."""
    calls: dict[Thread, list[Event]] = {}
    launches: dict[int, Event] = {}
    waits: list[Event] = []
    device: list[Event] = []
    stream_waits: list[Event] = []
    distributed: object = None
    begun = False
    with Source(path) as source:
        for name, index, offset, value in JsonStream(source).members(frozenset(("traceEvents",))):
            if name == "distributedInfo":
                distributed = value
            if name != "traceEvents":
                continue
            begun = True
            if index is None or not isinstance(value, dict) or value.get("ph") != "X":
                continue
            try:
                event = _event(value)
            except (KeyError, TypeError, ValueError) as error:
                what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                raise source.error(f"event {index} ({value.get('name')!r:.60}): {what}", offset) from None
            if event.category in _CALLS:
                calls.setdefault(event.thread, []).append(event)
            elif event.category in _LAUNCHES:
                if event.correlation:
                    launches[event.correlation] = event
                if "Synchronize" in event.name:
                    waits.append(event)
            elif event.category in _DEVICE:
                device.append(event)
            elif event.category == _SYNCHRONISED and event.name == "Stream Wait Event":
                stream_waits.append(event)
        if not begun:
            raise source.error("no 'traceEvents': this is no trace of PyTorch's profiler", 0)
    groups, rank, world_size = _distributed(distributed)
    return KinetoTrace(
        path=Path(path),
        calls={thread: tuple(sorted(events, key=_outer_first)) for thread, events in calls.items()},
        launches=launches,
        waits=tuple(sorted(waits, key=_outer_first)),
        device=tuple(sorted(device, key=_outer_first)),
        stream_waits=tuple(sorted(stream_waits, key=_outer_first)),
        pids=frozenset(thread[0] for thread in calls),
        groups=groups,
        rank=rank,
        world_size=world_size,
    )


def callers_by_time(events: tuple[Event, ...]) -> list[int | None]:
    """Return of each of one thread's events, outer first, the place of the innermost around it, or None.

    Clocks have steps: what ends less than a microsecond after its caller is inside all the same.
    """
    found: list[int | None] = []
    around: list[int] = []
    for event in events:
        while around and (
            events[around[-1]].end_us <= event.begin_us or events[around[-1]].end_us + _STEP_US < event.end_us
        ):
            around.pop()
        found.append(around[-1] if around else None)
        around.append(len(found) - 1)
    return found


class Spans:
    """Spans of one thread that do not overlap, to look up by time."""

    def __init__(self, spans: list[tuple[float, float, int]]) -> None:
        """Take ``(begin, end, what)``."""
        self._spans = sorted(spans)
        self._begins = [begin for begin, _, _ in self._spans]

    def at(self, time_us: float) -> int | None:
        """Return what runs at a time, or None."""
        place = bisect.bisect_right(self._begins, time_us) - 1
        if place < 0 or self._spans[place][1] < time_us:
            return None
        return self._spans[place][2]


def _outer_first(event: Event) -> tuple[float, float]:
    return event.begin_us, -event.end_us


def _event(value: Mapping[str, object]) -> Event:
    category, args = str(value.get("cat", "")).lower(), value.get("args", {})
    if category == "operator":  # older profilers
        category = "cpu_op"
    if not isinstance(args, dict):
        raise TypeError("args is no object")
    begin, duration = value["ts"], value.get("dur", 0)
    if not (_is_time(begin) and _is_time(duration)) or duration < 0:
        raise ValueError(f"begins at {begin!r:.30} and lasts {duration!r:.30} microseconds")
    thread: Thread = (_plain(value.get("pid")), _plain(value.get("tid")))
    if category in _DEVICE:
        thread = (_plain(args.get("device", thread[0])), _plain(args.get("stream", thread[1])))
    return Event(
        name=str(value["name"]),
        category=category,
        begin_us=float(begin),
        end_us=float(begin) + float(duration),
        thread=thread,
        rf_id=_number(args.get("Record function id")),
        correlation=_number(args.get("correlation")),
        args=args,
    )


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST_US


def _plain(value: object) -> object:
    return value if _number(value) or value == 0 or isinstance(value, str) else repr(value)[:_LONGEST_NAME]


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else 0


def _distributed(value: object) -> tuple[dict[str, tuple[int, ...]], int | None, int | None]:
    groups: dict[str, tuple[int, ...]] = {}
    if not isinstance(value, dict):
        return groups, None, None
    configured = value.get("pg_config")
    for group in configured if isinstance(configured, list) else []:
        if isinstance(group, dict) and isinstance(group.get("ranks"), list):
            ranks = tuple(rank for rank in group["ranks"] if _rank(rank) is not None)
            groups[str(group.get("pg_name"))] = ranks
    return groups, _rank(value.get("rank")), _rank(value.get("world_size"))


def _rank(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None
