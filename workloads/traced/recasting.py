"""A traced step in the number formats of a recipe: what it would have moved, had it been trained so."""

from collections import Counter
from dataclasses import replace

from archplace.workloads.precision import Formats
from archplace.workloads.traced.tensor_graph import Tensor, TensorLayer, TensorOpKind, TensorRole, TracedModel


def recast(model: TracedModel, formats: Formats) -> TracedModel:
    """Return ``model`` with its parameters, gradients and activations in the formats of a recipe.

    Of the activations those change that are as wide as most operands of the traced products: what was kept wider or
    narrower on purpose (statistics of autocast norms, dropout masks, indices) stays. A model without products keeps its
    activations.
    """
    traced = _traced_bytes(model)

    def cast(tensor: Tensor) -> Tensor:
        width = tensor.element_bytes
        if tensor.role is TensorRole.PARAMETER:
            width = formats.weights.bytes
        elif tensor.role is TensorRole.GRADIENT:
            width = formats.gradients.bytes
        elif tensor.role is TensorRole.ACTIVATION and width == traced:
            width = formats.activations.bytes
        return replace(tensor, element_bytes=width)

    def of(layer: TensorLayer) -> TensorLayer:
        return replace(layer, tensors=tuple(cast(tensor) for tensor in layer.tensors))

    return replace(model, layers=tuple((of(layer), count) for layer, count in model.layers))


def _traced_bytes(model: TracedModel) -> float | None:
    """The width of most activations that products read."""
    widths = Counter(
        layer.tensors[access.tensor].element_bytes
        for layer, _ in model.layers
        for op in layer.operators
        if op.kind in (TensorOpKind.PRODUCT, TensorOpKind.ATTENTION)
        for access in op.reads
        if layer.tensors[access.tensor].role is TensorRole.ACTIVATION
    )
    return max(sorted(widths), key=lambda width: widths[width]) if widths else None
