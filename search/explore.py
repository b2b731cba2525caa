"""Explore a design space: bounds for every architecture, exact evaluation where a bound could still enter the front.

The result is the front of the whole space. An architecture is left out only when the most optimistic figures it could
have are dominated by a point that was evaluated exactly; which point that was is recorded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Pricer
from archplace.search.options import Option, OptionSpace
from archplace.search.pareto import dominated_by, front_mask
from archplace.search.placement.training import BestPlacement, ChainSeconds
from archplace.search.pool import SchedulePool
from archplace.search.schedule import PROOF_TOLERANCE, ScheduleCache, ScheduleProblem
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, LayerSeconds, StepTimes, refusals
from archplace.workloads import Workload

SOLVER_LIMIT_S = 0.2
"""Deterministic time that a schedule gets whose bound and list schedule do not meet."""

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
class Choices:
    """What a run lets the search choose besides the architecture."""

    accelerators: int
    tensor_parallel: tuple[int, ...]
    microbatch: tuple[int, ...]
    recompute: tuple[bool, ...]
    hbm_bytes: tuple[int, ...] | None
    """HBM capacities to choose from; None takes each architecture's own."""
    max_area_mm2: float | None = None
    max_step_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """The best placement of one workload on one architecture."""

    option: Option
    placement: BestPlacement
    lower_step_s: float
    """No placement and no schedule is faster on this architecture; equals the step time when that is proven."""

    @property
    def proven(self) -> bool:
        """Whether nothing faster exists on this architecture, within the proof tolerance of schedules."""
        return self.lower_step_s >= self.placement.step_s * (1 - PROOF_TOLERANCE)


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


