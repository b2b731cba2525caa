"""What a simulator makes of a case, found without it: every case is run through here before it is written.

Each device computes one thing, and exchanges one thing, at a time; receiving takes neither place. Of what is ready the
lowest number begins first, when something ends and its place is free. A message ends at its sender when it has arrived,
at its receiver also not before it was asked for; ends find each other by tag, sender, receiver and size, in order. The
k-th collectives of a group's members are one. These are the rules of ASTRA-sim's workload layer (commit 518bd513, March
2026); :mod:`~archplace.search.export.wires` has what messages and collectives take. What happens in one nanosecond is
taken in the order in which it was begun, and the simulator may have another one.

Where all devices of a stage must do the same at the same moments, because every collective and every message takes the
same for each of them, one of them stands for all.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from archplace.search.export.alike import Alike, alike_of
from archplace.search.export.case import Case
from archplace.search.export.communicators import IntArray
from archplace.search.export.nodes import Program, Step
from archplace.search.export.wires import Wires
from archplace.workloads.traces import CollectiveType, NodeKind

_COMPUTE, _SEND, _RECEIVE = NodeKind.COMPUTE, NodeKind.SEND, NodeKind.RECEIVE


class UnfinishedError(RuntimeError):
    """A case that would not run to its end: a defect of the export, not of what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """When everything began and ended, in nanoseconds."""

    actors: tuple[int, ...]
    """Devices that were replayed, by the simulator's numbers."""
    stands_for: IntArray
    """``(N,)``: the place among ``actors`` of the one that stands for each device."""
    begin_ns: tuple[IntArray, ...]
    """Of every step of each actor, ``(steps,)``; of receiving when it was asked for."""
    end_ns: tuple[IntArray, ...]

    @property
    def finish_ns(self) -> IntArray:
        """When each device has done everything, ``(N,)``."""
        ends = np.array([int(end.max()) for end in self.end_ns], dtype=np.int64)
        finish: IntArray = ends[self.stands_for]
        return finish

    @property
    def step_ns(self) -> int:
        """When all have."""
        return int(self.finish_ns.max())


def replay(case: Case, *, whole: bool = False) -> Replayed:
    """Return what a simulator would find; ``whole`` replays every device, also where one stands for many.

    Raises :class:`UnfinishedError` where a device waits for ever, where the members of a group do not agree on what
    they exchange, and where a message has no receiver.
    """
    wires = Wires(case.communicators.numbering)
    alike = None if whole else alike_of(case, wires)
    return _Replay(case, wires, alike).run()


class _Actor:
    """One device, as far as it has come."""

    __slots__ = (
        "begin",
        "blocks",
        "computing",
        "end",
        "exchanging",
        "left",
        "npu",
        "program",
        "ready",
        "role",
        "waits",
    )

    def __init__(self, npu: int, role: int, program: Program, blocks: list[list[int]]) -> None:
        self.npu, self.role, self.program, self.blocks = npu, role, program, blocks
        self.waits = [len(step.after) for step in program]
        self.begin = [-1] * len(program)
        self.end = [-1] * len(program)
        self.left = len(program)
        self.ready: tuple[list[int], list[int]] = ([], [])
        """To compute, and to exchange; heaps."""
        self.computing = self.exchanging = False


_Key = tuple[int, int, int, int]
_Meeting = list[tuple[int, int, int]]
"""Actor, step, and moment of each member that has come."""


