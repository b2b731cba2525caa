"""Mixture of experts: loads, exchanges, parameters and refusals, by hand."""

from dataclasses import replace

import pytest
from workload_helpers import layer, operator

from archplace.workloads import (
    Axis,
    Collective,
    CollectiveKind,
    Experts,
    Gemm,
    Layer,
    LayerSharding,
    Model,
    OptimizerKind,
    Phase,
    Precision,
    TrainingStep,
    Workload,
    load_model,
    load_workload,
)


def step_of(model: Model, sharding: LayerSharding, *, sequence_length: int = 4096) -> TrainingStep:
    workload = Workload(
        name="w",
        model=model,
        sequence_length=sequence_length,
        global_batch=sharding.microbatch,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
    )
    return workload.step(sharding)


def exchanges(found: Layer, axis: Axis) -> dict[str, tuple[CollectiveKind, int, int]]:
    every = [(o.name, o.collective) for o in (*found.forward, *found.backward) if o.collective is not None]
    return {name: (one.kind, one.payload_bytes, one.group_size) for name, one in every if one.axis is axis}


MIXTRAL = load_model("mixtral-8x7b")
SHARED = replace(
    MIXTRAL,
    experts=Experts(n_experts=8, top_k=2, d_ff=14336, shared_experts=2, shared_d_ff=1024, dense_layers=4),
)


def test_dispatch_and_combine_move_the_routed_tokens() -> None:
    b, s, d, k = 2, 4096, 4096, 2
    block = layer(step_of(MIXTRAL, LayerSharding(microbatch=b, expert=8)), "block")
    sent = (CollectiveKind.ALL_TO_ALL, b * s * k * d * 2, 8)
    # forth and back, forward and backward
    assert exchanges(block, Axis.EXPERT) == {
        "dispatch.all_to_all": sent,
        "combine.all_to_all": sent,
        "combine.gradient.all_to_all": sent,
        "dispatch.gradient.all_to_all": sent,
    }
    assert exchanges(block, Axis.TENSOR) == exchanges(block, Axis.EXPERT_TENSOR) == {}


