"""What each slot of a pipeline waits for, and the time of its end by a recurrence over arrays.

A slot begins when the slot before it on its device has ended and all its inputs have arrived. All slots in an order in
which none comes before what it waits for make the end times a recurrence; for many pipelines of one shape at once, its
terms are arrays.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from archplace.search.pipeline.orders import Operation, OperationKind, Slot, device_order
from archplace.search.pipeline.schedules import ScheduleShape
from archplace.search.pipeline.seconds import FloatArray, StageSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An operation whose end another one waits for."""

    operation: Operation
    boundary: int | None
    """The message crosses the boundary behind this virtual stage; ``None`` on the same device and stage."""


def needs(operation: Operation, virtual_stages: int) -> Need | None:
    """Return what an operation waits for besides its device; the first forward pass waits for nothing.

    The backward pass may have been run whole or for the input only; here it is named as :class:`OperationKind`'s
    ``BACKWARD_INPUT`` in both cases (see :func:`finished`).
    """
    stage, microbatch = operation.stage, operation.microbatch
    if operation.kind is OperationKind.FORWARD:
        if stage == 0:
            return None
        earlier = Operation(kind=OperationKind.FORWARD, stage=stage - 1, microbatch=microbatch)
        return Need(operation=earlier, boundary=stage - 1)
    if operation.kind is OperationKind.BACKWARD_WEIGHT:
        same = Operation(kind=OperationKind.BACKWARD_INPUT, stage=stage, microbatch=microbatch)
        return Need(operation=same, boundary=None)
    if stage == virtual_stages - 1:
        last = Operation(kind=OperationKind.FORWARD, stage=stage, microbatch=microbatch)
        return Need(operation=last, boundary=None)
    later = Operation(kind=OperationKind.BACKWARD_INPUT, stage=stage + 1, microbatch=microbatch)
    return Need(operation=later, boundary=stage)


def finished(operation: Operation) -> Operation:
    """Return what the end of an operation provides: a whole backward pass provides its input gradients."""
    if operation.kind is OperationKind.BACKWARD:
        return Operation(kind=OperationKind.BACKWARD_INPUT, stage=operation.stage, microbatch=operation.microbatch)
    return operation


def slot_s(slot: Slot, seconds: StageSeconds) -> FloatArray:
    """Return the duration of a slot, shaped as the seconds' leading axes."""
    if len(slot) == 2:
        forward, backward = slot
        assert (forward.kind, backward.kind) == (OperationKind.FORWARD, OperationKind.BACKWARD), slot
        if seconds.overlapped_s is not None:
            return np.asarray(seconds.overlapped_s[..., forward.stage])
    total: FloatArray = np.sum([_operation_s(operation, seconds) for operation in slot], axis=0)
    return total


def _operation_s(operation: Operation, seconds: StageSeconds) -> FloatArray:
    kind = operation.kind
    if kind is OperationKind.FORWARD:
        values = seconds.forward_s
    elif kind is OperationKind.BACKWARD_INPUT:
        values = seconds.backward_input_s
    elif kind is OperationKind.BACKWARD_WEIGHT:
        values = seconds.backward_weight_s
    else:
        values = seconds.backward_s
    return np.asarray(values[..., operation.stage])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    device: int
    slot: Slot
    awaited: tuple[tuple[int, int | None], ...]
    """Index of the step that provides it, and the boundary that its message crosses."""


@lru_cache(maxsize=8)
def _steps(shape: ScheduleShape) -> tuple[_Step, ...]:
    """Return all slots in an order in which none comes before what it waits for."""
    orders = [device_order(shape, device) for device in range(shape.stages)]
    position = [0] * shape.stages
    steps: list[_Step] = []
    provided: dict[Operation, int] = {}
    total = sum(map(len, orders))
    while len(steps) < total:
        before = len(steps)
        for device, order in enumerate(orders):
            while position[device] < len(order):
                slot = order[position[device]]
                wanted = [need for need in (needs(each, shape.virtual_stages) for each in slot) if need]
                if any(need.operation not in provided for need in wanted):
                    break
                awaited = tuple((provided[need.operation], need.boundary) for need in wanted)
                provided.update((finished(each), len(steps)) for each in slot)
                steps.append(_Step(device=device, slot=slot, awaited=awaited))
                position[device] += 1
        assert len(steps) > before, f"the order of {shape} deadlocks"
    return tuple(steps)


def makespan_s(shape: ScheduleShape, seconds: StageSeconds, *, overlap_transfers: bool) -> FloatArray:
    """Return when the last slot ends, shaped as the seconds' leading axes: the exact time of the schedule.

    Equal to what :func:`~archplace.search.pipeline.simulation.simulate` finds, for many pipelines of one shape at once.
    ``overlap_transfers``: messages travel while their sender computes on; otherwise it is busy until they have arrived.

    Raises:
        ValueError: The schedule refuses the shape, or the seconds are of another number of virtual stages.
    """
    seconds.must_fit(shape)
    seconds = seconds if overlap_transfers else seconds.sending()
    axes = seconds.forward_s.shape[:-1]
    free: list[FloatArray] = [np.zeros(axes)] * shape.stages
    ends: list[FloatArray] = []
    durations: dict[tuple[tuple[OperationKind, int], ...], FloatArray] = {}
    for step in _steps(shape):
        begin = free[step.device]
        for index, boundary in step.awaited:
            arrival = ends[index]
            if boundary is not None:
                arrival = arrival + seconds.transfer_s[..., boundary]
            begin = np.maximum(begin, arrival)
        key = tuple((each.kind, each.stage) for each in step.slot)
        if key not in durations:
            durations[key] = slot_s(step.slot, seconds)
        end = begin + durations[key]
        ends.append(end)
        free[step.device] = end
    latest: FloatArray = np.max(np.stack(free), axis=0)
    return latest
