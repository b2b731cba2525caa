"""One workload on many architectures: bounds of every placement option, and the best placement of chosen ones.

A placement option fixes tensor-parallel width, microbatch, recomputation and HBM capacity; of each option the fastest
placement counts (stages, replicas, cut of the layers). Which options matter on an architecture depends on what is
compared: with seconds alone the fastest one does; where energy or cost are objectives too, all those that no other one
beats in every figure.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Pricer
from archplace.search.figures import Figures
from archplace.search.options import Option, OptionSpace
from archplace.search.placement.best import Placements
from archplace.search.placement.training import BestPlacement, ChainSeconds
from archplace.search.schedule import PROOF_TOLERANCE, ScheduleCache, ScheduleProblem
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, LayerSeconds, StepTimes, refusals
from archplace.workloads import Workload

BoolArray = NDArray[np.bool_]
Indices = NDArray[np.int64]
Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a run lets the search choose besides the architecture, and the budgets it must keep."""

    accelerators: int
    tensor_parallel: tuple[int, ...]
    microbatch: tuple[int, ...]
    recompute: tuple[bool, ...]
    hbm_bytes: tuple[int, ...] | None
    """HBM capacities to choose from; None takes each architecture's own."""
    max_area_mm2: float | None = None
    max_power_w: float | None = None
    max_step_s: float | None = None
    """The further budgets hold for each workload by itself."""
    min_samples_per_s: float | None = None
    max_joules_per_sample: float | None = None
    max_usd_per_sample: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """One placement of one workload on one architecture."""

    option: Option
    placement: BestPlacement
    lower_step_s: float
    """No schedule makes it faster on this architecture; equals the step time when that is proven."""

    @property
    def proven(self) -> bool:
        """Whether nothing faster exists, within the proof tolerance of schedules."""
        return self.lower_step_s >= self.placement.step_s * (1 - PROOF_TOLERANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A placement that no other one on the same architecture beats for certain."""

    result: WorkloadResult
    option: int
    """Index in :attr:`WorkloadSearch.spaces`."""
    reached: FloatArray
    """(n_figures,) figures per sample."""
    best_case: FloatArray
    """(n_figures,) the same with the lower bounds of schedules that are not proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of the placement options on one architecture."""

    kept: list[Kept]
    options: str
    """One character for each of :attr:`WorkloadSearch.spaces`, see the constants below."""


KEPT, LOST, PRUNED, INFEASIBLE = "kdpi"
"""An option's fate on an evaluated architecture: part of its points; evaluated and beaten by those; not evaluated, its
bound beaten by those; or beyond a budget or not to be had."""


class WorkloadSearch:
    """One workload on all architectures of a space: bounds per option, exact evaluation of chosen architectures."""

    def __init__(
        self,
        workload: Workload,
        architectures: Architectures,
        cluster: Cluster,
        choices: Choices,
        *,
        figures: Figures,
        compared: tuple[int, ...] = (0,),
        same_hbm: bool = False,
    ) -> None:
        """Build the placement options.

        ``figures`` gives energy and cost, ``compared`` are the columns by which placements are compared; with
        ``same_hbm`` only those of the same HBM capacity are, because other workloads share the chip.
        """
        self.workload = workload
        self._archs = architectures
        self._cluster = cluster
        self.figures = figures
        self.compared = list(compared)
        self._optimizer_j = figures.optimizer_j(architectures, cluster, workload)
        self._times: dict[Key, StepTimes] = {}
        self._open_keys: dict[int, frozenset[Key]] = {}
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
                self._times[width, microbatch] = StepTimes(step, workload.optimizer_work(OPTIMIZER_PARAMETERS))
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
        # Of equally good options the one that asks for less is preferred: less HBM, no recomputation, narrower.
        self.spaces.sort(
            key=lambda s: (s.option.hbm_bytes, s.option.recompute, s.option.tensor_parallel, s.option.microbatch)
        )
        self.groups = self._group_by_hbm() if same_hbm else [np.arange(len(self.spaces))]
        self._alike = self._group_alike()
        self._of_key: dict[Key, list[int]] = {}
        for i, space in enumerate(self.spaces):
            self._of_key.setdefault(space.option.graph_key, []).append(i)
        self._limits = _limits(choices, workload.global_batch)[: figures.count]

    def on(self, architectures: Architectures) -> "WorkloadSearch":
        """Return the same search for bounds of other architectures that bring no other HBM capacities.

        Only seconds are bounded: energy and cost are not computed.
        """
        assert self.figures.count == 1
        other = copy(self)
        other._archs = architectures
        return other

    def alone(self) -> "WorkloadSearch":
        """Return the same search for the fastest placements, whatever the HBM capacities of other workloads."""
        other = copy(self)
        other.compared = [0]
        other.groups = [np.arange(len(self.spaces))]
        other._open_keys = {}
        return other

    def _group_by_hbm(self) -> list[NDArray[np.intp]]:
        capacity = np.array([space.option.hbm_bytes for space in self.spaces])
        return [np.flatnonzero(capacity == value) for value in np.unique(capacity)]

    def _group_alike(self) -> list[list[int]]:
        """Return the options that differ in nothing but HBM capacities that allow the same pipelines."""
        alike: dict[tuple[object, ...], list[int]] = {}
        for i, space in enumerate(self.spaces):
            key = (space.option.graph_key, space.option.recompute, space.pipelines)
            alike.setdefault(key, []).append(i)
        return list(alike.values())

    @property
    def _used(self) -> list[Key]:
        return sorted({space.option.graph_key for space in self.spaces})

    def available(self, indices: Indices | slice) -> BoolArray:
        """Return ``(n_options, n)``: whether an option is one of the architecture's (its HBM may be given)."""
        hbm = self._archs.hbm_bytes[indices]
        if not self._own_hbm:
            return np.ones((len(self.spaces), len(hbm)), dtype=np.bool_)
        capacity = np.array([space.option.hbm_bytes for space in self.spaces], dtype=np.int64)
        own: BoolArray = capacity[:, None] == hbm[None, :]
        return own

    def first_bounds(self, indices: Indices | slice, archs: Architectures, pricer: Pricer) -> FloatArray:
        """Return lower bounds of the figures by work alone, ``(n_options, n, n_figures)``; infinite if infeasible."""
        seconds = {key: self._times[key].work_bounds(archs, pricer) for key in self._used}
        return self._bounds(indices, pricer, seconds, OptionSpace.balanced_bound_s)

    def bounds(self, indices: Indices | slice, archs: Architectures, pricer: Pricer) -> FloatArray:
        """Return lower bounds of the figures, ``(n_options, n, n_figures)``; infinite where infeasible.

        ``archs`` and ``pricer`` are those of ``indices``. A budget that even the bound exceeds makes all figures
        infinite, but for the first figure of :meth:`within`, which see.
        """
        seconds = {key: self._times[key].bounds(archs, pricer) for key in self._used}
        return self._bounds(indices, pricer, seconds, OptionSpace.bound_s)

    def _bounds(
        self,
        indices: Indices | slice,
        pricer: Pricer,
        seconds: dict[Key, LayerSeconds],
        bound: Callable[[OptionSpace, ChainSeconds[FloatArray]], FloatArray],
    ) -> FloatArray:
        available = self.available(indices)
        found = np.full((*available.shape, self.figures.count), np.inf)
        at = np.arange(len(self._archs))[indices]
        joules: dict[tuple[Key, bool], FloatArray] = {}
        for alike in self._alike:
            space = self.spaces[alike[0]]
            option, graph = space.option, space.option.graph_key
            rows = np.flatnonzero(available[alike].any(axis=0))
            if len(rows) == 0:
                continue
            key = (graph, option.recompute)
            if self.figures.count > 1 and key not in joules:
                joules[key] = self.figures.dynamic_j(self._times[graph], pricer, self.workload, option)
            dynamic_j = joules[key][rows] if key in joules else None
            step_s = bound(space, _rows(seconds[graph].chain(recompute=option.recompute), rows))
            for i in alike:
                own = available[i, rows]
                found[i, rows] = self.figures.bounds(
                    np.where(own, step_s, np.inf),
                    dynamic_j,
                    self.optimizer_j(at[rows]),
                    at[rows],
                    self.spaces[i],
                    self.workload.global_batch,
                )
        return found

    def optimizer_j(self, indices: Indices | slice) -> FloatArray | None:
        """Return the joules of one parameter's optimizer step, ``(n,)``; None where joules are not computed."""
        return None if self._optimizer_j is None else self._optimizer_j[indices]

    def options_of(self, key: Key) -> list[int]:
        """Return the options that share the graphs of ``key``."""
        return self._of_key[key]

    def within(self, figures: FloatArray) -> BoolArray:
        """Return which ``figures`` ``(..., n_figures)`` keep the budgets."""
        kept: BoolArray = (figures <= self._limits).all(axis=-1) & np.isfinite(figures[..., 0])
        return kept

    @property
    def limits(self) -> FloatArray:
        """(n_figures,) budgets per sample; infinite where there is none."""
        return self._limits

    def evaluate(self, indices: Indices, bounds: FloatArray, *, cache: ScheduleCache | None = None) -> list[Tried]:
        """Return for each architecture the placements that no other one on it beats for certain.

        ``bounds`` ``(n_options, n, n_figures)`` as from :meth:`bounds`. Schedules are bracketed; with ``cache`` those
        open brackets that matter are closed by solved schedules. Options are tried in the order of their bounds, and
        only while a bound is not beaten by what was found. None are kept where nothing fits or can keep the budgets.
        """
        if cache is not None:
            self._explore(indices, bounds)
        trial = _Trial(self, indices, bounds)
        while wanted := trial.next_keys():
            for key, columns in wanted.items():
                lower, upper = self._times[key].brackets(indices[columns], self._price)
                if cache is not None:
                    lower, upper = self._solved(key, indices[columns], cache)
                trial.place(key, columns, lower, upper)
        if cache is None:
            self._open_keys.update({i: trial.open_keys(j) for j, i in enumerate(indices.tolist())})
        return [trial.tried(j) for j in range(len(indices))]

    def _solved(self, key: Key, indices: Indices, cache: ScheduleCache) -> tuple[LayerSeconds, LayerSeconds]:
        times, found = self._times[key], []
        for i in indices.tolist():
            # Where the brackets already say that these graphs cannot win, nothing is solved.
            one = np.array([i])
            found.append(times.solved(i, cache) if key in self._open_keys[i] else times.brackets(one, self._price))
        return LayerSeconds.join([low for low, _ in found]), LayerSeconds.join([high for _, high in found])

    def open_problems(self, indices: Indices, bounds: FloatArray) -> list[ScheduleProblem]:
        """Return the schedules of some architectures whose brackets are open and that matter.

        ``bounds`` as for :meth:`evaluate`.
        """
        self._explore(indices, bounds)
        return [
            problem
            for i in indices.tolist()
            for key in sorted(self._open_keys[i])
            for problem in self._times[key].open_problems(i).values()
        ]

    def _explore(self, indices: Indices, bounds: FloatArray) -> None:
        """Bracket architectures that have not been yet."""
        new = [j for j, i in enumerate(indices.tolist()) if i not in self._open_keys]
        if new:
            self.evaluate(indices[new], bounds[:, new])

    def _price(self, indices: Indices) -> tuple[Architectures, Pricer]:
        archs = self._archs.take(indices)
        return archs, Pricer(archs, self._cluster)

    def forget(self) -> None:
        """Drop what is known of single architectures, which is computed again when needed."""
        self._open_keys.clear()
        for times in self._times.values():
            times.forget()


class _Trial:
    """Options tried on some architectures: figures reached and best cases so far, ``(n_options, n, n_figures)``."""

    def __init__(self, search: WorkloadSearch, indices: Indices, bounds: FloatArray) -> None:
        self._search = search
        self._indices = indices
        self._bounds = bounds
        self._open = search.within(bounds)
        self._reached = np.full(bounds.shape, np.inf)
        self._best_case = np.full(bounds.shape, np.inf)
        self._found: dict[tuple[int, int], tuple[Placements, int]] = {}
        self._placed = np.zeros(bounds.shape[:2], dtype=np.bool_)
        self._compared = search.compared
        self._fastest_only = self._compared == [0]
        self._fastest_s: FloatArray = np.full(bounds.shape[1], np.inf)
        """(n,) seconds per sample of the fastest placement that keeps the budgets."""
        self._group_of = {int(i): group for group in search.groups for i in group}

    def next_keys(self) -> dict[Key, NDArray[np.intp]]:
        """Return by graphs the architectures whose next option needs them; empty when all is tried."""
        columns = np.flatnonzero(self._open.any(axis=0))
        for i in np.flatnonzero(self._open.any(axis=1)).tolist():
            self._open[i, columns] &= ~self._beaten(i, columns, self._bounds[i, columns])
        columns = np.flatnonzero(self._open.any(axis=0))
        wanted: dict[Key, list[int]] = {}
        if len(columns):
            first = np.where(self._open[:, columns], self._bounds[:, columns, 0], np.inf).argmin(axis=0)
            for option, column in zip(first.tolist(), columns.tolist(), strict=True):
                wanted.setdefault(self._search.spaces[option].option.graph_key, []).append(column)
        return {key: np.array(listed) for key, listed in wanted.items()}

    def _beaten(self, option: int, columns: NDArray[np.intp], figures: FloatArray) -> BoolArray:
        """Return whether what was reached is nowhere worse than ``figures`` ``(n_columns, n_figures)`` of an option.

        Only placements that keep the budgets beat anything.
        """
        if self._fastest_only:
            alone: BoolArray = figures[:, 0] >= self._fastest_s[columns]
            return alone
        reached = self._reached[np.ix_(self._group_of[option], columns)]
        no_worse = (reached[..., self._compared] <= figures[None][..., self._compared]).all(axis=-1)
        return np.asarray((no_worse & self._search.within(reached)).any(axis=0))

    def place(self, key: Key, columns: NDArray[np.intp], lower: LayerSeconds, upper: LayerSeconds) -> None:
        """Place all options that share the graphs of ``key`` and are still open on the architectures at ``columns``."""
        batch = self._search.workload.global_batch
        for i in self._search.options_of(key):
            space = self._search.spaces[i]
            rows = np.flatnonzero(self._open[i, columns])
            self._open[i, columns] = False
            rows = rows[~self._beaten(i, columns[rows], self._bounds[i, columns[rows]])]
            if len(rows) == 0:
                continue
            at = columns[rows]
            # What is not faster than the fastest need not be known, where nothing else counts.
            limit_s = self._fastest_s[at] * batch if self._fastest_only else np.full(len(rows), np.inf)
            high, low = (_rows(seconds.chain(recompute=space.option.recompute), rows) for seconds in (upper, lower))
            best = space.best_of(high, limit_s)
            self._placed[i, at] = True
            self._reached[i, at] = self._figures(i, at, best)
            good = np.where(self._search.within(self._reached[i, at]), self._reached[i, at, 0], np.inf)
            self._fastest_s[at] = np.minimum(self._fastest_s[at], good)
            for row, column in enumerate(at.tolist()):
                self._found[i, column] = best, row
            hopeful = self._figures(i, at, best if _same(high, low) else space.best_of(low, limit_s))
            # The order in which a bound adds may differ from that of a sum by a rounding.
            self._best_case[i, at] = np.minimum(hopeful, self._reached[i, at])

    def _figures(self, option: int, columns: NDArray[np.intp], placements: Placements) -> FloatArray:
        search = self._search
        indices = self._indices[columns]
        return search.figures.of(
            self._bounds[option, columns],
            placements,
            search.optimizer_j(indices),
            indices,
            search.spaces[option],
            search.workload,
        )

    def open_keys(self, column: int) -> frozenset[Key]:
        """Return the graphs whose open brackets could change what is kept of an architecture."""
        best_case, reached = self._best_case[:, column], self._reached[:, column]
        unproven = np.flatnonzero(self._search.within(best_case) & (best_case[:, 0] < reached[:, 0]))
        if self._fastest_only:
            unproven = unproven[best_case[unproven, 0] < self._fastest_s[column]]
        else:
            unproven = np.array([i for i in unproven.tolist() if not self._loses(i, column)], dtype=np.intp)
        return frozenset(self._search.spaces[i].option.graph_key for i in unproven.tolist())

    def tried(self, column: int) -> Tried:
        """Return what came of the options on one architecture."""
        kept = self.kept(column)
        fates = np.where(self._placed[:, column], LOST, PRUNED)
        fates[~self._search.within(self._bounds[:, column])] = INFEASIBLE
        if not self._fastest_only:
            over = self._placed[:, column] & ~self._search.within(self._best_case[:, column])
            fates[over] = INFEASIBLE
        fates[[one.option for one in kept]] = KEPT
        return Tried(kept=kept, options="".join(fates.tolist()))

    def kept(self, column: int) -> list[Kept]:
        """Return the placements of one architecture that are not beaten, the preferred one of equal ones."""
        possible = self._search.within(self._best_case[:, column])
        if self._fastest_only:
            return self._fastest(column, possible)
        return [
            self._as_kept(i, column, self._best_case[i, column])
            for i in np.flatnonzero(possible).tolist()
            if not self._loses(i, column)
        ]

    def _loses(self, option: int, column: int) -> bool:
        group, compared = self._group_of[option], self._compared
        mine, reached = self._best_case[option, column], self._reached[self._group_of[option], column]
        no_worse = (reached[:, compared] <= mine[compared]).all(axis=-1) & self._search.within(reached)
        better = no_worse & (reached[:, compared] < mine[compared]).any(axis=-1)
        return bool((better | (no_worse & (group < option))).any())

    def _fastest(self, column: int, possible: BoolArray) -> list[Kept]:
        """Return the fastest placement alone; its best case is that of all options."""
        if not possible.any():
            return []
        reached, best_case = self._reached[:, column], self._best_case[:, column]
        good = self._search.within(reached)
        # Where only better schedules could keep the budgets, the fastest stands for what these may give.
        candidates = np.flatnonzero(good if good.any() else np.isfinite(reached[:, 0]))
        if len(candidates) == 0:
            return []
        option = int(candidates[reached[candidates, 0].argmin()])
        least = int(np.where(possible, best_case[:, 0], np.inf).argmin())
        return [self._as_kept(option, column, np.minimum(best_case[least], reached[option]))]

    def _as_kept(self, option: int, column: int, best_case: FloatArray) -> Kept:
        placements, row = self._found[option, column]
        placement = placements.at(row)
        assert placement is not None
        proven = bool(best_case[0] == self._reached[option, column, 0])
        return Kept(
            result=WorkloadResult(
                option=self._search.spaces[option].option,
                placement=placement,
                lower_step_s=placement.step_s if proven else float(best_case[0] * self._search.workload.global_batch),
            ),
            option=option,
            reached=self._reached[option, column],
            best_case=best_case,
        )


def _limits(choices: Choices, global_batch: int) -> FloatArray:
    """Return the budgets per sample, (3,), infinite where there is none."""
    seconds = [np.inf]
    if choices.max_step_s is not None:
        seconds.append(choices.max_step_s / global_batch)
    if choices.min_samples_per_s is not None:
        seconds.append(1 / choices.min_samples_per_s)
    joules, usd = choices.max_joules_per_sample, choices.max_usd_per_sample
    return np.array([min(seconds), np.inf if joules is None else joules, np.inf if usd is None else usd])


def _rows(seconds: ChainSeconds[FloatArray], rows: NDArray[np.intp]) -> ChainSeconds[FloatArray]:
    return ChainSeconds(
        first_s=seconds.first_s[rows],
        block_s=seconds.block_s[rows],
        last_s=seconds.last_s[rows],
        optimizer_s_per_parameter=seconds.optimizer_s_per_parameter[rows],
    )


def _same(one: ChainSeconds[FloatArray], other: ChainSeconds[FloatArray]) -> bool:
    return (
        np.array_equal(one.first_s, other.first_s)
        and np.array_equal(one.block_s, other.block_s)
        and np.array_equal(one.last_s, other.last_s)
    )
