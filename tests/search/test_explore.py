"""The exploration against exhaustive evaluation: every architecture, every option, every cut, by naive loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from archplace.arch_configs import Cluster, NetworkDimension, Topology, load_space
from archplace.costmodel import Pricer, ring_s, spread, stage_memory
from archplace.search.explore import Exploration, Fate
from archplace.search.schedule import ScheduleCache, ScheduleGraph
from archplace.search.steptimes import OPTIMIZER_PARAMETERS
from archplace.search.workload_search import Choices
from archplace.workloads import CollectiveKind, Operator, Phase, Unit, load_workload

CLUSTER = Cluster(
    name="two dimensions",
    dimensions=(
        NetworkDimension(name="node", topology=Topology.SWITCH, size=4, bandwidth_bytes_per_s=100e9, latency_s=1e-6),
        NetworkDimension(name="fabric", topology=Topology.SWITCH, size=2, bandwidth_bytes_per_s=10e9, latency_s=5e-6),
    ),
    sources={},
)
CHOICES = Choices(
    accelerators=8,
    tensor_parallel=(1, 2),
    microbatch=(1, 2),
    recompute=(False, True),
    # Some placements fit neither, some only the larger.
    hbm_bytes=(24_000_000, 40_000_000),
)


def small_workload(name="llama2-7b", **changes):
    workload = load_workload(name)
    sizes = {"n_layers": 3, "d_model": 256, "n_heads": 4, "n_kv_heads": 4, "head_dim": 64, "d_ff": 512} | changes
    model = replace(workload.model, vocabulary=1000, padded_vocabulary=1024, embedding_width=256, **sizes)
    return replace(workload, model=model, sequence_length=256, global_batch=12)


@pytest.fixture(scope="module")
def architectures():
    space = load_space("phaze").enumerate()
    return space.take(np.arange(17, len(space), len(space) // 24))


def compositions(stages, blocks):
    """All ways to lay ``blocks`` on ``stages``: middle stages hold at least one."""
    if stages == 1:
        return [(blocks,)]
    ranges = [range(blocks + 1)] + [range(1, blocks + 1)] * (stages - 2) + [range(blocks + 1)]
    return [cut for cut in product(*ranges) if sum(cut) == blocks]


def layer_seconds(step, architectures, index, workload):
    """Forward and backward seconds of the three layers by solved schedules, and the optimizer's per parameter."""
    pricer = Pricer(architectures, CLUSTER).subset(np.array([index]))
    cache = ScheduleCache()
    seconds = []
    for layer, _ in step.layers:
        pair = []
        for operators in (layer.forward, layer.backward):
            prices = pricer.price(operators)
            schedule = cache.solve(
                ScheduleGraph.of_operators(operators).problem(
                    one_s=prices.one_s[0],
                    all_s=prices.all_s[0],
                    tensor_units=int(architectures.tensor_count[index]),
                    vector_units=int(architectures.vector_count[index]),
                )
            )
            pair.append((schedule.makespan_s, schedule.lower_bound_s))
        seconds.append(pair)
    optimizer = Operator(
        name="o", unit=Unit.VECTOR, phase=Phase.OPTIMIZER, vector=workload.optimizer_work(OPTIMIZER_PARAMETERS)
    )
    return seconds, float(pricer.price([optimizer]).all_s[0, 0]) / OPTIMIZER_PARAMETERS


def fits(step, cut, recompute, microbatches):
    """Whether every stage's layers and microbatches in flight fit the larger capacity."""
    (first, _), (block, _), (last, _) = step.layers
    for position, blocks in enumerate(cut):
        held = tuple((layer, 1) for layer, at in ((first, 0), (last, len(cut) - 1)) if position == at)
        in_flight = min(len(cut) - position, microbatches)
        outer = stage_memory(held, step.parameter_bytes, recompute=False, in_flight=in_flight)
        inner = stage_memory(((block, blocks),), step.parameter_bytes, recompute=recompute, in_flight=in_flight)
        if outer.total_bytes + inner.total_bytes > max(CHOICES.hbm_bytes):
            return False
    return True


