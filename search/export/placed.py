"""A placement in full, priced as a simulator prices: what every pass over every layer takes, and who exchanges what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from archplace.arch_configs.architectures import Architectures
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Allowance, Exchange, Moment, Replicas, chain_exchanges
from archplace.costmodel.network import DeviceOrder, Group, NetworkPricer, PricingMode
from archplace.costmodel.software import SoftwarePricer
from archplace.search.attribution import OperatorBar, bars_of
from archplace.search.explain import peak_flops_per_s
from archplace.search.pipeline import ScheduleShape
from archplace.search.schedule import ScheduleCache, ScheduleGraph
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, optimizer_operator
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.cuts import Cut
from archplace.search.strategy.evaluate import Dissection, Evaluation, Job, StageChoice, splitter
from archplace.search.strategy.exchanges import exchange_group
from archplace.search.strategy.families import LAYER_AXES
from archplace.search.strategy.fixed import Deal, even_parts
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Pass, PassGraphs, needed_passes, operators_of
from archplace.search.strategy.strategy import DEALT_EVENLY, Strategy, refusal
from archplace.search.strategy.table import table_of
from archplace.workloads import Layer, Operator, Recompute, TrainingJob, TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What is decided about one job: nothing is left to choose, and nothing is priced yet."""

    workload: TrainingJob
    architectures: Architectures
    """One row: the accelerator."""
    cluster: Cluster
    """Sized to the job."""
    strategy: Strategy
    held: tuple[tuple[int, ...], ...] | None
    """Layers of each kind on each stage; None for schedules of equal parts, which deal them out."""
    policies: tuple[Recompute, ...]
    """What each stage recomputes."""
    hbm_bytes: float
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def order(self) -> DeviceOrder:
        """How devices are numbered."""
        degrees, sharding = self.strategy.degrees(), self.strategy.sharding
        return DeviceOrder(
            tuple((axis, degrees[axis]) for axis in self.strategy.order),
            expert=sharding.expert,
            expert_tensor=sharding.expert_tensor,
        )

    def priced(self, mode: PricingMode, cache: ScheduleCache | None = None) -> "Placed":
        """Return the placement priced in one mode of the network.

        Raises ``ValueError`` with the reason where the strategy is refused.
        """
        reason = refusal(self.strategy, self.workload, self.cluster.size)
        if reason is not None:
            raise ValueError(reason)
        return Placed(self, NetworkPricer(self.cluster, mode), ScheduleCache() if cache is None else cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateExchange:
    """One collective in which replicas exchange the states of a kind of layer."""

    exchange: Exchange
    group: Group
    payload_bytes: tuple[float, ...]
    """Of one layer of each kind."""


class Placed:
    """A placement with its prices."""

    def __init__(self, placement: Placement, network: NetworkPricer, cache: ScheduleCache) -> None:
        self.placement, self.network = placement, network
        strategy, workload = placement.strategy, placement.workload
        # Every stage's policy is one of the strategy's, and the strategy's are no others.
        self.strategy = replace(strategy, policies=tuple(p for p in Recompute if p in placement.policies))
        self.order = placement.order
        self.step: TrainingStep = workload.step(strategy.sharding)
        self.shape: ScheduleShape = strategy.shape(workload)
        groups = {axis: self.order.group(axis) for axis in LAYER_AXES}
        self._pricer = SoftwarePricer(placement.architectures, placement.cluster, network=network, groups=groups)
        self._cache = cache
        self._bars: dict[tuple[int, Pass], tuple[OperatorBar, ...]] = {}
        self.block = self._block()
        chosen = StageChoice(self.block, placement.held, placement.policies)
        self.deal: Deal = chosen.deal
        self.cut: Cut = chosen.cut
        job = Job(
            workload=workload,
            accelerators=placement.cluster.size,
            peak_flops_per_s=float(peak_flops_per_s(placement.architectures, workload)[0]),
            hbm_bytes=placement.hbm_bytes,
            allowance=placement.allowance,
        )
        split = splitter(self.block, self._pricer, cache)
        self.evaluation: Evaluation = Dissection(job, self.block, split).run(chosen)

    def _block(self) -> StrategyBlock:
        strategy, pricer = self.strategy, self._pricer
        passes = needed_passes([(strategy.schedule, strategy.virtual)], strategy.policies)
        graphs = PassGraphs(self.layers, passes, pricer)
        optimizer = optimizer_operator(self.placement.workload.optimizer_work(OPTIMIZER_PARAMETERS))
        seconds = LayerSeconds(
            passes=graphs.seconds(pricer.collective_s, self._cache),
            optimizer_s_per_parameter=pricer.price([optimizer]).all_s[:, 0] / OPTIMIZER_PARAMETERS,
        )
        table = table_of(strategy, self.step, self.placement.workload, self.network, allowance=self.placement.allowance)
        return StrategyBlock(table, seconds, self.placement.hbm_bytes)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The kinds of layers, in model order."""
        return tuple(layer for layer, _ in self.step.layers)

    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Return the layers of each kind in each virtual stage, in model order."""
        if self.strategy.schedule in DEALT_EVENLY:
            held = even_parts(self.block.counts, self.shape.virtual_stages)
        else:
            held = np.array(self.cut.held)
        return tuple(tuple(int(count) for count in layers) for layers in held)

    def policy(self, stage: int) -> Recompute:
        """Return what a virtual stage recomputes."""
        return self.block.choices.policies[self.policy_number(stage)]

    def policy_number(self, stage: int) -> int:
        """Return the same as the number of the policy in the block."""
        return self.cut.policies[self.shape.device_of(stage)]

    def operators(self, kind: int, which: Pass) -> tuple[Operator, ...]:
        """Return the operators of a pass over one kind of layer."""
        return operators_of(self.layers[kind], which)

    def bars(self, kind: int, which: Pass) -> tuple[OperatorBar, ...]:
        """Return the schedule of a pass over one kind of layer; empty where there is nothing to do."""
        key = kind, which
        if key not in self._bars:
            operators = self.operators(kind, which)
            graph = ScheduleGraph.of_operators(operators)
            self._bars[key] = bars_of(graph, operators, self._pricer, self._cache)[0] if operators else ()
        return self._bars[key]

    @cached_property
    def state_exchanges(self) -> Mapping[Moment, tuple[StateExchange, ...]]:
        """What replicas exchange of each kind of layer, by the moment; what takes place once per step apart.

        Under ``AFTER_BACKWARD`` stand those of every microbatch; :attr:`reductions` has those of the last.
        """
        found: dict[Moment, list[StateExchange]] = {moment: [] for moment in Moment}
        for each in self._all_exchanges:
            once = each.exchange.moment is Moment.AFTER_BACKWARD and not each.exchange.per_microbatch
            if not once:
                found[each.exchange.moment].append(each)
        return {moment: tuple(each) for moment, each in found.items()}

    @cached_property
    def reductions(self) -> tuple[StateExchange, ...]:
        """Exchanges of gradients once per step, behind the last backward pass."""
        return tuple(
            each
            for each in self._all_exchanges
            if each.exchange.moment is Moment.AFTER_BACKWARD and not each.exchange.per_microbatch
        )

    @cached_property
    def _all_exchanges(self) -> Sequence[StateExchange]:
        strategy, step = self.strategy, self.step
        replicas = Replicas.of(strategy.sharding, strategy.states, np.array([strategy.data]))
        found = []
        for each in chain_exchanges(step.layers, step.parameter_bytes, states=strategy.states, replicas=replicas):
            payload = np.broadcast_to(each.payload_bytes, (1, len(step.layers)))[0]
            if payload.any():
                group = exchange_group(each, self.order, replicas, 0)
                found.append(StateExchange(exchange=each, group=group, payload_bytes=tuple(payload.tolist())))
        return found
