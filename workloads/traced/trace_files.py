"""Traced workloads from files: a trace by itself, or a workload file that names one."""

import hashlib
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.arch_configs.files import Document, FileModel, parse_document
from archplace.workloads.model_files import Count, Text
from archplace.workloads.precision import Precision
from archplace.workloads.traced.chakra_calls import host_trace_of
from archplace.workloads.traced.lift import Lifted, lift
from archplace.workloads.traced.scaling import learn
from archplace.workloads.traced.tensor_graph import TensorRole
from archplace.workloads.traced.traced_workload import TracedWorkload
from archplace.workloads.traces import TraceFormat, trace_format
from archplace.workloads.traces.host_trace import HostTrace
from archplace.workloads.training_step import OptimizerKind


class TracedFields(FileModel):
    """A workload of a traced model as a file gives it; meanings are those of :class:`TracedWorkload`."""

    name: Text | None = None
    """Left out: the trace's."""
    source: Text | None = None
    """Where the trace comes from."""
    trace: Text
    """A trace of one training step on one device, PyTorch's or a Chakra trace made of it; relative to the workload's
    file."""
    other_trace: Text | None = None
    """A second one of the same model with another batch or other sequences: what follows these is then known better."""
    traced_batch: Count | None = None
    """Sequences in the traced step. Left out: read from the shape of what enters the model."""
    traced_sequence_length: Count | None = None
    """Tokens per sequence in the traced step; likewise."""
    sequence_length: Count | None = None
    """Left out: as traced."""
    global_batch: Count
    precision: Precision | None = None
    """Left out: fp32 or bf16, by the width of the traced parameters."""
    optimizer: OptimizerKind | None = None
    """Left out: the traced one."""


class _TracedFile(FileModel):
    workload: TracedFields


def load_trace(path: Path | str) -> TracedWorkload:
    """Return the job that a trace shows: its batch, sequences, optimizer and number formats.

    Raises :class:`~archplace.arch_configs.errors.ConfigError` for a file that is no trace of a training step, and where
    it does not show all of these.
    """
    lifted = _lifted(Path(path), None)
    try:
        return _workload(TracedFields(trace=str(path), global_batch=lifted.model.batch), lifted, Path(path))
    except ValueError as error:
        hint = f"{error}; describe it in a workload file with the key 'trace'"
        raise ConfigError([Problem(place=str(path), key="", message=hint)]) from None


def build_traced(document: Document, folder: Path) -> TracedWorkload:
    """Return the workload that ``document``, a workload file, describes; its trace is relative to ``folder``.

    Raises :class:`~archplace.arch_configs.errors.ConfigError` for every problem of the file, for a trace that cannot be
    used, and for values that do not fit it.
    """
    fields = parse_document(document, _TracedFile).workload
    path = folder / fields.trace
    lifted = _lifted(path, None if fields.other_trace is None else folder / fields.other_trace, fields)
    try:
        return _workload(fields, lifted, path)
    except ValueError as error:
        named = (key for key in TracedFields.model_fields if str(error).startswith(f"{key} "))
        raise ConfigError([document.problem(("workload", next(named, "trace")), str(error))]) from None


def _lifted(path: Path, other: Path | None, fields: TracedFields | None = None) -> Lifted:
    batch, length = (None, None) if fields is None else (fields.traced_batch, fields.traced_sequence_length)
    first = lift(_calls(path), batch=batch, sequence_length=length)
    return first if other is None else learn(first, lift(_calls(other)))


def _calls(path: Path) -> HostTrace | Path:
    """What is lifted: PyTorch's own trace, or what a Chakra trace has of it."""
    chakra = (TraceFormat.CHAKRA, TraceFormat.CHAKRA_JSON)
    return host_trace_of(path) if trace_format(path) in chakra else path


def _workload(fields: TracedFields, lifted: Lifted, path: Path) -> TracedWorkload:
    model = lifted.model
    length = fields.sequence_length or model.sequence_length or 1
    content = hashlib.sha256(path.read_bytes())
    content.update(repr(model).encode())
    return TracedWorkload(
        name=fields.name or model.name,
        model=model,
        content_sha256=content.hexdigest(),
        sequence_length=length,
        global_batch=fields.global_batch,
        precision=fields.precision or _precision(lifted),
        optimizer=fields.optimizer or _optimizer(lifted),
    )


def _precision(lifted: Lifted) -> Precision:
    """The recipe of the traced step: that of most of its parameters."""
    sizes: dict[float, int] = {}
    for layer, count in lifted.model.layers:
        for tensor in layer.tensors:
            if tensor.role is TensorRole.PARAMETER:
                sizes[tensor.element_bytes] = sizes.get(tensor.element_bytes, 0) + count * tensor.elements
    width = max(sizes, key=lambda size: sizes[size], default=0.0)
    known = {4.0: Precision.FP32, 2.0: Precision.BF16}
    if width not in known:
        raise ValueError(f"precision is not known: most parameters of the trace have {width:g} bytes; give a precision")
    return known[width]


def _optimizer(lifted: Lifted) -> OptimizerKind:
    """The rule whose name the traced optimizer's class has."""
    name = lifted.optimizer.lower()
    for kind in OptimizerKind:
        if str(kind) in name:
            return kind
    found = f"the trace has a step of {lifted.optimizer}" if name else "the trace has no step of an optimizer"
    raise ValueError(f"optimizer is not known: {found}; give one of {', '.join(OptimizerKind)}")