class WorkloadSearch:
    """One workload on all architectures: bounds per option, exact evaluation of chosen architectures."""

    def __init__(
        self, workload: Workload, architectures: Architectures, pricer: Pricer, cluster: Cluster, choices: Choices
    ) -> None:
        self.workload = workload
        self._archs = architectures
        self._times: dict[tuple[int, int], StepTimes] = {}
        self.spaces: list[OptionSpace] = []
        self.reasons: dict[str, str] = {}
        refused = refusals(workload, choices.tensor_parallel, choices.microbatch)
        capacities = choices.hbm_bytes or tuple(sorted(set(architectures.hbm_bytes.tolist())))
        self._own_hbm = choices.hbm_bytes is None
        for width in choices.tensor_parallel:
            for microbatch in choices.microbatch:
                if (width, microbatch) in refused:
                    self.reasons[f"t={width} b={microbatch}"] = refused[width, microbatch]
                    continue
                step = workload.step(tensor_parallel=width, microbatch=microbatch)
                self._times[width, microbatch] = StepTimes(
                    step, workload.optimizer_work(OPTIMIZER_PARAMETERS), architectures, pricer
                )
                for recompute in choices.recompute:
                    for capacity in capacities:
                        option = Option(
                            tensor_parallel=width, microbatch=microbatch, recompute=recompute, hbm_bytes=capacity
                        )
                        space = OptionSpace.of(
                            option,
                            step,
                            cluster,
                            accelerators=choices.accelerators,
                            global_batch=workload.global_batch,
                        )
                        if space.reason is None:
                            self.spaces.append(space)
                        else:
                            self.reasons[str(option)] = space.reason
        # Of equally fast options the one that asks for less is preferred: less HBM, no recomputation, narrower.
        self.spaces.sort(
            key=lambda s: (s.option.hbm_bytes, s.option.recompute, s.option.tensor_parallel, s.option.microbatch)
        )
        self.bound_s: FloatArray = np.full((len(self.spaces), len(architectures)), np.inf)

    def compute_bounds(self) -> None:
        """Fill ``bound_s``, ``(n_options, n_archs)``: lower bounds of the step seconds, infinite when infeasible."""
        bounds = {key: times.bounds() for key, times in self._times.items()}
        seen: dict[tuple[object, ...], FloatArray] = {}
        for i, space in enumerate(self.spaces):
            option = space.option
            # Capacities that allow the same pipelines have the same bound.
            key = (option.tensor_parallel, option.microbatch, option.recompute, space.pipelines)
            if key not in seen:
                seconds = bounds[option.tensor_parallel, option.microbatch].chain(recompute=option.recompute)
                seen[key] = space.bound_s(seconds)
            self.bound_s[i] = seen[key]
            if self._own_hbm:
                self.bound_s[i, self._archs.hbm_bytes != option.hbm_bytes] = np.inf

    def evaluate(self, indices: NDArray[np.int64]) -> list[WorkloadResult | None]:
        """Return the best placement on each architecture at ``indices``, schedules bracketed; None where nothing fits.

        Options are tried in the order of their bounds, and only while a bound is better than what was found.
        """
        searches = [_Candidate(architecture=int(i)) for i in indices]
        order = np.argsort(self.bound_s[:, indices], axis=0, kind="stable")
        while True:
            wanted: dict[tuple[int, int], list[int]] = {}
            for j, candidate in enumerate(searches):
                following = next((int(i) for i in order[:, j] if int(i) not in candidate.done), None)
                if following is not None and self._may_win(following, candidate):
                    wanted.setdefault(self.spaces[following].option.graph_key, []).append(j)
            if not wanted:
                return [candidate.result() for candidate in searches]
            for key, columns in wanted.items():
                lower, upper = self._times[key].brackets(indices[columns])
                for row, j in enumerate(columns):
                    self._try(searches[j], key, lower, upper, row)

    def open_problems(self, architecture: int, best_s: float) -> list[ScheduleProblem]:
        """Return the schedules whose brackets are open and that could make an option faster than ``best_s``."""
        keys = {
            self.spaces[i].option.graph_key for i in np.flatnonzero(self.bound_s[:, architecture] < best_s).tolist()
        }
        found = []
        for key in sorted(keys):
            lower, upper = self._times[key].brackets(np.array([architecture]))
            fastest = [
                space.best(_row(lower.chain(recompute=space.option.recompute), 0), better_than_s=best_s)
                for space in self.spaces
                if space.option.graph_key == key
            ]
            if any(placement is not None for placement in fastest):
                problems = self._times[key].problems(architecture)
                found += [problems[part] for part in problems if lower.seconds[part][0] < upper.seconds[part][0]]
        return found

    def refine(self, architecture: int, cache: ScheduleCache) -> WorkloadResult | None:
        """Return the best placement on one architecture with its schedules solved to proven optimality.

        A schedule that the cache's time limit does not close leaves a gap between step time and lower step time.
        """
        candidate = _Candidate(architecture=architecture)
        for i in np.argsort(self.bound_s[:, architecture], kind="stable").tolist():
            if i not in candidate.done and self._may_win(i, candidate):
                key = self.spaces[i].option.graph_key
                lower, upper = self._times[key].solved(architecture, cache)
                self._try(candidate, key, lower, upper, 0)
        return candidate.result()

    def _try(
        self, candidate: "_Candidate", key: tuple[int, int], lower: LayerSeconds, upper: LayerSeconds, row: int
    ) -> None:
        """Place all options that share the graphs of ``key`` and could still win."""
        for i, space in enumerate(self.spaces):
            option = space.option
            if option.graph_key != key or i in candidate.done or not self._may_win(i, candidate):
                continue
            candidate.done.add(i)
            high, low = (_row(seconds.chain(recompute=option.recompute), row) for seconds in (upper, lower))
            placement = space.best(high, better_than_s=candidate.best_s)
            if placement is not None:
                candidate.best_s, candidate.option, candidate.placement = placement.step_s, option, placement
            if low == high:
                candidate.lower_s = min(candidate.lower_s, candidate.best_s)
            else:
                optimistic = space.best(low, better_than_s=candidate.lower_s)
                if optimistic is not None:
                    candidate.lower_s = optimistic.step_s

    def _may_win(self, option: int, candidate: "_Candidate") -> bool:
        bound = self.bound_s[option, candidate.architecture]
        return bool(np.isfinite(bound) and bound < candidate.best_s)


