"""The dimensions of a transformer, and the closed forms that follow from them: parameters and FLOPs."""

from dataclasses import dataclass
from enum import StrEnum


class ModelKind(StrEnum):
    """What the model predicts, which decides its head."""

    DECODER = "decoder"
    """The next token: one projection onto the vocabulary."""
    ENCODER = "encoder"
    """Masked tokens: a dense layer with activation and norm, then a projection onto the vocabulary (BERT)."""


class Activation(StrEnum):
    """The non-linearity of the feed-forward part."""

    GELU = "gelu"
    RELU = "relu"
    SILU = "silu"


class Norm(StrEnum):
    """The normalisation of a row of ``d_model`` elements."""

    LAYER_NORM = "layer_norm"
    """With gain and bias."""
    RMS_NORM = "rms_norm"
    """With gain only."""


class Positions(StrEnum):
    """How a token knows its place."""

    LEARNED = "learned"
    """A table with a row per position, added to the embedding."""
    ROPE = "rope"
    """Queries and keys are rotated (Su et al. 2021, arXiv:2104.09864); no parameters."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder or encoder transformer by its dimensions.

    Raises ``ValueError`` that names every dimension that is out of range or does not fit another.
    """

    name: str
    kind: ModelKind
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    """Key and value heads: ``n_heads`` for plain attention, fewer for grouped-query attention, 1 for multi-query."""
    head_dim: int
    d_ff: int
    """Width inside the feed-forward part."""
    gated_mlp: bool = False
    """Two input projections, the activation of one multiplied by the other (SwiGLU with ``silu``)."""
    activation: Activation = Activation.GELU
    norm: Norm = Norm.LAYER_NORM
    norm_first: bool = True
    """Norms stand before attention and feed-forward part (GPT-2 and later), or after the residual sum (BERT)."""
    final_norm: bool = True
    """One more norm before the head."""
    embedding_norm: bool = False
    positions: Positions = Positions.LEARNED
    max_positions: int
    """The longest sequence; rows of the position table where positions are learned."""
    position_offset: int = 0
    """Rows of the position table that no position uses (2 in OPT)."""
    token_types: int = 0
    """Rows of the segment embedding (2 in BERT)."""
    vocabulary: int
    padded_vocabulary: int
    """Rows of the embedding as executed; whole tiles for every tensor-parallel width."""
    embedding_width: int
    """Width of the token embedding; where it differs from ``d_model``, a projection without bias stands on both ends
    of the model (OPT-350M)."""
    tied_head: bool = True
    """The head's matrix is the embedding's."""
    head_bias: bool = False
    bias: bool = True
    """Attention projection, feed-forward part and (with ``qkv_bias``) queries, keys and values have biases."""
    qkv_bias: bool = True
    fused_qkv: bool = False
    """Queries, keys and values come from one matrix product instead of three."""
    dropout: float = 0.0
    """Probability on both outputs that join the residual; 0 means that no mask is kept, here and below."""
    embedding_dropout: float = 0.0
    """Probability on what enters the first block."""
    attention_dropout: float = 0.0
    """Probability on the attention probabilities."""
    next_sentence: bool = False
    """An encoder's pooler and two-way classifier on the first token of a sequence (BERT)."""

    def __post_init__(self) -> None:
        problems = self._problems()
        if problems:
            raise ValueError("; ".join(problems))

    def _problems(self) -> list[str]:
        problems = []
        if not self.name.strip():
            problems.append("name is empty: give the model a name")
        positive = (
            "n_layers d_model n_heads n_kv_heads head_dim d_ff max_positions vocabulary padded_vocabulary "
            "embedding_width"
        )
        for field in positive.split():
            if getattr(self, field) < 1:
                problems.append(f"{field} is {getattr(self, field)}, must be at least 1")
        for field in ("position_offset", "token_types"):
            if getattr(self, field) < 0:
                problems.append(f"{field} is {getattr(self, field)}, must not be negative")
        for field in ("dropout", "embedding_dropout", "attention_dropout"):
            if not 0 <= getattr(self, field) < 1:  # NaN fails both comparisons
                problems.append(f"{field} is {getattr(self, field)}, must be at least 0 and less than 1")
        if problems:
            return problems
        if self.n_heads % self.n_kv_heads:
            problems.append(
                f"n_kv_heads {self.n_kv_heads} does not divide n_heads {self.n_heads}: every key and value head "
                "serves the same number of query heads"
            )
        if self.padded_vocabulary < self.vocabulary:
            problems.append(f"padded_vocabulary {self.padded_vocabulary} is less than vocabulary {self.vocabulary}")
        if self.positions is Positions.ROPE and self.head_dim % 2:
            problems.append(f"head_dim {self.head_dim} is odd: rotary positions turn pairs of elements")
        if self.positions is not Positions.LEARNED and self.position_offset:
            problems.append("position_offset needs positions: learned")
        if self.kind is ModelKind.DECODER and self.next_sentence:
            problems.append("next_sentence needs kind: encoder")
        return problems

    @property
    def heads_per_kv_head(self) -> int:
        """Query heads that share one key and value head."""
        return self.n_heads // self.n_kv_heads

    @property
    def projects_embedding(self) -> bool:
        """Whether the embedding has another width than the layers."""
        return self.embedding_width != self.d_model

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm of ``d_model`` elements."""
        return self.d_model * (2 if self.norm is Norm.LAYER_NORM else 1)

    @property
    def position_rows(self) -> int:
        """Rows of the learned position table, 0 where there is none."""
        return self.max_positions + self.position_offset if self.positions is Positions.LEARNED else 0

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first block, without vocabulary padding."""
        tables = self.vocabulary * self.embedding_width + (self.position_rows + self.token_types) * self.d_model
        projection = self.embedding_width * self.d_model if self.projects_embedding else 0
        return tables + projection + (self.norm_parameters if self.embedding_norm else 0)

    @property
    def block_parameters(self) -> int:
        """Parameters of one block."""
        d, attention = self.d_model, self.n_heads * self.head_dim
        qkv = attention + 2 * self.n_kv_heads * self.head_dim
        inward = (2 if self.gated_mlp else 1) * self.d_ff
        weights = d * qkv + attention * d + d * inward + self.d_ff * d
        biases = (qkv if self.qkv_bias else 0) + (d + inward + d if self.bias else 0)
        return weights + biases + 2 * self.norm_parameters

    @property
    def head_parameters(self) -> int:
        """Parameters after the last block, without vocabulary padding and without the matrix if it is tied."""
        d, width = self.d_model, self.embedding_width
        count = self.norm_parameters if self.final_norm else 0
        if self.kind is ModelKind.ENCODER:
            count += d * d + d + self.norm_parameters
        if self.next_sentence:
            count += d * d + d + 2 * d + 2
        count += d * width if self.projects_embedding else 0
        count += 0 if self.tied_head else self.vocabulary * width
        return count + (self.vocabulary if self.head_bias else 0)

    @property
    def parameters(self) -> int:
        """All trained parameters; a tied matrix counts once, and rows that only pad the vocabulary do not count."""
        return self.embedding_parameters + self.n_layers * self.block_parameters + self.head_parameters

    def flops_per_token(self, sequence_length: int) -> float:
        """FLOPs per token of forward and backward pass together, without recomputation.

        Each weight of a matrix product costs one multiplication and one addition forward and twice that backward, 6
        per token (Kaplan et al. 2020, arXiv:2001.08361, section 2.1). The products of queries with keys and of
        probabilities with values add 12 · n_layers · n_heads · head_dim · sequence_length (Chowdhery et al. 2022,
        arXiv:2204.02311, appendix B), masked positions included. For a GPT whose d_ff is 4 · d_model this is
        Narayanan et al. (SC'21, arXiv:2104.04473, equation 3) with 72 instead of 96 in front, because 96 counts the
        forward pass that recomputation repeats. The head sees every token, padding of the vocabulary included (as
        there); a next-sentence head sees one token per sequence.

        Raises ``ValueError`` for a ``sequence_length`` below 1.
        """
        if sequence_length < 1:
            raise ValueError(f"sequence_length is {sequence_length}, must be at least 1")
        d, attention = self.d_model, self.n_heads * self.head_dim
        qkv = attention + 2 * self.n_kv_heads * self.head_dim
        block = d * qkv + attention * d + (3 if self.gated_mlp else 2) * d * self.d_ff
        ends = self.padded_vocabulary * self.embedding_width
        if self.projects_embedding:
            ends += 2 * d * self.embedding_width
        if self.kind is ModelKind.ENCODER:
            ends += d * d
        per_token = 6 * (self.n_layers * block + ends) + 12 * self.n_layers * attention * sequence_length
        per_sequence = 6 * (d * d + 2 * d) if self.next_sentence else 0
        return per_token + per_sequence / sequence_length
