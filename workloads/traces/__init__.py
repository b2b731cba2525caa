"""Execution traces as workloads: Chakra traces in and out, PyTorch's traces in."""

from archplace.workloads.traces.arrays import TraceArrays
from archplace.workloads.traces.attributes import Attribute, AttributeKind
from archplace.workloads.traces.audit import Audit, Auditor, Reader
from archplace.workloads.traces.chakra_files import ChakraReader, ChakraWriter
from archplace.workloads.traces.chakra_json import ChakraJsonReader, ChakraJsonWriter
from archplace.workloads.traces.files import (
    MemoryReader,
    TraceFormat,
    Writer,
    audit_file,
    load_trace,
    open_reader,
    open_writer,
    save_trace,
    trace_format,
)
from archplace.workloads.traces.meaning import Meaning, Role, meaning_of
from archplace.workloads.traces.node import CollectiveType, Node, NodeKind, Operands
from archplace.workloads.traces.pytorch_import import Imported, import_pytorch
from archplace.workloads.traces.statistics import Exchange, Statistics, statistics_of
from archplace.workloads.traces.trace import Metadata, Trace

__all__ = [
    "Attribute",
    "AttributeKind",
    "Audit",
    "Auditor",
    "ChakraJsonReader",
    "ChakraJsonWriter",
    "ChakraReader",
    "ChakraWriter",
    "CollectiveType",
    "Exchange",
    "Imported",
    "Meaning",
    "MemoryReader",
    "Metadata",
    "Node",
    "NodeKind",
    "Operands",
    "Reader",
    "Role",
    "Statistics",
    "Trace",
    "TraceArrays",
    "TraceFormat",
    "Writer",
    "audit_file",
    "import_pytorch",
    "load_trace",
    "meaning_of",
    "open_reader",
    "open_writer",
    "save_trace",
    "statistics_of",
    "trace_format",
]
