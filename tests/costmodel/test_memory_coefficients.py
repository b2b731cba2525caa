"""The memory of stages from coefficients: by hand, and by laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_helpers import ADAM, chain, layer, replicas

from archplace.costmodel import (
    POLICIES,
    Allowance,
    Offload,
    Replicas,
    SharedStates,
    StateSharding,
    chain_exchanges,
    memory_coefficients,
    memory_items,
    policy_of,
    updated_parameters,
)
from archplace.workloads import LayerSharding, Recompute, load_workload

BARE = Allowance(fragmentation=0.0, reserved_bytes=0.0)
NONE, SELECTIVE, FULL = POLICIES


def coefficients(layers, states=SharedStates.NONE, shards=1, *, allowance=BARE, **how):
    offload = how.pop("offload", None)
    return memory_coefficients(
        layers,
        ADAM,
        states=StateSharding(states=states, **how),
        replicas=replicas(dense_shards=shards, expert_shards=shards),
        offload=offload,
        allowance=allowance,
    )


def stage(found, counts, policy, in_flight, entering=0, leaving=0):
    return float(found.stage_bytes(counts, policy, in_flight, entering_bytes=entering, leaving_bytes=leaving))


def test_policies_by_hand():
    found = coefficients(chain())
    assert stage(found, [0, 3, 0], NONE, 4) == 3 * 16_000 + 4 * 3 * 340
    assert stage(found, [0, 3, 0], SELECTIVE, 4) == 3 * 16_000 + 4 * 3 * 100 + 240
    assert stage(found, [0, 3, 0], FULL, 4) == 3 * 16_000 + 4 * 3 * 20 + 320
    # embedding and head keep everything
    assert stage(found, [1, 1, 1], FULL, 2.5) == 16 * 11_100 + 2.5 * (30 + 20 + 900) + 320


def test_boundaries_and_allowance_by_hand():
    found = coefficients(chain(), allowance=Allowance(fragmentation=0.1, reserved_bytes=7, outputs_kept=True))
    expected = 2 * 16_000 + 1.1 * (3 * 2 * 340 + 2 * (20 + 25) + 3 * 25) + 7
    assert stage(found, [0, 2, 0], NONE, 3, entering=20, leaving=25) == pytest.approx(expected, rel=1e-14)


def test_shared_parameters_by_hand():
    found = coefficients(chain(), SharedStates.PARAMETERS, 4)
    # two blocks whole, weights and gradients
    assert stage(found, [0, 3, 0], NONE, 1) == 3 * 16_000 / 4 + 3 * 340 + 2 * (2000 + 2000)
    # the embedding and the block that follows
    assert stage(found, [1, 3, 0], NONE, 1) == (5000 + 3000) * 16 / 4 + 30 + 3 * 340 + 6 * 4000


def test_offload_by_hand():
    offload = Offload(activations=0.75, optimizer=0.5)
    found = coefficients(chain(), SharedStates.OPTIMIZER, 4, offload=offload)
    states = 3 * 1000 * (2 + 2 + 0.5 * 12 / 4)
    assert stage(found, [0, 3, 0], NONE, 4) == states + 0.25 * 4 * 3 * 340 + 2 * 0.75 * 340
    assert found.host_bytes([0, 3, 0], NONE, 4) == 3 * 1000 * 0.5 * (12 + 2) / 4 + 0.75 * 4 * 3 * 340
    assert found.update_traffic.out_bytes[1] == found.update_traffic.in_bytes[1] == 0.5 * 2 * 1000 / 4
    traffic = found.activation_traffic
    assert traffic.out_bytes[0, 1] == traffic.in_bytes[0, 1] == 0.75 * 340
    assert traffic.seconds(1e3)[0, 1] == pytest.approx(2 * 0.255, rel=1e-14)


def test_policy_of_a_layer():
    embedding, block, head = (part for part, _ in chain())
    assert [policy_of(block, policy) for policy in POLICIES] == list(POLICIES)
    assert {policy_of(end, policy) for end in (embedding, head) for policy in POLICIES} == {NONE}
    fused = replace(block, selective_stash_bytes=None)
    assert [policy_of(fused, policy) for policy in POLICIES] == [NONE, NONE, FULL]
    found = coefficients(((fused, 2),))
    assert found.kept_bytes.tolist() == [[340], [340], [20]]


def test_each_device_updates_its_shard():
    layers = ((layer(parameters=1000, expert=600), 2),)
    counts = replicas(dense_shards=[1, 8], expert_shards=[1, 2])
    shared = updated_parameters(layers, StateSharding(states=SharedStates.OPTIMIZER), counts)
    assert shared.tolist() == [[1000], [400 / 8 + 600 / 2]]
    assert updated_parameters(layers, StateSharding(), counts).tolist() == [[1000], [1000]]


def test_experts_have_replicas_of_their_own():
    layers = ((layer(parameters=1000, expert=600), 2),)
    states = StateSharding(states=SharedStates.OPTIMIZER)
    counts = replicas(dense_shards=8, expert_shards=2, dense_copies=1, expert_copies=3)
    found = memory_coefficients(layers, ADAM, states=states, replicas=counts, allowance=BARE)
    assert found.state_bytes.tolist() == [4 * 1000 + 12 * (400 / 8 + 600 / 2)]
    moved = {
        (x.kind.value, x.expert): (x.group_size.tolist(), x.payload_bytes.tolist())
        for x in chain_exchanges(layers, ADAM, states=states, replicas=counts)
    }
    assert moved == {
        ("reduce_scatter", False): ([8], [800.0]),
        ("all_reduce", False): ([1], [0.0]),
        ("all_gather", False): ([8], [800.0]),
        ("reduce_scatter", True): ([2], [1200.0]),
        ("all_reduce", True): ([3], [600.0]),
        ("all_gather", True): ([2], [1200.0]),
    }


def test_strategies_are_an_axis():
    shards = np.array([1, 4, 16])
    many = coefficients(chain(), SharedStates.PARAMETERS, shards)
    together = many.stage_bytes(
        np.array([[0, 2, 0], [1, 1, 0], [0, 1, 1]]),
        SELECTIVE,
        np.array([1.0, 2.5, 3.0]),
        entering_bytes=np.array([20, 0, 20]),
        leaving_bytes=np.array([20, 20, 0]),
    )
    alone = [
        stage(coefficients(chain(), SharedStates.PARAMETERS, z), counts, SELECTIVE, flight, entering, leaving)
        for z, counts, flight, entering, leaving in (
            (1, [0, 2, 0], 1.0, 20, 20),
            (4, [1, 1, 0], 2.5, 0, 20),
            (16, [0, 1, 1], 3.0, 20, 0),
        )
    ]
    assert together.tolist() == alone


def test_a_stage_without_layers_needs_the_constant():
    found = coefficients(chain(), allowance=Allowance(fragmentation=0.0, reserved_bytes=11))
    assert stage(found, [0, 0, 0], FULL, 4, entering=20) == 51
    items = memory_items(found, [0, 0, 0], FULL, 4, entering_bytes=20, leaving_bytes=0)
    assert dict(items.parts)["boundary"] == 40
    assert items.total_bytes == 51


@st.composite
def layers(draw):
    numbers = st.integers(0, 10**6)
    blocks = []
    for kind in range(draw(st.integers(1, 3))):
        entering, some, more = sorted(draw(st.tuples(numbers, numbers, numbers)))
        parameters = draw(numbers)
        block = layer(
            name=f"block {kind}",
            parameters=parameters,
            expert=draw(st.integers(0, parameters)),
            stash=more,
            selective=draw(st.sampled_from([some, None])),
            entering=entering + 1,
            leaving=entering + 1,
        )
        blocks.append((replace(block, stash_bytes=block.stash_bytes + 1), draw(st.integers(1, 5))))
    embedding, _, head = chain()
    return (embedding, *blocks, head)


shares = st.floats(0, 1)
settings_of = st.fixed_dictionaries(
    {
        "states": st.sampled_from(tuple(SharedStates)),
        "shards": st.sampled_from([1, 2, 8, 64]),
        "accumulate_shard": st.booleans(),
        "offload": st.builds(Offload, activations=shares, optimizer=shares),
        "allowance": st.builds(
            Allowance, fragmentation=shares, reserved_bytes=st.floats(0, 1e6), outputs_kept=st.booleans()
        ),
    }
)


@given(layers=layers(), how=settings_of, policy=st.sampled_from(POLICIES), in_flight=st.floats(0, 100), data=st.data())
def test_parts_sum_to_the_total(layers, how, policy, in_flight, data):
    found = coefficients(layers, **how)
    counts = [data.draw(st.integers(0, count)) for _, count in layers]
    items = memory_items(found, counts, policy, in_flight, entering_bytes=20, leaving_bytes=30)
    assert items.total_bytes == pytest.approx(stage(found, counts, policy, in_flight, 20, 30), rel=1e-12)
    assert items.host_total_bytes == pytest.approx(float(found.host_bytes(counts, policy, in_flight)), rel=1e-12)
    assert all(value >= 0 for _, value in items.parts)


@given(layers=layers(), how=settings_of)
def test_recomputing_more_keeps_less_and_leaves_states_alone(layers, how):
    found = coefficients(layers, **how)
    full, selective, none = (found.in_flight_bytes[POLICIES.index(p)] for p in (FULL, SELECTIVE, NONE))
    assert (full <= selective).all()
    assert (selective <= none).all()
    items = [
        memory_items(found, [1] * len(layers), policy, 2, entering_bytes=0, leaving_bytes=0) for policy in POLICIES
    ]
    for name in ("weights_bytes", "gradients_bytes", "optimizer_bytes", "host_optimizer_bytes"):
        assert len({getattr(item, name) for item in items}) == 1
    # with nothing else in flight, what is kept and what is brought back are what was kept at first
    assert np.allclose(found.kept_bytes + found.working.replayed_bytes, found.kept_bytes[0], rtol=1e-14)


@given(layers=layers(), states=st.sampled_from(tuple(SharedStates)), in_flight=st.floats(0, 100), data=st.data())
def test_more_shards_never_keep_more(layers, states, in_flight, data):
    few = data.draw(st.integers(2, 64))
    found = coefficients(layers, states, np.array([few, few * data.draw(st.integers(1, 8))]))
    counts = [data.draw(st.integers(0, count)) for _, count in layers]
    one, other = found.stage_bytes(counts, NONE, in_flight, entering_bytes=0, leaving_bytes=0)
    assert other <= one * (1 + 1e-12)


@given(layers=layers(), shards=st.integers(2, 64), data=st.data())
def test_layers_at_work_cover_every_pair_of_a_stage(layers, shards, data):
    found = coefficients(layers, SharedStates.PARAMETERS, shards)
    row = [ADAM.weight * part.parameters for part, count in layers for _ in range(count)]
    kinds = [kind for kind, (_, count) in enumerate(layers) for _ in range(count)]
    start = data.draw(st.integers(0, len(row) - 1))
    end = data.draw(st.integers(start + 1, len(row)))
    pairs = [sum(row[place : min(place + 2, end)]) for place in range(start, end)]
    needed = max(found.working.gathered_bytes[kind] for kind in kinds[start:end])
    assert needed >= max(pairs)
    if (start, end) == (0, len(row)):
        assert needed == max(pairs)


def test_bad_values():
    with pytest.raises(ValueError, match=r"activations is 1\.5, must be a share between 0 and 1; optimizer is -1"):
        Offload(activations=1.5, optimizer=-1)
    with pytest.raises(ValueError, match=r"fragmentation is -0\.1, must not be negative; reserved_bytes is nan"):
        Allowance(fragmentation=-0.1, reserved_bytes=float("nan"))
    found = coefficients(chain(), SharedStates.PARAMETERS, np.array([1, 2]))
    with pytest.raises(ValueError, match="strategies of shape"):
        memory_items(found, [1, 1, 1], Recompute.NONE, 1, entering_bytes=0, leaving_bytes=0)
    with pytest.raises(ValueError, match="2 counts for 3 kinds"):
        memory_items(coefficients(chain()), [1, 1], Recompute.NONE, 1, entering_bytes=0, leaving_bytes=0)
    with pytest.raises(ValueError, match="must be positive"):
        found.activation_traffic.seconds(0.0)


@pytest.mark.parametrize(
    ("degrees", "data"),
    [
        ({"tensor": 2, "sequence": True, "expert": 8}, 32),
        ({"tensor": 4, "sequence": True, "expert": 4, "expert_tensor": 4}, 16),
        ({"tensor": 1, "expert": 2}, 4),
    ],
)
def test_devices_of_a_mixture_hold_one_copy_of_shared_states(degrees, data):
    # Mixtral 8x7B: 46.7 billion parameters (Jiang et al. 2024, arXiv:2401.04088); every device of a
    # tensor-parallel group also holds norms and routers whole
    sharding = LayerSharding(microbatch=1, **degrees)
    states = StateSharding(states=SharedStates.PARAMETERS)
    step = load_workload("mixtral-8x7b").step(sharding)
    found = memory_coefficients(
        step.layers, ADAM, states=states, replicas=Replicas.of(sharding, states, data), allowance=BARE
    )
    counts = [count for _, count in step.layers]
    devices = sharding.tensor * data
    assert devices * float(found.state_bytes @ counts) == pytest.approx(16 * 46.7e9, rel=2e-3)
    # at work: experts whole but for their degrees
    block = step.layers[1][0]
    assert found.working.gathered_bytes[1] == 2 * ADAM.weight * block.parameters
