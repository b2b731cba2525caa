"""Where a design point's step time and memory go: the breakdown that a report shows.

The step takes L · (⌈M/d⌉ + s − 1) seconds plus the first stage's synchronisation and optimizer step, L being the
slowest stage's load. The slowest stage's load is split by what it waits for; what the s − 1 filling and draining
slots cost is the pipeline bubble.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Pricer, StageMemory, stage_memory
from archplace.search.attribution import COMPUTE_PARTS, EXCHANGE_PARTS, OperatorBar, attribute, bars_of
from archplace.search.choices import WorkloadResult
from archplace.search.placement.training import split_chain
from archplace.search.schedule import ScheduleCache
from archplace.search.steptimes import LayerGraphs
from archplace.workloads import Axis, LayerSharding, TrainingStep, Workload

PARTS = (
    *COMPUTE_PARTS,
    EXCHANGE_PARTS[Axis.TENSOR],
    "pipeline transfers",
    "pipeline bubble",
    "gradient synchronisation",
    "optimizer step",
)
"""What a step's seconds are split into, in the order in which a report stacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
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
    stages: tuple[StageView, ...]
    bars: dict[str, tuple[OperatorBar, ...]]
    """The block's schedules, ``forward`` and ``backward``."""

    @property
    def bottleneck(self) -> str:
        """The largest part, in words."""
        part = max(self.parts_s, key=lambda key: self.parts_s[key])
        return f"{part} ({self.parts_s[part] / sum(self.parts_s.values()):.0%} of the step)"


def explain(
    results: Sequence[WorkloadResult],
    workload: Workload,
    architectures: Architectures,
    cluster: Cluster,
    cache: ScheduleCache,
    *,
    accelerators: int,
) -> list[Explanation]:
    """Return the explanation of one workload's placement, one of ``results``, on each of ``architectures``.

    Those with equal operator graphs are priced together and their schedules solved together, unless ``cache`` has them.
    """
    peaks = peak_flops_per_s(architectures, workload)
    found: dict[int, Explanation] = {}
    for graph_key, rows in rows_by_graph(results).items():
        width, microbatch = graph_key
        step = workload.step(LayerSharding(tensor=width, microbatch=microbatch))
        layers = LayerGraphs.of(step)
        pricer = Pricer(architectures.take(rows), cluster)
        bars = {key: bars_of(layers.graphs[key], layers.operators[key], pricer, cache) for key in layers.graphs}
        for j, row in enumerate(rows.tolist()):
            split = {key: attribute(listed[j]) for key, listed in bars.items()}
            result, peak = results[row], float(peaks[row])
            found[row] = Explanation(
                parts_s=_step_parts(result, split),
                mfu=workload.flops_per_step / (result.placement.step_s * accelerators * peak),
                peak_flops_per_s=peak,
                stages=_stages(result, step, split),
                bars={direction: bars["block", direction][j] for direction in ("forward", "backward")},
            )
    return [found[row] for row in range(len(results))]


def rows_by_graph(results: Sequence[WorkloadResult]) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return which of ``results`` have which operator graphs, by (tensor-parallel width, microbatch)."""
    rows: dict[tuple[int, int], list[int]] = {}
    for row, result in enumerate(results):
        rows.setdefault(result.option.graph_key, []).append(row)
    return {key: np.array(listed, dtype=np.int64) for key, listed in rows.items()}


def peak_flops_per_s(architectures: Architectures, workload: Workload) -> FloatArray:
    """Return the FLOP/s of all tensor units in the format of the workload's products, ``(n_archs,)``."""
    rate = architectures.tensor_macs_per_element[str(workload.precision.formats.products)]
    elements = architectures.tensor_count * architectures.tensor_rows * architectures.tensor_cols
    peak: FloatArray = 2.0 * elements * rate * architectures.clock_hz
    return peak


def _stage_layers(result: WorkloadResult) -> list[dict[str, int]]:
    """Return layers per stage: kind to count."""
    stages = [{"first": 0, "block": blocks, "last": 0} for blocks in result.placement.blocks]
    stages[0]["first"] = stages[-1]["last"] = 1
    return stages


def _stage_parts(
    layers: dict[str, int], result: WorkloadResult, split: dict[tuple[str, str], dict[str, float]], transfers: int
) -> dict[str, float]:
    seconds = dict.fromkeys(PARTS, 0.0)
    for (kind, direction), parts in split.items():
        times = layers[kind]
        if result.option.recompute and kind == "block" and direction == "forward":
            times *= 2
        for part, value in parts.items():
            seconds[part] += times * value
    seconds["pipeline transfers"] = transfers * result.placement.degrees.transfer_s
    return seconds


def _transfers(position: int, stages: int) -> int:
    return (position > 0) + (position < stages - 1)


def _step_parts(result: WorkloadResult, split: dict[tuple[str, str], dict[str, float]]) -> dict[str, float]:
    placement, degrees = result.placement, result.placement.degrees
    stages = [
        _stage_parts(layers, result, split, _transfers(position, degrees.stages))
        for position, layers in enumerate(_stage_layers(result))
    ]
    slowest = max(stages, key=lambda parts: sum(parts.values()))
    # What the bars add up to can differ from the proven load in the last digits; the load is what the search used.
    scale = placement.load_s / sum(slowest.values())
    parts = {part: value * scale * degrees.microbatches for part, value in slowest.items()}
    parts["pipeline bubble"] = placement.load_s * (degrees.stages - 1)
    parts["gradient synchronisation"] = placement.sync_s
    parts["optimizer step"] = placement.optimizer_s
    return parts


def _stages(
    result: WorkloadResult, step: TrainingStep, split: dict[tuple[str, str], dict[str, float]]
) -> tuple[StageView, ...]:
    option = result.option
    first, block, _, last = split_chain(step)
    views = []
    stages = _stage_layers(result)
    for position, layers in enumerate(stages):
        names = [first.name] * layers["first"] + [f"{layers['block']} × {block.name}"] * (layers["block"] > 0)
        names += [last.name] * layers["last"]
        ends = tuple((layer, layers[kind]) for kind, layer in (("first", first), ("last", last)) if layers[kind])
        in_flight = min(len(stages) - position, result.placement.degrees.microbatches)
        outer = stage_memory(ends, step.parameter_bytes, recompute=False, in_flight=in_flight)
        inner = stage_memory(
            ((block, layers["block"]),), step.parameter_bytes, recompute=option.recompute, in_flight=in_flight
        )
        views.append(
            StageView(
                layers=" + ".join(names),
                load_s=sum(_stage_parts(layers, result, split, _transfers(position, len(stages))).values()),
                memory=StageMemory(
                    weights_bytes=outer.weights_bytes + inner.weights_bytes,
                    gradients_bytes=outer.gradients_bytes + inner.gradients_bytes,
                    optimizer_bytes=outer.optimizer_bytes + inner.optimizer_bytes,
                    activations_bytes=outer.activations_bytes + inner.activations_bytes,
                ),
            )
        )
    return tuple(views)
