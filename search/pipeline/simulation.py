"""A pipeline's step by event simulation: devices and messages are processes of simpy.

Each device runs its slots in order; a slot waits until the messages that it needs are there. Messages travel by
themselves, or keep their sender busy until they have arrived. Nothing here knows of the closed forms.
"""

from collections.abc import Generator

import simpy

from archplace.search.pipeline.dependencies import finished, needs, slot_s
from archplace.search.pipeline.orders import Operation, OperationKind, Slot, device_order
from archplace.search.pipeline.schedules import ScheduleShape
from archplace.search.pipeline.seconds import StageSeconds
from archplace.search.pipeline.timeline import Span, Timeline, most_held

_Process = Generator[simpy.Event, object, None]


def simulate(shape: ScheduleShape, seconds: StageSeconds, *, overlap_transfers: bool) -> Timeline:
    """Return the timeline of one step on one pipeline.

    ``overlap_transfers``: messages travel while their sender computes on; otherwise it waits until they have arrived.

    Raises:
        ValueError: The schedule refuses the shape, or the seconds are of other stages or of more than one pipeline.
    """
    seconds.must_fit(shape)
    if seconds.forward_s.ndim != 1:
        raise ValueError(f"forward_s: found shape {seconds.forward_s.shape}; one pipeline is simulated at a time")
    return _Simulation(shape, seconds, overlap_transfers).run()


class _Simulation:
    def __init__(self, shape: ScheduleShape, seconds: StageSeconds, overlap_transfers: bool) -> None:
        self._shape, self._seconds, self._overlap = shape, seconds, overlap_transfers
        self._environment = simpy.Environment()
        self._known: dict[tuple[Operation, bool], simpy.Event] = {}
        self._spans: list[list[Span]] = [[] for _ in range(shape.stages)]
        self._messages = [0] * shape.stages

    def run(self) -> Timeline:
        orders = [device_order(self._shape, device) for device in range(self._shape.stages)]
        devices = [self._environment.process(self._device(index, order)) for index, order in enumerate(orders)]
        self._environment.run(until=self._environment.all_of(devices))
        return Timeline(
            shape=self._shape,
            makespan_s=float(self._environment.now),
            spans=tuple(map(tuple, self._spans)),
            held=tuple(map(most_held, self._spans)),
            messages=tuple(self._messages),
        )

    def _device(self, index: int, order: tuple[Slot, ...]) -> _Process:
        environment = self._environment
        for slot in order:
            for operation in slot:
                need = needs(operation, self._shape.virtual_stages)
                if need is not None:
                    yield self._event(need.operation, elsewhere=need.boundary is not None)
            begin_s = float(environment.now)
            yield environment.timeout(float(slot_s(slot, self._seconds)))
            computed_s = float(environment.now)
            messages = {operation: self._sends(operation) for operation in map(finished, slot)}
            for operation in messages:
                self._event(operation, elsewhere=False).succeed()
            self._messages[index] += sum(boundary is not None for boundary in messages.values())
            sending = [
                (operation, float(self._seconds.transfer_s[boundary]))
                for operation, boundary in messages.items()
                if boundary is not None
            ]
            if self._overlap:
                for operation, transfer_s in sending:
                    environment.process(self._message(operation, transfer_s))
            elif sending:
                # Both messages of an overlapped pair leave as one batch.
                yield environment.timeout(sum(transfer_s for _, transfer_s in sending))
                for operation, _ in sending:
                    self._event(operation, elsewhere=True).succeed()
            span = Span(slot=slot, begin_s=begin_s, computed_s=computed_s, end_s=float(environment.now))
            self._spans[index].append(span)

    def _event(self, operation: Operation, *, elsewhere: bool) -> simpy.Event:
        """Return the event that the result of an operation is there, on its own device or at the neighbour."""
        key = operation, elsewhere
        if key not in self._known:
            self._known[key] = self._environment.event()
        return self._known[key]

    def _sends(self, operation: Operation) -> int | None:
        """Return the boundary that the result of an operation crosses, ``None`` if it stays."""
        if operation.kind is OperationKind.FORWARD and operation.stage < self._shape.virtual_stages - 1:
            return operation.stage
        if operation.kind is OperationKind.BACKWARD_INPUT and operation.stage > 0:
            return operation.stage - 1
        return None

    def _message(self, operation: Operation, transfer_s: float) -> _Process:
        yield self._environment.timeout(transfer_s)
        self._event(operation, elsewhere=True).succeed()
