"""The strategies of a table on one architecture."""

import numpy as np

from archplace.search.strategy.chain import ChainRows, ChainTimes, FloatArray, IntArray
from archplace.search.strategy.combinations import Choices
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.overlap import LayerPasses
from archplace.search.strategy.strategy import Strategy
from archplace.search.strategy.table import StrategyTable


class StrategyBlock:
    """A table of strategies with the seconds of its layers on one architecture."""

    def __init__(self, table: StrategyTable, seconds: LayerSeconds, hbm_bytes: float) -> None:
        """Price all strategies; ``seconds`` has one entry."""
        self.table = table
        self.seconds = seconds
        self.hbm_bytes = hbm_bytes
        self.times: ChainTimes = table.times(np.arange(len(table)), seconds)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def choices(self) -> Choices:
        """What the strategies may differ in."""
        return self.table.choices

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers of each kind."""
        return self.table.counts

    def strategy(self, row: int) -> Strategy:
        """Return one row's strategy."""
        return self.table.strategy(row)

    def chain_rows(self, rows: IntArray) -> ChainRows:
        """Return some rows, all of one number of stages, with what memory allows."""
        return self.table.with_memory(rows, self.times.take(rows), self.hbm_bytes)

    def passes(self, row: int) -> LayerPasses:
        """Return the passes over the layers of one row."""
        schedule, _ = self.choices.schedules[self.table.schedule[row]]
        return self.table.passes(np.array([row]), self.seconds, schedule)

    def replay_s(self, policy: int) -> FloatArray:
        """Return what a policy repeats of each layer's forward pass, ``(S,)``."""
        replayed: FloatArray = self.table.replayed(self.seconds.passes)[0, policy]
        return replayed

    def updates_s(self, row: int) -> FloatArray:
        """Return the seconds of the optimizer step of one layer, ``(S,)``."""
        updates: FloatArray = self.table.updates_s(np.array([row]), self.seconds)[0]
        return updates

    def exposed_s(self, row: int, first: FloatArray) -> tuple[float, float]:
        """Return what is exposed of reducing gradients and of gathering parameters once per step.

        ``first``, ``(S,)``, are the layers of the first stage.
        """
        table, times = self.table, self.times.take(slice(row, row + 1))
        if not table.hides[row]:
            return float(table.exchanges.reduction_s[row] @ first), float(table.exchanges.gathering_s[row] @ first)
        exposed = times.exposed_s(first)[0]
        return float(exposed[0]), float(exposed[1])
