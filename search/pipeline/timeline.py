"""When each device of a pipeline computes, sends and waits."""

from collections.abc import Sequence
from dataclasses import dataclass

from archplace.search.pipeline.orders import OperationKind, Slot
from archplace.search.pipeline.schedules import ScheduleShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One slot on its device."""

    slot: Slot
    begin_s: float
    computed_s: float
    """When the computation ended."""
    end_s: float
    """When the device was free again: later where it waits for its messages to arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one device held at its fullest: the moment with most activations, of those the one with most waiting."""

    activations: int
    """Microbatches of one virtual stage each, from the begin of the forward pass to the end of the pass that gives the
    input gradients."""
    weight_inputs: int
    """Microbatches of one virtual stage each whose weight gradients are still to be computed after that."""


def most_held(spans: Sequence[Span]) -> Held:
    """Return what a device that runs ``spans`` held at its fullest; nothing without spans."""
    fullest, activations, waiting = (0, 0), 0, 0
    for span in spans:
        activations += sum(operation.kind is OperationKind.FORWARD for operation in span.slot)
        fullest = max(fullest, (activations, waiting))
        for operation in span.slot:
            if operation.kind is OperationKind.BACKWARD_WEIGHT:
                waiting -= 1
            elif operation.kind is not OperationKind.FORWARD:
                activations -= 1
                waiting += operation.kind is OperationKind.BACKWARD_INPUT
    return Held(activations=fullest[0], weight_inputs=fullest[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What a simulation of one step found, by device."""

    shape: ScheduleShape
    makespan_s: float
    spans: tuple[tuple[Span, ...], ...]
    """In order of time."""
    held: tuple[Held, ...]
    messages: tuple[int, ...]
    """Messages that each device sent."""

    @property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds that each device computes."""
        return tuple(sum(span.computed_s - span.begin_s for span in spans) for spans in self.spans)

    @property
    def sending_s(self) -> tuple[float, ...]:
        """Seconds that each device does nothing but send."""
        return tuple(sum(span.end_s - span.computed_s for span in spans) for spans in self.spans)

    @property
    def bubble_share(self) -> float:
        """The part of all devices' time in which they neither compute nor send; 0 for a step that takes no time."""
        available = self.makespan_s * self.shape.stages
        if available == 0:
            return 0.0
        return 1.0 - (sum(self.busy_s) + sum(self.sending_s)) / available

    def idle_s(self, device: int) -> tuple[tuple[float, float], ...]:
        """Return the intervals from 0 to the makespan in which a device waits, none of them empty."""
        intervals: list[tuple[float, float]] = []
        free = 0.0
        for span in self.spans[device]:
            if span.begin_s > free:
                intervals.append((free, span.begin_s))
            free = span.end_s
        if self.makespan_s > free:
            intervals.append((free, self.makespan_s))
        return tuple(intervals)
