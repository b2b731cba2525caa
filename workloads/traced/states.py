"""How the devices of a group hold a tensor: all of it each, a part each, or a partial sum each."""

from dataclasses import dataclass, replace
from enum import StrEnum

from archplace.workloads.layer_sharding import ContextKind, LayerSharding
from archplace.workloads.operators import Axis
from archplace.workloads.traced.tensor_graph import Symbol, Tensor, TensorRole


class Holding(StrEnum):
    """What each device has of a tensor."""

    REPLICATED = "replicated"
    CUT = "cut"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True, order=True)
class State:
    """How a group holds one tensor."""

    holding: Holding
    dim: int = -1
    """Of a cut tensor the dimension; -1 of others."""
    atom: int = -1
    """Of a cut tensor the atom of that dimension; -1 of others."""

    @property
    def is_cut(self) -> bool:
        """Whether each device has another part."""
        return self.holding is Holding.CUT


REPLICATED = State(Holding.REPLICATED)
PARTIAL = State(Holding.PARTIAL)


def cut(dim: int, atom: int) -> State:
    """Return the state of a tensor that is cut along an atom."""
    return State(Holding.CUT, dim, atom)


def local_tensor(tensor: Tensor, state: State, degree: int) -> Tensor:
    """Return what one device of ``degree`` holds of a tensor in a state."""
    if not state.is_cut:
        return tensor
    dims = [list(atoms) for atoms in tensor.dims]
    whole = dims[state.dim][state.atom]
    assert whole.size % degree == 0, (tensor.name, state)
    dims[state.dim][state.atom] = replace(whole, size=whole.size // degree)
    return replace(tensor, dims=tuple(tuple(atoms) for atoms in dims))


def gradient_state(parameter: Tensor, gradient: Tensor, stored: State) -> State:
    """Return the state in which a gradient belongs to a parameter stored in ``stored``.

    Traced gradients may have dimensions of one element more, as that of a table that is added to every sequence. Where
    the atoms differ otherwise, each device needs all of the gradient to take its part.
    """
    if not stored.is_cut:
        return stored
    here, there = _places(parameter), _places(gradient)
    if [size for _, size in here] != [size for _, size in there]:
        return REPLICATED
    return there[[state for state, _ in here].index(stored)][0]


def _places(tensor: Tensor) -> list[tuple[State, int]]:
    """Where a tensor could be cut, with the elements there; a single element is no place."""
    return [(cut(d, a), atom.size) for d, dim in enumerate(tensor.dims) for a, atom in enumerate(dim) if atom.size > 1]


def is_of_experts(parameter: Tensor) -> bool:
    """Whether a parameter is a matrix for each expert; what has a number for each, as a router, every replica has."""
    atoms = [atom for dim in parameter.dims for atom in dim]
    each = [atom for atom in atoms if atom.symbol is not Symbol.EXPERT and atom.size > 1]
    return parameter.role is TensorRole.PARAMETER and len(each) > 1 and any(a.symbol is Symbol.EXPERT for a in atoms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """What a group of devices may do to a layer: the rules of one parallel axis."""

    axis: Axis
    degree: int
    symbols: frozenset[Symbol]
    """Along which atoms and loops work may be cut."""
    boundary: Symbol | None
    """What the tensors between layers are cut along; ``None`` where every device holds them whole."""
    stream_whole: bool
    """Whether every device holds all of what only element-wise operators, norms and the like tie to the tensors between
    layers: the residual stream."""
    cuts_parameters: bool
    """Whether devices store parts of any parameters. Where not, they store parts of experts at most, if these may be
    cut; gradients of all else are left as partial sums: the group takes part in the exchange of data-parallel
    replicas, once per step."""
    stores_cut: bool
    """Whether matrices and tables of parameters must be stored in parts, wherever they can be: layers are shared so
    that they need less memory on each device, and not only less time. Vectors may be whole."""
    keeps_cut: bool
    """Whether activations that wait for the backward pass must be kept in parts, wherever they can be."""

    @classmethod
    def tensor(cls, degree: int, *, sequence: bool) -> "Cutting":
        """Return the rules of the tensor-parallel group.

        Without ``sequence`` norms, dropout and residual sums are not shared (Shoeybi et al. 2019, arXiv:1909.08053,
        section 3), and other activations along the model's own dimensions only. With it all are shared along the
        sequence too, between layers always, and what is kept is kept in parts (Korthikanti et al. 2022,
        arXiv:2205.05198, section 4.2.2). Matrices are stored in parts either way.
        """
        own = frozenset({Symbol.FIXED, Symbol.EXPERT})
        return cls(
            axis=Axis.TENSOR,
            degree=degree,
            symbols=own | {Symbol.SEQUENCE} if sequence else own,
            boundary=Symbol.SEQUENCE if sequence else None,
            stream_whole=not sequence,
            cuts_parameters=True,
            stores_cut=True,
            keeps_cut=sequence,
        )

    @classmethod
    def context(cls, degree: int) -> "Cutting":
        """Return the rules of the context-parallel group: all along the sequence, with parameters whole.

        Attention gathers keys and values, and scatters the sums of their gradients (Dubey et al. 2024,
        arXiv:2407.21783, section 3.3.2).
        """
        return cls(
            axis=Axis.CONTEXT,
            degree=degree,
            symbols=frozenset({Symbol.SEQUENCE}),
            boundary=Symbol.SEQUENCE,
            stream_whole=False,
            cuts_parameters=False,
            stores_cut=False,
            keeps_cut=True,
        )

    @classmethod
    def expert(cls, degree: int) -> "Cutting":
        """Return the rules of replicas that spread experts among themselves, on the sequences of all of them.

        Each has its own sequences between layers and its own experts; tokens travel there and back (Lepikhin et al.
        2020, arXiv:2006.16668, section 3.2).
        """
        return cls(
            axis=Axis.EXPERT,
            degree=degree,
            symbols=frozenset({Symbol.BATCH, Symbol.EXPERT}),
            boundary=Symbol.BATCH,
            stream_whole=False,
            cuts_parameters=False,
            stores_cut=False,
            keeps_cut=True,
        )

    @classmethod
    def of(cls, sharding: LayerSharding) -> tuple["Cutting", ...]:
        """Return the rules of each axis of a sharding that has more than one device, in the order they are applied."""
        assert sharding.context == 1 or sharding.context_kind is ContextKind.ALL_GATHER
        found = (
            cls.expert(sharding.expert),
            cls.context(sharding.context),
            cls.tensor(sharding.tensor, sequence=sharding.sequence),
        )
        return tuple(cutting for cutting in found if cutting.degree > 1)

    def divides(self, size: int, symbol: Symbol) -> bool:
        """Whether the group can share a loop or an atom."""
        return symbol in self.symbols and size % self.degree == 0

    def storable(self, parameter: Tensor, states: tuple[State, ...]) -> tuple[State, ...]:
        """Return in which of the states that a parameter can be in it may be stored."""
        parts = tuple(state for state in states if state.is_cut)
        if not self.cuts_parameters:
            experts = tuple(s for s in parts if parameter.dims[s.dim][s.atom].symbol is Symbol.EXPERT)
            return experts if experts and is_of_experts(parameter) else (REPLICATED, *experts)
        is_matrix = sum(any(atom.size > 1 for atom in dim) for dim in parameter.dims) > 1
        return parts if parts and is_matrix and self.stores_cut else states

    def between(self, tensor: Tensor) -> State:
        """Return the state of a tensor between layers; parameters and constants are whole.

        Raises ``ValueError`` where it cannot be shared as it should.
        """
        if self.boundary is None or tensor.role in (TensorRole.PARAMETER, TensorRole.CONSTANT):
            return REPLICATED
        atoms = {
            cut(d, a): atom
            for d, dim in enumerate(tensor.dims)
            for a, atom in enumerate(dim)
            if atom.symbol is self.boundary
        }
        if not atoms:
            return REPLICATED  # a mask or a scalar that passes along
        for state, atom in atoms.items():
            if atom.size % self.degree == 0:
                return state
        sizes = ", ".join(str(atom.size) for atom in atoms.values())
        what = "sequences" if self.boundary is Symbol.BATCH else "tokens of a sequence"
        raise ValueError(
            f"{self.axis} parallel width {self.degree} does not divide the {sizes} {what} that {tensor.name} holds "
            "between layers"
        )
