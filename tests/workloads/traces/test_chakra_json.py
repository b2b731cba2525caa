"""Chakra traces as JSON: one valid document, nothing lost, and the mapping that protobuf itself uses."""

import base64
import json
import math

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from trace_helpers import METADATA, chain, nodes

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import (
    Attribute,
    AttributeKind,
    ChakraJsonReader,
    ChakraJsonWriter,
    Metadata,
    Node,
    NodeKind,
    chakra_pb2,
)
from archplace.workloads.traces.chakra_json import node_message, node_text


def read(path):
    with ChakraJsonReader(path) as reader:
        found = list(reader)
        return reader.metadata, found


@given(METADATA, st.lists(nodes(), max_size=5), st.sampled_from([".json", ".json.gz"]))
def test_what_is_written_is_read(tmp_path_factory, metadata, items, suffix):
    path = tmp_path_factory.mktemp("trace") / f"a{suffix}"
    with ChakraJsonWriter(path, metadata) as writer:
        assert writer.write(items) == len(items)
    again, found = read(path)
    assert again == metadata
    assert [node.message for node in found] == [node.message for node in items]
    if suffix == ".json":
        document = json.loads(path.read_text())
        assert len(document["nodes"]) == len(items)


@given(nodes())
def test_the_mapping_is_protobufs(node):
    """What we write, protobuf reads as the same message; what it writes, in both spellings, we read."""
    assert json_format.ParseDict(json.loads(node_text(node)), chakra_pb2.Node()) == node.message
    for preserving in (False, True):
        document = json_format.MessageToDict(node.message, preserving_proto_field_name=preserving)
        assert node_message(document) == node.message


def test_numbers_that_are_none():
    values = (math.inf, -math.inf, math.nan)
    node = Node.build(
        id=1, kind=NodeKind.COMPUTE, attributes=[Attribute(name="x", kind=AttributeKind.DOUBLES, value=values)]
    )
    document = json.loads(node_text(node))
    assert document["attr"] == [{"name": "x", "doubleList": {"values": ["Infinity", "-Infinity", "NaN"]}}]
    again = Node(node_message(document)).value("x")
    assert again[:2] == values[:2]
    assert math.isnan(again[2])


def test_metadata_after_the_nodes(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"nodes": [{"id": 1, "type": 4}], "metadata": {"version": "1.0.0"}}')
    metadata, found = read(path)
    assert metadata == Metadata(version="1.0.0")
    assert [node.id for node in found] == [1]


def test_no_nodes_and_no_metadata(tmp_path):
    path = tmp_path / "a.json"
    for text in ('{"nodes": []}', "{}", '{"metadata": {}, "nodes": [ ]}\n'):
        path.write_text(text)
        assert read(path) == (Metadata(version=""), [])


def test_long_documents_come_in_pieces(tmp_path):
    """Elements over the edges of what is read at a time, with text of more bytes than characters."""
    path = tmp_path / "a.json"
    items = [Node.build(id=i, kind=NodeKind.COMPUTE, name="é€😀" * (i % 7) * 3000) for i in range(100)]
    documents = [json.dumps(json.loads(node_text(node)), ensure_ascii=False, indent=1) for node in items]
    path.write_text('{"metadata": {},\n"nodes": [' + " ,\n".join(documents) + "]}", encoding="utf-8")
    data = path.read_bytes()
    assert len(data) > 1 << 20
    with ChakraJsonReader(path) as reader:
        for node, item in zip(reader, items, strict=True):
            assert node.message == item.message
            assert data[reader.offset :].startswith(b'{\n "id": "%d"' % item.id)


