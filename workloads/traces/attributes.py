"""Attributes: named values of one of thirty kinds, which nodes and metadata of a trace carry."""

from enum import StrEnum
from typing import NamedTuple, cast

from archplace.workloads.traces import chakra_pb2

Scalar = float | int | bool | str | bytes
Value = Scalar | tuple[Scalar, ...]


class AttributeKind(StrEnum):
    """How an attribute's value is encoded; the names are the schema's."""

    DOUBLE = "double_val"
    DOUBLES = "double_list"
    FLOAT = "float_val"
    FLOATS = "float_list"
    INT32 = "int32_val"
    INT32S = "int32_list"
    INT64 = "int64_val"
    INT64S = "int64_list"
    UINT32 = "uint32_val"
    UINT32S = "uint32_list"
    UINT64 = "uint64_val"
    UINT64S = "uint64_list"
    SINT32 = "sint32_val"
    SINT32S = "sint32_list"
    SINT64 = "sint64_val"
    SINT64S = "sint64_list"
    FIXED32 = "fixed32_val"
    FIXED32S = "fixed32_list"
    FIXED64 = "fixed64_val"
    FIXED64S = "fixed64_list"
    SFIXED32 = "sfixed32_val"
    SFIXED32S = "sfixed32_list"
    SFIXED64 = "sfixed64_val"
    SFIXED64S = "sfixed64_list"
    BOOL = "bool_val"
    BOOLS = "bool_list"
    STRING = "string_val"
    STRINGS = "string_list"
    BYTES = "bytes_val"
    BYTES_LIST = "bytes_list"

    @property
    def is_list(self) -> bool:
        """Whether values are tuples."""
        return self.value.endswith("_list")


class Attribute(NamedTuple):
    """One named value. ``kind`` None is an attribute without a value, which the format allows.

    A tuple, unlike the other records: traces have millions of them, and a dataclass takes three times as long.
    """

    name: str
    kind: AttributeKind | None
    value: Value | None
    documentation: str = ""

    @classmethod
    def of(cls, name: str, value: Value, kind: AttributeKind | None = None) -> "Attribute":
        """Return an attribute in the kind that simulators expect: bool, int64, double, string or bytes, or their lists.

        Where they expect another kind (``tensor_size`` is a uint64, ``comm_tag`` an int32) it is given. An empty list
        needs one.
        """
        return cls(name, kind or usual_kind(value), value)


_USUAL: dict[type, tuple[AttributeKind, AttributeKind]] = {
    bool: (AttributeKind.BOOL, AttributeKind.BOOLS),
    int: (AttributeKind.INT64, AttributeKind.INT64S),
    float: (AttributeKind.DOUBLE, AttributeKind.DOUBLES),
    str: (AttributeKind.STRING, AttributeKind.STRINGS),
    bytes: (AttributeKind.BYTES, AttributeKind.BYTES_LIST),
}

_LISTS = frozenset(kind for kind in AttributeKind if kind.is_list)

_KINDS: dict[str, AttributeKind] = {kind.value: kind for kind in AttributeKind}


def usual_kind(value: Value) -> AttributeKind:
    """Return the kind that most readers expect for ``value``."""
    if isinstance(value, tuple):
        if not value:
            raise ValueError("an empty list has no kind of its own: give one")
        return _USUAL[type(value[0])][1]
    return _USUAL[type(value)][0]


def attribute_fields(attribute: Attribute) -> dict[str, object]:
    """Return the fields of the attribute's message.

    The member of the union stands even where its value is zero, false or empty, because readers tell by it that there
    is a value.
    """
    kind = attribute.kind
    if kind is None:
        fields: dict[str, object] = {"name": attribute.name}
    elif kind in _LISTS:
        fields = {"name": attribute.name, kind: {"values": attribute.value}}
    else:
        fields = {"name": attribute.name, kind: attribute.value}
    if attribute.documentation:
        fields["doc_string"] = attribute.documentation
    return fields


def read_attribute(message: chakra_pb2.AttributeProto) -> Attribute:
    """Return what a message says."""
    member = message.WhichOneof("value")
    if member is None:
        return Attribute(name=message.name, kind=None, value=None, documentation=message.doc_string)
    return Attribute(
        name=message.name,
        kind=_KINDS[member],
        value=attribute_value(message),
        documentation=message.doc_string,
    )


def attribute_value(message: chakra_pb2.AttributeProto) -> Value | None:
    """Return the value alone: a scalar, a tuple, or None where there is none."""
    member = message.WhichOneof("value")
    if member is None:
        return None
    value = getattr(message, member)
    return tuple(value.values) if member in _LISTS else cast(Scalar, value)
