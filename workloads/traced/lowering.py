"""From one device's share of a traced layer to the operators that are priced and scheduled.

A product becomes a matrix product; element-wise operators on nothing but its result become its epilogue, as kernels
fuse them. Attention is fused where the trace has it fused. All else that computes or copies is vector work, collectives
go to the network, and views vanish. An operator of the backward pass is a data gradient if what leaves the layer waits
for it, else a weight gradient: no data gradient ever waits for one.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from archplace.workloads.operators import Operator, Phase, Unit
from archplace.workloads.precision import Format
from archplace.workloads.traced.flow import Flow, Side
from archplace.workloads.traced.lowered_work import (
    attention_work,
    collective_of,
    epilogue_work,
    gemm_of,
    is_state,
    vector_work,
)
from archplace.workloads.traced.selective import grows_with_square, replay
from archplace.workloads.traced.sharded_layer import Exchange, ShardedLayer
from archplace.workloads.traced.states import is_of_experts
from archplace.workloads.traced.storage import kept_bytes, roots
from archplace.workloads.traced.tensor_graph import (
    TensorLayer,
    TensorOp,
    TensorOpKind,
    TensorRole,
)
from archplace.workloads.training_step import Layer


def lower(sharded: ShardedLayer, *, precision: Format) -> Layer:
    """Return what one device executes, products in the number format ``precision``.

    Bytes that are kept are counted at the operator that writes them, those of what enters at the first operator;
    parameters at the first operator that reads them. Constants (masks, token numbers) do not count among the bytes that
    enter and leave: every stage has them from the batch.
    """
    return _Lowering(sharded, precision).layer()


class _Lowering:
    """One layer on its way."""

    def __init__(self, sharded: ShardedLayer, precision: Format) -> None:
        self._layer, self._exchanges, self._precision = sharded.layer, sharded.exchanges, precision
        self._flow = Flow.of(self._layer)
        self._root = roots(self._layer)
        self._kept = kept_bytes(self._layer, self._flow)
        self._phases = _phases(self._layer)
        self._counted: set[int] = set()
        self._written_by: dict[int, str] = {}
        self._reads: dict[str, frozenset[int]] = {}

    def layer(self) -> Layer:
        """Return the device's layer."""
        layer, graphs = self._layer, {side: list[Operator]() for side in Side}
        chains = epilogues(layer)
        heads = {chain[-1]: head for head, chain in chains.items()}
        fused = {i for head, chain in chains.items() for i in (head, *chain)} - heads.keys()
        for i, op in enumerate(layer.operators):
            if op.kind is not TensorOpKind.VIEW and i not in fused:
                head = heads.get(i)
                parts = [i] if head is None else [head, *chains[head]]
                graphs[Side.of(op)].append(self._operator(parts, graphs[Side.of(op)]))
        passing = set(layer.enters) & set(layer.leaves)
        inputs = {t: size for t, size in self._kept.items() if t in layer.enters}
        if inputs and graphs[Side.FORWARD]:
            first = graphs[Side.FORWARD][0]
            graphs[Side.FORWARD][0] = replace(first, stash_bytes=first.stash_bytes + ceil(sum(inputs.values())))
        stash_bytes = sum(operator.stash_bytes for operator in graphs[Side.FORWARD])
        dropped_bytes, again = self._selective()
        return Layer(
            name=layer.name,
            forward=tuple(graphs[Side.FORWARD]),
            backward=tuple(graphs[Side.BACKWARD]),
            parameters=sum(operator.parameters for side in Side for operator in graphs[side]),
            expert_parameters=sum(layer.tensors[t].elements for t in self._counted if is_of_experts(layer.tensors[t])),
            stash_bytes=stash_bytes,
            selective_stash_bytes=stash_bytes - dropped_bytes if again else None,
            selective_replay=tuple(operator.name for operator in graphs[Side.FORWARD] if operator.name in again),
            input_bytes=self._activation_bytes(layer.enters),
            output_bytes=self._activation_bytes(layer.leaves),
            carried_bytes=self._activation_bytes(tuple(passing)),
        )

    def _selective(self) -> tuple[int, frozenset[str]]:
        """Bytes that selective recomputation does not keep, and what it runs again; nothing where it cannot help."""
        tensors = self._layer.tensors
        dropped = [t for t in self._kept if t not in self._layer.enters and grows_with_square(tensors[t])]
        passing = set(self._layer.enters) & set(self._layer.leaves)
        states = {t for t, tensor in enumerate(tensors) if is_state(tensor)}
        there = (self._kept.keys() - set(dropped)) | passing | states
        again = replay(dropped, self._written_by, self._reads, there)
        return int(sum(self._kept[t] for t in dropped)), again or frozenset()

    def _operator(self, parts: Sequence[int], before: Sequence[Operator]) -> Operator:
        """A chain of operators as one; its name is that of the first."""
        layer, tensors = self._layer, self._layer.tensors
        ops = [layer.operators[i] for i in parts]
        own = {access.tensor for op in ops for access in op.writes}
        reads = dict.fromkeys(access.tensor for op in ops for access in op.reads if access.tensor not in own)
        inside = {operator.name for operator in before}
        waits = (self._written_by.get(self._root[t], "") for t in reads)
        parameters = {self._root[t] for t in reads if tensors[self._root[t]].role is TensorRole.PARAMETER}
        parameters -= self._counted | self._flow.producer.keys()  # one that was gathered is there already
        self._counted |= parameters
        stash = sum(self._kept.get(t, 0.0) for t in own if t not in layer.enters)
        self._written_by |= {self._root[t]: ops[0].name for t in own}
        self._reads[ops[0].name] = frozenset(self._root[t] for t in reads)
        return replace(
            self._work(ops, self._exchanges.get(ops[0].name)),
            phase=self._phases[parts[-1]],
            inputs=tuple(dict.fromkeys(name for name in waits if name in inside)),
            parameters=sum(tensors[t].elements for t in parameters),
            stash_bytes=ceil(stash) if Side.of(ops[0]) is Side.FORWARD else 0,
        )

    def _work(self, ops: Sequence[TensorOp], exchange: Exchange | None) -> Operator:
        """Unit and descriptions."""
        op, tensors, precision = ops[0], self._layer.tensors, self._precision
        if exchange is not None:
            return Operator(
                name=op.name,
                unit=Unit.NETWORK,
                phase=op.phase,
                precision=precision,
                collective=collective_of(op, tensors, exchange),
            )
        if op.kind is TensorOpKind.ATTENTION:
            attention, work = attention_work(op, tensors)
            return Operator(
                name=op.name, unit=Unit.FUSED, phase=op.phase, precision=precision, attention=attention, vector=work
            )
        if op.kind is TensorOpKind.PRODUCT:
            gemm = gemm_of(op)
            epilogue = epilogue_work(gemm, op, ops[1:], tensors, frozenset(self._kept)) if len(ops) > 1 else None
            return Operator(
                name=op.name,
                unit=Unit.TENSOR if epilogue is None else Unit.FUSED,
                phase=op.phase,
                precision=precision,
                gemm=gemm,
                vector=epilogue,
            )
        work = vector_work(op, tensors)
        return Operator(name=op.name, unit=Unit.VECTOR, phase=op.phase, precision=precision, vector=work)

    def _activation_bytes(self, between: Sequence[int]) -> int:
        tensors = (self._layer.tensors[t] for t in between)
        return ceil(sum(tensor.bytes for tensor in tensors if not is_state(tensor)))


