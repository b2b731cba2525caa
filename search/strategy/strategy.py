"""A strategy: everything that is decided about running a training step, but for the cut of the layers into stages."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from archplace.costmodel import Offload, SharedStates, StateSharding, replica_refusal
from archplace.search.pipeline import PipelineSchedule, ScheduleShape
from archplace.search.pipeline import refusal as schedule_refusal
from archplace.workloads import Axis, LayerSharding, Recompute, TrainingJob

DEFAULT_ORDER = (Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.PIPELINE)
"""Axes from neighbouring devices outwards, as Megatron-LM numbers them."""

DEALT_EVENLY = frozenset({PipelineSchedule.INTERLEAVED, PipelineSchedule.DUALPIPE})
"""Schedules that deal the repeated layers out beforehand: a device works on several parts of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which communication runs behind computing.

    Exchanges inside a layer overlap as far as its operator graph allows, always.
    """

    data: bool = True
    """Gradients are reduced, and parameters gathered, layer by layer behind the layers beside; else after them."""
    pipeline: bool = True
    """Stages send while they compute; else they wait for the transfer."""

    def __str__(self) -> str:
        hidden = [name for name in ("data", "pipeline") if getattr(self, name)]
        return " and ".join(hidden) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to run the step on ``sharding.stage_devices · data · stages`` devices."""

    sharding: LayerSharding
    stages: int
    """Devices in a pipeline, each with one part of the model or ``virtual`` parts."""
    data: int
    """Replicas of the pipeline."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    virtual: int = 1
    states: StateSharding = field(default_factory=StateSharding)
    offload: Offload = field(default_factory=Offload)
    overlap: Overlap = field(default_factory=Overlap)
    order: tuple[Axis, ...] = DEFAULT_ORDER
    policies: tuple[Recompute, ...] = (Recompute.NONE,)
    """What each stage may choose from."""

    @property
    def devices(self) -> int:
        """Devices altogether."""
        return self.sharding.stage_devices * self.data * self.stages

    def microbatches(self, workload: TrainingJob) -> int:
        """Return the microbatches that each replica runs in a step; the batch must divide."""
        return workload.global_batch // (self.data * self.sharding.microbatch)

    def shape(self, workload: TrainingJob) -> ScheduleShape:
        """Return what the pipeline schedule sees."""
        return ScheduleShape(
            schedule=self.schedule,
            stages=self.stages,
            virtual=self.virtual,
            microbatches=self.microbatches(workload),
        )

    def degrees(self) -> dict[Axis, int]:
        """Return the devices along each axis of the device order."""
        return {
            Axis.TENSOR: self.sharding.tensor,
            Axis.CONTEXT: self.sharding.context,
            Axis.DATA: self.data,
            Axis.PIPELINE: self.stages,
        }

    def __str__(self) -> str:
        return " ".join(_words(self))


def _words(strategy: Strategy) -> list[str]:
    """Return the strategy in the field's short form, defaults left out."""
    sharding, states = strategy.sharding, strategy.states
    pipeline = f"pp{strategy.stages}{f'x{strategy.virtual}' if strategy.virtual > 1 else ''}"
    words = [*_layer_words(sharding), pipeline, f"dp{strategy.data}", *_further_words(sharding)]
    if strategy.stages > 1:
        words.append(str(strategy.schedule))
    if states.states is not SharedStates.NONE:
        words.append(f"shard-{states.states}" + (f"({states.group})" if states.group else ""))
    words += [
        f"offload-{name}"
        for name, share in (("activations", strategy.offload.activations), ("optimizer", strategy.offload.optimizer))
        if share
    ]
    words += [f"no-{name}-overlap" for name in ("data", "pipeline") if not getattr(strategy.overlap, name)]
    return words


def short_form(sharding: LayerSharding) -> str:
    """Return how a layer is shared in the field's short form, defaults left out."""
    return " ".join([*_layer_words(sharding), *_further_words(sharding)])


def _layer_words(sharding: LayerSharding) -> list[str]:
    words = [f"tp{sharding.tensor}{'+sp' if sharding.sequence else ''}"]
    return words + [f"cp{sharding.context}({sharding.context_kind})"] * (sharding.context > 1)


def _further_words(sharding: LayerSharding) -> list[str]:
    words = []
    if sharding.expert > 1 or sharding.expert_tensor > 1:
        words.append(f"ep{sharding.expert}" + (f"(etp{sharding.expert_tensor})" if sharding.expert_tensor > 1 else ""))
    words.append(f"mbs{sharding.microbatch}")
    return words + [f"tp-overlap{sharding.overlap_pieces}"] * (sharding.overlap_pieces > 1)


def refusal(strategy: Strategy, workload: TrainingJob, accelerators: int) -> str | None:
    """Return why a strategy cannot run on so many devices, with the numbers, or None; memory is not asked."""
    sharding = strategy.sharding
    if strategy.devices != accelerators:
        return (
            f"tensor {sharding.tensor} x context {sharding.context} x data {strategy.data} x pipeline "
            f"{strategy.stages} = {strategy.devices} devices, but there are {accelerators}: the degrees must "
            "multiply to the number of accelerators"
        )
    found = workload.refusal(sharding) or replica_refusal(sharding, strategy.states, strategy.data)
    if found is not None:
        return found
    share = strategy.data * sharding.microbatch
    if workload.global_batch % share:
        return (
            f"the global batch of {workload.global_batch} sequences does not divide over data {strategy.data} x "
            f"microbatch {sharding.microbatch} = {share}"
        )
    if strategy.states.shares_optimizer and sharding.context * strategy.data == 1:
        return (
            f"sharing of {strategy.states.states} needs several replicas; context {sharding.context} x data "
            f"{strategy.data} are one: share none"
        )
    return pipeline_refusal(strategy.shape(workload), [count for _, count in workload.step(sharding).layers])


def pipeline_refusal(shape: ScheduleShape, counts: Sequence[int]) -> str | None:
    """Return why a pipeline cannot hold ``counts`` layers of each segment, with the numbers, or None."""
    inner = sum(counts[1:-1])
    reason = schedule_refusal(shape, inner if shape.schedule in DEALT_EVENLY else sum(counts))
    # With unequal parts devices wait for each other in ways that no closed form tells; frameworks refuse them too.
    if reason is None and shape.schedule is PipelineSchedule.INTERLEAVED and inner % shape.virtual_stages:
        return (
            f"interleaved needs equal parts: {inner} repeated layers do not divide over {shape.stages} stages x "
            f"{shape.virtual} virtual stages = {shape.virtual_stages} parts"
        )
    return reason