@dataclass(slots=True, kw_only=True)
class _Candidate:
    """An architecture under evaluation."""

    architecture: int
    best_s: float = np.inf
    lower_s: float = np.inf
    option: Option | None = None
    placement: BestPlacement | None = None
    done: set[int] = field(default_factory=set)

    def result(self) -> WorkloadResult | None:
        """Return what was found; options left untried have bounds no better than it."""
        if self.option is None or self.placement is None:
            return None
        return WorkloadResult(option=self.option, placement=self.placement, lower_step_s=min(self.lower_s, self.best_s))


def _row(seconds: ChainSeconds[FloatArray], row: int) -> ChainSeconds[float]:
    return ChainSeconds(
        first_s=float(seconds.first_s[row]),
        block_s=float(seconds.block_s[row]),
        last_s=float(seconds.last_s[row]),
        optimizer_s_per_parameter=float(seconds.optimizer_s_per_parameter[row]),
    )


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
                self.outcome.reasons.setdefault(i, f"{search.workload.name}: no placement option fits")
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
        tried: set[int] = set()
        with SchedulePool(self.cache, jobs=self._jobs) as pool:
            while len(batch := self._undecided(tried)[:REFINED_AT_ONCE]):
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

    def _undecided(self, tried: set[int]) -> NDArray[np.int64]:
        """Return evaluated points that are not proven and whose best case no point of the front dominates.

        The front of those best cases comes first: closing its brackets may settle the others.
        """
        points = [p for p in self.outcome.points.values() if not p.proven and p.architecture not in tried]
        if not points:
            return np.empty(0, dtype=np.int64)
        ids = np.array(sorted(point.architecture for point in points), dtype=np.int64)
        best = self._objectives(ids, np.array([self.outcome.points[i].lower_seconds_per_sample for i in ids.tolist()]))
        front = np.flatnonzero(self.outcome.fate == Fate.FRONT)
        values = self._objectives(front, np.array([self.outcome.points[i].seconds_per_sample for i in front.tolist()]))
        alive = dominated_by(best, values) < 0
        ids, best = ids[alive], best[alive]
        return ids[front_mask(best)]

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
            smallest_area_mm2=min((self.architectures.area_mm2[p.architecture] for p in front), default=np.nan),
        )

    def _objectives(self, indices: NDArray[np.int64], seconds_per_sample: FloatArray) -> FloatArray:
        return np.column_stack((seconds_per_sample, self.architectures.area_mm2[indices]))

    def _evaluate(self, batch: NDArray[np.int64]) -> list[Evaluated]:
        columns = [search.evaluate(batch) for search in self.searches]
        points = [
            self._point(architecture, [column[row] for column in columns])
            for row, architecture in enumerate(batch.tolist())
        ]
        return [point for point in points if point is not None]

    def _refine(self, architecture: int) -> list[Evaluated]:
        results = [search.refine(architecture, self.cache) for search in self.searches]
        point = self._point(architecture, results)
        return [] if point is None else [point]

    def _point(self, architecture: int, results: Sequence[WorkloadResult | None]) -> Evaluated | None:
        """Return the point, or None with the architecture's fate set to infeasible."""
        found = [result for result in results if result is not None]
        slow = max((result.placement.step_s for result in found), default=np.inf)
        if len(found) < len(results) or slow > self._max_step_s:
            self.outcome.fate[architecture] = Fate.INFEASIBLE
            self.outcome.reasons[architecture] = (
                f"step time {slow:.4g} s exceeds the budget of {self._max_step_s:.4g} s"
                if len(found) == len(results)
                else "no placement option fits"
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
