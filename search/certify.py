"""Check a finished run again, from its inputs: bounds, evaluated points, dominance and counts.

Nothing of the stored result is trusted. Every architecture's lower bound is computed anew; every evaluated point is
evaluated anew, its schedules solved anew and verified against the constraints; then each fate must follow:

* *front*: no evaluated point dominates it;
* *dominated*: a point of the front dominates it, and even its best case (where its schedules are not proven optimal);
* *pruned*: its lower bound is dominated by a point of the front, so that none of its placements can be on the front;
* *infeasible*: no placement option fits, or a budget is exceeded.

The same holds of every placement option on the architectures that were evaluated. A run that was not to be exact must
keep the gap that it states.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.evaluator import Evaluator
from archplace.search.explore import BLOCK, SOLVER_LIMIT_S, Exploration, references_s
from archplace.search.fates import option_counts
from archplace.search.outcome import Bound, Evaluated, Fate, Outcome, Record
from archplace.search.pareto import dominated_by, front_mask
from archplace.search.pool import SchedulePool
from archplace.search.run import evaluator_of, stored_run
from archplace.search.runfile import Run
from archplace.search.schedule import ScheduleCache
from archplace.search.store import Store

TOLERANCE = 1e-9
"""Relative difference that two computations of the same value may have."""

_SHOWN = 5
"""Failures that are told of each kind; the rest is counted."""

_AT_ONCE = 256
"""Architectures evaluated anew at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was checked, and what did not hold."""

    counts: dict[str, int]
    """Architectures by fate."""
    option_counts: dict[str, int]
    """Architecture × workload × placement option by fate."""
    points: int
    """Points evaluated anew."""
    gap: tuple[float, ...] | None
    """By objective, how far the front may be from the true one; None for an exact one."""
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
        solved = set(store.records(solved=True))
    failures = _Failures()
    if claimed != job.digest:
        failures.add("inputs", "the store was written for other inputs than it says it has")
    architectures = job.space.enumerate()
    count = len(architectures)
    if outcome.objectives != job.objectives:
        failures.add("inputs", "the outcome has other objectives than the run")
        return _certificate({}, {}, outcome, failures)
    if not len(outcome.fate) == len(outcome.bound) == len(outcome.bound_kind) == len(outcome.reasons.code) == count:
        failures.add("fates", f"{len(outcome.fate)} architectures are stored, the space has {count}")
        return _certificate({}, {}, outcome, failures)
    evaluator = _evaluator(job, outcome, failures, jobs)
    bounds, refused = _bounds(evaluator, outcome)
    _check_bounds(bounds, outcome, failures)
    found = _check_points(evaluator, outcome, refused, solved, failures, jobs)
    _check_fates(bounds, refused, outcome, found, solved, failures)
    counts = {fate.name.lower(): int((outcome.fate == fate).sum()) for fate in Fate}
    if sum(counts.values()) != count or counts["open"]:
        failures.add("counts", f"{counts} do not give each of {count} architectures one fate")
    options = {fate.name.lower(): number for fate, number in option_counts(outcome, evaluator).items()}
    return _certificate(counts, options, outcome, failures)


def _certificate(
    counts: dict[str, int], options: dict[str, int], outcome: Outcome, failures: "_Failures"
) -> Certificate:
    return Certificate(
        counts=counts, option_counts=options, points=outcome.n_points, gap=outcome.gap, failures=failures.told()
    )


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


def _evaluator(job: Run, outcome: Outcome, failures: _Failures, jobs: int | None) -> Evaluator:
    """Return the run's evaluator; what the worst case is relative to is found anew."""
    evaluator = evaluator_of(job, job.space.enumerate())
    if len(job.workloads) == 1:
        return evaluator
    references = references_s(evaluator, lambda alone: Exploration(alone, jobs=jobs).run())
    if not np.allclose(references, outcome.references_s or (0.0,), rtol=TOLERANCE, atol=0):
        failures.add(
            "references", f"stored {list(outcome.references_s)} s per sample, computed anew {list(references)}"
        )
    return evaluator_of(job, evaluator.architectures, references)


