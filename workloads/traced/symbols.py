"""Which atoms are the batch, which the sequence, which the experts.

The batch is what enters: the numbers that the first table is looked up by, (sequences, tokens), or the first operand
of the first product, (samples, …). Every dimension that operators unify with these follows them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from archplace.workloads.traced.calls import Pass
from archplace.workloads.traced.nests import Nest
from archplace.workloads.traced.roles import Roles
from archplace.workloads.traced.tensor_graph import LoopKind, Symbol, TensorOpKind
from archplace.workloads.traced.versions import Step, Value
from archplace.workloads.traced.whole_graph import Dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the traced step."""

    batch: int
    sequence_length: int | None
    notes: tuple[str, ...]


def mark_symbols(
    values: Sequence[Value],
    steps: Sequence[Step],
    nests: Mapping[int, Sequence[Nest]],
    roles: Roles,
    dimensions: Dimensions,
    *,
    batch: int | None,
    sequence_length: int | None,
) -> Sizes:
    """Mark the atoms of batch, sequence and experts, and return the sizes found.

    Raises ValueError where no dimension of what enters has a size that is given.
    """
    entering = list(_entering(values, steps, nests, roles))
    notes: list[str] = []
    tokens = next((shape for shape, is_tokens in entering if is_tokens), None)
    first = tokens or next((shape for shape, _ in entering), None)
    found_batch = _choose("batch", batch, entering, values, first, 0)
    found_length = _choose("sequence_length", sequence_length, entering, values, tokens, 1)
    for symbol, found in ((Symbol.BATCH, found_batch), (Symbol.SEQUENCE, found_length)):
        if found is not None:
            value, dim = found
            dimensions.mark(dimensions.of_value(value)[dim], symbol)
    for place, found_nests in nests.items():
        if steps[place].call.part is Pass.FORWARD:
            for nest in found_nests:
                _mark_experts(nest, values, roles, dimensions)
    sizes = [1 if found is None else values[found[0]].shape[found[1]] for found in (found_batch, found_length)]
    if found_batch is None or sizes[0] == 1:
        notes.append("no dimension is the batch: the model cannot be scaled to another; trace a batch of at least 2")
    if found_length is None:
        notes.append(
            "no dimension is known to be the sequence; if there are sequences, say in a workload file how long the "
            "traced ones are, as traced_sequence_length"
        )
    return Sizes(
        batch=sizes[0],
        sequence_length=None if found_length is None else sizes[1],
        notes=tuple(notes),
    )


def _entering(
    values: Sequence[Value], steps: Sequence[Step], nests: Mapping[int, Sequence[Nest]], roles: Roles
) -> Iterator[tuple[int, bool]]:
    """Yield what enters from outside the model and is no parameter, with whether it is numbers of a table's rows."""
    for place, found in nests.items():
        if steps[place].call.part is not Pass.FORWARD:
            continue
        for nest in found:
            for at, (value, _) in enumerate(nest.reads):
                if value in roles.constants and len(values[value].shape) > 1:
                    if nest.kind is TensorOpKind.LOOKUP and at:
                        yield value, True
                    elif nest.kind is TensorOpKind.PRODUCT and not at:
                        yield value, False


def _choose(
    key: str,
    size: int | None,
    entering: Sequence[tuple[int, bool]],
    values: Sequence[Value],
    default: int | None,
    dim: int,
) -> tuple[int, int] | None:
    """Return the value and the dimension that is the batch or the sequence."""
    if size is None:
        return None if default is None or dim >= len(values[default].shape) else (default, dim)
    places = [dim, *(one for one in (0, 1, 2) if one != dim)]
    for place in places:
        for value, _ in entering:
            if place < len(values[value].shape) and values[value].shape[place] == size:
                return value, place
    shapes = ", ".join(str(list(values[value].shape)) for value, _ in entering[:4]) or "nothing"
    raise ValueError(f"{key} is {size}, but no dimension of what enters the model has this size: {shapes} enters")


def _mark_experts(nest: Nest, values: Sequence[Value], roles: Roles, dimensions: Dimensions) -> None:
    """Independent products with parameters of their own are experts."""
    if nest.kind is not TensorOpKind.PRODUCT or len(nest.reads) < 2:
        return
    parameters = [(value, index) for value, index in nest.reads[:2] if value in roles.parameters]
    for value, index in parameters:
        if len(values[value].shape) == 3 and len(index[0]) == 1:
            loop = index[0][0][0]
            shared = [other for other, _ in nest.reads[:2] if other != value]
            if loop is not None and shared and nest.loops[loop] is LoopKind.FREE:
                dimensions.mark(dimensions.of_value(value)[0], Symbol.EXPERT)
