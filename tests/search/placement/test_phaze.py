"""PHAZE's formulas: its own optima, and brute force over everything on small instances."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.search.placement import (
    LayerChain,
    Optimizer,
    PlacementInstance,
    PlacementResult,
    phaze_prices,
    place_instance,
    read_instances,
)

REFERENCE = Path(__file__).parent / "data" / "phaze_placement.json.gz"
EXPECTED = {entry["name"]: entry["expected"] for entry in json.loads(gzip.decompress(REFERENCE.read_bytes()))}
INSTANCES = {instance.name: instance for instance in read_instances(REFERENCE)}


@pytest.mark.parametrize("name", EXPECTED)
def test_reaches_the_optimum_that_phaze_found(name: str) -> None:
    """Source of the answers: PHAZE's own dynamic program (see data/README.md). Stages and replicas may tie."""
    instance, expected = INSTANCES[name], EXPECTED[name]
    result = place_instance(instance)
    assert result.feasible == expected["feasible"]
    if not result.feasible:
        assert result.reason
        assert result.stages == ()
        return
    assert result.reason is None
    assert result.time_per_batch_s == pytest.approx(expected["time_per_batch"], rel=1e-9, abs=0.0)
    check(instance, result)


def test_the_reference_holds_feasible_and_infeasible_instances() -> None:
    assert len(EXPECTED) == 40
    assert {expected["feasible"] for expected in EXPECTED.values()} == {True, False}


def stage_price(
    instance: PlacementInstance, chain: LayerChain, width: int, start: int, end: int, position: int
) -> tuple[float, float, int]:
    """Return load, memory and devices of one stage, added up layer by layer."""
    bandwidth = instance.bandwidth_bytes_per_s
    forward = sum(chain.forward_s[start:end].tolist())
    backward = sum(chain.backward_s[start:end].tolist())
    parameters = sum(chain.parameter_bytes[start:end].tolist())
    activations = sum(chain.activation_bytes[start:end].tolist())
    edges = list(zip(chain.edge_sources, chain.edge_targets, chain.edge_bytes.tolist(), strict=True))
    entering = sum(size for source, target, size in edges if source < start <= target < end)
    leaving = sum(size for source, target, size in edges if start <= source < end <= target)
    if instance.recompute and position > 1:
        load = forward + entering / bandwidth + max(forward, leaving / bandwidth) + backward
    else:
        load = forward + entering / bandwidth + backward + leaving / bandwidth
    copies = 3 if instance.optimizer is Optimizer.ADAM else 2
    stash = entering if instance.recompute else activations
    memory = copies * parameters + activations + (position - 1) * stash
    return load, memory, width if chain.tensor_parallel[start:end].any() else 1


