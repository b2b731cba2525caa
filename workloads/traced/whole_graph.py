"""The graph of a traced forward and backward pass: all its tensors in atoms, all its operators in loops.

Views that only give elements another order are taken out: who reads a view reads what it is a view of. So a tensor that
several operators look at in several shapes is one tensor, and is kept once between the passes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from archplace.workloads.operators import Phase
from archplace.workloads.traced.atoms import Atoms
from archplace.workloads.traced.calls import Pass
from archplace.workloads.traced.loops_of import base_name
from archplace.workloads.traced.nests import Linearity, Nest
from archplace.workloads.traced.roles import Roles
from archplace.workloads.traced.tensor_graph import (
    Access,
    Atom,
    Loop,
    Symbol,
    Tensor,
    TensorOp,
    TensorOpKind,
    TensorRole,
)
from archplace.workloads.traced.versions import Step, Value

_Lookup = Callable[[int], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOp:
    """An operator of the whole graph; tensors are numbered as the trace's values."""

    op: TensorOp
    step: int
    """Place of its step."""
    is_forward: bool
    seq: int
    """The number that a forward operator and its gradient share; -1 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeGraph:
    """All operators in the order of calls, and the tensors that they read and write."""

    operators: tuple[PlacedOp, ...]
    tensors: Mapping[int, Tensor]


class Dimensions:
    """The atoms of all values and loops of a graph."""

    def __init__(self, values: Sequence[Value], nests: Mapping[int, Sequence[Nest]]) -> None:
        """Unify what the nests say is one."""
        self.atoms = Atoms()
        self._values = values
        self._of_value: dict[int, tuple[tuple[int, ...], ...]] = {}
        self._of_loop: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self.symbols: dict[int, Symbol] = {}
        for place, found in nests.items():
            for at, nest in enumerate(found):
                for loop, size in enumerate(nest.sizes):
                    self._of_loop[place, at, loop] = (self.atoms.variable(size),) if size > 1 else ()
                for value, index in (*nest.reads, *nest.writes):
                    for dim, terms in zip(self._dims(value), index, strict=True):
                        self.atoms.unify(dim, [one for term in terms for one in self._term(place, at, term)])

    def of_value(self, value: int) -> tuple[tuple[int, ...], ...]:
        """Return for each dimension of a value its atoms."""
        return tuple(self.atoms.atoms(dim) for dim in self._dims(value))

    def of_loop(self, place: int, at: int, loop: int) -> tuple[int, ...]:
        """Return the atoms of a loop of a step's nest."""
        return self.atoms.atoms(self._of_loop[place, at, loop])

    def mark(self, atoms: Sequence[int], symbol: Symbol) -> None:
        """Let the first of ``atoms`` follow ``symbol``, where it follows nothing else."""
        if atoms:
            self.symbols.setdefault(atoms[0], symbol)

    def symbol(self, atom: int) -> Symbol:
        """Return what an atom follows."""
        return self.symbols.get(atom, Symbol.FIXED)

    def _dims(self, value: int) -> tuple[tuple[int, ...], ...]:
        found = self._of_value.get(value)
        if found is None:
            shape = self._values[value].shape
            found = tuple((self.atoms.variable(size),) if size > 1 else () for size in shape)
            self._of_value[value] = found
        return found

    def _term(self, place: int, at: int, term: tuple[int | None, int]) -> tuple[int, ...]:
        loop, size = term
        if loop is not None:
            return self._of_loop[place, at, loop]
        return (self.atoms.variable(size),) if size > 1 else ()


def build_graph(
    values: Sequence[Value],
    steps: Sequence[Step],
    nests: Mapping[int, Sequence[Nest]],
    roles: Roles,
    dimensions: Dimensions,
) -> WholeGraph:
    """Return the graph of the steps that have nests, without what is computed from constants alone."""
    tensors: dict[int, Tensor] = {}

    def tensor(value: int) -> Tensor:
        if value not in tensors:
            tensors[value] = _tensor(value, values[value], roles, dimensions)
        return tensors[value]

    operators: list[PlacedOp] = []
    bases: dict[int, _Base] = {}
    for place in sorted(nests):
        step = steps[place]
        for at, nest in enumerate(nests[place]):
            written = [value for value, _ in nest.writes]
            if not written or all(value in roles.constants for value in written):
                continue
            op = _operator(place, at, step, nest, dimensions, tensor, roles)
            # Numbers are no operands: where in memory they stand, and whether twice, is chance.
            reads = (one for one in op.reads if values[one.tensor].shape or one.tensor not in roles.constants)
            op = replace(op, reads=tuple(_through(access, bases, tensor) for access in reads))
            if op.kind is TensorOpKind.VIEW and len(op.writes) == 1:
                base = _base(op.reads, op.writes[0])
                spread = base is not None and tensor(base.tensor).elements < tensor(written[0]).elements
                if base is not None and not (spread and written[0] in roles.gradients):
                    bases[written[0]] = base
                    continue
            operators.append(PlacedOp(op=op, step=place, is_forward=step.call.part is Pass.FORWARD, seq=step.call.seq))
    _take_over_gradients(tensors, bases, roles)
    return WholeGraph(operators=_read_views(operators, tensors), tensors=tensors)


@dataclass(frozen=True, slots=True)
class _Base:
    """What a view is a view of: for each dimension and atom of the tensor the place of the atom in the view."""

    tensor: int
    places: tuple[tuple[tuple[int, int], ...], ...]


