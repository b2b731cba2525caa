"""Check a finished run again, from its inputs: bounds, evaluated points, dominance and counts.

Nothing of the stored result is trusted. Every architecture's lower bound is computed anew; every evaluated point is
evaluated anew, its schedules solved anew and verified against the constraints; then each fate must follow:

* *front*: no evaluated point dominates it;
* *dominated*: the named point dominates it, and even its best case (where its schedules are not proven optimal);
* *pruned*: its lower bound is dominated by the named point, so that none of its placements can be on the front;
* *infeasible*: no placement option fits, or a budget is exceeded.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.search.explore import Evaluated, Exploration, Fate, Outcome
from archplace.search.pareto import front_mask
from archplace.search.run import stored_run
from archplace.search.store import Store

TOLERANCE = 1e-9
"""Relative difference that two computations of the same seconds may have."""

_SHOWN = 5
"""Failures that are told of each kind; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was checked, and what did not hold."""

    counts: dict[str, int]
    """Architectures by fate."""
    points: int
    """Points evaluated anew."""
    failures: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every fate follows from the inputs."""
        return not self.failures


def certify(folder: Path, *, jobs: int | None = None) -> Certificate:
    """Check the run in ``folder``; raises :class:`StoreError` when there is none or it is not finished."""
    with Store.open(folder) as store:
        job, outcome = stored_run(store)
        claimed = store.meta().get("digest")
    failures = _Failures()
    if claimed != job.digest:
        failures.add("inputs", "the store was written for other inputs than it says it has")
    architectures = job.space.enumerate()
    anew = Exploration(architectures, job.workloads, job.cluster, job.choices, jobs=jobs)
    anew.bound()
    if not len(outcome.fate) == len(outcome.by) == len(outcome.bound_seconds_per_sample) == len(architectures):
        failures.add("fates", f"{len(outcome.fate)} architectures are stored, the space has {len(architectures)}")
        return Certificate(counts={}, points=0, failures=failures.told())
    _check_bounds(anew.outcome, outcome, failures)
    found = _check_points(anew, outcome, failures)
    _check_fates(anew.outcome, outcome, found, architectures.area_mm2, failures)
    counts = {fate.name.lower(): int((outcome.fate == fate).sum()) for fate in Fate}
    if sum(counts.values()) != len(architectures) or counts["open"]:
        failures.add("counts", f"{counts} do not give each of {len(architectures)} architectures one fate")
    return Certificate(counts=counts, points=len(outcome.points), failures=failures.told())


class _Failures:
    """Failures by kind."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def add(self, kind: str, text: str) -> None:
        self._texts.setdefault(kind, []).append(text)

    def told(self) -> tuple[str, ...]:
        lines = []
        for kind, texts in self._texts.items():
            lines += [f"{kind}: {text}" for text in texts[:_SHOWN]]
            if len(texts) > _SHOWN:
                lines.append(f"{kind}: and {len(texts) - _SHOWN} more")
        return tuple(lines)


def _check_bounds(anew: Outcome, stored: Outcome, failures: _Failures) -> None:
    new, old = anew.bound_seconds_per_sample, stored.bound_seconds_per_sample
    same = np.isclose(new, old, rtol=TOLERANCE, atol=0) | (np.isinf(new) & np.isinf(old))
    for i in np.flatnonzero(~same).tolist():
        failures.add("bound", f"architecture {i}: stored {old[i]:.9g} s per sample, computed anew {new[i]:.9g}")


def _check_points(anew: Exploration, stored: Outcome, failures: _Failures) -> dict[int, Evaluated]:
    """Return what is found anew of all stored points, and of those architectures that only evaluation can rule out."""
    ids = np.array(sorted(stored.points), dtype=np.int64)
    if len(ids) and not 0 <= ids[0] <= ids[-1] < len(stored.fate):
        failures.add("point", "a stored point is of an architecture that the space does not have")
        return {}
    ruled_out = np.flatnonzero((stored.fate == Fate.INFEASIBLE) & (anew.outcome.fate != Fate.INFEASIBLE))
    found = anew.reevaluate(np.union1d(ids, ruled_out), refined=[i for i in ids.tolist() if stored.points[i].proven])
    for i in ids.tolist():
        old, new = stored.points[i], found.get(i)
        if new is None:
            failures.add("point", f"architecture {i}: no placement fits, a step time is stored")
            continue
        # A stored point may have been left as a list schedule; it must be reachable and not better than possible.
        if old.seconds_per_sample < new.lower_seconds_per_sample * (1 - TOLERANCE):
            failures.add(
                "point", f"architecture {i}: {old.seconds_per_sample:.9g} s per sample is faster than possible"
            )
        if old.proven and not _close(old, new):
            failures.add(
                "point",
                f"architecture {i}: stored {old.seconds_per_sample:.9g} s per sample as proven, "
                f"evaluated anew {new.seconds_per_sample:.9g}",
            )
        if old.lower_seconds_per_sample > new.seconds_per_sample * (1 + TOLERANCE):
            failures.add("point", f"architecture {i}: its stored best case is slower than what it reaches")
    return found


def _close(old: Evaluated, new: Evaluated) -> bool:
    return bool(np.isclose(old.seconds_per_sample, new.seconds_per_sample, rtol=TOLERANCE, atol=0))


def _check_fates(
    anew: Outcome, stored: Outcome, found: dict[int, Evaluated], area_mm2: FloatArray, failures: _Failures
) -> None:
    ids = np.array(sorted(stored.points), dtype=np.int64)
    values = np.array([[stored.points[i].seconds_per_sample, area_mm2[i]] for i in ids.tolist()]).reshape(-1, 2)
    front = set(ids[front_mask(values)].tolist())
    for i, fate in enumerate(stored.fate.tolist()):
        by = int(stored.by[i])
        if (fate == Fate.FRONT) != (i in front):
            failures.add("front", f"architecture {i}: {'on' if i in front else 'not on'} the front of the points")
        elif fate == Fate.INFEASIBLE:
            if anew.fate[i] != Fate.INFEASIBLE and i in found:
                failures.add("infeasible", f"architecture {i}: a placement within the budgets exists")
        elif fate in (Fate.DOMINATED, Fate.PRUNED):
            if by not in front:
                failures.add("dominance", f"architecture {i}: named is {by}, which is not on the front")
                continue
            best_case = anew.bound_seconds_per_sample[i]
            if fate == Fate.DOMINATED:
                # What is found anew, not what the store says of itself.
                best_case = found[i].lower_seconds_per_sample if i in found else np.nan
            winner = stored.points[by].seconds_per_sample
            beaten = winner <= best_case * (1 + TOLERANCE) and area_mm2[by] <= area_mm2[i]
            if not beaten:
                failures.add("dominance", f"architecture {i}: point {by} does not dominate its best case")
