"""One workload on many architectures: bounds of every placement option, and the best placement of chosen ones.

A placement option fixes how a layer is shared and where its groups lie, the microbatch, and the HBM capacity; of each
option the fastest placement counts (stages, replicas, schedule, shared states, cut of the layers and recomputation of
each stage). Which options matter on an architecture depends on what is
compared: with seconds alone the fastest one does; where energy or cost are objectives too, all those that no other one
beats in every figure.
"""

from collections.abc import Callable
from copy import copy

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Pricer
from archplace.costmodel.network import NetworkPricer
from archplace.costmodel.software import SoftwarePricer
from archplace.search.choices import Choices, Tried
from archplace.search.figures import Figures
from archplace.search.least import Least, LeastMemory
from archplace.search.outcome import Bound
from archplace.search.schedule import ScheduleCache, ScheduleProblem
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, LayerJoules, StepTimes
from archplace.search.strategy.families import Families, GraphKey, choices_of, groups_of
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import needed_passes
from archplace.search.strategy.options import Option, OptionSpace
from archplace.search.strategy.table import StrategyTable
from archplace.search.trial import Trial
from archplace.workloads import LayerSharding, TrainingJob, TrainingStep

BoolArray = NDArray[np.bool_]
Indices = NDArray[np.int64]
Key = GraphKey