def epilogues(layer: TensorLayer) -> dict[int, tuple[int, ...]]:
    """Return for products whose result goes through element-wise operators alone which these are, in their order.

    A map joins if it reads nothing but the result, and parameters or constants, and if no other operator of the pass
    reads the result. What is kept for the backward pass may be on the way: it is written beside.
    """
    root, ops = roots(layer), layer.operators
    readers: dict[tuple[int, Side], list[int]] = {}
    for i, op in enumerate(ops):
        for t in {root[access.tensor] for access in op.reads}:
            readers.setdefault((t, Side.of(op)), []).append(i)
    fixed = {*layer.leaves, *layer.gradients_leave}
    found: dict[int, tuple[int, ...]] = {}
    for i, op in enumerate(ops):
        if op.kind is not TensorOpKind.PRODUCT or len(op.writes) != 1:
            continue
        chain: list[int] = []
        result = op.writes[0].tensor
        while result not in fixed and layer.tensors[result].role is TensorRole.ACTIVATION:
            following = readers.get((result, Side.of(op)), [])
            if len(following) != 1 or not _joins(ops[following[0]], result, layer):
                break
            chain.append(following[0])
            result = ops[following[0]].writes[0].tensor
        if chain:
            found[i] = tuple(chain)
    return found


def _joins(op: TensorOp, result: int, layer: TensorLayer) -> bool:
    tensors = layer.tensors
    alone = all(access.tensor == result or is_state(tensors[access.tensor]) for access in op.reads)
    same = tensors[op.writes[0].tensor].elements == tensors[result].elements if op.writes else False
    return op.kind is TensorOpKind.MAP and not op.reductions and alone and same


def _phases(layer: TensorLayer) -> list[Phase]:
    """The phase of each operator: of the backward pass, whether what leaves the layer waits for it."""
    wanted = set(layer.gradients_leave)
    phases: list[Phase] = []
    for op in reversed(layer.operators):
        if Side.of(op) is Side.FORWARD:
            phases.append(Phase.FORWARD)
        elif wanted.isdisjoint(access.tensor for access in op.writes):
            phases.append(Phase.WEIGHT_GRADIENT)
        else:
            wanted.update(access.tensor for access in op.reads)
            phases.append(Phase.DATA_GRADIENT)
    return phases[::-1]
