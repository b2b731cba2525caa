"""A layer as one device of a group executes it: local tensors, local operators, and the exchanges between them.

Gradients of parameters that every device stores, as those of norms under sequence parallelism, are left as partial sums
where the program chose so: they are added once per step over all microbatches, and an exchange of so few bytes once per
step is not counted, as in built-in models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from archplace.workloads.operators import Axis, CollectiveKind, Phase
from archplace.workloads.precision import FP32_BYTES
from archplace.workloads.traced.assignment import Assignment
from archplace.workloads.traced.choices import Choice, statistics_rows
from archplace.workloads.traced.flow import Flow, Side, Value
from archplace.workloads.traced.states import REPLICATED, Cutting, State, gradient_state, local_tensor
from archplace.workloads.traced.tensor_graph import (
    Access,
    Atom,
    Loop,
    LoopKind,
    Tensor,
    TensorLayer,
    TensorOp,
    TensorOpKind,
    TensorRole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What an operator of a sharded layer exchanges."""

    kind: CollectiveKind
    axis: Axis
    group_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedLayer:
    """One device's share of a layer."""

    layer: TensorLayer
    """With the sizes that one device has; exchanges are operators of kind :attr:`TensorOpKind.MOVE`."""
    exchanges: Mapping[str, Exchange]
    """By the name of the operator."""

    @classmethod
    def whole(cls, layer: TensorLayer) -> "ShardedLayer":
        """Return a layer that no group shares, its operators with names of their own."""
        names = _Names()
        return cls(
            layer=replace(layer, operators=tuple(replace(op, name=names.fresh(op.name)) for op in layer.operators)),
            exchanges={},
        )

    def shared(self, assignment: Assignment, cutting: Cutting) -> "ShardedLayer":
        """Return the layer as one device of a further group has it, whose program gave ``assignment``."""
        return _Sharing(self, assignment, cutting).result()