BAD = {
    "": "expected a JSON object, found the end of the file",
    "[]": r"expected a JSON object, found '\[\]'",
    '{"nodes": [}': "byte 11: no JSON: Expecting value",
    '{"nodes": [{"id": 1, "type": 4}': "expected a comma or the end of the list, found the end of the file",
    '{"nodes": [] "metadata"': "byte 13: no JSON: expected a comma or the end of the object",
    '{"nodes": []} {}': "byte 14: no JSON: expected the end of the file",
    '{"nodes": [], "nodes": []}': "byte 13: member 'nodes' stands twice",
    '{"nodes": 5}': "member 'nodes': a Chakra trace in JSON has",
    '{"metadata": {}, "more": 1}': "byte 25: member 'more': a Chakra trace",
    '{"metadata": {"version": "7.1.0"}}': "schema version '7.1.0': understood are 0.0.4",
    '{"metadata": {"version": 1}}': "metadata: expected text, found 1",
    '{"nodes": [5]}': "a node is an object, found 5",
    '{"nodes": [{"id": 1, "type": 0}]}': r"byte 11: node 1 \(''\) has type 0",
    '{"nodes": [{"id": 1, "type": "COMP"}]}': "node 1: type 'COMP': allowed are INVALID_NODE",
    '{"nodes": [{"id": -1, "type": 4}]}': "node -1: Value out of range: -1",
    '{"nodes": [{"id": "x", "type": 4}]}': "node 'x': expected a uint64, found 'x'",
    '{"nodes": [{"id": true, "type": 4}]}': "expected a uint64, found True",
    '{"nodes": [{"id": 1, "kind": 4}]}': "unknown member 'kind'",
    '{"nodes": [{"id": 1, "ctrlDeps": [], "ctrl_deps": []}]}': "stands twice, in two spellings",
    '{"nodes": [{"id": 1, "dataDeps": 3}]}': "a list of parents is a list, found 3",
    '{"nodes": [{"id": 1, "attr": [3]}]}': "an attribute is an object, found 3",
    '{"nodes": [{"id": 1, "attr": [{"name": "a", "intVal": 3}]}]}': "attribute 'a': unknown member 'intVal'",
    '{"nodes": [{"id": 1, "attr": [{"name": "a", "int64Val": 3, "boolVal": true}]}]}': "more than one value",
    '{"nodes": [{"id": 1, "attr": [{"name": "a", "int64Val": 1.5}]}]}': "expected a int64, found 1.5",
    '{"nodes": [{"id": 1, "attr": [{"name": "a", "bytesVal": "?"}]}]}': "no base 64",
    '{"nodes": [{"id": 1, "attr": [{"name": "a", "int64List": [1]}]}]}': 'int64List is {"values"',
    '{"nodes": [' + "[" * 100_000: "byte 11: values are nested too deeply",
    '{"nodes": [' + '{"a":' * 100_000: "byte 11: values are nested too deeply",
    '{"nodes": [' + "9" * 5000 + "]}": "byte 11: a number with thousands of digits",
    '{"nodes": [{"name": "\x01"}]}': "Invalid control character",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_said(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=BAD[text]) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: byte ")
    assert len(str(error.value)) < 500 + len(str(path))


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"nodes": [{"name": "\xff"}]}')
    with pytest.raises(ConfigError, match="no UTF-8 text"):
        read(path)


def test_a_value_that_never_ends(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"nodes": [{"name": "' + "a" * (40 << 20))
    with pytest.raises(ConfigError, match="byte 11: a value of more than 16,777,216 characters"):
        read(path)


def test_an_error_in_the_middle_is_found_without_reading_on(tmp_path):
    path = tmp_path / "a.json"
    text = '{"nodes": [{"id": 1, "type": 4}, {"id": 2 "type": 4}' + ', {"id": 1, "type": 4}' * 10**6
    path.write_text(text)
    with pytest.raises(ConfigError, match="byte 42: no JSON: Expecting ',' delimiter; found '\"type\": 4}"):
        read(path)


def test_bytes_in_base_64():
    node = Node.build(id=1, kind=NodeKind.COMPUTE, attributes=[Attribute.of("b", b"\x00\xff")])
    assert json.loads(node_text(node))["attr"] == [{"name": "b", "bytesVal": base64.b64encode(b"\x00\xff").decode()}]


def test_chains_keep_their_order(tmp_path):
    path = tmp_path / "a.json"
    with ChakraJsonWriter(path, Metadata()) as writer:
        writer.write(chain(5))
    assert [list(node.data_parents) for node in read(path)[1]] == [[], [0], [1], [2], [3]]
