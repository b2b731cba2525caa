"""Exhaustive evaluation of a small space by naive loops: every architecture, option, cut and degree."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from archplace.arch_configs import Cluster, NetworkDimension, Topology
from archplace.costmodel import Pricer, ring_s, spread, stage_memory
from archplace.search.choices import Choices
from archplace.search.schedule import ScheduleCache, ScheduleGraph
from archplace.search.steptimes import OPTIMIZER_PARAMETERS
from archplace.workloads import CollectiveKind, LayerSharding, Operator, Phase, Unit, load_workload

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


def fits(step, cut, recompute, microbatches, capacity):
    """Whether every stage's layers and microbatches in flight fit the capacity."""
    (first, _), (block, _), (last, _) = step.layers
    for position, blocks in enumerate(cut):
        held = tuple((layer, 1) for layer, at in ((first, 0), (last, len(cut) - 1)) if position == at)
        in_flight = min(len(cut) - position, microbatches)
        outer = stage_memory(held, step.parameter_bytes, recompute=False, in_flight=in_flight)
        inner = stage_memory(((block, blocks),), step.parameter_bytes, recompute=recompute, in_flight=in_flight)
        if outer.total_bytes + inner.total_bytes > capacity:
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


@dataclass(frozen=True)
class Placed:
    """The fastest placement of one option on one architecture."""

    step_s: float
    lower_s: float
    """The same with the lower bounds of the schedules."""
    stages: int
    replicas: int


def options_s(architectures, index, workload):
    """The fastest placement of every option (width, microbatch, recompute, capacity) that fits, over everything."""
    found = {}
    for width, microbatch in product(CHOICES.tensor_parallel, CHOICES.microbatch):
        step = workload.step(LayerSharding(tensor=width, microbatch=microbatch))
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
                    slots = microbatches + stages - 1
                    wait = slowest_hop_s(block.input_bytes, width * replicas, stages)
                    parameters = first.parameters + cut[0] * block.parameters
                    parameters += last.parameters if stages == 1 else 0
                    sync = ring_s(
                        CollectiveKind.ALL_REDUCE,
                        parameters * size.gradient,
                        spread(CLUSTER, size=replicas, stride=width),
                    )
                    totals = [
                        max(
                            load + wait * ((position > 0) + (position < stages - 1))
                            for position, load in enumerate(loads[which])
                        )
                        * slots
                        + sync
                        + optimizer_s * parameters
                        for which in (0, 1)
                    ]
                    for capacity in CHOICES.hbm_bytes:
                        if not fits(step, cut, recompute, microbatches, capacity):
                            continue
                        option = (width, microbatch, recompute, capacity)
                        best = found.get(option, Placed(np.inf, np.inf, 0, 0))
                        if totals[0] < best.step_s:
                            best = Placed(totals[0], best.lower_s, stages, replicas)
                        found[option] = replace(best, lower_s=min(best.lower_s, totals[1]))
    return found


def exhaustive_s(architectures, index, workload):
    """Best step seconds over everything, with found schedules and with their lower bounds."""
    found = options_s(architectures, index, workload).values()
    return min(one.step_s for one in found), min(one.lower_s for one in found)
