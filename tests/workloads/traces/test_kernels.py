"""Kernels on several streams: a step written by hand, in which every dependency is known.

The host multiplies, reduces the product over the ranks on a stream of its own, adds to it, copies one number back,
waits for it, and goes on::

    host      mm   all_reduce   add    item ...sync  mul
    stream 7  gemm              add    copy          mul
    stream 9        nccl
"""

import json

import pytest

from archplace.workloads.traces import CollectiveType, NodeKind, Role, import_pytorch, meaning_of

EMPTY = {"values": [], "shapes": [], "types": [], "strides": []}


def tensor(number, storage, elements):
    return [number, storage, 0, elements, 4, "cuda:0"]


def sides(*tensors):
    return {
        "values": list(tensors),
        "shapes": [[one[3]] for one in tensors],
        "types": ["Tensor(float)"] * len(tensors),
        "strides": [[1] for _ in tensors],
    }


def call(number, parent, name, schema="", inputs=EMPTY, outputs=EMPTY, scope=0, **extras):
    attributes = {"rf_id": number, "seq_id": -1, "scope": scope, "tid": 1, "fw_tid": 0, "op_schema": schema} | extras
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": inputs,
        "outputs": outputs,
        "attrs": [{"name": key, "type": "", "value": value} for key, value in attributes.items()],
    }


A, B, C, D, E = tensor(21, 11, 64), tensor(22, 12, 64), tensor(23, 13, 64), tensor(24, 14, 64), tensor(25, 15, 1)
IN_A_LIST = {"values": [[C]], "shapes": [[[64]]], "types": ["GenericList[Tensor(float)]"], "strides": [[[1]]]}
NOTES = {
    "collective_name": "allreduce",
    "dtype": "Float",
    "in_msg_nelems": 64,
    "pg_name": "3",
    "pg_size": 4,
    "global_rank_start": 8,
    "global_rank_stride": 2,
}
HOST = [
    call(1, 1, "[pytorch|profiler|execution_trace|process]", scope=7),
    call(2, 1, "[pytorch|profiler|execution_trace|thread]", scope=7),
    call(3, 2, "aten::mm", "aten::mm(Tensor self, Tensor mat2) -> Tensor", sides(A, B), sides(C)),
    call(
        4, 2, "c10d::allreduce_", "c10d::allreduce_(Tensor[] tensors, X group) -> (Tensor[], X)", IN_A_LIST, IN_A_LIST
    ),
    call(5, 4, "record_param_comms", "", IN_A_LIST, IN_A_LIST, **NOTES),
    call(6, 2, "aten::add", "aten::add.Tensor(Tensor self, Tensor other) -> Tensor", sides(C, A), sides(D)),
    call(7, 2, "aten::item", "aten::item(Tensor self) -> Scalar", sides(D)),
    call(8, 2, "aten::mul", "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", sides(A, B), sides(E)),
]
# Begin and end of each call, its launch, and the kernel: stream, begin, end, name, category.
CALLS = {3: (0, 10), 4: (10, 20), 5: (11, 19), 6: (20, 30), 7: (30, 100), 8: (110, 120)}
KERNELS = {
    3: (1, 7, 15, 45, "sgemm", "kernel"),
    5: (12, 9, 45, 65, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel"),
    6: (21, 7, 65, 70, "elementwise", "kernel"),
    7: (31, 7, 70, 90, "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy"),
    8: (111, 7, 115, 118, "elementwise", "kernel"),
}


def profile():
    events = []

    def event(category, name, begin, end, pid, tid, **args):
        events.append(
            {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin, "pid": pid, "tid": tid}
            | {"args": args}
        )

    names = {node["id"]: node["name"] for node in HOST}
    for number, (begin, end) in CALLS.items():
        event("cpu_op", names[number], begin, end, 77, 77, **{"Record function id": number})
    for number, (launch, stream, begin, end, name, category) in KERNELS.items():
        event("cuda_runtime", "cudaLaunchKernel", launch, launch + 1, 77, 77, correlation=100 + number)
        event(category, name, begin, end, 0, stream, device=0, stream=stream, correlation=100 + number, bytes=4)
    event("cuda_runtime", "cudaStreamSynchronize", 33, 91, 77, 77, correlation=200)
    # The stream of the communication waits for the product, and the other for the communication.
    for stream, other, begin in ((9, 7, 11.5), (7, 9, 20.5)):
        event("cuda_sync", "Stream Wait Event", begin, begin, 0, stream, device=0, stream=stream, wait_on_stream=other)
    return events


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("step")
    host = {"schema": "1.1.1-chakra.0.0.4", "pid": 77, "nodes": HOST}
    (folder / "host.json").write_text(json.dumps(host))
    (folder / "profile.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": profile()}))
    return import_pytorch(folder / "host.json", [folder / "profile.json"])


