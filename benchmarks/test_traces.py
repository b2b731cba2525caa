"""How fast traces are written, read, looked at and turned into JSON: nodes per second, on a million nodes."""

import time

import pytest

from archplace.workloads.traces import (
    Attribute,
    AttributeKind,
    Metadata,
    Node,
    NodeKind,
    audit_file,
    open_reader,
    open_writer,
)

COUNT = 1_000_000


def nodes():
    """What an exporter writes: one parent or two, five attributes."""
    for number in range(COUNT):
        parents = [number - 1, number // 2] if number > 2 else []
        yield Node.build(
            id=number,
            name="layer.7.attention.qkv",
            kind=NodeKind.COMPUTE,
            data_parents=parents,
            duration_micros=number % 97,
            attributes=[
                Attribute.of("is_cpu_op", False),
                Attribute.of("num_ops", number * 1000),
                Attribute.of("tensor_size", number * 10, AttributeKind.UINT64),
                Attribute.of("seq_id", number),
                Attribute.of("op_schema", "aten::mm(Tensor self, Tensor mat2) -> Tensor"),
            ],
        )


def write(path):
    with open_writer(path, Metadata()) as writer:
        return writer.write(nodes())


def build(_):
    return sum(1 for _ in nodes())


def read(path):
    with open_reader(path) as reader:
        return sum(1 for _ in reader)


def read_values(path):
    with open_reader(path) as reader:
        return sum(len(node.values()) == 5 for node in reader)


def audit(path):
    return audit_file(path).n_nodes


@pytest.mark.parametrize("suffix", [".et", ".et.gz", ".json"])
def test_traces(benchmark, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"

    def all_of_it():
        building = 0.0
        for work in (build, write, read, read_values, audit):
            started = time.process_time()
            assert work(path) == COUNT
            took = time.process_time() - started
            if work is build:
                building = took
            # What is written has to be built first, which is not writing.
            rate = COUNT / (took - building if work is write else took)
            benchmark.extra_info[f"{work.__name__}_per_s"] = rate
            print(f"\n{suffix} {work.__name__}: {rate:,.0f} nodes/s of CPU time", end="")

    benchmark.pedantic(all_of_it, rounds=1)
