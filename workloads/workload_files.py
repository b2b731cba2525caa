"""Workloads from YAML: presets that come with the package, and files of the user's own.

A file has one key, ``workload``, with the fields of :class:`WorkloadFields`. Its ``model`` is the name of a model of
the zoo, a path to a model file (relative to the workload's file), or a model's dimensions in place.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Discriminator, Tag

from archplace.arch_configs._suggest import choose, unknown_name
from archplace.arch_configs.errors import ConfigError
from archplace.arch_configs.files import Document, FileModel, KeyPath, parse_document, read_document
from archplace.workloads.model import Model
from archplace.workloads.model_files import (
    Count,
    ModelFields,
    Text,
    is_path,
    load_model,
    model_names,
    names_in,
)
from archplace.workloads.precision import Precision
from archplace.workloads.training_step import OptimizerKind
from archplace.workloads.workload import Workload

_PRESETS = Path(__file__).parent / "presets"


def _shape_of_model(value: object) -> str:
    # Decided before validation, so that a mistake inside a mapping is not also reported as "text is needed".
    return "dimensions" if isinstance(value, dict | ModelFields) else "name"


class WorkloadFields(FileModel):
    """A workload as a file gives it; the meanings are those of :class:`Workload`."""

    name: Text | None = None
    """Left out: the model's."""
    source: Text | None = None
    """Where these settings are published."""
    model: Annotated[
        Annotated[Text, Tag("name")] | Annotated[ModelFields, Tag("dimensions")], Discriminator(_shape_of_model)
    ]
    sequence_length: Count
    global_batch: Count
    precision: Precision
    optimizer: OptimizerKind
    fused_attention: bool = False
    target_length: Count | None = None


class WorkloadFile(FileModel):
    """A file that describes one workload."""

    workload: WorkloadFields


def workload_names() -> tuple[str, ...]:
    """Return the names of the workloads that come with the package, sorted."""
    return names_in(_PRESETS)


def load_workload(name_or_path: str | Path) -> Workload:
    """Return a preset by its name, or the workload that a YAML file describes.

    Text that ends in ``.yaml`` or ``.yml`` or holds a ``/`` is a path. Raises
    :class:`~archplace.arch_configs.errors.ConfigError` for an unknown name, with the nearest one, and for every problem
    of a file.
    """
    if is_path(name_or_path):
        path = Path(name_or_path)
    else:
        path = _PRESETS / f"{choose(str(name_or_path), workload_names(), what='workload')}.yaml"
    document = read_document(path)
    fields = parse_document(document, WorkloadFile).workload
    return build_workload(fields, document=document, key_path=("workload",), folder=path.parent)


def build_workload(fields: WorkloadFields, *, document: Document, key_path: KeyPath, folder: Path) -> Workload:
    """Return the workload that stands at ``key_path`` of ``document``; model files are relative to ``folder``.

    Raises :class:`~archplace.arch_configs.errors.ConfigError` for an unknown model, for every problem of a model file,
    and for a sequence that the model cannot take.
    """
    model = _resolve_model(fields.model, document=document, key_path=(*key_path, "model"), folder=folder)
    try:
        return Workload(
            name=fields.name or model.name,
            model=model,
            sequence_length=fields.sequence_length,
            global_batch=fields.global_batch,
            precision=fields.precision,
            optimizer=fields.optimizer,
            fused_attention=fields.fused_attention,
            target_length=fields.target_length,
        )
    except ValueError as error:
        # The schema has checked each value by itself; what is left are the sequences against the model.
        key = "target_length" if str(error).startswith("target_length") else "sequence_length"
        raise ConfigError([document.problem((*key_path, key), str(error))]) from None


def _resolve_model(model: str | ModelFields, *, document: Document, key_path: KeyPath, folder: Path) -> Model:
    if isinstance(model, ModelFields):
        return model.model()
    if is_path(model):
        return load_model(folder / model)
    if model not in model_names():
        message = f"{unknown_name(model, model_names(), what='model')}; or a path that ends in .yaml, or dimensions"
        raise ConfigError([document.problem(key_path, message)])
    return load_model(model)
