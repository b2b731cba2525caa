"""Rules of matrix products, convolutions and fused attention."""

from archplace.workloads.traced.nests import Dim, Linearity, Nest, Operand, Operation, Term, words
from archplace.workloads.traced.tensor_graph import LoopKind, TensorOpKind

_FREE, _SUMMED, _WHOLE = LoopKind.FREE, LoopKind.SUMMED, LoopKind.WHOLE
_FACTORS = {
    "mm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "_addmm_activation": ("mat1", "mat2"),
    "_scaled_mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "matmul": ("self", "other"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "dot": ("self", "tensor"),
    "linear": ("input", "weight"),
}
_CONVOLUTIONS = words(
    "conv1d conv2d conv3d convolution _convolution convolution_overrideable cudnn_convolution mkldnn_convolution "
    "miopen_convolution thnn_conv2d _slow_conv2d_forward"
)
_ATTENTION = "_scaled_dot_product_"


def known(name: str) -> bool:
    """Whether an operator has a rule here."""
    attention = name.startswith(_ATTENTION) and "math" not in name and not name.startswith(f"{_ATTENTION}attention")
    return name in _FACTORS or name in _CONVOLUTIONS or name == "convolution_backward" or attention


def nests(name: str, operation: Operation) -> list[Nest]:
    """Return the nests of an operator; none where it lacks an operand."""
    if name.startswith("_scaled_dot_product") or name == "scaled_dot_product_attention":
        return _attention(operation, gradients=name.endswith("_backward"))
    if name in _CONVOLUTIONS:
        return _convolution(operation)
    if name == "convolution_backward":
        return _convolution_gradients(operation)
    first, second = (operation.operand(factor) for factor in _FACTORS[name])
    result = operation.result()
    if first is None or second is None or result is None:
        return []
    return [_product(name, first, second, operation.operand("bias" if name == "linear" else "self"), result)]


def _product(name: str, first: Operand, second: Operand, addend: Operand | None, result: Operand) -> Nest:
    """C[…, m, n] = A[…, m, k] · B[…, k, n]: leading dimensions are independent products, spread where they are 1."""
    nest = Nest(TensorOpKind.PRODUCT, Linearity.NEVER)
    summed = nest.loop(first.shape[-1], _SUMMED)
    if name == "linear":
        rows = nest.over(first.shape[:-1])
        columns = nest.over(second.shape[:-1])
        nest.read(first, [*rows, summed])
        nest.read(second, [*columns, summed])
        loops = [*rows, *columns]
    else:
        leading = len(result.shape) - (len(first.shape) > 1) - (len(second.shape) > 1)
        batch = nest.over(result.shape[:leading])
        rows = nest.over(first.shape[-2:-1])
        columns = nest.over(second.shape[-1:]) if len(second.shape) > 1 else []
        ahead = [
            batch[leading - (len(operand.shape) - own) :] if len(operand.shape) > own else []
            for operand, own in ((first, 1 + len(rows)), (second, 1 + len(columns)))
        ]
        nest.read(first, [*ahead[0], *rows, summed])
        nest.read(second, [*ahead[1], summed, *columns])
        loops = [*batch, *rows, *columns]
    if addend is not None and addend.value not in (first.value, second.value):
        nest.read_broadcast(addend, loops)
    nest.write(result, loops)
    return nest


def _convolution(operation: Operation) -> list[Nest]:
    image, weight, bias = operation.operand("input", "self"), operation.operand("weight"), operation.operand("bias")
    result = operation.result()
    if image is None or weight is None or result is None:
        return []
    if operation.flag("transposed"):
        image, result = result, image
        return [_swapped(_taps(result, weight, None, image), 0, forward_result=image)]
    return [_taps(image, weight, bias, result)]


