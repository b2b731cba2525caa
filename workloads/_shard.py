"""One device's share of a model: the sizes that its operators have."""

from dataclasses import dataclass, replace

from archplace.workloads._expert_refusals import experts_refusal
from archplace.workloads.layer_sharding import ContextKind, LayerSharding
from archplace.workloads.model import Model, ModelKind
from archplace.workloads.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A model cut as ``sharding`` says, for the sequences of one microbatch.

    The sizes below are per device. ``refusal`` says when they are not whole; then nothing else may be read.
    """

    model: Model
    sharding: LayerSharding
    sequence_length: int
    """Tokens of a whole sequence."""
    precision: Precision
    fused_attention: bool = False
    """The scores of attention stay on chip."""
    target_length: int | None = None
    """Tokens of the whole sequence that the decoder of an encoder–decoder sees; ``sequence_length`` are the encoder's.
    ``None`` for other models."""
    decodes: bool = False
    """The sequence is that of a decoder behind an encoder."""

    def refusal(self) -> str | None:
        """Why the model cannot be cut this way, with the numbers, or None."""
        refusal = self._wrong_degree() or self._unshared_tokens() or self._uncut_matrices()
        if refusal is None and self.target_length is not None:
            refusal = self.target._unshared_tokens()
            return None if refusal is None else f"decoder: {refusal}"
        return refusal

    def _wrong_degree(self) -> str | None:
        """A degree that no model has."""
        sharding, t = self.sharding, self.tensor_parallel
        if t < 1:
            return f"tensor parallel width {t}: must be at least 1"
        if self.microbatch < 1:
            return f"microbatch {self.microbatch}: must be at least 1 sequence"
        least = (
            ("context parallel width", sharding.context),
            ("expert parallel width", sharding.expert),
            ("expert-tensor parallel width", sharding.expert_tensor),
            ("overlap pieces", self.pieces),
        )
        for what, degree in least:
            if degree < 1:
                return f"{what} {degree}: must be at least 1"
        if sharding.sequence and t == 1:
            return "sequence parallelism shares tokens among the tensor-parallel group, which has 1 device: needs 2"
        if self.pieces > 1 and t == 1:
            return f"{self.pieces} overlap pieces hide tensor-parallel exchanges; at tensor parallel width 1 are none"
        return None

    def _unshared_tokens(self) -> str | None:
        """Tokens that do not divide."""
        sharding, t, c = self.sharding, self.tensor_parallel, self.sharding.context
        if c > 1:
            # Behind a causal mask a member's share is two pieces that mirror each other, so that all compute as much.
            parts = 2 * c if self.causal else c
            if self.sequence_length % parts:
                why = f" in 2 · {c} = {parts} pieces (two for each device, behind a causal mask)" if self.causal else ""
                return (
                    f"context parallel width {c} does not divide the {self.sequence_length} tokens of a sequence{why}"
                )
            if sharding.context_kind is ContextKind.RING and not self.fused_attention:
                return (
                    f"context parallel width {c} as a ring merges attention over parts of a sequence, which only fused "
                    "attention can: set fused_attention: true, or gather keys and values (all_gather)"
                )
            if self.model.next_sentence:
                return (
                    f"context parallel width {c}: the next-sentence classifier of {self.model.name} reads the first "
                    f"token of a sequence, which 1 of {c} devices holds"
                )
        if self.model.patches is not None and (c > 1 or sharding.sequence):
            what = f"context parallel width {c}" if c > 1 else "sequence parallelism"
            return (
                f"{what} does not share the {self.sequence_length} tokens of an image in {self.model.name}: its class "
                "token is read on every device"
            )
        if self.sharding.sequence and self.local_length % t:
            return (
                f"sequence parallelism at tensor parallel width {t} does not divide the {self.local_length} tokens of "
                "a sequence on each device"
            )
        share = t if self.sharding.sequence else 1
        if self.tokens % (self.pieces * share):
            each = f" of whole tokens on {t} devices" if share > 1 else ""
            return f"{self.pieces} overlap pieces{each} do not divide the {self.tokens} tokens of a microbatch"
        return None

    def _uncut_matrices(self) -> str | None:
        """Matrices that the tensor-parallel group cannot share."""
        model, t = self.model, self.tensor_parallel
        needed = [("heads", model.n_heads)]
        if model.n_kv_heads != model.n_heads:
            needed.append(("key and value heads", model.n_kv_heads))
        if not all(block.has_experts for block in model.blocks):
            needed.append(("feed-forward columns", model.d_ff))
        needed.append(("rows of the padded vocabulary", model.padded_vocabulary))
        if model.experts is not None and model.experts.shared_width:
            needed.append(("columns of the shared experts", model.experts.shared_width))
        merges = model.multi_token_prediction > 0 or model.patches is not None
        if model.projects_embedding or model.kind is ModelKind.ENCODER or merges:
            needed.append(("columns of d_model", model.d_model))
        needed.append(("classes", model.classes))
        if model.projects_embedding:
            needed.append(("columns of the embedding", model.embedding_width))
        misfits = [f"{count} {what}" for what, count in needed if count % t]
        if misfits:
            return f"tensor parallel width {t} does not divide the {' and the '.join(misfits)} of {model.name}"
        return experts_refusal(model, self.sharding)

    @property
    def causal(self) -> bool:
        """Whether a token sees those before it only."""
        return self.decodes or self.model.kind is ModelKind.DECODER

    @property
    def target(self) -> "Shard":
        """The share of what the decoder of an encoder–decoder sees."""
        assert self.target_length is not None
        return replace(self, sequence_length=self.target_length, target_length=None, decodes=True)

    @property
    def position_bias_bytes(self) -> int:
        """Bytes of the biases of all pairs of positions, of the heads and queries on this device."""
        if not self.model.relative_buckets:
            return 0
        heads = self.model.n_heads // self.tensor_parallel
        return heads * self.local_length * self.sequence_length * self.element_bytes

    @property
    def tensor_parallel(self) -> int:
        """Devices that share each matrix."""
        return self.sharding.tensor

    @property
    def microbatch(self) -> int:
        """Sequences of one microbatch."""
        return self.sharding.microbatch

    @property
    def pieces(self) -> int:
        """Pieces into which a product and its exchange are cut."""
        return self.sharding.overlap_pieces

    @property
    def local_length(self) -> int:
        """Tokens of one sequence on one member of the context-parallel group."""
        return self.sequence_length // self.sharding.context

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch that the matrix products of a tensor-parallel group see."""
        return self.microbatch * self.local_length

    @property
    def row_tokens(self) -> int:
        """Tokens that norms, dropout and residuals of one device see: with sequence parallelism, its share."""
        return self.microbatch * self.row_length

    @property
    def row_length(self) -> int:
        """Tokens of one sequence that norms, dropout and residuals of one device see."""
        return self.local_length // self.tensor_parallel if self.sharding.sequence else self.local_length

    @property
    def element_bytes(self) -> int:
        """Bytes of one weight, activation or gradient."""
        return self.precision.element_bytes

    @property
    def casts(self) -> bool:
        """Whether operands of linear layers are cast before."""
        return self.precision.formats.casts

    def operand_bytes(self, elements: int) -> int:
        """Bytes of so many elements as linear layers read them."""
        formats = self.precision.formats
        return (formats.products if formats.casts else formats.activations).bytes_of(elements)

    @property
    def kept_element_bytes(self) -> int:
        """Bytes that an operator keeps of each element which only a linear layer reads: a cast keeps its own copy."""
        return 0 if self.casts else self.element_bytes

    @property
    def query_width(self) -> int:
        """Columns of the query projection."""
        return self.model.n_heads * self.model.head_dim // self.tensor_parallel

    @property
    def kv_width(self) -> int:
        """Columns of the key projection, and of the value projection."""
        return self.model.n_kv_heads * self.model.head_dim // self.tensor_parallel

    @property
    def ff_width(self) -> int:
        """Columns of the feed-forward part."""
        return self.model.d_ff // self.tensor_parallel

    @property
    def shared_width(self) -> int:
        """Columns of the shared experts, 0 where there are none."""
        experts = self.model.experts
        return 0 if experts is None else experts.shared_width // self.tensor_parallel

    @property
    def d_width(self) -> int:
        """Columns of a dense layer that is cut by its ``d_model`` output columns."""
        return self.model.d_model // self.tensor_parallel

    @property
    def vocabulary_rows(self) -> int:
        """Rows of the embedding."""
        return self.model.padded_vocabulary // self.tensor_parallel

    @property
    def hidden_bytes(self) -> int:
        """Bytes of the activation between layers, of all tokens that a tensor-parallel group sees."""
        return self.tokens * self.model.d_model * self.element_bytes

    @property
    def boundary_bytes(self) -> int:
        """Bytes of the activation between layers that one device has: with sequence parallelism, its share."""
        return self.row_tokens * self.model.d_model * self.element_bytes
