"""Figures of design points whatever the objectives of their run: energy by component, power, price, cost per sample.

Formulas are those of :mod:`archplace.search.figures`; here the joules are kept apart by where they go.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.arch_configs.technology import Technology
from archplace.costmodel import (
    Allowance,
    Pricer,
    accelerator_cost_usd,
    energy_parts,
    peak_power_w,
    policy_of,
    static_power_w,
)
from archplace.costmodel.network import NetworkPricer
from archplace.search.choices import WorkloadResult
from archplace.search.explain import rows_by_graph
from archplace.search.objectives import geometric_mean
from archplace.search.outcome import Evaluated
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, optimizer_operator
from archplace.search.strategy.families import groups_of
from archplace.search.strategy.layers import operators_of, replay_of
from archplace.search.strategy.options import BestPlacement
from archplace.search.strategy.table import table_of
from archplace.search.training_run import TrainingRun
from archplace.workloads import Operator, Recompute, TrainingJob

ENERGY_PARTS = (
    "tensor arrays",
    "vector lanes",
    "local buffers",
    "global buffer",
    "HBM",
    "network",
    "static power",
    "host",
)
"""What a step's joules are split into: six kinds of work, what the accelerators draw whatever they do, and their share
of the servers."""

_NETWORK = ENERGY_PARTS.index("network")
_FOLLOW_TIME = (ENERGY_PARTS.index("static power"), ENERGY_PARTS.index("host"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadMetrics:
    """Figures of one workload on one design point; None where the technology table lacks the numbers."""

    seconds_per_sample: float
    parts_j: tuple[float, ...] | None
    """Joules per sample of the whole cluster by :data:`ENERGY_PARTS`."""
    usd_per_sample: float | None
    hardware_usd_per_sample: float | None
    """What of it is hardware, written off over its service life; the rest is energy."""
    relative_throughput: float | None
    """Throughput as a fraction of the workload's best in the space; None in a run of one workload."""
    run_samples: float | None = None
    """Samples of the whole training; None where the run says nothing of it."""

    @property
    def joules_per_sample(self) -> float | None:
        """Joules per sample of the whole cluster."""
        return None if self.parts_j is None else sum(self.parts_j)

    @property
    def run_s(self) -> float | None:
        """Seconds of the whole training."""
        return _times(self.seconds_per_sample, self.run_samples)

    @property
    def run_j(self) -> float | None:
        """Joules of the whole training."""
        return _times(self.joules_per_sample, self.run_samples)

    @property
    def run_usd(self) -> float | None:
        """Dollars of the whole training, hardware and energy."""
        return _times(self.usd_per_sample, self.run_samples)

    @property
    def joules_time_share(self) -> float | None:
        """Share of the joules that follows the step's seconds: static power and hosts."""
        if self.parts_j is None:
            return None
        return sum(self.parts_j[part] for part in _FOLLOW_TIME) / sum(self.parts_j)

    @property
    def usd_energy_share(self) -> float | None:
        """Share of the dollars that buys energy."""
        if self.usd_per_sample is None or self.hardware_usd_per_sample is None:
            return None
        return 1 - self.hardware_usd_per_sample / self.usd_per_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures of one design point; None where the technology table lacks the numbers."""

    workloads: tuple[WorkloadMetrics, ...]
    samples_per_s: float
    """Of several workloads the geometric mean, as for energy and cost per sample."""
    area_mm2: float
    joules_per_sample: float | None
    usd_per_sample: float | None
    mean_power_w: float | None
    """Of one accelerator with its share of the host, over a step."""
    peak_power_w: float | None
    accelerator_usd: float | None
    """One accelerator with its share of a server, and the largest HBM capacity that a workload takes."""

    @property
    def run_s(self) -> float | None:
        """Seconds of the whole training, of several workloads one after the other; None where nothing is said of it."""
        return _sum([one.run_s for one in self.workloads])

    @property
    def run_j(self) -> float | None:
        """Joules of the whole training, of all workloads."""
        return _sum([one.run_j for one in self.workloads])

    @property
    def run_usd(self) -> float | None:
        """Dollars of the whole training, hardware and energy, of all workloads."""
        return _sum([one.run_usd for one in self.workloads])

    @property
    def samples_per_s_per_mm2(self) -> float:
        """Throughput of the cluster by the area of one accelerator."""
        return self.samples_per_s / self.area_mm2

    @property
    def samples_per_s_per_w(self) -> float | None:
        """Throughput by the mean power of the cluster, which is samples per joule."""
        return None if self.joules_per_sample is None else 1 / self.joules_per_sample

    @property
    def samples_per_usd(self) -> float | None:
        """Samples that a dollar of hardware and energy buys."""
        return None if self.usd_per_sample is None else 1 / self.usd_per_sample

    @property
    def relative_throughput(self) -> float | None:
        """Geometric mean of the workloads' relative throughputs."""
        each = self._relative
        return None if not each else float(geometric_mean(np.array(each)[:, None])[0])

    @property
    def worst_relative_throughput(self) -> float | None:
        """The least of the workloads' relative throughputs."""
        return min(self._relative, default=None)

    @property
    def _relative(self) -> list[float]:
        return [one.relative_throughput for one in self.workloads if one.relative_throughput is not None]


