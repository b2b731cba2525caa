"""What holds for the graphs of models with experts, latents, further tokens, decoders behind encoders, and patches."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from today_helpers import shardings, today_models, workload
from workload_helpers import TODAY, step_macs

from archplace.workloads import (
    ContextKind,
    LayerSharding,
    Model,
    Phase,
    Precision,
    TrainingStep,
    Unit,
    Workload,
    load_workload,
)

cases = today_models().flatmap(lambda model: st.tuples(st.just(model), shardings(model)))


def step_of(model: Model, sharding: LayerSharding, precision: Precision = Precision.BF16) -> TrainingStep:
    training = workload(model, precision)
    assert training.refusal(sharding) is None
    return training.step(sharding)


def repeated_macs(model: Model, sharding: LayerSharding, tokens: int) -> int:
    """What devices of a tensor-parallel group do more than once: downward projections without sequence parallelism."""
    latent = model.latent_attention
    if latent is None or sharding.sequence:
        return 0
    down = model.d_model * (latent.q_lora_rank + latent.kv_lora_rank + latent.qk_rope_head_dim)
    layers = model.n_layers + model.multi_token_prediction
    return 3 * (sharding.tensor - 1) * layers * tokens * down


@settings(max_examples=150, deadline=None)
@given(case=cases)
def test_flops_are_those_of_the_closed_form_under_every_sharding(case: tuple[Model, LayerSharding]) -> None:
    model, sharding = case
    step, training = step_of(model, sharding), workload(model)
    macs = step_macs(step) * sharding.stage_devices
    tokens = training.sequence_length * sharding.microbatch
    exact = Fraction(training.flops_per_step) / 2 / training.global_batch * sharding.microbatch
    assert macs - repeated_macs(model, sharding, tokens) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("name", TODAY)
def test_flops_of_the_models_that_come_along(name: str) -> None:
    training = load_workload(name)
    if name in ("mixtral-8x7b", "mixtral-8x22b", "deepseek-v3"):
        sharding = LayerSharding(microbatch=2, tensor=4, sequence=True, expert=8, expert_tensor=2)
        # fused attention computes half of what a causal mask hides
        training = _unfused(training)
    else:
        sharding = LayerSharding(microbatch=2, tensor=4)
    flops = 2 * step_macs(training.step(sharding)) * sharding.tensor
    tokens = 2 * training.sequence_length
    assert flops == pytest.approx(training.flops_per_step / training.tokens_per_step * tokens, rel=1e-12)


def _unfused(training: Workload) -> Workload:
    return replace(training, fused_attention=False)


@settings(max_examples=150, deadline=None)
@given(case=cases)
def test_devices_hold_all_parameters(case: tuple[Model, LayerSharding]) -> None:
    model, sharding = case
    step, t = step_of(model, sharding), sharding.tensor
    routed = sum(found.expert_parameters * count for found, count in step.layers)
    rest = sum((found.parameters - found.expert_parameters) * count for found, count in step.layers)
    assert routed * sharding.expert * sharding.expert_tensor == routed_parameters(model)
    d, blocks = model.d_model, model.n_layers + model.decoder_layers + model.multi_token_prediction
    # Copies: the token table at the head, at the decoder's embedding, and in each module for a further token; the
    # position table at the decoder's embedding.
    table = model.padded_vocabulary * d
    copies = table * (int(model.tied_head) + int(model.decoder_layers > 0) + model.multi_token_prediction)
    copies += model.position_rows * d if model.decoder_layers else 0
    padding = (model.padded_vocabulary - model.vocabulary) * d * (1 if model.tied_head else 2)
    # Whole on every device: norms, biases behind an exchange, position tables, class token, routers, downward
    # projections.
    norms = 2 * blocks + model.decoder_layers + 3 * model.multi_token_prediction + 1
    norms += int(model.decoder_layers > 0) + int(model.embedding_norm)
    whole = norms * model.norm_parameters
    whole += (2 * blocks + model.decoder_layers) * d if model.bias else 0
    whole += model.position_rows * d * (2 if model.decoder_layers else 1)
    whole += d if model.patches is not None else 0
    if model.experts is not None:
        sparse = blocks - model.experts.dense_layers
        whole += sparse * d * model.experts.n_experts
    if model.latent_attention is not None:
        latent = model.latent_attention
        ranks = latent.q_lora_rank + latent.kv_lora_rank
        whole += blocks * (d * (ranks + latent.qk_rope_head_dim) + ranks)
    assert rest * t == model.parameters - routed_parameters(model) + copies + padding + (t - 1) * whole


def routed_parameters(model: Model) -> int:
    experts = model.experts
    if experts is None:
        return 0
    sparse = model.n_layers + model.multi_token_prediction - experts.dense_layers
    return sparse * experts.n_experts * (3 if model.gated_mlp else 2) * model.d_model * experts.d_ff


@settings(max_examples=150, deadline=None)
@given(case=cases, precision=st.sampled_from([Precision.BF16, Precision.FP8, Precision.FP8_BLOCKS]))
def test_graphs_are_well_formed(case: tuple[Model, LayerSharding], precision: Precision) -> None:
    model, sharding = case
    for found, count in step_of(model, sharding, precision).layers:
        assert count >= 1
        assert found.carried_bytes <= found.input_bytes
        assert found.expert_parameters <= found.parameters
        for operators in (found.forward, found.backward):
            seen: set[str] = set()
            weights: set[str] = set()
            for one in operators:
                assert one.name not in seen
                assert seen.issuperset(one.inputs)
                assert one.phase is Phase.WEIGHT_GRADIENT or weights.isdisjoint(one.inputs)
                seen.add(one.name)
                if one.phase is Phase.WEIGHT_GRADIENT:
                    weights.add(one.name)
                if one.vector is not None:
                    assert min(one.vector.rows, one.vector.row_length, one.vector.write_bytes) > 0
                if one.unit is Unit.NETWORK:
                    assert one.collective is not None
                    assert one.collective.payload_bytes > 0
                    assert one.collective.group_size == sharding.degree(one.collective.axis) > 1


@settings(max_examples=100, deadline=None)
@given(case=cases)
def test_what_leaves_a_layer_holds_what_enters_the_next(case: tuple[Model, LayerSharding]) -> None:
    step = step_of(*case)
    layers = [found for found, _ in step.layers]
    assert layers[0].input_bytes == layers[-1].output_bytes == 0
    for before, after in itertools.pairwise(layers):
        # the head reads only the decoder's part of what the last decoder block passes on
        unread = before.carried_bytes if before.name == "decoder_block" else 0
        assert before.output_bytes - unread == after.input_bytes


@settings(max_examples=60, deadline=None)
@given(case=cases)
def test_stash_is_proportional_to_the_microbatch(case: tuple[Model, LayerSharding]) -> None:
    model, sharding = case
    one, two = (step_of(model, replace(sharding, microbatch=b)) for b in (1, 2))
    for (first, _), (second, _) in zip(one.layers, two.layers, strict=True):
        assert second.stash_bytes == 2 * first.stash_bytes
        assert second.input_bytes == 2 * first.input_bytes


@pytest.mark.parametrize("name", ["t5-11b", "deepseek-v3"])
def test_rings_need_fused_attention(name: str) -> None:
    training = _unfused(load_workload(name))
    sharding = LayerSharding(microbatch=1, context=2, context_kind=ContextKind.RING)
    refusal = training.refusal(sharding)
    assert refusal is not None
    assert "fused_attention: true" in refusal


@settings(max_examples=60, deadline=None)
@given(case=cases, precision=st.sampled_from([Precision.FP8, Precision.FP8_BLOCKS]))
def test_narrow_operands_change_neither_products_nor_parameters(
    case: tuple[Model, LayerSharding], precision: Precision
) -> None:
    wide, narrow = step_of(*case), step_of(*case, precision)
    assert step_macs(wide) == step_macs(narrow)
    for (one, _), (other, _) in zip(wide.layers, narrow.layers, strict=True):
        assert (one.parameters, one.expert_parameters) == (other.parameters, other.expert_parameters)
        assert (one.input_bytes, one.output_bytes) == (other.input_bytes, other.output_bytes)
