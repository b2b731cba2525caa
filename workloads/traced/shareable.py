"""Where the tensors of a layer may be cut by a group of devices."""

from collections.abc import Iterable
from dataclasses import dataclass

from archplace.workloads.traced.states import REPLICATED, Cutting, State, cut
from archplace.workloads.traced.tensor_graph import TensorLayer, TensorOp, TensorOpKind

Place = tuple[int, int, int]
"""A tensor, a dimension of it, an atom in that."""

_MIXES = frozenset({TensorOpKind.PRODUCT, TensorOpKind.ATTENTION, TensorOpKind.LOOKUP})
"""Kinds of operators whose results are combinations of what they read, and not their operands element by element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shareable:
    """The atoms along which a group may cut."""

    cutting: Cutting
    places: frozenset[Place]

    @classmethod
    def of(cls, layer: TensorLayer, cutting: Cutting) -> "Shareable":
        """Return where ``cutting`` can cut the tensors of a layer.

        Atoms that the degree divides and whose symbol the rules allow. Where the rules keep the stream whole, without
        those that operators other than products tie to a tensor between layers: residual sums, norms, dropout.
        """
        places = {
            (t, d, a)
            for t, tensor in enumerate(layer.tensors)
            for d, dim in enumerate(tensor.dims)
            for a, atom in enumerate(dim)
            if cutting.divides(atom.size, atom.symbol)
        }
        if cutting.stream_whole:
            places -= _stream(layer)
        return cls(cutting=cutting, places=frozenset(places))

    def states(self, layer: TensorLayer, tensor: int) -> tuple[State, ...]:
        """Return the states that a tensor can be in, partial sums not among them."""
        dims = layer.tensors[tensor].dims
        cuts = (cut(d, a) for d, dim in enumerate(dims) for a in range(len(dim)) if (tensor, d, a) in self.places)
        return (REPLICATED, *cuts)


def _stream(layer: TensorLayer) -> set[Place]:
    """The places that operators other than products tie to tensors between layers."""
    neighbours: dict[Place, set[Place]] = {}
    for op in layer.operators:
        if op.kind not in _MIXES:
            for tied in _tied(op):
                for place in tied:
                    neighbours.setdefault(place, set()).update(tied)
    between = (*layer.enters, *layer.leaves, *layer.gradients_enter, *layer.gradients_leave)
    open_places = [
        (t, d, a)
        for t in dict.fromkeys(between)
        for d, dim in enumerate(layer.tensors[t].dims)
        for a in range(len(dim))
    ]
    found = set(open_places)
    while open_places:
        for place in neighbours.get(open_places.pop(), ()):
            if place not in found:
                found.add(place)
                open_places.append(place)
    return found


def _tied(op: TensorOp) -> Iterable[list[Place]]:
    """The places that one loop of an operator runs along, for each loop."""
    along: dict[int, list[Place]] = {}
    for access in (*op.reads, *op.writes):
        for d, dim in enumerate(access.loops):
            for a, index in enumerate(dim):
                if index is not None:
                    along.setdefault(index, []).append((access.tensor, d, a))
    return along.values()