class _Names:
    """Names of which none comes twice."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """Return the name, or the first free one of name.2, name.3 and so on."""
        count = self._taken.get(name, 0) + 1
        found = name if count == 1 else f"{name}.{count}"
        while count > 1 and found in self._taken:
            count += 1
            found = f"{name}.{count}"
        self._taken[name] = count
        self._taken.setdefault(found, 1)
        return found


class _Sharing:
    """A layer under division: operators come in order, collectives before the first that needs them."""

    def __init__(self, sharded: ShardedLayer, assignment: Assignment, cutting: Cutting) -> None:
        self._whole, self._assignment, self._cutting = sharded.layer, assignment, cutting
        self._before = sharded.exchanges
        self._exchanges: dict[str, Exchange] = {}
        self._flow = Flow.of(sharded.layer)
        self._names = _Names()
        self._tensors: list[Tensor] = []
        self._operators: list[TensorOp] = []
        self._held: dict[tuple[Value, State], int] = {}

    def result(self) -> ShardedLayer:
        """Return the device's layer."""
        layer, flow, found = self._whole, self._flow, self._assignment
        for t, state in sorted({**found.stored, **found.given}.items()):
            self._hold(t, state, *Side)
        backward = False
        for op, way in zip(layer.operators, found.ways, strict=True):
            if Side.of(op) is Side.BACKWARD and not backward:
                self._end_forward()
                backward = True
            self._add(op, way)
        if not backward:
            self._end_forward()
        for t in flow.gradients:
            if t not in found.summed and t not in found.unsummed:
                self._at((t, Side.BACKWARD), self._gradient_state(t))
        gradients_leave = tuple(self._at((t, Side.BACKWARD), self._boundary(t)) for t in layer.gradients_leave)
        return ShardedLayer(
            layer=replace(
                layer,
                tensors=tuple(self._tensors),
                operators=tuple(self._operators),
                enters=tuple(self._at((t, Side.FORWARD), self._boundary(t)) for t in layer.enters),
                leaves=tuple(self._at((t, Side.FORWARD), self._boundary(t)) for t in layer.leaves),
                gradients_enter=tuple(self._at((t, Side.BACKWARD), self._boundary(t)) for t in layer.gradients_enter),
                gradients_leave=gradients_leave,
                shared_parameters=tuple(self._at((t, Side.FORWARD), found.stored[t]) for t in layer.shared_parameters),
            ),
            exchanges=self._exchanges,
        )

    def _gradient_state(self, gradient: int) -> State:
        tensors = self._whole.tensors
        parameter = tensors[gradient].gradient_of
        if parameter is None:
            return REPLICATED
        return gradient_state(tensors[parameter], tensors[gradient], self._assignment.stored[parameter])

    def _boundary(self, tensor: int) -> State:
        return self._cutting.between(self._whole.tensors[tensor])

    def _end_forward(self) -> None:
        """Bring what leaves and what waits into its state."""
        for t in self._whole.leaves:
            self._at((t, Side.FORWARD), self._boundary(t))
        for t, state in self._assignment.kept.items():
            self._held[(t, Side.BACKWARD), state] = self._at((t, Side.FORWARD), state)

    def _hold(self, tensor: int, state: State, *sides: Side) -> int:
        """A tensor that comes to be in a state; return its number."""
        local = local_tensor(self._whole.tensors[tensor], state, self._cutting.degree)
        if local.gradient_of is not None:
            parameter = local.gradient_of
            stored = self._assignment.stored[parameter]
            local = replace(local, gradient_of=self._held[(parameter, Side.FORWARD), stored])
        return self._register(local, *(((tensor, side), state) for side in sides))

    def _register(self, tensor: Tensor, *held: tuple[Value, State]) -> int:
        self._tensors.append(tensor)
        number = len(self._tensors) - 1
        for key in held:
            self._held.setdefault(key, number)
        return number

    def _at(self, value: Value, state: State) -> int:
        """The number of a value in a state, brought there by a collective or as a part of the whole."""
        key = (value, state)
        if key not in self._held:
            moved = {conversion.target: conversion for conversion in self._assignment.conversions.get(value, ())}
            if state in moved:
                self._held[key] = self._exchange(value, moved[state].source, state, moved[state].kind)
            else:
                assert state.is_cut, (self._whole.tensors[value[0]].name, state)
                self._held[key] = self._part(value, state)
        return self._held[key]

    def _exchange(self, value: Value, source: State, target: State, kind: CollectiveKind) -> int:
        t, side = value
        name = self._names.fresh(f"{self._whole.tensors[t].name}.{kind}")
        entering = self._at(value, source)
        number = self._hold(t, target, side)
        changed = {(state.dim, state.atom) for state in (source, target) if state.is_cut}
        self._operators.append(self._moving(name, side, entering, number, changed, TensorOpKind.MOVE))
        self._exchanges[name] = Exchange(kind=kind, axis=self._cutting.axis, group_size=self._cutting.degree)
        return number

    def _part(self, value: Value, state: State) -> int:
        """The device's part of a tensor that it has whole."""
        t, side = value
        whole = self._at(value, REPLICATED)
        number = self._hold(t, state, side)
        name = self._names.fresh(f"{self._whole.tensors[t].name}.part")
        changed = {(state.dim, state.atom)}
        self._operators.append(self._moving(name, side, whole, number, changed, TensorOpKind.VIEW))
        return number

    def _moving(
        self, name: str, side: Side, entering: int, number: int, changed: set[tuple[int, int]], kind: TensorOpKind
    ) -> TensorOp:
        """An operator that leaves a tensor as it is but for the atoms ``changed``, which it takes and gives whole."""
        tensor = self._tensors[number]
        places = [(d, a, atom) for d, dim in enumerate(tensor.dims) for a, atom in enumerate(dim)]
        loops = tuple(
            Loop(atom.size, LoopKind.WHOLE if (d, a) in changed else LoopKind.FREE, atom.symbol)
            for d, a, atom in places
        )
        order = {(d, a): i for i, (d, a, _) in enumerate(places)}

        def along(skipped: set[tuple[int, int]]) -> tuple[tuple[int | None, ...], ...]:
            return tuple(
                tuple(None if (d, a) in skipped else order[d, a] for a in range(len(dim)))
                for d, dim in enumerate(tensor.dims)
            )

        return TensorOp(
            name=name,
            kind=kind,
            phase=Phase.FORWARD if side is Side.FORWARD else Phase.DATA_GRADIENT,
            loops=loops,
            reads=(Access(entering, along(changed)),),
            writes=(Access(number, along(set())),),
            linear=True,
            operations_per_element=0.0,
        )

    def _add(self, op: TensorOp, way: Choice) -> None:
        """An operator in the way chosen for it."""
        side = Side.of(op)
        loops = tuple(
            replace(loop, size=loop.size // self._cutting.degree) if i == way.loop else loop
            for i, loop in enumerate(op.loops)
        )
        reads = tuple(
            Access(self._at((access.tensor, side), state), access.loops)
            for access, state in zip(op.reads, way.reads, strict=True)
        )
        name = self._names.fresh(op.name)
        if op.name in self._before:
            self._exchanges[name] = self._before[op.name]
        local = replace(op, name=name, loops=loops, reads=reads, writes=())
        if way.statistics_bytes:
            local = self._with_statistics(local)
        writes = tuple(
            Access(self._hold(access.tensor, state, side), access.loops)
            for access, state in zip(op.writes, way.writes, strict=True)
        )
        self._operators.append(replace(local, writes=writes))

    def _with_statistics(self, op: TensorOp) -> TensorOp:
        """Passes over rows that devices share: each that reduces is followed by an exchange; return the last passes."""
        rows, reductions = statistics_rows(op), op.reductions
        passes = max(op.passes, reductions)
        each = op.operations_per_element / passes
        unindexed = ((None,),)
        for _ in range(reductions):
            scalars = Tensor(
                name=f"{op.name}.scalars", dims=((Atom(rows),),), element_bytes=FP32_BYTES, role=TensorRole.ACTIVATION
            )
            partial, total = self._register(scalars), self._register(replace(scalars, name=f"{op.name}.sums"))
            first = replace(
                op,
                name=self._names.fresh(f"{op.name}.statistics"),
                writes=(Access(partial, unindexed),),
                operations_per_element=each,
                passes=1,
                reductions=1,
            )
            exchange = TensorOp(
                name=self._names.fresh(f"{first.name}.{CollectiveKind.ALL_REDUCE}"),
                kind=TensorOpKind.MOVE,
                phase=op.phase,
                loops=(),
                reads=(Access(partial, unindexed),),
                writes=(Access(total, unindexed),),
                operations_per_element=0.0,
            )
            self._operators += [first, exchange]
            self._exchanges[exchange.name] = Exchange(
                kind=CollectiveKind.ALL_REDUCE, axis=self._cutting.axis, group_size=self._cutting.degree
            )
            op = replace(op, reads=(*op.reads, Access(total, unindexed)))
        left = max(1, passes - reductions)
        return replace(op, operations_per_element=each * left, passes=left, reductions=0)