def metrics_of(
    points: Sequence[Evaluated],
    architectures: Architectures,
    workloads: Sequence[TrainingJob],
    cluster: Cluster,
    technology: Technology,
    *,
    accelerators: int,
    references_s: Sequence[float] = (),
    training: TrainingRun | None = None,
) -> list[Metrics]:
    """Return the figures of ``points``, of which ``architectures`` has one row each.

    ``references_s`` (n_workloads,) are the least seconds per sample of each workload in the space, or none;
    ``training`` says how much is trained in the end.
    """
    precisions = sorted({str(workload.precision.formats.products) for workload in workloads})
    known = technology.energy is not None and technology.power is not None
    known = known and all(precision in technology.need_energy().mac_j for precision in precisions)
    columns: list[list[WorkloadMetrics]] = []
    capacity = np.array([max(found.option.hbm_bytes for found in point.results) for point in points], dtype=np.int64)
    price = None
    if technology.cost is not None:
        price = accelerator_cost_usd(architectures, capacity, technology)
    for w, workload in enumerate(workloads):
        results = [point.results[w] for point in points]
        seconds = np.array([found.placement.step_s for found in results]) / workload.global_batch
        parts = usd = hardware = None
        if known:
            parts = step_energy_j(results, workload, architectures, cluster, technology, accelerators=accelerators)
            parts /= workload.global_batch
        if parts is not None and price is not None:
            cost = technology.need_cost()
            hardware = price * (accelerators / cost.service_life_s) * seconds
            usd = hardware + cost.energy_usd_per_j * parts.sum(axis=1)
        columns.append(
            [
                WorkloadMetrics(
                    seconds_per_sample=float(seconds[i]),
                    parts_j=None if parts is None else tuple(parts[i].tolist()),
                    usd_per_sample=None if usd is None else float(usd[i]),
                    hardware_usd_per_sample=None if hardware is None else float(hardware[i]),
                    relative_throughput=references_s[w] / float(seconds[i]) if references_s else None,
                    run_samples=None if training is None else training.of(workload.name),
                )
                for i in range(len(points))
            ]
        )
    peak = None
    if known:
        watts = [peak_power_w(architectures, technology, precision) for precision in precisions]
        throttled = architectures.throttled
        peak = np.broadcast_to(np.max(watts, axis=0) if throttled is None else throttled.power_w, len(points))
    return [
        _metrics(
            point,
            tuple(column[i] for column in columns),
            area_mm2=float(architectures.area_mm2[i]),
            accelerators=accelerators,
            peak_w=None if peak is None else float(peak[i]),
            price_usd=None if price is None else float(price[i]),
        )
        for i, point in enumerate(points)
    ]


