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
from archplace.search.schedule import ScheduleCache
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, LayerSeconds, StepTimes, refusals
from archplace.workloads import Workload


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
    proven: bool
    """Whether every schedule behind it is proven optimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """One architecture, evaluated exactly."""

    architecture: int
    """Index in the enumeration."""
    results: tuple[WorkloadResult, ...]
    """One per workload of the run."""
    seconds_per_sample: float
    """Geometric mean over the workloads of step seconds / global batch: what the search minimises."""


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

    def evaluate(self, indices: NDArray[np.int64], cache: ScheduleCache) -> list[WorkloadResult | None]:
        """Return the best placement on each architecture at ``indices``; None where nothing fits.

        Options are tried in the order of their bounds, and only while a bound is not worse than what was found.
        """
        best: list[WorkloadResult | None] = [None] * len(indices)
        best_s = np.full(len(indices), np.inf)
        order = np.argsort(self.bound_s[:, indices], axis=0, kind="stable")
        done = np.zeros((len(self.spaces), len(indices)), dtype=np.bool_)
        exact: dict[tuple[int, int], dict[int, tuple[LayerSeconds, int]]] = {}
        while True:
            wanted: dict[tuple[int, int], list[int]] = {}
            for j in range(len(indices)):
                following = next((i for i in order[:, j] if not done[i, j]), None)
                if following is None or not self._may_win(following, indices[j], best_s[j]):
                    continue
                option = self.spaces[following].option
                wanted.setdefault((option.tensor_parallel, option.microbatch), []).append(j)
            if not wanted:
                return best
            for key, columns in wanted.items():
                known = exact.setdefault(key, {})
                new = [j for j in columns if j not in known]
                if new:
                    layers = self._times[key].exact(indices[new], cache)
                    known.update({j: (layers, row) for row, j in enumerate(new)})
                for j in columns:
                    layers, row = known[j]
                    for i, space in enumerate(self.spaces):
                        option = space.option
                        if done[i, j] or (option.tensor_parallel, option.microbatch) != key:
                            continue
                        if not self._may_win(i, indices[j], best_s[j]):
                            continue
                        done[i, j] = True
                        chain = _row(layers.chain(recompute=option.recompute), row)
                        placement = space.best(chain, better_than_s=best_s[j])
                        if placement is not None:
                            best_s[j] = placement.step_s
                            best[j] = WorkloadResult(
                                option=option, placement=placement, proven=not bool(layers.gap[row])
                            )

    def _may_win(self, option: int, architecture: int, best_s: float) -> bool:
        bound = self.bound_s[option, architecture]
        return bool(np.isfinite(bound) and bound < best_s)


def _row(seconds: ChainSeconds, row: int) -> ChainSeconds:
    return ChainSeconds(
        first_s=seconds.first_s[row],
        block_s=seconds.block_s[row],
        last_s=seconds.last_s[row],
        optimizer_s_per_parameter=seconds.optimizer_s_per_parameter[row],
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
    ) -> None:
        self.architectures = architectures
        self._choices = choices
        self._max_step_s = np.inf if choices.max_step_s is None else choices.max_step_s
        self.cache = cache if cache is not None else ScheduleCache()
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
        of what is still open: the architectures that could be best.
        """
        outcome = self.outcome
        self._admit(list(stored))
        while True:
            still_open = np.flatnonzero(outcome.fate == Fate.OPEN)
            if len(still_open) == 0:
                break
            bounds = self._objectives(still_open, outcome.bound_seconds_per_sample[still_open])
            batch = still_open[front_mask(bounds)]
            points = self._evaluate(batch)
            self._admit(points)
            if on_points is not None:
                on_points(points, self.progress())
        return outcome

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
        columns = [search.evaluate(batch, self.cache) for search in self.searches]
        points = []
        for row, architecture in enumerate(batch.tolist()):
            results = [column[row] for column in columns]
            found = [result for result in results if result is not None]
            slow = max((result.placement.step_s for result in found), default=np.inf)
            if len(found) < len(results) or slow > self._max_step_s:
                self.outcome.fate[architecture] = Fate.INFEASIBLE
                self.outcome.reasons[architecture] = (
                    f"step time {slow:.4g} s exceeds the budget of {self._max_step_s:.4g} s"
                    if len(found) == len(results)
                    else "no placement option fits"
                )
                continue
            logs = [
                np.log(result.placement.step_s / search.workload.global_batch)
                for result, search in zip(found, self.searches, strict=True)
            ]
            points.append(
                Evaluated(
                    architecture=architecture,
                    results=tuple(found),
                    seconds_per_sample=float(np.exp(np.mean(logs))),
                )
            )
        return points

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
