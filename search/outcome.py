"""What an exploration finds: the fate of every architecture, the points evaluated, reasons of what is infeasible."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.choices import WorkloadResult
from archplace.search.objectives import Objectives
from archplace.search.pareto import dominated_by

NO_OPTION = "no placement option fits"


class Fate(IntEnum):
    """What became of an architecture, or of a placement option on it."""

    OPEN = 0
    """Not decided yet: only in a run that was stopped."""
    FRONT = 1
    DOMINATED = 2
    """Evaluated exactly; another point is better."""
    PRUNED = 3
    """Not evaluated: its bound is dominated by a point that was."""
    INFEASIBLE = 4


class Bound(IntEnum):
    """Which lower bound an architecture was last compared by."""

    GROUP = 1
    """That of an architecture which has the most of everything in a group of similar ones."""
    WORK = 2
    """Work of each kind of unit, longest path, and a perfectly balanced pipeline."""
    SCHEDULE = 3
    """Lower bounds of the operator schedules, and the best cut of layers under the memory's caps."""
    GROUP_WORK = 4
    """As WORK, of an architecture which has the most of everything in a group: the loosest and cheapest."""

    @property
    def of_groups(self) -> bool:
        """Whether one bound is that of all architectures of a group."""
        return self in (Bound.GROUP, Bound.GROUP_WORK)

    @property
    def by_work(self) -> bool:
        """Whether it is by the work of units and the longest path, not by schedules and cuts."""
        return self in (Bound.WORK, Bound.GROUP_WORK)


