"""The blocks of a plan: families of strategies priced on one accelerator."""

from collections.abc import Sequence

import numpy as np

from archplace.costmodel import Pricer
from archplace.costmodel.network import DeviceOrder, NetworkPricer
from archplace.costmodel.software import SoftwarePricer
from archplace.search.schedule import ScheduleCache
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, optimizer_operator
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.combinations import Combinations
from archplace.search.strategy.families import LAYER_AXES, Family, choices_of
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Exchanges, Pass, PassGraphs, needed_passes
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.table import StrategyTable
from archplace.workloads import Collective, LayerSharding, TrainingStep


class BlockMaker:
    """Prices families: schedules the passes over their layers and makes blocks of them."""

    def __init__(self, problem: PlanProblem, axes: Axes, cache: ScheduleCache) -> None:
        self.problem, self.cache = problem, cache
        self.network: NetworkPricer = problem.network()
        self._architectures = problem.architectures
        self._pricer = SoftwarePricer(self._architectures, problem.cluster, network=self.network)
        self._known: dict[LayerSharding, tuple[TrainingStep, PassGraphs]] = {}
        self._least: dict[Family, LayerSeconds] = {}
        self._optimizer_s = np.array([self._optimizer_s_per_parameter()])
        self._choices, self.refused = choices_of(axes, problem.cluster)
        self._passes = needed_passes(self._choices.schedules, self._choices.policies)

    def _optimizer_s_per_parameter(self) -> float:
        operator = optimizer_operator(self.problem.workload.optimizer_work(OPTIMIZER_PARAMETERS))
        return float(self._pricer.price([operator]).all_s[0, 0]) / OPTIMIZER_PARAMETERS

    def pricer(self, order: DeviceOrder) -> Pricer:
        """Return the prices of operators whose groups lie as ``order`` has them."""
        groups = {axis: order.group(axis) for axis in LAYER_AXES}
        return SoftwarePricer(self._architectures, self.problem.cluster, network=self.network, groups=groups)

    def _layers(self, sharding: LayerSharding) -> tuple[TrainingStep, PassGraphs]:
        """Return the step of a sharding and the passes over its layers."""
        if sharding not in self._known:
            step = self.problem.workload.step(sharding)
            layers = [layer for layer, _ in step.layers]
            self._known[sharding] = step, PassGraphs(layers, self._passes, self._pricer)
        return self._known[sharding]

    def _exchanges(self, order: DeviceOrder) -> Exchanges:
        """Return the prices of what layers exchange whose groups lie as ``order`` has them."""
        known: dict[Collective, float] = {}
        least_s = self.problem.cluster.software.dispatch_s

        def seconds(collective: Collective) -> float:
            if collective not in known:
                payload, group = float(collective.payload_bytes), order.group(collective.axis)
                found = float(self.network.seconds(collective.kind, payload, group))
                known[collective] = max(found, least_s) if found else found
            return known[collective]

        return seconds

    def _find_least(self, families: Sequence[Family]) -> None:
        """Find what no schedule of the families' layers undercuts."""
        by_sharding: dict[LayerSharding, list[Family]] = {}
        for family in families:
            by_sharding.setdefault(family.sharding, []).append(family)
        for sharding, alike in by_sharding.items():
            _, graphs = self._layers(sharding)
            found = graphs.least_s([self._exchanges(family.order) for family in alike])
            for family, passes in zip(alike, found, strict=True):
                self._least[family] = LayerSeconds.at_least(passes, self._optimizer_s)

    def least_step_s(self, families: Sequence[Family]) -> list[float]:
        """Return what no strategy of each family undercuts: every device computes its even share of the layers."""
        self._find_least(families)
        found = []
        for family in families:
            step, _ = self._layers(family.sharding)
            least = self._least[family].passes
            backward = least[Pass.BACKWARD]
            if Pass.WEIGHT_GRADIENT in least:
                backward = np.minimum(backward, least[Pass.INPUT_GRADIENT] + least[Pass.WEIGHT_GRADIENT])
            layer = least[Pass.FORWARD] + backward
            if Pass.PAIR in least:
                layer = np.minimum(layer, least[Pass.PAIR])
            counts = [count for _, count in step.layers]
            rounds = min(entry.microbatches / entry.stages for entry in family.entries)
            found.append(rounds * float(layer[0] @ counts))
        return found

    def combinations(self, family: Family) -> Combinations:
        """Return which strategies a family has, without their prices."""
        counts = [count for _, count in self._layers(family.sharding)[0].layers]
        return Combinations(family.sharding, counts, family.entries, self._choices)

    def block(self, family: Family) -> StrategyBlock:
        """Return the strategies of a family with their prices."""
        return self.solved(family, self.bounded(family))

    def bounded(self, family: Family) -> StrategyBlock:
        """Return the strategies of a family with the least that they may take, before schedules are solved."""
        step, _ = self._layers(family.sharding)
        host = self.problem.cluster.host
        table = StrategyTable(
            step,
            family.entries,
            self._choices,
            self.network,
            allowance=self.problem.allowance,
            host_bytes_per_s=None if host is None else host.bandwidth_bytes_per_s,
        )
        if family not in self._least:
            self._find_least([family])
        return StrategyBlock(table, self._least[family], float(self.problem.accelerator.hbm.capacity_bytes))

    def solved(self, family: Family, bounded: StrategyBlock) -> StrategyBlock:
        """Return what :meth:`bounded` returned for ``family`` with what its strategies take."""
        _, graphs = self._layers(family.sharding)
        found = graphs.seconds(self._exchanges(family.order), self.cache)
        seconds = LayerSeconds(passes=found, optimizer_s_per_parameter=self._optimizer_s)
        return StrategyBlock(bounded.table, seconds, bounded.hbm_bytes)
