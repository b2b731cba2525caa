"""Pipeline schedules: what each asks for, holds and sends.

A pipeline of ``stages`` devices runs ``microbatches`` microbatches. A schedule with ``virtual`` chunks per device cuts
the model into ``virtual * stages`` *virtual stages*; chunk ``c`` of device ``j`` is virtual stage ``c * stages + j``.
"""

from dataclasses import dataclass
from enum import StrEnum


class PipelineSchedule(StrEnum):
    """In which order the devices of a pipeline run forward and backward passes."""

    GPIPE = "gpipe"
    """All forward passes, then all backward passes (Huang et al. 2019, arXiv:1811.06965)."""
    ONE_F_ONE_B = "1f1b"
    """Forward and backward in turn after a warm-up (PipeDream-flush: Narayanan et al. 2021, arXiv:2006.09503)."""
    INTERLEAVED = "interleaved"
    """1F1B over several chunks of the model per device, depth first (Narayanan et al. 2021, arXiv:2104.04473)."""
    ZB_H1 = "zb-h1"
    """1F1B whose weight gradients are put off into the bubble, at no more memory on the first stage (Qi et al. 2023,
    arXiv:2401.10241, figure 3)."""
    DUALPIPE = "dualpipe"
    """Microbatches enter at both ends; a forward pass overlaps with a backward pass of the other direction (DeepSeek-AI
    2024, arXiv:2412.19437, figure 5)."""


SPLIT_BACKWARD = frozenset({PipelineSchedule.ZB_H1, PipelineSchedule.DUALPIPE})
"""The schedules that run weight gradients apart from input gradients, at least at times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleShape:
    """One schedule on one pipeline."""

    schedule: PipelineSchedule
    stages: int
    """Devices in a row, p."""
    virtual: int = 1
    """Chunks of the model on each device, v; more than 1 only when interleaved."""
    microbatches: int
    """Microbatches that the pipeline runs in one step, m; under DualPipe half of them enter at each end."""

    @property
    def virtual_stages(self) -> int:
        """Parts into which the model is cut."""
        return self.stages * self.virtual

    def device_of(self, stage: int) -> int:
        """Return the device of a virtual stage; under DualPipe of the direction that starts at device 0."""
        return stage % self.stages


def refusal(shape: ScheduleShape, n_layers: int | None = None) -> str | None:
    """Return why the schedule cannot run on such a pipeline, with numbers, or ``None`` where it can.

    ``n_layers`` are the layers that can be cut apart; without it, any number of stages has enough.
    """
    name, p, v, m = shape.schedule, shape.stages, shape.virtual, shape.microbatches
    if p < 1 or m < 1 or v < 1:
        return f"{name} needs at least 1 stage, 1 virtual stage per device and 1 microbatch; found {p}, {v} and {m}"
    if n_layers is not None and p * v > n_layers:
        parts = f"{p} stages" if v == 1 else f"{p} stages x {v} virtual stages = {p * v} parts"
        return f"{parts} need at least as many layers; found {n_layers}; use fewer stages"
    if name is PipelineSchedule.INTERLEAVED:
        if v < 2:
            return "interleaved needs at least 2 virtual stages per device; found 1; use 1f1b or virtual >= 2"
        if p < 2:
            return "interleaved needs at least 2 stages; found 1; use 1f1b"
        if m % p:
            return f"interleaved needs microbatches divisible by stages; found {m} microbatches on {p} stages"
    elif v != 1:
        return f"{name} runs one virtual stage per device; found {v}; use interleaved or virtual = 1"
    if name is PipelineSchedule.DUALPIPE:
        if p % 2:
            return f"dualpipe needs an even number of stages; found {p}"
        if m % 2:
            return f"dualpipe needs an even number of microbatches, half from each end; found {m}"
        if m < 2 * p:
            return f"dualpipe needs at least 2 microbatches per stage; found {m} microbatches on {p} stages"
    return None


def parameter_copies(schedule: PipelineSchedule) -> int:
    """Return how many stages' parameters one device holds per stage of its own: 2 under DualPipe, otherwise 1.

    Under DualPipe device ``j`` of ``p`` holds stage ``j`` and stage ``p - 1 - j`` (arXiv:2412.19437, table 2).
    """
    return 2 if schedule is PipelineSchedule.DUALPIPE else 1


def messages_sent(shape: ScheduleShape, device: int) -> int:
    """Return the activations and gradients that one device sends to its neighbours in a step.

    Each virtual stage but the last sends one activation per microbatch, each but the first one gradient. A single
    device sends nothing. DualPipe's two directions send as much as one direction with all microbatches.
    """
    p, v, m = shape.stages, shape.virtual, shape.microbatches
    if p == 1:
        return 0
    return m * (2 * v - (device == 0) - (device == p - 1))
