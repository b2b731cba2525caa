"""Dependencies of imported traces, against a table of every byte's last writer."""

from pathlib import Path

import numpy as np
import pytest

from archplace.workloads.traces import import_pytorch
from archplace.workloads.traces._op_schema import schema_arguments
from archplace.workloads.traces.call_tree import outermost_operators
from archplace.workloads.traces.communication import incoming, is_c10d, outgoing
from archplace.workloads.traces.host_trace import load_host_trace

DATA = Path(__file__).parent / "data"


class Bytes:
    """Who wrote each byte of a storage last."""

    def __init__(self):
        self.writers = np.full(0, -1)

    def up_to(self, end):
        if end > len(self.writers):
            self.writers = np.concatenate((self.writers, np.full(end - len(self.writers), -1)))
        return self.writers


@pytest.mark.parametrize(
    ("name", "count"), [("transformer_host", 501), ("ddp_host.0", 103), ("ddp_host.1", 103), ("linear_host", None)]
)
def test_data_parents_are_the_last_writers_of_the_bytes_that_are_read(name: str, count: int | None) -> None:
    path = DATA / f"{name}.json.gz"
    memory: dict[int, Bytes] = {}
    expected = set()
    for place, operator in enumerate(outermost_operators(load_host_trace(path).nodes)):
        node = operator.node
        everything = [tensor for argument in node.inputs for tensor in argument.tensors]
        made = [tensor for result in node.outputs for tensor in result.tensors]
        fresh = [tensor for tensor in made if tensor.storage not in {one.storage for one in everything}]
        if is_c10d(node):
            reads, changed = list(incoming(node)), list(outgoing(node))
        else:
            schema = schema_arguments(node.op_schema)
            reads = everything
            pairs = zip(node.inputs, schema, strict=False)
            changed = [tensor for argument, known in pairs if known.written for tensor in argument.tensors]
        for tensor in reads:
            writers = memory.setdefault(tensor.storage, Bytes()).up_to(tensor.end)[tensor.begin : tensor.end]
            # Of each run of bytes with one writer the first: sorting millions of them takes long.
            runs = writers[np.diff(writers, prepend=-2) != 0]
            expected |= {(writer, place) for writer in set(runs.tolist()) if writer not in (-1, place)}
        for storage in {tensor.storage for tensor in fresh}:
            memory[storage] = Bytes()
        for tensor in [*changed, *fresh]:
            memory.setdefault(tensor.storage, Bytes()).up_to(tensor.end)[tensor.begin : tensor.end] = place
    found = {(parent, node.id) for node in import_pytorch(path).trace.nodes for parent in node.data_parents}
    assert found == expected
    assert count is None or len(expected) == count
