"""The best strategies of all on one accelerator, exactly.

Every strategy has a bound, cheap for all at once. They are looked at in the order of their bounds, which grow sharper:
first what any cut takes whose layers take the least that a schedule can, then what memory allows, then the same with
solved schedules, then the exact cut. The search ends when the best bound left is no better than the strategies found:
what was not looked at is slower, and its bound says so.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.blocks import BlockMaker
from archplace.search.strategy.bounds import ROUNDING, balanced_s
from archplace.search.strategy.chain import FloatArray, IntArray
from archplace.search.strategy.cuts import Cut, best_cuts
from archplace.search.strategy.families import Families, Family
from archplace.search.strategy.fixed import even_deal, price_deal
from archplace.search.strategy.packing import PackedLoads, packed_loads
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import DEALT_EVENLY, Strategy

_BATCH = 64
"""Strategies whose memory is asked for at a time, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One strategy with its best cut."""

    strategy: Strategy
    step_s: float
    cut: Cut
    block: StrategyBlock = field(repr=False, compare=False)
    row: int = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a search found, and what became of all other strategies."""

    best: tuple[Planned, ...]
    """Fastest first."""
    n_strategies: int
    """Combinations that are possible, cuts and recomputation not counted."""
    n_bounded: int
    """Of them those that a bound showed to be no faster."""
    n_evaluated: int
    """Of them those whose best cut was found."""
    n_memory: int
    """Of them those that were found not to fit into memory."""
    refused: dict[str, int]
    """Combinations that are not possible, by reason."""
    bound_s: float
    """No strategy that is not among ``best`` takes less, and none at all if there is none."""
    closest: "Shortage | None"
    """Where nothing fits: the strategy that lacks least memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """How much memory a strategy lacks at least on some stage, with its layers dealt out evenly."""

    strategy: Strategy
    short_bytes: float


def plan(problem: PlanProblem, axes: Axes, *, best: int = 10, cache: ScheduleCache | None = None) -> Plan:
    """Return the ``best`` fastest strategies of ``axes``, each with its fastest cut; fewer where fewer fit.

    Exact: no other strategy is faster than the slowest of them under the formulas of
    :class:`~archplace.search.strategy.chain.ChainTimes`. Ties go to the strategy that comes first.
    """
    families = Families(problem.workload, problem.cluster, axes, problem.network())
    search = _Search(BlockMaker(problem, axes, ScheduleCache() if cache is None else cache), tuple(families), best)
    search.run()
    return search.plan(families.refused)


class _Search:
    """The best strategies of some families, whose blocks are made as they are needed."""

    def __init__(self, maker: BlockMaker, families: Sequence[Family], best: int) -> None:
        self.maker, self.best = maker, best
        least_s = sorted(zip(maker.least_step_s(families), range(len(families)), strict=True), reverse=True)
        self.families = [(bound_s, families[i]) for bound_s, i in least_s]
        """Those without a block, the one with the least bound last."""
        self.blocks: list[StrategyBlock] = []
        self.unsolved: dict[int, Family] = {}
        """Blocks whose schedules are not solved yet: what their strategies take are bounds."""
        self.coming: list[tuple[float, int, int]] = []
        """Heap of the least bound, block and strategies looked at of every block that has more."""
        self.bounds_s: list[FloatArray] = []
        self.order: list[IntArray] = []
        """Each block's strategies by their bounds."""
        self.waiting: list[tuple[float, int, int, PackedLoads | None]] = []
        """Heap of the bounds of strategies that memory allows, with block, row and packed loads, if these are known."""
        self.found: list[tuple[float, int, int, Planned]] = []
        self.n_evaluated = self.n_memory = 0

    @property
    def limit_s(self) -> float:
        """What a strategy must undercut to be among the best."""
        return self.found[-1][0] if len(self.found) >= self.best else np.inf

    @property
    def _bounds(self) -> tuple[float, float, float]:
        """The least bounds of strategies that memory allows, of other strategies with a block, and of families."""
        return (
            self.waiting[0][0] if self.waiting else np.inf,
            self.coming[0][0] if self.coming else np.inf,
            self.families[-1][0] if self.families else np.inf,
        )

    def run(self) -> None:
        """Look at strategies until no bound is better than those found."""
        while min(self._bounds) < self.limit_s:
            cut_s, memory_s, family_s = self._bounds
            if family_s <= min(cut_s, memory_s):
                self._make_block()
            elif memory_s <= cut_s:
                self._ask_memory()
            elif self.waiting[0][1] in self.unsolved:
                self._solve(self.waiting[0][1])
            else:
                _, block, row, loads = heapq.heappop(self.waiting)
                assert loads is not None
                self._cut(block, row, loads)

    def _make_block(self) -> None:
        family = self.families.pop()[1]
        block = self.maker.bounded(family)
        number = len(self.blocks)
        self.blocks.append(block)
        self.unsolved[number] = family
        self.bounds_s.append(np.zeros(0))
        self.order.append(np.zeros(0, dtype=np.int64))
        self._line_up(number, np.arange(len(block)))

    def _line_up(self, number: int, rows: IntArray) -> None:
        """Let ``rows`` of a block be looked at, in the order of their bounds."""
        bounds_s = balanced_s(self.blocks[number].times.take(rows))
        order = np.argsort(bounds_s, kind="stable")
        self.bounds_s[number], self.order[number] = bounds_s[order], rows[order]
        if len(rows):
            heapq.heappush(self.coming, (float(bounds_s[order[0]]), number, 0))

    def _solve(self, number: int) -> None:
        """Solve the schedules of a block, and bound anew all its strategies that were not beaten yet."""
        block = self.blocks[number] = self.maker.solved(self.unsolved.pop(number), self.blocks[number])
        mine = [row for _, other, row, _ in self.waiting if other == number]
        self.waiting = [entry for entry in self.waiting if entry[1] != number]
        heapq.heapify(self.waiting)
        done = [done for _, other, done in self.coming if other == number]
        self.coming = [entry for entry in self.coming if entry[1] != number]
        heapq.heapify(self.coming)
        for rows in block.table.alike(np.array(sorted(mine))):
            self._pack(number, rows)
        for start in done:
            self._line_up(number, np.sort(self.order[number][start:]))

    def _ask_memory(self) -> None:
        """Take the strategies with the least bounds of one block on to the next tier."""
        _, number, done = heapq.heappop(self.coming)
        block, bounds_s, order = self.blocks[number], self.bounds_s[number], self.order[number]
        end = min(done + max(_BATCH, done), int(bounds_s.searchsorted(self.limit_s)))
        for rows in block.table.alike(order[done:end]):
            self._pack(number, rows)
        if end < len(order) and bounds_s[end] < self.limit_s:
            heapq.heappush(self.coming, (float(bounds_s[end]), number, end))

    def _pack(self, number: int, rows: IntArray) -> None:
        """Ask the memory of rows of one block, one number of stages and one kind of schedule."""
        block = self.blocks[number]
        chain = block.chain_rows(rows)
        schedule, virtual = block.choices.schedules[block.table.schedule[rows[0]]]
        if schedule in DEALT_EVENLY:
            dealt = price_deal(chain, even_deal(block.counts, schedule, chain.n_stages, virtual))
            short = np.isinf(dealt.time_s)
            self.n_memory += int(short.sum())
            better = np.flatnonzero(dealt.time_s < self.limit_s).tolist()
            if number in self.unsolved:
                for i in better:
                    heapq.heappush(self.waiting, (float(dealt.time_s[i]) * ROUNDING, number, int(rows[i]), None))
                return
            self.n_evaluated += int((~short).sum())
            for i in better:
                self._keep(number, int(rows[i]), dealt.cut(i))
            return
        loads = packed_loads(chain)
        bounds_s = loads.bounds_s(chain)
        self.n_memory += int(np.isinf(bounds_s).sum())
        for i in np.flatnonzero(bounds_s < self.limit_s).tolist():
            heapq.heappush(self.waiting, (float(bounds_s[i]), number, int(rows[i]), loads.take(np.array([i]))))

    def _cut(self, number: int, row: int, loads: PackedLoads) -> None:
        chain = self.blocks[number].chain_rows(np.array([row]))
        cut = best_cuts(chain, loads, self.limit_s).at(0)
        self.n_evaluated += 1
        if cut is not None:
            self._keep(number, row, cut)

    def _keep(self, number: int, row: int, cut: Cut) -> None:
        if cut.time_s >= self.limit_s:
            return
        block = self.blocks[number]
        planned = Planned(strategy=block.strategy(row), step_s=cut.time_s, cut=cut, block=block, row=row)
        self.found.append((cut.time_s, number, row, planned))
        self.found.sort(key=lambda each: each[:3])
        del self.found[self.best :]

    def plan(self, refused: dict[str, int]) -> Plan:
        """Return what was found."""
        refused = {**refused, **self.maker.refused}
        combinations = [block.table.combinations for block in self.blocks]
        combinations += [self.maker.combinations(family) for _, family in self.families]
        n_strategies = sum(len(part) for part in combinations)
        for part in combinations:
            for reason, count in part.refused.items():
                refused[reason] = refused.get(reason, 0) + count
        return Plan(
            best=tuple(planned for *_, planned in self.found),
            n_strategies=n_strategies,
            n_bounded=n_strategies - self.n_evaluated - self.n_memory,
            n_evaluated=self.n_evaluated,
            n_memory=self.n_memory,
            refused=refused,
            bound_s=min(self.limit_s, min(self._bounds)),
            closest=None if self.found else self._closest(),
        )

    def _closest(self) -> Shortage | None:
        """Return the strategy that lacks least memory when its layers are dealt out evenly."""
        least: Shortage | None = None
        for block in self.blocks:
            for rows in block.table.alike(np.arange(len(block))):
                schedule, virtual = block.choices.schedules[block.table.schedule[rows[0]]]
                chain = block.chain_rows(rows)
                if sum(block.counts[1:-1]) < chain.n_stages * virtual:
                    continue
                short = price_deal(chain, even_deal(block.counts, schedule, chain.n_stages, virtual)).short_bytes
                i = int(short.argmin())
                if least is None or short[i] < least.short_bytes:
                    least = Shortage(strategy=block.strategy(int(rows[i])), short_bytes=float(short[i]))
        return least
