"""Replicas that spread experts send tokens there and back."""

from collections import Counter

import pytest
from tensor_layers import DATA, FORWARD, WEIGHT, LayerBuilder

from archplace.workloads import CollectiveKind, LayerSharding, OptimizerKind, Phase, Precision
from archplace.workloads.operators import Axis
from archplace.workloads.traced.tensor_graph import Symbol, TracedModel
from archplace.workloads.traced.traced_workload import TracedWorkload

BATCH, TOKENS, WIDTH, INNER, EXPERTS, CAPACITY = 2, 2048, 4096, 8192, 8, 512


def experts_layer():
    """Dense dispatch with a capacity, as in GShard (Lepikhin et al. 2020, arXiv:2006.16668, algorithm 1)."""
    sizes = {"b": BATCH, "s": TOKENS, "d": WIDTH, "f": INNER, "e": EXPERTS, "c": CAPACITY}
    g = LayerBuilder(sizes, {"b": Symbol.BATCH, "s": Symbol.SEQUENCE, "e": Symbol.EXPERT})
    g.tensor("x", "b s d")
    g.parameter("router", "d e")
    g.parameter("up", "e d f")
    g.parameter("down", "e f d")
    g.product("logits", FORWARD, {"x": "b s d", "router": "d e"}, {"logits.out": "b s e"})
    g.map("gate", FORWARD, {"logits.out": "b s e"}, {"mask": "b s e c"})
    g.product("dispatch", FORWARD, {"mask": "b s e c", "x": "b s d"}, {"sent": "b e c d"})
    g.product("up.product", FORWARD, {"sent": "b e c d", "up": "e d f"}, {"inner": "b e c f"})
    g.map("relu", FORWARD, {"inner": "b e c f"}, {"activated": "b e c f"})
    g.product("down.product", FORWARD, {"activated": "b e c f", "down": "e f d"}, {"done": "b e c d"})
    g.product("combine", FORWARD, {"mask": "b s e c", "done": "b e c d"}, {"y": "b s d"})
    g.tensor("dy", "b s d")
    g.product("combine.data", DATA, {"mask": "b s e c", "dy": "b s d"}, {"ddone": "b e c d"})
    g.product("down.data", DATA, {"ddone": "b e c d", "down": "e f d"}, {"dactivated": "b e c f"})
    g.gradient("ddown", "e f d", "down")
    g.product("down.weight", WEIGHT, {"activated": "b e c f", "ddone": "b e c d"}, {"ddown": "e f d"})
    g.map("relu.data", DATA, {"dactivated": "b e c f", "activated": "b e c f"}, {"dinner": "b e c f"})
    g.gradient("dup", "e d f", "up")
    g.product("up.weight", WEIGHT, {"sent": "b e c d", "dinner": "b e c f"}, {"dup": "e d f"})
    g.product("up.data", DATA, {"dinner": "b e c f", "up": "e d f"}, {"dsent": "b e c d"})
    g.product("dispatch.data", DATA, {"mask": "b s e c", "dsent": "b e c d"}, {"dx": "b s d"})
    return g.layer(enters=["x"], leaves=["y"], gradients_enter=["dy"], gradients_leave=["dx"])


def dense_layer():
    g = LayerBuilder({"b": BATCH, "s": TOKENS, "d": WIDTH}, {"b": Symbol.BATCH, "s": Symbol.SEQUENCE})
    g.tensor("x", "b s d")
    g.parameter("w", "d d")
    g.map("relu", FORWARD, {"x": "b s d"}, {"y": "b s d"})
    g.tensor("dy", "b s d")
    g.map("relu.data", DATA, {"dy": "b s d", "y": "b s d"}, {"dx": "b s d"})
    return g.layer("dense", enters=["x"], leaves=["y"], gradients_enter=["dy"], gradients_leave=["dx"])


@pytest.fixture(scope="module")
def job():
    layers = ((dense_layer(), 1), (experts_layer(), 4), (dense_layer(), 1))
    model = TracedModel(name="moe", layers=layers, batch=BATCH, sequence_length=TOKENS, model_flops=1.0)
    return TracedWorkload(
        name="moe",
        model=model,
        content_sha256="0",
        sequence_length=TOKENS,
        global_batch=64,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
    )


def collectives(operators):
    return Counter(
        (op.collective.kind, op.collective.axis, op.collective.payload_bytes) for op in operators if op.collective
    )


@pytest.mark.parametrize("spread", [2, 4, 8])
@pytest.mark.parametrize("microbatch", [1, 2])
def test_tokens_travel_to_their_experts_and_back(job, spread, microbatch):
    alone = job.step(LayerSharding(microbatch=microbatch)).layers[1][0]
    found = job.step(LayerSharding(microbatch=microbatch, expert=spread)).layers[1][0]
    sent = microbatch * EXPERTS * CAPACITY * WIDTH * 2
    twice = {(CollectiveKind.ALL_TO_ALL, Axis.EXPERT, sent): 2}
    assert collectives(found.forward) == twice
    assert collectives(found.backward) == twice
    for graph, other in ((found.forward, alone.forward), (found.backward, alone.backward)):
        assert sum(op.macs for op in graph) == sum(op.macs for op in other)
    of_experts = 2 * EXPERTS * WIDTH * INNER
    assert (alone.expert_parameters, alone.parameters) == (of_experts, of_experts + WIDTH * EXPERTS)
    assert (found.expert_parameters, found.parameters) == (of_experts // spread, of_experts // spread + WIDTH * EXPERTS)
    assert (found.input_bytes, found.stash_bytes) == (alone.input_bytes, alone.stash_bytes)
    gemm = next(op.gemm for op in found.forward if op.name == "up.product")
    assert (gemm.batch, gemm.m) == (EXPERTS // spread, spread * microbatch * CAPACITY)
    assert all(op.phase is not Phase.OPTIMIZER for op in found.backward)


def test_layers_without_experts_see_nothing_of_it(job):
    alone, found = (job.step(LayerSharding(microbatch=2, expert=expert)).layers for expert in (1, 4))
    assert alone[0] == found[0]
    assert alone[-1] == found[-1]


@pytest.mark.parametrize(
    ("sharding", "reason"),
    [
        (LayerSharding(microbatch=1, expert=3), "expert parallel width 3 divides no dimension"),
        (LayerSharding(microbatch=1, expert=2, tensor=2), "expert parallel width 2 with tensor 2 x context 1"),
        (LayerSharding(microbatch=1, expert_tensor=2), "expert-tensor parallel width 2"),
    ],
)
def test_what_is_not_known_is_refused(job, sharding, reason):
    assert job.refusal(sharding).startswith(reason)


def test_a_model_without_experts_has_none_to_spread(traced_gpt_job):
    reason = traced_gpt_job.refusal(LayerSharding(microbatch=1, expert=2))
    assert reason == "expert parallel width 2: traced-gpt is not known to have experts"
