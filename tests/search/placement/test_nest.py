"""NEST's formulas: the optima of its instances, and brute force over everything on small ones.

The formulas stand here a second time, evaluated layer by layer and device by device as they are written in the paper's
solver, without any of the arrays of the search.
"""

import gzip
import json
import math
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
    NestInstance,
    NetworkLevel,
    Optimizer,
    PlacementResult,
    nest_prices,
    place_instance,
    read_instances,
)
from archplace.search.placement.nest import exchange_coefficients, meeting_level

REFERENCE = Path(__file__).parent / "data" / "nest_placement.json.gz"
RAW = {entry["name"]: entry for entry in json.loads(gzip.decompress(REFERENCE.read_bytes()))}
INSTANCES = {instance.name: instance for instance in read_instances(REFERENCE)}


def level_of(instance: NestInstance, first: int, second: int) -> int:
    group = 1
    for index, level in enumerate(instance.levels):
        group *= level.fan_out
        if first // group == second // group:
            return index
    raise AssertionError(f"devices {first} and {second} never meet")


def transfer_s(instance: NestInstance, size: float, level: int) -> float:
    bandwidth = min(each.bandwidth_bytes_per_s for each in instance.levels[: level + 1])
    once = size / bandwidth + instance.levels[level].latency_s
    return once if level == 0 else 2.0 * once


def exchange_s(instance: NestInstance, size: float, replicas: int, pipeline_devices: int) -> float:
    ranks = [index * pipeline_devices for index in range(replicas)]
    top = max(level_of(instance, ranks[0], rank) for rank in ranks)
    total, step = 0.0, 1
    while 2 * step <= replicas:
        total += instance.levels[0].latency_s + size / step / instance.levels[0].bandwidth_bytes_per_s
        step *= 2
    lower = 0.0
    for level in instance.levels[1 : top + 1]:
        total += 2.0 * (level.latency_s + size / level.bandwidth_bytes_per_s) + lower
        lower += total
    return total


def stage_load_s(instance: NestInstance, chain: LayerChain, stages: list[tuple[int, int]], index: int, a: int) -> float:
    """Seconds of one stage per microbatch: when its last layer ends, forward, and its first one, backward."""
    start, end = stages[index]
    position = len(stages) - index
    first_device = [(len(stages) - each - 1) * a for each in range(len(stages))]
    edges = list(zip(chain.edge_sources.tolist(), chain.edge_targets.tolist(), chain.edge_bytes.tolist(), strict=True))
    ended: dict[int, float] = {}
    for layer in range(start, end):
        waits = [0.0]
        for source, target, size in edges:
            if target == layer and source >= start:
                waits.append(ended[source])
            elif target == layer:
                waits.append(
                    transfer_s(instance, size, level_of(instance, first_device[index - 1], first_device[index]))
                )
        ended[layer] = max(waits) + float(chain.forward_s[layer])
    forward = ended[end - 1]
    repeated = 0.0
    if instance.recompute and position > 1:
        again = chain.backward_s if instance.recomputed_forward_as_backward else chain.forward_s
        repeated = sum(again[start:end].tolist())
    ended = {}
    for layer in reversed(range(start, end)):
        waits = [repeated]
        for source, target, size in edges:
            if source == layer and target < end:
                waits.append(ended[target])
            elif source == layer:
                waits.append(
                    transfer_s(instance, size, level_of(instance, first_device[index], first_device[index + 1]))
                )
        ended[layer] = max(waits) + float(chain.backward_s[layer])
    return forward + ended[start]


def stage_memory_bytes(instance: NestInstance, chain: LayerChain, start: int, end: int, position: int) -> float:
    parameters = sum(chain.parameter_bytes[start:end].tolist())
    activations = sum(chain.activation_bytes[start:end].tolist())
    stash = activations
    if instance.recompute:
        edges = zip(chain.edge_sources, chain.edge_targets, chain.edge_bytes.tolist(), strict=True)
        stash = sum(size for source, target, size in edges if source < start <= target < end)
    optimizer = 6.0 * parameters if instance.optimizer is Optimizer.ADAM else 0.0
    return 2.0 * parameters + optimizer + activations + (position - 1) * stash


