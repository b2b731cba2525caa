"""The sizes of one attention on one device."""

from dataclasses import dataclass

from archplace.workloads.layer_sharding import ContextKind
from archplace.workloads.precision import FP32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCore:
    """What decides the operators between queries, keys, values and the context that attention makes of them."""

    batch: int
    """Independent attentions: one per sequence and key head."""
    heads_per_key_head: int
    queries: int
    """Tokens of one sequence whose queries the device holds."""
    keys: int
    """Tokens of a whole sequence of keys and values, of which the device holds one in ``context``."""
    head_dim: int
    """Elements of a query or key head."""
    value_dim: int
    """Elements of a value head."""
    element_bytes: int
    dropout: bool
    causal: bool
    """A token sees those before it only."""
    fused: bool
    """The scores stay on chip."""
    context: int = 1
    context_kind: ContextKind = ContextKind.RING
    keeps_context: bool = True
    """The projection behind keeps the context as it is; otherwise it keeps what it casts of it, and only the gradients
    of fused attention need the context."""
    position_bias_bytes: int = 0
    """Bytes of the biases of pairs of positions, which are added to the scores; 0 where there are none."""
    prefix: str = ""
    """Stands before the operators' names, where a block has more than one attention."""

    @property
    def rows(self) -> int:
        """Query rows of one product: those of every head that shares the key head."""
        return self.queries * self.heads_per_key_head

    @property
    def is_ring(self) -> bool:
        """Whether keys and values travel round the context-parallel group."""
        return self.context > 1 and self.context_kind is ContextKind.RING

    @property
    def keys_bytes(self) -> int:
        """Bytes of the keys and values of whole sequences, of the key heads on this device."""
        return self.batch * self.keys * (self.head_dim + self.value_dim) * self.element_bytes

    @property
    def statistics_bytes(self) -> int:
        """Bytes of what fused attention keeps of each row of scores: the logarithm of the sum of exponentials, fp32."""
        return self.batch * self.rows * FP32_BYTES

    @property
    def context_bytes(self) -> int:
        """Bytes of the context."""
        return self.batch * self.rows * self.value_dim * self.element_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept for the backward pass besides queries, keys, values and, without fusion, scores."""
        if self.fused:
            return self.context_bytes + self.statistics_bytes
        return self.context_bytes if self.keeps_context else 0