def slowest_hop_s(n_bytes, stride, stages):
    """The slowest transfer between stages, device by device: a pair meets in the first dimension it shares."""
    slowest = 0.0
    for device in range(stride * (stages - 1)):
        reach = 1
        for dimension in CLUSTER.dimensions:
            reach *= dimension.size
            if device // reach == (device + stride) // reach:
                slowest = max(slowest, n_bytes / dimension.bandwidth_bytes_per_s + dimension.latency_s)
                break
    return slowest


def exhaustive_s(architectures, index, workload):
    """Best step seconds over everything, with found schedules and with their lower bounds."""
    best = [np.inf, np.inf]
    for width, microbatch in product(CHOICES.tensor_parallel, CHOICES.microbatch):
        step = workload.step(tensor_parallel=width, microbatch=microbatch)
        seconds, optimizer_s = layer_seconds(step, architectures, index, workload)
        (first, _), (block, n_blocks), (last, _) = step.layers
        size = step.parameter_bytes
        for stages in range(1, min(n_blocks + 2, 8 // width) + 1):
            for cut, recompute in product(compositions(stages, n_blocks), CHOICES.recompute):
                loads = [[], []]
                for position, blocks in enumerate(cut):
                    for which in (0, 1):
                        (ef, eb), (bf, bb), (hf, hb) = [[pair[which] for pair in layer] for layer in seconds]
                        load = blocks * (bf * (2 if recompute else 1) + bb)
                        load += (ef + eb) * (position == 0) + (hf + hb) * (position == stages - 1)
                        loads[which].append(load)
                for replicas in range(1, 8 // (width * stages) + 1):
                    microbatches = -(-(workload.global_batch // microbatch) // replicas)
                    if not fits(step, cut, recompute, microbatches):
                        continue
                    slots = microbatches + stages - 1
                    wait = slowest_hop_s(block.input_bytes, width * replicas, stages)
                    parameters = first.parameters + cut[0] * block.parameters
                    parameters += last.parameters if stages == 1 else 0
                    sync = ring_s(
                        CollectiveKind.ALL_REDUCE,
                        parameters * size.gradient,
                        spread(CLUSTER, size=replicas, stride=width),
                    )
                    for which in (0, 1):
                        slowest = max(
                            load + wait * ((position > 0) + (position < stages - 1))
                            for position, load in enumerate(loads[which])
                        )
                        total = slowest * slots + sync + optimizer_s * parameters
                        best[which] = min(best[which], total)
    return best


def test_front_is_the_front_of_exhaustive_evaluation(architectures):
    workload = small_workload()
    outcome = Exploration(architectures, [workload], CLUSTER, CHOICES, jobs=1)
    outcome.bound()
    result = outcome.run()
    assert not (result.fate == Fate.OPEN).any()
    exact = np.array([exhaustive_s(architectures, i, workload) for i in range(len(architectures))])
    step, lower = exact.T
    for index, point in result.points.items():
        found = point.results[0]
        if found.proven:
            assert found.placement.step_s == pytest.approx(step[index], rel=1e-9)
        assert found.lower_step_s <= step[index] * (1 + 1e-9)
        assert found.placement.step_s >= lower[index] * (1 - 1e-9)
    bound_s = result.bound_seconds_per_sample * workload.global_batch
    assert (bound_s <= step * (1 + 1e-9)).all()
    proven = np.array([i not in result.points or result.points[i].proven for i in range(len(architectures))])
    assert proven.all()
    area = architectures.area_mm2
    for i in range(len(architectures)):
        dominated = ((step <= step[i]) & (area <= area[i]) & ((step < step[i]) | (area < area[i]))).any()
        assert (result.fate[i] == Fate.FRONT) == (not dominated)


def test_who_prunes_whom_is_true(architectures):
    outcome = Exploration(architectures, [small_workload()], CLUSTER, CHOICES, jobs=1)
    outcome.bound()
    result = outcome.run()
    area = architectures.area_mm2
    beaten = np.flatnonzero((result.fate == Fate.PRUNED) | (result.fate == Fate.DOMINATED))
    assert len(beaten)
    for i in beaten.tolist():
        winner = result.points[int(result.by[i])]
        own = result.points[i].seconds_per_sample if i in result.points else result.bound_seconds_per_sample[i]
        assert result.fate[winner.architecture] == Fate.FRONT
        assert winner.seconds_per_sample <= own
        assert area[winner.architecture] <= area[i]
        assert winner.seconds_per_sample < own or area[winner.architecture] < area[i]


def test_two_workloads_are_averaged_geometrically(architectures):
    few = architectures.take(np.arange(0, len(architectures), 4))
    workloads = [small_workload(), small_workload(d_ff=1024)]
    both = Exploration(few, workloads, CLUSTER, CHOICES, jobs=1)
    both.bound()
    result = both.run()
    for point in result.points.values():
        speeds = [
            workload.global_batch / found.placement.step_s
            for workload, found in zip(workloads, point.results, strict=True)
        ]
        assert 1 / point.seconds_per_sample == pytest.approx(np.sqrt(speeds[0] * speeds[1]))


def test_a_stopped_search_goes_on_where_it_was(architectures):
    workload = small_workload()
    whole = Exploration(architectures, [workload], CLUSTER, CHOICES, jobs=1)
    whole.bound()
    expected = whole.run()

    class StopError(Exception):
        pass

    stored = []

    def stop(points, _):
        stored.extend(points)
        raise StopError

    first = Exploration(architectures, [workload], CLUSTER, CHOICES, jobs=1)
    first.bound()
    with pytest.raises(StopError):
        first.run(on_points=stop)
    assert stored
    second = Exploration(architectures, [workload], CLUSTER, CHOICES, jobs=1)
    second.bound()
    again = second.run(stored=stored)
    np.testing.assert_array_equal(again.fate, expected.fate)
    assert [p.seconds_per_sample for p in again.front] == [p.seconds_per_sample for p in expected.front]


def test_budgets_reject_with_a_reason(architectures):
    workload = small_workload()
    choices = replace(CHOICES, max_area_mm2=100.0, max_step_s=0.5)
    search = Exploration(architectures, [workload], CLUSTER, choices, jobs=1)
    search.bound()
    result = search.run()
    for i in np.flatnonzero(architectures.area_mm2 > 100).tolist():
        assert result.fate[i] == Fate.INFEASIBLE
    for i in np.flatnonzero(result.fate == Fate.INFEASIBLE).tolist():
        assert "budget" in result.reasons[i]
    assert all(point.results[0].placement.step_s <= 0.5 for point in result.front)


def test_a_step_time_budget_keeps_the_part_of_the_front_that_meets_it(architectures):
    workload = small_workload()
    free = Exploration(architectures, [workload], CLUSTER, CHOICES, jobs=1)
    free.bound()
    front = free.run().front
    for limit in (front[len(front) // 2].results[0].placement.step_s, front[-2].results[0].placement.step_s):
        within = Exploration(architectures, [workload], CLUSTER, replace(CHOICES, max_step_s=limit), jobs=1)
        within.bound()
        expected = [p.architecture for p in front if p.results[0].placement.step_s <= limit]
        assert [p.architecture for p in within.run().front] == expected


def test_a_width_beyond_the_accelerators_is_a_reason(architectures):
    few = architectures.take(np.arange(3))
    choices = replace(CHOICES, accelerators=1, tensor_parallel=(1, 2, 4), hbm_bytes=(400_000_000,))
    search = Exploration(few, [small_workload()], CLUSTER, choices, jobs=1)
    search.bound()
    assert search.run().front
    assert any("exceeds the 1 accelerators" in text for text in search.outcome.option_reasons.values())


def test_nothing_fits_is_a_result_with_reasons(architectures):
    choices = replace(CHOICES, hbm_bytes=(1_000_000,))
    search = Exploration(architectures, [small_workload()], CLUSTER, choices, jobs=1)
    search.bound()
    result = search.run()
    assert (result.fate == Fate.INFEASIBLE).all()
    assert all("memory: needs at least" in reason for reason in result.option_reasons.values())


def test_width_that_does_not_divide_the_heads_is_a_reason(architectures):
    choices = replace(CHOICES, tensor_parallel=(1, 3))
    search = Exploration(architectures, [small_workload()], CLUSTER, choices, jobs=1)
    assert any("t=3" in key and "3" in text for key, text in search.searches[0].reasons.items())