def devices_of_a_stage(instance: NestInstance, width: int) -> int:
    return width * instance.expert_parallel * instance.context_parallel


def evaluate(instance: NestInstance, width: int, cuts: list[int]) -> tuple[float, float]:
    """Return the bottleneck of a pipeline and the memory of its fullest device."""
    chain = instance.chains[width]
    stages = list(pairwise(cuts))
    a = devices_of_a_stage(instance, width)
    bottleneck = max(stage_load_s(instance, chain, stages, index, a) for index in range(len(stages)))
    memory = max(
        stage_memory_bytes(instance, chain, start, end, len(stages) - index)
        for index, (start, end) in enumerate(stages)
    )
    return bottleneck, memory


def time_s(instance: NestInstance, width: int, cuts: list[int], bottleneck_s: float, replicas: int) -> float:
    stages = len(cuts) - 1
    first = sum(instance.chains[width].parameter_bytes[: cuts[1]].tolist())
    pipeline_devices = stages * devices_of_a_stage(instance, width)
    fill = -(-instance.microbatches // replicas) + stages - 1
    return bottleneck_s * fill + exchange_s(instance, first, replicas, pipeline_devices)


def check(instance: NestInstance, result: PlacementResult) -> None:
    """The placement obeys every constraint, and the formulas give its time, loads and memory."""
    chain = instance.chains[result.tensor_parallel]
    stages = [(stage.first_layer, stage.end_layer) for stage in result.stages]
    cuts = [0, *(end for _, end in stages)]
    assert stages == list(pairwise(cuts))
    assert cuts[-1] == chain.n_layers
    a = devices_of_a_stage(instance, result.tensor_parallel)
    for index, stage in enumerate(result.stages):
        assert stage.devices == a
        assert stage.load_s == pytest.approx(stage_load_s(instance, chain, stages, index, a), rel=1e-12)
        memory = stage_memory_bytes(instance, chain, *stages[index], len(stages) - index)
        assert stage.memory_bytes == pytest.approx(memory, rel=1e-12)
    bottleneck, memory = evaluate(instance, result.tensor_parallel, cuts)
    assert memory <= instance.memory_bytes * (1.0 + 1e-12)
    assert result.devices == a * len(stages) * result.data_parallel <= instance.max_devices
    assert 1 <= result.data_parallel <= instance.microbatches
    again = time_s(instance, result.tensor_parallel, cuts, bottleneck, result.data_parallel)
    assert result.time_per_batch_s == pytest.approx(again, rel=1e-12)


@pytest.mark.parametrize("name", RAW)
def test_reaches_the_optimum_of_the_formula(name: str) -> None:
    """Source of the answers: see data/README.md; they are in milliseconds. NEST's own plans are never faster."""
    instance, optimum = INSTANCES[name], RAW[name]["optimum"]
    result = place_instance(instance)
    assert result.feasible == (optimum is not None)
    if optimum is None:
        assert "devices" in (result.reason or "")
        return
    assert 1e3 * result.time_per_batch_s == pytest.approx(optimum["time_per_batch"], rel=1e-9, abs=0.0)
    check(instance, result)
    reported = RAW[name].get("nest_reported", {"time_per_batch": math.inf})["time_per_batch"]
    assert 1e3 * result.time_per_batch_s <= reported * (1.0 + 1e-12)


@pytest.mark.parametrize("name", [name for name, raw in RAW.items() if raw["optimum"] and len(raw["graphs"]) > 1])
def test_reaches_the_optimum_of_every_width_alone(name: str) -> None:
    instance = INSTANCES[name]
    for width, expected in RAW[name]["optimum"]["per_tp"].items():
        result = place_instance(replace(instance, chains={int(width): instance.chains[int(width)]}))
        found = 1e3 * result.time_per_batch_s
        assert found == (math.inf if expected is None else pytest.approx(expected, rel=1e-9, abs=0.0))


def test_the_reference_holds_all_sizes_and_infeasible_instances() -> None:
    assert len(RAW) == 69
    assert {raw["num_devices"] for raw in RAW.values()} >= {24, 64, 128, 256, 512, 1024}
    assert sum(raw["optimum"] is None for raw in RAW.values()) == 6
    slower = [
        raw["nest_reported"]["time_per_batch"] / raw["optimum"]["time_per_batch"]
        for raw in RAW.values()
        if raw["optimum"] and "nest_reported" in raw
    ]
    assert 1.8 < max(slower) < 1.9


@st.composite
def chains(draw: st.DrawFn, n: int) -> LayerChain:
    def amounts(most: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)), dtype=np.float64)

    skips = [(a, b) for a, b in combinations(range(n), 2) if b > a + 1]
    edges = [(a, a + 1) for a in range(n - 1)]
    edges += draw(st.lists(st.sampled_from(skips), unique=True, max_size=4)) if skips else []
    sizes = draw(st.lists(st.integers(0, 40), min_size=len(edges), max_size=len(edges)))
    return LayerChain(
        layer_ids=tuple(range(n)),
        forward_s=amounts(9),
        backward_s=amounts(15),
        parameter_bytes=amounts(6),
        activation_bytes=amounts(6),
        tensor_parallel=np.ones(n, dtype=np.bool_),
        edge_sources=np.array([a for a, _ in edges], dtype=np.int64),
        edge_targets=np.array([b for _, b in edges], dtype=np.int64),
        edge_bytes=np.array(sizes, dtype=np.float64),
    )


