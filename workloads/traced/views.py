"""Read through views: operators index what a view shows, so that a tensor has one name."""

from dataclasses import dataclass, replace

from archplace.workloads.traced.tensor_graph import Access, TensorLayer, TensorOp, TensorOpKind, TensorRole

Place = tuple[int, int]
"""A dimension of a tensor and an atom in it."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A tensor as a view of another."""

    source: int
    places: tuple[tuple[Place, ...], ...]
    """For each dimension and atom of the source where the view has it."""


def without_views(layer: TensorLayer) -> TensorLayer:
    """Return the layer without views that show all of a tensor in another shape or order; its readers read the tensor.

    Views that show a part, repeat elements, or take atoms apart in ways that the graph does not know stay operators,
    as do those that leave the layer or are gradients of parameters, of which others know the shape. Tensors keep their
    numbers.
    """
    fixed = {*layer.leaves, *layer.gradients_leave}
    shown: dict[int, _Shown] = {}
    operators = []
    for op in layer.operators:
        seen = replace(op, reads=tuple(_through(access, shown) for access in op.reads))
        view = _shows(seen, layer, fixed)
        if view is None:
            operators.append(seen)
        else:
            shown[op.writes[0].tensor] = view
    return replace(layer, operators=tuple(operators))


def _through(access: Access, shown: dict[int, _Shown]) -> Access:
    """The access of the tensor that a view shows."""
    view = shown.get(access.tensor)
    if view is None:
        return access
    return Access(view.source, tuple(tuple(access.loops[d][a] for d, a in dim) for dim in view.places))


def _shows(op: TensorOp, layer: TensorLayer, fixed: set[int]) -> _Shown | None:
    """What a view shows, or None where it is more than another shape or order."""
    if op.kind is not TensorOpKind.VIEW or len(op.reads) != 1 or len(op.writes) != 1:
        return None
    read, write = op.reads[0], op.writes[0]
    if write.tensor in fixed or layer.tensors[write.tensor].role is TensorRole.GRADIENT:
        return None
    places = {index: (d, a) for d, dim in enumerate(write.loops) for a, index in enumerate(dim)}
    taken = [index for dim in read.loops for index in dim]
    given = [index for dim in write.loops for index in dim]
    if None in taken or len(set(taken)) < len(taken) or len(given) != len(taken) or set(given) != set(taken):
        return None
    return _Shown(read.tensor, tuple(tuple(places[index] for index in dim) for dim in read.loops))
