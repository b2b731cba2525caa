"""What a step takes where a device exchanges one thing at a time, as the simulator's do.

The search prices what replicas exchange as passing behind a layer's computing whatever the layer itself exchanges:
devices have links to their neighbours and to the network beside each other. In the simulator both take turns, so that a
pass takes no less than all its exchanges together, and only what is left beside the layer's own exchanges hides those
that take place once per step. That changes nothing where there is little to exchange, and bounds what a slow network
can do.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from archplace.costmodel import Moment
from archplace.costmodel.network import DeviceOrder
from archplace.search.export.backlog import Transfer
from archplace.search.export.boundary import Boundary
from archplace.search.export.communicators import Communicators
from archplace.search.export.parts import BUBBLE, TRANSFERS, predicted_parts
from archplace.search.export.passes import Granularity, Passes
from archplace.search.export.placed import Placed
from archplace.search.pipeline import SPLIT_BACKWARD, OperationKind, StageSeconds, makespan_s
from archplace.search.strategy.chain import FloatArray
from archplace.workloads import Axis

_NS = 1e9
_FORWARD = OperationKind.FORWARD


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """One operation over one layer, in seconds."""

    asked_s: float
    """As the search prices it."""
    exchanged_s: float
    """All exchanges together."""

    @property
    def taken_s(self) -> float:
        """With one exchange at a time."""
        return max(self.asked_s, self.exchanged_s)

    @property
    def room_s(self) -> float:
        """What is left beside the exchanges."""
        return self.taken_s - self.exchanged_s


class OnePort:
    """A placement's step with one exchange at a time."""

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        self._passes = Passes(placed, Communicators(placed.placement.cluster), Granularity.LAYER)
        self._split = placed.shape.schedule in SPLIT_BACKWARD
        self._units: dict[tuple[OperationKind, int, int], _Unit] = {}
        order: DeviceOrder = placed.order
        message = Boundary.of(placed).message_bytes if placed.shape.stages > 1 else 0
        self._message_s = float(placed.network.transfer_s(message, order.group(Axis.PIPELINE)))

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step."""
        return float(self._pipeline_s + self._placed.cut.tail_s + self.reduction_s + self.gathering_s)

    def parts_s(self) -> dict[str, float]:
        """Return the seconds of the step by :data:`~archplace.search.export.parts.PARTS`, those of the slowest stage.

        What does not belong to an exchange is bubble.
        """
        found = predicted_parts(self._placed.evaluation, exact=True)
        moments = (Moment.BEFORE_FORWARD, Moment.BEFORE_BACKWARD, Moment.AFTER_BACKWARD)
        shared = any(self._placed.state_exchanges[moment] for moment in moments)
        found["state exchange" if shared else TRANSFERS] += self.exchange_s
        found["gradient reduction"] += self.reduction_s
        found["parameter gathering"] += self.gathering_s
        found[BUBBLE] += self.step_s - sum(found.values())
        return found

    @cached_property
    def exchange_s(self) -> float:
        """Seconds that exchanges of every microbatch add, all together, to the slowest stage's step."""
        placed = self._placed
        slowest = int(np.argmax(placed.cut.loads_s))
        stages = [s for s in range(placed.shape.virtual_stages) if placed.shape.device_of(s) == slowest]
        before, after = placed.evaluation.stage_seconds, self._stage_seconds
        longer = after.load_s[stages] - before.load_s[stages]
        return placed.shape.microbatches * float(longer.sum())

    @cached_property
    def reduction_s(self) -> float:
        """Seconds that the gradients' reduction, once per step, is longer exposed."""
        return self._exposed_s(gathers=False) - self._modelled[0]

    @cached_property
    def gathering_s(self) -> float:
        """The same of the parameters' gathering."""
        return self._exposed_s(gathers=True) - self._modelled[1]

    @property
    def _modelled(self) -> tuple[float, float]:
        return self._placed.block.exposed_s(0, self._placed.deal.held[0])

    @property
    def _pipeline_s(self) -> float:
        placed = self._placed
        overlap = placed.strategy.overlap.pipeline
        return float(makespan_s(placed.shape, self._stage_seconds, overlap_transfers=overlap))

    def _unit(self, operation: OperationKind, stage: int, kind: int) -> _Unit:
        key = operation, stage, kind
        if key not in self._units:
            passes = self._passes
            which = passes.which(operation, kind, self._placed.policy(stage))
            script = passes.unit(kind, which, 1)
            inside = sum(piece.nanoseconds for piece in script.pieces if piece.collective is not None)
            beside = sum(map(self._ns, (each for some in passes.transfers(operation, kind, 1) for each in some)))
            asked = passes.asked_ns(operation, stage, kind)
            self._units[key] = _Unit(asked_s=asked / _NS, exchanged_s=(inside + beside) / _NS)
        return self._units[key]

    def _ns(self, transfer: Transfer) -> int:
        return self._passes.ns(transfer.kind, transfer.payload_bytes, transfer.group)

    def _seconds(self, operation: OperationKind) -> tuple[FloatArray, FloatArray]:
        """Return the seconds of an operation of every virtual stage, ``(V,)``, and those of its exchanges alone."""
        found, exchanged = [], []
        parts = self._passes.parts
        for stage, layers in enumerate(parts):
            units = [(self._unit(operation, stage, kind), count) for kind, count in enumerate(layers) if count]
            sends = stage < len(parts) - 1 if operation is _FORWARD else stage > 0
            message_s = self._message_s * (sends and operation is not OperationKind.BACKWARD_WEIGHT)
            exchanged_s = sum(unit.exchanged_s * count for unit, count in units) + message_s
            taken_s = sum(unit.taken_s * count for unit, count in units)
            found.append(max(taken_s, exchanged_s) if self._placed.strategy.overlap.pipeline else taken_s)
            exchanged.append(exchanged_s)
        return np.array(found, dtype=np.float64), np.array(exchanged, dtype=np.float64)

    @cached_property
    def _stage_seconds(self) -> StageSeconds:
        seconds = self._placed.evaluation.stage_seconds
        forward, ahead = self._seconds(_FORWARD)
        if self._split:
            inputs, back = self._seconds(OperationKind.BACKWARD_INPUT)
            weights, _ = self._seconds(OperationKind.BACKWARD_WEIGHT)
        else:
            inputs, back = self._seconds(OperationKind.BACKWARD)
            weights = np.zeros_like(forward)
        overlapped = seconds.overlapped_s
        if overlapped is not None:
            # A pair takes no less than the exchanges of both.
            backward = (inputs + weights)[::-1]
            least = np.maximum(forward, backward)
            overlapped = np.clip(np.maximum(overlapped, ahead + back[::-1]), least, forward + backward)
        return StageSeconds.of(forward, inputs, weights, seconds.transfer_s, overlapped)

    def _exposed_s(self, *, gathers: bool) -> float:
        """Return what is exposed on the first device of what takes place once per step.

        As the search has it (all but what hides behind the layers beside, and at least the exchange of the layer that
        has none), with the room that the layers' own exchanges leave.
        """
        placed = self._placed
        held: list[float] = placed.deal.held[0].tolist()
        each = self._passes.gathers if gathers else self._passes.reductions
        exchanged = [sum(map(self._ns, each(kind, 1))) / _NS for kind in range(len(held))]
        whole = sum((count * one for count, one in zip(held, exchanged, strict=True)), start=0.0)
        if not placed.strategy.overlap.data or not whole:
            return whole
        operation = _FORWARD if gathers else self._last
        first = next(kind for kind, count in enumerate(held) if count)
        rooms = (count * self._unit(operation, 0, kind).room_s for kind, count in enumerate(held) if count)
        room = sum(rooms, start=0.0)
        # The layer that comes first, or is reduced last, has nothing beside it.
        room -= self._unit(operation, 0, first).room_s
        return max(exchanged[first], whole - room, self._modelled[1 if gathers else 0])

    @property
    def _last(self) -> OperationKind:
        return OperationKind.BACKWARD_WEIGHT if self._split else OperationKind.BACKWARD
