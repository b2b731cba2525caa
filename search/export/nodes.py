"""What one device of a simulator does in a step: a list of nodes, each with those that must be done before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from archplace.costmodel.network import Group
from archplace.search.export.communicators import Lowered, Team
from archplace.workloads.traces import CollectiveType, NodeKind


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a message: the device so many steps further round the ring of the sender's group."""

    group: Group
    step: int


class Step(NamedTuple):
    """One node. Its number is its place in the program, which simulators take as its priority.

    A tuple, unlike the other records: programs have hundreds of thousands of them.
    """

    name: str
    kind: NodeKind
    """Computing, a collective, or one end of a message."""
    part: str
    """What the step's time is spent on, for tables."""
    after: tuple[int, ...]
    nanoseconds: int = 0
    """Of computing."""
    collective: CollectiveType | None = None
    team: Team | None = None
    peer: Peer | None = None
    size_bytes: int = 0
    tag: int = 0


Program = tuple[Step, ...]


class ProgramBuilder:
    """Puts a program together, one node after another."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._chained: tuple[int, ...] = ()
        """The last collective: all of a device pass in one order, the same on all members of every group."""

    def _put(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def compute(self, name: str, part: str, nanoseconds: int, after: Iterable[int]) -> tuple[int, ...]:
        """Append a stretch of computing and return its place; without length, return what it would wait for."""
        if nanoseconds <= 0:
            return _sorted(after)
        step = Step(name=name, kind=NodeKind.COMPUTE, part=part, after=_sorted(after), nanoseconds=nanoseconds)
        return (self._put(step),)

    def collectives(self, name: str, part: str, lowered: Sequence[Lowered], after: Iterable[int]) -> tuple[int, ...]:
        """Append collectives one after another and return the last; without any, return what they would wait for."""
        last = _sorted(after)
        for each in lowered:
            step = Step(
                name=name,
                kind=NodeKind.COLLECTIVE,
                part=part,
                after=_sorted((*last, *self._chained)),
                collective=each.kind,
                team=each.team,
                size_bytes=each.size_bytes,
            )
            last = self._chained = (self._put(step),)
        return last

    def send(self, name: str, part: str, peer: Peer, size_bytes: int, tag: int, after: Iterable[int]) -> int:
        """Append the sending end of a message."""
        return self._message(NodeKind.SEND, name, part, peer, size_bytes, tag, after)

    def receive(self, name: str, part: str, peer: Peer, size_bytes: int, tag: int, after: Iterable[int]) -> int:
        """Append the receiving end of a message."""
        return self._message(NodeKind.RECEIVE, name, part, peer, size_bytes, tag, after)

    def _message(
        self, kind: NodeKind, name: str, part: str, peer: Peer, size_bytes: int, tag: int, after: Iterable[int]
    ) -> int:
        step = Step(
            name=name, kind=kind, part=part, after=_sorted(after), peer=peer, size_bytes=max(1, size_bytes), tag=tag
        )
        return self._put(step)

    def program(self) -> Program:
        """Return what was put together; a device that does nothing gets a nanosecond of computing, as it needs some."""
        if not any(not step.after for step in self.steps):
            self._put(Step(name="idle", kind=NodeKind.COMPUTE, part="idle", after=(), nanoseconds=1))
        return tuple(self.steps)


def _sorted(after: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(after)))
