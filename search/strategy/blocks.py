"""The blocks of a plan: families of strategies priced on one accelerator."""

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

    def least_step_s(self, family: Family) -> float:
        """Return what no strategy of a family undercuts: every device computes its even share of the layers."""
        step, graphs = self._layers(family.sharding)
        least = graphs.least_s(self._exchanges(family.order))
        backward = least[Pass.BACKWARD]
        if Pass.WEIGHT_GRADIENT in least:
            backward = np.minimum(backward, least[Pass.INPUT_GRADIENT] + least[Pass.WEIGHT_GRADIENT])
        layer = least[Pass.FORWARD] + backward
        if Pass.PAIR in least:
            layer = np.minimum(layer, least[Pass.PAIR])
        counts = [count for _, count in step.layers]
        return min(entry.microbatches / entry.stages for entry in family.entries) * float(layer[0] @ counts)

    def combinations(self, family: Family) -> Combinations:
        """Return which strategies a family has, without their prices."""
        counts = [count for _, count in self._layers(family.sharding)[0].layers]
        return Combinations(family.sharding, counts, family.entries, self._choices)

    def block(self, family: Family) -> StrategyBlock:
        """Return the strategies of a family with their prices."""
        step, graphs = self._layers(family.sharding)
        found = graphs.seconds(self._exchanges(family.order), self.cache)
        host = self.problem.cluster.host
        table = StrategyTable(
            step,
            family.entries,
            self._choices,
            self.network,
            allowance=self.problem.allowance,
            host_bytes_per_s=None if host is None else host.bandwidth_bytes_per_s,
        )
        seconds = LayerSeconds(passes=found, optimizer_s_per_parameter=self._optimizer_s)
        return StrategyBlock(table, seconds, float(self.problem.accelerator.hbm.capacity_bytes))
