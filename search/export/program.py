"""The programs of a pipeline's devices: what each does in one step, in the order of the pipeline's schedule.

All devices that hold the same stage run the same program; they differ in the groups and partners that its steps name.

- Operations follow one another as the schedule has them; each waits for its messages.
- A message leaves when its operation ends. Behind computing nothing waits for it, otherwise the next operation does.
  Its number is above those of the exchanges that come next: a device has one stream of communication, in which the
  lowest number goes first, and exchanges hold up computing where messages do not.
- What replicas exchange layer by layer is begun with the layer behind whose computing it hides, cut into the gaps
  between the layer's own exchanges.
- Gradients are reduced behind the last backward pass of each stage, layer by layer; then the optimizer runs. What it
  changed is gathered behind the first forward pass: the step before left that to do.
- Where the cost model knows a wait that no step of the simulator stands for (a host's link, a program that starts an
  exchange), the device computes nothing for as long.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from archplace.search.export.backlog import Backlog, Transfer
from archplace.search.export.boundary import Boundary
from archplace.search.export.nodes import Peer, Program, ProgramBuilder
from archplace.search.export.passes import Passes
from archplace.search.export.script import WAIT, Script
from archplace.search.pipeline import Operation, OperationKind, PipelineSchedule, Slot, device_order
from archplace.search.pipeline.dependencies import needs
from archplace.search.strategy.layers import Pass
from archplace.workloads import Axis, Collective, CollectiveKind

_NS = 1e9
_LEAST_WAIT_NS = 1000
"""What is shorter is rounding."""
_RINGS_TAG = 400_000_000
"""Tags of messages inside layers begin here, those of pipelines at 0; the simulator takes tags modulo 5 · 10⁸."""

_COMPUTE_PARTS = {
    OperationKind.FORWARD: "forward",
    OperationKind.BACKWARD: "backward",
    OperationKind.BACKWARD_INPUT: "backward",
    OperationKind.BACKWARD_WEIGHT: "backward",
}
COMPUTE_PARTS = ("forward", "backward", "optimizer step", WAIT)
"""What computing is spent on; ``waiting`` stands for what the simulator has no step for."""
TRANSFERS = "pipeline transfers"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    name: str
    peer: Peer
    size_bytes: int
    tag: int
    after: tuple[int, ...]


def programs_of(passes: Passes) -> tuple[Program, ...]:
    """Return the program of every device of a pipeline, first to last."""
    return tuple(_Device(passes, device).run() for device in range(passes.placed.shape.stages))


class _Device:
    def __init__(self, passes: Passes, device: int) -> None:
        self._passes, self._placed, self._device = passes, passes.placed, device
        self._shape = self._placed.shape
        self._builder = ProgramBuilder()
        self._overlap = self._placed.strategy.overlap
        self._boundary = Boundary.of(passes.placed)
        self._waiting: list[_Message] = []
        """Messages that leave behind the next exchanges."""
        self._backlog = Backlog(passes.ns)
        """What is to be exchanged behind computing when there is room."""
        self._reduced: tuple[int, ...] = ()
        """The last of what only the end of the step waits for."""
        self._gathered: dict[tuple[int, int], tuple[int, ...]] = {}
        """Where the parameters of a unit of a virtual stage are gathered."""
        self._rings = 0

        order = device_order(self._shape, device)
        self._order = order
        self._first, self._last = _edges(order)
        exchanged = any(passes.reductions(k, 1) or passes.gathers(k, 1) for k in range(len(self._placed.layers)))
        self._is_fine = self._overlap.data and exchanged
        """Whether the first and last operations are taken layer by layer, because something hides behind each."""

    def run(self) -> Program:
        """Return the device's program."""
        frontier: tuple[int, ...] = ()
        self._gather(operation.stage for operation in self._first)
        for slot in self._order:
            received = [place for operation in slot for place in self._receive(operation, frontier)]
            entry = (*frontier, *received)
            frontier = self._pair(slot, entry) if len(slot) == 2 else self._operation(slot[0], entry)
            self._send_waiting()
            for operation in slot:
                self._queue_message(operation, frontier)
            if not self._overlap.pipeline:
                frontier = (*frontier, *self._send_waiting())
        self._send_waiting()
        self._work_off(frontier)
        self._optimizer((*frontier, *self._reduced))
        return self._builder.program()

    # Messages between stages.

    def _receive(self, operation: Operation, frontier: tuple[int, ...]) -> list[int]:
        need = needs(operation, self._shape.virtual_stages)
        if need is None or need.boundary is None:
            return []
        backwards = operation.kind is not OperationKind.FORWARD
        message = self._message(operation, need.boundary, backwards=backwards, sends=False)
        place = self._builder.receive(
            f"receive {message.name}", TRANSFERS, message.peer, message.size_bytes, message.tag, frontier
        )
        if not self._boundary.gathers:
            return [place]
        group = self._placed.order.group(Axis.TENSOR)
        lowered = self._passes.communicators.lower(CollectiveKind.ALL_GATHER, self._boundary.whole_bytes, group)
        return list(self._builder.collectives(f"gather {message.name}", TRANSFERS, lowered, (place,)))

    def _message(self, operation: Operation, boundary: int, *, backwards: bool, sends: bool) -> _Message:
        """Return the message across a boundary that an operation sends or waits for."""
        shape, microbatch = self._shape, operation.microbatch
        # The second half of DualPipe's microbatches runs from the other end.
        mirrored = shape.schedule is PipelineSchedule.DUALPIPE and microbatch >= shape.microbatches // 2
        step = 1 if backwards == mirrored else -1
        return _Message(
            name=f"{'gradient' if backwards else 'activation'} m{microbatch} boundary {boundary}",
            peer=Peer(self._placed.order.group(Axis.PIPELINE), step if sends else -step),
            size_bytes=self._boundary.message_bytes,
            tag=(microbatch * shape.virtual_stages + boundary) * 2 + backwards,
            after=(),
        )

    def _queue_message(self, operation: Operation, after: tuple[int, ...]) -> None:
        stage, kind = operation.stage, operation.kind
        if kind is OperationKind.FORWARD and stage < self._shape.virtual_stages - 1:
            message = self._message(operation, stage, backwards=False, sends=True)
        elif kind in (OperationKind.BACKWARD, OperationKind.BACKWARD_INPUT) and stage > 0:
            message = self._message(operation, stage - 1, backwards=True, sends=True)
        else:
            return
        self._waiting.append(replace(message, after=after))

    def _send_waiting(self) -> list[int]:
        places = [
            self._builder.send(f"send {each.name}", TRANSFERS, each.peer, each.size_bytes, each.tag, each.after)
            for each in self._waiting
        ]
        self._waiting.clear()
        return places

    # Operations.

    def _units(self, *operations: Operation) -> Iterator[list[tuple[int, int, int]]]:
        """Yield the units of each operation in the order in which it takes them: number, kind and count."""
        fine = self._is_fine and any(each in self._first or each in self._last for each in operations)
        for each in operations:
            units = [(number, *unit) for number, unit in enumerate(self._passes.units(each.stage, fine=fine))]
            yield units if each.kind is OperationKind.FORWARD else units[::-1]

    def _operation(self, operation: Operation, entry: tuple[int, ...]) -> tuple[int, ...]:
        passes, policy = self._passes, self._placed.policy(operation.stage)
        (units,) = self._units(operation)
        for number, kind, count in units:
            if operation in self._first:
                entry = (*entry, *self._gather_unit(operation.stage, number))
            script = passes.unit(kind, passes.which(operation.kind, kind, policy), count)
            asked = count * passes.asked_ns(operation.kind, operation.stage, kind)
            before, after = passes.transfers(operation.kind, kind, count)
            entry = self._unit(operation, script, entry, before, after, asked)
            if operation in self._last:
                self._reduce(kind, count)
        return entry

    def _unit(
        self,
        operation: Operation,
        script: Script,
        entry: tuple[int, ...],
        before: Sequence[Transfer],
        after: Sequence[Transfer],
        asked_ns: float,
    ) -> tuple[int, ...]:
        """Append one unit with what replicas exchange beside it; return what the next unit waits for."""
        name, part = _label(operation), _COMPUTE_PARTS[operation.kind]
        exchanged_ns = sum(self._transfer_ns(each) for each in (*before, *after))
        if self._overlap.data:
            leaves = self._script(name, part, script, entry, [*before, *after])
            taken = max(script.nanoseconds, exchanged_ns)
        else:
            for each in before:
                entry = self._transfer(name, each, entry)
            leaves = self._script(name, part, script, entry, [])
            for each in after:
                leaves = self._transfer(name, each, leaves)
            taken = script.nanoseconds + exchanged_ns
        return self._wait(name, leaves, round(asked_ns) - taken)

    def _wait(self, name: str, leaves: tuple[int, ...], nanoseconds: int) -> tuple[int, ...]:
        """Append what is waited for nothing that the simulator knows; rounding is no wait."""
        if nanoseconds < _LEAST_WAIT_NS:
            return leaves
        return self._builder.compute(f"{name}: {WAIT}", WAIT, nanoseconds, leaves)

    def _pair(self, slot: Slot, entry: tuple[int, ...]) -> tuple[int, ...]:
        """Append a forward and a backward operation that run together: layers of one kind side by side."""
        forward, backward = slot
        name = f"{_label(forward)} with {_label(backward)}"
        ahead, back = self._units(forward, backward)
        taken = 0
        for number, kind, count in ahead:
            if forward in self._first:
                entry = (*entry, *self._gather_unit(forward.stage, number))
            partner = next((unit for unit in back if unit[1:] == (kind, count)), None)
            operations = [forward]
            if partner is not None:
                back.remove(partner)
                operations.append(backward)
            entry, spent = self._side_by_side(name, operations, kind, count, entry)
            taken += spent
        for _, kind, count in back:
            entry, spent = self._side_by_side(name, [backward], kind, count, entry)
            taken += spent
        overlapped = self._placed.evaluation.stage_seconds.overlapped_s
        assert overlapped is not None
        return self._wait(name, entry, round(float(overlapped[forward.stage]) * _NS) - taken)

    def _side_by_side(
        self, name: str, operations: Sequence[Operation], kind: int, count: int, entry: tuple[int, ...]
    ) -> tuple[tuple[int, ...], int]:
        """Append operations over layers of one kind; return what comes next waits for, and their nanoseconds."""
        passes = self._passes
        which = [passes.which(each.kind, kind, self._placed.policy(each.stage)) for each in operations]
        scripts = [passes.unit(kind, [each for some in which for each in some], count)]
        if len(operations) == 2:
            gradients = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
            again = [each for each in which[1] if each not in gradients]
            scripts.append(passes.unit(kind, [*again, Pass.PAIR], count))
        script = min(scripts, key=lambda each: each.nanoseconds)
        window = [
            transfer for each in operations for some in passes.transfers(each.kind, kind, count) for transfer in some
        ]
        entry = self._script(name, _COMPUTE_PARTS[operations[0].kind], script, entry, window)
        if operations[-1] in self._last:
            self._reduce(kind, count)
        return entry, max(script.nanoseconds, sum(map(self._transfer_ns, window)))

    # Computing and what hides behind it.

    def _script(
        self, name: str, part: str, script: Script, entry: tuple[int, ...], window: Sequence[Transfer]
    ) -> tuple[int, ...]:
        """Append a script with ``window``, and as much of the backlog as there is room for, beside it."""
        builder, queue = self._builder, Backlog(self._passes.ns, window)
        joined: list[int] = []

        def fill(room_ns: int | None, backlog_ns: int) -> None:
            for transfer in queue.take(room_ns):
                joined[:] = self._transfer(name, transfer, entry)
                backlog_ns -= self._transfer_ns(transfer)
            if self._overlap.data and not queue and backlog_ns > 0:
                for transfer in self._backlog.take(backlog_ns):
                    self._keep(transfer, self._transfer("step", transfer, entry))

        begins = _begins(script)
        inside = any(piece.collective is not None for piece in script.pieces)
        if not inside:
            fill(None, script.nanoseconds)
        free_from = 0
        at: list[tuple[int, ...]] = []
        for place, piece in enumerate(script.pieces):
            after = tuple(step for before in piece.after for step in at[before]) or entry
            if piece.collective is None:
                kind = WAIT if piece.name == WAIT else part
                if piece.exposes is not None:
                    kind = self._passes.part_of(piece.exposes)
                at.append(builder.compute(f"{name}: {piece.name}", kind, piece.nanoseconds, after))
                continue
            room = begins[place] - free_from
            fill(room, room)
            free_from = begins[place] + piece.nanoseconds
            at.append(self._exchange(name, piece.name, piece.collective, after))
        # Messages go behind the exchanges of the next operation's first layer.
        self._send_waiting()
        if inside:
            room = script.nanoseconds - free_from
            fill(None, room)
        ends = [step for place in script.ends for step in at[place]]
        return tuple(sorted({*(ends or entry), *joined}))

    def _exchange(self, name: str, label: str, collective: Collective, after: tuple[int, ...]) -> tuple[int, ...]:
        """Append one exchange inside a layer."""
        label, part = f"{name}: {label}", self._passes.part_of(collective)
        if collective.kind is not CollectiveKind.POINT_TO_POINT:
            return self._builder.collectives(label, part, self._passes.lower(collective), after)
        group, size = self._passes.group(collective), collective.payload_bytes
        tag = _RINGS_TAG + self._rings
        self._rings += 1
        sent = self._builder.send(label, part, Peer(group, 1), size, tag, after)
        received = self._builder.receive(label, part, Peer(group, -1), size, tag, after)
        return tuple(sorted((sent, received)))

    def _transfer_ns(self, transfer: Transfer) -> int:
        return self._passes.ns(transfer.kind, transfer.payload_bytes, transfer.group)

    def _transfer(self, name: str, transfer: Transfer, after: Iterable[int]) -> tuple[int, ...]:
        lowered = self._passes.communicators.lower(transfer.kind, transfer.payload_bytes, transfer.group)
        return self._builder.collectives(f"{name}: {transfer.name}", transfer.part, lowered, after)

    # What replicas exchange once per step.

    def _reduce(self, kind: int, count: int) -> None:
        """Begin to reduce the gradients of layers whose backward pass is done."""
        for transfer in self._passes.reductions(kind, count):
            self._backlog.add(transfer)

    def _gather(self, stages: Iterable[int]) -> None:
        """Begin to gather what the last update changed."""
        # Who begins to compute at once, as the first device does, gathers beside; others while they wait.
        begins = needs(self._order[0][0], self._shape.virtual_stages) is None
        beside = begins and self._overlap.data and self._exchanges_inside()
        places: tuple[int, ...] = ()
        for stage in sorted(stages):
            for number, (kind, count) in enumerate(self._passes.units(stage, fine=self._is_fine)):
                for transfer in self._passes.gathers(kind, count):
                    if beside:
                        self._backlog.add(replace(transfer, unit=(stage, number)))
                    else:
                        places = self._transfer("update", transfer, ())
                        self._gathered[stage, number] = places
        if not self._overlap.data:
            self._gathered = dict.fromkeys(self._gathered, places)

    def _gather_unit(self, stage: int, number: int) -> tuple[int, ...]:
        """Return what a unit of the first forward pass waits for: its parameters, gathered now if not before."""
        for transfer in self._backlog.of_unit((stage, number)):
            self._keep(transfer, self._transfer("update", transfer, ()))
        return self._gathered.get((stage, number), ())

    def _keep(self, transfer: Transfer, places: tuple[int, ...]) -> None:
        """Note where a piece of the backlog is exchanged; later ones follow earlier ones."""
        if transfer.unit is None:
            self._reduced = places
        else:
            self._gathered[transfer.unit] = places

    def _exchanges_inside(self) -> bool:
        return any(
            operator.collective is not None
            for kind in range(len(self._placed.layers))
            for operator in self._placed.operators(kind, Pass.FORWARD)
        )

    def _work_off(self, after: tuple[int, ...]) -> None:
        """Exchange what found no room behind computing."""
        for transfer in self._backlog.take():
            self._keep(transfer, self._transfer("step", transfer, after))

    def _optimizer(self, after: tuple[int, ...]) -> None:
        held = self._placed.deal.held[self._device]
        seconds = float(self._placed.block.updates_s(0) @ held)
        self._builder.compute("optimizer step", "optimizer step", round(seconds * _NS), after)


def _edges(order: Iterable[Slot]) -> tuple[set[Operation], set[Operation]]:
    """Return the first forward operation of every stage, and the last one that computes gradients of its weights."""
    first: dict[int, Operation] = {}
    last: dict[int, Operation] = {}
    for slot in order:
        for operation in slot:
            if operation.kind is OperationKind.FORWARD:
                first.setdefault(operation.stage, operation)
            elif operation.kind is not OperationKind.BACKWARD_INPUT:
                last[operation.stage] = operation
    return set(first.values()), set(last.values())


def _label(operation: Operation) -> str:
    return f"m{operation.microbatch} s{operation.stage} {operation.kind.replace('_', ' ')}"


def _begins(script: Script) -> list[int]:
    """Return when each piece of a script begins, were it alone."""
    begins: list[int] = []
    for piece in script.pieces:
        begins.append(max((begins[place] + script.pieces[place].nanoseconds for place in piece.after), default=0))
    return begins