BOUND_NAMES = {
    Bound.GROUP: "best of a group",
    Bound.GROUP_WORK: "work on the best of a group",
    Bound.WORK: "work per kind of unit",
    Bound.SCHEDULE: "schedule and best cut",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A design point: one architecture with a placement of every workload, evaluated exactly."""

    architecture: int
    """Index in the enumeration."""
    number: int = 0
    """Which of the architecture's points: there are several where objectives trade placements against each other."""
    results: tuple[WorkloadResult, ...]
    """One per workload of the run."""
    values: tuple[float, ...]
    """By objective, all minimised."""
    best_case: tuple[float, ...]
    """The same where schedules that are not proven optimal have their lower bounds."""
    seconds_per_sample: float
    """Geometric mean over the workloads of step seconds / global batch."""
    lower_seconds_per_sample: float
    """The same of the lower step seconds."""

    @property
    def id(self) -> int | str:
        """What names the point: the architecture's number, for a further point of it with a second number."""
        return self.architecture if self.number == 0 else f"{self.architecture}.{self.number}"

    @property
    def proven(self) -> bool:
        """Whether these placements can be no faster: every schedule that matters is proven optimal."""
        return all(result.proven for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What evaluating one architecture gave: its points, or the reason why it has none."""

    architecture: int
    points: tuple[Evaluated, ...]
    options: tuple[str, ...] = ()
    """Of each workload what came of its placement options, as :attr:`Tried.options`."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an exploration is."""

    phase: str
    """``bounds``, ``evaluation`` or ``schedules``; of a workload explored alone with its name before."""
    bounded: int
    """Architectures that have a lower bound."""
    decided: int
    total: int
    evaluated: int
    front: int
    best: tuple[float, ...]
    """Best value of each objective on the front so far, NaN while it is empty."""
    fates: tuple[int, ...]
    """Architectures by :class:`Fate`."""
    unproven: int
    """Evaluated points whose schedules are still to be closed, because their best case could be on the front."""
    elapsed_s: float = 0.0
    """Seconds explored, in all processes that have worked on the run."""
    remaining_s: float | None = None
    """Seconds to the end of the phase; None while that cannot be told."""


@dataclass(slots=True, kw_only=True)
class Reasons:
    """Why architectures are infeasible: for each a text with a number, so that a million of them take little space."""

    code: NDArray[np.int16]
    """(n_archs,) index in ``texts``; −1 for none."""
    amount: FloatArray
    """(n_archs,) the number in the text."""
    texts: tuple[str, ...]
    """With ``{:.4g}`` where the number goes, or without a number."""
    own: dict[int, str] = field(default_factory=dict)
    """Reasons that only an evaluation gave."""

    @classmethod
    def none(cls, n_archs: int, texts: tuple[str, ...]) -> "Reasons":
        """Return a table in which no architecture has a reason."""
        return cls(code=np.full(n_archs, -1, dtype=np.int16), amount=np.zeros(n_archs), texts=texts)

    def get(self, architecture: int) -> str | None:
        """Return the reason of one architecture, or None."""
        if architecture in self.own:
            return self.own[architecture]
        code = int(self.code[architecture])
        return None if code < 0 else self.texts[code].format(self.amount[architecture])

    def items(self) -> Iterator[tuple[int, str]]:
        """Return architectures and reasons, by architecture."""
        for i in sorted(set(np.flatnonzero(self.code >= 0).tolist()) | set(self.own)):
            text = self.get(i)
            assert text is not None
            yield i, text

    def groups(self) -> Iterator[tuple[str, int, int]]:
        """Return each kind of reason: the text of its first architecture, how many have it, and that architecture."""
        for code in range(len(self.texts)):
            members = [i for i in np.flatnonzero(self.code == code).tolist() if i not in self.own]
            if members:
                yield self.texts[code].format(self.amount[members[0]]), len(members), members[0]
        for i, text in self.own.items():
            yield text, 1, i

    def __len__(self) -> int:
        return len(set(np.flatnonzero(self.code >= 0).tolist()) | set(self.own))


@dataclass(kw_only=True)
class Outcome:
    """Fates of all architectures and the points that were evaluated."""

    objectives: Objectives
    fate: NDArray[np.int8]
    """(n_archs,) codes of :class:`Fate`."""
    bound: FloatArray
    """(n_archs, n_objectives) lower bound of every objective; infinite where infeasible."""
    bound_kind: NDArray[np.int8]
    """(n_archs,) codes of :class:`Bound`."""
    records: dict[int, Record] = field(default_factory=dict)
    """By architecture."""
    reasons: Reasons
    """Why an architecture is infeasible, where it is the architecture's doing."""
    option_reasons: dict[str, str] = field(default_factory=dict)
    """Why a placement option is infeasible on every architecture: option to reason."""
    references_s: tuple[float, ...] = ()
    """(n_workloads,) with several workloads: least seconds per sample of each in the space."""
    gap: tuple[float, ...] | None = None
    """By objective, of a run that was not to be exact: how far the front may be from the true one, relative."""
    front: list[Evaluated] = field(default_factory=list)
    """The points on the front, in the order of their values."""

    def set_front(self, points: list[Evaluated]) -> None:
        """Renew the front: sorted by values, then by architecture."""
        self.front = sorted(points, key=lambda point: (point.values, point.architecture, point.number))
        self.__dict__.pop("_front_values", None)
        self.__dict__.pop("front_ids", None)

    @cached_property
    def _front_values(self) -> FloatArray:
        return np.array([point.values for point in self.front]).reshape(-1, len(self.objectives))

    @cached_property
    def front_ids(self) -> frozenset[tuple[int, int]]:
        """(architecture, number) of the points on the front."""
        return frozenset((point.architecture, point.number) for point in self.front)

    @property
    def points(self) -> Iterator[Evaluated]:
        """All evaluated points, by architecture and number."""
        for architecture in sorted(self.records):
            yield from self.records[architecture].points

    @property
    def n_points(self) -> int:
        """Number of evaluated points."""
        return sum(len(record.points) for record in self.records.values())

    @property
    def dominated(self) -> list[Evaluated]:
        """The evaluated points that are not on the front, by architecture and number."""
        return [point for point in self.points if (point.architecture, point.number) not in self.front_ids]

    def point(self, architecture: int, number: int = 0) -> Evaluated | None:
        """Return one evaluated point, or None."""
        record = self.records.get(architecture)
        return None if record is None or number >= len(record.points) else record.points[number]

    def witness(self, values: FloatArray) -> Evaluated | None:
        """Return the point of the front that dominates ``values`` ``(n_objectives,)``, or None."""
        by = int(dominated_by(values[None, :], self._front_values)[0])
        return self.front[by] if by >= 0 else None

    def witness_of(self, architecture: int) -> Evaluated | None:
        """Return the point of the front that dominates an architecture's first point or its bound, or None."""
        point = self.point(architecture)
        return self.witness(self.bound[architecture] if point is None else np.array(point.values))

    def main_reason(self) -> str | None:
        """Return the most frequent reason for infeasibility, with the numbers of one case; None where there is none.

        Reasons of single architectures count before those of placement options, unless no option fits at all.
        """
        kinds: Counter[str] = Counter()
        first: dict[str, str] = {}
        groups = list(self.reasons.groups())
        own = [(text, count) for text, count, _ in groups if NO_OPTION not in text]
        options = [(text, 1) for text in self.option_reasons.values()]
        for text, count in own or options or [(text, count) for text, count, _ in groups]:
            kind = re.sub(r"[\d.,]+", "#", text)
            kinds[kind] += count
            first.setdefault(kind, text)
        if not kinds:
            return None
        ((kind, _),) = kinds.most_common(1)
        return first[kind]