def _taps(image: Operand, weight: Operand, bias: Operand | None, result: Operand) -> Nest:
    """out[n, g·o, y…] = Σ in[n, g·i, y + r…] · weight[g·o, i, r…].

    Positions cannot be cut: neighbours would need each other's borders.
    """
    nest = Nest(TensorOpKind.PRODUCT)
    groups = max(1, image.shape[1] // max(1, weight.shape[1]))
    images = nest.loop(result.shape[0])
    group = nest.loop(groups)
    outputs = nest.loop(result.shape[1] // groups)
    positions = nest.over(result.shape[2:], _WHOLE)
    inputs = nest.loop(weight.shape[1], _SUMMED)
    taps = nest.over(weight.shape[2:], _WHOLE)
    channels: tuple[Term, ...] = ((group, groups), (outputs, nest.sizes[outputs]))
    inward: tuple[Term, ...] = ((group, groups), (inputs, nest.sizes[inputs]))
    nest.read(image, [images, inward, *(None for _ in image.shape[2:])])
    nest.read(weight, [channels, inputs, *taps])
    nest.read(bias, [channels])
    nest.write(result, [images, channels, *positions])
    return nest


def _swapped(nest: Nest, place: int, *, forward_result: Operand) -> Nest:
    """Return the nest with its result read, and what it read at ``place`` written: a gradient of the product."""
    target = nest.reads.pop(place)
    nest.reads.insert(0, nest.writes.pop())
    nest.writes.append(target)
    used = {term[0] for dim in target[1] for term in dim}
    summed = {term[0] for dim in nest.reads[0][1] for term in dim} - used
    for loop, kind in enumerate(nest.loops):
        if kind is not _WHOLE:
            nest.loops[loop] = _SUMMED if loop in summed else _FREE
    assert nest.reads[0][0] == forward_result.value or forward_result.value in (target[0],)
    return nest


def _convolution_gradients(operation: Operation) -> list[Nest]:
    gradient, image = operation.operand("grad_output"), operation.operand("input")
    weight = operation.operand("weight")
    if gradient is None or image is None or weight is None or operation.flag("transposed"):
        return []
    wanted = operation.flags("output_mask") or (True, True, len(operation.results) > 2)
    results = iter(operation.results)
    made = [next(results, None) if wish else None for wish in wanted]
    found: list[Nest] = []
    if made[0] is not None:
        found.append(_swapped(_taps(made[0], weight, None, gradient), 0, forward_result=gradient))
    if len(made) > 1 and made[1] is not None:
        found.append(_swapped(_taps(image, made[1], None, gradient), 1, forward_result=gradient))
    if len(made) > 2 and made[2] is not None:
        nest = Nest(TensorOpKind.REDUCTION, Linearity.SUM, operations=1)
        channels = nest.loop(gradient.shape[1])
        nest.read(gradient, [nest.loop(gradient.shape[0], _SUMMED), channels, *nest.over(gradient.shape[2:], _SUMMED)])
        nest.write(made[2], [channels])
        found.append(nest)
    return found


def _attention(operation: Operation, *, gradients: bool) -> list[Nest]:
    """Loops: independent attentions, heads that share a key head, query rows, keys, and the elements of both rows.

    Keys and elements are whole for a row; a cut along queries would give partial gradients of keys and values.
    """
    query, key, value = (operation.operand(name) for name in ("query", "key", "value"))
    if query is None or key is None or value is None or min(len(query.shape), len(key.shape)) < 3:
        return []
    nest = Nest(TensorOpKind.ATTENTION, causal=operation.flag("is_causal"))
    ahead = nest.over(key.shape[:-3])
    heads = nest.loop(key.shape[-3])
    sharing = nest.loop(query.shape[-3] // key.shape[-3])
    head: tuple[Term, ...] = ((heads, key.shape[-3]), (sharing, query.shape[-3] // key.shape[-3]))
    rows, keys = nest.loop(query.shape[-2]), nest.loop(key.shape[-2], _WHOLE)
    inner, outer = nest.loop(query.shape[-1], _WHOLE), nest.loop(value.shape[-1], _WHOLE)
    of_query: list[Dim] = [*ahead, head, rows, inner]
    of_key: list[Dim] = [*ahead, heads, keys, inner]
    of_value: list[Dim] = [*ahead, heads, keys, outer]
    of_context: list[Dim] = [*ahead, head, rows, outer]
    nest.read(query, of_query)
    nest.read(key, of_key)
    nest.read(value, of_value)
    mask = operation.operand("attn_mask", "attn_bias")
    if mask is not None:
        over: list[Dim] = [*ahead, head, rows, keys]
        nest.read(mask, over[len(over) - len(mask.shape) :])
    statistics: list[Dim] = [*ahead, head, rows]
    if not gradients:
        for result in operation.results:
            if result.shape == (*query.shape[:-1], value.shape[-1]) and not nest.writes:
                nest.write(result, of_context)
            elif result.shape == query.shape[:-1]:
                nest.write(result, statistics)
        return [nest] if nest.writes else []
    for name in ("grad_out", "grad_out_", "out", "output"):
        operand = operation.operand(name)
        if operand is not None and operand.shape == (*query.shape[:-1], value.shape[-1]):
            nest.read(operand, of_context)
    kept = operation.operand("logsumexp")
    if kept is not None and kept.shape == query.shape[:-1]:
        nest.read(kept, statistics)
    for result, index in zip(operation.results[:3], (of_query, of_key, of_value), strict=False):
        nest.write(result, index)
    return [nest] if len(operation.results) >= 3 else []
