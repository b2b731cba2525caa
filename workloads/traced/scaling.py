"""A traced model at another batch or sequence length: atoms and loops that follow these grow with them."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from archplace.workloads.traced.layers import model_flops
from archplace.workloads.traced.tensor_graph import Atom, Loop, Symbol, TensorLayer, TracedModel


def scale(model: TracedModel, *, batch: int | None = None, sequence_length: int | None = None) -> TracedModel:
    """Return ``model`` as a step with another batch or other sequences would have shown it; ``None`` changes nothing.

    Raises ``ValueError`` with the reason where a size is less than 1, where no dimension is known to be the batch or
    the sequence, and where a dimension that is a part of it would not be whole.
    """
    factors: dict[Symbol, Fraction] = {}
    asked = (
        (Symbol.BATCH, "batch", batch, model.batch),
        (Symbol.SEQUENCE, "sequence_length", sequence_length, model.sequence_length),
    )
    for symbol, key, wanted, traced in asked:
        if wanted is None or wanted == traced:
            continue
        if wanted < 1:
            raise ValueError(f"{key} is {wanted}, must be at least 1")
        if traced is None or not _has(model, symbol):
            raise ValueError(
                f"{key} cannot become {wanted}: in {model.name} no dimension of more than one element is known to be "
                f"the {symbol}; trace a step with more, or say how large it was"
            )
        factors[symbol] = Fraction(wanted, traced)
    if not factors:
        return model
    layers = tuple((_scaled(layer, factors), count) for layer, count in model.layers)
    return replace(
        model,
        layers=layers,
        batch=model.batch if batch is None else batch,
        sequence_length=model.sequence_length if sequence_length is None else sequence_length,
        model_flops=model_flops(layers),
    )


def _has(model: TracedModel, symbol: Symbol) -> bool:
    return any(
        atom.symbol is symbol
        for layer, _ in model.layers
        for tensor in layer.tensors
        for dim in tensor.dims
        for atom in dim
    )


def _scaled(layer: TensorLayer, factors: Mapping[Symbol, Fraction]) -> TensorLayer:
    def size(of: Atom | Loop) -> int:
        found = of.size * factors.get(of.symbol, Fraction(1))
        if found.denominator != 1:
            raise ValueError(
                f"a {of.symbol} dimension of {of.size} elements in layer {layer.name} would have {float(found):g}"
            )
        return found.numerator

    tensors = tuple(
        replace(tensor, dims=tuple(tuple(replace(atom, size=size(atom)) for atom in dim) for dim in tensor.dims))
        for tensor in layer.tensors
    )
    operators = tuple(
        replace(op, loops=tuple(replace(loop, size=size(loop)) for loop in op.loops)) for op in layer.operators
    )
    return replace(layer, tensors=tensors, operators=operators)
