"""A traced model with another batch or sequence length, and what two traces of different sizes tell.

What follows the batch says each atom's symbol. From one trace the symbols are those of the numbers that enter, and of
all that operators say is the same dimension. A second trace of the same model with another batch, or another sequence
length, proves them right or adds what the first could not show, as rows that were gathered before they were counted.
"""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traced.layers import model_flops
from archplace.workloads.traced.lift import Lifted, lift
from archplace.workloads.traced.tensor_graph import (
    Atom,
    Loop,
    Symbol,
    Tensor,
    TensorLayer,
    TensorOp,
    TensorRole,
    TracedModel,
)
from archplace.workloads.traces.host_trace import HostTrace

_Ratios = dict[Symbol, Fraction]


def scale(model: TracedModel, *, batch: int | None = None, sequence_length: int | None = None) -> TracedModel:
    """Return the model with another number of sequences per step, or of tokens per sequence; ``None`` keeps them.

    What follows neither stays: see :func:`follows`. Raises ValueError for sizes below 1, where no dimension is known to
    be the batch or the sequence, and where one that is a part of it would not be whole.
    """
    ratios: _Ratios = {}
    for symbol, name, old, new in (
        (Symbol.BATCH, "batch", model.batch, batch),
        (Symbol.SEQUENCE, "sequence_length", model.sequence_length, sequence_length),
    ):
        if new is None or new == old:
            continue
        if new < 1:
            raise ValueError(f"{name} is {new}, must be at least 1")
        if old is None or not _shows(model, symbol):
            raise ValueError(
                f"{name} cannot become {new}: in {model.name} no dimension of more than one element is known to be the "
                f"{symbol}; trace a step with more, or say how large it was"
            )
        ratios[symbol] = Fraction(new, old)
    if not ratios:
        return model
    layers = tuple((_scaled(layer, ratios), count) for layer, count in model.layers)
    return replace(
        model,
        layers=layers,
        batch=model.batch if batch is None else batch,
        sequence_length=model.sequence_length if sequence_length is None else sequence_length,
        model_flops=model_flops(layers),
    )


def _shows(model: TracedModel, symbol: Symbol) -> bool:
    tensors = (tensor for layer, _ in model.layers for tensor in layer.tensors)
    return any(atom.symbol is symbol for tensor in tensors for dim in tensor.dims for atom in dim)


def follows(model: TracedModel, symbol: Symbol) -> float:
    """Return the share of the bytes of activations, 0 to 1, that follow ``symbol``; 1 of none."""
    total, found = 0.0, 0.0
    for layer, count in model.layers:
        for tensor in layer.tensors:
            if tensor.role is TensorRole.ACTIVATION:
                total += count * tensor.bytes
                if any(atom.symbol is symbol for dim in tensor.dims for atom in dim):
                    found += count * tensor.bytes
    return found / total if total else 1.0


def lift_pair(first: HostTrace | str | Path, second: HostTrace | str | Path, *, batch: int | None = None) -> Lifted:
    """Return the model of the first trace, with what the second, of another batch or sequence length, shows to follow.

    ``batch`` is that of the first trace where its input does not show it. Raises :class:`ConfigError` where the traces
    differ in more than sizes.
    """
    return learn(lift(first, batch=batch), lift(second))


def learn(first: Lifted, second: Lifted) -> Lifted:
    """Return the first model with the symbols that the second shows; see :func:`lift_pair`.

    Sizes that grew as the batch did follow the batch, likewise the sequence. If both grew by the same factor, those
    that grew follow what they did in the first model; others are refused, for they could follow either.
    """
    ratios = _grown(first.model, second.model)
    learner = _Learner(first.model, second.model, ratios)
    layers = learner.layers()
    notes = tuple(note for note in first.notes if not (learner.count and "cannot be scaled" in note))
    if learner.count:
        notes = (*notes, f"of {learner.count} dimensions only the second trace shows what they follow")
    return replace(first, model=replace(first.model, layers=layers), notes=notes)


def _grown(first: TracedModel, second: TracedModel) -> _Ratios:
    ratios: _Ratios = {}
    for symbol, old, new in (
        (Symbol.BATCH, first.batch, second.batch),
        (Symbol.SEQUENCE, first.sequence_length, second.sequence_length),
    ):
        if old is not None and new is not None and old != new:
            ratios[symbol] = Fraction(new, old)
    if not ratios:
        raise _refusal(
            first,
            f"both traces have batch {first.batch} and sequence length {first.sequence_length}: nothing is learned; "
            "trace the second with another batch",
        )
    return ratios


