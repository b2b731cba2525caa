"""States shared by replicas: bytes kept and exchanged, by hand, from the papers, and by laws."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_helpers import ADAM

from archplace.costmodel import Members, Moment, Replicas, SharedStates, StateSharding, exchanges, kept_states
from archplace.costmodel.replicas import refusal as replica_refusal
from archplace.costmodel.state_sharding import gathered_bytes, unreduced_bytes
from archplace.workloads import CollectiveKind, LayerSharding, ParameterBytes

LEVELS = tuple(SharedStates)


def kept(states, parameters, shards, size=ADAM, **how):
    return kept_states(np.array(parameters), size, StateSharding(states=states, **how), shards)


@pytest.mark.parametrize(
    ("states", "devices", "gigabytes"),
    [
        ("none", 64, 120.0),
        ("optimizer", 64, 31.4),
        ("gradients", 64, 16.6),
        ("parameters", 64, 1.88),
        ("optimizer", 4, 52.5),
        ("gradients", 4, 41.3),
        ("parameters", 16, 7.5),
        ("optimizer", 1024, 30.1),
    ],
)
def test_zero_paper(states, devices, gigabytes):
    # Rajbhandari et al. 2020, arXiv:1910.02054, table 1: 7.5 billion parameters, 2 + 2 + 12 bytes each
    found = kept(SharedStates(states), 7.5e9, devices).total_bytes / 1e9
    assert found == pytest.approx(gigabytes, rel=5e-3)


@pytest.mark.parametrize(
    ("size", "alone", "constant", "shared"),
    [
        (ParameterBytes(weight=2, gradient=4, optimizer=12), 18, 6, 12),
        (ParameterBytes(weight=4, gradient=4, optimizer=8), 16, 8, 8),
    ],
)
def test_megatron_distributed_optimizer(size, alone, constant, shared):
    # Megatron-Core user guide, distributed optimizer: bytes per parameter by the types of weights and gradients
    assert kept(SharedStates.NONE, 1.0, 8, size).total_bytes == alone
    assert kept(SharedStates.OPTIMIZER, 1.0, 8, size).total_bytes == constant + shared / 8


@given(
    states=st.sampled_from(LEVELS),
    shards=st.integers(1, 4096),
    parameters=st.integers(0, 10**12),
    accumulate_shard=st.booleans(),
)
def test_shards_conserve_states(states, shards, parameters, accumulate_shard):
    # what z devices keep of a shared state is one copy; of the others, z copies
    whole = kept(SharedStates.NONE, parameters, 1)
    part = kept(states, parameters, shards, accumulate_shard=accumulate_shard)
    level = LEVELS.index(states)
    for name, shared in (
        ("optimizer_bytes", level >= 1),
        ("gradients_bytes", level >= 2 and accumulate_shard),
        ("weights_bytes", level >= 3),
    ):
        copies = 1 if shared else shards
        assert shards * getattr(part, name) == pytest.approx(copies * getattr(whole, name), rel=1e-12)


@given(
    shards=st.integers(1, 512),
    more=st.integers(1, 16),
    parameters=st.integers(0, 10**12),
    accumulate_shard=st.booleans(),
)
def test_more_sharing_never_keeps_more(shards, more, parameters, accumulate_shard):
    def total(states, shards):
        return kept(states, parameters, shards, accumulate_shard=accumulate_shard).total_bytes

    for states in LEVELS:
        assert total(states, shards * more) <= total(states, shards)
    for less, further in pairwise(LEVELS):
        assert total(further, shards) <= total(less, shards)


def moved_times(states, *, microbatches=1, shards=1, copies=1, **how):
    """Bytes per device over the bytes of the parameters when rings move everything, weights and gradients alike."""
    factors = {CollectiveKind.ALL_REDUCE: 2, CollectiveKind.ALL_GATHER: 1, CollectiveKind.REDUCE_SCATTER: 1}
    total = 0.0
    for exchange in exchanges(np.array(1.0), ADAM, StateSharding(states=states, **how), shards=shards, copies=copies):
        times = microbatches if exchange.per_microbatch else 1
        share = 1 - 1 / exchange.group_size
        total += times * factors[exchange.kind] * share * exchange.payload_bytes / ADAM.weight
    return float(total)


def test_volume_of_the_zero_paper():
    # Rajbhandari et al. 2020, section 7: twice the parameters, but three times where these are shared
    large = 10**6
    for states, times in (("optimizer", 2), ("gradients", 2), ("parameters", 3)):
        assert moved_times(SharedStates(states), shards=large) == pytest.approx(times, rel=1e-5)
    assert moved_times(SharedStates.NONE, copies=large) == pytest.approx(2, rel=1e-5)


def test_volume_of_microbatches():
    large = 10**6
    for states, microbatches, times in (("optimizer", 8, 2), ("gradients", 8, 9), ("parameters", 8, 24)):
        found = moved_times(SharedStates(states), microbatches=microbatches, shards=large)
        assert found == pytest.approx(times, rel=1e-5)
    unshared = moved_times(SharedStates.PARAMETERS, microbatches=8, shards=large, accumulate_shard=False)
    assert unshared == pytest.approx(17, rel=1e-5)


def test_hybrid_volume_between_groups():
    # Zhao et al. 2023, arXiv:2304.11277, section 3.2.2: gradients of one shard are reduced between the groups
    hybrid = StateSharding(states=SharedStates.PARAMETERS, group=8)
    between = [
        exchange
        for exchange in exchanges(np.array(1e9), ADAM, hybrid, shards=8, copies=64)
        if exchange.members is Members.COPIES
    ]
    assert [(x.kind, float(x.payload_bytes), int(x.group_size)) for x in between] == [
        (CollectiveKind.ALL_REDUCE, 2e9 / 8, 64)
    ]


def test_exchanges_of_each_level():
    def moments(states, **how):
        found = exchanges(np.array(7.0), ADAM, StateSharding(states=states, **how), shards=4, copies=1)
        return [(x.kind.value, x.moment, x.per_microbatch) for x in found if x.payload_bytes > 0]

    gathers = [("all_gather", Moment.BEFORE_FORWARD, True), ("all_gather", Moment.BEFORE_BACKWARD, True)]
    after = [("all_gather", Moment.AFTER_UPDATE, False)]
    assert moments(SharedStates.OPTIMIZER) == [("reduce_scatter", Moment.AFTER_BACKWARD, False), *after]
    assert moments(SharedStates.GRADIENTS) == [("reduce_scatter", Moment.AFTER_BACKWARD, True), *after]
    assert moments(SharedStates.PARAMETERS) == [*gathers, ("reduce_scatter", Moment.AFTER_BACKWARD, True)]
    assert moments(SharedStates.PARAMETERS, accumulate_shard=False) == [
        *gathers,
        ("reduce_scatter", Moment.AFTER_BACKWARD, False),
    ]


def test_gradients_summed_whole_are_the_level_below():
    whole = StateSharding(states=SharedStates.GRADIENTS, accumulate_shard=False)
    below = StateSharding(states=SharedStates.OPTIMIZER)
    parameters = np.array([3.0, 5.0])
    assert kept_states(parameters, ADAM, whole, 4).total_bytes.tolist() == (
        kept_states(parameters, ADAM, below, 4).total_bytes.tolist()
    )
    pairs = zip(
        exchanges(parameters, ADAM, whole, shards=4, copies=2),
        exchanges(parameters, ADAM, below, shards=4, copies=2),
        strict=True,
    )
    for one, other in pairs:
        assert (one.kind, one.members, one.moment, one.per_microbatch) == (
            (other.kind, other.members, other.moment, other.per_microbatch)
        )
        assert one.payload_bytes.tolist() == other.payload_bytes.tolist()


@pytest.mark.parametrize("states", LEVELS)
def test_a_single_device_keeps_everything_and_exchanges_nothing(states):
    sharding = StateSharding(states=states)
    parameters = np.array([3.0, 5.0])
    assert kept_states(parameters, ADAM, sharding, 1).total_bytes.tolist() == [48, 80]
    assert not gathered_bytes(parameters, ADAM, sharding, 1).any()
    assert not unreduced_bytes(parameters, ADAM, sharding, 1).any()
    for exchange in exchanges(parameters, ADAM, sharding, shards=1, copies=1):
        assert not exchange.payload_bytes.any()


def test_layers_at_work_are_whole():
    parameters, shards = np.array([[3.0, 5.0]]), np.array([[1], [4]])
    size = ParameterBytes(weight=2, gradient=4, optimizer=12)
    shared = StateSharding(states=SharedStates.PARAMETERS)
    assert gathered_bytes(parameters, size, shared, shards).tolist() == [[0, 0], [6, 10]]
    assert unreduced_bytes(parameters, size, shared, shards).tolist() == [[0, 0], [12, 20]]
    whole = StateSharding(states=SharedStates.PARAMETERS, accumulate_shard=False)
    assert not unreduced_bytes(parameters, size, whole, shards).any()
    assert not gathered_bytes(parameters, size, StateSharding(states=SharedStates.GRADIENTS), shards).any()


def test_replicas_of_experts():
    # 2 · 4 · 8 = 64 devices of a stage; 16 of them hold all experts once
    sharding = LayerSharding(microbatch=1, tensor=2, context=4, expert=8, expert_tensor=2)
    found = Replicas.of(sharding, StateSharding(states=SharedStates.OPTIMIZER), 8)
    assert (int(found.dense_shards), int(found.dense_copies)) == (32, 1)
    assert (int(found.expert_shards), int(found.expert_copies)) == (4, 1)
    alone = Replicas.of(sharding, StateSharding(), 8)
    assert (int(alone.dense_shards), int(alone.dense_copies)) == (1, 32)
    assert (int(alone.expert_shards), int(alone.expert_copies)) == (1, 4)
    # 16 replicas of 2 devices are 32, which hold all experts twice
    hybrid = Replicas.of(sharding, StateSharding(states=SharedStates.PARAMETERS, group=16), 8)
    assert (int(hybrid.dense_shards), int(hybrid.dense_copies)) == (16, 2)
    assert (int(hybrid.expert_shards), int(hybrid.expert_copies)) == (2, 2)
    # 4 replicas of 2 devices hold each expert once at most
    small = Replicas.of(sharding, StateSharding(states=SharedStates.PARAMETERS, group=4), 8)
    assert (int(small.expert_shards), int(small.expert_copies)) == (1, 4)


powers = st.integers(0, 4).map(lambda exponent: 2**exponent)


@given(
    tensor=powers,
    context=powers,
    data=powers,
    expert=powers,
    expert_tensor=powers,
    group=st.none() | powers,
    states=st.sampled_from(LEVELS[1:]),
)
def test_replicas_account_for_every_device(tensor, context, data, expert, expert_tensor, group, states):
    sharding = LayerSharding(microbatch=1, tensor=tensor, context=context, expert=expert, expert_tensor=expert_tensor)
    sharing = StateSharding(states=states, group=group)
    if replica_refusal(sharding, sharing, data) is not None:
        with pytest.raises(ValueError, match=r"do not divide|one must divide"):
            Replicas.of(sharding, sharing, data)
        return
    found = Replicas.of(sharding, sharing, np.array([data, data]))
    devices = tensor * context * data
    assert (found.dense_shards * found.dense_copies * tensor == devices).all()
    assert (found.expert_shards * found.expert_copies * expert * expert_tensor == devices).all()


@pytest.mark.parametrize(
    ("sharding", "states", "data", "told"),
    [
        ({}, {}, 0, "data parallel degree 0"),
        ({"expert": 8}, {}, 4, "expert 8 times expert_tensor 1 is 8 devices, which do not divide the 4"),
        ({"context": 2}, {"group": 3}, 4, "groups of 3 replicas, which do not divide the 8"),
        ({"expert": 4}, {"group": 6}, 12, "groups of 6 devices .* spread over 4"),
    ],
)
def test_refusals(sharding, states, data, told):
    sharing = StateSharding(states=SharedStates.PARAMETERS, **states)
    degrees = LayerSharding(microbatch=1, **sharding)
    assert replica_refusal(degrees, sharing, data) is not None
    with pytest.raises(ValueError, match=told):
        Replicas.of(degrees, sharing, np.array([data]))


def test_senseless_groups():
    with pytest.raises(ValueError, match="group is 0, must be at least 1"):
        StateSharding(states=SharedStates.OPTIMIZER, group=0)
    with pytest.raises(ValueError, match="no states are shared"):
        StateSharding(group=8)
