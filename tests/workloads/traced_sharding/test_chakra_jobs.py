"""A Chakra trace that was imported from PyTorch's is the same job."""

from pathlib import Path

import pytest

from archplace.arch_configs.errors import ConfigError
from archplace.workloads import LayerSharding, OptimizerKind, Precision, load_job
from archplace.workloads.traces import (
    Attribute,
    AttributeKind,
    Metadata,
    Node,
    NodeKind,
    Operands,
    Trace,
    import_pytorch,
    save_trace,
)

RUNS = Path(__file__).parents[3] / "runs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("chakra")
    save_trace(import_pytorch(RUNS / "traced-gpt.json.gz").trace, found / "gpt.et")
    return found


@pytest.fixture(scope="module")
def original():
    return load_job(RUNS / "traced-gpt.json.gz")


def test_the_same_model(folder, original):
    job = load_job(folder / "gpt.et")
    assert (job.name, job.global_batch, job.sequence_length) == ("gpt", 2, 256)
    assert (job.precision, job.optimizer) == (Precision.FP32, OptimizerKind.ADAM)
    assert job.flops_per_step == original.flops_per_step
    (first, _), (block, count), (last, _) = job.model.layers
    (first_there, _), (block_there, _), (last_there, _) = original.model.layers
    assert count == 6
    assert [tensor.dims for tensor in first.tensors] == [tensor.dims for tensor in first_there.tensors]
    assert [layer.parameters for layer in (block, last)] == [layer.parameters for layer in (block_there, last_there)]
    assert [op.macs for op in block.operators] == [op.macs for op in block_there.operators]
    for mine, theirs in ((first, first_there), (block, block_there)):
        assert [op.loops for op in mine.operators] == [op.loops for op in theirs.operators]


@pytest.mark.parametrize("tensor", [1, 4])
def test_the_same_layers_but_for_what_is_not_seen(folder, original, tensor):
    sharding = LayerSharding(microbatch=2, tensor=tensor)
    for (mine, _), (theirs, _) in zip(
        load_job(folder / "gpt.et").step(sharding).layers, original.step(sharding).layers, strict=True
    ):
        assert mine.parameters == theirs.parameters
        assert (mine.input_bytes, mine.output_bytes) == (theirs.input_bytes, theirs.output_bytes)
        assert sum(op.macs for op in mine.forward) == sum(op.macs for op in theirs.forward)
        assert sum(op.macs for op in mine.backward) == sum(op.macs for op in theirs.backward)
        # statistics of norms and attention, and the probabilities of the loss, are kept inside of their operators
        assert mine.stash_bytes <= theirs.stash_bytes


def test_a_workload_file_may_name_it(folder):
    (folder / "job.yaml").write_text(
        "workload: {trace: gpt.et, global_batch: 8, sequence_length: 512, precision: bf16}\n"
    )
    job = load_job(folder / "job.yaml")
    assert job.tokens_per_step == 8 * 512
    assert job.refusal(LayerSharding(microbatch=4, tensor=2)) is None


def problem(path, *nodes):
    save_trace(Trace(metadata=Metadata(), nodes=nodes), path)
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    return str(caught.value)


def test_traces_of_other_tools_are_refused(tmp_path):
    node = Node.build(id=1, kind=NodeKind.COMPUTE, name="gemm")
    assert "no operators of PyTorch with their operands" in problem(tmp_path / "other.et", node)


def test_operands_that_are_no_lists_are_said_with_their_node(tmp_path):
    attributes = [
        Attribute.of("op_schema", "aten::relu(Tensor self) -> Tensor"),
        Attribute.of("within", (), AttributeKind.STRINGS),
    ]
    inputs = Operands(values="[[1, 2, 0, 4, 4, 'cpu']]", shapes="[[4]]", types="['Tensor(float)']")
    for outputs in (
        Operands(values="[", shapes="[[4]]", types="['Tensor(float)']"),
        Operands(values="__import__('os')", shapes="[]", types="[]"),
        Operands(values="[[3, 4, 0, 4, 4, 'cpu']]", shapes="[]", types="[]"),
    ):
        node = Node.build(
            id=7, kind=NodeKind.COMPUTE, name="aten::relu", inputs=inputs, outputs=outputs, attributes=attributes
        )
        assert "node 7 (aten::relu): operands are no lists of Python" in problem(tmp_path / "step.et", node)
