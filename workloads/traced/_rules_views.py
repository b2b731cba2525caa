"""Rules of views, copies and concatenations."""

from collections.abc import Sequence
from math import prod

from archplace.workloads.traced._rules_maps import elementwise
from archplace.workloads.traced.nests import Dim, Linearity, Nest, Operand, Operation, Term, words
from archplace.workloads.traced.tensor_graph import TensorOpKind

_RESHAPES = words(
    "view _unsafe_view reshape _reshape_alias flatten unflatten squeeze unsqueeze view_as reshape_as ravel "
    "atleast_1d atleast_2d atleast_3d"
)
_PERMUTATIONS = frozenset(("t", "transpose", "permute", "swapaxes", "swapdims", "numpy_T", "movedim"))
_SPREADS = frozenset(("expand", "expand_as", "broadcast_to"))
_PARTS = words(
    "slice select narrow split split_with_sizes unsafe_split unsafe_split_with_sizes chunk unsafe_chunk unbind"
)
_PART_GRADIENTS = frozenset(("slice_backward", "select_backward"))
_JOINTS = frozenset(("cat", "stack", "concat", "concatenate"))
_COPIES = words(
    "clone contiguous to _to_copy copy copy_ detach alias resolve_conj resolve_neg lift_fresh_copy type_as float half "
    "bfloat16 pin_memory cpu cuda requires_grad positive conj _conj view_as_real view_as_complex"
)

Dims = list[Dim]


def known(name: str) -> bool:
    """Whether an operator has a rule here."""
    return any(
        name in one
        for one in (
            _RESHAPES,
            _PERMUTATIONS,
            _SPREADS,
            _PARTS,
            _PART_GRADIENTS,
            _JOINTS,
            _COPIES,
            ("pieces", "repeat"),
        )
    )


def nests(name: str, operation: Operation) -> list[Nest]:
    """Return the nests of an operator; none where it lacks an operand or is not of the plain kind."""
    if name in _JOINTS:
        return _joined(name, operation)
    source, result = operation.operand("self", "input", "grad_output"), operation.result()
    if name in ("view", "pieces") and source is None and operation.operands():
        source = operation.operands()[0]
    if source is None or result is None or name == "pieces":
        return []
    if name in _COPIES:
        return _copied(name, operation, source, result)
    if name in _PART_GRADIENTS:
        return _placed(operation, source, result)
    nest = Nest(TensorOpKind.MOVE if operation.moves else TensorOpKind.VIEW, Linearity.SUM)
    if name in _RESHAPES:
        before, after = regrouped(nest, source.shape, result.shape)
        nest.read(source, before)
        nest.write(result, after)
    elif name in _PERMUTATIONS:
        order = _order(name, operation, len(source.shape))
        loops = nest.over(source.shape)
        nest.read(source, loops)
        nest.write(result, [loops[dim] for dim in order])
    elif name in _SPREADS or name == "repeat":
        return _spread(nest, source, result)
    else:
        return _parts(name, nest, operation, source)
    return [nest]


