"""The dimensions of a transformer, and the closed forms that follow from them: parameters and FLOPs."""

from dataclasses import dataclass
from enum import StrEnum

from archplace.workloads import _model_sizes
from archplace.workloads._model_checks import problems_of
from archplace.workloads.model_parts import Block, Experts, LatentAttention, Patches


class ModelKind(StrEnum):
    """What the model predicts, which decides its head."""

    DECODER = "decoder"
    """The next token: one projection onto the vocabulary."""
    ENCODER = "encoder"
    """Masked tokens: a dense layer with activation and norm, then a projection onto the vocabulary (BERT)."""
    ENCODER_DECODER = "encoder_decoder"
    """The next token of a target sequence: decoder blocks that also attend to what encoder blocks make of another
    sequence, then one projection onto the vocabulary (T5)."""
    CLASSIFIER = "classifier"
    """The class of an image: one projection of the class token (ViT)."""


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
    RELATIVE = "relative"
    """A learned bias per head for each bucket of distances, added to the scores; the blocks of a stack share one table
    (Raffel et al. 2020, arXiv:1910.10683, section 2.1)."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer by its dimensions.

    Raises ``ValueError`` that names every dimension that is out of range or does not fit another.
    """

    name: str
    kind: ModelKind
    n_layers: int
    """Blocks; of an encoder–decoder those of the encoder. Modules that predict further tokens come on top."""
    d_model: int
    n_heads: int
    n_kv_heads: int
    """Key and value heads: ``n_heads`` for plain attention, fewer for grouped-query attention, 1 for multi-query."""
    head_dim: int
    """Width of a head's queries and keys, and of its values unless latent attention says otherwise."""
    d_ff: int
    """Width inside the feed-forward part of a block without experts."""
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
    relative_buckets: int = 0
    """Buckets of distances where positions are relative."""
    vocabulary: int
    """Tokens to choose from; 0 for an image classifier."""
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
    decoder_layers: int = 0
    """Decoder blocks of an encoder–decoder."""
    experts: Experts | None = None
    """Routed and shared experts instead of one feed-forward part in all blocks but the first few."""
    latent_attention: LatentAttention | None = None
    """Instead of projections of queries, keys and values."""
    patches: Patches | None = None
    """An image instead of tokens."""
    classes: int = 0
    """Classes that an image classifier tells apart."""
    multi_token_prediction: int = 0
    """Modules behind the last block, each of which predicts one more token in training, with a block of its own and
    the model's embedding and head (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2)."""

    def __post_init__(self) -> None:
        problems = problems_of(self)
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The kinds of blocks in model order, each with how often it repeats in a row.

        A model of one kind has ``block``; others have ``dense_block`` and ``expert_block``, or ``encoder_block`` and
        ``decoder_block``. Modules for further tokens follow as ``prediction_block``.
        """
        causal = self.kind is ModelKind.DECODER
        experts = self.experts
        if self.kind is ModelKind.ENCODER_DECODER:
            encoder = Block(name="encoder_block", count=self.n_layers, causal=False)
            return (
                encoder,
                Block(name="decoder_block", count=self.decoder_layers, causal=True, cross_attention=True),
            )
        if experts is None or experts.dense_layers == 0:
            blocks = [Block(name="block", count=self.n_layers, causal=causal, has_experts=experts is not None)]
        else:
            sparse = self.n_layers - experts.dense_layers
            blocks = [
                Block(name="dense_block", count=experts.dense_layers, causal=causal),
                Block(name="expert_block", count=sparse, causal=causal, has_experts=True),
            ]
        if self.multi_token_prediction:
            count = self.multi_token_prediction
            last = blocks[-1].has_experts
            blocks.append(Block(name="prediction_block", count=count, causal=causal, has_experts=last, prediction=True))
        return tuple(blocks)

    @property
    def heads_per_kv_head(self) -> int:
        """Query heads that share one key and value head."""
        return self.n_heads // self.n_kv_heads

    @property
    def query_columns(self) -> int:
        """Columns of the query projection."""
        return self.n_heads * self.head_dim

    @property
    def kv_columns(self) -> int:
        """Columns of the key projection, and of the value projection."""
        return self.n_kv_heads * self.head_dim

    @property
    def has_transform(self) -> bool:
        """Whether a dense layer with activation and norm stands before the projection onto the vocabulary."""
        return self.kind is ModelKind.ENCODER

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
    def relative_table_parameters(self) -> int:
        """Parameters of one table of relative positions, 0 where there is none."""
        return self.relative_buckets * self.n_heads

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first block, without vocabulary padding.

        A table of relative positions counts here, a decoder's in :attr:`decoder_embedding_parameters`.
        """
        count = self.vocabulary * self.embedding_width + (self.position_rows + self.token_types) * self.d_model
        if self.patches is not None:  # the map of a patch has a bias, and the class token is learned
            count += (self.patches.pixels + 1) * self.d_model + self.d_model
        count += self.embedding_width * self.d_model if self.projects_embedding else 0
        return count + self.relative_table_parameters + (self.norm_parameters if self.embedding_norm else 0)

    @property
    def decoder_embedding_parameters(self) -> int:
        """Parameters between the encoder's last block and the decoder's first: the encoder's final norm, and a table
        of relative positions. Token and position tables are the encoder's. 0 for other kinds."""
        if self.kind is not ModelKind.ENCODER_DECODER:
            return 0
        return self.norm_parameters + self.relative_table_parameters

    def block_parameters(self, block: Block) -> int:
        """Parameters of one block of this kind."""
        return _model_sizes.block_parameters(self, block)

    @property
    def head_parameters(self) -> int:
        """Parameters after the last block, without vocabulary padding and without the matrix if it is tied."""
        d, width = self.d_model, self.embedding_width
        count = (1 + self.multi_token_prediction) * self.norm_parameters if self.final_norm else 0
        if self.has_transform:
            count += d * d + d + self.norm_parameters
        if self.next_sentence:
            count += d * d + d + 2 * d + 2
        if self.kind is ModelKind.CLASSIFIER:
            return count + self.classes * (d + (1 if self.head_bias else 0))
        count += d * width if self.projects_embedding else 0
        count += 0 if self.tied_head else self.vocabulary * width
        return count + (self.vocabulary if self.head_bias else 0)

    @property
    def parameters(self) -> int:
        """All trained parameters; a tied matrix counts once, and rows that only pad the vocabulary do not count."""
        blocks = sum(block.count * self.block_parameters(block) for block in self.blocks)
        return self.embedding_parameters + blocks + self.decoder_embedding_parameters + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters less those of the routed experts that a token is not sent to (all of a model without experts)."""
        if self.experts is None:
            return self.parameters
        routed = sum(block.count * _model_sizes.routed_parameters(self, block) for block in self.blocks)
        # every routed expert has as many parameters
        return self.parameters - routed // self.experts.n_experts * (self.experts.n_experts - self.experts.top_k)

    def flops_per_token(self, sequence_length: int, target_length: int | None = None) -> float:
        """FLOPs per token of forward and backward pass together, without recomputation.

        Each weight of a matrix product costs one multiplication and one addition forward and twice that backward, 6
        per token (Kaplan et al. 2020, arXiv:2001.08361, section 2.1). The products of queries with keys and of
        probabilities with values add 12 · n_layers · n_heads · head_dim · sequence_length (Chowdhery et al. 2022,
        arXiv:2204.02311, appendix B), masked positions included. For a GPT whose d_ff is 4 · d_model this is
        Narayanan et al. (SC'21, arXiv:2104.04473, equation 3) with 72 instead of 96 in front, because 96 counts the
        forward pass that recomputation repeats. The head sees every token, padding of the vocabulary included (as
        there); a next-sentence head and a class head see one token per sequence.

        Of routed experts a token's ``top_k`` count, whatever their capacity, with the shared ones and the router.
        Modules that predict further tokens count with their share of the head. Tokens of an encoder–decoder are those
        of the encoder, with what the decoder does for ``target_length`` tokens (left out: as many) shared among them;
        for other kinds ``target_length`` has no meaning. Pixels need no gradient.

        Raises ``ValueError`` for a length below 1.
        """
        for name, length in (("sequence_length", sequence_length), ("target_length", target_length)):
            if length is not None and length < 1:
                raise ValueError(f"{name} is {length}, must be at least 1")
        target = sequence_length if target_length is None else target_length
        return 2 * _model_sizes.training_macs(self, sequence_length, target) / sequence_length