def all_placements(instance: PlacementInstance) -> Iterator[tuple[float, int, int, int, int]]:
    """Yield (time, devices, stages, width, end of the first stage) of every placement that fits."""
    for width, chain in instance.chains.items():
        n = chain.n_layers
        for stages in range(1, n + 1):
            for inner in combinations(range(1, n), stages - 1):
                cuts = [0, *inner, n]
                prices = [
                    stage_price(instance, chain, width, start, end, stages - index)
                    for index, (start, end) in enumerate(pairwise(cuts))
                ]
                if any(memory > instance.memory_bytes for _, memory, _ in prices):
                    continue
                bottleneck = max(load for load, _, _ in prices)
                devices = sum(count for _, _, count in prices)
                first = sum(chain.parameter_bytes[: cuts[1]].tolist())
                for replicas in range(1, instance.max_devices // devices + 1):
                    fill = -(-instance.microbatches // replicas) + stages - 1
                    exchange = 4 * (replicas - 1) / replicas * (first / instance.bandwidth_bytes_per_s)
                    yield bottleneck * fill + exchange, replicas * devices, stages, width, cuts[1]


def check(instance: PlacementInstance, result: PlacementResult) -> None:
    """The placement obeys every constraint, and its parts give its time."""
    chain = instance.chains[result.tensor_parallel]
    assert [stage.first_layer for stage in result.stages] == [0, *(stage.end_layer for stage in result.stages[:-1])]
    assert result.stages[-1].end_layer == chain.n_layers
    for index, stage in enumerate(result.stages):
        position = result.pipeline_parallel - index
        load, memory, devices = stage_price(
            instance, chain, result.tensor_parallel, stage.first_layer, stage.end_layer, position
        )
        assert (stage.load_s, stage.memory_bytes) == pytest.approx((load, memory), rel=1e-12)
        assert stage.devices == devices
        assert stage.memory_bytes <= instance.memory_bytes
    assert result.devices <= instance.max_devices
    assert result.bottleneck is not None
    bottleneck = result.stages[result.bottleneck].load_s
    assert bottleneck == max(stage.load_s for stage in result.stages)
    fill = -(-instance.microbatches // result.data_parallel) + result.pipeline_parallel - 1
    assert result.time_per_batch_s == pytest.approx(bottleneck * fill + result.synchronisation_s, rel=1e-12)


@st.composite
def chains(draw: st.DrawFn, n: int) -> LayerChain:
    def amounts(most: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)), dtype=np.float64)

    skips = [(a, b) for a, b in combinations(range(n), 2) if b > a + 1]
    edges = [(a, a + 1) for a in range(n - 1)]
    edges += draw(st.lists(st.sampled_from(skips), unique=True, max_size=3)) if skips else []
    sizes = draw(st.lists(st.integers(0, 20), min_size=len(edges), max_size=len(edges)))
    mixed = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    spread = draw(st.sampled_from([mixed, [True] * n, [False] * n]))
    return LayerChain(
        layer_ids=tuple(range(n)),
        forward_s=amounts(9),
        backward_s=amounts(15),
        parameter_bytes=amounts(6),
        activation_bytes=amounts(6),
        tensor_parallel=np.array(spread, dtype=np.bool_),
        edge_sources=np.array([a for a, _ in edges], dtype=np.int64),
        edge_targets=np.array([b for _, b in edges], dtype=np.int64),
        edge_bytes=np.array(sizes, dtype=np.float64),
    )


@st.composite
def small_instances(draw: st.DrawFn) -> PlacementInstance:
    """Amounts are whole numbers and the bandwidth a power of two: sums are exact, so ties are ties for both sides."""
    n = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 4), unique=True, min_size=1, max_size=2))
    return PlacementInstance(
        name="small",
        chains={width: draw(chains(n)) for width in widths},
        memory_bytes=float(draw(st.integers(5, 80))),
        max_devices=draw(st.integers(1, 14)),
        bandwidth_bytes_per_s=2.0 ** draw(st.integers(-1, 4)),
        microbatches=draw(st.sampled_from([1, 2, 5, 8, 64])),
        recompute=draw(st.booleans()),
        optimizer=draw(st.sampled_from(Optimizer)),
    )


@settings(max_examples=300, deadline=None)
@given(small_instances())
def test_equals_brute_force_and_its_tie_rule(instance: PlacementInstance) -> None:
    best = min(all_placements(instance), default=None)
    result = place_instance(instance)
    assert result.feasible == (best is not None)
    if best is None:
        assert result.reason
        return
    check(instance, result)
    found = (
        result.time_per_batch_s,
        result.devices,
        result.pipeline_parallel,
        result.tensor_parallel,
        result.stages[0].end_layer,
    )
    assert found == best


def time_of(instance: PlacementInstance) -> float:
    return place_instance(instance).time_per_batch_s


@settings(max_examples=150, deadline=None)
@given(small_instances(), st.integers(1, 10), st.integers(1, 40), st.integers(1, 3))
def test_more_of_anything_never_hurts(
    instance: PlacementInstance, devices: int, memory_bytes: int, doublings: int
) -> None:
    time_s = time_of(instance)
    assert time_of(replace(instance, max_devices=instance.max_devices + devices)) <= time_s
    assert time_of(replace(instance, memory_bytes=instance.memory_bytes + memory_bytes)) <= time_s
    faster = replace(instance, bandwidth_bytes_per_s=instance.bandwidth_bytes_per_s * 2.0**doublings)
    assert time_of(faster) <= time_s


