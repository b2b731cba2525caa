"""Families of strategies: which shardings go with which numbers of stages and replicas, and what is refused."""

from collections.abc import Iterator
from dataclasses import dataclass

from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Offload
from archplace.costmodel.network import DeviceOrder, Group, NetworkPricer, Share
from archplace.costmodel.network.orders import distinct_orders
from archplace.search.pipeline import PipelineSchedule
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.combinations import Choices, Entry
from archplace.search.strategy.strategy import short_form
from archplace.workloads import Axis, LayerSharding, Recompute, TrainingJob

LAYER_AXES = (Axis.TENSOR, Axis.CONTEXT, Axis.EXPERT, Axis.EXPERT_TENSOR)
"""Axes along which the devices of a layer exchange."""

Places = tuple[tuple[Share, ...], ...]
"""Where the groups of :data:`LAYER_AXES` lie in the network."""

Groups = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""Axes along which a layer is shared, each with the levels of its groups."""

GraphKey = tuple[LayerSharding, Groups]
"""What decides the seconds of layers: how they are shared, and by devices that lie where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The strategies of one sharding whose groups lie alike, before anything is priced."""

    sharding: LayerSharding
    entries: tuple[Entry, ...]

    @property
    def order(self) -> DeviceOrder:
        """An order in which the layers' groups lie as in all entries."""
        return self.entries[0].order

    @property
    def groups(self) -> Groups:
        """The groups of the layers' axes that have any, as in the first entry."""
        found = ((str(axis), self.order.group(axis).levels) for axis in LAYER_AXES)
        return tuple((axis, levels) for axis, levels in found if levels)


def groups_of(groups: Groups) -> dict[Axis, Group]:
    """Return the groups of :data:`LAYER_AXES`; of axes that are not named, groups of one."""
    named = dict(groups)
    return {axis: Group(levels=named.get(str(axis), ())) for axis in LAYER_AXES}


class Families:
    """All families of a workload on a cluster; what is refused stands beside."""

    def __init__(self, workload: TrainingJob, cluster: Cluster, axes: Axes, network: NetworkPricer) -> None:
        self.refusals: list[tuple[LayerSharding, str]] = []
        """Shardings, or ways to use all devices with one, that are not possible, with the reason."""
        self._workload, self._cluster, self._axes, self._network = workload, cluster, axes, network
        self._families = tuple(self._found())

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families)

    @property
    def refused(self) -> dict[str, int]:
        """How often each reason was met."""
        found: dict[str, int] = {}
        for _, reason in self.refusals:
            found[reason] = found.get(reason, 0) + 1
        return found

    @property
    def impossible(self) -> dict[str, str]:
        """The shardings that no family has, in the field's short form, with the first reason met."""
        possible = {family.sharding for family in self._families}
        found: dict[str, str] = {}
        for sharding, reason in self.refusals:
            if sharding not in possible:
                found.setdefault(short_form(sharding), reason)
        return found

    def _found(self) -> Iterator[Family]:
        for sharding in self._axes.shardings():
            reason = self._workload.refusal(sharding)
            if reason is not None:
                self.refusals.append((sharding, reason))
                continue
            by_places: dict[Places, list[Entry]] = {}
            for entry in self._entries(sharding):
                places = tuple(self._network.shares(entry.order.group(axis)) for axis in LAYER_AXES)
                by_places.setdefault(places, []).append(entry)
            for entries in by_places.values():
                yield Family(sharding=sharding, entries=tuple(entries))

    def _entries(self, sharding: LayerSharding) -> Iterator[Entry]:
        """Yield the ways to use all devices with such layers."""
        workload, axes = self._workload, self._axes
        devices, stage = self._cluster.size, sharding.stage_devices
        shared = f"tensor {sharding.tensor} x context {sharding.context}"

        def refuse(reason: str) -> None:
            self.refusals.append((sharding, reason))

        if devices % stage:
            refuse(f"{shared} = {stage} devices of a stage do not divide the {devices} accelerators")
            return
        pipelines = devices // stage
        for stages in axes.stages or divisors(pipelines):
            if pipelines % stages:
                refuse(f"{shared} x pipeline {stages} devices do not divide the {devices} accelerators")
                continue
            data = pipelines // stages
            if axes.data is not None and data not in axes.data:
                continue
            if workload.global_batch % (data * sharding.microbatch):
                refuse(
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
                refuse(str(error))
                continue
            for order in orders:
                yield Entry(stages=stages, data=data, microbatches=microbatches, order=order)

    def _orders(self, degrees: dict[Axis, int], sharding: LayerSharding) -> tuple[DeviceOrder, ...]:
        expert, expert_tensor = sharding.expert, sharding.expert_tensor
        if self._axes.orders is None:
            return distinct_orders(self._cluster, degrees, expert=expert, expert_tensor=expert_tensor)
        return tuple(
            DeviceOrder(tuple((axis, degrees[axis]) for axis in order), expert=expert, expert_tensor=expert_tensor)
            for order in self._axes.orders
        )


def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors, ascending."""
    return tuple(n for n in range(1, number + 1) if number % n == 0)


def choices_of(axes: Axes, cluster: Cluster) -> tuple[Choices, dict[str, int]]:
    """Return what strategies of one family may differ in, and what of it is not possible, by reason."""
    offload: list[Offload] = []
    refused: dict[str, int] = {}
    for each in axes.offload:
        if cluster.host is None and (each.activations or each.optimizer):
            refused[f"offload: the cluster {cluster.name} says nothing of its hosts; give it a 'host' section"] = 1
        else:
            offload.append(each)
    schedules: list[tuple[PipelineSchedule, int]] = []
    for schedule in axes.schedules:
        interleaved = schedule is PipelineSchedule.INTERLEAVED
        schedules += [(schedule, virtual) for virtual in (axes.virtual if interleaved else (1,))]
    choices = Choices(
        schedules=tuple(schedules),
        states=axes.states,
        offload=tuple(offload),
        overlap=axes.overlap,
        policies=tuple(policy for policy in Recompute if policy in axes.policies),
    )
    return choices, refused
