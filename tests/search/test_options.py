"""The best placement of an option on many architectures, and its bounds, against every placement there is."""

import re
from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.arch_configs import load_cluster
from archplace.search.options import Option, OptionSpace
from archplace.search.placement.pipelines import Pipeline, PipelineTable
from archplace.search.placement.prices import FloatArray
from archplace.search.placement.training import BestPlacement, ChainMemory, ChainSeconds, Degrees
from archplace.workloads import LayerSharding, load_workload
from archplace.workloads.training_step import Layer, OptimizerKind, ParameterBytes, TrainingStep

Row = tuple[float, float, float, float]


def layer(name: str, parameters: int) -> Layer:
    return Layer(
        name=name, forward=(), backward=(), parameters=parameters, stash_bytes=1, input_bytes=1, output_bytes=1
    )


def space_of(pipelines: list[Pipeline], n_blocks: int, parameters: tuple[int, int, int]) -> OptionSpace:
    first, block, last = (layer(*each) for each in zip(("embedding", "block", "head"), parameters, strict=True))
    step = TrainingStep(
        model="chain",
        sharding=LayerSharding(microbatch=1),
        sequence_length=1,
        layers=((first, 1), (block, n_blocks), (last, 1)),
        parameter_bytes=ParameterBytes(weight=2, gradient=2, optimizer=12),
        optimizer=OptimizerKind.ADAM,
        flops_per_token=1.0,
    )
    option = Option(tensor_parallel=1, microbatch=1, recompute=False, hbm_bytes=1)
    return OptionSpace(option=option, step=step, table=PipelineTable.of(step, pipelines), reason=None)


def seconds_of(rows: list[Row]) -> ChainSeconds[FloatArray]:
    first, block, last, optimizer = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return ChainSeconds(first_s=first, block_s=block, last_s=last, optimizer_s_per_parameter=optimizer)


