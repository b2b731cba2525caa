"""The order in which each device of a pipeline runs its operations.

A device runs *slots* one after the other. A slot is one operation, or a forward and a backward operation of opposite
directions that overlap.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from archplace.search.pipeline.schedules import PipelineSchedule, ScheduleShape


class OperationKind(StrEnum):
    """What a device does for one microbatch."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """Input and weight gradients in one go."""
    BACKWARD_INPUT = "backward_input"
    """Gradients of the stage's input only: what the stage before waits for."""
    BACKWARD_WEIGHT = "backward_weight"
    """Gradients of the weights, at any time after the input's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one virtual stage on one microbatch."""

    kind: OperationKind
    stage: int
    """Virtual stage, in model order from 0."""
    microbatch: int


Slot = tuple[Operation, ...]
"""One operation, or a forward and a backward operation that run together."""

_F, _B, _BI, _BW = (
    OperationKind.FORWARD,
    OperationKind.BACKWARD,
    OperationKind.BACKWARD_INPUT,
    OperationKind.BACKWARD_WEIGHT,
)


def device_order(shape: ScheduleShape, device: int) -> tuple[Slot, ...]:
    """Return what ``device`` runs, first to last; the shape must be one that the schedule does not refuse."""
    if not 0 <= device < shape.stages:
        raise ValueError(f"device: found {device}, the pipeline has devices 0 to {shape.stages - 1}")
    makers = {
        PipelineSchedule.GPIPE: _gpipe,
        PipelineSchedule.ONE_F_ONE_B: _one_f_one_b,
        PipelineSchedule.INTERLEAVED: _interleaved,
        PipelineSchedule.ZB_H1: _zb_h1,
        PipelineSchedule.DUALPIPE: _dualpipe,
    }
    return tuple(makers[shape.schedule](shape, device))


def _slot(kind: OperationKind, stage: int, microbatch: int) -> Slot:
    return (Operation(kind=kind, stage=stage, microbatch=microbatch),)


def _gpipe(shape: ScheduleShape, device: int) -> Iterator[Slot]:
    for microbatch in range(shape.microbatches):
        yield _slot(_F, device, microbatch)
    # The last activation is the first whose gradient is known (figure 2c of the paper).
    for microbatch in reversed(range(shape.microbatches)):
        yield _slot(_B, device, microbatch)


def _in_turn(forwards: list[Slot], backwards: list[Slot], warm_up: int) -> Iterator[Slot]:
    """Yield ``warm_up`` forward slots, then a forward and a backward slot in turn, then the other backward slots."""
    yield from forwards[:warm_up]
    for step, backward in enumerate(backwards):
        yield from forwards[warm_up + step : warm_up + step + 1]
        yield backward


def _one_f_one_b(shape: ScheduleShape, device: int) -> Iterator[Slot]:
    forwards = [_slot(_F, device, k) for k in range(shape.microbatches)]
    backwards = [_slot(_B, device, k) for k in range(shape.microbatches)]
    return _in_turn(forwards, backwards, shape.stages - 1 - device)


def _interleaved(shape: ScheduleShape, device: int) -> Iterator[Slot]:
    p, v, m = shape.stages, shape.virtual, shape.microbatches
    # Depth first: each group of p microbatches passes through all chunks before the next group enters.
    turns = [(group + k, chunk) for group in range(0, m, p) for chunk in range(v) for k in range(p)]
    forwards = [_slot(_F, chunk * p + device, k) for k, chunk in turns]
    backwards = [_slot(_B, (v - 1 - chunk) * p + device, k) for k, chunk in turns]
    return _in_turn(forwards, backwards, 2 * (p - 1 - device) + (v - 1) * p)


def _zb_h1(shape: ScheduleShape, device: int) -> Iterator[Slot]:
    # What 1F1B holds less than the first stage does is used up by weight gradients that wait.
    waiting = 0
    done = 0
    for slot in _one_f_one_b(shape, device):
        (operation,) = slot
        if operation.kind is _F:
            yield slot
            continue
        yield _slot(_BI, device, operation.microbatch)
        waiting += 1
        if waiting > device:
            yield _slot(_BW, device, done)
            waiting, done = waiting - 1, done + 1
    for microbatch in range(done, shape.microbatches):
        yield _slot(_BW, device, microbatch)


class _BothWays:
    """The slots of one DualPipe device: ``near`` is the direction that starts at its end of the pipeline."""

    def __init__(self, shape: ScheduleShape, device: int) -> None:
        half, last = shape.microbatches // 2, shape.stages - 1
        ways = [(device, range(half)), (last - device, range(half, 2 * half))]
        if 2 * device > last:
            ways.reverse()
        self._stages = [stage for stage, _ in ways]
        self._next = {(kind, way): iter(ways[way][1]) for kind in (_F, _BI) for way in range(2)}
        self._waiting: list[Operation] = []

    def forward(self, way: int) -> Operation:
        return Operation(kind=_F, stage=self._stages[way], microbatch=next(self._next[_F, way]))

    def backward(self, way: int) -> Operation:
        return Operation(kind=_B, stage=self._stages[way], microbatch=next(self._next[_BI, way]))

    def input_gradient(self, way: int) -> Operation:
        operation = Operation(kind=_BI, stage=self._stages[way], microbatch=next(self._next[_BI, way]))
        weights = Operation(kind=_BW, stage=operation.stage, microbatch=operation.microbatch)
        self._waiting.append(weights)
        return operation

    def weight_gradient(self) -> Operation:
        return self._waiting.pop(0)


def _dualpipe(shape: ScheduleShape, device: int) -> Iterator[Slot]:
    # Figure 5 of the paper, read column by column; depth is the distance to the nearer end of the pipeline.
    depth = min(device, shape.stages - 1 - device)
    from_middle = shape.stages // 2 - 1 - depth
    near, far = 0, 1
    both = _BothWays(shape, device)
    for _ in range(2 * from_middle):
        yield (both.forward(near),)
    for _ in range(depth + 1):
        yield (both.forward(near),)
        yield (both.forward(far),)
    for _ in range(from_middle):
        yield (both.input_gradient(far),)
        yield (both.weight_gradient(),)
        yield (both.forward(far),)
    for step in range(shape.microbatches // 2 - shape.stages + depth + 1):
        if step == 0 and from_middle == 0:
            # The two middle devices wait for each other here: apart, the forward pass reaches the neighbour sooner.
            yield (both.forward(near),)
            yield (both.backward(far),)
        else:
            yield both.forward(near), both.backward(far)
        yield both.forward(far), both.backward(near)
    for _ in range(from_middle):
        yield (both.backward(far),)
        yield both.forward(far), both.backward(near)
    # The later half of what is left puts its weight gradients off.
    whole = depth + 1
    for step in range(2 * (depth + 1)):
        way = far if step % 2 == 0 else near
        yield (both.backward(way) if step < whole else both.input_gradient(way),)
    for _ in range(from_middle):
        yield (both.weight_gradient(),)
        yield (both.input_gradient(near),)
    for _ in range(depth + 1):
        yield (both.weight_gradient(),)
