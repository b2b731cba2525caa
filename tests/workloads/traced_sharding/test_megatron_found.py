"""The split of a GPT block that Megatron-LM's authors published comes out of the program without being told."""

from collections import Counter
from dataclasses import replace

import pytest
from tensor_layers import gpt_block

from archplace.workloads.operators import CollectiveKind
from archplace.workloads.traced.assignment import MemoryLimit
from archplace.workloads.traced.flow import Side
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.sharding_program import solve_sharding
from archplace.workloads.traced.shareable import Shareable
from archplace.workloads.traced.states import REPLICATED, Cutting, cut
from archplace.workloads.traced.views import without_views

GATHER, SCATTER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE


def solve(block, degree, *, sequence=False, rates=None, limit=None, stores_cut=True):
    layer = without_views(block)
    cutting = replace(Cutting.tensor(degree, sequence=sequence), stores_cut=stores_cut)
    found = solve_sharding(layer, cutting, rates or Rates(), limit=limit)
    return layer, found


def kinds(found):
    return {
        side: Counter(moved.kind for (_, where), each in found.conversions.items() if where is side for moved in each)
        for side in Side
    }


@pytest.mark.parametrize("degree", [2, 4, 8])
@pytest.mark.parametrize("fused_qkv", [True, False])
@pytest.mark.parametrize(("batch", "d_model", "heads"), [(1, 4096, 32), (4, 8192, 64)])
def test_column_and_row_cuts_with_two_all_reduces_per_direction(degree, fused_qkv, batch, d_model, heads):
    # Shoeybi et al. 2019, arXiv:1909.08053, section 3 and figure 4
    layer, found = solve(gpt_block(batch=batch, d_model=d_model, heads=heads, fused_qkv=fused_qkv), degree)
    assert kinds(found) == {Side.FORWARD: {REDUCE: 2}, Side.BACKWARD: {REDUCE: 2}}
    payload = batch * 2048 * d_model * 2
    assert {moved.payload_bytes for each in found.conversions.values() for moved in each} == {payload}
    stored = {layer.tensors[t].name: state for t, state in found.stored.items()}
    heads_of = cut(0, 1 if fused_qkv else 0)
    for name in ("qkv",) if fused_qkv else ("q", "k", "v"):
        assert stored[f"{name}.weight"] == stored[f"{name}.bias"] == heads_of
    assert stored["ffn_in.weight"] == stored["ffn_in.bias"] == cut(0, 0)
    assert stored["projection.weight"] == stored["ffn_out.weight"] == cut(1, 0)
    whole = {"projection.bias", "ffn_out.bias", *(f"norm{i}.{part}" for i in (1, 2) for part in ("gain", "bias"))}
    assert {name for name, state in stored.items() if state == REPLICATED} == whole
    assert not found.summed


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_sequence_parallelism_gathers_and_scatters_in_place_of_all_reduces(degree):
    # Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2: two pairs forward; backward two pairs, and the inputs of
    # the column-cut products gathered again because only parts are kept
    layer, found = solve(gpt_block(), degree, sequence=True)
    assert kinds(found) == {
        Side.FORWARD: {GATHER: 2, SCATTER: 2},
        Side.BACKWARD: {GATHER: 4, SCATTER: 2},
    }
    assert all(state.is_cut for state in found.kept.values())
    # what is whole on all devices and met by parts of the tokens: norms, and biases behind a scatter
    assert {layer.tensors[t].name for t in found.summed} == {
        f"{name}.gradient"
        for name in ("norm1.gain", "norm1.bias", "norm2.gain", "norm2.bias", "projection.bias", "ffn_out.bias")
    }


def test_one_device_more_costs_less_time_as_long_as_exchanges_are_fast():
    seconds = [solve(gpt_block(), degree, rates=Rates(link_bytes_per_s=1e15))[1].seconds for degree in (2, 4, 8)]
    assert seconds[0] > seconds[1] > seconds[2]


def test_without_a_network_worth_its_name_everything_is_replicated_that_may_be():
    small, slow = gpt_block(d_model=256, heads=4, sequence=64), Rates(collective_latency_s=1.0)
    _, found = solve(small, 4, rates=slow, stores_cut=False)
    assert not found.conversions
    assert all(way.loop is None for way in found.ways)
    # matrices in parts cannot do with fewer exchanges than Megatron's
    layer, found = solve(small, 4, rates=slow)
    assert kinds(found) == {Side.FORWARD: {REDUCE: 2}, Side.BACKWARD: {REDUCE: 2}}
    assert all(state.is_cut for t, state in found.stored.items() if len(layer.tensors[t].dims) > 1)


def test_a_memory_limit_is_kept_and_costs_time():
    block = gpt_block(sequence=512, d_model=1024, heads=8)
    slow = Rates(link_bytes_per_s=1e9)  # at which replicas are fastest
    layer, free = solve(block, 4, rates=slow, stores_cut=False)

    def taken(found, states):
        return sum(
            factor * layer.tensors[t].bytes / (4 if state.is_cut else 1)
            for held, factor in ((found.stored, states), (found.kept, 1.0))
            for t, state in held.items()
        )

    limit = MemoryLimit(limit_bytes=0.5 * taken(free, 8.0), states_per_weight=8.0)
    _, bound = solve(block, 4, rates=slow, limit=limit, stores_cut=False)
    assert taken(bound, 8.0) <= limit.limit_bytes
    assert bound.seconds > free.seconds
    with pytest.raises(ValueError, match=r"no sharding takes 1,000 bytes or less"):
        solve(block, 4, rates=slow, limit=replace(limit, limit_bytes=1000.0))


def test_tokens_that_do_not_divide_are_refused_with_numbers():
    with pytest.raises(ValueError, match=r"tensor parallel width 4 does not divide the 30 tokens"):
        solve(gpt_block(sequence=30, d_model=64, heads=4), 4, sequence=True)


@pytest.mark.parametrize("link_bytes_per_s", [1e9, 50e9, 450e9])
@pytest.mark.parametrize("latency_s", [1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("sizes", [{"d_model": 512, "heads": 8, "sequence": 256}, {"d_model": 8192, "heads": 64}])
def test_no_sharding_is_worse_than_megatrons(monkeypatch, link_bytes_per_s, latency_s, sizes):
    rates = Rates(link_bytes_per_s=link_bytes_per_s, collective_latency_s=latency_s)
    block = gpt_block(**sizes)
    _, free = solve(block, 4, rates=rates)
    every = Shareable.of

    def of_heads_and_inner_columns(layer, cutting):
        found = every(layer, cutting)
        wanted = {sizes["heads"], 4 * sizes["d_model"]}
        places = {(t, d, a) for t, d, a in found.places if layer.tensors[t].dims[d][a].size in wanted}
        return Shareable(cutting=cutting, places=frozenset(places))

    monkeypatch.setattr(Shareable, "of", staticmethod(of_heads_and_inner_columns))
    _, megatron = solve(block, 4, rates=rates)
    assert kinds(megatron) == {Side.FORWARD: {REDUCE: 2}, Side.BACKWARD: {REDUCE: 2}}
    assert free.seconds <= megatron.seconds * (1 + 1e-6)
