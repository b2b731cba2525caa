"""Models from YAML: the zoo that comes with the package, and files of the user's own.

A file has one key, ``model``, with the fields of :class:`ModelFields`. What follows from other dimensions may be left
out: head width, key and value heads, padded vocabulary, embedding width, the width of an expert.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from archplace.arch_configs._suggest import choose
from archplace.arch_configs.files import FileModel, load
from archplace.workloads.model import Activation, Model, ModelKind, Norm, Positions
from archplace.workloads.model_parts import Experts, LatentAttention, Patches

_ZOO = Path(__file__).parent / "models"

VOCABULARY_MULTIPLE = 128
"""A vocabulary is padded to whole multiples of this unless the file says otherwise (Megatron's default divisor)."""

Count = Annotated[int, Field(ge=1, le=10**9)]
"""The upper limit catches a slip of the pen, and keeps FLOPs inside a float."""
CountFromZero = Annotated[int, Field(ge=0, le=10**9)]
Factor = Annotated[float, Field(gt=0, le=1000)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ExpertFields(FileModel):
    """Routed and shared experts as a file gives them; the meanings are those of :class:`Experts`."""

    n_experts: Count
    top_k: Count
    d_ff: Count | None = None
    """Left out: the model's."""
    shared_experts: CountFromZero = 0
    shared_d_ff: Count | None = None
    """Left out: as ``d_ff``."""
    dense_layers: CountFromZero = 0
    capacity_factor: Factor | None = None

    def experts(self, d_ff: int) -> Experts:
        """Return the experts of a model whose dense feed-forward part has ``d_ff`` columns."""
        width = d_ff if self.d_ff is None else self.d_ff
        return Experts(
            n_experts=self.n_experts,
            top_k=self.top_k,
            d_ff=width,
            shared_experts=self.shared_experts,
            shared_d_ff=width if self.shared_d_ff is None else self.shared_d_ff,
            dense_layers=self.dense_layers,
            capacity_factor=self.capacity_factor,
        )


class LatentAttentionFields(FileModel):
    """Latent attention as a file gives it; the meanings are those of :class:`LatentAttention`."""

    q_lora_rank: CountFromZero = 0
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count

    def latent_attention(self) -> LatentAttention:
        """Return the widths."""
        return LatentAttention(
            q_lora_rank=self.q_lora_rank,
            kv_lora_rank=self.kv_lora_rank,
            qk_nope_head_dim=self.qk_nope_head_dim,
            qk_rope_head_dim=self.qk_rope_head_dim,
            v_head_dim=self.v_head_dim,
        )


class PatchFields(FileModel):
    """Patches as a file gives them; the meanings are those of :class:`Patches`."""

    image_size: Count
    patch_size: Count
    channels: Count = 3

    def patches(self) -> Patches:
        """Return the sizes."""
        return Patches(image_size=self.image_size, patch_size=self.patch_size, channels=self.channels)


class ModelFields(FileModel):
    """A model's dimensions as a file gives them; the meanings are those of :class:`Model`."""

    name: Text
    source: Text | None = None
    """Where the dimensions are published."""
    kind: ModelKind
    n_layers: Count
    d_model: Count
    n_heads: Count
    n_kv_heads: Count | None = None
    """Left out: as many as ``n_heads``."""
    head_dim: Count | None = None
    """Left out: ``d_model / n_heads``, or what latent attention has."""
    d_ff: Count
    gated_mlp: bool = False
    activation: Activation
    norm: Norm
    norm_first: bool = True
    final_norm: bool = True
    embedding_norm: bool = False
    positions: Positions
    max_positions: Count
    position_offset: CountFromZero = 0
    token_types: CountFromZero = 0
    relative_buckets: CountFromZero = 0
    vocabulary: CountFromZero = 0
    """Left out: none, as an image classifier has."""
    padded_vocabulary: CountFromZero | None = None
    """Left out: the next multiple of 128."""
    embedding_width: Count | None = None
    """Left out: ``d_model``."""
    tied_head: bool
    head_bias: bool = False
    bias: bool
    qkv_bias: bool | None = None
    """Left out: as ``bias``."""
    fused_qkv: bool = False
    dropout: Probability = 0.0
    embedding_dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    next_sentence: bool = False
    decoder_layers: CountFromZero = 0
    experts: ExpertFields | None = None
    latent_attention: LatentAttentionFields | None = None
    patches: PatchFields | None = None
    classes: CountFromZero = 0
    multi_token_prediction: CountFromZero = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.model()
        return self

    def model(self) -> Model:
        """Return the model, with what the file leaves out filled in; ``ValueError`` if the dimensions do not fit."""
        latent = None if self.latent_attention is None else self.latent_attention.latent_attention()
        head_dim = self.head_dim
        if head_dim is None and latent is not None:
            head_dim = latent.qk_head_dim
        if head_dim is None:
            head_dim, rest = divmod(self.d_model, self.n_heads)
            if rest:
                raise ValueError(
                    f"n_heads {self.n_heads} does not divide d_model {self.d_model}: give head_dim, or change one"
                )
        padded = -(-self.vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        return Model(
            name=self.name,
            kind=self.kind,
            n_layers=self.n_layers,
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_kv_heads=self.n_heads if self.n_kv_heads is None else self.n_kv_heads,
            head_dim=head_dim,
            d_ff=self.d_ff,
            gated_mlp=self.gated_mlp,
            activation=self.activation,
            norm=self.norm,
            norm_first=self.norm_first,
            final_norm=self.final_norm,
            embedding_norm=self.embedding_norm,
            positions=self.positions,
            max_positions=self.max_positions,
            position_offset=self.position_offset,
            token_types=self.token_types,
            relative_buckets=self.relative_buckets,
            vocabulary=self.vocabulary,
            padded_vocabulary=padded if self.padded_vocabulary is None else self.padded_vocabulary,
            embedding_width=self.d_model if self.embedding_width is None else self.embedding_width,
            tied_head=self.tied_head,
            head_bias=self.head_bias,
            bias=self.bias,
            qkv_bias=self.bias if self.qkv_bias is None else self.qkv_bias,
            fused_qkv=self.fused_qkv,
            dropout=self.dropout,
            embedding_dropout=self.embedding_dropout,
            attention_dropout=self.attention_dropout,
            next_sentence=self.next_sentence,
            decoder_layers=self.decoder_layers,
            experts=None if self.experts is None else self.experts.experts(self.d_ff),
            latent_attention=latent,
            patches=None if self.patches is None else self.patches.patches(),
            classes=self.classes,
            multi_token_prediction=self.multi_token_prediction,
        )


class ModelFile(FileModel):
    """A file that describes one model."""

    model: ModelFields


def model_names() -> tuple[str, ...]:
    """Return the names of the models that come with the package, sorted."""
    return names_in(_ZOO)


def load_model(name_or_path: str | Path) -> Model:
    """Return a model of the zoo by its name, or the one that a YAML file describes.

    Text that ends in ``.yaml`` or ``.yml`` or holds a ``/`` is a path. Raises
    :class:`~archplace.arch_configs.errors.ConfigError` for an unknown name, with the nearest one, and for every problem
    of a file.
    """
    if is_path(name_or_path):
        return load(name_or_path, ModelFile).model.model()
    return load(_ZOO / f"{choose(str(name_or_path), model_names(), what='model')}.yaml", ModelFile).model.model()


def names_in(folder: Path) -> tuple[str, ...]:
    """Return the names of the YAML files in ``folder``, without their suffix, sorted."""
    return tuple(sorted(path.stem for path in folder.iterdir() if path.suffix == ".yaml"))


def is_path(name_or_path: str | Path) -> bool:
    """Whether a file is meant, and not a name."""
    if isinstance(name_or_path, Path):
        return True
    return "/" in name_or_path or "\\" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
