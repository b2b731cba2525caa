"""Operators as nests of loops before dimensions are cut into atoms.

A rule (see :mod:`archplace.workloads.traced.loops_of`) says of one call which loops it runs and which of them index
each dimension of its operands. A dimension is indexed by one loop, or by several that take it apart, major first; a
part that no loop runs along is met whole by every iteration.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

from archplace.workloads.traced.tensor_graph import LoopKind, TensorOpKind
from archplace.workloads.traced.versions import Step, Value
from archplace.workloads.traces._op_schema import schema_arguments

Term = tuple[int | None, int]
"""A loop, or ``None``, and how many elements it spans."""
Dim = int | tuple[Term, ...] | None
"""What indexes a dimension: a loop, several terms, or nothing."""
Index = tuple[tuple[Term, ...], ...]
"""For each dimension its terms, major first; none for a dimension of size 1."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text, as the names of operators that a rule is for."""
    return frozenset(text.split())


class MisfitError(ValueError):
    """Operands have other shapes than an operator of this name has them."""


class Linearity(StrEnum):
    """When results are linear in the activations that are read."""

    NEVER = "never"
    SUM = "sum"
    """Where all operands are activations."""
    SCALED = "scaled"
    """Where one operand is an activation, and the others are constants or parameters."""
    DIVIDED = "divided"
    """Where only the first operand is an activation."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that enters or leaves an operator."""

    value: int
    shape: tuple[int, ...]


@dataclass(slots=True)
class Nest:
    """An operator's loops, and how they index what it reads and writes."""

    kind: TensorOpKind
    linearity: Linearity = Linearity.NEVER
    operations: float = 0.0
    """Lane operations for each iteration."""
    passes: int = 1
    reductions: int = 0
    causal: bool = False
    loops: list[LoopKind] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    reads: list[tuple[int, Index]] = field(default_factory=list)
    writes: list[tuple[int, Index]] = field(default_factory=list)

    def loop(self, size: int, kind: LoopKind = LoopKind.FREE) -> int:
        """Add a loop and return its number."""
        self.loops.append(kind)
        self.sizes.append(size)
        return len(self.loops) - 1

    def over(self, shape: Iterable[int], kind: LoopKind = LoopKind.FREE) -> list[int]:
        """Add a loop for each dimension and return their numbers."""
        return [self.loop(size, kind) for size in shape]

    def read(self, operand: Operand | None, dims: Sequence[Dim]) -> None:
        """Add what is read; ``dims`` gives each dimension's loop, or its terms. Nothing for no operand."""
        if operand is not None:
            self.reads.append((operand.value, self._index(operand, dims)))

    def write(self, operand: Operand | None, dims: Sequence[Dim]) -> None:
        """Add what is written, likewise."""
        if operand is not None:
            self.writes.append((operand.value, self._index(operand, dims)))

    def read_broadcast(self, operand: Operand | None, loops: Sequence[int]) -> None:
        """Add an operand whose dimensions stand under the last of ``loops``."""
        if operand is not None:
            self.read(operand, list(loops)[len(loops) - len(operand.shape) :])

    def _index(self, operand: Operand, dims: Sequence[Dim]) -> Index:
        if len(dims) != len(operand.shape):
            raise MisfitError(f"{len(operand.shape)} dimensions, and indices of {len(dims)}")
        index: list[tuple[Term, ...]] = []
        for size, dim in zip(operand.shape, dims, strict=True):
            if size == 1:
                index.append(())
            elif isinstance(dim, tuple):
                terms = tuple(term for term in dim if term[1] != 1)
                if prod(length for _, length in terms) != size:
                    raise MisfitError(f"a dimension of {size}, taken apart into {[length for _, length in terms]}")
                index.append(terms)
            elif dim is not None and self.sizes[dim] != size:
                raise MisfitError(f"a dimension of {size}, along a loop of {self.sizes[dim]}")
            else:
                index.append(((dim, size),))
        return tuple(index)


class Operation:
    """A step as rules see it: operands and settings by the names of the operator's schema."""

    def __init__(self, step: Step, values: Sequence[Value], zeros: AbstractSet[int] = frozenset()) -> None:
        """Take a step of a trace with these values, ``zeros`` those that are nothing but zeros."""
        self._zeros = zeros
        self.name = step.name
        self.moves = step.moves
        self.results = tuple(Operand(value, values[value].shape) for value in step.results)
        self.inputs = tuple(
            tuple(Operand(value, values[value].shape) for value in argument) for argument in step.arguments
        )
        node = step.call.node
        names = () if step.is_synthetic else tuple(one.name for one in schema_arguments(node.op_schema))
        self._places = {name: place for place, name in enumerate(names) if place < len(self.inputs)}
        self._settings = () if step.is_synthetic else tuple(argument.value for argument in node.inputs)

    def operand(self, *names: str) -> Operand | None:
        """Return the tensor that is the first of these arguments that the operator has; None for none."""
        for name in names:
            place = self._places.get(name)
            if place is not None:
                return self.inputs[place][0] if self.inputs[place] else None
        return None

    def operands_of(self, name: str) -> tuple[Operand, ...]:
        """Return the tensors that are one argument, in order."""
        place = self._places.get(name)
        return () if place is None else self.inputs[place]

    def places_of(self, name: str) -> tuple[int, ...]:
        """Return where in a list that is an argument tensors stand; of what is no such list none."""
        value = self._setting(name)
        if not isinstance(value, list) or not value or (len(value) == 6 and isinstance(value[5], str)):
            return ()
        return tuple(place for place, item in enumerate(value) if isinstance(item, list) and len(item) == 6 and item[3])

    def is_zero(self, operand: Operand) -> bool:
        """Whether a tensor is known to be nothing but zeros."""
        return operand.value in self._zeros

    def operands(self) -> tuple[Operand, ...]:
        """Return all tensors that enter."""
        return tuple(operand for argument in self.inputs for operand in argument)

    def result(self, place: int = 0) -> Operand | None:
        """Return a result, or None."""
        return self.results[place] if place < len(self.results) else None

    def number(self, name: str, default: int = 0) -> int:
        """Return a whole number that is an argument."""
        value = self._setting(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Return whole numbers that are an argument; None where there are none."""
        value = self._setting(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            return None
        return tuple(value)

    def flag(self, name: str) -> bool:
        """Return whether an argument is true."""
        return self._setting(name) is True

    def flags(self, name: str) -> tuple[bool, ...]:
        """Return truth values that are an argument."""
        value = self._setting(name)
        return tuple(item is True for item in value) if isinstance(value, list) else ()

    def _setting(self, name: str) -> object:
        place = self._places.get(name)
        return self._settings[place] if place is not None and place < len(self._settings) else None
