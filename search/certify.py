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

from archplace import __version__
from archplace.arch_configs.architectures import FloatArray
from archplace.search.choices import WorkloadResult
from archplace.search.evaluator import BoundBlock, Evaluator
from archplace.search.explore import SOLVER_LIMIT_S, Exploration, blocks_of, references
from archplace.search.fates import option_counts
from archplace.search.gap import stated_gap
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
        claimed, version = store.meta().get("digest"), store.meta().get("version")
        solved = set(store.records(solved=True))
    failures = _Failures()
    if claimed != job.digest:
        failures.add("inputs", "the store was written for other inputs than it says it has")
        return _certificate({}, {}, outcome, failures)
    if version != __version__:
        failures.add("version", f"written by archplace {version}, this is {__version__}: search again with this one")
    architectures = job.architectures()
    count = len(architectures)
    if outcome.objectives != job.objectives:
        failures.add("inputs", "the outcome has other objectives than the run")
        return _certificate({}, {}, outcome, failures)
    if not len(outcome.fate) == len(outcome.bound) == len(outcome.bound_kind) == len(outcome.reasons.code) == count:
        failures.add("fates", f"{len(outcome.fate)} architectures are stored, the space has {count}")
        return _certificate({}, {}, outcome, failures)
    evaluator = _evaluator(job, outcome, failures, jobs)
    anew = _bounds(evaluator, outcome)
    bounds, refused = anew.values, anew.code >= 0
    _check_bounds(bounds, outcome, failures)
    _check_reasons(anew, evaluator, outcome, failures)
    _check_gap(job, outcome, evaluator.references.gap, failures)
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
    evaluator = evaluator_of(job, job.architectures())
    if len(job.workloads) == 1:
        return evaluator
    tolerances = job.reference_tolerances
    found = references(evaluator, lambda alone: Exploration(alone, jobs=jobs, tolerances=tolerances).run())
    if not np.allclose(found.seconds, outcome.references_s or (0.0,), rtol=TOLERANCE, atol=0):
        failures.add(
            "references", f"stored {list(outcome.references_s)} s per sample, computed anew {list(found.seconds)}"
        )
    return evaluator.relative_to(found)


def _bounds(evaluator: Evaluator, outcome: Outcome) -> BoundBlock:
    """Return the bounds of all architectures as tight as the store says they are, and why some are infeasible."""
    count = len(evaluator.architectures)
    found = BoundBlock(
        values=np.zeros((count, len(evaluator.objectives))),
        code=np.full(count, -1, dtype=np.int16),
        amount=np.zeros(count),
    )
    for kind in Bound:
        wanted = np.flatnonzero(outcome.bound_kind == kind)
        if kind.of_groups and len(wanted) and evaluator.groups_of(kind) is None:
            continue  # no such bound: what claims to have it keeps the bound 0, which nothing dominates
        for some in blocks_of(evaluator, wanted, kind):
            block = evaluator.bounds(some, kind)
            found.values[some] = block.values
            found.code[some] = block.code
            found.amount[some] = block.amount
    return found


def _check_bounds(bounds: FloatArray, stored: Outcome, failures: _Failures) -> None:
    old = stored.bound
    same = (np.isclose(bounds, old, rtol=TOLERANCE, atol=0) | (np.isinf(bounds) & np.isinf(old))).all(axis=1)
    for i in np.flatnonzero(~same).tolist():
        failures.add("bound", f"architecture {i}: stored {old[i].tolist()}, computed anew {bounds[i].tolist()}")


def _check_reasons(anew: BoundBlock, evaluator: Evaluator, stored: Outcome, failures: _Failures) -> None:
    reasons = stored.reasons
    if reasons.texts != evaluator.reason_texts or stored.option_reasons != evaluator.option_reasons:
        failures.add("reasons", "stored texts of reasons are not those of the inputs")
    wrong = (reasons.code != anew.code) | ~np.isclose(reasons.amount, anew.amount, rtol=TOLERANCE, atol=0)
    for i in np.flatnonzero(wrong).tolist():
        failures.add("reasons", f"architecture {i}: another reason is stored than found anew")
    own = {i: record.reason for i, record in stored.records.items() if record.reason is not None}
    if own != reasons.own:
        failures.add("reasons", "stored reasons of evaluated architectures are not those of their records")


def _check_gap(job: Run, stored: Outcome, references_gap: float, failures: _Failures) -> None:
    """An exact run states no gap, another one that which its bounds and points leave."""
    exact = job.tolerance == 0
    if exact != (stored.gap is None):
        failures.add("gap", f"stored {stored.gap}, the run was {'' if exact else 'not '}to be exact")
        stored.gap = None
    elif stored.gap is not None:
        left = stated_gap(stored, np.empty((0, len(stored.objectives))), references_gap)
        if len(stored.gap) != len(left) or not np.allclose(stored.gap, left, rtol=1e-6, atol=TOLERANCE):
            failures.add("gap", f"stored {list(stored.gap)}, bounds and points leave {list(left)}")
            stored.gap = None


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
        for mine, theirs in zip(before.results, after.results, strict=False):
            if not _same_result(mine, theirs):
                failures.add("point", f"design {before.id}: another placement than found anew")
        for what in ("values", "best_case", "seconds_per_sample", "lower_seconds_per_sample"):
            one, other = np.atleast_1d(getattr(before, what)), np.atleast_1d(getattr(after, what))
            if one.shape != other.shape or not np.allclose(one, other, rtol=TOLERANCE, atol=0):
                failures.add("point", f"design {before.id}: stored {what} {one.tolist()}, found anew {other.tolist()}")
    if old.reason != new.reason:
        failures.add("reasons", f"architecture {i}: stored {old.reason!r}, found anew {new.reason!r}")
    if old.options != new.options:
        failures.add("options", f"architecture {i}: stored fates of its placement options differ from those found anew")


def _same_result(one: WorkloadResult, other: WorkloadResult) -> bool:
    mine, theirs = one.placement, other.placement
    found, again = (
        np.array((cut.time_s, cut.load_s, cut.tail_s, *cut.loads_s, lower))
        for cut, lower in ((mine.cut, one.lower_step_s), (theirs.cut, other.lower_step_s))
    )
    return (
        mine.strategy == theirs.strategy
        and (mine.cut.held, mine.cut.policies) == (theirs.cut.held, theirs.cut.policies)
        and bool(np.allclose(found, again, rtol=TOLERANCE, atol=0))
    )


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
    for point in front:
        near = (np.array(point.values) <= np.array(point.best_case) * (slack + TOLERANCE)).all()
        if not (point.proven or near or point.architecture in solved):
            failures.add("point", f"design {point.id}: on the front with schedules that were never solved")
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
