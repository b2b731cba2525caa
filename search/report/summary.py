"""What a run explored: counts by fate, and reasons grouped so that a thousand of a kind are one line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.outcome import Fate, Reasons
from archplace.search.run import RunResult

MOST_NAMED = 12
"""Examples named per reason before the rest is only counted."""

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
    """Who has this reason, in the order given; of many architectures the first :data:`MOST_NAMED`."""


def group_reasons(reasons: Mapping[str, str]) -> tuple[ReasonGroup, ...]:
    """Group reasons by their text without numbers, most frequent first."""
    return _grouped([(reason, 1, (subject,)) for subject, reason in reasons.items()])


def group_architectures(reasons: Reasons) -> tuple[ReasonGroup, ...]:
    """Group the reasons of architectures as :func:`group_reasons`; of many architectures the first few are named.

    Only the least and the greatest number of each kind are written out, so that a million take little time.
    """
    own = np.array(sorted(reasons.own), dtype=np.int64)
    pieces: list[tuple[str, int, tuple[str, ...]]] = []
    for code, text in enumerate(reasons.texts):
        members = np.setdiff1d(np.flatnonzero(reasons.code == code), own, assume_unique=True)
        if len(members) == 0:
            continue
        amounts = reasons.amount[members]
        least, most = text.format(amounts.min()), text.format(amounts.max())
        named = tuple(str(i) for i in members[:MOST_NAMED].tolist())
        # What the greatest number adds to the text is its end of the range: it counts nobody.
        pieces += [(least, len(members), named), (most, 0, ())]
    pieces += [(reasons.own[i], 1, (str(i),)) for i in own.tolist()]
    return _grouped(pieces)


def _grouped(pieces: Sequence[tuple[str, int, tuple[str, ...]]]) -> tuple[ReasonGroup, ...]:
    groups: dict[str, list[tuple[str, int, tuple[str, ...]]]] = {}
    for piece in pieces:
        groups.setdefault(_NUMBER.sub("#", piece[0]), []).append(piece)
    found = [
        ReasonGroup(
            reason=_merged([reason for reason, _, _ in members]),
            count=sum(count for _, count, _ in members),
            subjects=tuple(subject for _, _, subjects in members for subject in subjects),
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