def two_layers(**changes: object) -> PlacementInstance:
    """Layers of 1 s + 2 s and 3 s + 4 s, 10 and 20 bytes of parameters, 5 bytes between them at 1 byte/s."""
    chain = LayerChain(
        layer_ids=(0, 1),
        forward_s=np.array([1.0, 3.0]),
        backward_s=np.array([2.0, 4.0]),
        parameter_bytes=np.array([10.0, 20.0]),
        activation_bytes=np.array([7.0, 8.0]),
        tensor_parallel=np.array([False, False]),
        edge_sources=np.array([0]),
        edge_targets=np.array([1]),
        edge_bytes=np.array([5.0]),
    )
    instance = PlacementInstance(
        name="two",
        chains={1: chain},
        memory_bytes=1000.0,
        max_devices=2,
        bandwidth_bytes_per_s=1.0,
        microbatches=100,
        recompute=False,
        optimizer=Optimizer.SGD,
    )
    return replace(instance, **changes)  # type: ignore[arg-type]  # the callers name fields of the dataclass


def test_by_hand_two_stages() -> None:
    """Two stages: loads 1 + 2 + 5 = 8 and 5 + 3 + 4 = 12, so 12 · (100 + 1) = 1212 s.

    Two replicas of one stage: 10 · 50 + 4 · 1/2 · 30/1 = 560 s, which is better where a device holds both layers:
    2 · 30 + 15 = 75 bytes.
    """
    result = place_instance(two_layers(memory_bytes=75.0))
    assert (result.time_per_batch_s, result.data_parallel, result.pipeline_parallel) == (560.0, 2, 1)
    result = place_instance(two_layers(memory_bytes=74.0))
    assert (result.time_per_batch_s, result.data_parallel, result.pipeline_parallel) == (1212.0, 1, 2)
    # First stage: 2 · 10 + 7 + 7 in flight; last stage: 2 · 20 + 8.
    assert [stage.memory_bytes for stage in result.stages] == [34.0, 48.0]
    assert [stage.load_s for stage in result.stages] == [8.0, 12.0]
    assert result.bottleneck == 1


def test_by_hand_recompute_and_adam() -> None:
    """Recompute replaces the first stage's send by max(f, c_out/B) = max(1, 5) and stashes its input, which is
    nothing."""
    result = place_instance(two_layers(memory_bytes=70.0, recompute=True, optimizer=Optimizer.ADAM))
    assert [stage.load_s for stage in result.stages] == [8.0, 12.0]
    assert [stage.memory_bytes for stage in result.stages] == [37.0, 68.0]


def test_reasons_carry_the_numbers() -> None:
    """Alone, layer 1 needs 2 · 20 + 8 = 48 bytes; the two-stage cut fits 48 bytes but needs two devices."""
    assert "no stage can hold layer 1: it needs 48.0 B of 47.0 B" in (
        place_instance(two_layers(memory_bytes=47.0)).reason or ""
    )
    assert "needs at least 2 devices (2 stages at tensor-parallel width 1) to fit into memory, 1 available" in (
        place_instance(two_layers(memory_bytes=50.0, max_devices=1)).reason or ""
    )
    # Layer 0 alone fits as the last stage (27 bytes) but it is never last; with one microbatch in flight it needs 34
    # bytes, and with parameters of 2 bytes in layer 1 the single stage of 2 · 12 + 15 = 39 bytes is no way out.
    chain = replace(two_layers().chains[1], parameter_bytes=np.array([10.0, 2.0]))
    assert "the best one, 2 stages at tensor-parallel width 1, needs 34.0 B of 33.0 B" in (
        place_instance(two_layers(chains={1: chain}, memory_bytes=33.0)).reason or ""
    )


def test_an_edge_that_skips_a_whole_stage_does_not_touch_it() -> None:
    chain = LayerChain(
        layer_ids=(0, 1, 2),
        forward_s=np.ones(3),
        backward_s=np.ones(3),
        parameter_bytes=np.zeros(3),
        activation_bytes=np.zeros(3),
        tensor_parallel=np.zeros(3, dtype=np.bool_),
        edge_sources=np.array([0, 1, 0]),
        edge_targets=np.array([1, 2, 2]),
        edge_bytes=np.array([1.0, 2.0, 4.0]),
    )
    load_s = phaze_prices(two_layers(chains={1: chain}), 1).load_at(1)
    # (1 + 1) · layers + bytes over the boundaries: 0→1 and 0→2 leave [0,1); 0→1 enters and 1→2 leaves [1,2).
    assert (load_s[0, 1], load_s[1, 2], load_s[2, 3], load_s[0, 2]) == (2 + 5, 2 + 1 + 2, 2 + 6, 4 + 6)
    assert (load_s[1, 3], load_s[0, 3]) == (4 + 5, 6)
