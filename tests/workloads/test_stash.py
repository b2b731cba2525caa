"""Bytes kept for the backward pass, against Korthikanti et al. 2022 (arXiv:2205.05198) and by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_helpers import CUTS, layer

from archplace.workloads import LayerSharding, Model, OptimizerKind, Precision, TrainingStep, Workload, load_model


def step_of(
    model: Model, tensor_parallel: int, microbatch: int, sequence_length: int, precision: Precision = Precision.FP16
) -> TrainingStep:
    workload = Workload(
        name="w",
        model=model,
        sequence_length=sequence_length,
        global_batch=microbatch,
        precision=precision,
        optimizer=OptimizerKind.ADAM,
    )
    return workload.step(LayerSharding(tensor=tensor_parallel, microbatch=microbatch))


@pytest.mark.parametrize(("name", "t"), [(name, t) for name, t in CUTS if "gpt" in name])
@pytest.mark.parametrize("b", [1, 4])
def test_gpt_block_agrees_with_korthikanti(name: str, t: int, b: int) -> None:
    model = load_model(name)
    s, h, a = model.max_positions, model.d_model, model.n_heads
    # equation 2, times t to stay in whole numbers; with t = 1 it is equation 1, sbh (34 + 5as/h)
    expected = s * b * (10 * h * t + 24 * h + 5 * a * s)
    assert layer(step_of(model, t, b, s), "block").stash_bytes * t == expected


@pytest.mark.parametrize("t", [1, 2, 8])
def test_bert_block_keeps_as_much_as_a_gpt_block(t: int) -> None:
    # Norms stand elsewhere, but each of the two still keeps one input, and each part its input.
    s, b, h, a = 512, 8, 1024, 16
    assert layer(step_of(load_model("bert-large"), t, b, s), "block").stash_bytes * t == s * b * (
        10 * h * t + 24 * h + 5 * a * s
    )


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_llama2_70b_block(t: int) -> None:
    s, b, h, ff, heads, kv_heads, head = 4096, 2, 8192, 28672, 64, 8, 128
    e = 2
    whole = e * (
        2 * h  # first norm: input and output
        + 2 * h  # second norm: input and output
    )
    cut = e * (
        heads * head + 2 * kv_heads * head  # queries, keys, values
        + heads * s  # probabilities; no dropout, so that they are kept once and without a mask
        + heads * head  # input of the projection
        + 3 * ff  # gate, up, and their product, the input of the last matrix
    )  # fmt: skip
    assert layer(step_of(load_model("llama2-70b"), t, b, s), "block").stash_bytes * t == b * s * (whole * t + cut)


@pytest.mark.parametrize("name", ["opt-350m", "opt-1.3b"])
@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_opt_block(name: str, t: int) -> None:
    model = load_model(name)
    s, b, h, a = 2048, 2, model.d_model, model.n_heads
    # As a GPT block, but ReLU keeps only its output: 24/t less 8/t.
    expected = s * b * (10 * h * t + 16 * h + 5 * a * s)
    step = step_of(model, t, b, s)
    assert layer(step, "block").stash_bytes * t == expected
    # No dropout on the embedding; the 350M's projection keeps its input of 512 columns.
    assert layer(step, "embedding").stash_bytes == (2 * s * b * 512 if name == "opt-350m" else 0)


@pytest.mark.parametrize("t", [1, 8])
def test_ends_of_gpt_agree_with_korthikanti(t: int) -> None:
    # Section 4.3: the embedding's dropout keeps a mask, sbh; the head keeps the input of the final norm and of the
    # projection, 4sbh, and the logits in fp32, 4sbv.
    model = load_model("gpt3-175b")
    s, b, h, v = 2048, 2, 12288, 51200
    step = step_of(model, t, b, s)
    assert layer(step, "embedding").stash_bytes == s * b * h
    assert layer(step, "head").stash_bytes == 4 * s * b * h + 4 * s * b * v // t


def test_fp32_doubles_everything_but_masks() -> None:
    model = load_model("gpt2-xl")
    s, h, a = 1024, 1600, 25
    half = layer(step_of(model, 1, 1, s), "block").stash_bytes
    full = layer(step_of(model, 1, 1, s, Precision.FP32), "block").stash_bytes
    assert 2 * half - full == s * (2 * h + a * s)


def test_without_dropout_there_are_no_masks() -> None:
    model = replace(load_model("gpt2-xl"), dropout=0.0, attention_dropout=0.0)
    s, h, a = 1024, 1600, 25
    assert layer(step_of(model, 1, 1, s), "block").stash_bytes == s * (32 * h + 2 * a * s)


@settings(max_examples=30, deadline=None)
@given(microbatch=st.integers(1, 64), name=st.sampled_from(["llama2-7b", "opt-350m", "bert-large"]))
def test_stash_is_proportional_to_the_microbatch(microbatch: int, name: str) -> None:
    model = load_model(name)
    one, many = (step_of(model, 4, b, 128) for b in (1, microbatch))
    for (first, _), (second, _) in zip(one.layers, many.layers, strict=True):
        assert second.stash_bytes == microbatch * first.stash_bytes
