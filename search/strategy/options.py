"""Placement options of a search over architectures: what of each is fixed, and the best of all that it leaves open.

An option fixes how a layer is shared, where its groups lie in the network, and the HBM capacity. It leaves open the
lengths and numbers of pipelines, their schedule, which states are shared, what is offloaded and overlapped, the cut of
the layers and what each stage recomputes: of these the best on each architecture counts.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from archplace.search.pipeline import SPLIT_BACKWARD, PipelineSchedule, coefficients
from archplace.search.strategy.bounds import ROUNDING, balanced_s, least_recomputed
from archplace.search.strategy.chain import ChainTimes, FloatArray, IntArray, of_layers
from archplace.search.strategy.cuts import Cut, Cuts, best_cuts
from archplace.search.strategy.families import Family, GraphKey, Groups
from archplace.search.strategy.fixed import Dealt, even_deal, price_deal
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Pass, needed_passes
from archplace.search.strategy.packing import pack, packed_loads
from archplace.search.strategy.strategy import DEALT_EVENLY, Strategy, short_form
from archplace.search.strategy.table import StrategyTable
from archplace.search.wording import count
from archplace.workloads import LayerSharding, Recompute

_PAIRS = 1 << 14
"""Pairs of architecture and strategy that are bounded at a time, so that their arrays stay in a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Option:
    """What a placement option fixes."""

    hbm_bytes: int
    sharding: LayerSharding
    groups: Groups
    """How the devices lie that share the layer."""

    @classmethod
    def of(cls, family: Family, hbm_bytes: int) -> "Option":
        """Return the option of a family of strategies on devices with so much memory."""
        return cls(hbm_bytes=hbm_bytes, sharding=family.sharding, groups=family.groups)

    @property
    def graph_key(self) -> GraphKey:
        """What decides the seconds of the layers."""
        return self.sharding, self.groups

    def __str__(self) -> str:
        words = [short_form(self.sharding), f"HBM {self.hbm_bytes / 1e9:g} GB"]
        # Said only where a group is not of neighbours.
        apart = [f"{axis} {levels}" for axis, levels in self.groups if levels[0][1] > 1 or len(levels) > 1]
        return " ".join(words) + "".join(f" [{each}]" for each in apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlacement:
    """The best placement of one option on one architecture."""

    strategy: Strategy
    cut: Cut

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.cut.time_s

    @property
    def policies(self) -> tuple[Recompute, ...]:
        """What each stage recomputes."""
        return tuple(self.strategy.policies[number] for number in self.cut.policies)

    @property
    def recompute_words(self) -> str:
        """What the stages recompute, in words: ``full``, or ``full on 3 stages, none on 5``."""
        counts = Counter(self.policies)
        if len(counts) == 1:
            return str(self.policies[0])
        first, *others = [policy for policy in reversed(Recompute) if policy in counts]
        stages = count(counts[first], "stage")
        return ", ".join([f"{first} on {stages}", *(f"{policy} on {counts[policy]}" for policy in others)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placements:
    """The best placements of one option, one an architecture; :meth:`at` writes one out."""

    step_s: FloatArray
    """``(A,)``: seconds of a step; infinite where nothing is faster than what was asked for."""
    row: IntArray
    """``(A,)``: the strategy in the table; -1 where ``step_s`` is infinite."""
    cuts: list["tuple[Cuts | Dealt, int] | None"]
    """Where each cut stands."""
    table: StrategyTable

    def layers_by_policy(self) -> FloatArray:
        """Return how many layers of each kind are worked on under each policy, ``(A, P, S)``; 0 without a placement."""
        found = np.zeros((len(self.row), len(self.table.choices.policies), len(self.table.counts)))
        for index in range(len(self.cuts)):
            cut = self.cut(index)
            if cut is not None:
                for policy, layers in zip(cut.policies, cut.held, strict=True):
                    found[index, policy] += layers
        # Where two directions keep copies, each works on its own.
        copies = found.sum(axis=(1, 2)) / sum(self.table.counts)
        return np.asarray(found / np.where(copies > 0, copies, 1.0)[:, None, None])

    def cut(self, index: int) -> Cut | None:
        """Return the cut on one architecture; None where there is none."""
        place = self.cuts[index]
        return None if place is None else place[0].at(place[1])

    def at(self, index: int) -> BestPlacement | None:
        """Return the placement on one architecture; None where nothing is faster than was asked for."""
        cut = self.cut(index)
        if cut is None:
            return None
        return BestPlacement(strategy=self.table.strategy(int(self.row[index])), cut=cut)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionSpace:
    """All placements of one option: the strategies that fit its memory, or the reason why none does."""

    option: Option
    table: StrategyTable
    rows: IntArray = field(repr=False)
    """Strategies of the table that fit."""
    recomputed: FloatArray = field(repr=False)
    """``(len(rows), P)``: layers that memory forces to recompute."""
    reason: str | None

    @classmethod
    def of(cls, option: Option, table: StrategyTable) -> "OptionSpace":
        """Return the strategies of ``table`` that fit; with none, ``reason`` says what is short and by how much."""
        nothing = no_seconds(table)
        fitting: list[IntArray] = []
        recomputed: list[FloatArray] = []
        for alike in table.alike(np.arange(len(table))):
            chain = table.chain_rows(alike, nothing, float(option.hbm_bytes))
            schedule, virtual = table.choices.schedules[table.schedule[alike[0]]]
            if schedule in DEALT_EVENLY:
                dealt = price_deal(chain, even_deal(table.counts, schedule, chain.n_stages, virtual))
                fits = np.isfinite(dealt.time_s)
            else:
                fits = pack(chain, np.full(len(alike), np.inf))
            fitting.append(alike[fits])
            recomputed.append(least_recomputed(chain.take(fits)))
        rows = np.concatenate(fitting) if fitting else np.zeros(0, dtype=np.int64)
        order = np.argsort(rows)
        forced = np.concatenate(recomputed)[order] if fitting else np.zeros((0, len(table.choices.policies)))
        reason = None if len(rows) else _shortage(table, option.hbm_bytes)
        return cls(option=option, table=table, rows=rows[order], recomputed=forced, reason=reason)

    def bound_s(self, seconds: LayerSeconds) -> FloatArray:
        """Return a lower bound on the step seconds of every architecture, ``(A,)``; infinite when infeasible.

        Never above the step seconds of :meth:`best_of` for the same seconds.
        """
        found = np.full(len(seconds), np.inf)
        if len(self.rows):
            size = max(1, _PAIRS // len(self.rows))
            for start in range(0, len(seconds), size):
                some = slice(start, start + size)
                found[some] = self._sharpened(seconds.take(some))
        return found

    def _sharpened(self, seconds: LayerSeconds) -> FloatArray:
        """Return the least bound of each architecture, ``(A,)``, when those that matter know what memory packs."""
        bounds = self._bounds(seconds)
        sharp = np.zeros(bounds.shape, dtype=np.bool_)
        every = np.arange(len(seconds))
        while True:
            place = bounds.argmin(axis=1)
            archs = np.flatnonzero(~sharp[every, place] & (bounds[every, place] < np.inf))
            if not len(archs):
                found: FloatArray = bounds[every, place]
                return found
            chosen = place[archs]
            times = self._times(chosen, seconds.take(archs))
            for here in self.table.places_alike(self.rows[chosen]):
                at = archs[here], chosen[here]
                bounds[at] = np.maximum(bounds[at], self._packed_s(self.rows[chosen[here]], times.take(here)))
            sharp[archs, chosen] = True

    def _packed_s(self, rows: IntArray, times: ChainTimes) -> FloatArray:
        """Return lower bounds of strategies that are alike: of those whose layers are dealt out, their times."""
        table = self.table
        chain = table.with_memory(rows, times, float(self.option.hbm_bytes))
        schedule, virtual = table.choices.schedules[table.schedule[rows[0]]]
        if schedule in DEALT_EVENLY:
            return price_deal(chain, even_deal(table.counts, schedule, chain.n_stages, virtual)).time_s * ROUNDING
        return packed_loads(chain).bounds_s(chain)

    def quick_bound_s(self, seconds: LayerSeconds) -> FloatArray:
        """Return a lower bound that is never above :meth:`bound_s` but by rounding, in a small part of its time.

        The layers' seconds, with what memory forces to recompute, are shared by the stages and pass as often as the
        schedule says; nothing is exchanged.
        """
        least = np.full(len(seconds), np.inf)
        table = self.table
        for c, (name, virtual) in enumerate(table.choices.schedules):
            here = np.flatnonzero(table.schedule[self.rows] == c)
            rows = self.rows[here]
            if not len(here):
                continue
            forward, backward = seconds[Pass.FORWARD], seconds[Pass.BACKWARD]
            stages, microbatches = table.stages[rows].astype(float), table.microbatches[rows].astype(float)
            if name in SPLIT_BACKWARD:
                apart = seconds[Pass.INPUT_GRADIENT] + seconds[Pass.WEIGHT_GRADIENT]
                each = np.minimum(forward + backward, forward + apart)
                if name is PipelineSchedule.DUALPIPE:
                    each = np.minimum(each, seconds[Pass.PAIR])
                    # Of a pair at least so many pass; the rest is left out.
                    microbatches = np.maximum(microbatches - stages / 2 - 2, 0.0)
                paces = times = microbatches
                whole = times / stages
            else:
                each = forward + backward
                terms = coefficients(name, stages, virtual, microbatches)
                paces = terms.pace
                whole = paces / stages + (0.0 if name is PipelineSchedule.INTERLEAVED else 1.0)
            total = np.broadcast_to(of_layers(each, table.counts)[:, None], (len(seconds), len(rows)))
            replayed = table.replayed(seconds.passes)[:, :, 1:-1]
            for policy in range(1, replayed.shape[1]):
                more = np.maximum(replayed[:, policy] - replayed[:, policy - 1], 0.0).min(axis=1, initial=np.inf)
                forced = self.recomputed[here, policy]
                if forced.any():
                    total = total + more[:, None] * forced
            bounds = np.maximum(total * whole, each.max(axis=1)[:, None] * paces)
            np.minimum(least, bounds.min(axis=1), out=least)
        return least * ROUNDING

    def _bounds(self, seconds: LayerSeconds) -> FloatArray:
        """Return a lower bound of every architecture and strategy, ``(A, len(rows))``."""
        n_archs, n_rows = len(seconds), len(self.rows)
        pairs = np.tile(np.arange(n_rows), n_archs)
        times = self._times(pairs, seconds.take(np.repeat(np.arange(n_archs), n_rows)))
        return balanced_s(times).reshape(n_archs, n_rows)

    def _times(self, places: IntArray, seconds: LayerSeconds) -> ChainTimes:
        """Return what the times of strategies at ``places`` of :attr:`rows` are made of."""
        return self.table.times(self.rows[places], seconds, least_recomputed=self.recomputed[places])

    def best_of(self, seconds: LayerSeconds, better_than_s: FloatArray | float = np.inf) -> Placements:
        """Return the best placement on every architecture, of those strictly faster than ``better_than_s``.

        ``better_than_s`` is one number or ``(A,)``. Exact; of equal step times the strategy with the lower bound is
        kept, then the one that comes first.
        """
        n_archs = len(seconds)
        found = Placements(
            step_s=np.array(np.broadcast_to(np.asarray(better_than_s, dtype=np.float64), (n_archs,))),
            row=np.full(n_archs, -1, dtype=np.int64),
            cuts=[None] * n_archs,
            table=self.table,
        )
        if len(self.rows):
            size = max(1, _PAIRS // len(self.rows))
            for start in range(0, n_archs, size):
                self._search(found, np.arange(start, min(start + size, n_archs)), seconds)
        found.step_s[found.row < 0] = np.inf
        return found

    def _search(self, found: Placements, archs: IntArray, seconds: LayerSeconds) -> None:
        """Improve ``found`` until no strategy can be better on any of ``archs``."""
        bounds = self._bounds(seconds.take(archs))
        while True:
            place = bounds.argmin(axis=1)
            able = bounds[np.arange(len(archs)), place] < found.step_s[archs]
            if not able.any():
                return
            archs, place, bounds = archs[able], place[able], bounds[able]
            bounds[np.arange(len(archs)), place] = np.inf
            self._try(found, archs, place, seconds)

    def _try(self, found: Placements, archs: IntArray, place: IntArray, seconds: LayerSeconds) -> None:
        """Try the strategy at ``place`` of :attr:`rows` on each of ``archs``."""
        table, rows = self.table, self.rows[place]
        times = self._times(place, seconds.take(archs))
        for here in table.places_alike(rows):
            chain = table.with_memory(rows[here], times.take(here), float(self.option.hbm_bytes))
            schedule, virtual = table.choices.schedules[table.schedule[rows[here[0]]]]
            limits_s = found.step_s[archs[here]]
            if schedule in DEALT_EVENLY:
                dealt = price_deal(chain, even_deal(table.counts, schedule, chain.n_stages, virtual))
                self._keep(found, archs[here], rows[here], dealt, dealt.time_s)
                continue
            cuts = best_cuts(chain, packed_loads(chain, limits_s), limits_s)
            self._keep(found, archs[here], rows[here], cuts, cuts.time_s)

    @staticmethod
    def _keep(found: Placements, archs: IntArray, rows: IntArray, cuts: Cuts | Dealt, times_s: FloatArray) -> None:
        """Keep those of ``cuts``, one for each of ``archs``, that are faster than what is kept."""
        for i in np.flatnonzero(times_s < found.step_s[archs]).tolist():
            found.step_s[archs[i]] = times_s[i]
            found.row[archs[i]] = rows[i]
            found.cuts[archs[i]] = (cuts, i)


_BISECTIONS = 14
"""Of the least capacity: to a ten-thousandth of what one device would need."""


def _shortage(table: StrategyTable, hbm_bytes: int) -> str:
    """Return the reason why no strategy of ``table`` fits."""
    if not len(table):
        return next(iter(table.combinations.refused), "no way to use all accelerators")
    needed, stages = least_need(table)
    return (
        f"memory: needs at least {_human(needed)} per device with {stages} stages, HBM has {_human(float(hbm_bytes))}"
    )


@lru_cache(maxsize=64)
def least_need(table: StrategyTable) -> tuple[float, int]:
    """Return the least capacity, in bytes, on which some strategy of ``table`` fits, and the stages of that one."""
    best, stages = np.inf, 0
    nothing = no_seconds(table)
    for alike in table.alike(np.arange(len(table))):
        chain = table.chain_rows(alike, nothing, np.inf)
        constant = -float(table.with_memory(alike, chain, 0.0).capacity_bytes[0])
        everything = of_layers(chain.state_bytes + chain.in_flight[:, :1] * chain.flight_bytes[:, 0], chain.counts)
        low = np.zeros(len(alike))
        high = everything + chain.working_bytes.max(axis=(1, 2))
        schedule, virtual = table.choices.schedules[table.schedule[alike[0]]]
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            trial = replace(chain, capacity_bytes=middle)
            if schedule in DEALT_EVENLY:
                fits = np.isfinite(price_deal(trial, even_deal(table.counts, schedule, chain.n_stages, virtual)).time_s)
            else:
                fits = pack(trial, np.full(len(alike), np.inf))
            low, high = np.where(fits, low, middle), np.where(fits, middle, high)
        least = float(high.min()) + constant
        if least < best:
            best, stages = least, chain.n_stages
    return best, stages


def no_seconds(table: StrategyTable) -> LayerSeconds:
    """Return layers that take no time, for questions about memory alone."""
    passes = needed_passes(table.choices.schedules, table.choices.policies)
    return LayerSeconds(
        passes={which: np.zeros((1, len(table.counts))) for which in passes}, optimizer_s_per_parameter=np.zeros(1)
    )


def _human(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.4g} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.4g} MB"
