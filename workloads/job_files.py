"""Training jobs by name: presets, workload files with a model or a trace, and traces by themselves."""

from pathlib import Path
from typing import TYPE_CHECKING

from archplace.arch_configs._suggest import close_match
from archplace.arch_configs.files import Document, read_document
from archplace.workloads.model_files import is_path
from archplace.workloads.workload import Workload
from archplace.workloads.workload_files import WorkloadFields, load_workload

if TYPE_CHECKING:
    from archplace.workloads.traced.traced_workload import TracedWorkload

TRACE_SUFFIXES = (".json", ".json.gz", ".et", ".et.gz")
"""How names of traces end."""
_TRACED_KEYS = ("trace", "other_trace", "traced_batch", "traced_sequence_length")


def is_trace(name: str | Path) -> bool:
    """Whether a name is that of a trace: it ends as traces do."""
    return str(name).endswith(TRACE_SUFFIXES)


def load_job(name_or_path: str | Path) -> "Workload | TracedWorkload":
    """Return the preset of a name, the job that a workload file describes, or the one that a trace shows.

    Text that ends in ``.json``, ``.json.gz``, ``.et`` or ``.et.gz`` is the path of a trace; in a workload file the key
    ``trace`` stands in place of ``model``. All else is as :func:`load_workload` takes it. Raises
    :class:`~archplace.arch_configs.errors.ConfigError` for every problem of a name, a file or a trace.
    """
    document = read_document(name_or_path) if is_path(name_or_path) and not is_trace(name_or_path) else None
    if not is_trace(name_or_path) and (document is None or not _names_trace(document)):
        return load_workload(name_or_path)
    # what reads traces is imported where there is one
    from archplace.workloads.traced.trace_files import build_traced, load_trace

    return load_trace(name_or_path) if document is None else build_traced(document, Path(name_or_path).parent)


def _names_trace(document: Document) -> bool:
    """Whether a file has the keys of a traced workload; where it has no model, one that is misspelt will do."""
    workload = document.data.get("workload") if isinstance(document.data, dict) else None
    if not isinstance(workload, dict) or "trace" in workload or "model" in workload:
        return isinstance(workload, dict) and "trace" in workload
    known = (*WorkloadFields.model_fields, *_TRACED_KEYS)
    return any(close_match(str(key), known) in _TRACED_KEYS for key in workload)