def named(imported, name):
    return [node for node in imported.trace.nodes if node.name.startswith(name)]


def parents(imported, node):
    names = [one.name for one in imported.trace.nodes]
    return ([names[parent] for parent in node.data_parents], [names[parent] for parent in node.control_parents])


def test_counts(imported):
    assert (imported.n_operators, imported.n_kernels, imported.n_communications) == (5, 5, 1)
    assert len(imported.trace.nodes) == 10


def test_operators_are_the_hosts_and_kernels_the_devices(imported):
    roles = {node.name: meaning_of(node).role for node in imported.trace.nodes}
    assert roles["sgemm"] is Role.COMPUTE
    assert roles["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] is Role.COLLECTIVE
    assert roles["Memcpy DtoH (Device -> Pageable)"] is Role.MEMORY
    assert {roles[node["name"]] for node in HOST if node["id"] in (3, 4, 6, 7, 8)} == {Role.HOST}
    (copy,) = named(imported, "Memcpy")
    assert copy.kind is NodeKind.MEMORY_STORE
    assert meaning_of(copy).size_bytes == 4


def test_a_communication_is_its_kernel(imported):
    (nccl,) = named(imported, "nccl")
    found = meaning_of(nccl)
    assert (found.collective, found.size_bytes, found.group) == (CollectiveType.ALL_REDUCE, 256, "3")
    assert (nccl.value("pg_size"), nccl.value("pg_first_rank"), nccl.value("pg_rank_stride")) == (4, 8, 2)
    assert found.duration_ns == 20_000


def test_who_waits_for_whom(imported):
    (gemm,), (nccl,), (copy,) = named(imported, "sgemm"), named(imported, "nccl"), named(imported, "Memcpy")
    add, mul = named(imported, "elementwise")
    assert parents(imported, gemm) == (["aten::mm"], [])
    # The product by what it reads; on the stream nothing was before.
    assert sorted(parents(imported, nccl)[0]) == ["c10d::allreduce_", "sgemm"]
    # The sum by what it reads, and by its stream.
    assert sorted(parents(imported, add)[0]) == ["aten::add", nccl.name]
    assert parents(imported, add)[1] == ["sgemm"]
    assert sorted(parents(imported, copy)[0]) == ["aten::item", "elementwise"]
    assert parents(imported, mul) == (["aten::mul"], [copy.name])


def test_the_host_waits_where_it_synchronises(imported):
    (mul,) = named(imported, "aten::mul")
    assert parents(imported, mul) == ([], ["Memcpy DtoH (Device -> Pageable)"])
    for name in ("aten::mm", "c10d::allreduce_", "aten::add", "aten::item"):
        assert parents(imported, named(imported, name)[0]) == ([], [])


def test_streams_wait_for_each_other(tmp_path):
    """Where nothing is read across streams, only the profiler's notes of waits connect them."""
    nodes = [node for node in HOST if node["id"] != 6]
    apart = json.loads(json.dumps(nodes).replace(json.dumps(C), json.dumps(tensor(29, 19, 64))))
    for node in apart:
        if node["id"] == 3:
            node["outputs"] = sides(C)
    events = [event for event in profile() if event["args"].get("Record function id") != 6]
    (tmp_path / "host.json").write_text(json.dumps({"schema": "1.1.1", "pid": 77, "nodes": apart}))
    (tmp_path / "profile.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    imported = import_pytorch(tmp_path / "host.json", [tmp_path / "profile.json"])
    (nccl,) = named(imported, "nccl")
    assert parents(imported, nccl) == (["c10d::allreduce_"], ["sgemm"])
    # What no operator launched has a place in its stream, and none in the graph of data.
    orphan = named(imported, "elementwise")[0]
    assert parents(imported, orphan) == ([], sorted(["sgemm", nccl.name], reverse=True))
