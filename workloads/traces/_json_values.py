"""Values of attributes in JSON, as protobuf's JSON mapping has them."""

import base64
import binascii
import json
import json.encoder
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces.attributes import AttributeKind, Scalar

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""Return text as JSON has it."""

MOST_DIGITS = 20
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _camel(kind: AttributeKind) -> str:
    base, form = kind.value.split("_")
    return f"{base}{form.title()}"


_KINDS = {name: kind.value for kind in AttributeKind for name in (_camel(kind), kind.value)}
_BASES = {kind.value: (kind.value.split("_")[0], kind.is_list) for kind in AttributeKind}


def attribute_text(message: chakra_pb2.AttributeProto) -> str:
    """Return an attribute as JSON has it."""
    documentation = message.doc_string
    said = f',"docString":{quoted(documentation)}' if documentation else ""
    member = message.WhichOneof("value")
    if member is None:
        return f'{{"name":{quoted(message.name)}{said}}}'
    name, is_list, write = _FORMS[member]
    value = getattr(message, member)
    text = f'{{"values":[{",".join(map(write, value.values))}]}}' if is_list else write(value)
    return f'{{"name":{quoted(message.name)}{said},"{name}":{text}}}'


def add_attributes(
    attributes: "RepeatedCompositeFieldContainer[chakra_pb2.AttributeProto]", documents: Iterable[object]
) -> None:
    """Add the attributes that JSON describes to a message's. Raises TypeError or ValueError.

    Nearly all have a name and a plain value, and traces have millions: those take the shortest way.
    """
    for document in documents:
        if type(document) is dict and len(document) == 2:
            name, key = document
            if key == "name":
                name, key = key, name
            title, value = document[name], document[key]
            field, plain = _PLAIN_VALUES.get(key, _NO_VALUE)
            if plain is int and type(value) is str and len(value) <= MOST_DIGITS and value.isdecimal():
                value = int(value)
            if type(value) is plain and name == "name" and type(title) is str:
                added = attributes.add()
                added.name = title
                setattr(added, field, value)
                continue
        attributes.add(**attribute_fields_of(document))


def attribute_fields_of(document: object) -> dict[str, object]:
    """Return the fields of the message of an attribute that JSON describes. Raises TypeError or ValueError."""
    if not isinstance(document, dict):
        raise TypeError(f"an attribute is an object, found {document!r:.60}")
    fields: dict[str, object] = {}
    for name, found in document.items():
        field, plain = _PLAIN.get(name, ("", None))
        if type(found) is plain:
            fields[field] = found
        elif plain is int and type(found) is str and len(found) <= MOST_DIGITS and found.isdecimal():
            fields[field] = int(found)
        elif plain is str:
            fields[field] = from_json("string", found)
        else:
            try:
                kind, value = _read_value(name, found)
            except (TypeError, ValueError) as error:
                raise ValueError(f"attribute {document.get('name')!r:.60}: {error}") from None
            fields[kind] = value
    # Name, documentation and one value, each in one of its spellings.
    if len(fields) < len(document) or len(fields) - ("name" in fields) - ("doc_string" in fields) > 1:
        raise ValueError(f"attribute {document.get('name')!r:.60} has more than one value, or one twice")
    return fields


def _read_value(name: str, found: object) -> tuple[str, object]:
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"unknown member {name!r:.60}; values are int64Val, boolVal, stringList and their like")
    base, is_list = _BASES[kind]
    if not is_list:
        return kind, from_json(base, found)
    if not isinstance(found, dict) or not set(found) <= {"values"} or not isinstance(found.get("values", []), list):
        raise TypeError(f'{name} is {{"values": [...]}}, found {found!r:.60}')
    return kind, {"values": [from_json(base, item) for item in found.get("values", [])]}


def from_json(base: str, found: object) -> Scalar:
    """Return the value of a kind, given without ``_val``. Whether a whole number fits is the message's business."""
    given = type(found)
    if base == "string" or base == "bool":
        if isinstance(found, str if base == "string" else bool):
            return found
    elif base == "double" or base == "float":
        if isinstance(found, str) and found in _NOT_FINITE:
            return _NOT_FINITE[found]
        if isinstance(found, int | float) and given is not bool:
            return float(found)
    elif base == "bytes":
        if isinstance(found, str):
            return _bytes(found)
    elif isinstance(found, str):
        if len(found) <= MOST_DIGITS and found.removeprefix("-").isdecimal():
            return int(found)
    elif isinstance(found, int) and given is not bool:
        return found
    raise TypeError(f"expected a {base}, found {found!r:.60}")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base 64: {error}") from None


def _real(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _packed(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _long(value: int) -> str:
    return f'"{value}"'


def _truth(value: bool) -> str:
    return "true" if value else "false"


_WRITE: dict[str, Callable[..., str]] = {
    **dict.fromkeys(("double", "float"), _real),
    **dict.fromkeys(("int64", "uint64", "sint64", "fixed64", "sfixed64"), _long),
    **dict.fromkeys(("int32", "uint32", "sint32", "fixed32", "sfixed32"), str),
    "bool": _truth,
    "bytes": _packed,
    "string": quoted,
}

_PLAIN: dict[str, tuple[str, type]] = {
    "name": ("name", str),
    "docString": ("doc_string", str),
    "doc_string": ("doc_string", str),
    "boolVal": ("bool_val", bool),
    "doubleVal": ("double_val", float),
    "int32Val": ("int32_val", int),
    "int64Val": ("int64_val", int),
    "uint64Val": ("uint64_val", int),
    "stringVal": ("string_val", str),
}
"""The most common members, with the field and the type of its value; whole numbers may also stand as text."""

_PLAIN_VALUES = {name: form for name, form in _PLAIN.items() if form[0].endswith("_val")}
_NO_VALUE: tuple[str, type | None] = ("", None)
_FORMS = {kind.value: (_camel(kind), kind.is_list, _WRITE[_BASES[kind.value][0]]) for kind in AttributeKind}
"""Of each member of the union: its name in JSON, whether it is a list, and what writes a value."""
