"""Changed copies of nodes: what is not changed stays as it came, fields of newer schemas included."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import isfinite

from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces.attributes import Attribute, AttributeKind, Value, attribute_fields, usual_kind
from archplace.workloads.traces.node import Node

_MOST = {"duration_micros": 2**64 - 1, "duration_ns": 2**63 - 1}
_BEYOND_FLOATS = 10**300
_NO_NUMBERS = tuple(kind for kind in AttributeKind if kind.value.startswith(("bytes", "string", "bool")))


def copied(node: Node) -> chakra_pb2.Node:
    """Return a message that may be changed."""
    message = chakra_pb2.Node()
    message.CopyFrom(node.message)
    return message


def put(message: chakra_pb2.Node, name: str, value: Value, kind: AttributeKind | None = None) -> None:
    """Set an attribute: in the kind that it has (the last of that name), or as a new one of ``kind``.

    A number is put into a kind for text as text, because simulators name process groups by numbers.

    Raises ValueError for a value that the attribute's kind cannot hold.
    """
    found = None
    for attribute in message.attr:
        if attribute.name == name:
            found = attribute
    if found is None:
        found, kind = message.attr.add(), kind or usual_kind(value)
    member = found.WhichOneof("value")
    has = kind or (AttributeKind(member) if member else usual_kind(value))
    if has is AttributeKind.STRING and isinstance(value, int):
        value = str(value)
    elif not _suits(has, value):
        has = usual_kind(value)
    fields = attribute_fields(Attribute.of(name, value, has))
    if found.doc_string:
        fields["doc_string"] = found.doc_string
    try:
        found.CopyFrom(chakra_pb2.AttributeProto(**fields))  # type: ignore[arg-type]  # as it reads
    except (ValueError, OverflowError):
        raise ValueError(f"node {message.id}: {name} cannot be {value!r:.60} as {has}: out of its range") from None


def _suits(kind: AttributeKind, value: Value) -> bool:
    """Whether a kind takes text, a number or a list of numbers."""
    if isinstance(value, str):
        return kind is AttributeKind.STRING
    return kind not in _NO_NUMBERS and kind.is_list == isinstance(value, tuple)


def drop(message: chakra_pb2.Node, *names: str) -> None:
    """Take attributes away."""
    for place in reversed(range(len(message.attr))):
        if message.attr[place].name in names:
            del message.attr[place]


def stretch(message: chakra_pb2.Node, factor: Fraction) -> None:
    """Multiply a node's duration, and take away when it began: that holds no more once durations change.

    Raises ValueError for durations beyond what the fields hold.
    """
    _change(message, "duration_micros", lambda before: before * factor)
    for attribute in message.attr:
        if attribute.name == "duration_ns":
            member = attribute.WhichOneof("value")
            before = getattr(attribute, member) if member else None
            if isinstance(before, int | float) and isfinite(before):
                _put_duration(message, Fraction(before) * factor)
                break
    forget_start(message)


def forget_start(message: chakra_pb2.Node) -> None:
    """Take away when a node began."""
    message.start_time_micros = 0
    drop(message, "start_ns")


def _put_duration(message: chakra_pb2.Node, value: Fraction) -> None:
    if value > _MOST["duration_ns"]:
        raise ValueError(f"node {message.id} would last {_brief(value)} ns; at most {_MOST['duration_ns']:.3g} fit")
    put(message, "duration_ns", round(value))


def _change(message: chakra_pb2.Node, field: str, law: Callable[[int], Fraction]) -> None:
    value = law(getattr(message, field))
    if value > _MOST[field]:
        raise ValueError(f"node {message.id}: {field} would be {_brief(value)}; at most {_MOST[field]:.3g} fit")
    setattr(message, field, round(value))


def _brief(value: Fraction) -> str:
    return f"{float(value):.3g}" if value < _BEYOND_FLOATS else f"more than {float(_BEYOND_FLOATS):.0g}"


def number(values: Mapping[str, Value | None], name: str) -> int | None:
    """Return a whole number, also one that is written as text; None for none."""
    value = values.get(name)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) else None
