"""A pass over a layer as a device runs it that computes and communicates one thing at a time each.

A schedule may run several operators on the units of a device at once; simulators of clusters know one stream of
computing and one of communication. The script of a pass is what such a device does in the same time: the moments in
which any operator computes become segments, cut where an exchange begins to be possible or is waited for, and each
exchange waits for the segment that makes what it sends. Seconds become whole nanoseconds of the schedule's clock, so
that what rounding takes from one segment it gives to the next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from archplace.search.attribution import OperatorBar
from archplace.workloads import Collective, CollectiveKind, Operator

_NS = 1e9
_NAMES = 3
"""Operators that the name of a segment lists; of more, the first and the last."""

WAIT = "waiting"
"""What a piece is called in which a device does nothing."""

ExchangeNs = Callable[[Collective], int]
"""Returns the nanoseconds of an exchange in the simulator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One stretch of computing, or one exchange."""

    name: str
    nanoseconds: int
    """Of an exchange those that the simulator is expected to find."""
    collective: Collective | None = None
    exposes: Collective | None = None
    """Of a stretch in which nothing is computed: the exchange whose time it stands for."""
    after: tuple[int, ...] = ()
    """Places of the pieces that must be done before; without any it begins with the script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Pieces in the order in which they begin."""

    pieces: tuple[Piece, ...]
    nanoseconds: int
    """From the begin of the first to the end of the last."""

    @property
    def ends(self) -> tuple[int, ...]:
        """Places of the pieces that no other one waits for."""
        awaited = {place for piece in self.pieces for place in piece.after}
        return tuple(place for place in range(len(self.pieces)) if place not in awaited)

    @property
    def compute_ns(self) -> int:
        """Nanoseconds of computing, waiting left out."""
        return sum(
            piece.nanoseconds
            for piece in self.pieces
            if piece.collective is None and piece.exposes is None and piece.name != WAIT
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    begin: int
    possible: int
    """When what it sends is computed."""
    index: int


def script_of(
    operators: Sequence[Operator], bars: Sequence[OperatorBar], exchange_ns: ExchangeNs, *, by_operator: bool
) -> Script:
    """Return the script of one scheduled pass; empty for no operators.

    ``by_operator`` also cuts where an operator ends, so that each has a segment; operators that run at the same time
    share what of it they run alone. Where the simulator's exchange is shorter than the schedule's (which knows what it
    costs to start one), the device waits for the difference before it computes on.
    """
    return _Scripting(operators, bars, exchange_ns).run(by_operator=by_operator)


class _Scripting:
    def __init__(self, operators: Sequence[Operator], bars: Sequence[OperatorBar], exchange_ns: ExchangeNs) -> None:
        self._operators = operators
        self._exchange_ns = exchange_ns
        self._begin = [round(bar.start_s * _NS) for bar in bars]
        self._end = [round((bar.start_s + bar.duration_s) * _NS) for bar in bars]
        self._inputs = self._resolved()
        self._pieces: list[Piece] = []
        self._ends: list[int] = []
        """When each piece ends on the simulator's device."""

    def _empty(self, index: int) -> bool:
        return self._end[index] <= self._begin[index]

    def _resolved(self) -> list[frozenset[int]]:
        """Return the inputs of each operator, those that take no time replaced by theirs."""
        place = {operator.name: i for i, operator in enumerate(self._operators)}
        found: list[frozenset[int]] = []
        for operator in self._operators:
            inputs: set[int] = set()
            for name in operator.inputs:
                i = place[name]
                inputs |= found[i] if self._empty(i) else {i}
            found.append(frozenset(inputs))
        return found

    def _is_exchange(self, index: int) -> bool:
        return self._operators[index].collective is not None

    def run(self, *, by_operator: bool) -> Script:
        running = [i for i in range(len(self._operators)) if not self._empty(i)]
        computing = [i for i in running if not self._is_exchange(i)]
        exchanges = sorted(
            (
                _Exchange(
                    begin=self._begin[i],
                    possible=max((self._end[j] for j in self._inputs[i] if not self._is_exchange(j)), default=0),
                    index=i,
                )
                for i in running
                if self._is_exchange(i)
            ),
            key=lambda each: (each.begin, each.index),
        )
        waiting = {i: {j for j in self._inputs[i] if self._is_exchange(j)} for i in computing}
        cuts = {each.possible for each in exchanges} | {self._begin[i] for i in computing if waiting[i]}
        if by_operator:
            cuts |= {self._end[i] for i in computing}
        segments = self._segments(computing, cuts)
        self._lay(segments, exchanges, computing, waiting)
        return Script(pieces=tuple(self._pieces), nanoseconds=max(self._ends, default=0))

    def _segments(self, computing: Sequence[int], cuts: set[int]) -> list[tuple[int, int]]:
        """Return the moments in which any operator computes, cut."""
        merged: list[list[int]] = []
        for begin, end in sorted((self._begin[i], self._end[i]) for i in computing):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        found: list[tuple[int, int]] = []
        for begin, end in merged:
            inside = [begin, *sorted(cut for cut in cuts if begin < cut < end), end]
            found += list(pairwise(inside))
        return found

    def _lay(
        self,
        segments: Sequence[tuple[int, int]],
        exchanges: Sequence[_Exchange],
        computing: Sequence[int],
        waiting: Mapping[int, set[int]],
    ) -> None:
        """Append the pieces in the order of the schedule, segments before the exchanges that begin with them."""
        at: dict[int, int] = {}
        """Place of the piece of each exchange."""
        last_segment: int | None = None
        last_exchange: int | None = None
        finished: list[tuple[int, int]] = []
        """End in the schedule and place of each segment."""
        order: list[tuple[tuple[int, int], tuple[int, int] | _Exchange]] = [
            *(((begin, 0), (begin, end)) for begin, end in segments),
            *(((each.begin, 1), each) for each in exchanges),
        ]
        for _, item in sorted(order, key=lambda entry: entry[0]):
            if isinstance(item, _Exchange):
                before = [place for end, place in finished if end <= item.possible]
                # Exchanges pass one after another, in the schedule's order.
                after = [*before[-1:], *([] if last_exchange is None else [last_exchange])]
                operator = self._operators[item.index]
                assert operator.collective is not None
                duration = self._exchange_ns(operator.collective)
                last_exchange = self._put(operator.name, duration, after, operator.collective)
                at[item.index] = last_exchange
                continue
            begin, end = item
            starting = [i for i in computing if begin <= self._begin[i] < end]
            awaited = sorted({at[j] for i in starting for j in waiting[i]})
            after = [*([] if last_segment is None else [last_segment]), *awaited]
            idle = begin - max((self._ends[place] for place in after), default=0)
            if idle > 0:
                after = [self._put(WAIT, idle, after)]
            last_segment = self._put(self._name(computing, begin, end), end - begin, after)
            finished.append((end, last_segment))
        makespan = max((end for end in self._end), default=0)
        rest = makespan - max(self._ends, default=0)
        if rest > 0:
            self._put(WAIT, rest, [place for place in (last_segment, last_exchange) if place is not None])

    def _put(self, name: str, duration: int, after: Sequence[int], collective: Collective | None = None) -> int:
        begin = max((self._ends[place] for place in after), default=0)
        self._pieces.append(Piece(name=name, nanoseconds=duration, collective=collective, after=tuple(after)))
        self._ends.append(begin + duration)
        return len(self._pieces) - 1

    def _name(self, computing: Sequence[int], begin: int, end: int) -> str:
        """Name a segment by the operators that end in it, or else by those that run."""
        ending = [i for i in computing if begin < self._end[i] <= end]
        there = ending or [i for i in computing if self._begin[i] < end and self._end[i] > begin]
        names = [self._operators[i].name for i in sorted(there, key=lambda i: (self._end[i], i))]
        return " + ".join(names) if len(names) <= _NAMES else f"{names[0]} … {names[-1]}"


