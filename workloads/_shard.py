"""One device's share of a model: the sizes that its operators have."""

from dataclasses import dataclass

from archplace.workloads.model import Model, ModelKind
from archplace.workloads.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A model cut ``tensor_parallel`` ways as Megatron does, at one microbatch of ``microbatch`` sequences.

    The widths below are per device. ``refusal`` says when they are not whole; then nothing else may be read.
    """

    model: Model
    tensor_parallel: int
    microbatch: int
    sequence_length: int
    precision: Precision

    def refusal(self) -> str | None:
        """Why the model cannot be cut this way, with the numbers, or None."""
        model, t = self.model, self.tensor_parallel
        if t < 1:
            return f"tensor parallel width {t}: must be at least 1"
        if self.microbatch < 1:
            return f"microbatch {self.microbatch}: must be at least 1 sequence"
        needed = [("heads", model.n_heads)]
        if model.n_kv_heads != model.n_heads:
            needed.append(("key and value heads", model.n_kv_heads))
        needed += [("feed-forward columns", model.d_ff), ("rows of the padded vocabulary", model.padded_vocabulary)]
        if model.projects_embedding or model.kind is ModelKind.ENCODER:
            needed.append(("columns of d_model", model.d_model))
        if model.projects_embedding:
            needed.append(("columns of the embedding", model.embedding_width))
        misfits = [f"{count} {what}" for what, count in needed if count % t]
        if misfits:
            return f"tensor parallel width {t} does not divide the {' and the '.join(misfits)} of {model.name}"
        return None

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch."""
        return self.microbatch * self.sequence_length

    @property
    def element_bytes(self) -> int:
        """Bytes of one weight, activation or gradient."""
        return self.precision.element_bytes

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
    def d_width(self) -> int:
        """Columns of a dense layer that is cut by its ``d_model`` output columns."""
        return self.model.d_model // self.tensor_parallel

    @property
    def vocabulary_rows(self) -> int:
        """Rows of the embedding."""
        return self.model.padded_vocabulary // self.tensor_parallel

    @property
    def hidden_bytes(self) -> int:
        """Bytes of the activation between layers, whole on each device."""
        return self.tokens * self.model.d_model * self.element_bytes

    @property
    def attention_batch(self) -> int:
        """Independent attention products: one per sequence and key head."""
        return self.microbatch * self.model.n_kv_heads // self.tensor_parallel

    @property
    def attention_rows(self) -> int:
        """Query rows of one attention product: those of every head that shares the key head."""
        return self.sequence_length * self.model.heads_per_kv_head
