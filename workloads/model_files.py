"""Models from YAML: the zoo that comes with the package, and files of the user's own.

A file has one key, ``model``, with the fields of :class:`ModelFields`. What follows from other dimensions may be left
out: head width, key and value heads, padded vocabulary, embedding width.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from archplace.arch_configs._suggest import choose
from archplace.arch_configs.files import FileModel, load
from archplace.workloads.model import Activation, Model, ModelKind, Norm, Positions

_ZOO = Path(__file__).parent / "models"

VOCABULARY_MULTIPLE = 128
"""A vocabulary is padded to whole multiples of this unless the file says otherwise (Megatron's default divisor)."""

Count = Annotated[int, Field(ge=1, le=10**9)]
"""The upper limit catches a slip of the pen, and keeps FLOPs inside a float."""
CountFromZero = Annotated[int, Field(ge=0, le=10**9)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


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
    """Left out: ``d_model / n_heads``."""
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
    vocabulary: Count
    padded_vocabulary: Count | None = None
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

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.model()
        return self

    def model(self) -> Model:
        """Return the model, with what the file leaves out filled in; ``ValueError`` if the dimensions do not fit."""
        head_dim = self.head_dim
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