@st.composite
def small_instances(draw: st.DrawFn) -> NestInstance:
    """Amounts are whole numbers and bandwidths powers of two: sums are exact, so ties are ties for both sides."""
    n = draw(st.integers(1, 6))
    fan_outs = draw(st.sampled_from([(16,), (2, 8), (3, 5), (2, 2, 4), (4, 2, 2), (2, 3, 3), (2, 2, 2, 2)]))
    levels = tuple(
        NetworkLevel(
            fan_out=fan_out,
            bandwidth_bytes_per_s=2.0 ** draw(st.integers(-1, 4)),
            latency_s=float(draw(st.integers(0, 3))),
        )
        for fan_out in fan_outs
    )
    widths = draw(st.lists(st.integers(1, 3), unique=True, min_size=1, max_size=2))
    return NestInstance(
        name="small",
        chains={width: draw(chains(n)) for width in widths},
        memory_bytes=float(draw(st.integers(5, 120))),
        max_devices=draw(st.integers(1, math.prod(fan_outs))),
        expert_parallel=draw(st.sampled_from([1, 1, 2])),
        context_parallel=draw(st.sampled_from([1, 1, 2])),
        levels=levels,
        microbatches=draw(st.sampled_from([1, 2, 5, 8, 64])),
        recompute=draw(st.booleans()),
        recomputed_forward_as_backward=draw(st.booleans()),
        optimizer=draw(st.sampled_from(Optimizer)),
    )


