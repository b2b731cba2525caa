"""The best strategies of all on one accelerator, exactly.

Every strategy has a bound, cheap for all at once. They are looked at in the order of their bounds, which grow sharper:
first what any cut takes, then what memory allows, then the exact cut. The search ends when the best bound left is no
better than the strategies found: what was not looked at is slower, and its bound says so.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.blocks import BlockMaker, Families
from archplace.search.strategy.bounds import balanced_s, packed_loads_s, packed_s
from archplace.search.strategy.chain import IntArray
from archplace.search.strategy.cuts import Cut, best_cut
from archplace.search.strategy.fixed import equal_deal, price_deal
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import EQUAL_PARTS, Strategy

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
    families = Families(problem, axes)
    maker = BlockMaker(problem, axes, ScheduleCache() if cache is None else cache)
    blocks = [block for block in (maker.block(family) for family in families) if len(block)]
    search = _Search(blocks, best)
    search.run()
    refused = {**families.refused, **maker.refused}
    for block in blocks:
        for reason, count in block.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    return search.plan(refused)


class _Search:
    """The best strategies of some blocks."""

    def __init__(self, blocks: Sequence[StrategyBlock], best: int) -> None:
        self.blocks = blocks
        self.best = best
        self.block_of = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        self.row_of = np.concatenate([np.arange(0), *(np.arange(len(block)) for block in blocks)])
        self.bounds_s = np.concatenate([np.zeros(0), *(balanced_s(block.times) for block in blocks)])
        self.order = np.argsort(self.bounds_s, kind="stable")
        self.next = 0
        self.found: list[tuple[float, int, Planned]] = []
        self.waiting: list[tuple[float, int, float]] = []
        """Bounds of strategies that memory allows, with their packed loads."""
        self.n_evaluated = self.n_memory = 0

    @property
    def limit_s(self) -> float:
        """What a strategy must undercut to be among the best."""
        return self.found[-1][0] if len(self.found) >= self.best else np.inf

    def run(self) -> None:
        """Look at strategies until no bound is better than those found."""
        while True:
            coming_s = self.bounds_s[self.order[self.next]] if self.next < len(self.order) else np.inf
            if self.waiting and self.waiting[0][0] <= coming_s:
                bound_s, number, load_s = heapq.heappop(self.waiting)
                if bound_s >= self.limit_s:
                    return
                self._cut(number, load_s)
            elif coming_s < self.limit_s:
                self._ask_memory()
            else:
                return

    def _ask_memory(self) -> None:
        """Take the strategies with the least bounds on to the next tier."""
        size = max(_BATCH, self.next // 2)
        numbers = self.order[self.next : self.next + size]
        numbers = numbers[self.bounds_s[numbers] < self.limit_s]
        self.next += len(numbers)
        for number_of_block in np.unique(self.block_of[numbers]).tolist():
            block = self.blocks[number_of_block]
            mine = numbers[self.block_of[numbers] == number_of_block]
            for some in _alike(block, self.row_of[mine]):
                self._pack(block, mine[some], self.row_of[mine[some]])

    def _pack(self, block: StrategyBlock, numbers: IntArray, rows: IntArray) -> None:
        """Ask the memory of rows of one block, one number of stages and one kind of schedule."""
        chain = block.chain_rows(rows)
        schedule, virtual = block.choices.schedules[block.schedule[rows[0]]]
        if schedule in EQUAL_PARTS:
            deal = equal_deal(block.counts, schedule, chain.n_stages, virtual)
            dealt = price_deal(chain, deal)
            short = np.isinf(dealt.time_s)
            self.n_memory += int(short.sum())
            self.n_evaluated += int((~short).sum())
            for i in np.flatnonzero(dealt.time_s < self.limit_s).tolist():
                self._keep(int(numbers[i]), dealt.cut(i))
            return
        loads_s = packed_loads_s(chain)
        bounds_s = packed_s(chain, loads_s)
        self.n_memory += int(np.isinf(loads_s).sum())
        for i in np.flatnonzero(bounds_s < self.limit_s).tolist():
            heapq.heappush(self.waiting, (float(bounds_s[i]), int(numbers[i]), float(loads_s[i])))

    def _cut(self, number: int, load_s: float) -> None:
        block, row = self.blocks[self.block_of[number]], int(self.row_of[number])
        chain = block.chain_rows(np.array([row]))
        cut = best_cut(chain, 0, load_s, better_than_s=self.limit_s)
        self.n_evaluated += 1
        if cut is not None:
            self._keep(number, cut)

    def _keep(self, number: int, cut: Cut) -> None:
        block, row = self.blocks[self.block_of[number]], int(self.row_of[number])
        planned = Planned(strategy=block.strategy(row), step_s=cut.time_s, cut=cut, block=block, row=row)
        self.found.append((cut.time_s, number, planned))
        self.found.sort(key=lambda each: each[:2])
        del self.found[self.best :]

    def plan(self, refused: dict[str, int]) -> Plan:
        """Return what was found."""
        coming_s = self.bounds_s[self.order[self.next :]]
        left = [*(bound_s for bound_s, _, _ in self.waiting), float(coming_s.min(initial=np.inf))]
        return Plan(
            best=tuple(planned for _, _, planned in self.found),
            n_strategies=len(self.order),
            n_bounded=len(self.order) - self.n_evaluated - self.n_memory,
            n_evaluated=self.n_evaluated,
            n_memory=self.n_memory,
            refused=refused,
            bound_s=max(min(left), self.limit_s if len(self.found) >= self.best else 0.0),
            closest=None if self.found else self._closest(),
        )

    def _closest(self) -> "Shortage | None":
        """Return the strategy that lacks least memory when its layers are dealt out evenly."""
        least: Shortage | None = None
        for block in self.blocks:
            for some in _alike(block, np.arange(len(block))):
                chain = block.chain_rows(some)
                schedule, virtual = block.choices.schedules[block.schedule[some[0]]]
                parts = chain.n_stages * virtual
                if sum(block.counts[1:-1]) % parts:
                    continue
                short = price_deal(chain, equal_deal(block.counts, schedule, chain.n_stages, virtual)).short_bytes
                i = int(short.argmin())
                if least is None or short[i] < least.short_bytes:
                    least = Shortage(strategy=block.strategy(int(some[i])), short_bytes=float(short[i]))
        return least


def _alike(block: StrategyBlock, rows: IntArray) -> Iterator[IntArray]:
    """Yield the places in ``rows`` of those with one number of stages and one schedule where it deals out layers."""
    dealt = np.array([schedule in EQUAL_PARTS for schedule, _ in block.choices.schedules])
    kind = np.where(dealt[block.schedule[rows]], block.schedule[rows] + 1, 0)
    key = block.stages[rows] * (len(dealt) + 1) + kind
    for value in np.unique(key).tolist():
        yield np.flatnonzero(key == value)
