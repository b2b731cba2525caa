"""What a traced training step computes, independent of the devices it ran on: tensors, loops and repeated layers.

An operator is a nest of *loops*; its operands are indexed by them, as in an einsum. A matrix product
C[m, n] = A[m, k] · B[k, n] has the loops m, n and k, and k is summed. Where a program reshapes, one dimension of a
tensor stands for several loops, major first: the columns of a fused query-key-value product are (3, heads, head_dim).
These pieces are *atoms*. Cutting along any atom is a valid sharding, because the elements of parameters can be stored
in any order; what one device then holds is the tensor with that atom divided by the degree.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import prod

from archplace.workloads.operators import Phase


class Symbol(StrEnum):
    """What the size of an atom follows when the job is scaled."""

    FIXED = "fixed"
    """The model."""
    BATCH = "batch"
    """Sequences per microbatch."""
    SEQUENCE = "sequence"
    """Tokens per sequence."""
    EXPERT = "expert"
    """Routed experts: a fixed number, along which expert parallelism cuts."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A factor of a tensor's dimension that no operator of the graph takes apart."""

    size: int
    symbol: Symbol = Symbol.FIXED


class TensorRole(StrEnum):
    """How a tensor lives."""

    PARAMETER = "parameter"
    GRADIENT = "gradient"
    """The gradient of a parameter, which the optimizer reads."""
    CONSTANT = "constant"
    """Computed once or read from the batch: masks, position indices, token numbers, labels."""
    ACTIVATION = "activation"
    """All else: results of the forward and of the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of a layer, whole, as if one device held it."""

    name: str
    dims: tuple[tuple[Atom, ...], ...]
    """For each dimension its atoms, major first; a dimension of size 1 has none."""
    element_bytes: float
    role: TensorRole
    gradient_of: int | None = None
    """Of a :attr:`TensorRole.GRADIENT` its parameter, as index into the layer's tensors: whichever device stores a part
    of the parameter must get that part's gradient. ``None`` where it is not known: then all of it goes everywhere."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(atom.size for dim in self.dims for atom in dim)

    @property
    def bytes(self) -> float:
        """Bytes of the whole tensor."""
        return self.elements * self.element_bytes


class LoopKind(StrEnum):
    """What cutting a loop does to the result."""

    FREE = "free"
    """Each device computes its part of the results; of a result that the loop does not index, a partial sum, as of a
    norm's gains in its gradient."""
    SUMMED = "summed"
    """Each device computes a partial sum of all results."""
    WHOLE = "whole"
    """One device must run all of it: a softmax's row, a sort, a shuffle."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of an operator's nest."""

    size: int
    kind: LoopKind
    symbol: Symbol = Symbol.FIXED


@dataclass(frozen=True, slots=True)
class Access:
    """How an operator indexes one tensor."""

    tensor: int
    """Index into the graph's tensors."""
    loops: tuple[tuple[int | None, ...], ...]
    """For each dimension and atom of the tensor the loop that runs along it; ``None`` where every iteration meets all
    of the atom, or in an irregular order: it cannot be cut there."""


class TensorOpKind(StrEnum):
    """The class of work of an operator."""

    PRODUCT = "product"
    """Matrix products and all other contractions of two operands."""
    ATTENTION = "attention"
    """Fused attention, or its gradients: scores never leave the chip. Forward, the first three reads are queries, keys
    and values and the first write is the context; backward, the first three writes are the gradients of queries, keys
    and values. Loops that queries and keys share and that reach the context are independent attentions; the keys' own
    loops and the heads that share a key head follow from who is indexed by what."""
    LOOKUP = "lookup"
    """Rows of a table by number, and the scattered sum that is its gradient. The table's rows are a loop of kind
    :attr:`LoopKind.SUMMED` that indexes nothing but the table (a lookup is a sum over all rows of which all but one
    are left out), or of kind :attr:`LoopKind.FREE` where the table is written."""
    MAP = "map"
    """Element by element."""
    ROWS = "rows"
    """Normalisations, softmax, losses: passes over rows with reductions."""
    REDUCTION = "reduction"
    """Sums and the like over some loops, with nothing else."""
    MOVE = "move"
    """Copies, casts, concatenations, dispatch: bytes without arithmetic."""
    VIEW = "view"
    """Nothing is computed and nothing moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorOp:
    """An operator of a layer, whole."""

    name: str
    kind: TensorOpKind
    phase: Phase
    loops: tuple[Loop, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    linear: bool = False
    """The results are linear in all operands that are activations together (sums, views, casts, scaling by a constant),
    so that partial sums of all of these give partial sums of the results."""
    operations_per_element: float = 1.0
    """Lane operations for each iteration of the nest over all passes; of products 0."""
    passes: int = 1
    """How often the lanes traverse each row."""
    reductions: int = 0
    """How many of these passes end in a reduction over the row."""
    causal: bool = False
    """Attention that computes half of the scores."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a product; of other kinds 0."""
        return prod(loop.size for loop in self.loops) if self.kind is TensorOpKind.PRODUCT else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLayer:
    """A layer: what stands between two narrow places of the graph, with its gradients.

    ``operators`` are in a topological order, forward before backward. A tensor that the forward operators write (or
    that enters) and the backward operators read is kept between the passes.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[TensorOp, ...]
    enters: tuple[int, ...]
    """Tensors that come from the layer before; empty for the first layer."""
    leaves: tuple[int, ...]
    """Tensors that go to the layer behind, in the order of its ``enters``; empty for the last layer."""
    gradients_enter: tuple[int, ...]
    """Their gradients, in the order of ``leaves``; one that does not exist is left out together with its tensor."""
    gradients_leave: tuple[int, ...]
    """The gradients of ``enters``, in that order."""
    shared_parameters: tuple[int, ...] = ()
    """Parameters that another layer holds too, as a tied table."""

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(tensor.elements for tensor in self.tensors if tensor.role is TensorRole.PARAMETER)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModel:
    """A model as its trace shows it: distinct layers in order, each with how many times it stands in a row."""

    name: str
    layers: tuple[tuple[TensorLayer, int], ...]
    batch: int
    """Sequences in the traced step."""
    sequence_length: int | None
    """Tokens per sequence in the traced step; ``None`` where no dimension is known to be the sequence."""
    model_flops: float
    """FLOPs of all matrix products of the traced step, forward and backward, without recomputation."""
