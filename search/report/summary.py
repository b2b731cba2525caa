"""What a run explored: counts by fate, and reasons grouped so that a thousand of a kind are one line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.fates import option_fates
from archplace.search.offered import Offered
from archplace.search.outcome import BOUND_NAMES, Bound, Fate, Reasons
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
    designs_on_front: int
    """An architecture has several where objectives trade placements on it against each other."""
    designs_evaluated: int
    pruned_by: Mapping[str, int]
    """Pruned architectures by the bound that was compared."""
    options: Mapping[str, int]
    """Architecture × workload × placement option by fate: they add up to all there are. Empty for an unfinished run."""

    @classmethod
    def of(cls, result: RunResult) -> "Counts":
        """Count the fates of a run."""
        outcome = result.outcome
        fates = np.bincount(outcome.fate, minlength=len(Fate)).tolist()
        kinds = np.bincount(outcome.bound_kind[outcome.fate == Fate.PRUNED], minlength=max(Bound) + 1).tolist()
        return cls(
            designs_on_front=len(outcome.front),
            designs_evaluated=outcome.n_points,
            pruned_by={name: kinds[kind] for kind, name in BOUND_NAMES.items() if kinds[kind]},
            options=options_by_fate(result),
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
            return f"{self.undecided:,} architectures have no fate yet: the run is not finished."
        outside = self.raw - self.architectures
        text = "Nothing: every architecture of the space has a fate."
        if outside:
            text += (
                f" The other {outside:,} raw combinations are outside the space's own area budget or constraints and "
                "were never architectures."
            )
        return text


def options_by_fate(result: RunResult) -> dict[str, int]:
    """Return how many architecture × workload × placement option have which fate; they add up to all there are.

    As :func:`archplace.search.fates.option_counts`, from what the outcome says of the options alone. Empty for an
    unfinished run, which does not know yet what no architecture can have.
    """
    if result.partial:
        return {}
    run, outcome = result.run, result.outcome
    hbm = result.architectures.hbm_bytes
    capacities = run.choices.hbm_bytes or tuple(sorted(set(hbm.tolist())))
    found = dict.fromkeys(Fate, 0)
    undecided = {fate: outcome.fate == fate for fate in (Fate.OPEN, Fate.PRUNED)}
    total = 0
    for w, workload in enumerate(run.workloads):
        prefix = f"{workload.name}: " if len(run.workloads) > 1 else ""
        offered = Offered.of(workload, run.cluster, run.choices, capacities)
        total += len(hbm) * offered.n_options
        for option in offered.options:
            if f"{prefix}{option}" in outcome.option_reasons:
                continue
            own = hbm == option.hbm_bytes if run.choices.hbm_bytes is None else np.ones(len(hbm), dtype=np.bool_)
            for fate, where in undecided.items():
                found[fate] += int((own & where).sum())
        for architecture in outcome.records:
            if outcome.fate[architecture] in (Fate.FRONT, Fate.DOMINATED):
                for fate in option_fates(outcome, architecture, w):
                    found[fate] += fate is not Fate.INFEASIBLE
    found[Fate.INFEASIBLE] = total - sum(found.values())
    return {fate.name.lower(): count for fate, count in found.items()}


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
