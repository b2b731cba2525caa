"""The blocks of a plan: which shardings go with which numbers of stages and replicas, and what is refused."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from archplace.costmodel import Offload, Pricer
from archplace.costmodel.network import DeviceOrder, NetworkPricer, Share
from archplace.costmodel.network.orders import distinct_orders
from archplace.costmodel.software import SoftwarePricer
from archplace.search.pipeline import PipelineSchedule
from archplace.search.schedule import ScheduleCache
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, optimizer_operator
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.combinations import Choices, Combinations, Entry
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Exchanges, Pass, PassGraphs, needed_passes
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.table import StrategyTable
from archplace.workloads import Axis, Collective, LayerSharding, Recompute, TrainingStep

LAYER_AXES = (Axis.TENSOR, Axis.CONTEXT, Axis.EXPERT, Axis.EXPERT_TENSOR)
"""Axes along which the devices of a layer exchange."""

Places = tuple[tuple[Share, ...], ...]
"""Where the groups of :data:`LAYER_AXES` lie in the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The strategies of one sharding whose groups lie alike, before anything is priced."""

    sharding: LayerSharding
    entries: tuple[Entry, ...]

    @property
    def order(self) -> DeviceOrder:
        """An order in which the layers' groups lie as in all entries."""
        return self.entries[0].order


class Families:
    """All families of a problem; what is refused is counted by reason."""

    def __init__(self, problem: PlanProblem, axes: Axes) -> None:
        self.refused: dict[str, int] = {}
        self._problem, self._axes = problem, axes
        self._network = problem.network()

    def __iter__(self) -> Iterator[Family]:
        for sharding in self._axes.shardings():
            reason = self._problem.workload.refusal(sharding)
            if reason is not None:
                self._refuse(reason)
                continue
            by_places: dict[Places, list[Entry]] = {}
            for entry in self._entries(sharding):
                places = tuple(self._network.shares(entry.order.group(axis)) for axis in LAYER_AXES)
                by_places.setdefault(places, []).append(entry)
            for entries in by_places.values():
                yield Family(sharding=sharding, entries=tuple(entries))

    def _refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _entries(self, sharding: LayerSharding) -> Iterator[Entry]:
        """Yield the ways to use all devices with such layers."""
        workload, axes = self._problem.workload, self._axes
        devices, stage = self._problem.accelerators, sharding.stage_devices
        shared = f"tensor {sharding.tensor} x context {sharding.context}"
        if devices % stage:
            self._refuse(f"{shared} = {stage} devices of a stage do not divide the {devices} accelerators")
            return
        pipelines = devices // stage
        for stages in axes.stages or divisors(pipelines):
            if pipelines % stages:
                self._refuse(f"{shared} x pipeline {stages} devices do not divide the {devices} accelerators")
                continue
            data = pipelines // stages
            if axes.data is not None and data not in axes.data:
                continue
            if workload.global_batch % (data * sharding.microbatch):
                self._refuse(
                    f"the global batch of {workload.global_batch} sequences does not divide over data {data} x "
                    f"microbatch {sharding.microbatch}"
                )
                continue
            microbatches = workload.global_batch // (data * sharding.microbatch)
            degrees = {
                Axis.TENSOR: sharding.tensor,
                Axis.CONTEXT: sharding.context,
                Axis.DATA: data,
                Axis.PIPELINE: stages,
            }
            try:
                orders = self._orders(degrees, sharding)
            except ValueError as error:
                self._refuse(str(error))
                continue
            for order in orders:
                yield Entry(stages=stages, data=data, microbatches=microbatches, order=order)

    def _orders(self, degrees: dict[Axis, int], sharding: LayerSharding) -> tuple[DeviceOrder, ...]:
        expert, expert_tensor = sharding.expert, sharding.expert_tensor
        if self._axes.orders is None:
            return distinct_orders(self._problem.cluster, degrees, expert=expert, expert_tensor=expert_tensor)
        return tuple(
            DeviceOrder(tuple((axis, degrees[axis]) for axis in order), expert=expert, expert_tensor=expert_tensor)
            for order in self._axes.orders
        )


def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors, ascending."""
    return tuple(n for n in range(1, number + 1) if number % n == 0)


class BlockMaker:
    """Prices families: schedules the passes over their layers and makes blocks of them."""

    def __init__(self, problem: PlanProblem, axes: Axes, cache: ScheduleCache) -> None:
        self.problem, self.axes, self.cache = problem, axes, cache
        self.network: NetworkPricer = problem.network()
        self._architectures = problem.architectures
        self._pricer = SoftwarePricer(self._architectures, problem.cluster, network=self.network)
        self._known: dict[LayerSharding, tuple[TrainingStep, PassGraphs]] = {}
        self._optimizer_s = np.array([self._optimizer_s_per_parameter()])
        self.refused: dict[str, int] = {}
        """Kinds of offload that are not possible, by reason."""
        self._choices = Choices(
            schedules=tuple(self._schedules()),
            states=axes.states,
            offload=tuple(self._offload()),
            overlap=axes.overlap,
            policies=tuple(policy for policy in Recompute if policy in axes.policies),
        )
        self._passes = needed_passes(self._choices.schedules, self._choices.policies)

    def _offload(self) -> Iterator[Offload]:
        for offload in self.axes.offload:
            if self.problem.cluster.host is None and (offload.activations or offload.optimizer):
                name = self.problem.cluster.name
                self.refused[f"offload: the cluster {name} says nothing of its hosts; give it a 'host' section"] = 1
            else:
                yield offload

    def _schedules(self) -> Iterator[tuple[PipelineSchedule, int]]:
        for schedule in self.axes.schedules:
            if schedule is PipelineSchedule.INTERLEAVED:
                yield from ((schedule, virtual) for virtual in self.axes.virtual)
            else:
                yield schedule, 1

    def _optimizer_s_per_parameter(self) -> float:
        operator = optimizer_operator(self.problem.workload.optimizer_work(OPTIMIZER_PARAMETERS))
        # Optimizers have one kernel for all parameters, whatever other element-wise work is made of.
        pricer = Pricer(self._architectures, self.problem.cluster, network=self.network)
        return float(pricer.price([operator]).all_s[0, 0]) / OPTIMIZER_PARAMETERS

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