def _bounds(evaluator: Evaluator, outcome: Outcome) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the bounds of all architectures as tight as the store says they are, and which are infeasible by them."""
    count = len(evaluator.architectures)
    bounds = np.zeros((count, len(evaluator.objectives)))
    refused = np.zeros(count, dtype=np.bool_)
    for kind in Bound:
        wanted = np.flatnonzero(outcome.bound_kind == kind)
        if kind is Bound.GROUP and len(wanted) and evaluator.groups is None:
            continue  # no such bound: what claims to have it keeps the bound 0, which nothing dominates
        step = len(wanted) if kind is Bound.GROUP else BLOCK
        for start in range(0, len(wanted), max(step, 1)):
            some = wanted[start : start + step]
            block = evaluator.bounds(some, kind)
            bounds[some] = block.values
            refused[some] = block.code >= 0
    return bounds, refused


def _check_bounds(bounds: FloatArray, stored: Outcome, failures: _Failures) -> None:
    old = stored.bound
    same = (np.isclose(bounds, old, rtol=TOLERANCE, atol=0) | (np.isinf(bounds) & np.isinf(old))).all(axis=1)
    for i in np.flatnonzero(~same).tolist():
        failures.add("bound", f"architecture {i}: stored {old[i].tolist()}, computed anew {bounds[i].tolist()}")


def _check_points(
    evaluator: Evaluator,
    stored: Outcome,
    refused: NDArray[np.bool_],
    solved: set[int],
    failures: _Failures,
    jobs: int | None,
) -> dict[int, Record]:
    """Return what is found anew of all stored records, and of those architectures that only evaluation can rule out."""
    ids = np.array(sorted(stored.records), dtype=np.int64)
    if len(ids) and not 0 <= ids[0] <= ids[-1] < len(stored.fate):
        failures.add("point", "a stored point is of an architecture that the space does not have")
        return {}
    ruled_out = np.flatnonzero((stored.fate == Fate.INFEASIBLE) & ~refused)
    found: dict[int, Record] = {}
    cache = ScheduleCache(time_limit_s=SOLVER_LIMIT_S)
    wanted = np.union1d(ids, ruled_out)
    with SchedulePool(cache, jobs=jobs) as pool:
        for solve in (False, True):
            some = np.array([i for i in wanted.tolist() if (i in solved) == solve], dtype=np.int64)
            for start in range(0, len(some), _AT_ONCE):
                batch = some[start : start + _AT_ONCE]
                options = evaluator.bounds(batch, Bound.SCHEDULE).options
                if solve:
                    pool.fill(evaluator.open_problems(batch, options))
                records = evaluator.evaluate(batch, options, cache=cache, solve=solve)
                found.update({record.architecture: record for record in records})
    for i in ids.tolist():
        _check_record(stored.records[i], found[i], failures)
    return found


def _check_record(old: Record, new: Record, failures: _Failures) -> None:
    i = old.architecture
    if [point.number for point in old.points] != list(range(len(new.points))):
        failures.add("point", f"architecture {i}: stored {len(old.points)} points, found anew {len(new.points)}")
        return
    for before, after in zip(old.points, new.points, strict=True):
        if [result.option for result in before.results] != [result.option for result in after.results]:
            failures.add("point", f"design {before.id}: other placement options than found anew")
        for what in ("values", "best_case", "seconds_per_sample", "lower_seconds_per_sample"):
            one, other = np.atleast_1d(getattr(before, what)), np.atleast_1d(getattr(after, what))
            if one.shape != other.shape or not np.allclose(one, other, rtol=TOLERANCE, atol=0):
                failures.add("point", f"design {before.id}: stored {what} {one.tolist()}, found anew {other.tolist()}")
    if old.options != new.options:
        failures.add("options", f"architecture {i}: stored fates of its placement options differ from those found anew")


def _slack(outcome: Outcome) -> FloatArray:
    if outcome.gap is None:
        return np.ones(len(outcome.objectives))
    return 1 + np.array(outcome.gap)


def _check_fates(
    bounds: FloatArray,
    refused: NDArray[np.bool_],
    stored: Outcome,
    found: dict[int, Record],
    solved: set[int],
    failures: _Failures,
) -> None:
    slack = _slack(stored)
    points = [point for record in stored.records.values() for point in record.points]
    values = np.array([point.values for point in points]).reshape(-1, bounds.shape[1])
    mask = front_mask(values)
    front = [point for point, on_front in zip(points, mask.tolist(), strict=True) if on_front]
    if {(point.architecture, point.number) for point in front} != stored.front_ids:
        failures.add("front", "the stored front is not the front of the stored points")
    on_front = {point.architecture for point in front}
    values = np.array([point.values for point in front]).reshape(-1, bounds.shape[1])
    off = [point for point in points if (point.architecture, point.number) not in stored.front_ids]
    _check_best_cases(off, values, slack, solved, failures)
    beaten = dominated_by(bounds * (slack + TOLERANCE), values) >= 0
    for i, fate in enumerate(stored.fate.tolist()):
        evaluated = i in stored.records
        if (fate == Fate.FRONT) != (i in on_front):
            failures.add("front", f"architecture {i}: {'on' if i in on_front else 'not on'} the front of the points")
        elif fate == Fate.INFEASIBLE:
            if not refused[i] and (i not in found or found[i].points):
                failures.add("infeasible", f"architecture {i}: a placement within the budgets exists")
        elif refused[i]:
            failures.add("infeasible", f"architecture {i}: no placement within the budgets exists")
        elif (fate == Fate.DOMINATED) != (evaluated and i not in on_front):
            failures.add("point", f"architecture {i}: {'evaluated' if evaluated else 'not evaluated'}, fate {fate}")
        elif fate == Fate.PRUNED and not beaten[i]:
            failures.add("dominance", f"architecture {i}: no point of the front dominates its bound")


def _check_best_cases(
    points: list[Evaluated], front: FloatArray, slack: FloatArray, solved: set[int], failures: _Failures
) -> None:
    """Check that the front dominates even the best case of the points that are not on it.

    Where the solver left a gap, the best case may be out of reach: then the point itself must be dominated, which it is
    when the front is the front of the points.
    """
    if not points:
        return
    beaten = dominated_by(np.array([point.best_case for point in points]) * (slack + TOLERANCE), front) >= 0
    for point, fine in zip(points, beaten.tolist(), strict=True):
        if not fine and (point.proven or point.architecture not in solved):
            failures.add("dominance", f"design {point.id}: no point of the front dominates its best case")
