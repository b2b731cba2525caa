"""Layers of a traced model: the forward pass cut into pieces, and each piece's share of the backward pass.

A gradient's operators belong to the layer of the forward operator with the same number; what has no number belongs to
the layer of what it reads. Equal layers in a row become one layer with a count: equal in every operator, loop and
tensor, forward and backward.
"""

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from archplace.workloads.operators import Phase
from archplace.workloads.traced.attention_sizes import fused_attention
from archplace.workloads.traced.repeats import Piece, cut_forward
from archplace.workloads.traced.tensor_graph import (
    Access,
    Atom,
    Tensor,
    TensorLayer,
    TensorOp,
    TensorOpKind,
    TensorRole,
)
from archplace.workloads.traced.whole_graph import PlacedOp, WholeGraph


@dataclass(frozen=True, slots=True)
class _Share:
    """What of the graph is one layer."""

    forward: list[TensorOp]
    backward: list[TensorOp]


def layers_of(graph: WholeGraph, steps_by_seq: Mapping[int, int]) -> tuple[tuple[TensorLayer, int], ...]:
    """Return the distinct layers in order, each with how often it stands in a row.

    ``steps_by_seq`` gives for the number of a forward operator the place of its step.
    """
    forward = [placed for placed in graph.operators if placed.is_forward]
    backward = [placed for placed in graph.operators if not placed.is_forward]
    if not forward:
        return ()
    tensors = dict(graph.tensors)
    pieces = cut_forward([placed.op for placed in forward], tensors)
    begins = [forward[piece.begin].step for piece in pieces]
    owners = _owners(forward, backward, pieces, begins, steps_by_seq)
    backward, owners = _without_shared_sums(backward, owners, tensors)
    shares = [_Share([placed.op for placed in forward[piece.begin : piece.end]], []) for piece in pieces]
    for placed, owner in zip(backward, owners, strict=True):
        shares[owner].backward.append(placed.op)
    layers = _Cutter(shares, tensors).layers(_names(pieces))
    counted: list[tuple[TensorLayer, int]] = []
    for layer in layers:
        if counted and counted[-1][0] == layer:
            counted[-1] = (layer, counted[-1][1] + 1)
        else:
            counted.append((layer, 1))
    return tuple(_named_apart(counted))


def _owners(
    forward: Sequence[PlacedOp],
    backward: Sequence[PlacedOp],
    pieces: Sequence[Piece],
    begins: Sequence[int],
    steps_by_seq: Mapping[int, int],
) -> list[int]:
    """Return for each backward operator the layer that it belongs to."""
    made: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        for placed in forward[piece.begin : piece.end]:
            made.update((access.tensor, number) for access in placed.op.writes)
            for access in placed.op.reads:
                made.setdefault(access.tensor, number)
    owners: list[int] = []
    before = len(pieces) - 1
    for placed in backward:
        step = steps_by_seq.get(placed.seq)
        if step is not None:
            owner = max(0, bisect.bisect_right(begins, step) - 1)
        else:
            near = [made[access.tensor] for access in placed.op.reads if access.tensor in made]
            owner = min(before, max(near)) if near else before
        owners.append(owner)
        made.update((access.tensor, owner) for access in placed.op.writes)
        before = owner
    return owners


def _without_shared_sums(
    backward: Sequence[PlacedOp], owners: Sequence[int], tensors: dict[int, Tensor]
) -> tuple[list[PlacedOp], list[int]]:
    """Leave out sums of a parameter's gradients from several layers: each layer has its own part of the gradient."""
    owner_of: dict[int, int] = {}
    kept: list[tuple[PlacedOp, int]] = []
    for placed, owner in zip(backward, owners, strict=True):
        op = placed.op
        parts = [access.tensor for access in op.reads]
        result = tensors[op.writes[0].tensor] if len(op.writes) == 1 else None
        apart = len({owner_of.get(part, -1) for part in parts}) > 1 and all(part in owner_of for part in parts)
        if op.name == "add" and apart and result is not None and result.role is TensorRole.GRADIENT:
            for part in parts:
                tensors[part] = replace(tensors[part], role=TensorRole.GRADIENT, gradient_of=result.gradient_of)
            continue
        owner_of.update((access.tensor, owner) for access in op.writes)
        kept.append((placed, owner))
    return [placed for placed, _ in kept], [owner for _, owner in kept]