def _refusal(model: TracedModel, message: str) -> ConfigError:
    return ConfigError([Problem(place=model.name, key="", message=message)])


class _Learner:
    """Walks two models of one structure and marks what grew."""

    def __init__(self, first: TracedModel, second: TracedModel, ratios: _Ratios) -> None:
        self._first, self._second, self._ratios = first, second, ratios
        self.count = 0

    def layers(self) -> tuple[tuple[TensorLayer, int], ...]:
        """Return the first model's layers with all symbols."""
        one, other = self._first.layers, self._second.layers
        if [(layer.name, count) for layer, count in one] != [(layer.name, count) for layer, count in other]:
            shown = (", ".join(f"{count} × {layer.name}" for layer, count in layers) for layers in (one, other))
            raise _refusal(self._first, f"the traces have other layers: {' here, '.join(shown)} there")
        return tuple((self._layer(left, right), n) for (left, n), (right, _) in zip(one, other, strict=True))

    def _layer(self, left: TensorLayer, right: TensorLayer) -> TensorLayer:
        for what, here, there in (
            ("operators", [op.name for op in left.operators], [op.name for op in right.operators]),
            ("tensors", [one.name for one in left.tensors], [one.name for one in right.tensors]),
        ):
            if here != there:
                odd = next((pair for pair in zip(here, there, strict=False) if pair[0] != pair[1]), ("", ""))
                raise _refusal(
                    self._first,
                    f"layer {left.name} has {len(here)} {what} here and {len(there)} there"
                    + (f", {odd[0]} here where there is {odd[1]}" if any(odd) else "")
                    + ": the traces differ in more than sizes",
                )
        return replace(
            left,
            tensors=tuple(self._tensor(left.name, *pair) for pair in zip(left.tensors, right.tensors, strict=True)),
            operators=tuple(
                self._operator(left.name, *pair) for pair in zip(left.operators, right.operators, strict=True)
            ),
        )

    def _tensor(self, layer: str, left: Tensor, right: Tensor) -> Tensor:
        name = f"{layer}: {left.name}"
        if [len(dim) for dim in left.dims] != [len(dim) for dim in right.dims]:
            raise _refusal(self._first, f"{name} has other dimensions in the second trace")
        dims = tuple(
            tuple(replace(atom, symbol=self._symbol(name, atom, other)) for atom, other in zip(one, two, strict=True))
            for one, two in zip(left.dims, right.dims, strict=True)
        )
        return replace(left, dims=dims)

    def _operator(self, layer: str, left: TensorOp, right: TensorOp) -> TensorOp:
        name = f"{layer}: {left.name}"
        if len(left.loops) != len(right.loops):
            raise _refusal(self._first, f"{name} has other loops in the second trace")
        pairs = zip(left.loops, right.loops, strict=True)
        return replace(left, loops=tuple(replace(one, symbol=self._symbol(name, one, two)) for one, two in pairs))

    def _symbol(self, name: str, one: Atom | Loop, other: Atom | Loop) -> Symbol:
        if one.size == other.size:
            if one.symbol in self._ratios:
                raise _refusal(
                    self._first, f"{name}: a dimension of {one.size} seems to be the {one.symbol} and did not grow"
                )
            return one.symbol
        ratio = Fraction(other.size, one.size)
        if self._ratios.get(one.symbol) == ratio:
            return one.symbol
        fitting = [symbol for symbol, grown in self._ratios.items() if grown == ratio]
        if len(fitting) != 1:
            grown = " and ".join(f"the {symbol} grew by {float(found):g}" for symbol, found in self._ratios.items())
            raise _refusal(
                self._first,
                f"{name}: a dimension of {one.size} has {other.size} in the second trace, and {grown}: it cannot be "
                "said what it follows; trace the second with nothing changed but the batch",
            )
        self.count += isinstance(one, Atom)
        return fitting[0]


def _scaled(layer: TensorLayer, ratios: _Ratios) -> TensorLayer:
    """A dimension that becomes one element keeps its atom, so that the layer can grow again."""

    def size(one: Atom | Loop) -> int:
        found = one.size * ratios.get(one.symbol, Fraction(1))
        if found.denominator != 1:
            raise ValueError(
                f"a {one.symbol} dimension of {one.size} elements in layer {layer.name} would have {float(found):g}"
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