def layouts(n_blocks: int, caps: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield all ways to lay out the blocks; a middle stage holds at least one."""
    for bars in combinations_with_replacement(range(n_blocks + 1), len(caps) - 1):
        blocks = tuple(b - a for a, b in pairwise((0, *bars, n_blocks)))
        if all(k <= cap for k, cap in zip(blocks, caps, strict=True)) and all(k >= 1 for k in blocks[1:-1]):
            yield blocks


def loads_s(row: Row, blocks: tuple[int, ...], transfer_s: float) -> list[float]:
    first, block, last, _ = row
    if len(blocks) == 1:
        return [first + block * blocks[0] + last]
    middle = [2 * transfer_s + block * k for k in blocks[1:-1]]
    return [first + transfer_s + block * blocks[0], *middle, last + transfer_s + block * blocks[-1]]


def sync_and_optimizer_s(space: OptionSpace, row: Row, way: Degrees, blocks: tuple[int, ...]) -> tuple[float, float]:
    (first, _), (block, _), (last, _) = space.step.layers
    parameters = first.parameters + block.parameters * blocks[0] + (last.parameters if len(blocks) == 1 else 0)
    gradient_bytes = space.step.parameter_bytes.gradient * parameters
    return way.sync_s_per_byte * gradient_bytes + way.sync_latency_s, row[3] * parameters


def rank(space: OptionSpace, row: Row, pipeline: int, way: int, blocks: tuple[int, ...]) -> tuple[float, ...]:
    """The step seconds, and what decides between equal ones."""
    chosen = space.pipelines[pipeline]
    degrees = chosen.degrees[way]
    sync_s, optimizer_s = sync_and_optimizer_s(space, row, degrees, blocks)
    step_s = max(loads_s(row, blocks, degrees.transfer_s)) * degrees.slots + sync_s + optimizer_s
    first, block, last, _ = row
    whole = first + block * space.step.layers[1][1] + last
    balanced_s = max(first, last, whole / chosen.stages) * min(each.slots for each in chosen.degrees)
    return step_s, balanced_s, pipeline, way, blocks[0]


def check(space: OptionSpace, row: Row, placement: BestPlacement) -> None:
    """The placement exists and costs what it says."""
    (pipeline,) = {p for p in space.pipelines if placement.degrees in p.degrees and len(placement.blocks) == p.stages}
    n_blocks = space.step.layers[1][1]
    assert sum(placement.blocks) == n_blocks
    assert all(0 <= k <= cap for k, cap in zip(placement.blocks, pipeline.caps, strict=True))
    assert all(k >= 1 for k in placement.blocks[1:-1])
    assert placement.load_s == max(loads_s(row, placement.blocks, placement.degrees.transfer_s))
    expected = sync_and_optimizer_s(space, row, placement.degrees, placement.blocks)
    assert (placement.sync_s, placement.optimizer_s) == expected
    assert placement.step_s == placement.load_s * placement.degrees.slots + placement.sync_s + placement.optimizer_s


numbers = st.one_of(
    st.integers(0, 8).map(float),
    st.floats(0.0, 12.0, allow_subnormal=False),
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.1, 3.3, 1e-17, 1e-9, 1e6]),
)
chain_rows = st.tuples(numbers, numbers, numbers, st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0]) | numbers)


@st.composite
def spaces(draw: st.DrawFn) -> OptionSpace:
    """Small chains, with pipelines of any caps that leave room for the blocks and any ways to replicate them.

    Few numbers of stages and transfer times, so that pipelines compete that differ in their caps and slots only.
    """
    n_blocks = draw(st.integers(1, 6))
    all_stages = draw(st.lists(st.integers(1, min(5, n_blocks + 2)), min_size=1, max_size=2))
    all_transfers = draw(st.lists(numbers, min_size=1, max_size=2))
    pipelines = []
    for serial in range(draw(st.integers(1, 4))):
        stages = draw(st.sampled_from(all_stages))
        caps = tuple(draw(st.lists(st.integers(0, n_blocks) | st.just(n_blocks), min_size=stages, max_size=stages)))
        if next(layouts(n_blocks, caps), None) is None:
            caps = (n_blocks,) * stages
        transfers = all_transfers if stages > 1 else [0.0]
        microbatches = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
        degrees = tuple(
            Degrees(
                stages=stages,
                replicas=100 * serial + index,  # tells ways apart
                microbatches=each,
                transfer_s=draw(st.sampled_from(transfers)),
                sync_s_per_byte=draw(st.sampled_from([0.0, 0.1, 0.5, 2.0])),
                sync_latency_s=draw(st.sampled_from([0.0, 0.3, 1.0])),
            )
            for index, each in enumerate(microbatches)
        )
        pipelines.append(Pipeline(caps=caps, degrees=degrees))
    parameters = draw(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)))
    return space_of(pipelines, n_blocks, parameters)


@settings(max_examples=250, deadline=None)
@given(spaces(), st.lists(chain_rows, min_size=1, max_size=6), st.data())
def test_the_best_placement_is_the_best_of_all_to_the_last_bit(
    space: OptionSpace, rows: list[Row], data: st.DataObject
) -> None:
    n_blocks = space.step.layers[1][1]
    best = [
        min(
            rank(space, row, p, w, blocks)
            for p, pipeline in enumerate(space.pipelines)
            for blocks in layouts(n_blocks, pipeline.caps)
            for w in range(len(pipeline.degrees))
        )
        for row in rows
    ]
    limits = [data.draw(st.sampled_from([np.inf, rank[0], np.nextafter(rank[0], np.inf), 3.0])) for rank in best]
    found = space.best_of(seconds_of(rows), np.array(limits))
    for i, (row, limit, (step_s, _, pipeline, way, first_blocks)) in enumerate(zip(rows, limits, best, strict=True)):
        placement = found.at(i)
        if step_s >= limit:
            assert placement is None
            assert found.step_s[i] == np.inf
            continue
        assert placement is not None
        assert found.step_s[i] == placement.step_s == step_s
        assert placement.degrees == space.pipelines[int(pipeline)].degrees[int(way)]
        assert placement.blocks[0] == first_blocks
        check(space, row, placement)


@settings(max_examples=150, deadline=None)
@given(spaces(), st.lists(chain_rows, min_size=1, max_size=6), st.floats(1.0, 3.0))
def test_no_bound_exceeds_what_it_bounds_by_even_one_ulp(space: OptionSpace, rows: list[Row], slower: float) -> None:
    seconds = seconds_of(rows)
    bounds = space.bound_s(seconds)
    found = space.best_of(seconds)
    assert (space.balanced_bound_s(seconds) <= bounds).all()
    assert (bounds <= found.step_s).all()
    # Bounds of fewer seconds bound the placements of more.
    assert (bounds <= space.best_of(seconds_of([(a * slower, b * slower, c, d) for a, b, c, d in rows])).step_s).all()
    # An architecture's result does not depend on its company.
    alone = [seconds_of([row]) for row in rows]
    assert bounds.tolist() == [float(space.bound_s(one)[0]) for one in alone]
    assert [found.at(i) for i in range(len(rows))] == [space.best_of(one).at(0) for one in alone]


def test_bounds_by_hand() -> None:
    """4 blocks of 2 s, embedding 1 s, head 3 s on 2 stages, 3 microbatches on a replica: 12 s in all, 4 slots.

    Balanced: (12 / 2) · 4 = 24 s. With transfers of 1 s the best cut is 1 + 1 + 2·2 = 6 s and 3 + 1 + 2·2 = 8 s: 32 s.
    The first stage's gradients take 0.5 s and its embedding's optimizer step 5 · 0.1 s.
    """
    way = Degrees(stages=2, replicas=2, microbatches=3, transfer_s=1.0, sync_s_per_byte=0.05, sync_latency_s=0.0)
    space = space_of([Pipeline(caps=(4, 4), degrees=(way,))], 4, (5, 100, 5))
    seconds = seconds_of([(1.0, 2.0, 3.0, 0.1)])
    assert space.balanced_bound_s(seconds)[0] == pytest.approx(24.5)
    assert space.bound_s(seconds)[0] == pytest.approx(32.0 + 0.5 + 0.5)


def test_bounds_without_a_pipeline_are_infinite() -> None:
    space = space_of([], 4, (1, 1, 1))
    seconds = seconds_of([(1.0, 2.0, 3.0, 0.1)])
    assert space.bound_s(seconds).tolist() == space.balanced_bound_s(seconds).tolist() == [np.inf]
    assert space.best_of(seconds).at(0) is None


def greedy_s(row: Row, caps: tuple[int, ...], transfer_s: float, n_blocks: int, first_blocks: int) -> float:
    """The least bottleneck of two stages or more: the blocks that weigh least, in order, until all have a place."""
    first, block, last, _ = row
    middle, end = 2 * transfer_s, last + transfer_s
    further = n_blocks - first_blocks - (len(caps) - 2)
    loads = [end + block * k for k in range(1, caps[-1] + 1)]
    loads += [middle + block * k for cap in caps[1:-1] for k in range(2, cap + 1)]
    if not 0 <= further <= len(loads) or first_blocks > caps[0]:
        return np.inf
    must = [first + transfer_s + block * first_blocks, end, *([middle + block] * (len(caps) > 2))]
    return max(must + sorted(loads)[:further])


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 20), st.integers(1, 60), st.booleans(), st.integers(0, 2**32 - 1))
def test_long_chains_whose_loads_tie_but_for_an_ulp(stages: int, n_blocks: int, tight: bool, seed: int) -> None:
    """Bases that are multiples of a block's load, moved by one ulp: the loads of different stages nearly tie."""
    stages = min(stages, n_blocks + 2)
    random = np.random.default_rng(seed)
    even = -(-n_blocks // stages)
    caps = tuple(random.integers(even, even + 2 if tight else n_blocks + 1, stages).tolist())
    block = random.uniform(0.1, 3.0, 8)
    first, last = np.nextafter(random.integers(0, 20, (2, 8)) * block, random.choice([0.0, 1e9], (2, 8)))
    transfer_s = float(random.choice([0.0, block[0], 0.25]))
    way = Degrees(
        stages=stages,
        replicas=1,
        microbatches=int(random.integers(1, 50)),
        transfer_s=transfer_s,
        sync_s_per_byte=float(random.choice([0.0, 0.01])),
        sync_latency_s=0.5,
    )
    space = space_of([Pipeline(caps=caps, degrees=(way,))], n_blocks, (3, 5, 7))
    rows = list(zip(first.tolist(), block.tolist(), last.tolist(), [0.0, 0.01] * 4, strict=True))
    found = space.best_of(seconds_of(rows))
    for i, row in enumerate(rows):
        choices = []
        for k in range(n_blocks + 1):
            sync_s, optimizer_s = sync_and_optimizer_s(space, row, way, (k, 0))
            choices.append((greedy_s(row, caps, transfer_s, n_blocks, k) * way.slots + sync_s + optimizer_s, k))
        placement = found.at(i)
        assert placement is not None
        assert (placement.step_s, placement.blocks[0]) == min(choices)
        check(space, row, placement)


def test_one_limit_for_all_and_no_architecture() -> None:
    way = Degrees(stages=1, replicas=1, microbatches=2, transfer_s=0.0, sync_s_per_byte=0.0, sync_latency_s=0.0)
    space = space_of([Pipeline(caps=(3,), degrees=(way,))], 3, (0, 0, 0))
    rows: list[Row] = [(1.0, 1.0, 1.0, 0.0), (1.0, 2.0, 1.0, 0.0)]
    # (1 + 3·1 + 1) · 2 and (1 + 3·2 + 1) · 2.
    assert space.best_of(seconds_of(rows)).step_s.tolist() == [10.0, 16.0]
    assert space.best_of(seconds_of(rows), 16.0).step_s.tolist() == [10.0, np.inf]
    assert space.best_of(seconds_of([])).step_s.shape == (0,)
    assert space.best_of(seconds_of([])).step_s.shape == space.bound_s(seconds_of([])).shape


def test_the_capacity_that_a_shortage_asks_for_is_enough_and_less_is_not():
    """Llama 2 7B on 64 devices with a large microbatch: the stages named need few microbatches in flight."""
    workload = load_workload("llama2-7b")
    cluster = load_cluster("tpu-v4-pod").sized(64)
    for width, microbatch in ((1, 8), (8, 8), (2, 1)):
        step = workload.step(LayerSharding(tensor=width, microbatch=microbatch))

        def space(capacity, width=width, microbatch=microbatch, step=step):
            option = Option(tensor_parallel=width, microbatch=microbatch, recompute=False, hbm_bytes=capacity)
            return OptionSpace.of(option, step, cluster, accelerators=64, global_batch=workload.global_batch)

        reason = space(10**8).reason
        number, unit = re.search(r"needs at least ([\d.]+) (GB|MB)", reason).groups()
        needed = float(number) * {"GB": 1e9, "MB": 1e6}[unit]
        assert space(int(needed * 1.001)).reason is None
        assert space(int(needed * 0.999)).reason is not None


@given(
    capacity=st.floats(1e9, 3e11),
    most=st.integers(1, 40),
    microbatches=st.integers(1, 12),
    recompute=st.booleans(),
)
def test_the_fewest_stages_are_those_of_the_caps(capacity, most, microbatches, recompute):
    workload = load_workload("gpt2-xl")
    memory = ChainMemory.of(workload.step(LayerSharding(tensor=1, microbatch=4)), recompute=recompute)

    def in_flight(stages):
        return 1 + microbatches // stages

    expected = None
    for stages in range(1, most + 1):
        caps = memory.caps(stages=stages, capacity_bytes=capacity, microbatches=in_flight(stages))
        if memory.fits(stages=stages, caps=caps):
            expected = stages
            break
    counts = np.array([in_flight(stages) for stages in range(1, most + 1)])
    assert memory.least_stages(capacity, counts) == expected