class _Replay:
    def __init__(self, case: Case, wires: Wires, alike: Alike | None) -> None:
        self._case, self._wires, self._alike = case, wires, alike
        blocks = [_blocks(program) for program in case.programs]
        if alike is None:
            npus = list(range(case.n_npus))
            self._stands_for = np.arange(case.n_npus, dtype=np.int64)
        else:
            npus = [int(np.flatnonzero(case.role == role)[0]) for role in range(len(case.programs))]
            self._stands_for = case.role
        roles = [int(case.role[npu]) for npu in npus]
        self._actors = [
            _Actor(npu, role, case.programs[role], blocks[role]) for npu, role in zip(npus, roles, strict=True)
        ]
        self._events: list[tuple[int, int, int, int]] = []
        """Moment, count, actor, step."""
        self._count = 0
        self._arrived: dict[_Key, deque[int]] = {}
        self._asked: dict[_Key, deque[tuple[int, int, int]]] = {}
        self._meetings: dict[tuple[int, int], _Meeting] = {}
        self._met: dict[tuple[int, int], int] = {}
        """Collectives that a device has begun in each group."""

    def run(self) -> Replayed:
        actors, events = self._actors, self._events
        for number, actor in enumerate(actors):
            for place, waits in enumerate(actor.waits):
                if not waits:
                    self._enable(0, number, actor, place)
            self._issue(0, number, actor)
        while events:
            now, _, number, place = heappop(events)
            self._finish(now, number, place)
        self._check()
        return Replayed(
            actors=tuple(actor.npu for actor in actors),
            stands_for=self._stands_for,
            begin_ns=tuple(np.array(actor.begin, dtype=np.int64) for actor in actors),
            end_ns=tuple(np.array(actor.end, dtype=np.int64) for actor in actors),
        )

    def _finish(self, now: int, number: int, place: int) -> None:
        actor = self._actors[number]
        actor.end[place] = now
        actor.left -= 1
        kind = actor.program[place].kind
        if kind is _COMPUTE:
            actor.computing = False
        elif kind is not _RECEIVE:
            actor.exchanging = False
        waits = actor.waits
        for child in actor.blocks[place]:
            waits[child] -= 1
            if not waits[child]:
                self._enable(now, number, actor, child)
        self._issue(now, number, actor)

    def _enable(self, now: int, number: int, actor: _Actor, place: int) -> None:
        kind = actor.program[place].kind
        if kind is _RECEIVE:
            self._receive(now, number, actor, place)
        else:
            heappush(actor.ready[kind is not _COMPUTE], place)

    def _issue(self, now: int, number: int, actor: _Actor) -> None:
        compute, exchange = actor.ready
        if compute and not actor.computing:
            place = heappop(compute)
            actor.computing, actor.begin[place] = True, now
            self._push(now + actor.program[place].nanoseconds, number, place)
        if exchange and not actor.exchanging:
            place = heappop(exchange)
            actor.exchanging, actor.begin[place] = True, now
            if actor.program[place].kind is _SEND:
                self._send(now, number, actor, place)
            else:
                self._meet(now, number, actor, place)

    def _push(self, moment: int, number: int, place: int) -> None:
        self._count += 1
        heappush(self._events, (moment, self._count, number, place))

    def _send(self, now: int, number: int, actor: _Actor, place: int) -> None:
        step = actor.program[place]
        assert step.peer is not None
        if self._alike is not None:
            ns, partner = self._alike.message_ns[actor.role, place]
            key = step.tag, actor.role, partner, step.size_bytes
        else:
            partner = self._case.peer(actor.npu, step.peer)
            ns = self._wires.message_ns(actor.npu, partner, step.size_bytes)
            key = step.tag, actor.npu, partner, step.size_bytes
        arrival = now + ns
        self._push(arrival, number, place)
        asked = self._asked.get(key)
        if asked:
            receiver, receiving, since = asked.popleft()
            self._push(max(arrival, since), receiver, receiving)
        else:
            self._arrived.setdefault(key, deque()).append(arrival)

    def _receive(self, now: int, number: int, actor: _Actor, place: int) -> None:
        step = actor.program[place]
        assert step.peer is not None
        actor.begin[place] = now
        if self._alike is not None:
            _, partner = self._alike.message_ns[actor.role, place]
            key = step.tag, partner, actor.role, step.size_bytes
        else:
            key = step.tag, self._case.peer(actor.npu, step.peer), actor.npu, step.size_bytes
        arrived = self._arrived.get(key)
        if arrived:
            self._push(max(arrived.popleft(), now), number, place)
        else:
            self._asked.setdefault(key, deque()).append((number, place, now))

    def _meet(self, now: int, number: int, actor: _Actor, place: int) -> None:
        if self._alike is not None:
            self._push(now + self._alike.collective_ns[actor.role, place], number, place)
            return
        step = actor.program[place]
        assert step.team is not None
        group = self._case.group(actor.npu, step.team)
        count = self._met.get((actor.npu, group.number), 0)
        self._met[actor.npu, group.number] = count + 1
        meeting = self._meetings.setdefault((group.number, count), [])
        meeting.append((number, place, now))
        if len(meeting) < len(group.members):
            return
        del self._meetings[group.number, count]
        self._end_meeting(group.members, meeting)

    def _end_meeting(self, members: tuple[int, ...], meeting: _Meeting) -> None:
        actors = self._actors
        steps = {actors[number].npu: (number, place, now) for number, place, now in meeting}
        asked = {_what(actors[number].program[place]) for number, place, _ in meeting}
        if len(asked) > 1:
            listed = "; ".join(sorted(f"{kind.name} of {size:,} bytes" for kind, size in asked))
            raise UnfinishedError(f"devices {list(members)} meet for different exchanges: {listed}")
        ((kind, size),) = asked
        starts = tuple(steps[npu][2] for npu in members)
        for npu, end in zip(members, self._wires.collective_ns(kind, size, members, starts), strict=True):
            number, place, _ = steps[npu]
            self._push(end, number, place)

    def _check(self) -> None:
        """Refuse what did not come to its end."""
        stuck = [actor for actor in self._actors if actor.left]
        if stuck:
            actor = stuck[0]
            place = next(i for i, end in enumerate(actor.end) if end < 0)
            began = "has begun and waits for others" if actor.begin[place] >= 0 else "waits for its turn"
            raise UnfinishedError(
                f"{len(stuck)} of {len(self._actors)} devices never finish: device {actor.npu} has {actor.left} steps "
                f"left, the first is {actor.program[place].name!r} (step {place}), which {began}"
            )
        lost = [key for key, arrived in self._arrived.items() if arrived]
        if lost:
            tag, source, target, size = lost[0]
            raise UnfinishedError(
                f"{len(lost)} messages are never received, the first has tag {tag} and {size:,} bytes, from {source} "
                f"to {target}"
            )


def _blocks(program: Program) -> list[list[int]]:
    """Return of every step those that wait for it."""
    found: list[list[int]] = [[] for _ in program]
    for place, step in enumerate(program):
        for before in step.after:
            if not 0 <= before < place:
                raise UnfinishedError(f"{step.name!r} (step {place}) waits for step {before}, which comes no sooner")
            found[before].append(place)
    return found


def _what(step: Step) -> tuple[CollectiveType, int]:
    assert step.collective is not None
    return step.collective, step.size_bytes
