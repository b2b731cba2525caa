"""A model scaled to other sizes is the model that a trace of these sizes shows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_gpt import gpt_trace, lifted_gpt

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traced.lift import Lifted
from archplace.workloads.traced.scaling import follows, learn, lift_pair, scale
from archplace.workloads.traced.tensor_graph import Symbol, TensorLayer, TensorRole


@pytest.mark.parametrize("attention", ["fused", "plain"])
def test_scaled_batch_equals_a_trace_of_that_batch(attention: str) -> None:
    scaled = scale(lifted_gpt(2, batch=2, attention=attention).model, batch=4)
    assert scaled == lifted_gpt(2, batch=4, attention=attention).model


@pytest.mark.parametrize("attention", ["fused", "plain"])
def test_scaled_sequence_equals_a_trace_of_that_length(attention: str) -> None:
    scaled = scale(lifted_gpt(2, attention=attention).model, sequence_length=20)
    assert scaled == lifted_gpt(2, sequence=20, attention=attention).model


def test_scaled_to_one_sequence_has_the_sizes_of_a_trace_of_one() -> None:
    scaled, traced = scale(lifted_gpt(2).model, batch=1), lifted_gpt(2, batch=1).model
    assert scaled.model_flops == traced.model_flops
    for (one, _), (other, _) in zip(scaled.layers, traced.layers, strict=True):
        assert [(t.name, t.bytes) for t in one.tensors] == [(t.name, t.bytes) for t in other.tensors]
        assert [op.macs for op in one.operators] == [op.macs for op in other.operators]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 64), st.integers(1, 64))
def test_flops_grow_as_the_closed_form_says(batch: int, length: int) -> None:
    """Products with weights grow as the tokens, those of attention as the tokens times the length."""
    model = lifted_gpt(2).model
    base = model.model_flops
    attention = 2 * 12 * 32 * model.sequence_length * model.sequence_length * model.batch
    tokens = batch * length / (model.batch * model.sequence_length)
    expected = (base - attention) * tokens + attention * tokens * length / model.sequence_length
    assert scale(model, batch=batch, sequence_length=length).model_flops == pytest.approx(expected, rel=1e-12)


def test_there_and_back_again() -> None:
    model = lifted_gpt(2).model
    assert scale(scale(model, batch=6, sequence_length=36), batch=2, sequence_length=12) == model
    assert scale(scale(model, batch=1, sequence_length=1), batch=2, sequence_length=12) == model
    assert scale(model) == model == scale(model, batch=2, sequence_length=12)


def test_activations_follow_the_batch() -> None:
    assert follows(lifted_gpt(2).model, Symbol.BATCH) > 0.95


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({"batch": 0}, "batch is 0"), ({"sequence_length": -3}, "sequence_length is -3")],
)
def test_sizes_below_one_are_refused(sizes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scale(lifted_gpt(2).model, **sizes)


def test_one_sequence_shows_no_dimension_to_scale() -> None:
    found = lifted_gpt(2, batch=1)
    assert any("trace a batch of at least 2" in note for note in found.notes)
    with pytest.raises(ValueError, match="batch cannot become 2: in host no dimension"):
        scale(found.model, batch=2)


def test_a_pair_confirms_what_one_trace_shows() -> None:
    alone = lifted_gpt(2)
    assert lift_pair(gpt_trace(2), gpt_trace(2, batch=4)) == alone
    assert learn(alone, lifted_gpt(2, sequence=20)) == alone


def test_a_pair_shows_what_one_trace_hides() -> None:
    """Without symbols in the first model all of them are learned from two further traces, but for constants."""
    blind = forgotten(lifted_gpt(2))
    learned = learn(learn(blind, lifted_gpt(2, batch=4)), lifted_gpt(2, sequence=20))
    assert learned.model == lifted_gpt(2).model
    assert any("only the second trace shows" in note for note in learned.notes)


def test_a_pair_of_other_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"other layers.*2 × block.*3 × block"):
        learn(lifted_gpt(2), lifted_gpt(3, batch=4))


def test_a_pair_of_other_operators_is_refused() -> None:
    with pytest.raises(ConfigError, match="differ in more than sizes"):
        learn(lifted_gpt(2), lifted_gpt(2, batch=4, attention="plain"))


def test_a_pair_of_equal_sizes_teaches_nothing() -> None:
    with pytest.raises(ConfigError, match="batch 2 and sequence length 12"):
        learn(lifted_gpt(2), lifted_gpt(2))


def test_what_could_follow_either_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be said what it follows"):
        learn(forgotten(lifted_gpt(2)), lifted_gpt(2, batch=4, sequence=24))


def forgotten(lifted: Lifted) -> Lifted:
    """The same without symbols of batch and sequence."""

    def blind(layer: TensorLayer) -> TensorLayer:
        return replace(
            layer,
            tensors=tuple(
                replace(one, dims=tuple(tuple(replace(atom, symbol=Symbol.FIXED) for atom in dim) for dim in one.dims))
                for one in layer.tensors
            ),
            operators=tuple(
                replace(op, loops=tuple(replace(loop, symbol=Symbol.FIXED) for loop in op.loops))
                for op in layer.operators
            ),
        )

    model = lifted.model
    return replace(lifted, model=replace(model, layers=tuple((blind(layer), n) for layer, n in model.layers)))


def test_parameters_stay() -> None:
    model = lifted_gpt(2).model
    scaled = scale(model, batch=7, sequence_length=5)
    for (one, _), (other, _) in zip(model.layers, scaled.layers, strict=True):
        assert [t for t in one.tensors if t.role is TensorRole.PARAMETER] == [
            t for t in other.tensors if t.role is TensorRole.PARAMETER
        ]
