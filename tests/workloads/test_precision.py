"""Recipes of number formats: bytes per parameter, products, casts, and what is kept and exchanged."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_helpers import layer, models, operator, step_macs, workload_of

from archplace.workloads import (
    Axis,
    CollectiveKind,
    Format,
    LayerSharding,
    Model,
    OptimizerKind,
    Phase,
    Precision,
    TrainingStep,
    Unit,
    load_model,
    parameter_bytes,
)

CASTING = (Precision.FP8, Precision.FP8_BLOCKS, Precision.MXFP8, Precision.NVFP4)


def step_of(model: Model, precision: Precision, *, sequence_length: int = 128, **degrees: int | bool) -> TrainingStep:
    workload = replace(workload_of(model, sequence_length=sequence_length, fused=True), precision=precision)
    return workload.step(LayerSharding(microbatch=2, **degrees))


@pytest.mark.parametrize(
    ("precision", "weight", "copies", "gradient", "optimizer"),
    [
        # Megatron-Core's table for bf16 parameters with fp32 gradients: 18 bytes
        (Precision.BF16_FP32_GRADIENTS, 2, 0, 4, 12),
        # a bf16 weight, two fp8 copies of it, fp32 gradient, master weight and moments
        (Precision.FP8, 2, 2, 4, 12),
        # DeepSeek-AI 2024, section 3.3.3: fp32 gradient and master weight, two bf16 moments
        (Precision.FP8_BLOCKS, 1, 0, 4, 8),
        # as fp8, with 33 bytes for 32 elements, and with 9 for 16
        (Precision.MXFP8, 2, 2 * 33 / 32, 4, 12),
        (Precision.NVFP4, 2, 2 * 9 / 16, 4, 12),
        # the fp32 weight is its own master
        (Precision.TF32, 4, 0, 4, 8),
    ],
)
def test_bytes_per_parameter(precision: Precision, weight: int, copies: float, gradient: int, optimizer: int) -> None:
    kept = parameter_bytes(OptimizerKind.ADAM, precision)
    assert (kept.weight, kept.weight_copies, kept.gradient, kept.optimizer) == (weight, copies, gradient, optimizer)
    assert kept.total == weight + copies + gradient + optimizer
    work = replace(workload_of(load_model("llama2-7b"), sequence_length=8), precision=precision).optimizer_work(1000)
    own_master = weight if precision is Precision.TF32 else 0
    assert work.read_bytes == 1000 * (gradient + optimizer + own_master)
    assert work.write_bytes == round(1000 * (optimizer + weight + copies))


@pytest.mark.parametrize("precision", CASTING)
def test_linear_layers_of_blocks_run_in_the_narrow_format_and_all_else_does_not(precision: Precision) -> None:
    step = step_of(load_model("llama2-7b"), precision)
    block = layer(step, "block")
    narrow = {o.name for o in (*block.forward, *block.backward) if o.precision == precision.formats.products}
    linear = {"query", "key", "value", "projection", "gate", "up", "ffn_out"}
    gradients = {f"{name}.{which}_gradient" for name in linear for which in ("data", "weight")}
    assert narrow == linear | gradients
    for end in ("embedding", "head"):
        found = layer(step, end)
        assert {o.precision for o in (*found.forward, *found.backward)} == {Format.BF16}


def test_results_leave_the_lanes_scaled_and_wide() -> None:
    b, s, h = 2, 128, 4096
    for precision, scalings in ((Precision.FP8, 1), (Precision.FP8_BLOCKS, h // 128)):
        block = layer(step_of(load_model("llama2-7b"), precision), "block")
        gate = operator(block.forward, "gate")
        assert gate.unit is Unit.FUSED
        assert gate.vector is not None
        assert gate.vector.operations_per_element == scalings
        assert (gate.vector.read_bytes, gate.vector.write_bytes) == (0, b * s * 11008 * 2)
        # gradients of weights leave in fp32
        weight = operator(block.backward, "gate.weight_gradient")
        assert weight.vector is not None
        assert weight.vector.write_bytes == h * 11008 * 4
        # rotary positions come on top
        query = operator(block.forward, "query").vector
        assert query is not None
        assert query.operations_per_element == 3 + scalings


def test_every_operand_is_cast_once() -> None:
    block = layer(step_of(load_model("llama2-7b"), Precision.FP8), "block")
    casts = {o.name for o in block.forward if o.name.endswith("cast")}
    assert casts == {"attention_input.cast", "projection_input.cast", "mlp_input.cast", "ffn_out_input.cast"}
    casts = {o.name for o in block.backward if o.name.endswith("cast")}
    assert casts == {
        f"{name}.gradient_cast" for name in ("query", "key", "value", "projection", "gate", "up", "ffn_out")
    }
    cast = operator(block.forward, "ffn_out_input.cast")
    assert cast.vector is not None
    elements = 2 * 128 * 11008
    # read in two bytes, written row-wise and column-wise in one, kept once
    assert (cast.vector.read_bytes, cast.vector.write_bytes, cast.stash_bytes) == (2 * elements, 2 * elements, elements)
    assert operator(block.forward, "ffn_out").inputs == (cast.name,)


def test_linear_layers_keep_their_inputs_in_one_byte() -> None:
    s, b, h, ff, heads = 128, 2, 4096, 11008, 32
    wide, narrow = (layer(step_of(load_model("llama2-7b"), p), "block") for p in (Precision.BF16, Precision.FP8))
    kept = b * s * (
        2 * h + h  # first norm: its input, and its output as it was cast
        + 2 * h + h  # second norm
        + 2 * 3 * h  # queries, keys, values
        + 2 * h + h + 4 * heads  # context for its gradients, as the projection reads it, and the statistics
        + 2 * 2 * ff + ff  # gate and up; their product as it was cast
    )  # fmt: skip
    assert narrow.stash_bytes == kept
    # two norms' outputs and the activation in one byte instead of two, the context once more in one
    assert wide.stash_bytes - narrow.stash_bytes == b * s * (2 * h + ff - h)


@pytest.mark.parametrize("precision", CASTING)
def test_gathers_move_what_was_cast_and_sums_move_activations(precision: Precision) -> None:
    step = step_of(load_model("gpt3-175b"), precision, tensor=8, sequence=True, overlap_pieces=2)
    block = layer(step, "block")
    elements = 2 * 128 * 12288
    for operators in (block.forward, block.backward):
        for found in operators:
            if found.collective is None:
                continue
            summed = found.collective.kind is CollectiveKind.REDUCE_SCATTER
            size = 2 if summed else precision.formats.products.bytes
            share = 1 if "saved" in found.name else 2
            assert found.collective.payload_bytes == size * elements // share
    assert operator(block.forward, "attention_input.0.all_gather").inputs == ("attention_input.cast",)


def test_tokens_are_dispatched_in_fp8_only_by_the_recipe_that_does() -> None:
    # DeepSeek-AI 2024, section 3.3.3: dispatch in fp8, combine in bf16
    model = load_model("mixtral-8x7b")
    copies = 2 * 128 * model.d_model * 2
    for precision, size in ((Precision.BF16, 2), (Precision.FP8, 2), (Precision.FP8_BLOCKS, 1)):
        name = next(found.name for found, _ in step_of(model, precision).layers if found.expert_parameters)
        block = layer(step_of(model, precision, expert=4), name)
        payloads = {
            found.name: found.collective.payload_bytes
            for found in (*block.forward, *block.backward)
            if found.collective is not None and found.collective.axis is Axis.EXPERT
        }
        assert payloads == {
            "dispatch.all_to_all": copies * size,
            "combine.all_to_all": copies * 2,
            "combine.gradient.all_to_all": copies * size,
            "dispatch.gradient.all_to_all": copies * 2,
        }
        assert operator(block.forward, "router").precision == Format.BF16
        assert operator(block.forward, "expert_gate").precision == precision.formats.products


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    width=st.sampled_from([1, 2]),
    precision=st.sampled_from(Precision),
    pieces=st.sampled_from([1, 2]),
    sequence=st.booleans(),
)
def test_formats_change_neither_products_nor_parameters(
    data: st.DataObject, width: int, precision: Precision, pieces: int, sequence: bool
) -> None:
    model = data.draw(models(width=width))
    degrees = {"tensor": width, "sequence": sequence and width > 1, "overlap_pieces": pieces if width > 1 else 1}
    plain, other = (step_of(model, p, sequence_length=16, **degrees) for p in (Precision.FP32, precision))
    assert step_macs(plain) == step_macs(other)
    for (one, _), (two, _) in zip(plain.layers, other.layers, strict=True):
        assert two.parameters == one.parameters
        assert two.stash_bytes <= one.stash_bytes
    for found, _ in other.layers:
        for operators in (found.forward, found.backward):
            weights = {o.name for o in operators if o.phase is Phase.WEIGHT_GRADIENT}
            assert all(weights.isdisjoint(o.inputs) for o in operators if o.name not in weights)


def test_recipes_are_consistent() -> None:
    for precision in Precision:
        formats = precision.formats
        assert formats.casts == (formats.products in (Format.FP8, Format.MXFP8, Format.NVFP4))
        assert formats.activations in (formats.dispatch, Format.BF16)
        assert precision.element_bytes == formats.activations.bytes
        assert (formats.master is None) == (precision in (Precision.FP32, Precision.TF32))


def test_scales_of_blocks_are_stored_with_the_elements() -> None:
    assert [form.bytes_of(64) for form in (Format.TF32, Format.FP8, Format.MXFP8, Format.NVFP4)] == [256, 64, 66, 36]
    assert Format.NVFP4.bytes_of(1) == 1
    cast = operator(layer(step_of(load_model("llama2-7b"), Precision.MXFP8), "block").forward, "ffn_out_input.cast")
    assert cast.vector is not None
    elements = 2 * 128 * 11008
    # a scale for every 32 elements of a row, and of a column; the largest magnitude of each block is found before
    assert cast.vector.write_bytes == 2 * elements * 33 // 32
    assert cast.vector.reductions == 1
    assert cast.stash_bytes == elements * 33 // 32


def test_fp32_with_products_in_tf32_differs_in_nothing_else() -> None:
    plain, fast = (step_of(load_model("llama2-7b"), p) for p in (Precision.FP32, Precision.TF32))
    for (one, _), (two, _) in zip(plain.layers, fast.layers, strict=True):
        assert one.stash_bytes == two.stash_bytes
        for before, after in zip((*one.forward, *one.backward), (*two.forward, *two.backward), strict=True):
            assert replace(after, precision=before.precision) == before
            assert after.precision == (Format.TF32 if before.unit in (Unit.TENSOR, Unit.FUSED) else after.precision)
