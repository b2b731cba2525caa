"""Rules of norms, softmax, losses over classes, and of what else meets whole rows."""

from archplace.workloads.traced.nests import Linearity, Nest, Operand, Operation, words
from archplace.workloads.traced.tensor_graph import LoopKind, TensorOpKind

_FREE, _WHOLE = LoopKind.FREE, LoopKind.WHOLE
_ROWS = TensorOpKind.ROWS

_ALONG = {
    # Largest (1); exponential and its sum (6), the exponential again and its product with the reciprocal (6).
    "_softmax": (13, 3, 2),
    "_safe_softmax": (13, 3, 2),
    "softmax": (13, 3, 2),
    # Product and sum (1), then difference and product.
    "_softmax_backward_data": (3, 2, 1),
    # Largest (1); exponential and its sum (6), difference (1).
    "_log_softmax": (8, 3, 2),
    "log_softmax": (8, 3, 2),
    # Sum (1), then exponential (5), product and difference (1).
    "_log_softmax_backward_data": (7, 2, 1),
    "amax": (1, 1, 1),
    "amin": (1, 1, 1),
    "argmax": (1, 1, 1),
    "argmin": (1, 1, 1),
    "max": (1, 1, 1),
    "min": (1, 1, 1),
    "all": (1, 1, 1),
    "any": (1, 1, 1),
    "var": (3, 2, 2),
    "std": (3, 2, 2),
    "var_mean": (3, 2, 2),
    "prod": (1, 1, 1),
    "logsumexp": (7, 2, 2),
    "linalg_vector_norm": (1, 1, 1),
    "norm": (1, 1, 1),
    "cumsum": (1, 1, 0),
    "cumprod": (1, 1, 0),
    "sort": (20, 1, 0),
    "topk": (20, 1, 0),
    "argsort": (20, 1, 0),
}
"""Lane operations for each element, passes, and passes that end in a reduction; along one dimension or several."""

_NORMS = {
    # Sum (1); difference and square (2); two fused multiply-adds (2).
    "native_layer_norm": (5, 3, 2),
    "layer_norm": (5, 3, 2),
    # Sum of squares (1); two products (2).
    "_fused_rms_norm": (3, 2, 1),
    "rms_norm": (3, 2, 1),
    # Normalised input (1), gradient times gain (1), their sums (2), three more, and the sums for gain and bias (2).
    "native_layer_norm_backward": (9, 2, 1),
    "_fused_rms_norm_backward": (6, 2, 1),
}
_BATCH_NORMS = {
    "native_batch_norm": (5, 3, 2),
    "cudnn_batch_norm": (5, 3, 2),
    "miopen_batch_norm": (5, 3, 2),
    "_native_batch_norm_legit": (5, 3, 2),
    "_batch_norm_with_update": (5, 3, 2),
    "batch_norm": (5, 3, 2),
    "native_batch_norm_backward": (9, 2, 1),
    "cudnn_batch_norm_backward": (9, 2, 1),
    "miopen_batch_norm_backward": (9, 2, 1),
    "batch_norm_backward": (9, 2, 1),
}
_POOLS = words(
    "max_pool2d_with_indices max_pool2d avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d max_pool1d "
    "max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward upsample_nearest2d "
    "upsample_nearest2d_backward upsample_bilinear2d upsample_bilinear2d_backward"
)
_CLASSES = frozenset(("nll_loss_forward", "nll_loss_backward", "cross_entropy_loss", "nll_loss2d_forward"))


def known(name: str) -> bool:
    """Whether an operator has a rule here."""
    return name in _ALONG or name in _NORMS or name in _BATCH_NORMS or name in _POOLS or name in _CLASSES


def nests(name: str, operation: Operation) -> list[Nest]:
    """Return the nests of an operator; none where it lacks an operand."""
    if name in _ALONG:
        return _along(operation, _ALONG[name])
    if name in _NORMS:
        return _norm(operation, _NORMS[name])
    if name in _BATCH_NORMS:
        return _batch_norm(operation, _BATCH_NORMS[name])
    if name in _POOLS:
        return _pool(operation)
    return _class_loss(name, operation)


def _along(operation: Operation, work: tuple[int, int, int]) -> list[Nest]:
    source = operation.operand("self", "input", "grad_output")
    if source is None or not source.shape:
        return []
    rank = len(source.shape)
    dims = operation.numbers("dim")
    whole = {dim % rank for dim in dims} if dims else set(range(rank))
    nest = Nest(_ROWS, operations=work[0], passes=work[1], reductions=work[2])
    loops = [nest.loop(size, _WHOLE if dim in whole else _FREE) for dim, size in enumerate(source.shape)]
    kept = [loop for dim, loop in enumerate(loops) if dim not in whole]
    for operand in operation.operands():
        if len(operand.shape) == rank:
            nest.read(operand, loops)
    for result in operation.results:
        if len(result.shape) == rank:
            # Of a dimension that was reduced to fewer elements, as by topk, each needs the whole row.
            fits = [loop if size == nest.sizes[loop] else None for size, loop in zip(result.shape, loops, strict=True)]
            nest.write(result, fits)
        elif len(result.shape) == len(kept):
            nest.write(result, kept)
    return [nest] if len(nest.writes) == len(operation.results) else []


