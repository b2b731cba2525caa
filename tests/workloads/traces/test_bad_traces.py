"""Damaged and hostile traces: an error that names file and place, in bounded memory and time."""

import gzip
import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_helpers import chain, nodes, varint

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import (
    ChakraReader,
    Metadata,
    Node,
    NodeKind,
    Trace,
    TraceFormat,
    audit_file,
    load_trace,
    open_reader,
    save_trace,
    trace_format,
)

HEAD = b"\x07\x0a\x050.0.4"


def record(body):
    return varint(len(body)) + body


NODE = record(b"\x08\x01\x18\x04")

BAD = {
    "empty file": (b"", "byte 0: an empty file"),
    "cut in a length": (HEAD + NODE + b"\x80", "byte 13: the file ends inside a record's length"),
    "cut in a node": (HEAD + NODE[:-1], "byte 8: a record of 4 bytes begins here, and the file ends after"),
    "length without end": (HEAD + b"\xff" * 20, "byte 8: a record's length has more than 32 bits"),
    "2^31 bytes": (HEAD + varint(2**31) + b"x", "byte 8: a record of 2,147,483,648 bytes; at most 16,777,216"),
    "2^32 - 1 bytes": (HEAD + varint(2**32 - 1), "byte 8: a record of 4,294,967,295 bytes"),
    "16 MiB that are not there": (HEAD + varint(1 << 24) + b"x" * 9, "byte 8: a record of 16,777,216 bytes begins"),
    "an empty record": (HEAD + b"\x00" + NODE, "byte 8: an empty record"),
    "zeros": (b"\x00" * 1000, "byte 1: an empty record"),
    "no protobuf": (HEAD + record(b"\xff\xff\xff"), "byte 8: 3 bytes that are no node"),
    "text": (b"graph {\n  a -> b\n}\n" * 20, "byte 0: "),
    "no metadata": (NODE, "byte 0: the first record is a node, not metadata"),
    "another version": (record(b"\x0a\x050.0.1") + NODE, "byte 0: schema version '0.0.1': understood are 0.0.4"),
    "type 0": (HEAD + record(b"\x08\x01"), r"byte 8: node 1 \(''\) has type 0; types are 1"),
    "type 9": (HEAD + record(b"\x08\x01\x18\x09"), r"byte 8: node 1 \(''\) has type 9"),
    "name not UTF-8": (HEAD + record(b"\x12\x01\xff"), "byte 8: 3 bytes that are no node"),
    "attributes without end": (HEAD + record(b"\x18\x04" + b"\x52\x00" * 20_000), "has 20,000 attributes; at most"),
    "doubled id": (HEAD + NODE + NODE, "byte 13: node id 1 stands twice"),
    "unknown parent": (HEAD + record(b"\x08\x01\x18\x04\x2a\x01\x09"), "1 dependencies on nodes .* node 1 waits for 9"),
    "waits for itself": (HEAD + record(b"\x08\x01\x18\x04\x2a\x01\x01"), "byte 8: node 1 waits for itself"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(tmp_path, name, packed):
    data, message = BAD[name]
    path = tmp_path / "a.et"
    path.write_bytes(gzip.compress(data) if packed else data)
    place = message.replace(": ", " of the expanded data: ", 1) if packed and message.startswith("byte") else message
    with pytest.raises(ConfigError, match=place) as error:
        load_trace(path)
    assert str(error.value).startswith(f"{path}: byte ")


def test_missing_files(tmp_path):
    for path, why in ((tmp_path / "none.et", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"cannot be read: {why}"):
            load_trace(path)


def test_files_of_a_folder_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"Is a directory; give a trace's file$"):
        load_trace(tmp_path)
    for name in ("calls.0.json.gz", "step.0.et", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=r"Is a directory; give one of its files: calls\.0\.json\.gz, step\.0\.et$"):
        load_trace(tmp_path)


@pytest.mark.parametrize("cut", [1, 8, 100, -9])
def test_gzip_that_ends_too_early_or_is_damaged(tmp_path, cut):
    path = tmp_path / "a.et.gz"
    save_trace(Trace(metadata=Metadata(), nodes=tuple(chain(500))), path)
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    with pytest.raises(ConfigError, match=r"expanded any further: ends too early|byte 0"):
        load_trace(path)
    path.write_bytes(data[:100] + bytes([data[100] ^ 255]) + data[101:])
    with pytest.raises(ConfigError, match=r"expanded any further|expanded data"):
        load_trace(path)


def bombs():
    """A few megabytes that become gigabytes."""
    yield "zeros after metadata", HEAD, b"\x00" * (1 << 20)
    yield "one long record", HEAD + varint(1 << 30), b"\x00" * (1 << 20)
    yield "space in JSON", b'{"nodes": [', b" " * (1 << 20)
    yield "text in JSON", b'{"nodes": ["', b"a" * (1 << 20)
    yield "empty lists", b'{"nodes": [', b"[]," * (1 << 18)
    yield "the same node", HEAD, NODE * (1 << 18)
    yield "space in PyTorch's JSON", b'{"schema": "1.0.1", "nodes": [', b" " * (1 << 20)


@pytest.mark.parametrize(("head", "block"), [item[1:] for item in bombs()], ids=[item[0] for item in bombs()])
def test_gzip_bombs(tmp_path, head, block):
    """Deflate makes 1,032 bytes of one. Reading ends before what came out matters, and never holds much of it."""
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(head)
        for _ in range(80):
            file.write(block)
    assert path.stat().st_size < 3 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as error:
            load_trace(path)
        assert str(error.value).startswith(str(path))
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


@given(st.integers(2, 8), st.randoms(use_true_random=False))
def test_cycles_are_named(tmp_path_factory, length, chance):
    """A ring among other nodes, in any order in the file."""
    ring = [100 + i for i in range(length)]
    items = [
        Node.build(id=ring[i], kind=NodeKind.COMPUTE, data_parents=[3, ring[i - 1]], control_parents=[2])
        for i in range(length)
    ]
    items += [Node.build(id=i, kind=NodeKind.COMPUTE, data_parents=[i - 1] if i else []) for i in range(10)]
    items += [Node.build(id=200, kind=NodeKind.COMPUTE, data_parents=ring)]
    chance.shuffle(items)
    path = tmp_path_factory.mktemp("trace") / "a.et"
    save_trace(Trace(metadata=Metadata(), nodes=tuple(items)), path)
    for check in (load_trace, audit_file):
        with pytest.raises(ConfigError, match=f"{length} nodes wait for each other: ") as error:
            check(path)
        named = [int(text) for text in str(error.value).split("each other: ")[1].split(";")[0].split(" <- ")]
        assert set(named) <= set(ring)
        assert named[0] == named[-1]
        for child, parent in pairwise(named):
            assert parent == ring[ring.index(child) - 1]


def load_or_refuse(path):
    refusals = []
    try:
        load_trace(path)
    except ConfigError as error:
        refusals = error.problems
    assert all(problem.place == str(path) and problem.message for problem in refusals)


@given(st.lists(nodes(data_parents=[], control_parents=[]), min_size=1, max_size=4), st.data())
def test_flipped_bytes_and_cuts_are_never_a_traceback(tmp_path_factory, items, data):
    """Whatever is done to a trace, it is read or refused with the file's name and a place."""
    folder = tmp_path_factory.mktemp("fuzz")
    suffix = data.draw(st.sampled_from([".et", ".json"]))
    path = folder / f"a{suffix}"
    save_trace(Trace(metadata=Metadata(), nodes=tuple(items)), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    path.write_bytes(gzip.compress(bytes(content)) if data.draw(st.booleans()) else bytes(content))
    load_or_refuse(path)


@given(st.binary(max_size=400))
def test_any_bytes(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "a"
    path.write_bytes(content)
    load_or_refuse(path)


def test_ids_in_any_order_and_later_parents(tmp_path):
    """What is unusual and sound is read: sparse ids, the largest id, parents after their children."""
    chance = random.Random(5)
    ids = sorted({0, 2**64 - 1, *(chance.randrange(2**64) for _ in range(3000))})
    chance.shuffle(ids)
    rank = {node: place for place, node in enumerate(sorted(ids))}
    by_rank = sorted(ids)
    items = [
        Node.build(id=node, kind=NodeKind.COMPUTE, data_parents=[by_rank[rank[node] // 2]] if rank[node] else [])
        for node in ids
    ]
    path = tmp_path / "a.et"
    save_trace(Trace(metadata=Metadata(), nodes=tuple(items)), path)
    assert [node.id for node in load_trace(path).nodes] == ids
    found = audit_file(path)
    assert (found.n_nodes, found.n_edges) == (len(ids), len(ids) - 1)
    assert 0 < found.n_forward < len(ids)


def test_memory_does_not_grow_with_the_trace(tmp_path, monkeypatch):
    monkeypatch.setattr("archplace.workloads.traces.audit._CHUNK", 2000)
    monkeypatch.setattr("archplace.workloads.traces._records.BLOCK_BYTES", 1 << 14)

    def peak(count):
        path = tmp_path / f"{count}.et"
        save_trace(Trace(metadata=Metadata(), nodes=tuple(chain(count))), path)
        tracemalloc.start()
        try:
            assert audit_file(path).n_nodes == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # One chunk of ids and one block of bytes, whatever the length.
    assert peak(24_000) < 1.2 * peak(6_000)


def test_formats_are_told_by_content(tmp_path):
    cases = {
        b"{\n" + b"x" * 200: TraceFormat.CHAKRA,
        b'{"metadata": {}}': TraceFormat.CHAKRA_JSON,
        b'  {\n "schema": "1.0.1"}': TraceFormat.PYTORCH,
        b'{"schemaVersion": 1}': TraceFormat.KINETO,
        HEAD: TraceFormat.CHAKRA,
    }
    for content, expected in cases.items():
        path = tmp_path / "trace"
        path.write_bytes(content)
        assert trace_format(path) is expected
        path.write_bytes(gzip.compress(content))
        assert trace_format(path) is expected
    path.write_bytes(b'{"name": "x"}')
    with pytest.raises(ConfigError, match="JSON that begins with 'name': known are Chakra traces"):
        trace_format(path)
    path.write_bytes(b'{"schema": "1.0.1", "nodes": []}')
    with pytest.raises(ConfigError, match="an execution trace of PyTorch: make a Chakra trace"):
        load_trace(path)


def test_reading_stops_where_the_reader_stops(tmp_path):
    path = tmp_path / "a.et"
    path.write_bytes(HEAD + NODE + b"\xff" * 100)
    with ChakraReader(path) as reader:
        assert next(iter(reader)).id == 1


@pytest.mark.parametrize("name", ["a.et", "a.et.gz", "a.json", "a.json.gz"])
def test_how_much_has_been_read(tmp_path, name):
    """From nothing to all, and never backwards."""
    chance = random.Random(3)
    names = ["".join(chance.choices("abcdefghij", k=4000)) for _ in range(1500)]
    items = tuple(Node.build(id=i, kind=NodeKind.COMPUTE, name=text) for i, text in enumerate(names))
    save_trace(Trace(metadata=Metadata(), nodes=items), tmp_path / name)
    with open_reader(tmp_path / name) as reader:
        shares = [reader.share for _ in reader]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert shares[-1] == 1
