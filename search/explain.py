"""Where a design point's step time and memory go: the breakdown that a report shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.costmodel import Allowance, Pricer, StageMemory
from archplace.costmodel.network import NetworkPricer
from archplace.costmodel.software import SoftwarePricer
from archplace.search.attribution import OperatorBar, attribute, bars_of
from archplace.search.choices import WorkloadResult
from archplace.search.schedule import ScheduleCache, ScheduleGraph
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, optimizer_operator
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.cuts import Cut
from archplace.search.strategy.evaluate import STEP_PARTS, Dissection, Evaluation, Job, StageChoice
from archplace.search.strategy.families import GraphKey, groups_of
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Pass, PassGraphs, needed_passes, operators_of
from archplace.search.strategy.options import BestPlacement
from archplace.search.strategy.strategy import DEALT_EVENLY
from archplace.search.strategy.table import table_of
from archplace.workloads import TrainingJob, TrainingStep

PARTS = STEP_PARTS
"""What a step's seconds are split into, in the order in which a report stacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """One pipeline stage."""

    layers: str
    load_s: float
    memory: StageMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a design point takes the time and memory it does."""

    parts_s: dict[str, float]
    """Seconds of the step by :data:`PARTS`; they add up to the step time."""
    mfu: float
    """Model FLOPs utilisation: model FLOPs of the step / (step seconds · devices · peak FLOP/s)."""
    peak_flops_per_s: float
    stages: tuple[StageSummary, ...]
    bars: dict[str, tuple[OperatorBar, ...]]
    """The schedules of the block that repeats most, ``forward`` and ``backward``."""

    @property
    def bottleneck(self) -> str:
        """The largest part, in words."""
        part = max(self.parts_s, key=lambda key: self.parts_s[key])
        return f"{part} ({self.parts_s[part] / sum(self.parts_s.values()):.0%} of the step)"


def explain(
    results: Sequence[WorkloadResult],
    workload: TrainingJob,
    architectures: Architectures,
    network: NetworkPricer,
    cache: ScheduleCache,
    *,
    accelerators: int,
    allowance: Allowance,
) -> list[Explanation]:
    """Return the explanation of one workload's placement, one of ``results``, on each of ``architectures``.

    Those with equal operator graphs are priced together and their schedules solved together, unless ``cache`` has them.
    """
    peaks = peak_flops_per_s(architectures, workload)
    found: dict[int, Explanation] = {}
    for (sharding, groups), rows in rows_by_graph(results).items():
        some = [results[row] for row in rows.tolist()]
        pricer = SoftwarePricer(architectures.take(rows), network.cluster, network=network).in_groups(groups_of(groups))
        layers = _Layers(workload.step(sharding), some, pricer, cache, workload)
        for j, row in enumerate(rows.tolist()):
            job = Job(
                workload=workload,
                accelerators=accelerators,
                peak_flops_per_s=float(peaks[row]),
                hbm_bytes=float(some[j].option.hbm_bytes),
                allowance=allowance,
            )
            found[row] = layers.explain(j, job, some[j].placement, network)
    return [found[row] for row in range(len(results))]


class _Layers:
    """The layers of one step on some architectures: their seconds and schedules."""

    def __init__(
        self,
        step: TrainingStep,
        results: Sequence[WorkloadResult],
        pricer: Pricer,
        cache: ScheduleCache,
        workload: TrainingJob,
    ) -> None:
        self._step, self._pricer, self._cache = step, pricer, cache
        strategies = [result.placement.strategy for result in results]
        schedules = {(strategy.schedule, strategy.virtual) for strategy in strategies}
        policies = {policy for strategy in strategies for policy in strategy.policies}
        graphs = PassGraphs([layer for layer, _ in step.layers], needed_passes(schedules, policies), pricer)
        optimizer = optimizer_operator(workload.optimizer_work(OPTIMIZER_PARAMETERS))
        self._seconds = LayerSeconds(
            passes=graphs.seconds(pricer.collective_s, cache),
            optimizer_s_per_parameter=pricer.price([optimizer]).all_s[:, 0] / OPTIMIZER_PARAMETERS,
        )
        self._bars: dict[tuple[int, Pass], list[tuple[OperatorBar, ...]]] = {}

    def bars(self, kind: int, which: Pass) -> list[tuple[OperatorBar, ...]]:
        """Return the schedules of one pass over one kind of layer on every architecture."""
        if (kind, which) not in self._bars:
            operators = operators_of(self._step.layers[kind][0], which)
            graph = ScheduleGraph.of_operators(operators)
            self._bars[kind, which] = bars_of(graph, operators, self._pricer, self._cache)
        return self._bars[kind, which]

    def _split(self, index: int) -> Callable[[int, Pass], Mapping[str, float]]:
        def split(kind: int, which: Pass) -> Mapping[str, float]:
            if not operators_of(self._step.layers[kind][0], which):
                return {}
            return attribute(self.bars(kind, which)[index])

        return split

    def explain(self, index: int, job: Job, placement: BestPlacement, network: NetworkPricer) -> Explanation:
        """Return the explanation of a placement on the architecture at ``index``."""
        strategy = placement.strategy
        table = table_of(strategy, self._step, job.workload, network, allowance=job.allowance)
        block = StrategyBlock(table, self._seconds.take(slice(index, index + 1)), job.hbm_bytes)
        held = None if strategy.schedule in DEALT_EVENLY else placement.cut.held
        chosen = StageChoice(block, held, placement.policies)
        found = Dissection(job, block, self._split(index)).run(chosen, exact=False)
        most = max(range(len(self._step.layers)), key=lambda kind: self._step.layers[kind][1])
        return Explanation(
            parts_s=_scaled(found.parts_s, placement.cut),
            mfu=job.workload.flops_per_step / (placement.step_s * job.accelerators * job.peak_flops_per_s),
            peak_flops_per_s=job.peak_flops_per_s,
            stages=tuple(_stages(found)),
            bars={
                "forward": self.bars(most, Pass.FORWARD)[index],
                "backward": self.bars(most, Pass.BACKWARD)[index],
            },
        )


def _scaled(parts_s: dict[str, float], cut: Cut) -> dict[str, float]:
    """Return the parts so that they add up to the step of the search, from which they differ in the last digits."""
    scale = cut.time_s / sum(parts_s.values())
    return {part: seconds * scale for part, seconds in parts_s.items()}


def _stages(found: Evaluation) -> list[StageSummary]:
    views = []
    for stage in found.stages:
        names = [name if count == 1 else f"{count} × {name}" for name, count in stage.layers]
        memory = stage.memory
        kept = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes
        views.append(
            StageSummary(
                layers=" + ".join(names),
                load_s=stage.load_s,
                memory=StageMemory(
                    weights_bytes=memory.weights_bytes,
                    gradients_bytes=memory.gradients_bytes,
                    optimizer_bytes=memory.optimizer_bytes,
                    activations_bytes=memory.total_bytes - kept,
                ),
            )
        )
    return views


def rows_by_graph(results: Sequence[WorkloadResult]) -> dict[GraphKey, NDArray[np.int64]]:
    """Return which of ``results`` have which operator graphs."""
    rows: dict[GraphKey, list[int]] = {}
    for row, result in enumerate(results):
        rows.setdefault(result.option.graph_key, []).append(row)
    return {key: np.array(listed, dtype=np.int64) for key, listed in rows.items()}


def peak_flops_per_s(architectures: Architectures, workload: TrainingJob) -> FloatArray:
    """Return the FLOP/s of all tensor units in the format of the workload's products, ``(n_archs,)``."""
    rate = architectures.tensor_macs_per_element[workload.precision.formats.products]
    elements = architectures.tensor_count * architectures.tensor_rows * architectures.tensor_cols
    peak: FloatArray = 2.0 * elements * rate * architectures.clock_hz
    return peak
