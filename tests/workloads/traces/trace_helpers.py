"""Traces that tests share, and what hypothesis draws them from."""

import struct

from hypothesis import strategies as st

from archplace.workloads.traces import Attribute, AttributeKind, Metadata, Node, NodeKind, Operands

WHOLE = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = WHOLE | {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "bool": st.booleans(),
    "string": TEXT,
    "bytes": st.binary(max_size=20),
}


@st.composite
def attributes(draw):
    kind = draw(st.sampled_from([None, *AttributeKind]))
    name, documentation = draw(TEXT), draw(TEXT)
    if kind is None:
        return Attribute(name=name, kind=None, value=None, documentation=documentation)
    scalar = SCALARS[kind.value.rsplit("_", 1)[0]]
    value = tuple(draw(st.lists(scalar, max_size=4))) if kind.is_list else draw(scalar)
    return Attribute(name=name, kind=kind, value=value, documentation=documentation)


OPERANDS = st.none() | st.builds(Operands, values=TEXT, shapes=TEXT, types=TEXT)
IDS = st.integers(0, 2**64 - 1)


@st.composite
def nodes(draw, **fixed):
    fields = {
        "id": draw(IDS),
        "kind": draw(st.sampled_from([kind for kind in NodeKind if kind is not NodeKind.INVALID])),
        "name": draw(TEXT),
        "control_parents": draw(st.lists(IDS, max_size=3)),
        "data_parents": draw(st.lists(IDS, max_size=3)),
        "start_micros": draw(IDS),
        "duration_micros": draw(IDS),
        "inputs": draw(OPERANDS),
        "outputs": draw(OPERANDS),
        "attributes": draw(st.lists(attributes(), max_size=4)),
    }
    return Node.build(**fields | fixed)


METADATA = st.builds(
    Metadata, version=st.sampled_from(["", "0.0.4", "1.0.0"]), attributes=st.lists(attributes(), max_size=3).map(tuple)
)


def varint(number):
    """Encode as protobuf does, written once more so that tests need not trust the product."""
    out = b""
    while True:
        number, low = number >> 7, number & 0x7F
        if not number:
            return out + struct.pack("B", low)
        out += struct.pack("B", low | 0x80)


def chain(count, **fields):
    """A trace of ``count`` nodes, each after the one before."""
    fields = {"kind": NodeKind.COMPUTE, "name": "step", "duration_micros": 3} | fields
    return [Node.build(id=i, data_parents=[i - 1] if i else [], **fields) for i in range(count)]
