"""Execution traces as workloads: Chakra traces in and out, PyTorch's traces in."""

from archplace.workloads.traces.attributes import Attribute, AttributeKind
from archplace.workloads.traces.chakra_files import ChakraReader, ChakraWriter
from archplace.workloads.traces.node import CollectiveType, Node, NodeKind, Operands
from archplace.workloads.traces.trace import Metadata, Trace

__all__ = [
    "Attribute",
    "AttributeKind",
    "ChakraReader",
    "ChakraWriter",
    "CollectiveType",
    "Metadata",
    "Node",
    "NodeKind",
    "Operands",
    "Trace",
]
