"""What replicas have to exchange, taken in pieces that fit between other exchanges."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from archplace.costmodel.network import Group
from archplace.workloads import CollectiveKind

_SMALLEST_PIECE = 1 / 16
"""Of an exchange: no smaller one is cut off."""

Unit = tuple[int, int]
"""Virtual stage, and number of the unit in it."""

NsOf = Callable[[CollectiveKind, float, Group], int]
"""Returns the simulator's nanoseconds of a collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """An exchange of replicas, which may be cut into pieces."""

    name: str
    part: str
    """What its time is spent on, for tables."""
    kind: CollectiveKind
    payload_bytes: float
    group: Group
    unit: Unit | None = None
    """Whose forward pass waits for it; None for what only the end of the step waits for."""


class Backlog:
    """A queue of transfers."""

    def __init__(self, ns_of: NsOf, transfers: Sequence[Transfer] = ()) -> None:
        self._ns_of = ns_of
        self._queue = [*transfers]

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, transfer: Transfer) -> None:
        """Put a transfer at the end."""
        self._queue.append(transfer)

    def of_unit(self, unit: Unit) -> list[Transfer]:
        """Take all that the unit waits for."""
        found = [each for each in self._queue if each.unit == unit]
        self._queue = [each for each in self._queue if each.unit != unit]
        return found

    def take(self, room_ns: int | None = None) -> Iterator[Transfer]:
        """Take, first to last, what fits into ``room_ns``; the last may be a piece. Without a limit, everything."""
        while self._queue:
            found = self._first(room_ns)
            if found is None:
                return
            if room_ns is not None:
                room_ns -= self._ns(found)
            yield found

    def _ns(self, transfer: Transfer) -> int:
        return self._ns_of(transfer.kind, transfer.payload_bytes, transfer.group)

    def _first(self, room_ns: int | None) -> Transfer | None:
        first = self._queue[0]
        whole, whole_ns = first.payload_bytes, self._ns(first)
        if room_ns is None or whole_ns <= room_ns:
            return self._queue.pop(0)
        # A piece has the latency of the whole and its share of the rest.
        latency_ns = self._ns_of(first.kind, 0.0, first.group)
        share = (room_ns - latency_ns) / (whole_ns - latency_ns) if whole_ns > latency_ns else 0.0
        if share < _SMALLEST_PIECE:
            return None
        # What remains is no smaller either.
        share = min(share, 1 - _SMALLEST_PIECE)
        piece = float(int(whole * share))
        self._queue[0] = replace(first, payload_bytes=whole - piece)
        return replace(first, payload_bytes=piece)
