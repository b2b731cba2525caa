"""Where a design point's step time and memory go: the breakdown that a report shows.

The step takes L · (⌈M/d⌉ + s − 1) seconds plus the first stage's synchronisation and optimizer step, L being the
slowest stage's load. The slowest stage's load is split by what it waits for; what the s − 1 filling and draining
slots cost is the pipeline bubble.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from archplace.arch_configs.architectures import Architectures
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import Parts, Pricer, StageMemory, stage_memory
from archplace.search.placement.training import split_chain
from archplace.search.schedule import Mode, Schedule, ScheduleCache
from archplace.search.steptimes import LayerGraphs
from archplace.search.workload_search import WorkloadResult
from archplace.workloads import Operator, Unit, Workload

PARTS = (
    "tensor compute",
    "vector compute",
    "on-chip memory",
    "HBM",
    "fill and drain",
    "tensor-parallel communication",
    "pipeline transfers",
    "pipeline bubble",
    "gradient synchronisation",
    "optimizer step",
)
"""What a step's seconds are split into, in the order in which a report stacks them."""

_OF_FIELD = {
    "array_s": "tensor compute",
    "lanes_s": "vector compute",
    "local_port_s": "on-chip memory",
    "global_port_s": "on-chip memory",
    "hbm_s": "HBM",
}
_NETWORK = "tensor-parallel communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorBar:
    """One operator of a schedule, for a Gantt chart."""

    name: str
    unit: str
    """``tensor``, ``vector``, ``fused`` or ``network``."""
    phase: str
    start_s: float
    duration_s: float
    all_units: bool
    bound_by: str
    """Which of :data:`PARTS` its time is mostly spent on."""


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
    result: WorkloadResult,
    workload: Workload,
    architecture: Architectures,
    cluster: Cluster,
    cache: ScheduleCache,
    *,
    accelerators: int,
) -> Explanation:
    """Return the explanation of one workload's best placement on one architecture (a table of one row)."""
    option, placement = result.option, result.placement
    step = workload.step(tensor_parallel=option.tensor_parallel, microbatch=option.microbatch)
    layers = LayerGraphs.of(step)
    pricer = Pricer(architecture, cluster)
    split: dict[tuple[str, str], dict[str, float]] = {}
    bars: dict[str, tuple[OperatorBar, ...]] = {}
    for key, graph in layers.graphs.items():
        operators = layers.operators[key]
        prices = pricer.price(operators)
        schedule = cache.solve(
            graph.problem(
                one_s=prices.one_s[0],
                all_s=prices.all_s[0],
                tensor_units=int(architecture.tensor_count[0]),
                vector_units=int(architecture.vector_count[0]),
            )
        )
        listed = _bars(operators, schedule, pricer, prices.one_s[0], prices.all_s[0])
        split[key] = _attribute(listed)
        if key[0] == "block":
            bars[key[1]] = listed
    return Explanation(
        parts_s=_step_parts(result, split),
        mfu=workload.flops_per_step / (placement.step_s * accelerators * peak_flops_per_s(architecture, workload)),
        peak_flops_per_s=peak_flops_per_s(architecture, workload),
        stages=_stages(result, workload, split),
        bars=bars,
    )


def peak_flops_per_s(architecture: Architectures, workload: Workload) -> float:
    """Return the FLOP/s of all tensor units of one architecture (a table of one row) at the workload's precision."""
    rate = architecture.tensor_macs_per_element[str(workload.precision)]
    elements = architecture.tensor_count * architecture.tensor_rows * architecture.tensor_cols
    return float((2.0 * elements * rate * architecture.clock_hz)[0])


def _bars(
    operators: tuple[Operator, ...],
    schedule: Schedule,
    pricer: Pricer,
    one_s: np.ndarray[tuple[int], np.dtype[np.float64]],
    all_s: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> tuple[OperatorBar, ...]:
    bars = []
    for i, operator in enumerate(operators):
        all_units = operator.unit is not Unit.NETWORK and schedule.mode[i] == Mode.ALL
        bound_by = _NETWORK
        if operator.unit is not Unit.NETWORK:
            bound_by = _binding(pricer.parts(operator, one_unit=not all_units))
        bars.append(
            OperatorBar(
                name=operator.name,
                unit=operator.unit.value,
                phase=operator.phase.value,
                start_s=float(schedule.start_s[i]),
                duration_s=float(all_s[i] if all_units else one_s[i]),
                all_units=all_units,
                bound_by=bound_by,
            )
        )
    return tuple(bars)


def _binding(parts: Parts) -> str:
    overlapped = {name: float(getattr(parts, name)[0]) for name in _OF_FIELD}
    longest = max(overlapped, key=lambda name: overlapped[name])
    return (
        "fill and drain" if float(parts.fill_s[0] + parts.first_load_s[0]) > overlapped[longest] else _OF_FIELD[longest]
    )


def _attribute(bars: tuple[OperatorBar, ...]) -> dict[str, float]:
    """Split a schedule's makespan: each moment goes to the running compute operator that started first, or, where only
    a collective runs, to communication."""
    seconds = dict.fromkeys(PARTS, 0.0)
    times = sorted({bar.start_s for bar in bars} | {bar.start_s + bar.duration_s for bar in bars})
    for begin, end in itertools.pairwise(times):
        middle = (begin + end) / 2
        running = [bar for bar in bars if bar.start_s <= middle < bar.start_s + bar.duration_s]
        compute = [bar for bar in running if bar.unit != "network"]
        if compute:
            seconds[min(compute, key=lambda bar: bar.start_s).bound_by] += end - begin
        elif running:
            seconds[_NETWORK] += end - begin
    return seconds


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
    result: WorkloadResult, workload: Workload, split: dict[tuple[str, str], dict[str, float]]
) -> tuple[StageView, ...]:
    option = result.option
    step = workload.step(tensor_parallel=option.tensor_parallel, microbatch=option.microbatch)
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
