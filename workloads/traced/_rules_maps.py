"""Rules of element-wise operators, of reductions, and of what makes tensors of nothing.

Lane operations are counted as in :mod:`archplace.workloads._vector`: a special function is four, a division a
reciprocal and a product.
"""

from archplace.workloads.traced.nests import Linearity, Nest, Operand, Operation, words
from archplace.workloads.traced.tensor_graph import LoopKind, TensorOpKind

_SPECIAL = 4

_SUMS = {"add": 1, "sub": 1, "rsub": 1, "neg": 1, "sum_to_size": 1}
_SCALED = {"mul": 1, "div": 1 + _SPECIAL, "true_divide": 1 + _SPECIAL}
_OTHERS = {
    "abs": 1,
    "addcdiv": 2 + _SPECIAL,
    "addcmul": 2,
    "bitwise_and": 1,
    "bitwise_not": 1,
    "bitwise_or": 1,
    "ceil": 1,
    "clamp": 2,
    "clamp_max": 1,
    "clamp_min": 1,
    "cos": _SPECIAL,
    "elu": 2 + _SPECIAL,
    "elu_backward": 3 + _SPECIAL,
    "eq": 1,
    "erf": 6 + _SPECIAL,
    "exp": 1 + _SPECIAL,
    "floor": 1,
    "ge": 1,
    "gelu": 5 + _SPECIAL,
    "gelu_backward": 11 + _SPECIAL,
    "gt": 1,
    "hardswish": 4,
    "hardswish_backward": 5,
    "hardtanh": 2,
    "hardtanh_backward": 2,
    "isinf": 1,
    "isnan": 1,
    "le": 1,
    "leaky_relu": 2,
    "leaky_relu_backward": 2,
    "lerp": 2,
    "log": 1 + _SPECIAL,
    "log1p": 2 + _SPECIAL,
    "logical_and": 1,
    "logical_not": 1,
    "logical_or": 1,
    "lt": 1,
    "masked_fill": 1,
    "maximum": 1,
    "minimum": 1,
    "mish": 4 + 2 * _SPECIAL,
    "ne": 1,
    "pow": 1 + 2 * _SPECIAL,
    "reciprocal": _SPECIAL,
    "relu": 1,
    "rsqrt": _SPECIAL,
    "sgn": 1,
    "sigmoid": 2 + _SPECIAL,
    "sigmoid_backward": 3,
    "sign": 1,
    "silu": 2 + _SPECIAL,
    "silu_backward": 6 + _SPECIAL,
    "sin": _SPECIAL,
    "softplus": 2 + 2 * _SPECIAL,
    "softplus_backward": 3 + _SPECIAL,
    "sqrt": _SPECIAL,
    "tanh": _SPECIAL,
    "tanh_backward": 3,
    "threshold": 1,
    "threshold_backward": 1,
    "tril": 1,
    "triu": 1,
    "where": 1,
}
MADE_OF_NOTHING = words(
    "arange eye fill full full_like linspace lift_fresh new_full new_ones new_zeros normal ones ones_like rand "
    "rand_like randint randint_like randn randn_like randperm scalar_tensor uniform zero zeros zeros_like"
)
"""What needs no tensor's elements; noise drawn here is data."""
_NOISE = ("bernoulli", "native_dropout", "dropout")
_LOSSES = {"mse_loss": 2, "l1_loss": 2, "smooth_l1_loss": 4, "huber_loss": 4, "binary_cross_entropy": 3 + 2 * _SPECIAL}
_LOSSES["binary_cross_entropy_with_logits"] = 6 + 3 * _SPECIAL


def names() -> frozenset[str]:
    """Operators that have a rule here."""
    losses = [*_LOSSES, *(f"{name}_backward" for name in _LOSSES)]
    reductions = ("sum", "mean", "native_dropout_backward")
    return MADE_OF_NOTHING.union(_SUMS, _SCALED, _OTHERS, _NOISE, losses, reductions)


def nests(name: str, operation: Operation) -> list[Nest]:
    """Return the nest of an operator by its name without namespace and without the mark of in-place forms."""
    if name in MADE_OF_NOTHING:
        return [_made(operation)]
    if name in ("sum", "mean"):
        return [_reduction(operation)]
    if name in _LOSSES:
        return [_loss(operation, _LOSSES[name])]
    if name in _NOISE:
        return [_noise(operation)]
    if name in _SUMS:
        return [elementwise(operation, _SUMS[name], Linearity.SUM)]
    if name in _SCALED:
        return [elementwise(operation, _SCALED[name], Linearity.SCALED if name == "mul" else Linearity.DIVIDED)]
    operations = _OTHERS.get(name, _LOSSES.get(name.removesuffix("_backward"), 1) + 1)
    return [elementwise(operation, operations)]


def elementwise(
    operation: Operation,
    operations: float,
    linearity: Linearity = Linearity.NEVER,
    kind: TensorOpKind = TensorOpKind.MAP,
    operands: tuple[Operand, ...] | None = None,
) -> Nest:
    """Return one pass over all elements, operands spread where they have fewer."""
    nest = Nest(kind, linearity, operations=operations)
    read = operation.operands() if operands is None else operands
    shape: tuple[int, ...] = ()
    for operand in (*read, *operation.results):
        shape = _broadcast(shape, operand.shape)
    loops = nest.over(shape)
    for operand in read:
        nest.read_broadcast(operand, loops)
    for result in operation.results:
        nest.write(result, loops[len(loops) - len(result.shape) :])
    return nest


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    length = max(len(left), len(right))
    padded = ((1,) * (length - len(one)) + one for one in (left, right))
    return tuple(max(one, other) for one, other in zip(*padded, strict=True))


def _made(operation: Operation) -> Nest:
    nest = Nest(TensorOpKind.MOVE)
    for result in operation.results:
        nest.write(result, nest.over(result.shape))
    return nest


def _noise(operation: Operation) -> Nest:
    """Random elements: what is overwritten by them is not read."""
    if operation.name.startswith("bernoulli_"):
        return _made(operation)
    return elementwise(operation, 2)


def _reduction(operation: Operation) -> Nest:
    source, result = operation.operand("self", "input"), operation.result()
    nest = Nest(TensorOpKind.REDUCTION, Linearity.SUM, operations=1)
    if source is None or result is None:
        return _made(operation)
    rank = len(source.shape)
    dims = operation.numbers("dim")
    summed = {dim % rank for dim in dims} if dims else set(range(rank))
    loops = [
        nest.loop(size, LoopKind.SUMMED if dim in summed else LoopKind.FREE) for dim, size in enumerate(source.shape)
    ]
    nest.read(source, loops)
    kept = len(result.shape) == rank
    nest.write(result, [loops[dim] for dim in range(rank) if kept or dim not in summed])
    return nest


def _loss(operation: Operation, operations: float) -> Nest:
    result = operation.result()
    source = operation.operand("self", "input")
    if source is None or result is None or result.shape:
        return elementwise(operation, operations)
    nest = Nest(TensorOpKind.REDUCTION, operations=operations + 1)
    loops = nest.over(source.shape, LoopKind.SUMMED)
    for operand in operation.operands():
        nest.read_broadcast(operand, loops)
    nest.write(result, ())
    return nest
