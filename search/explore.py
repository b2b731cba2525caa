"""Explore a design space: bounds for every architecture, exact evaluation where a bound could still enter the front.

The result is the front of the whole space. An architecture is left out only when the most optimistic figures it could
have are dominated by a point that was evaluated exactly; which point that was is recorded.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Pricer
from archplace.search.pareto import dominated_by, front_mask
from archplace.search.pool import SchedulePool
from archplace.search.schedule import ScheduleCache, ScheduleProblem
from archplace.search.workload_search import Choices, WorkloadResult, WorkloadSearch
from archplace.workloads import Workload

SOLVER_LIMIT_S = 0.2
"""Deterministic time that a schedule gets whose bound and list schedule do not meet."""

NO_OPTION = "no placement option fits"

REFINED_AT_ONCE = 32
"""Points whose schedules are solved before the front is renewed: what is stored survives, what is beaten is skipped."""


class Fate(IntEnum):
    """What became of an architecture."""

    OPEN = 0
    """Not decided yet: only in a run that was stopped."""
    FRONT = 1
    DOMINATED = 2
    """Evaluated exactly; another point is better."""
    PRUNED = 3
    """Not evaluated: its bound is dominated by a point that was."""
    INFEASIBLE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """One architecture, evaluated exactly."""

    architecture: int
    """Index in the enumeration."""
    results: tuple[WorkloadResult, ...]
    """One per workload of the run."""
    seconds_per_sample: float
    """Geometric mean over the workloads of step seconds / global batch: what the search minimises."""
    lower_seconds_per_sample: float
    """The same of the lower step seconds."""

    @property
    def proven(self) -> bool:
        """Whether nothing faster exists on this architecture."""
        return all(result.proven for result in self.results)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Fates of all architectures and the points that were evaluated."""

    fate: NDArray[np.int8]
    """(n_archs,) codes of :class:`Fate`."""
    bound_seconds_per_sample: FloatArray
    """(n_archs,) lower bound of the objective."""
    by: NDArray[np.int64]
    """(n_archs,) the evaluated architecture that dominates this one (or its bound); −1 for none."""
    points: dict[int, Evaluated] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    """Why an architecture is infeasible, where it is the architecture's doing."""
    option_reasons: dict[str, str] = field(default_factory=dict)
    """Why a placement option is infeasible on every architecture: option to reason."""

    def main_reason(self) -> str | None:
        """Return the most frequent reason for infeasibility, with the numbers of one case; None where there is none.

        Reasons of single architectures count before those of placement options, unless no option fits at all.
        """
        own = [text for text in self.reasons.values() if NO_OPTION not in text]
        texts = own or list(self.option_reasons.values()) or list(self.reasons.values())
        if not texts:
            return None
        kinds = Counter(re.sub(r"[\d.,]+", "#", text) for text in texts)
        (kind, _), *_ = kinds.most_common(1)
        return next(text for text in texts if re.sub(r"[\d.,]+", "#", text) == kind)

    @property
    def front(self) -> list[Evaluated]:
        """The points on the front, smallest objective (fastest) first."""
        ids = [int(i) for i in np.flatnonzero(self.fate == Fate.FRONT)]
        return sorted((self.points[i] for i in ids), key=lambda p: (p.seconds_per_sample, p.architecture))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an exploration is."""

    decided: int
    total: int
    evaluated: int
    front: int
    best_samples_per_s: float
    smallest_area_mm2: float
    unproven: int
    """Evaluated points whose schedules are still to be closed, because their best case could be on the front."""


class Exploration:
    """The search over one design space for one or more workloads."""

    def __init__(
        self,
        architectures: Architectures,
        workloads: Sequence[Workload],
        cluster: Cluster,
        choices: Choices,
        *,
        cache: ScheduleCache | None = None,
        jobs: int | None = None,
    ) -> None:
        self.architectures = architectures
        self._choices = choices
        self._max_step_s = np.inf if choices.max_step_s is None else choices.max_step_s
        self.cache = cache if cache is not None else ScheduleCache(time_limit_s=SOLVER_LIMIT_S)
        self._jobs = jobs
        self._tried: set[int] = set()
        pricer = Pricer(architectures, cluster)
        self.searches = [WorkloadSearch(workload, architectures, pricer, cluster, choices) for workload in workloads]
        count = len(architectures)
        self.outcome = Outcome(
            fate=np.zeros(count, dtype=np.int8),
            bound_seconds_per_sample=np.full(count, np.inf),
            by=np.full(count, -1, dtype=np.int64),
        )

    def bound(self) -> None:
        """Bound every architecture, and sort out those that no option or budget allows."""
        logs = []
        for search in self.searches:
            search.compute_bounds()
            prefix = f"{search.workload.name}: " if len(self.searches) > 1 else ""
            self.outcome.option_reasons.update({prefix + key: text for key, text in search.reasons.items()})
            step = search.bound_s.min(axis=0, initial=np.inf)
            for i in np.flatnonzero(~np.isfinite(step)).tolist():
                self.outcome.reasons.setdefault(i, f"{search.workload.name}: {NO_OPTION}")
            late = np.isfinite(step) & (step > self._max_step_s)
            for i in np.flatnonzero(late).tolist():
                self.outcome.reasons.setdefault(
                    i, f"step time is at least {step[i]:.4g} s, the budget is {self._max_step_s:.4g} s"
                )
            with np.errstate(divide="ignore"):
                logs.append(np.log(step / search.workload.global_batch))
        self.outcome.bound_seconds_per_sample = np.exp(np.mean(logs, axis=0))
        area, most = self.architectures.area_mm2, self._choices.max_area_mm2
        if most is not None:
            for i in np.flatnonzero(area > most).tolist():
                self.outcome.reasons.setdefault(i, f"area {area[i]:.1f} mm² exceeds the budget of {most:.1f} mm²")
        self.outcome.fate[list(self.outcome.reasons)] = Fate.INFEASIBLE

    def run(
        self, *, stored: Sequence[Evaluated] = (), on_points: Callable[[list[Evaluated], Progress], None] | None = None
    ) -> Outcome:
        """Evaluate until every architecture has its fate; ``on_points`` hears of every batch as it is done.

        ``stored`` are points of an earlier, interrupted run of the same inputs. Each batch is the front of the bounds
        of what is still open: the architectures that could be best. Schedules are first bracketed; a solver closes the
        brackets of those points that are not beaten whatever their schedules are.
        """
        self._admit(list(stored))
        while len(batch := self._promising()):
            self._take(self._evaluate(batch), on_points)
        tried = self._tried
        with SchedulePool(self.cache, jobs=self._jobs) as pool:
            while len(batch := self._undecided()[:REFINED_AT_ONCE]):
                tried.update(batch.tolist())
                pool.fill([problem for i in batch.tolist() for problem in self._open_problems(i)])
                self._take([point for i in batch.tolist() for point in self._refine(i)], on_points)
        return self.outcome

    def _open_problems(self, architecture: int) -> list[ScheduleProblem]:
        results = self.outcome.points[architecture].results
        return [
            problem
            for search, result in zip(self.searches, results, strict=True)
            for problem in search.open_problems(architecture, result.placement.step_s)
        ]

    def _take(self, points: list[Evaluated], on_points: Callable[[list[Evaluated], Progress], None] | None) -> None:
        self._admit(points)
        if on_points is not None:
            on_points(points, self.progress())

    def _promising(self) -> NDArray[np.int64]:
        """Return the front of the bounds of what is open."""
        still_open = np.flatnonzero(self.outcome.fate == Fate.OPEN)
        bounds = self._objectives(still_open, self.outcome.bound_seconds_per_sample[still_open])
        return still_open[front_mask(bounds)]

    def _undecided(self) -> NDArray[np.int64]:
        """Return the front of the best cases of what is unproven: closing its brackets may settle the others."""
        ids = self._unproven()
        best = self._objectives(ids, np.array([self.outcome.points[i].lower_seconds_per_sample for i in ids.tolist()]))
        return ids[front_mask(best)]

    def _unproven(self) -> NDArray[np.int64]:
        """Return evaluated points that are not proven and whose best case no point of the front dominates."""
        points = [p for p in self.outcome.points.values() if not p.proven and p.architecture not in self._tried]
        if not points:
            return np.empty(0, dtype=np.int64)
        ids = np.array(sorted(point.architecture for point in points), dtype=np.int64)
        best = self._objectives(ids, np.array([self.outcome.points[i].lower_seconds_per_sample for i in ids.tolist()]))
        front = np.flatnonzero(self.outcome.fate == Fate.FRONT)
        values = self._objectives(front, np.array([self.outcome.points[i].seconds_per_sample for i in front.tolist()]))
        return ids[dominated_by(best, values) < 0]

    def reevaluate(self, indices: NDArray[np.int64], *, refined: Sequence[int]) -> dict[int, Evaluated]:
        """Return the points of chosen architectures, admitting none; schedules are solved for those in ``refined``."""
        if len(indices) == 0:
            return {}
        found = {point.architecture: point for point in self._evaluate(indices)}
        open_ = [i for i in refined if i in found and not found[i].proven]
        with SchedulePool(self.cache, jobs=self._jobs) as pool:
            for search, at in ((search, k) for k, search in enumerate(self.searches)):
                pool.fill(
                    [
                        problem
                        for i in open_
                        for problem in search.open_problems(i, found[i].results[at].placement.step_s)
                    ]
                )
        found.update({point.architecture: point for i in open_ for point in self._refine(i)})
        return found

    def progress(self) -> Progress:
        """Return how far the exploration is."""
        outcome = self.outcome
        front = outcome.front
        return Progress(
            decided=int((outcome.fate != Fate.OPEN).sum()),
            total=len(outcome.fate),
            evaluated=len(outcome.points),
            front=len(front),
            best_samples_per_s=1 / front[0].seconds_per_sample if front else 0.0,
            smallest_area_mm2=float(min((self.architectures.area_mm2[p.architecture] for p in front), default=np.nan)),
            unproven=len(self._unproven()),
        )

    def _objectives(self, indices: NDArray[np.int64], seconds_per_sample: FloatArray) -> FloatArray:
        return np.column_stack((seconds_per_sample, self.architectures.area_mm2[indices]))

    def _evaluate(self, batch: NDArray[np.int64]) -> list[Evaluated]:
        columns = [search.evaluate(batch) for search in self.searches]
        points = []
        for row, architecture in enumerate(batch.tolist()):
            results = [column[row] for column in columns]
            point = None if self._within_budget(results) is None else self._point(architecture, results)
            # A list schedule that is too slow says nothing: the best one decides.
            points += self._refine(architecture) if point is None else [point]
        return points

    def _refine(self, architecture: int) -> list[Evaluated]:
        results = [search.refine(architecture, self.cache) for search in self.searches]
        point = self._point(architecture, results)
        return [] if point is None else [point]

    def _within_budget(self, results: Sequence[WorkloadResult | None]) -> bool | None:
        """Return whether the step times meet their budget, None where only better schedules could tell."""
        found = [result for result in results if result is not None]
        if len(found) < len(results) or max(result.lower_step_s for result in found) > self._max_step_s:
            return False
        return True if max(result.placement.step_s for result in found) <= self._max_step_s else None

    def _point(self, architecture: int, results: Sequence[WorkloadResult | None]) -> Evaluated | None:
        """Return the point, or None with the architecture's fate set to infeasible."""
        found = [result for result in results if result is not None]
        slow = max((result.placement.step_s for result in found), default=np.inf)
        if len(found) < len(results) or slow > self._max_step_s:
            self.outcome.fate[architecture] = Fate.INFEASIBLE
            self.outcome.reasons[architecture] = (
                f"step time {slow:.4g} s exceeds the budget of {self._max_step_s:.4g} s"
                if len(found) == len(results)
                else NO_OPTION
            )
            return None
        batches = np.array([search.workload.global_batch for search in self.searches])
        steps = np.array([result.placement.step_s for result in found])
        lowers = np.array([result.lower_step_s for result in found])
        return Evaluated(
            architecture=architecture,
            results=tuple(found),
            seconds_per_sample=float(np.exp(np.mean(np.log(steps / batches)))),
            lower_seconds_per_sample=float(np.exp(np.mean(np.log(lowers / batches)))),
        )

    def _admit(self, points: list[Evaluated]) -> None:
        """Take in evaluated points: renew the front among them and prune what they dominate."""
        outcome = self.outcome
        outcome.points.update({point.architecture: point for point in points})
        ids = np.array(sorted(outcome.points), dtype=np.int64)
        if len(ids) == 0:
            return
        values = self._objectives(ids, np.array([outcome.points[i].seconds_per_sample for i in ids.tolist()]))
        on_front = front_mask(values)
        outcome.fate[ids[on_front]] = Fate.FRONT
        outcome.by[ids[on_front]] = -1
        front_ids, front_values = ids[on_front], values[on_front]
        beaten = ids[~on_front]
        outcome.fate[beaten] = Fate.DOMINATED
        outcome.by[beaten] = front_ids[dominated_by(values[~on_front], front_values)]
        still_open = np.flatnonzero((outcome.fate == Fate.OPEN) | (outcome.fate == Fate.PRUNED))
        bounds = self._objectives(still_open, outcome.bound_seconds_per_sample[still_open])
        by = dominated_by(bounds, front_values)
        pruned = by >= 0
        outcome.fate[still_open[pruned]] = Fate.PRUNED
        outcome.by[still_open[pruned]] = front_ids[by[pruned]]