def _metrics(
    point: Evaluated,
    workloads: tuple[WorkloadMetrics, ...],
    *,
    area_mm2: float,
    accelerators: int,
    peak_w: float | None,
    price_usd: float | None,
) -> Metrics:
    joules = _mean([one.joules_per_sample for one in workloads])
    return Metrics(
        workloads=workloads,
        samples_per_s=1 / point.seconds_per_sample,
        area_mm2=area_mm2,
        joules_per_sample=joules,
        usd_per_sample=_mean([one.usd_per_sample for one in workloads]),
        mean_power_w=None if joules is None else joules / point.seconds_per_sample / accelerators,
        peak_power_w=peak_w,
        accelerator_usd=price_usd,
    )


def _times(value: float | None, count: float | None) -> float | None:
    return None if value is None or count is None else value * count


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(geometric_mean(np.array(known)[:, None])[0]) if len(known) == len(values) else None


def step_energy_j(
    results: Sequence[WorkloadResult],
    workload: TrainingJob,
    architectures: Architectures,
    cluster: Cluster,
    technology: Technology,
    *,
    accelerators: int,
) -> FloatArray:
    """Return the joules of a step on the whole cluster by :data:`ENERGY_PARTS`, ``(n, n_parts)``.

    ``results`` has one placement for each of ``architectures``. Raises :class:`ConfigError` for a table without
    energies, static power or the workload's precision.
    """
    found = np.empty((len(results), len(ENERGY_PARTS)))
    network = NetworkPricer(cluster)
    for (sharding, groups), rows in rows_by_graph(results).items():
        step = workload.step(sharding)
        pricer = Pricer(architectures.take(rows), cluster, network=network).in_groups(groups_of(groups))
        some = [results[row] for row in rows.tolist()]
        optimizer = optimizer_operator(workload.optimizer_work(OPTIMIZER_PARAMETERS))
        update = _dynamic_j(pricer, [optimizer], technology) / OPTIMIZER_PARAMETERS
        tables = [table_of(one.placement.strategy, step, workload, network, allowance=Allowance()) for one in some]
        dynamic = update * np.array([table.updates[0] for table in tables])[:, None]
        units = float(sharding.stage_devices * (workload.global_batch // sharding.microbatch))
        for kind, (layer, count) in enumerate(step.layers):
            dynamic += units * count * _dynamic_j(pricer, (*layer.forward, *layer.backward), technology)
            for policy in (Recompute.SELECTIVE, Recompute.FULL):
                which = replay_of(policy, layer)
                again = np.array([_layers_under(one.placement, kind, policy, count) for one in some])
                if which is not None and policy_of(layer, policy) is policy and again.any():
                    repeated = _dynamic_j(pricer, operators_of(layer, which), technology)
                    dynamic += units * again[:, None] * repeated
        sent = np.array([table.sent_bytes[0] for table in tables])
        dynamic[:, _NETWORK] += technology.need_energy().network_j_per_byte * sent
        device_s = accelerators * np.array([one.placement.step_s for one in some])
        static = static_power_w(pricer.architectures, technology) * device_s
        host = technology.need_power().host_w_per_accelerator * device_s
        found[rows] = np.column_stack((dynamic, static, host))
    return found


def _layers_under(placement: BestPlacement, kind: int, policy: Recompute, count: int) -> float:
    """Return how many layers of a kind a placement recomputes by a policy; copies for a second direction count once."""
    held = [layers[kind] for layers in placement.cut.held]
    under = sum(n for n, each in zip(held, placement.policies, strict=True) if each is policy)
    return under * count / sum(held)


def _dynamic_j(pricer: Pricer, operators: Sequence[Operator], technology: Technology) -> FloatArray:
    """Return the joules of one execution of all ``operators`` on one device by component, ``(n_archs, 6)``."""
    total = np.zeros((len(pricer.architectures), _NETWORK + 1))
    for operator in operators:
        for column, joules in enumerate(energy_parts(pricer, operator, technology)):
            total[:, column] += joules
    return total
