"""What a run explored: counts by fate, and reasons grouped so that a thousand of a kind are one line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from archplace.search.explore import Fate
from archplace.search.run import RunResult

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many architectures had which fate."""

    raw: int
    """Combinations of the space's parameters before its constraints."""
    architectures: int
    """Those that the space admits: every one of them has one of the fates below."""
    front: int
    dominated: int
    """Evaluated exactly; another point is better."""
    pruned: int
    """Not evaluated: even the bound is dominated by a point that was."""
    infeasible: int
    undecided: int

    @classmethod
    def of(cls, result: RunResult) -> "Counts":
        """Count the fates of a run."""
        fates = np.bincount(result.outcome.fate, minlength=len(Fate)).tolist()
        return cls(
            raw=result.run.space.n_raw,
            architectures=len(result.architectures),
            front=fates[Fate.FRONT],
            dominated=fates[Fate.DOMINATED],
            pruned=fates[Fate.PRUNED],
            infeasible=fates[Fate.INFEASIBLE],
            undecided=fates[Fate.OPEN],
        )

    @property
    def evaluated(self) -> int:
        """Architectures that were evaluated exactly and fit."""
        return self.front + self.dominated

    @property
    def not_explored(self) -> str:
        """What has no answer, in words."""
        if self.undecided:
            return f"{self.undecided:,} architectures have no fate yet: the run was stopped early."
        outside = self.raw - self.architectures
        text = "Nothing: every architecture of the space has a fate."
        if outside:
            text += (
                f" The other {outside:,} raw combinations are outside the space's own area budget or constraints and "
                "were never architectures."
            )
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonGroup:
    """Reasons that differ only in their numbers."""

    reason: str
    """The text; where numbers differ, their range."""
    count: int
    subjects: tuple[str, ...]
    """Who has this reason, in the order given."""


def group_reasons(reasons: Mapping[str, str] | Mapping[int, str]) -> tuple[ReasonGroup, ...]:
    """Group reasons by their text without numbers, most frequent first."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for subject, reason in reasons.items():
        groups.setdefault(_NUMBER.sub("#", reason), []).append((str(subject), reason))
    found = [
        ReasonGroup(
            reason=_merged([reason for _, reason in members]),
            count=len(members),
            subjects=tuple(subject for subject, _ in members),
        )
        for members in groups.values()
    ]
    return tuple(sorted(found, key=lambda group: (-group.count, group.reason)))


def _merged(reasons: list[str]) -> str:
    """Return the common text with each number that differs as ``least…most``."""
    columns = list(zip(*(_NUMBER.findall(reason) for reason in reasons), strict=True))
    ranges = []
    for column in columns:
        least, most = min(column, key=_value), max(column, key=_value)
        ranges.append(least if least == most else f"{least}…{most}")
    pieces = _NUMBER.split(reasons[0])
    return "".join(piece + (ranges[i] if i < len(ranges) else "") for i, piece in enumerate(pieces))


def _value(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0  # such as the "1.2.3" of a version: not a quantity