class _Cutter:
    """Makes layers of their shares of the graph: what crosses each boundary, and names and numbers of their own."""

    def __init__(self, shares: Sequence[_Share], tensors: dict[int, Tensor]) -> None:
        self._shares = shares
        self._tensors = tensors
        self._crossing, self._returning = self._boundaries()
        readers: dict[int, set[int]] = {}
        for number, share in enumerate(shares):
            for op in (*share.forward, *share.backward):
                for access in op.reads:
                    readers.setdefault(access.tensor, set()).add(number)
        self._shared = {tensor for tensor, layers in readers.items() if len(layers) > 1}

    def layers(self, names: Sequence[str]) -> list[TensorLayer]:
        """Return the layers."""
        return [self._layer(number, name) for number, name in enumerate(names)]

    def _boundaries(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return what crosses ahead of each layer, and ahead of no layer, and the gradients that come back.

        What has no gradient crosses as a constant; what comes back for nothing that crossed is a part of a gradient.
        """
        count = len(self._shares)
        ahead = self._spans(forward=True)
        back = self._spans(forward=False)
        crossing: list[list[int]] = [[] for _ in range(count + 1)]
        returning: list[list[int]] = [[] for _ in range(count + 1)]
        for boundary in range(1, count):
            free = [tensor for tensor, (low, high) in back.items() if low < boundary <= high]
            for tensor, (made, last) in ahead.items():
                if not made < boundary <= last:
                    continue
                atoms = _atoms(self._tensors[tensor])
                gradient = next((one for one in free if _atoms(self._tensors[one]) == atoms), None)
                if gradient is not None or not back:
                    crossing[boundary].append(tensor)
                if gradient is not None:
                    returning[boundary].append(gradient)
                    free.remove(gradient)
                    # Of the last block it may come in another shape than of those before.
                    self._tensors[gradient] = replace(self._tensors[gradient], dims=self._tensors[tensor].dims)
        return crossing, returning

    def _spans(self, *, forward: bool) -> dict[int, tuple[int, int]]:
        """Return by activation that one layer makes and another reads the first and the last of them."""
        made: dict[int, int] = {}
        for number, share in enumerate(self._shares):
            for op in share.forward if forward else share.backward:
                made.update((access.tensor, number) for access in op.writes)
        spans: dict[int, tuple[int, int]] = {}
        for number, share in enumerate(self._shares):
            for op in (*share.forward, *share.backward) if forward else share.backward:
                for access in op.reads:
                    tensor = access.tensor
                    if tensor in made and made[tensor] != number:
                        if self._tensors[tensor].role is not TensorRole.ACTIVATION:
                            continue
                        low, high = spans.get(tensor, (made[tensor], made[tensor]))
                        spans[tensor] = (min(low, number), max(high, number))
        return spans

    def _layer(self, number: int, name: str) -> TensorLayer:
        share = self._shares[number]
        enters, leaves = self._crossing[number], self._crossing[number + 1]
        gradients_enter, gradients_leave = self._returning[number + 1], self._returning[number]
        backward = _phased(share.backward, gradients_leave)
        numbers: dict[int, int] = {}
        titles: dict[int, str] = {}
        for tensors, title in ((enters, "input"), (gradients_enter, "gradient")):
            for at, tensor in enumerate(tensors):
                titles[tensor] = title if len(tensors) == 1 else f"{title}.{at}"
        for tensor in enters:
            numbers.setdefault(tensor, len(numbers))
        operators = []
        used: dict[str, int] = {}
        made: set[int] = set()
        for op in (*share.forward, *backward):
            title = _counted(op.name, used)
            for at, access in enumerate(op.reads):
                numbers.setdefault(access.tensor, len(numbers))
                role = self._tensors[access.tensor].role
                titles.setdefault(access.tensor, f"{title}.{role}" + (f".{at}" if at else ""))
            for at, access in enumerate(op.writes):
                numbers.setdefault(access.tensor, len(numbers))
                titles.setdefault(access.tensor, title if not at else f"{title}:{at}")
                made.add(access.tensor)
            operators.append(
                replace(
                    op,
                    name=title,
                    reads=self._renumbered(op.reads, numbers),
                    writes=self._renumbered(op.writes, numbers),
                )
            )
        for tensor in (*leaves, *gradients_enter, *gradients_leave):
            numbers.setdefault(tensor, len(numbers))
            titles.setdefault(tensor, f"passing.{numbers[tensor]}")
        inside = made.union(enters, gradients_enter)
        return TensorLayer(
            name=name,
            tensors=tuple(self._own(tensor, titles[tensor], numbers, inside) for tensor in numbers),
            operators=tuple(operators),
            enters=tuple(numbers[tensor] for tensor in enters),
            leaves=tuple(numbers[tensor] for tensor in leaves),
            gradients_enter=tuple(numbers[tensor] for tensor in gradients_enter),
            gradients_leave=tuple(numbers[tensor] for tensor in gradients_leave),
            shared_parameters=tuple(
                numbers[tensor]
                for tensor in numbers
                if self._tensors[tensor].role is TensorRole.PARAMETER and tensor in self._shared
            ),
        )

    def _renumbered(self, accesses: Sequence[Access], numbers: Mapping[int, int]) -> tuple[Access, ...]:
        found = []
        for access in accesses:
            loops = iter([loop for dim in access.loops for loop in dim])
            dims = self._tensors[access.tensor].dims
            found.append(
                Access(numbers[access.tensor], tuple(tuple(itertools.islice(loops, len(dim))) for dim in dims))
            )
        return tuple(found)

    def _own(self, number: int, title: str, numbers: Mapping[int, int], inside: Iterable[int]) -> Tensor:
        tensor = self._tensors[number]
        role = tensor.role
        if role is TensorRole.ACTIVATION and number not in inside:
            role = TensorRole.CONSTANT
        parameter = None if tensor.gradient_of is None else numbers.get(tensor.gradient_of)
        return replace(tensor, name=title, role=role, gradient_of=parameter)


def _atoms(tensor: Tensor) -> tuple[Atom, ...]:
    """Return a tensor's atoms, whatever dimensions they are grouped into."""
    return tuple(atom for dim in tensor.dims for atom in dim)


def _phased(backward: Sequence[TensorOp], leave: Iterable[int]) -> list[TensorOp]:
    """Return the operators with their phases: data gradients are those that the layer before waits for."""
    wanted = set(leave)
    found: list[TensorOp] = []
    for op in reversed(backward):
        needed = any(access.tensor in wanted for access in op.writes)
        if needed:
            wanted.update(access.tensor for access in op.reads)
        found.append(replace(op, phase=Phase.DATA_GRADIENT if needed else Phase.WEIGHT_GRADIENT))
    return found[::-1]


def _counted(name: str, used: dict[str, int]) -> str:
    used[name] = used.get(name, 0) + 1
    return name if used[name] == 1 else f"{name}.{used[name]}"


def _names(pieces: Sequence[Piece]) -> list[str]:
    """Return names: of blocks that repeat, of what is first and last, and of what is between."""
    order = list(dict.fromkeys(piece.run for piece in pieces if piece.run >= 0))
    names = []
    for place, piece in enumerate(pieces):
        if piece.run >= 0:
            names.append("block" if len(order) == 1 else f"block.{order.index(piece.run)}")
        elif not place:
            names.append("first" if len(pieces) > 1 else "all")
        else:
            names.append("last" if place == len(pieces) - 1 else f"part.{place}")
    return names


def _named_apart(counted: Sequence[tuple[TensorLayer, int]]) -> list[tuple[TensorLayer, int]]:
    used: dict[str, int] = {}
    return [(replace(layer, name=_counted(layer.name, used)), count) for layer, count in counted]


def model_flops(layers: Sequence[tuple[TensorLayer, int]]) -> float:
    """FLOPs of all matrix products, those of attention included: two products forward, four backward."""
    return float(sum(2 * count * _macs(op) for layer, count in layers for op in layer.operators))


def _macs(op: TensorOp) -> int:
    if op.kind is not TensorOpKind.ATTENTION:
        return op.macs
    sizes = fused_attention(op)
    products = 1 if op.phase is Phase.FORWARD else 2
    return products * sizes.batch * sizes.rows * sizes.keys * (sizes.head_dim + sizes.value_dim)
