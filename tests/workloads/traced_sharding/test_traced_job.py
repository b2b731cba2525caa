"""A job made of a trace is the built-in job of the same sizes, and says what it cannot be."""

import gzip
import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from archplace.arch_configs.errors import ConfigError
from archplace.workloads import (
    ContextKind,
    LayerSharding,
    OptimizerKind,
    Precision,
    Workload,
    load_job,
    load_model,
    load_workload,
)

RUNS = Path(__file__).parents[3] / "runs"
TRACE = RUNS / "traced-gpt.json.gz"
"""Of six blocks of the example script's GPT: two sequences of 256 tokens in fp32, under AdamW."""


@pytest.fixture
def traced(traced_gpt_job):
    return traced_gpt_job


@pytest.fixture
def built(traced):
    """The built-in model of the sizes that the example script was given."""
    model = replace(
        load_model("gpt3-175b"),
        n_layers=6,
        d_model=1024,
        n_heads=16,
        n_kv_heads=16,
        head_dim=64,
        d_ff=4096,
        max_positions=2048,
        vocabulary=32768,
        padded_vocabulary=32768,
        embedding_width=1024,
        tied_head=False,
        dropout=0.0,
        embedding_dropout=0.0,
        attention_dropout=0.0,
    )
    return Workload(
        name="built",
        model=model,
        sequence_length=traced.sequence_length,
        global_batch=traced.global_batch,
        precision=traced.precision,
        optimizer=traced.optimizer,
        fused_attention=True,
    )


def macs(layer):
    return [sum(op.macs for op in graph) for graph in (layer.forward, layer.backward)]


def collectives(layer):
    return [
        Counter((op.collective.kind, op.collective.payload_bytes) for op in graph if op.collective is not None)
        for graph in (layer.forward, layer.backward)
    ]


def test_the_same_work_as_the_built_in_model(traced, built):
    assert traced.flops_per_step == built.flops_per_step
    assert traced.tokens_per_step == built.tokens_per_step
    assert traced.parameter_bytes == built.parameter_bytes
    assert traced.optimizer_work(1000) == built.optimizer_work(1000)


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_the_same_layers_as_the_built_in_model(traced, built, tensor):
    sharding = LayerSharding(microbatch=2, tensor=tensor)
    step, theirs = traced.step(sharding), built.step(sharding)
    assert step.flops_per_token == theirs.flops_per_token
    assert [count for _, count in step.layers] == [count for _, count in theirs.layers] == [1, 6, 1]
    for (layer, _), (other, _) in zip(step.layers, theirs.layers, strict=True):
        assert macs(layer) == macs(other)
        assert (layer.input_bytes, layer.output_bytes) == (other.input_bytes, other.output_bytes)
    (first, _), (block, _), (last, _) = step.layers
    (_, _), (other_block, _), (other_last, _) = theirs.layers
    assert collectives(block) == collectives(other_block)
    assert (block.parameters, last.parameters) == (other_block.parameters, other_last.parameters)
    # the built-in model keeps all positions on every device, the program a part of each
    assert first.parameters == (32768 + 2048) * 1024 // tensor
    # statistics of norms are kept here, and there the statistics of attention in fp32
    assert block.stash_bytes == pytest.approx(other_block.stash_bytes, rel=2e-3)


def test_sequence_parallelism_leaves_each_device_its_share_between_layers(traced):
    step = traced.step(LayerSharding(microbatch=1, tensor=4, sequence=True))
    share = 2048 * 1024 * 2 // 4
    assert [(layer.input_bytes, layer.output_bytes) for layer, _ in step.layers] == [
        (0, share),
        (share, share),
        (share, 0),
    ]


def test_work_grows_with_the_job(traced):
    assert traced.resized(global_batch=32).flops_per_step == 2 * traced.flops_per_step
    longer = traced.resized(sequence_length=4096)
    assert longer.tokens_per_step == 2 * traced.tokens_per_step
    assert 2 * traced.flops_per_step < longer.flops_per_step < 4 * traced.flops_per_step
    sums = [
        sum(macs(layer)[0] for layer, _ in traced.step(LayerSharding(microbatch=size)).layers) for size in (1, 2, 4)
    ]
    assert sums[1:] == [2 * sums[0], 4 * sums[0]]


