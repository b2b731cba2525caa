"""Chakra files: what is written is read, and every byte is what the format says."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_helpers import METADATA, chain, nodes, varint

from archplace.arch_configs.errors import ConfigError
from archplace.workloads import traces
from archplace.workloads.traces import (
    Attribute,
    AttributeKind,
    ChakraReader,
    ChakraWriter,
    Metadata,
    Node,
    NodeKind,
    chakra_pb2,
)


def write(path, metadata, items):
    with ChakraWriter(path, metadata) as writer:
        assert writer.write(items) == len(items)
    return path


def read(path):
    with ChakraReader(path) as reader:
        return reader.metadata, list(reader)


@given(METADATA, st.lists(nodes(), max_size=5), st.sampled_from([".et", ".et.gz"]))
def test_what_is_written_is_read(tmp_path_factory, metadata, items, suffix):
    path = write(tmp_path_factory.mktemp("trace") / f"a{suffix}", metadata, items)
    again, found = read(path)
    assert again == metadata
    assert [node.message for node in found] == [node.message for node in items]
    assert [node.attributes() for node in found] == [node.attributes() for node in items]


def test_every_kind_of_value_returns():
    assert len(AttributeKind) == 30
    for kind in AttributeKind:
        zero = {"bool": False, "string": "", "bytes": b"", "double": 0.0, "float": 0.0}.get(kind.split("_")[0], 0)
        attribute = Attribute(name="x", kind=kind, value=(zero, zero) if kind.is_list else zero)
        node = Node.build(id=1, kind=NodeKind.COMPUTE, attributes=[attribute])
        assert node.attributes() == (attribute,)
        # Zero stands in the bytes: readers take a missing member for a missing value.
        assert len(node.message.attr[0].SerializeToString()) > len(b"\x0a\x01x")


def test_bytes_of_a_small_trace(tmp_path):
    """By hand, after the encoding's rules: tag = number << 3 | wire type."""
    all_reduce = Node.build(
        id=3,
        kind=NodeKind.COLLECTIVE,
        name="ar",
        data_parents=[1, 2],
        attributes=[Attribute.of("comm_type", 0), Attribute.of("is_cpu_op", False)],
    )
    path = write(tmp_path / "a.et", Metadata(version="0.0.4"), [all_reduce])
    comm_type = b"\x0a\x09comm_type" + b"\x48\x00"
    is_cpu_op = b"\x0a\x09is_cpu_op" + b"\xd8\x01\x00"
    body = b"\x08\x03" + b"\x12\x02ar" + b"\x18\x07" + b"\x2a\x02\x01\x02"
    body += b"\x52" + varint(len(comm_type)) + comm_type + b"\x52" + varint(len(is_cpu_op)) + is_cpu_op
    assert path.read_bytes() == b"\x07\x0a\x050.0.4" + varint(len(body)) + body


def test_the_generated_code_is_that_of_the_schema():
    source = (Path(traces.__file__).parent / "chakra.proto").read_text()
    flat = source.replace("oneof value {", "").replace("\n  }\n", "\n")
    messages = dict(re.findall(r"message (\w+) \{(.*?)\}\n", flat, re.S))
    assert set(messages) == set(chakra_pb2.DESCRIPTOR.message_types_by_name)
    for name, block in messages.items():
        fields = {field: int(number) for field, number in re.findall(r"(\w+) = (\d+);", block)}
        descriptor = chakra_pb2.DESCRIPTOR.message_types_by_name[name]
        assert {field.name: field.number for field in descriptor.fields} == fields
    for enum in (chakra_pb2.NodeType, chakra_pb2.CollectiveCommType):
        for name, number in enum.items():
            assert f"{name} = {number};" in source


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_records_over_the_edges_of_blocks(tmp_path, suffix):
    """Records of many sizes, some larger than a block, come back whole with the right offsets."""
    items = [
        Node.build(id=i, kind=NodeKind.COMPUTE, name="n" * size)
        for i, size in enumerate([1, 0, 3 << 20, 127, 128, 5, (1 << 20) - 9, (1 << 20) - 8, *range(40)])
    ]
    path = write(tmp_path / f"a.et{suffix}", Metadata(version=""), items)
    expected = 1
    with ChakraReader(path) as reader:
        for node, item in zip(reader, items, strict=True):
            assert node.message == item.message
            assert reader.offset == expected
            size = len(item.message.SerializeToString())
            expected += len(varint(size)) + size


def test_unknown_fields_pass_through(tmp_path):
    newer = Node(chakra_pb2.Node.FromString(b"\x08\x01\x18\x04" + b"\xfa\x3f\x03new"))
    path = write(tmp_path / "a.et", Metadata(), [newer])
    assert path.read_bytes().endswith(b"\xfa\x3f\x03new")
    assert read(path)[1][0].message.SerializeToString().endswith(b"new")


def test_the_same_nodes_give_the_same_bytes(tmp_path):
    items = chain(50)
    first = write(tmp_path / "a.et.gz", Metadata(), items).read_bytes()
    assert first == write(tmp_path / "b.et.gz", Metadata(), items).read_bytes()
    assert gzip.decompress(first) == write(tmp_path / "c.et", Metadata(), items).read_bytes()


def test_an_interrupted_trace_leaves_nothing(tmp_path):
    def nodes():
        yield from chain(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ChakraWriter(tmp_path / "a.et", Metadata()) as writer:
        writer.write(nodes())
    assert list(tmp_path.iterdir()) == []


def test_writing_where_nothing_can_be_written(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere/a\.et: cannot be written: No such file"):
        ChakraWriter(tmp_path / "nowhere" / "a.et", Metadata())


def test_numbers_that_do_not_fit():
    with pytest.raises(ValueError, match="out of range"):
        Node.build(id=2**64, kind=NodeKind.COMPUTE)
    with pytest.raises(ValueError, match="no kind of its own"):
        Attribute.of("empty", ())
