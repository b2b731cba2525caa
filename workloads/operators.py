"""Operators: what one accelerator executes, described by dimensions and bytes, not by time."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """The kind of unit an operator runs on."""

    TENSOR = "tensor"
    VECTOR = "vector"
    FUSED = "fused"
    """Matrix products whose results pass through a vector unit, on their way out or to the next product: needs both
    units together."""
    NETWORK = "network"


class Phase(StrEnum):
    """The part of the training step that an operator belongs to."""

    FORWARD = "forward"
    DATA_GRADIENT = "data_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    OPTIMIZER = "optimizer"


class CollectiveKind(StrEnum):
    """What a group of devices exchanges."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point_to_point"
    """Every device sends its payload to a neighbour in the group, as a step of a ring does."""


class Axis(StrEnum):
    """A parallel axis: along which a group of devices shares the work of a layer or of a batch."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    EXPERT_TENSOR = "expert_tensor"
    DATA = "data"
    PIPELINE = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """``batch`` products C[m, n] = A[m, k] · B[k, n].

    An operand that is *shared* is the same for the whole batch; otherwise each product has its own. Elements are of the
    operator's precision.
    """

    batch: int = 1
    m: int
    n: int
    k: int
    a_shared: bool = False
    b_shared: bool = False

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedAttention:
    """Attention, or its gradients, whose scores never leave the chip (Dao et al. 2022, arXiv:2205.14135).

    ``batch`` independent attentions of ``rows`` query rows on ``keys`` keys. Tiles of scores that a mask hides are
    skipped (Dao 2023, arXiv:2307.08691, section 3.1), so that a row computes the scores of ``met_keys`` keys on
    average: half of all behind a causal mask.
    """

    batch: int
    rows: int
    """Query rows of all heads that share a key head."""
    keys: int
    met_keys: int
    head_dim: int
    """Elements of a query or key row."""
    value_dim: int
    """Elements of a value row."""
    gradients: bool = False

    @property
    def products(self) -> tuple[Gemm, ...]:
        """The matrix products: scores and context, or scores again and the gradients of all that enters.

        Two and five (Dao 2023, arXiv:2307.08691, algorithms 1 and 2).
        """
        batch, rows, keys, k, v = self.batch, self.rows, self.met_keys, self.head_dim, self.value_dim
        scores = Gemm(batch=batch, m=rows, n=keys, k=k)
        if not self.gradients:
            return (scores, Gemm(batch=batch, m=rows, n=v, k=keys))
        return (
            scores,
            Gemm(batch=batch, m=keys, n=v, k=rows),  # of the values
            Gemm(batch=batch, m=rows, n=keys, k=v),  # of the probabilities
            Gemm(batch=batch, m=rows, n=k, k=keys),  # of the queries
            Gemm(batch=batch, m=keys, n=k, k=rows),  # of the keys
        )

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all products."""
        return sum(product.macs for product in self.products)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorWork:
    """Element-wise work on ``rows`` rows of ``row_length`` elements."""

    rows: int
    row_length: int
    operations_per_element: float
    """Lane operations per element, over all passes."""
    passes: int = 1
    """How often the lanes traverse each row; a row that stays on chip is read from HBM once, whatever the passes."""
    reductions: int = 0
    """How many of the passes end in a reduction over the row, whose partial results a tree combines."""
    read_bytes: int
    """Bytes of distinct operands read; in a fused operator only those besides the matrix product's result."""
    write_bytes: int
    """Bytes written; in a fused operator everything it writes, the product's result included where it is kept."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.rows * self.row_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Data exchanged inside one group of devices."""

    kind: CollectiveKind
    payload_bytes: int
    """Bytes of the full (unsharded) buffer on each device; of an all-to-all all that one device sends, its own part
    included; of a point-to-point step what one device sends."""
    group_size: int
    axis: Axis = Axis.TENSOR
    """Which of the groups that the device belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One node of an operator graph.

    ``unit`` decides which descriptions are present: TENSOR has ``gemm``; VECTOR has ``vector``; FUSED has ``vector``
    and either ``gemm`` or ``attention``; NETWORK has ``collective``.
    """

    name: str
    unit: Unit
    phase: Phase
    inputs: tuple[str, ...] = ()
    """Names of the operators of the same graph that must finish first."""
    precision: str = "bf16"
    gemm: Gemm | None = None
    attention: FusedAttention | None = None
    """With it, ``vector`` is the work on each score that is computed, one row of ``met_keys`` for each query row, and
    its bytes are all that the operator must move: each operand and result once."""
    vector: VectorWork | None = None
    collective: Collective | None = None
    parameters: int = 0
    """Parameters that live with this operator, on this device."""
    stash_bytes: int = 0
    """Bytes kept from the forward pass for the backward pass, per microbatch, on this device."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all matrix products."""
        return (self.gemm.macs if self.gemm else 0) + (self.attention.macs if self.attention else 0)
