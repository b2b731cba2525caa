"""The fate of every placement option on every architecture: what the certificate counts.

An option shares its architecture's fate where that was never evaluated: pruned with it, by the same point of the front,
because no option's bound is below the architecture's; or infeasible with it. On an evaluated architecture it is part of
a point on the front, evaluated and dominated, pruned because its bound is beaten by the architecture's own points, or
infeasible. Options that no architecture can have (they do not divide the model, or nothing fits the memory) are
infeasible everywhere, each with its reason.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from archplace.search.choices import INFEASIBLE, KEPT, LOST, PRUNED
from archplace.search.evaluator import Evaluator
from archplace.search.outcome import Fate, Outcome, Record

_FATES = {LOST: Fate.DOMINATED, PRUNED: Fate.PRUNED, INFEASIBLE: Fate.INFEASIBLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionFate:
    """What became of one placement option of one workload on one architecture."""

    workload: str
    option: str
    fate: Fate
    by: int | str | None
    """The design point that beats it; None where nothing does."""
    reason: str | None


def option_counts(outcome: Outcome, evaluator: Evaluator) -> dict[Fate, int]:
    """Return how many architecture × workload × placement option have which fate; they add up to all there are."""
    found: Counter[Fate] = Counter()
    by_fate = {fate: np.flatnonzero(outcome.fate == fate) for fate in Fate}
    for w, search in enumerate(evaluator.searches):
        each = search.n_options
        for fate in (Fate.OPEN, Fate.PRUNED):
            available = int(search.available(by_fate[fate]).sum()) if len(search.spaces) else 0
            found[fate] += available
            found[Fate.INFEASIBLE] += each * len(by_fate[fate]) - available
        found[Fate.INFEASIBLE] += each * len(by_fate[Fate.INFEASIBLE])
        for fate in (Fate.FRONT, Fate.DOMINATED):
            own = search.available(by_fate[fate])
            for column, architecture in enumerate(by_fate[fate].tolist()):
                fates = option_fates(outcome, architecture, w)
                listed = [one for one, has in zip(fates, own[:, column].tolist(), strict=False) if has]
                found.update(listed)
                found[Fate.INFEASIBLE] += each - len(listed)
    return {fate: found[fate] for fate in Fate}


def option_fates(outcome: Outcome, architecture: int, workload: int) -> list[Fate]:
    """Return the fates of a workload's feasible options on an evaluated architecture, as its ``spaces``."""
    record = outcome.records.get(architecture)
    if record is None or len(record.options) <= workload:
        return []
    on_front = {
        str(point.results[workload].option)
        for point in record.points
        if (point.architecture, point.number) in outcome.front_ids
    }
    text = record.options[workload]
    kept = _kept_options(record, workload)
    fates, at = [], 0
    for code in text:
        if code == KEPT:
            # The kept options stand in the order of the text.
            named = kept[at] if at < len(kept) else ""
            fates.append(Fate.FRONT if named in on_front else Fate.DOMINATED)
            at += 1
        else:
            fates.append(_FATES[code])
    return fates


def _kept_options(record: Record, workload: int) -> list[str]:
    """Return the options of a record's points, in the order of the workload's options."""
    options = {point.results[workload].option for point in record.points}
    return [str(option) for option in sorted(options)]


def options_of(outcome: Outcome, evaluator: Evaluator, architecture: int) -> list[OptionFate]:
    """Return the fate of every placement option on one architecture, refused ones with their reasons at the end."""
    found: list[OptionFate] = []
    fate = Fate(int(outcome.fate[architecture]))
    by = outcome.witness_of(architecture)
    reason = outcome.reasons.get(architecture)
    own = outcome.point(architecture)
    for w, search in enumerate(evaluator.searches):
        fates = option_fates(outcome, architecture, w)
        available = search.available(slice(architecture, architecture + 1))[:, 0].tolist()
        for i, space in enumerate(search.spaces):
            if not available[i]:
                continue  # an HBM capacity that other architectures bring
            each = fates[i] if fates else fate
            why, who = None, None
            if each is Fate.INFEASIBLE:
                why = reason or "beyond a budget"
            elif each in (Fate.DOMINATED, Fate.PRUNED):
                who = by.id if by is not None else own.id if own is not None else None
            found.append(
                OptionFate(workload=search.workload.name, option=str(space.option), fate=each, by=who, reason=why)
            )
        found += [
            OptionFate(workload=search.workload.name, option=option, fate=Fate.INFEASIBLE, by=None, reason=text)
            for option, text in search.reasons.items()
        ]
    return found