def test_expert_tensor_parallel_groups_gather_copies_and_scatter_sums() -> None:
    b, s, d, k, t = 1, 4096, 4096, 2, 4
    sharding = LayerSharding(microbatch=b, tensor=t, sequence=True, expert=4, expert_tensor=2)
    block = layer(step_of(MIXTRAL, sharding), "block")
    sent = b * s // t * k * d * 2  # each device routes its own tokens
    moved, gathered, scattered = (
        (CollectiveKind.ALL_TO_ALL, sent, 4),
        (CollectiveKind.ALL_GATHER, 2 * sent, 2),
        (CollectiveKind.REDUCE_SCATTER, 2 * sent, 2),
    )
    assert set(exchanges(block, Axis.EXPERT).values()) == {moved}
    assert exchanges(block, Axis.EXPERT_TENSOR) == {
        "dispatch.all_gather": gathered,
        "combine.reduce_scatter": scattered,
        "combine.gradient.all_gather": gathered,
        "dispatch.gradient.reduce_scatter": scattered,
    }
    # the sum of the scattered parts comes before the way home
    assert operator(block.forward, "combine.all_to_all").inputs == ("combine.reduce_scatter",)
    # 2 experts with half their columns; the copies of 2 devices, half of them for each expert
    copies = b * s // t * k * 2 // 2
    assert operator(block.forward, "expert_gate").gemm == Gemm(batch=2, m=copies, n=14336 // 2, k=d)
    assert operator(block.forward, "expert_out").gemm == Gemm(batch=2, m=copies, n=d, k=14336 // 2)
    assert operator(block.backward, "expert_up.weight_gradient").gemm == Gemm(batch=2, m=d, n=14336 // 2, k=copies)
    assert operator(block.backward, "expert_up.data_gradient").gemm == Gemm(batch=2, m=copies, n=d, k=14336 // 2)


def test_one_device_with_all_experts_exchanges_nothing() -> None:
    block = layer(step_of(MIXTRAL, LayerSharding(microbatch=1)), "block")
    assert all(o.collective is None for o in (*block.forward, *block.backward))
    assert operator(block.forward, "expert_gate").gemm == Gemm(batch=8, m=4096 * 2 // 8, n=14336, k=4096)
    assert "dispatch.sort" not in {o.name for o in block.forward}


def test_router_sees_each_token_once() -> None:
    sharding = LayerSharding(microbatch=2, tensor=8, sequence=True, expert=8)
    block = layer(step_of(MIXTRAL, sharding), "block")
    tokens = 2 * 4096 // 8
    assert operator(block.forward, "router").gemm == Gemm(m=tokens, n=8, k=4096)
    assert operator(block.forward, "router").parameters == 4096 * 8
    work = operator(block.forward, "router.softmax").vector
    assert work is not None
    assert (work.rows, work.row_length, work.read_bytes) == (tokens, 8, tokens * 8 * 4)
    weight = operator(block.backward, "router.weight_gradient")
    assert (weight.gemm, weight.phase) == (Gemm(m=4096, n=8, k=tokens), Phase.WEIGHT_GRADIENT)


@pytest.mark.parametrize(("expert", "expert_tensor"), [(1, 1), (2, 1), (8, 1), (4, 2), (1, 8)])
def test_experts_and_their_columns_are_spread(expert: int, expert_tensor: int) -> None:
    sharding = LayerSharding(microbatch=1, expert=expert, expert_tensor=expert_tensor)
    step = step_of(SHARED, sharding)
    dense, block = layer(step, "dense_block"), layer(step, "expert_block")
    routed = 8 * 3 * 4096 * 14336
    assert dense.expert_parameters == 0
    assert block.expert_parameters * expert * expert_tensor == routed
    # attention, norms, router and shared experts are whole
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    assert block.parameters - block.expert_parameters == attention + 2 * 4096 + 8 * 4096 + 3 * 4096 * 2048
    assert [(found.name, count) for found, count in step.layers] == [
        ("embedding", 1),
        ("dense_block", 4),
        ("expert_block", 28),
        ("head", 1),
    ]


def test_what_a_block_of_experts_keeps() -> None:
    b, s, d, ff, k = 1, 4096, 4096, 14336, 2
    for expert in (1, 8):
        block = layer(step_of(MIXTRAL, LayerSharding(microbatch=b, expert=expert)), "block")
        attention = (32 + 2 * 8) * 128 + 32 * s + 32 * 128  # queries, keys, values; probabilities; context
        norms = 4 * d
        router = 8 * 4 + k * 8  # fp32 probabilities, number and weight of the chosen
        copies = k * (d + 3 * ff)  # input; gate, up and their product
        assert block.stash_bytes == b * s * (2 * (attention + norms + copies) + router)


def test_shared_experts_are_one_dense_part() -> None:
    sharding = LayerSharding(microbatch=1, tensor=2, sequence=True)
    block = layer(step_of(SHARED, sharding), "expert_block")
    assert operator(block.forward, "shared_gate").gemm == Gemm(m=4096, n=1024, k=4096)
    assert operator(block.forward, "shared_ffn_out").gemm == Gemm(m=4096, n=4096, k=1024)
    hidden = 4096 * 4096 * 2
    gathered = Collective(kind=CollectiveKind.ALL_GATHER, payload_bytes=hidden, group_size=2)
    assert operator(block.forward, "shared_mlp_input.all_gather").collective == gathered
    # they wait for the norm alone, so that they can run beside the exchange of the routed tokens
    assert operator(block.forward, "shared_mlp_input.all_gather").inputs == ("mlp_norm",)
    assert set(operator(block.backward, "experts.gradient_sum").inputs) == {
        "dispatch.permute.gradient",
        "router.data_gradient",
        "shared_mlp_input.gradient_reduce_scatter",
    }


def test_capacity_is_computed_whether_tokens_come_or_not() -> None:
    experts = MIXTRAL.experts
    assert experts is not None
    padded = replace(MIXTRAL, experts=replace(experts, capacity_factor=1.25))
    block = layer(step_of(padded, LayerSharding(microbatch=1, expert=4)), "block")
    each = 4096 * 2 * 5 // 4 // 8
    # of each of 4 devices, as many for each of 2 experts
    assert operator(block.forward, "expert_gate").gemm == Gemm(batch=2, m=4 * each, n=14336, k=4096)
    assert set(exchanges(block, Axis.EXPERT).values()) == {(CollectiveKind.ALL_TO_ALL, 8 * each * 4096 * 2, 4)}
    assert padded.flops_per_token(4096) == MIXTRAL.flops_per_token(4096)
    small = replace(MIXTRAL, experts=replace(experts, capacity_factor=0.5))
    block = layer(step_of(small, LayerSharding(microbatch=1)), "block")
    assert operator(block.forward, "expert_gate").gemm == Gemm(batch=8, m=4096 * 2 // 2 // 8, n=14336, k=4096)


def test_loads_that_are_not_whole_are_rounded_up() -> None:
    block = layer(step_of(MIXTRAL, LayerSharding(microbatch=1), sequence_length=3), "block")
    assert operator(block.forward, "expert_gate").gemm == Gemm(batch=8, m=1, n=14336, k=4096)  # 6 copies, 8 experts


def test_experts_without_gate_keep_what_the_weights_gradient_needs() -> None:
    model = replace(MIXTRAL, gated_mlp=False)
    block = layer(step_of(model, LayerSharding(microbatch=1)), "block")
    inward = operator(block.forward, "expert_in")
    assert inward.stash_bytes == 4096 * 2 * (4096 + 2 * 14336) * 2
    assert block.expert_parameters == 8 * 2 * 4096 * 14336


@pytest.mark.parametrize(
    ("sharding", "reason"),
    [
        (
            LayerSharding(microbatch=1, expert=3),
            "expert parallel width 3 does not divide the 8 experts of mixtral-8x7b",
        ),
        (
            LayerSharding(microbatch=1, expert_tensor=3),
            "expert-tensor parallel width 3 does not divide the 14336 columns of an expert of mixtral-8x7b",
        ),
        (LayerSharding(microbatch=1, expert=0), "expert parallel width 0: must be at least 1"),
        (
            LayerSharding(microbatch=1, tensor=4),
            "tensor parallel width 4 without sequence parallelism: the devices of a group would all route the same "
            "tokens to the 8 experts of mixtral-8x7b; turn sequence parallelism on",
        ),
    ],
)
def test_refuses_what_experts_cannot_share(sharding: LayerSharding, reason: str) -> None:
    assert load_workload("mixtral-8x7b").refusal(sharding) == reason


def test_dense_models_have_no_experts_to_share() -> None:
    refusal = load_workload("gpt3-175b").refusal(LayerSharding(microbatch=1, expert=8))
    assert refusal is not None
    assert refusal.startswith("expert parallel width 8 and expert-tensor parallel width 1: gpt3-175b has no experts")


def test_shared_experts_must_divide() -> None:
    model = replace(SHARED, experts=replace(SHARED.experts, shared_d_ff=1023))
    workload = replace(load_workload("mixtral-8x7b"), model=model)
    refusal = workload.refusal(LayerSharding(microbatch=1, tensor=4, sequence=True))
    assert refusal == "tensor parallel width 4 does not divide the 2046 columns of the shared experts of mixtral-8x7b"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_k": 9}, "experts.top_k 9 is more than experts.n_experts 8"),
        ({"n_experts": 0}, "experts.n_experts is 0, must be at least 1"),
        ({"shared_experts": -1}, "experts.shared_experts is -1, must be at least 0"),
        ({"capacity_factor": float("nan")}, "experts.capacity_factor is nan, must be more than 0 and finite"),
    ],
)
def test_experts_refuse_numbers_out_of_range(changes: dict[str, float], message: str) -> None:
    experts = MIXTRAL.experts
    assert experts is not None
    with pytest.raises(ValueError, match=message):
        replace(experts, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": True}, "experts have no biases"),
        ({"dropout": 0.1}, "dropout is 0.1, but experts have none on their output"),
        ({"n_layers": 4}, "experts.dense_layers is 4 of 4 layers"),
    ],
)
def test_models_refuse_experts_that_do_not_fit(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SHARED, **changes)
