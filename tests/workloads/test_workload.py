"""A workload: what it refuses, what it keeps per parameter, and what its optimizer does."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_helpers import models

from archplace.workloads import LayerSharding, Model, OptimizerKind, Precision, Workload, load_model, load_workload


def workload_of(model: Model, *, global_batch: int = 64, sequence_length: int = 8) -> Workload:
    return Workload(
        name="w",
        model=model,
        sequence_length=sequence_length,
        global_batch=global_batch,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
    )


@pytest.mark.parametrize(
    ("name", "width", "reason"),
    [
        ("gpt2-xl", 2, "tensor parallel width 2 does not divide the 25 heads of gpt2-xl"),
        ("llama2-7b", 3, "width 3 does not divide the 32 heads and the 11008 feed-forward columns and the 32000 rows"),
        ("llama2-70b", 16, "width 16 does not divide the 8 key and value heads of llama2-70b"),
        ("gpt3-175b", 0, "tensor parallel width 0: must be at least 1"),
    ],
)
def test_refuses_a_width_with_the_numbers(name: str, width: int, reason: str) -> None:
    workload = load_workload(name)
    refusal = workload.refusal(LayerSharding(tensor=width, microbatch=1))
    assert refusal is not None
    assert reason in refusal
    with pytest.raises(ValueError, match=r"tensor parallel width"):
        workload.step(LayerSharding(tensor=width, microbatch=1))


@pytest.mark.parametrize(
    ("microbatch", "reason"),
    [
        (3, "microbatch 3 does not divide the global batch of 1024 sequences"),
        (2048, "microbatch 2048 does not divide the global batch of 1024 sequences"),
        (0, "microbatch 0: must be at least 1 sequence"),
        (-1, "microbatch -1: must be at least 1 sequence"),
    ],
)
def test_refuses_a_microbatch_with_the_numbers(microbatch: int, reason: str) -> None:
    assert load_workload("llama2-7b").refusal(LayerSharding(tensor=1, microbatch=microbatch)) == reason


@settings(max_examples=100, deadline=None)
@given(model=models(), width=st.integers(-1, 9), microbatch=st.integers(-1, 9))
def test_a_step_exists_exactly_where_nothing_is_refused(model: Model, width: int, microbatch: int) -> None:
    workload = workload_of(model)
    refusal = workload.refusal(LayerSharding(tensor=width, microbatch=microbatch))
    if refusal is None:
        step = workload.step(LayerSharding(tensor=width, microbatch=microbatch))
        assert step.tokens == microbatch * 8
        assert [(layer.name, count) for layer, count in step.layers] == [
            ("embedding", 1),
            ("block", model.n_layers),
            ("head", 1),
        ]
    else:
        assert len(refusal.splitlines()) == 1
        with pytest.raises(ValueError, match=r"tensor parallel|microbatch"):
            workload.step(LayerSharding(tensor=width, microbatch=microbatch))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2, 4, 8]))
def test_a_width_that_divides_everything_is_accepted(data: st.DataObject, width: int) -> None:
    model = data.draw(models(width=width))
    assert workload_of(model).refusal(LayerSharding(tensor=width, microbatch=2)) is None


def test_steps_are_reproducible_and_comparable() -> None:
    workload = load_workload("llama2-7b")
    first, second = (workload.step(LayerSharding(tensor=4, microbatch=2)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("optimizer", "precision", "weight", "gradient", "state"),
    [
        # Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12 = 16 bytes
        (OptimizerKind.ADAM, Precision.BF16, 2, 2, 12),
        (OptimizerKind.ADAM, Precision.FP16, 2, 2, 12),
        (OptimizerKind.ADAM, Precision.FP32, 4, 4, 8),
        # Micikevicius et al. 2018, section 3.1: an fp32 master weight whatever the optimizer
        (OptimizerKind.SGD, Precision.FP16, 2, 2, 4),
        (OptimizerKind.SGD, Precision.FP32, 4, 4, 0),
    ],
)
def test_bytes_per_parameter_and_what_an_update_moves(
    optimizer: OptimizerKind, precision: Precision, weight: int, gradient: int, state: int
) -> None:
    workload = replace(load_workload("llama2-7b"), optimizer=optimizer, precision=precision)
    kept = workload.parameter_bytes
    assert (kept.weight, kept.gradient, kept.optimizer) == (weight, gradient, state)
    work = workload.optimizer_work(1000)
    # Everything kept is read but a weight that a master weight stands behind; everything kept is written but the
    # gradient.
    rounded = weight if precision is not Precision.FP32 else 0
    assert work.read_bytes == 1000 * (kept.total - rounded)
    assert work.write_bytes == 1000 * (kept.total - gradient)
    assert work.elements == 1000


def test_an_update_of_nothing_moves_nothing() -> None:
    work = load_workload("llama2-7b").optimizer_work(0)
    assert (work.elements, work.read_bytes, work.write_bytes) == (0, 0, 0)
    with pytest.raises(ValueError, match="parameters is -1"):
        load_workload("llama2-7b").optimizer_work(-1)


def test_flops_per_step() -> None:
    workload = load_workload("gpt3-175b")
    # Narayanan et al. 2021, equation 3 with 72 for 96
    b, s, layers, h, v = 1536, 2048, 96, 12288, 51200
    expected = 72 * b * s * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h))
    assert workload.flops_per_step == pytest.approx(expected, rel=1e-12)
    assert workload.tokens_per_step == b * s


def test_learned_positions_limit_the_sequence() -> None:
    with pytest.raises(ValueError, match=r"sequence_length is 1025, but gpt2-xl has learned positions for 1024 tokens"):
        workload_of(load_model("gpt2-xl"), sequence_length=1025)
    # Rotary positions have no table to run out of.
    assert workload_of(load_model("llama2-7b"), sequence_length=8192).sequence_length == 8192


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"name is empty.*sequence_length is 0.*global_batch is -2"):
        replace(load_workload("llama2-7b"), name=" ", sequence_length=0, global_batch=-2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "name is empty"),
        ({"d_model": -1, "n_layers": 0}, r"n_layers is 0, must be at least 1; d_model is -1, must be at least 1"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"attention_dropout": 1.0}, "attention_dropout is 1.0, must be at least 0 and less than 1"),
        ({"n_kv_heads": 5}, "n_kv_heads 5 does not divide n_heads 32"),
        ({"padded_vocabulary": 31999}, "padded_vocabulary 31999 is less than vocabulary 32000"),
        ({"head_dim": 127}, "head_dim 127 is odd"),
        ({"position_offset": 2}, "position_offset needs positions: learned"),
        ({"token_types": -1}, "token_types is -1, must not be negative"),
        ({"next_sentence": True}, "next_sentence needs kind: encoder"),
    ],
)
def test_models_refuse_dimensions_that_do_not_fit(changes: dict[str, float | str], message: str) -> None:
    model = load_model("llama2-7b")
    with pytest.raises(ValueError, match=message):
        replace(model, **changes)
