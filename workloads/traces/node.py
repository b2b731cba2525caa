"""Nodes of a trace: what one rank does, each with what must be done before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces.attributes import Attribute, Value, attribute_fields, attribute_value, read_attribute


class NodeKind(IntEnum):
    """What a node does; the numbers are the schema's."""

    INVALID = 0
    METADATA = 1
    MEMORY_LOAD = 2
    MEMORY_STORE = 3
    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


class CollectiveType(IntEnum):
    """What ``comm_type`` says; the numbers are the schema's."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """What enters or leaves a node: three lists, each as the text of a Python list, as the schema has them."""

    values: str = ""
    shapes: str = ""
    types: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One node: a view of its message, which is never changed.

    A trace of a million nodes passes through in seconds, because only what is asked for is taken out of a message, and
    what is passed on is passed on as it came, unknown fields of newer schemas included.
    """

    message: chakra_pb2.Node

    @classmethod
    def build(
        cls,
        *,
        id: int,  # noqa: A002  # the field's name everywhere
        kind: NodeKind,
        name: str = "",
        control_parents: Sequence[int] = (),
        data_parents: Sequence[int] = (),
        start_micros: int = 0,
        duration_micros: int = 0,
        inputs: Operands | None = None,
        outputs: Operands | None = None,
        attributes: Iterable[Attribute] = (),
    ) -> "Node":
        """Return a node. Raises ValueError for numbers that the schema's fields cannot hold."""
        message = chakra_pb2.Node(
            id=id,
            name=name,
            type=int(kind),  # type: ignore[arg-type]  # the stub wants the enum's own class; any of its numbers will do
            ctrl_deps=control_parents,
            data_deps=data_parents,
            start_time_micros=start_micros,
            duration_micros=duration_micros,
            attr=[attribute_fields(attribute) for attribute in attributes],
        )
        if inputs is not None:
            _put(message.inputs, inputs)
        if outputs is not None:
            _put(message.outputs, outputs)
        return cls(message)

    @property
    def id(self) -> int:
        """Number of the node, unique within its trace."""
        return self.message.id

    @property
    def name(self) -> str:
        """What it is called."""
        return self.message.name

    @property
    def kind(self) -> NodeKind:
        """What it does."""
        return NodeKind(self.message.type)

    @property
    def control_parents(self) -> Sequence[int]:
        """Nodes that must be done before, for the order's sake."""
        return self.message.ctrl_deps

    @property
    def data_parents(self) -> Sequence[int]:
        """Nodes that must be done before, because they make what this one reads."""
        return self.message.data_deps

    @property
    def start_micros(self) -> int:
        """When it began, in microseconds; 0 where the trace does not say."""
        return self.message.start_time_micros

    @property
    def duration_micros(self) -> int:
        """How long it took, in whole microseconds; 0 also for what is shorter, or not known."""
        return self.message.duration_micros

    @property
    def inputs(self) -> Operands | None:
        """What enters; None where the trace does not say."""
        return _operands(self.message.inputs) if self.message.HasField("inputs") else None

    @property
    def outputs(self) -> Operands | None:
        """What leaves; None where the trace does not say."""
        return _operands(self.message.outputs) if self.message.HasField("outputs") else None

    def attributes(self) -> tuple[Attribute, ...]:
        """Return all attributes, in the trace's order."""
        return tuple(read_attribute(message) for message in self.message.attr)

    def values(self) -> dict[str, Value | None]:
        """Return the attributes' values by name; of two with one name the last, as simulators take it."""
        return {message.name: attribute_value(message) for message in self.message.attr}

    def value(self, name: str) -> Value | None:
        """Return one attribute's value, or None where there is none."""
        found = None
        for message in self.message.attr:
            if message.name == name:
                found = message
        return None if found is None else attribute_value(found)


def _put(message: chakra_pb2.IOInfo, operands: Operands) -> None:
    message.SetInParent()
    message.values, message.shapes, message.types = operands.values, operands.shapes, operands.types


def _operands(message: chakra_pb2.IOInfo) -> Operands:
    return Operands(values=message.values, shapes=message.shapes, types=message.types)