def _tensor(number: int, value: Value, roles: Roles, dimensions: Dimensions) -> Tensor:
    if number in roles.parameters:
        role = TensorRole.PARAMETER
    elif number in roles.gradients:
        role = TensorRole.GRADIENT
    else:
        role = TensorRole.CONSTANT if number in roles.constants else TensorRole.ACTIVATION
    return Tensor(
        name="",
        dims=tuple(
            tuple(Atom(dimensions.atoms.size(atom), dimensions.symbol(atom)) for atom in dim)
            for dim in dimensions.of_value(number)
        ),
        element_bytes=value.item_bytes,
        role=role,
        gradient_of=roles.gradients.get(number),
    )


def _operator(
    place: int, at: int, step: Step, nest: Nest, dimensions: Dimensions, tensor: _Lookup, roles: Roles
) -> TensorOp:
    loops: list[Loop] = []
    runs: list[list[tuple[int, int]]] = []
    for loop, kind in enumerate(nest.loops):
        runs.append([])
        for atom in dimensions.of_loop(place, at, loop):
            runs[-1].append((atom, len(loops)))
            loops.append(Loop(dimensions.atoms.size(atom), kind, dimensions.symbol(atom)))
    accesses = []
    for value, index in (*nest.reads, *nest.writes):
        tensor(value)
        dims = tuple(
            _aligned(atoms, _indexing(terms, runs, dimensions))
            for atoms, terms in zip(dimensions.of_value(value), index, strict=True)
        )
        accesses.append(Access(value, dims))
    return TensorOp(
        name=base_name(step.name),
        kind=nest.kind,
        phase=Phase.FORWARD if step.call.part is Pass.FORWARD else Phase.DATA_GRADIENT,
        loops=tuple(loops),
        reads=tuple(accesses[: len(nest.reads)]),
        writes=tuple(accesses[len(nest.reads) :]),
        linear=_is_linear(nest, roles),
        operations_per_element=nest.operations,
        passes=nest.passes,
        reductions=nest.reductions,
        causal=nest.causal,
    )


def _indexing(
    terms: Sequence[tuple[int | None, int]], runs: Sequence[Sequence[tuple[int, int]]], dimensions: Dimensions
) -> list[tuple[int | None, int | None, int]]:
    """Return for each atom of a dimension's terms its number, its loop, its size; what is met whole has no number."""
    found: list[tuple[int | None, int | None, int]] = []
    for loop, size in terms:
        if loop is None:
            found.append((None, None, size))
        else:
            found += [(atom, run, dimensions.atoms.size(atom)) for atom, run in runs[loop]]
    return found


def _aligned(atoms: Sequence[int], terms: Sequence[tuple[int | None, int | None, int]]) -> tuple[int | None, ...]:
    """Return for each atom of a dimension the loop along it: from both ends as far as atoms and terms agree."""
    loops: list[int | None] = [None] * len(atoms)
    for order in (1, -1):
        for place, (atom, (number, loop, _)) in enumerate(zip(atoms[::order], terms[::order], strict=False)):
            if atom != number:
                break
            loops[place if order == 1 else len(atoms) - 1 - place] = loop
    return tuple(loops)


def _is_linear(nest: Nest, roles: Roles) -> bool:
    if nest.kind is TensorOpKind.VIEW:
        return True
    fixed = [value in roles.constants or value in roles.parameters for value, _ in nest.reads]
    if nest.linearity is Linearity.SUM:
        return bool(fixed) and not any(fixed)
    if nest.linearity is Linearity.DIVIDED:
        return fixed.count(False) == 1 and not fixed[0]
    return nest.linearity is Linearity.SCALED and fixed.count(False) == 1


def _through(access: Access, bases: Mapping[int, _Base], tensor: _Lookup) -> Access:
    """Return how an operator that reads a view reads what it is a view of."""
    base = bases.get(access.tensor)
    if base is None:
        return access
    tensor(base.tensor)
    return Access(base.tensor, tuple(tuple(access.loops[dim][at] for dim, at in places) for places in base.places))


def _base(reads: Sequence[Access], write: Access) -> _Base | None:
    """Return what a view is a view of, or None where it leaves elements out or their order is not known."""
    if len(reads) != 1:
        return None
    place_of = {loop: (dim, at) for dim, loops in enumerate(write.loops) for at, loop in enumerate(loops)}
    read = [loop for loops in reads[0].loops for loop in loops]
    if None in place_of or None in read or not place_of.keys() >= set(read) or len(set(read)) != len(read):
        return None
    places = tuple(tuple(place_of[loop] for loop in loops) for loops in reads[0].loops)
    return _Base(reads[0].tensor, places)


def _take_over_gradients(tensors: dict[int, Tensor], bases: Mapping[int, _Base], roles: Roles) -> None:
    """Let what a parameter's gradient is a view of be the gradient."""
    for view, parameter in roles.gradients.items():
        base = bases.get(view)
        if base is not None and tensors[base.tensor].role is TensorRole.ACTIVATION:
            tensors[base.tensor] = replace(tensors[base.tensor], role=TensorRole.GRADIENT, gradient_of=parameter)


def _read_views(operators: Sequence[PlacedOp], tensors: Mapping[int, Tensor]) -> tuple[PlacedOp, ...]:
    """Return the operators without views that nobody reads and that are no gradient of a parameter."""
    kept: list[PlacedOp] = []
    read: set[int] = set()
    for placed in reversed(operators):
        written = {write.tensor for write in placed.op.writes}
        taken = any(tensors[tensor].role is TensorRole.GRADIENT for tensor in written) or not read.isdisjoint(written)
        if placed.op.kind is not TensorOpKind.VIEW or taken:
            kept.append(placed)
            read.update(access.tensor for access in placed.op.reads)
    return tuple(reversed(kept))