class WorkloadSearch:
    """One workload on all architectures of a space: bounds per option, exact evaluation of chosen architectures."""

    def __init__(
        self,
        workload: TrainingJob,
        architectures: Architectures,
        cluster: Cluster,
        choices: Choices,
        *,
        figures: Figures,
        compared: tuple[int, ...] = (0,),
        same_hbm: bool = False,
        asked_again: bool = False,
    ) -> None:
        """Build the placement options.

        ``figures`` gives energy and cost, ``compared`` are the columns by which placements are compared; with
        ``same_hbm`` only those of the same HBM capacity are, because other workloads share the chip. ``asked_again``
        remembers the least figures by cheap bounds, which several searches need.
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
        self._network = NetworkPricer(cluster)
        capacities = choices.hbm_bytes or tuple(sorted(set(architectures.hbm_bytes.tolist())))
        self._own_hbm = choices.hbm_bytes is None
        families = Families(workload, cluster, choices.axes, self._network)
        strategies, _ = choices_of(choices.axes, cluster)
        passes = needed_passes(strategies.schedules, strategies.policies)
        optimizer = workload.optimizer_work(OPTIMIZER_PARAMETERS)
        self.reasons.update(families.impossible)
        self.n_options = (len(families.impossible) + len(tuple(families))) * (1 if self._own_hbm else len(capacities))
        steps: dict[LayerSharding, TrainingStep] = {}
        for family in families:
            step = steps.setdefault(family.sharding, workload.step(family.sharding))
            table = StrategyTable(
                step,
                family.entries,
                strategies,
                self._network,
                allowance=choices.allowance,
                host_bytes_per_s=None if cluster.host is None else cluster.host.bandwidth_bytes_per_s,
            )
            spaces = [OptionSpace.of(Option.of(family, int(capacity)), table) for capacity in capacities]
            for space in spaces:
                if space.reason is None:
                    self.spaces.append(space)
                else:
                    self.reasons[str(space.option)] = space.reason
            if any(space.reason is None for space in spaces):
                key = spaces[0].option.graph_key
                self._times[key] = StepTimes(step, passes, groups_of(family.groups), optimizer)
        # Of equally good options the one that asks for less is preferred: less HBM, smaller microbatches, narrower.
        self.spaces.sort(key=lambda space: space.option)
        self.groups = self._group_by_hbm() if same_hbm else [np.arange(len(self.spaces))]
        self._alike = self._group_alike()
        self._of_key: dict[Key, list[int]] = {}
        for i, space in enumerate(self.spaces):
            self._of_key.setdefault(space.option.graph_key, []).append(i)
        self._limits = _limits(choices, workload)[: figures.count]
        self._memory = LeastMemory(figures.count) if asked_again else None

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
        """Return the options that differ in nothing but HBM capacities that allow the same and force to the same.

        What stages hold may differ all the same.
        """
        alike: dict[tuple[object, ...], list[int]] = {}
        for i, space in enumerate(self.spaces):
            key = (space.option.graph_key, space.rows.tobytes(), space.recomputed.tobytes())
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
        return self._bounds(indices, pricer, seconds, OptionSpace.quick_bound_s, self._alike)

    def bounds(self, indices: Indices | slice, archs: Architectures, pricer: Pricer) -> FloatArray:
        """Return lower bounds of the figures, ``(n_options, n, n_figures)``; infinite where infeasible.

        ``archs`` and ``pricer`` are those of ``indices``.
        """
        seconds = {key: self._times[key].bounds(archs, pricer) for key in self._used}
        # What memory packs differs between options that are alike otherwise.
        return self._bounds(indices, pricer, seconds, OptionSpace.bound_s, [[i] for i in range(len(self.spaces))])

    def least(self, kind: Bound, indices: Indices, best: Architectures | None, pricer: Callable[[], Pricer]) -> Least:
        """Return the least figures of all options at ``indices`` by one of the cheaper bounds.

        ``best`` are the best of groups where ``kind`` is a bound of groups; ``indices`` are theirs then. ``pricer``
        prices the architectures at ``indices``.
        """
        if self._memory is None:
            return self._least(kind, indices, best, pricer())

        def find(missing: Indices) -> Least:
            every = len(missing) == len(indices)
            return self._least(kind, missing, best, pricer() if every else self._price_of(missing, best))

        return self._memory.recall(kind, indices, len(self._archs if best is None else best), find)

    def _least(self, kind: Bound, indices: Indices, best: Architectures | None, pricer: Pricer) -> Least:
        search = self if best is None else self.on(best)
        archs = pricer.architectures
        figures = (search.first_bounds if kind.by_work else search.bounds)(indices, archs, pricer)
        return Least.of(figures, self.within(figures))

    def _bounds(
        self,
        indices: Indices | slice,
        pricer: Pricer,
        seconds: dict[Key, LayerSeconds],
        bound: Callable[[OptionSpace, LayerSeconds], FloatArray],
        together: list[list[int]],
    ) -> FloatArray:
        """Return lower bounds by ``bound``, which is the same for options that stand ``together``."""
        available = self.available(indices)
        found = np.full((*available.shape, self.figures.count), np.inf)
        at = np.arange(len(self._archs))[indices]
        joules: dict[Key, LayerJoules] = {}
        for alike in together:
            space = self.spaces[alike[0]]
            graph = space.option.graph_key
            rows = np.flatnonzero(available[alike].any(axis=0))
            if len(rows) == 0:
                continue
            dynamic_j = None
            if self.figures.count > 1:
                if graph not in joules:
                    joules[graph] = self.figures.joules(self._times[graph], pricer)
                dynamic_j = self.figures.least_dynamic_j(joules[graph].take(rows), space, self.workload)
            step_s = bound(space, seconds[graph].take(rows))
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

    def joules(self, key: Key, indices: Indices) -> LayerJoules | None:
        """Return the dynamic joules of layers on some architectures; None where joules are not computed."""
        if self.figures.count == 1:
            return None
        return self.figures.joules(self._times[key], self._price(indices)[1])

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
        trial = Trial(self, indices, bounds)
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

    def _price_of(self, indices: Indices, best: Architectures | None) -> Pricer:
        return SoftwarePricer(
            (self._archs if best is None else best).take(indices), self._cluster, network=self._network
        )

    def _price(self, indices: Indices) -> tuple[Architectures, Pricer]:
        archs = self._archs.take(indices)
        return archs, SoftwarePricer(archs, self._cluster, network=self._network)

    def forget(self) -> None:
        """Drop what is known of single architectures, which is computed again when needed."""
        self._open_keys.clear()
        for times in self._times.values():
            times.forget()


def _limits(choices: Choices, workload: TrainingJob) -> FloatArray:
    """Return the budgets per sample, (3,), infinite where there is none."""
    seconds, usd = [np.inf], [np.inf]
    if choices.max_step_s is not None:
        seconds.append(choices.max_step_s / workload.global_batch)
    if choices.min_samples_per_s is not None:
        seconds.append(1 / choices.min_samples_per_s)
    if choices.max_usd_per_sample is not None:
        usd.append(choices.max_usd_per_sample)
    if choices.training is not None:
        seconds.append(choices.training.most_seconds_per_sample(workload.name))
        usd.append(choices.training.most_usd_per_sample(workload.name))
    joules = choices.max_joules_per_sample
    return np.array([min(seconds), np.inf if joules is None else joules, min(usd)])