def _norm(operation: Operation, work: tuple[int, int, int]) -> list[Nest]:
    source = operation.operand("input")
    normalized = operation.numbers("normalized_shape")
    if source is None or normalized is None:
        return []
    rank, own = len(source.shape), len(normalized)
    nest = Nest(_ROWS, operations=work[0], passes=work[1], reductions=work[2])
    loops = nest.over(source.shape[: rank - own]) + nest.over(source.shape[rank - own :], _WHOLE)
    for operand in operation.operands():
        _take(nest, operand, loops, own, write=False)
    for result in operation.results:
        _take(nest, result, loops, own, write=True)
    return [nest]


def _take(nest: Nest, operand: Operand, loops: list[int], own: int, *, write: bool) -> None:
    """Add an operand of a norm: all elements, statistics of rows, or gains and biases."""
    rank = len(loops)
    if len(operand.shape) == rank:
        index = loops
    elif len(operand.shape) == own and operand.shape == tuple(nest.sizes[loop] for loop in loops[rank - own :]):
        index = loops[rank - own :]
    else:
        index = loops[: len(operand.shape)]
    (nest.write if write else nest.read)(operand, list(index))


def _batch_norm(operation: Operation, work: tuple[int, int, int]) -> list[Nest]:
    """Statistics over images and positions: only channels are independent."""
    source = operation.operand("input")
    if source is None or len(source.shape) < 2:
        return []
    nest = Nest(_ROWS, operations=work[0], passes=work[1], reductions=work[2])
    loops = [nest.loop(size, _FREE if dim == 1 else _WHOLE) for dim, size in enumerate(source.shape)]
    for operand in operation.operands():
        if operand.shape == source.shape:
            nest.read(operand, loops)
        elif operand.shape == source.shape[1:2]:
            nest.read(operand, loops[1:2])
    for result in operation.results:
        if result.shape == source.shape:
            nest.write(result, loops)
        elif result.shape == source.shape[1:2]:
            nest.write(result, loops[1:2])
        else:
            nest.write(result, [None] * len(result.shape))
    return [nest]


def _pool(operation: Operation) -> list[Nest]:
    """Windows over positions: images and channels are independent."""
    nest = Nest(_ROWS, operations=1)
    shapes = [operand.shape for operand in (*operation.operands(), *operation.results)]
    if not shapes or min(map(len, shapes)) < 3:
        return []
    largest = max(shapes)
    loops = [nest.loop(size, _FREE if dim < 2 else _WHOLE) for dim, size in enumerate(largest)]
    for operand in operation.operands():
        nest.read(operand, _windows(nest, operand, loops))
    for result in operation.results:
        nest.write(result, _windows(nest, result, loops))
    return [nest]


def _windows(nest: Nest, operand: Operand, loops: list[int]) -> list[int | None]:
    pairs = zip(operand.shape, loops[: len(operand.shape)], strict=True)
    return [loop if size == nest.sizes[loop] else None for size, loop in pairs]


def _class_loss(name: str, operation: Operation) -> list[Nest]:
    """A loss over classes: of each row one element counts, the one that the target names."""
    scores, target = operation.operand("self"), operation.operand("target")
    if scores is None or target is None or len(scores.shape) != len(target.shape) + 1:
        return []
    classes = len(scores.shape) - 1 if len(scores.shape) < 3 else 1
    if name == "cross_entropy_loss":
        nest = Nest(_ROWS, operations=9, passes=3, reductions=2)
    elif name == "nll_loss_backward":
        nest = Nest(TensorOpKind.MAP, operations=1)
    else:
        nest = Nest(TensorOpKind.LOOKUP, Linearity.SUM)
    summed = LoopKind.SUMMED if name != "nll_loss_backward" else _FREE
    kinds = {"cross_entropy_loss": _WHOLE, "nll_loss_backward": _FREE}
    loops = [
        nest.loop(size, kinds.get(name, LoopKind.SUMMED) if dim == classes else summed)
        for dim, size in enumerate(scores.shape)
    ]
    rows = [loop for dim, loop in enumerate(loops) if dim != classes]
    if name == "nll_loss_backward":
        gradient = operation.operand("grad_output")
        nest.read_broadcast(gradient, rows)
        nest.read(target, rows)
        nest.write(operation.result(), loops)
        return [nest]
    nest.read(scores, loops)
    nest.read(target, rows)
    for result in operation.results:
        nest.write(result, rows if result.shape == target.shape and target.shape else [None] * len(result.shape))
    return [nest]