def all_placements(instance: NestInstance) -> Iterator[tuple[float, int, int, int, int]]:
    """Yield (time, devices, stages, width, end of the first stage) of every placement that fits."""
    for width, chain in instance.chains.items():
        n, a = chain.n_layers, devices_of_a_stage(instance, width)
        for stages in range(1, min(n, instance.max_devices // a) + 1):
            for inner in combinations(range(1, n), stages - 1):
                cuts = [0, *inner, n]
                bottleneck, memory = evaluate(instance, width, cuts)
                if memory > instance.memory_bytes:
                    continue
                for replicas in range(1, min(instance.max_devices // (a * stages), instance.microbatches) + 1):
                    time = time_s(instance, width, cuts, bottleneck, replicas)
                    yield time, replicas * stages * a, stages, width, cuts[1]


@settings(max_examples=300, deadline=None)
@given(small_instances())
def test_equals_brute_force_and_its_tie_rule(instance: NestInstance) -> None:
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


@settings(max_examples=100, deadline=None)
@given(small_instances(), st.integers(1, 40), st.integers(1, 3))
def test_more_memory_faster_networks_and_sgd_never_hurt(
    instance: NestInstance, memory_bytes: int, doublings: int
) -> None:
    time = place_instance(instance).time_per_batch_s
    assert place_instance(replace(instance, memory_bytes=instance.memory_bytes + memory_bytes)).time_per_batch_s <= time
    faster = tuple(
        replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * 2.0**doublings) for level in instance.levels
    )
    assert place_instance(replace(instance, levels=faster)).time_per_batch_s <= time
    assert place_instance(replace(instance, optimizer=Optimizer.SGD)).time_per_batch_s <= time


@settings(max_examples=200, deadline=None)
@given(small_instances(), st.integers(1, 40), st.integers(0, 30))
def test_the_exchange_of_gradients_grows_with_the_replicas(
    instance: NestInstance, pipeline_devices: int, size: int
) -> None:
    """The search relies on it. And it is the formula's, rank by rank."""
    replicas = np.arange(1, 17)
    seconds, seconds_per_byte = exchange_coefficients(instance.levels, replicas, pipeline_devices)
    assert (np.diff(seconds) >= 0).all()
    assert (np.diff(seconds_per_byte) >= 0).all()
    connected = math.prod(level.fan_out for level in instance.levels)
    for index, count in enumerate(replicas.tolist()):
        if (count - 1) * pipeline_devices < connected:
            expected = exchange_s(instance, float(size), count, pipeline_devices)
            assert seconds[index] + seconds_per_byte[index] * size == expected


def two_layers(**changes: object) -> NestInstance:
    """Layers of 1 s + 2 s and 3 s + 4 s, 10 and 20 bytes of parameters, 6 bytes between them.

    Two devices to a node at 2 bytes/s and 1 s; four nodes at 4 bytes/s and 5 s.
    """
    chain = LayerChain(
        layer_ids=(0, 1),
        forward_s=np.array([1.0, 3.0]),
        backward_s=np.array([2.0, 4.0]),
        parameter_bytes=np.array([10.0, 20.0]),
        activation_bytes=np.array([7.0, 8.0]),
        tensor_parallel=np.array([True, True]),
        edge_sources=np.array([0]),
        edge_targets=np.array([1]),
        edge_bytes=np.array([6.0]),
    )
    levels = (
        NetworkLevel(fan_out=2, bandwidth_bytes_per_s=2.0, latency_s=1.0),
        NetworkLevel(fan_out=4, bandwidth_bytes_per_s=4.0, latency_s=5.0),
    )
    instance = NestInstance(
        name="two",
        chains={1: chain},
        memory_bytes=1000.0,
        max_devices=2,
        expert_parallel=1,
        context_parallel=1,
        levels=levels,
        microbatches=100,
        recompute=False,
        recomputed_forward_as_backward=False,
        optimizer=Optimizer.SGD,
    )
    return replace(instance, **changes)  # type: ignore[arg-type]  # the callers name fields of the dataclass


def test_by_hand_two_stages() -> None:
    """6 bytes within a node take 6/2 + 1 = 4 s: loads 1 + (4 + 2) = 7 and (4 + 3) + 4 = 11, 11 · (100 + 1) = 1111 s.

    Two replicas of one stage: 10 · 50 + 1 + 30/2 = 516 s, which is better where a device holds both layers: 75 bytes.
    With two devices a stage the bytes go over the nodes: 2 · (6/2 + 5) = 16 s, the least bandwidth on the way counts,
    and (16 + 3 + 4) · 101 = 2323 s.
    """
    result = place_instance(two_layers(memory_bytes=75.0))
    assert (result.time_per_batch_s, result.data_parallel, result.synchronisation_s) == (516.0, 2, 16.0)
    result = place_instance(two_layers(memory_bytes=74.0))
    assert (result.time_per_batch_s, result.data_parallel) == (1111.0, 1)
    assert [stage.load_s for stage in result.stages] == [7.0, 11.0]
    # First stage: 2 · 10 + 7 + 7 in flight; last stage: 2 · 20 + 8.
    assert [stage.memory_bytes for stage in result.stages] == [34.0, 48.0]
    for degree in ("expert_parallel", "context_parallel"):
        result = place_instance(two_layers(memory_bytes=74.0, max_devices=4, **{degree: 2}))
        assert (result.time_per_batch_s, result.devices) == (2323.0, 4)


def test_by_hand_recompute_and_adam() -> None:
    """The first stage repeats its forward pass while its 6 bytes come back (4 s): 1 + max(1 + 2, 4 + 2) = 7 s.

    At 64 bytes/s they take 1 + 3/32 s and the repeated pass is the longer: 1 + max(1 + 2, 3 + 3/32) or, priced as a
    backward pass, 1 + (2 + 2) = 5 s. The last stage does not repeat. Adam: 8 bytes per byte of parameters.
    """
    repeats = two_layers(recompute=True, optimizer=Optimizer.ADAM, memory_bytes=239.0)
    result = place_instance(repeats)
    assert [stage.load_s for stage in result.stages] == [7.0, 11.0]
    assert [stage.memory_bytes for stage in result.stages] == [87.0, 168.0]
    levels = (replace(repeats.levels[0], bandwidth_bytes_per_s=64.0), repeats.levels[1])
    for as_backward, first_s in ((False, 1 + 3 + 3 / 32), (True, 5.0)):
        result = place_instance(replace(repeats, levels=levels, recomputed_forward_as_backward=as_backward))
        assert [stage.load_s for stage in result.stages] == [first_s, 7 + 1 + 3 / 32]


def test_by_hand_what_arrives_late_and_over_which_level() -> None:
    """Bytes that skip a layer are waited for only where they are needed; every load passes the levels beside it.

    Three layers of 2 s + 3 s; 2 bytes from each to the next, 8 from the first to the last. Stages [0], [1], [2] lie on
    the devices 2, 1, 0, two to a node: the first boundary passes the upper level, the second the lower one.
    """
    chain = LayerChain(
        layer_ids=(0, 1, 2),
        forward_s=np.full(3, 2.0),
        backward_s=np.full(3, 3.0),
        parameter_bytes=np.ones(3),
        activation_bytes=np.zeros(3),
        tensor_parallel=np.ones(3, dtype=np.bool_),
        edge_sources=np.array([0, 1, 0]),
        edge_targets=np.array([1, 2, 2]),
        edge_bytes=np.array([2.0, 2.0, 8.0]),
    )
    prices = nest_prices(two_layers(chains={1: chain}, max_devices=8), 1)
    # Lower level: 2 bytes 2 s, 8 bytes 5 s. Upper level: 2 bytes 12 s, 8 bytes 18 s.
    assert prices.load_at(1)[2, 3] == (5 + 2) + 3
    assert prices.load_at(2)[1, 2] == (12 + 2) + (2 + 3)
    assert prices.load_at(3)[0, 1] == 2 + (18 + 3)
    # Two stages. [1, 2] on device 0, [0] on device 1: 8 bytes (5 s) are there after layer 1 has run, at 2 + 2 s.
    assert prices.load_at(1)[1, 3] == (5 + 2) + (3 + 3)
    assert prices.load_at(2)[0, 1] == 2 + (5 + 3)
    # [0, 1] and [2]: layer 0 waits for the bytes of layer 2 until 5 s, when layer 1 has run backwards too.
    assert prices.load_at(2)[0, 2] == (2 + 2) + (5 + 3)


def test_devices_meet_at_the_innermost_common_group() -> None:
    levels = two_layers().levels
    assert [meeting_level(levels, 0, device) for device in range(8)] == [0, 0, 1, 1, 1, 1, 1, 1]
    assert [meeting_level(levels, 5, device) for device in range(8)] == [1, 1, 1, 1, 0, 0, 1, 1]


def test_a_reason_counts_all_devices_of_a_stage() -> None:
    tight = two_layers(memory_bytes=74.0, max_devices=7, expert_parallel=2, context_parallel=2)
    assert "needs at least 8 devices (2 stages at tensor-parallel width 1) to fit into memory, 7 available" in (
        place_instance(tight).reason or ""
    )