def regrouped(nest: Nest, before: Sequence[int], after: Sequence[int]) -> tuple[Dims, Dims]:
    """Add the loops of a reshape and return how they index the dimensions before and after.

    Sizes are cut where the other side has a boundary, from the major end and then from the minor end; where boundaries
    do not meet, what is between is met whole.
    """
    sides: tuple[list[list[Term]], list[list[Term]]] = ([[] for _ in before], [[] for _ in after])
    rest = [[(dim, size) for dim, size in enumerate(shape) if size != 1] for shape in (before, after)]
    tails: tuple[list[list[Term]], list[list[Term]]] = ([[] for _ in before], [[] for _ in after])
    for end, target in ((0, sides), (-1, tails)):
        while rest[0] and rest[1]:
            (one, left), (other, right) = rest[0][end], rest[1][end]
            size = min(left, right)
            if max(left, right) % size:
                break
            loop = nest.loop(size)
            for side, (dim, length) in ((0, (one, left)), (1, (other, right))):
                term = (loop, size)
                target[side][dim] = [*target[side][dim], term] if end == 0 else [term, *target[side][dim]]
                if length == size:
                    del rest[side][end]
                else:
                    rest[side][end] = (dim, length // size)
    for side, shape in ((0, before), (1, after)):
        for dim, length in rest[side]:
            sides[side][dim].append((None, length))
        for dim in range(len(shape)):
            sides[side][dim] += tails[side][dim]
    return [tuple(dim) for dim in sides[0]], [tuple(dim) for dim in sides[1]]


def _order(name: str, operation: Operation, rank: int) -> list[int]:
    order = list(range(rank))
    if name == "permute":
        return [dim % rank for dim in operation.numbers("dims") or order]
    if name in ("t", "numpy_T"):
        return order[::-1]
    names = (("source", "destination"),) if name == "movedim" else (("dim0", "dim1"), ("axis0", "axis1"))
    for first, second in names:
        one, other = operation.numbers(first), operation.numbers(second)
        if one is None or other is None:
            continue
        if name == "movedim":
            moved = dict(zip((dim % rank for dim in other), (dim % rank for dim in one), strict=True))
            rest = iter(dim for dim in order if dim not in moved.values())
            return [moved[place] if place in moved else next(rest) for place in order]
        left, right = one[0] % rank, other[0] % rank
        order[left], order[right] = order[right], order[left]
        return order
    return order


def _spread(nest: Nest, source: Operand, result: Operand) -> list[Nest]:
    loops = nest.over(result.shape)
    ahead = len(result.shape) - len(source.shape)
    for size, wide in zip(source.shape, result.shape[ahead:], strict=True):
        if size not in (1, wide):
            return []
    nest.read(source, list(loops[ahead:]))
    nest.write(result, list(loops))
    return [nest]


def _parts(name: str, nest: Nest, operation: Operation, source: Operand) -> list[Nest]:
    """Pieces of a dimension. Equal pieces take it apart: (pieces, elements of a piece), and no loop runs along the
    first. Others are not seen to belong together."""
    rank = len(source.shape)
    dims = operation.numbers("dim")
    dim = (dims[0] if dims else 0) % rank
    drops = name in ("select", "unbind")
    length = operation.results[0].shape[dim] if not drops and rank == len(operation.results[0].shape) else 1
    begin = operation.number("start", operation.number("index"))
    whole = source.shape[dim]
    aligned = length and whole % length == 0 and begin % length == 0 and operation.number("step", 1) == 1
    aligned = aligned and all(result.shape == operation.results[0].shape for result in operation.results)
    loops = nest.over(source.shape[:dim])
    piece = nest.loop(length) if aligned and length > 1 else None
    behind = nest.over(source.shape[dim + 1 :])
    if length == whole:
        term: tuple[Term, ...] | None = ((piece, length),)
    else:
        term = ((None, whole // length), (piece, length)) if aligned else None
    nest.read(source, [*loops, term, *behind])
    for result in operation.results:
        nest.write(result, [*loops, *([] if drops else [piece]), *behind])
    return [nest]


def _placed(operation: Operation, source: Operand, result: Operand) -> list[Nest]:
    """The gradient of a piece: zeros, and the piece at its place."""
    dims = operation.numbers("dim")
    dim = (dims[0] if dims else 0) % len(result.shape)
    drops = len(source.shape) < len(result.shape)
    length, whole = 1 if drops else source.shape[dim], result.shape[dim]
    begin = operation.number("start", operation.number("index"))
    aligned = whole % length == 0 and begin % length == 0
    nest = Nest(TensorOpKind.MOVE, Linearity.SUM)
    loops, piece = nest.over(result.shape[:dim]), nest.loop(length) if aligned and length > 1 else None
    behind = nest.over(result.shape[dim + 1 :])
    nest.read(source, [*loops, *([] if drops else [piece]), *behind])
    nest.write(result, [*loops, ((None, whole // length), (piece, length)) if aligned else None, *behind])
    return [nest]


def _joined(name: str, operation: Operation) -> list[Nest]:
    pieces, result = operation.operands(), operation.result()
    if not pieces or result is None:
        return []
    rank = len(result.shape)
    dim = operation.number("dim") % rank
    nest = Nest(TensorOpKind.MOVE, Linearity.SUM)
    equal = all(piece.shape == pieces[0].shape for piece in pieces)
    loops, behind = nest.over(result.shape[:dim]), nest.over(result.shape[dim + 1 :])
    length = 1 if name == "stack" else pieces[0].shape[dim]
    inner = nest.loop(length) if equal and length > 1 else None
    for piece in pieces:
        nest.read(piece, [*loops, *([] if name == "stack" else [inner]), *behind])
    nest.write(result, [*loops, ((None, len(pieces)), (inner, length)) if equal else None, *behind])
    return [nest]


def _copied(name: str, operation: Operation, source: Operand, result: Operand) -> list[Nest]:
    if name in ("copy", "copy_"):
        source = operation.operand("src") or source
    elif prod(source.shape) != prod(result.shape):
        return []
    kind = TensorOpKind.MOVE if operation.moves else TensorOpKind.VIEW
    return [elementwise(operation, 0, Linearity.SUM, kind, (source,))]
