"""One workload on many architectures: bounds of every placement option, and the best placement of chosen ones."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Pricer
from archplace.search.options import Option, OptionSpace
from archplace.search.placement.training import BestPlacement, ChainSeconds
from archplace.search.schedule import PROOF_TOLERANCE, ScheduleCache, ScheduleProblem
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, LayerSeconds, StepTimes, refusals
from archplace.workloads import Workload


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
        used = {space.option.graph_key for space in self.spaces}
        bounds = {key: self._times[key].bounds() for key in sorted(used)}
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
        found: list[ScheduleProblem] = []
        for key in sorted(keys):
            lower, _ = self._times[key].brackets(np.array([architecture]))
            fastest = (
                space.best(_row(lower.chain(recompute=space.option.recompute), 0), better_than_s=best_s)
                for space in self.spaces
                if space.option.graph_key == key
            )
            if any(placement is not None for placement in fastest):
                found += self._times[key].open_problems(architecture).values()
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
