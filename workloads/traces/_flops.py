"""Floating-point operations of PyTorch's operators that are matrix products, from the shapes of their operands.

A multiplication and its addition are two. All positions of attention are counted, masked or not, as is the custom for
model FLOPs; its gradients are five products, because fused kernels compute the scores again (Dao 2023,
arXiv:2307.08691, section 2.3). Element-wise operators count none: their bytes decide.
"""

import re
from math import prod

from archplace.workloads.traces._op_schema import schema_arguments
from archplace.workloads.traces.host_trace import HostNode

_FIRST_FACTOR = {
    "linear": "input",
    "mm": "self",
    "bmm": "self",
    "matmul": "self",
    "mv": "self",
    "dot": "self",
    "_scaled_mm": "self",
    "addmm": "mat1",
    "addmv": "mat",
    "_addmm_activation": "mat1",
    "baddbmm": "batch1",
    "addbmm": "batch1",
}
"""Products by name, and the factor whose last dimension is summed over."""

_CONVOLUTION = re.compile(r"(conv[123]d|_?convolution|convolution_overrideable|(cudnn|miopen|mkldnn)_convolution\w*)$")
_SCORES, _SCORES_AND_GRADIENTS = (1, 1), (3, 2)
"""How many products run over the length of keys' and of values' rows."""

Shape = tuple[int, ...]


def product_flops(node: HostNode) -> int | None:
    """Return the operations of a call, or None for what is no product or lacks a shape."""
    if not node.name.startswith("aten::"):
        return None
    name = node.name.removeprefix("aten::")
    shapes = _shapes(node)
    made = sum(tensor.elements for result in node.outputs[:1] for tensor in result.tensors)
    if name in _FIRST_FACTOR:
        factor = shapes.get(_FIRST_FACTOR[name])
        # addbmm adds its batch up: what it sums over is the batch, too.
        summed = 0 if not factor else factor[-1] * (factor[0] if name == "addbmm" else 1)
        return 2 * made * summed if factor else None
    if "attention" in name and {"query", "key", "value"} <= shapes.keys():
        return _attention(shapes, _SCORES_AND_GRADIENTS if name.endswith("_backward") else _SCORES)
    weight = shapes.get("weight")
    if not weight:
        return None
    if name == "convolution_backward":
        wanted = _values(node).get("output_mask")
        gradients = sum(map(bool, wanted[:2])) if isinstance(wanted, list) else 2
        return 2 * prod(shapes.get("grad_output", (0,))) * prod(weight[1:]) * gradients
    if _CONVOLUTION.match(name):
        transposed = _values(node).get("transposed") is True
        return 2 * (prod(shapes.get("input", (0,))) if transposed else made) * prod(weight[1:])
    return None


def _attention(shapes: dict[str, Shape], products: tuple[int, int]) -> int | None:
    query, key, value = shapes["query"], shapes["key"], shapes["value"]
    if min(len(query), len(key), len(value)) < 2:
        return None
    # Heads that share keys and values still have scores of their own: the query's leading dimensions count.
    scores = prod(query[:-1]) * key[-2]
    return 2 * scores * (products[0] * query[-1] + products[1] * value[-1])


def _shapes(node: HostNode) -> dict[str, Shape]:
    arguments = schema_arguments(node.op_schema)
    pairs = zip(arguments, node.inputs, strict=False)
    return {argument.name: given.tensors[0].shape for argument, given in pairs if len(given.tensors) == 1}


def _values(node: HostNode) -> dict[str, object]:
    pairs = zip(schema_arguments(node.op_schema), node.inputs, strict=False)
    return {argument.name: given.value for argument, given in pairs}