def in_turn(scripts: Sequence[Script]) -> Script:
    """Return scripts one after another."""
    pieces: list[Piece] = []
    ends: tuple[int, ...] = ()
    for script in scripts:
        base = len(pieces)
        for piece in script.pieces:
            after = tuple(base + place for place in piece.after) if piece.after else ends
            pieces.append(replace(piece, after=after))
        if script.pieces:
            ends = tuple(base + place for place in script.ends)
    return Script(pieces=tuple(pieces), nanoseconds=sum(script.nanoseconds for script in scripts))


def lumped(name: str, scripts: Sequence[tuple[Script, int]], exchange_ns: ExchangeNs) -> Script:
    """Return scripts, each as often as is said, as two stretches of computing and one exchange of every kind and axis.

    The exchanges follow the first stretch, the second runs beside them, and the whole takes as long as the scripts one
    after another: what separate exchanges take longer than one of all their bytes is a stretch of its own.
    """
    total = sum(script.nanoseconds * times for script, times in scripts)
    compute = sum(script.compute_ns * times for script, times in scripts)
    payloads: dict[tuple[CollectiveKind, str], tuple[Collective, int]] = {}
    for script, times in scripts:
        for piece in script.pieces:
            if piece.collective is None:
                continue
            key = piece.collective.kind, str(piece.collective.axis)
            first, payload = payloads.get(key, (piece.collective, 0))
            payloads[key] = first, payload + piece.collective.payload_bytes * times
    exchanges = [
        Collective(kind=first.kind, payload_bytes=payload, group_size=first.group_size, axis=first.axis)
        for first, payload in payloads.values()
    ]
    durations = [exchange_ns(each) for each in exchanges]
    alone = max(0, total - sum(durations))
    before = min(alone, compute)
    pieces = [Piece(name=name, nanoseconds=before)] if before else []
    last = tuple(range(len(pieces)))
    if compute > before:
        pieces.append(Piece(name=f"{name} beside exchanges", nanoseconds=compute - before, after=last))
    if alone > before:
        rest = Piece(name=WAIT, nanoseconds=alone - before, after=last)
        if exchanges:
            longest = exchanges[durations.index(max(durations))]
            rest = replace(rest, name=f"{name}: separate exchanges", exposes=longest)
        pieces.append(rest)
        last = (len(pieces) - 1,)
    for each, duration in zip(exchanges, durations, strict=True):
        pieces.append(Piece(name=f"{name}: {each.axis} {each.kind}", nanoseconds=duration, collective=each, after=last))
        last = (len(pieces) - 1,)
    return Script(pieces=tuple(pieces), nanoseconds=total)
