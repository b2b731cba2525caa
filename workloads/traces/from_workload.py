"""A workload as a Chakra trace: one training step of one device that has all layers.

Each microbatch runs forward and backward through all layers; behind the last one, gradients are reduced among the
devices that hold the same parameters, and the optimizer updates each layer. What a node carries:

==========================  ===========================================================================================
``num_ops``                 FLOPs of matrix products
``tensor_size``             bytes of operands and results, each once
``vector_ops``              operations of lanes
``loops``                   batch, m, n, k of a product; rows and row length of vector work
``comm_type``, ``…_size``   a collective's kind, and what goes in; sends and receives: ``comm_src``, ``_dst``, ``_tag``
``phase``                   ``forward``, ``backward``, ``optimizer``; with ``work``: data or weight gradient
``layer``, ``layer_index``  its kind, and which it is, counted from 0
``microbatch``              counted from 0
``scaling``                 what these numbers follow: :mod:`archplace.workloads.traces.whatif.laws`
==========================  ===========================================================================================

There are no durations: those depend on an accelerator.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.operators import CollectiveKind, Operator, Phase
from archplace.workloads.traces._workload_numbers import (
    Numbers,
    Place,
    number_laws,
    operator_numbers,
    step_numbers,
)
from archplace.workloads.traces.attributes import Attribute, AttributeKind
from archplace.workloads.traces.device_groups import DeviceGroups, Reduction
from archplace.workloads.traces.node import CollectiveType, Node, NodeKind
from archplace.workloads.traces.rank_files import groups_text
from archplace.workloads.traces.trace import Metadata, Trace
from archplace.workloads.traces.whatif.laws import SCALING, Laws, laws_text
from archplace.workloads.training_job import TrainingJob
from archplace.workloads.training_step import Layer, Recompute, TrainingStep

_TYPES = {
    CollectiveKind.ALL_REDUCE: CollectiveType.ALL_REDUCE,
    CollectiveKind.ALL_GATHER: CollectiveType.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER: CollectiveType.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL: CollectiveType.ALL_TO_ALL,
    CollectiveKind.BROADCAST: CollectiveType.BROADCAST,
}
_UINT64 = frozenset(("tensor_size",))
_MOST_TAGS = 500_000_000
"""Simulators know tags up to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """One step of ``workload`` on each device of ``data`` replicas that share layers as ``sharding`` says.

    Raises ``ValueError`` with the reason where the workload cannot be shared so.
    """

    workload: TrainingJob
    sharding: LayerSharding
    data: int = 1
    microbatches: int = 1
    """How many each device runs in the step."""
    recompute: Recompute = Recompute.NONE
    """What is dropped after the forward pass, and runs again before the backward pass, of all layers that allow it."""
    groups: DeviceGroups = field(init=False)
    _step: TrainingStep = field(init=False, repr=False)
    _laws: dict[Place, Laws] = field(init=False, repr=False)
    _names: dict[tuple[int, ...], str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.microbatches < 1:
            raise ValueError(f"microbatches is {self.microbatches}, must be at least 1")
        sequences = self.microbatches * self.data * self.sharding.microbatch
        if sequences > self.workload.global_batch:
            raise ValueError(
                f"{self.microbatches} microbatches of {self.sharding.microbatch} on {self.data} replicas are "
                f"{sequences} sequences; {self.workload.name} has {self.workload.global_batch} per step"
            )
        put = object.__setattr__
        step = self.workload.step(self.sharding)
        experts = any(layer.expert_parameters for layer, _ in step.layers)
        put(self, "_step", step)
        put(self, "groups", DeviceGroups(sharding=self.sharding, data=self.data, experts=experts))
        put(self, "_laws", number_laws(self.workload, self.sharding))
        put(self, "_names", {members: name for name, members in self.groups.named().items()})

    def metadata(self, rank: int = 0) -> Metadata:
        """Return what stands before the nodes of ``rank``."""
        workload, sharding = self.workload, self.sharding
        facts: dict[str, int | str | bool] = {
            "source": "archplace",
            "workload": workload.name,
            "model": workload.model_name,
            "sequence_length": workload.sequence_length,
            "precision": workload.precision.value,
            "optimizer": workload.optimizer.value,
            "microbatch": sharding.microbatch,
            "microbatches": self.microbatches,
            "tensor": sharding.tensor,
            "sequence_parallel": sharding.sequence,
            "context": sharding.context,
            "expert": sharding.expert,
            "expert_tensor": sharding.expert_tensor,
            "data": self.data,
            "recompute": self.recompute.value,
            "rank": rank,
            "world_size": self.groups.n_ranks,
        }
        attributes = [Attribute.of(name, value) for name, value in facts.items()]
        groups = self.groups.named()
        if groups:
            attributes.append(Attribute.of("process_groups", groups_text(groups)))
        return Metadata(attributes=tuple(attributes))

    def nodes(self, rank: int = 0) -> Iterator[Node]:
        """Give the nodes of ``rank``, parents first, with ascending ids. Raises ValueError for a rank there is none."""
        if not 0 <= rank < self.groups.n_ranks:
            raise ValueError(f"rank {rank}: there are ranks 0 to {self.groups.n_ranks - 1}")
        return _Writer(self, rank).nodes()

    def trace(self, rank: int = 0) -> Trace:
        """Return the whole trace of ``rank``."""
        return Trace(metadata=self.metadata(rank), nodes=tuple(self.nodes(rank)))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers in order, repeated ones as often as they repeat."""
        return tuple(layer for layer, count in self._step.layers for _ in range(count))

    @property
    def kinds(self) -> tuple[int, ...]:
        """By layer, the place of its kind among distinct ones."""
        return tuple(kind for kind, (_, count) in enumerate(self._step.layers) for _ in range(count))


class _Writer:
    """The nodes of one rank, one after the other."""

    def __init__(self, step: StepTrace, rank: int) -> None:
        self._step, self._rank = step, rank
        self._layers, self._kinds = step.layers, step.kinds
        self._texts = {place: laws_text(laws) for place, laws in step._laws.items()}
        self._made: list[Node] = []
        self._id = self._tag = 0

    def nodes(self) -> Iterator[Node]:
        """Give the nodes; in memory are those of one layer."""
        gradients: list[list[int]] = [[] for _ in self._layers]
        before: Sequence[int] = ()
        for microbatch in range(self._step.microbatches):
            reached = before
            for index, layer in enumerate(self._layers):
                slot = _Slot(layer=layer.name, index=index, phase="forward", microbatch=microbatch, data=reached)
                if not index:  # the last microbatch is waited for, and nothing of it read
                    slot = replace(slot, data=(), control=reached)
                reached, _ = self._pass(layer.forward, slot, "forward")
                yield from self._given()
            for index, layer in reversed(tuple(enumerate(self._layers))):
                slot = _Slot(layer=layer.name, index=index, phase="backward", microbatch=microbatch, data=reached)
                again = _replayed(layer, self._step.recompute)
                if again:
                    reached, _ = self._pass(again, replace(slot, phase="forward", again=True), "forward")
                reached, ends = self._pass(layer.backward, replace(slot, data=reached), "backward")
                gradients[index] += ends
                yield from self._given()
            before = reached
        for index, layer in reversed(tuple(enumerate(self._layers))):
            self._update(layer, index, gradients[index])
            yield from self._given()

    def _given(self) -> Iterator[Node]:
        made, self._made = self._made, []
        return iter(made)

    def _pass(self, operators: Sequence[Operator], slot: "_Slot", which: str) -> tuple[Sequence[int], list[int]]:
        """Add a pass over a layer, ``which`` of ``forward`` and ``backward``; what comes first waits as ``slot`` says.

        Returns the ids that the next layer waits for, which are all ends but those of weight gradients, and all ends.
        """
        ids: dict[str, list[int]] = {}
        names = {operator.name for operator in operators}
        read = {name for operator in operators for name in operator.inputs}
        passed = {name for one in operators if one.phase is not Phase.WEIGHT_GRADIENT for name in one.inputs}
        for operator in operators:
            sources = [number for name in operator.inputs if name in names for number in ids[name]]
            own = replace(slot, text=self._texts.get((self._kinds[slot.index], which, operator.name), ""))
            ids[operator.name] = self._operator(operator, replace(own, data=sources, control=[]) if sources else own)
        onward = [
            number
            for operator in operators
            if operator.phase is not Phase.WEIGHT_GRADIENT and operator.name not in passed
            for number in ids[operator.name]
        ]
        ends = [number for name, made in ids.items() if name not in read for number in made]
        # A layer with nothing to do passes on what it waits for.
        return onward or slot.data or slot.control, ends

    def _update(self, layer: Layer, index: int, gradients: list[int]) -> None:
        """Add the reduction of a layer's gradients, and the optimizer's work on it."""
        if not layer.parameters:
            return
        numbers = step_numbers(self._step.workload, layer)
        laws = dict(self._step._laws.get((self._kinds[index], "step", ""), ()))
        parents = []
        for use, name in ((Reduction.DENSE, "comm_size"), (Reduction.EXPERT, "expert comm_size")):
            members = self._step.groups.members(use, self._rank)
            if numbers[name] and len(members) > 1:
                text = laws_text((("comm_size", laws[name]),)) if name in laws else ""
                slot = _Slot(layer=layer.name, index=index, phase="backward", text=text, data=gradients)
                kind = CollectiveKind.ALL_REDUCE
                parents += self._exchange(f"{use} {kind}", kind, members, numbers[name], slot)
        work = {name: numbers[name] for name in ("vector_ops", "tensor_size")}
        text = laws_text(tuple((name, laws[name]) for name in work if name in laws))
        slot = _Slot(layer=layer.name, index=index, phase="optimizer", text=text, data=parents or gradients)
        self._compute("optimizer", work, slot)

    def _operator(self, operator: Operator, slot: "_Slot") -> list[int]:
        numbers = operator_numbers(operator)
        extra = [
            Attribute.of("work", operator.phase.value),
            Attribute.of("precision", str(operator.precision)),
        ]
        exchange = operator.collective
        if exchange is None:
            return self._compute(operator.name, numbers, slot, [Attribute.of("unit", operator.unit.value), *extra])
        members = self._step.groups.members(exchange.axis, self._rank)
        if exchange.kind is CollectiveKind.POINT_TO_POINT:
            return self._hop(operator.name, members, numbers["comm_size"], slot)
        return self._exchange(operator.name, exchange.kind, members, numbers["comm_size"], slot, extra)

    def _compute(self, name: str, numbers: Numbers, slot: "_Slot", extra: Sequence[Attribute] = ()) -> list[int]:
        loops = tuple(size for key, size in numbers.items() if key.startswith("loops["))
        attributes = [
            Attribute.of(key, size, AttributeKind.UINT64 if key in _UINT64 else None)
            for key, size in numbers.items()
            if not key.startswith("loops[")
        ]
        if loops:
            attributes.append(Attribute.of("loops", loops))
        return [self._add(NodeKind.COMPUTE, name, [*attributes, *extra], slot)]

    def _exchange(
        self,
        name: str,
        kind: CollectiveKind,
        members: tuple[int, ...],
        size: int,
        slot: "_Slot",
        extra: Sequence[Attribute] = (),
    ) -> list[int]:
        attributes = [
            Attribute.of("comm_type", int(_TYPES[kind])),
            Attribute.of("comm_size", size),
            Attribute.of("pg_name", self._step._names[members]),
            Attribute.of("pg_size", len(members)),
        ]
        return [self._add(NodeKind.COLLECTIVE, name, [*attributes, *extra], slot)]

    def _hop(self, name: str, members: tuple[int, ...], size: int, slot: "_Slot") -> list[int]:
        """Add one step of a ring: a send to the next member, and a receive from the one before."""
        place, tag = members.index(self._rank), self._tag % _MOST_TAGS
        self._tag += 1
        ends = {
            (NodeKind.SEND, "send"): (self._rank, members[(place + 1) % len(members)]),
            (NodeKind.RECEIVE, "receive"): (members[place - 1], self._rank),
        }
        made = []
        for (kind, what), (source, target) in ends.items():
            attributes = [
                Attribute.of("comm_size", size),
                Attribute.of("comm_src", source, AttributeKind.INT32),
                Attribute.of("comm_dst", target, AttributeKind.INT32),
                Attribute.of("comm_tag", tag, AttributeKind.INT32),
            ]
            made.append(self._add(kind, f"{name}.{what}", attributes, slot))
        return made

    def _add(self, kind: NodeKind, name: str, attributes: Sequence[Attribute], slot: "_Slot") -> int:
        number = self._id
        self._id += 1
        self._made.append(
            Node.build(
                id=number,
                kind=kind,
                name=slot.name(name),
                data_parents=sorted(set(slot.data)),
                control_parents=sorted(set(slot.control)),
                attributes=[Attribute.of("is_cpu_op", False), *attributes, *slot.attributes()],
            )
        )
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """Where nodes stand in the step, and what they wait for."""

    layer: str
    index: int
    phase: str
    microbatch: int | None = None
    again: bool = False
    text: str = ""
    """What the numbers follow."""
    data: Sequence[int] = ()
    control: Sequence[int] = ()

    def name(self, operator: str) -> str:
        """Return the name of a node there."""
        return f"{self.layer}.{'again.' if self.again else ''}{operator}"

    def attributes(self) -> list[Attribute]:
        """Return what a node says of it."""
        found = [
            Attribute.of("phase", self.phase),
            Attribute.of("layer", self.layer),
            Attribute.of("layer_index", self.index),
        ]
        found += [Attribute.of("microbatch", self.microbatch)] if self.microbatch is not None else []
        found += [Attribute.of("recomputed", True)] if self.again else []
        return found + ([Attribute.of(SCALING, self.text)] if self.text else [])


def _replayed(layer: Layer, recompute: Recompute) -> tuple[Operator, ...]:
    """Return the operators that run again before the layer's backward pass."""
    if recompute is Recompute.NONE or (recompute is Recompute.SELECTIVE and not layer.selective_replay):
        return ()
    if recompute is Recompute.FULL and not layer.full_replay:
        return layer.forward
    again = set(layer.full_replay if recompute is Recompute.FULL else layer.selective_replay)
    return tuple(operator for operator in layer.forward if operator.name in again)