@pytest.mark.parametrize(
    ("sharding", "reason"),
    [
        (LayerSharding(microbatch=3), "microbatch 3 does not divide the global batch of 16 sequences"),
        (LayerSharding(microbatch=0), "microbatch 0: must be at least 1"),
        (
            LayerSharding(microbatch=1, tensor=7),
            "tensor parallel width 7 divides no dimension of traced-gpt's products",
        ),
        (LayerSharding(microbatch=1, sequence=True), "sequence parallelism needs tensor parallelism above 1"),
        (LayerSharding(microbatch=1, context=2), "context parallel width 2 with a ring"),
        (LayerSharding(microbatch=1, tensor=2, overlap_pieces=2), "products in 2 pieces"),
        (LayerSharding(microbatch=1, expert=2), "expert parallel width 2"),
        (
            LayerSharding(microbatch=1, context=3, context_kind=ContextKind.ALL_GATHER),
            "context parallel width 3 divides no dimension",
        ),
    ],
)
def test_refusals_give_numbers(traced, sharding, reason):
    assert traced.refusal(sharding).startswith(reason)
    with pytest.raises(ValueError, match=reason.replace("'", ".")):
        traced.step(sharding)


def test_narrow_products_are_refused(traced):
    with pytest.raises(ValueError, match=r"precision is fp8, but a traced step shows no casts; allowed: bf16"):
        replace(traced, precision=Precision.FP8)
    with pytest.raises(ValueError, match="global_batch is 0, must be at least 1"):
        traced.resized(global_batch=0)


def test_a_trace_by_itself_is_the_step_that_it_shows():
    job = load_job(TRACE)
    assert (job.name, job.model_name) == ("traced-gpt", "traced-gpt")
    assert (job.global_batch, job.sequence_length) == (2, 256)
    assert (job.precision, job.optimizer) == (Precision.FP32, OptimizerKind.ADAM)


def test_jobs_are_told_apart_by_their_traces(tmp_path, traced):
    text = gzip.decompress(TRACE.read_bytes())
    (tmp_path / "traced-gpt.json").write_bytes(text.replace(b'"pid":1', b'"pid":2'))
    (tmp_path / "job.yaml").write_text((RUNS / "traced-gpt-workload.yaml").read_text().replace(".json.gz", ".json"))
    other = load_job(tmp_path / "job.yaml")
    assert other.model == traced.model
    assert repr(other) != repr(traced)
    assert repr(load_job(RUNS / "traced-gpt-workload.yaml")) == repr(traced)


def test_jobs_travel(traced):
    again = pickle.loads(pickle.dumps(traced))
    assert again == traced
    sharding = LayerSharding(microbatch=1, tensor=2)
    assert again.step(sharding) == traced.step(sharding)


def problems(path, text):
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    return [str(problem) for problem in caught.value.problems]


def test_files_say_what_is_wrong(tmp_path):
    good = f"workload:\n  trace: {TRACE}\n  global_batch: 8\n"
    path = tmp_path / "job.yaml"
    (line,) = problems(path, good + "  sequence_length: 0\n")
    assert f"{path}:4:" in line
    (line,) = problems(path, good + "  model: gpt2-xl\n")
    assert "workload.model" in line
    (line,) = problems(path, good + "  precision: mxfp8\n")
    assert line.startswith(f"{path}:4:")
    assert "a traced step shows no casts" in line
    (line,) = problems(path, good + "  traced_batch: 5\n")
    assert "batch is 5, but no dimension of what enters the model has this size" in line
    (line,) = problems(path, good.replace("traced-gpt.json.gz", "absent.json"))
    assert "absent.json" in line
    (line,) = problems(path, good + f"  other_trace: {TRACE}\n")
    assert "nothing is learned" in line


def test_a_step_without_an_optimizer_needs_one_named(tmp_path):
    text = json.loads(gzip.decompress(TRACE.read_bytes()))
    text["nodes"] = [node for node in text["nodes"] if "Optimizer" not in node["name"]]
    (tmp_path / "step.json").write_text(json.dumps(text))
    with pytest.raises(ConfigError, match=r"the trace has no step of an optimizer; give one of sgd, adam"):
        load_job(tmp_path / "step.json")
    (tmp_path / "job.yaml").write_text("workload: {trace: step.json, global_batch: 8, optimizer: sgd}\n")
    assert load_job(tmp_path / "job.yaml").optimizer is OptimizerKind.SGD


def test_presets_are_jobs_too():
    assert load_job("gpt2-xl") == load_workload("gpt2-xl")
    assert load_job("gpt2-xl").model_name == "gpt2-xl"
