"""Bounds and exact evaluation of architectures for all workloads of a run: what an exploration asks for.

An evaluator decides nothing and remembers nothing that matters: the same question has the same answer in any process.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.arch_configs.technology import Technology
from archplace.costmodel import Pricer
from archplace.costmodel.energy import peak_power_w
from archplace.costmodel.network import NetworkPricer
from archplace.costmodel.software import SoftwarePricer
from archplace.search.choices import KEPT, LOST, Choices, Kept, Tried
from archplace.search.figures import Figures
from archplace.search.groups import Groups
from archplace.search.least import Least
from archplace.search.objectives import Objective, Objectives, geometric_mean
from archplace.search.outcome import NO_OPTION, Bound, Evaluated, Reasons, Record
from archplace.search.schedule import ScheduleCache, ScheduleProblem
from archplace.search.workload_search import WorkloadSearch
from archplace.workloads import TrainingJob

Indices = NDArray[np.int64]

_BUDGETS = 4
"""Reasons of each workload beside that no option fits: seconds, joules, dollars, and all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundBlock:
    """Lower bounds of some architectures."""

    values: FloatArray
    """(n, n_objectives); infinite where infeasible."""
    code: NDArray[np.int16]
    """(n,) why infeasible: index in :attr:`Evaluator.reason_texts`, −1 where feasible."""
    amount: FloatArray
    """(n,) the number in the reason."""
    options: tuple[FloatArray, ...] = ()
    """Of each workload the bounds of every option, (n_options, n, n_figures); absent from the first bounds."""

    def take(self, rows: NDArray[np.intp]) -> "BoundBlock":
        """Return the bounds of some rows."""
        return BoundBlock(
            values=self.values[rows],
            code=self.code[rows],
            amount=self.amount[rows],
            options=tuple(one[:, rows] for one in self.options),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """What throughputs of several workloads are relative to: the best of each in the space, as far as it is known."""

    seconds: tuple[float, ...] = ()
    """(n_workloads,) least seconds per sample found; empty where nothing is relative to them."""
    gap: float = 0.0
    """How much more these may be than the least there are: relative, of the workload where that is most."""


@dataclass(kw_only=True)
class Evaluator:
    """What decides the values of every design point of a run."""

    architectures: Architectures
    workloads: Sequence[TrainingJob]
    cluster: Cluster
    choices: Choices
    objectives: Objectives
    technology: Technology | None = None
    references: References = field(default_factory=lambda: References())
    """What the worst case is relative to; needed for that objective alone."""
    coarse: bool = False
    """Whether the first bounds are to be as cheap as can be, where groups of architectures allow that."""
    network: NetworkPricer = field(init=False)
    searches: list[WorkloadSearch] = field(init=False)
    power_w: FloatArray = field(init=False)
    """(n_archs,) power at full rate; NaN where neither an objective nor a budget asks for it."""

    def __post_init__(self) -> None:
        choices, objectives = self.choices, self.objectives
        self.network = NetworkPricer(self.cluster)
        count = 1
        if Objective.ENERGY in objectives or choices.max_joules_per_sample is not None:
            count = 2
        if Objective.COST in objectives or choices.needs_usd:
            count = 3
        self._figures = count
        figures = Figures.of_space(self.architectures, self.technology, accelerators=choices.accelerators, count=count)
        # The HBM capacity is the chip's, one for all workloads. Where it costs nothing, the largest chosen serves all.
        self._same_hbm = len(self.workloads) > 1 and count > 2 and choices.hbm_bytes is not None
        self.searches = [
            WorkloadSearch(
                workload,
                self.architectures,
                self.cluster,
                choices,
                figures=figures,
                compared=objectives.compared,
                same_hbm=self._same_hbm,
                asked_again=len(self.workloads) > 1,
            )
            for workload in self.workloads
        ]
        self.power_w = np.full(len(self.architectures), np.nan)
        if Objective.POWER in objectives or choices.most_power_w is not None:
            assert self.technology is not None, "power needs a technology table"
            precisions = sorted({str(workload.precision.formats.products) for workload in self.workloads})
            watts = [peak_power_w(self.architectures, self.technology, precision) for precision in precisions]
            throttled = self.architectures.throttled
            self.power_w = np.max(watts, axis=0) if throttled is None else throttled.power_w

    def each_alone(self) -> Iterator["Evaluator"]:
        """Yield for each workload the evaluator of that workload by itself, with throughput as the only objective."""
        for workload, search in zip(self.workloads, self.searches, strict=True):
            alone = copy(self)
            alone.workloads = [workload]
            alone.objectives = Objectives.of(["throughput"])
            alone.references = References()
            alone.searches = [search.alone()]
            alone._same_hbm = False
            yield alone

    def relative_to(self, references: References) -> "Evaluator":
        """Return the same evaluator with other references."""
        other = copy(self)
        other.references = references
        return other

    @property
    def reason_texts(self) -> tuple[str, ...]:
        """Texts of the reasons why an architecture is infeasible, with a place for the number."""
        choices = self.choices
        texts = [
            f"area {{:.4g}} mm² exceeds the budget of {choices.max_area_mm2 or 0:.4g} mm²",
            f"power {{:.4g}} W exceeds the budget of {choices.most_power_w or 0:.4g} W",
        ]
        for search in self.searches:
            name, batch = search.workload.name, search.workload.global_batch
            seconds, joules, usd = (*search.limits.tolist(), np.inf, np.inf)[:3]
            whole_s = whole_usd = ""
            if choices.training is not None:
                whole_s = f": {seconds * choices.training.of(name) / 3600:,.0f} h for the whole training"
                whole_usd = f": {usd * choices.training.of(name):,.0f} USD for the whole training"
            texts += [
                f"{name}: {NO_OPTION}",
                f"{name}: step time is at least {{:.4g}} s, the budget is {seconds * batch:.4g} s{whole_s}",
                f"{name}: energy is at least {{:.4g}} J per sample, the budget is {joules:.4g} J",
                f"{name}: cost is at least {{:.4g}} USD per sample, the budget is {usd:.4g} USD{whole_usd}",
                f"{name}: no placement option keeps all budgets at once",
            ]
        return tuple(texts)

    @property
    def option_reasons(self) -> dict[str, str]:
        """Why placement options are infeasible on every architecture: option to reason."""
        found: dict[str, str] = {}
        for search in self.searches:
            prefix = f"{search.workload.name}: " if len(self.searches) > 1 else ""
            found.update({prefix + key: text for key, text in search.reasons.items()})
        return found

    def no_reasons(self) -> Reasons:
        """Return a table of reasons in which none is given."""
        return Reasons.none(len(self.architectures), self.reason_texts)

    @cached_property
    def groups(self) -> Groups | None:
        """Groups of similar architectures, where bounds of groups are worth it and hold for every objective.

        More of everything costs no seconds, but it may cost energy.
        """
        if self._figures > 1:
            return None
        return Groups.of_space(self.architectures, within=self.coarse_groups)

    @cached_property
    def coarse_groups(self) -> Groups | None:
        """Fewer and larger groups, for bounds that come before others; where these are to be coarse."""
        return Groups.of_space(self.architectures, coarse=True) if self._figures == 1 and self.coarse else None

    def groups_of(self, kind: Bound) -> Groups | None:
        """Return the groups that a kind of bound is of; None where there are none."""
        if not kind.of_groups:
            return None
        return self.coarse_groups if kind is Bound.GROUP_WORK else self.groups or self.coarse_groups

    @property
    def tiers(self) -> tuple[Bound, ...]:
        """The bounds in the order in which architectures get them, the cheapest first; the last is by schedules."""
        if self.coarse_groups is not None:
            return Bound.GROUP_WORK, Bound.GROUP, Bound.SCHEDULE
        return Bound.WORK if self.groups is None else Bound.GROUP, Bound.SCHEDULE

    def bounds(self, indices: Indices | slice, kind: Bound) -> BoundBlock:
        """Return lower bounds of the architectures at ``indices``. Memory grows with their number times the options.

        For bounds of groups it is the number of groups that counts.
        """
        archs, power_w = self.architectures.take(indices), self.power_w[indices]
        if kind is not Bound.SCHEDULE:
            return self._reduced(archs, power_w, self._least(np.arange(len(self.architectures))[indices], kind))
        pricer = self._pricer(archs)
        options = tuple(search.bounds(indices, archs, pricer) for search in self.searches)
        least = [
            Least.of(figures, search.within(figures)) for search, figures in zip(self.searches, options, strict=True)
        ]
        return self._reduced(archs, power_w, least, options=options)

    def _least(self, indices: Indices, kind: Bound) -> list[Least]:
        """Return for each workload the least figures of its options, by bounds that are not kept by option."""
        best, of = None, None
        if kind.of_groups:
            groups = self.groups_of(kind)
            assert groups is not None, "this space has no groups"
            indices, of = np.unique(groups.of[indices], return_inverse=True)
            best = groups.best
        pricer = cache(lambda: self._pricer((self.architectures if best is None else best).take(indices)))
        found = [search.least(kind, indices, best, pricer) for search in self.searches]
        return found if of is None else [least.take(of.reshape(-1)) for least in found]

    def _reduced(
        self,
        archs: Architectures,
        power_w: FloatArray,
        figures: Sequence[Least],
        *,
        options: tuple[FloatArray, ...] = (),
    ) -> BoundBlock:
        """Return bounds of the objectives from the least figures of each workload; ``options`` are passed on.

        Area and power are each architecture's own.
        """
        code = np.full(len(archs), -1, dtype=np.int16)
        amount = np.zeros(len(archs))

        def refuse(where: NDArray[np.bool_], reason: int, number: FloatArray) -> None:
            new = where & (code < 0)
            code[new] = reason
            amount[new] = number[new]

        choices = self.choices
        if choices.max_area_mm2 is not None:
            refuse(archs.area_mm2 > choices.max_area_mm2, 0, archs.area_mm2)
        most_w = choices.most_power_w
        if most_w is not None:
            # What slows down to its limit draws it, rounding aside.
            refuse(power_w > most_w * (1 + 1e-9), 1, power_w)
        for w, (search, least) in enumerate(zip(self.searches, figures, strict=True)):
            base = 2 + w * (_BUDGETS + 1)
            lowest = least.lowest
            refuse(~np.isfinite(lowest[:, 0]), base, amount)
            for f, limit in enumerate(search.limits.tolist()):
                told = lowest[:, f] * (search.workload.global_batch if f == 0 else 1)
                refuse(lowest[:, f] > limit, base + 1 + f, told)
            refuse(~least.possible, base + _BUDGETS, amount)
        values = self._values(np.stack([least.within for least in figures]), power_w, archs.area_mm2)
        values[code >= 0] = np.inf
        return BoundBlock(values=values, code=code, amount=amount, options=options)

    def _pricer(self, archs: Architectures) -> Pricer:
        return SoftwarePricer(archs, self.cluster, network=self.network)

    def _values(self, figures: FloatArray, power_w: FloatArray, area_mm2: FloatArray) -> FloatArray:
        references_s = self.references.seconds or (1.0,) * len(self.workloads)
        return self.objectives.values(figures, references_s=references_s, power_w=power_w, area_mm2=area_mm2)

    def evaluate(
        self, indices: Indices, options: tuple[FloatArray, ...] = (), *, cache: ScheduleCache, solve: bool = False
    ) -> list[Record]:
        """Return the design points of some architectures.

        ``options`` are their bounds as in :class:`BoundBlock`; computed when absent. Schedules are bracketed; with
        ``solve`` those that matter are solved. They also are where only a solved schedule can tell whether a budget is
        kept.
        """
        options = options or self.bounds(indices, Bound.SCHEDULE).options
        tried = self._kept(indices, options, cache if solve else None)
        records = [self._record(i, tried[j], solved=solve) for j, i in enumerate(indices.tolist())]
        rows = np.array([j for j, record in enumerate(records) if record is None], dtype=np.intp)
        if len(rows):
            some, own = indices[rows], tuple(bounds[:, rows] for bounds in options)
            cache.solve_many(self.open_problems(some, own))
            for j, again in zip(rows.tolist(), self._kept(some, own, cache), strict=True):
                records[j] = self._record(int(indices[j]), again, solved=True)
        return [record for record in records if record is not None]

    def _kept(
        self, indices: Indices, options: tuple[FloatArray, ...], cache: ScheduleCache | None
    ) -> list[list[Tried]]:
        """Return of each architecture and workload what came of the options."""
        columns = [
            search.evaluate(indices, bounds, cache=cache) for search, bounds in zip(self.searches, options, strict=True)
        ]
        return [[column[j] for column in columns] for j in range(len(indices))]

    def open_problems(self, indices: Indices, options: tuple[FloatArray, ...]) -> list[ScheduleProblem]:
        """Return the schedules of some architectures that are open and matter; arguments as for :meth:`evaluate`."""
        return [
            problem
            for search, bounds in zip(self.searches, options, strict=True)
            for problem in search.open_problems(indices, bounds)
        ]

    def _record(self, architecture: int, tried: list[Tried], *, solved: bool) -> Record | None:
        """Return the points that the kept placements make; None where solved schedules must tell whether there are."""
        usable: list[list[Kept]] = []
        options = tuple(one.options for one in tried)
        for search, found in zip(self.searches, (one.kept for one in tried), strict=True):
            good = [one for one in found if search.within(one.reached)]
            if len(good) < len(found) and not solved:
                return None
            if not good:
                reason = self._refusal(search, found)
                return Record(architecture=architecture, points=(), options=options, reason=reason)
            usable.append(good)
        combinations = self._combinations(usable)
        if not combinations:
            reason = "no HBM capacity suits all workloads"
            return Record(architecture=architecture, points=(), options=options, reason=reason)
        options = tuple(
            _only_used(text, {combination[w].option for combination in combinations}) for w, text in enumerate(options)
        )
        return Record(architecture=architecture, points=self._points(architecture, combinations), options=options)

    def _refusal(self, search: WorkloadSearch, found: list[Kept]) -> str:
        code = 2 + self.searches.index(search) * (_BUDGETS + 1)
        if not found:
            return self.reason_texts[code + _BUDGETS]
        closest = min(found, key=lambda one: float((one.reached / search.limits).max()))
        f = int((closest.reached / search.limits).argmax())
        return self.reason_texts[code + 1 + f].format(
            closest.reached[f] * (search.workload.global_batch if not f else 1)
        )

    def _combinations(self, usable: list[list[Kept]]) -> list[tuple[Kept, ...]]:
        """Return one placement for each workload, in all ways that no other way beats for certain."""
        if not self._same_hbm:
            return self._merged(usable)
        capacities = sorted({one.result.option.hbm_bytes for found in usable for one in found})
        each = [
            self._merged([[one for one in found if one.result.option.hbm_bytes == capacity] for found in usable])
            for capacity in capacities
        ]
        return self._unbeaten([combination for found in each for combination in found])

    def _merged(self, usable: list[list[Kept]]) -> list[tuple[Kept, ...]]:
        partial: list[tuple[Kept, ...]] = [()]
        for found in usable:
            partial = [(*earlier, one) for earlier in partial for one in found]
            # What is beaten with some of the workloads is beaten with all: every objective grows with every figure.
            partial = self._unbeaten(partial)
        return partial

    def _unbeaten(self, combinations: list[tuple[Kept, ...]]) -> list[tuple[Kept, ...]]:
        if len(combinations) < 2 or len(self.workloads) == 1:
            return combinations
        n_workloads = len(combinations[0])
        none = np.zeros(len(combinations))
        reached, best_case = (
            self.objectives.values(
                _stacked(combinations, which),
                references_s=(self.references.seconds or (1.0,) * len(self.workloads))[:n_workloads],
                power_w=none,
                area_mm2=none,
            )
            for which in ("reached", "best_case")
        )
        kept = []
        for i in range(len(combinations)):
            no_worse = (reached <= best_case[i]).all(axis=1)
            better = no_worse & (reached < best_case[i]).any(axis=1)
            if not (better.any() or no_worse[:i].any()):
                kept.append(combinations[i])
        return kept

    def _points(self, architecture: int, combinations: list[tuple[Kept, ...]]) -> tuple[Evaluated, ...]:
        at = slice(architecture, architecture + 1)
        n = len(combinations)
        power_w, area_mm2 = np.repeat(self.power_w[at], n), np.repeat(self.architectures.area_mm2[at], n)
        reached, best_case = _stacked(combinations, "reached"), _stacked(combinations, "best_case")
        values = self._values(reached, power_w, area_mm2)
        lowest = self._values(best_case, power_w, area_mm2)
        seconds, least = geometric_mean(reached[:, :, 0]), geometric_mean(best_case[:, :, 0])
        order = sorted(range(n), key=lambda i: (float(seconds[i]), tuple(values[i].tolist()), i))
        return tuple(
            Evaluated(
                architecture=architecture,
                number=number,
                results=tuple(one.result for one in combinations[i]),
                values=tuple(values[i].tolist()),
                best_case=tuple(lowest[i].tolist()),
                seconds_per_sample=float(seconds[i]),
                lower_seconds_per_sample=float(least[i]),
            )
            for number, i in enumerate(order)
        )

    def forget(self) -> None:
        """Drop what is known of single architectures, which is computed again when needed."""
        for search in self.searches:
            search.forget()


def _only_used(options: str, used: set[int]) -> str:
    """Return fates of options in which those kept that no point uses have lost to the points."""
    return "".join(LOST if code == KEPT and i not in used else code for i, code in enumerate(options))


def _stacked(combinations: list[tuple[Kept, ...]], which: str) -> FloatArray:
    """Return figures (n_workloads, n_combinations, n_figures)."""
    columns = [[getattr(one, which) for one in combination] for combination in combinations]
    return np.array(columns).transpose(1, 0, 2)
