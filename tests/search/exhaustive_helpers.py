"""Exhaustive evaluation of a small space by naive loops: every architecture, option, pipeline, cut and recomputation.

Layers' schedules, prices of the network and the memory of a stage have tests of their own; what is done here without
the search is everything that is chosen, and the seconds of a step of what is chosen.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise, permutations, product

import numpy as np

from archplace.arch_configs import Cluster, NetworkDimension, Topology
from archplace.costmodel import (
    Allowance,
    DeviceOrder,
    NetworkPricer,
    Pricer,
    Replicas,
    StateSharding,
    memory_coefficients,
)
from archplace.search.choices import Choices
from archplace.search.pipeline import PipelineSchedule
from archplace.search.schedule import ScheduleCache, ScheduleGraph
from archplace.search.steptimes import OPTIMIZER_PARAMETERS
from archplace.search.strategy.axes import Axes
from archplace.workloads import (
    Axis,
    CollectiveKind,
    LayerSharding,
    Operator,
    Phase,
    Recompute,
    TrainingStep,
    Unit,
    Workload,
    load_workload,
)

CLUSTER = Cluster(
    name="two dimensions",
    dimensions=(
        NetworkDimension(name="node", topology=Topology.SWITCH, size=4, bandwidth_bytes_per_s=100e9, latency_s=1e-6),
        NetworkDimension(name="fabric", topology=Topology.SWITCH, size=2, bandwidth_bytes_per_s=10e9, latency_s=5e-6),
    ),
    sources={},
)
AXES = Axes(
    tensor=(1, 2),
    sequence=(False,),
    microbatch=(1, 2),
    schedules=(PipelineSchedule.ONE_F_ONE_B,),
    policies=(Recompute.NONE, Recompute.FULL),
    states=(StateSharding(),),
    orders=None,
)
CHOICES = Choices(
    accelerators=8,
    axes=AXES,
    # Some placements fit neither, some only the larger, some only with layers recomputed.
    hbm_bytes=(22_000_000, 29_000_000),
    allowance=Allowance(reserved_bytes=1_000_000.0),
)
NETWORK = NetworkPricer(CLUSTER)
SCHEDULES = ScheduleCache()


def small_workload(name: str = "llama2-7b", **changes: int) -> Workload:
    """Return a model of three blocks between embedding and head, 16 sequences a step."""
    workload = load_workload(name)
    sizes = {"n_layers": 3, "d_model": 256, "n_heads": 4, "n_kv_heads": 4, "head_dim": 64, "d_ff": 512} | changes
    model = replace(workload.model, vocabulary=1000, padded_vocabulary=1024, embedding_width=256, **sizes)
    return replace(workload, model=model, sequence_length=256, global_batch=16)


@dataclass(frozen=True)
class Way:
    """One way to run a step, whatever the architecture, with its memory."""

    sharding: LayerSharding
    order: DeviceOrder
    stages: int
    replicas: int
    microbatches: int
    held: tuple[tuple[int, int, int], ...]
    """Embeddings, blocks and heads on each stage."""
    recompute: tuple[Recompute, ...]
    """Of each stage."""
    needs_bytes: float
    """On the device that needs most."""
    place: str
    """Where tensor-parallel groups lie in the network."""
    hop_s: float
    """Of handing an activation to the next stage."""
    reductions_s: tuple[float, ...]
    """Of each kind of layer's gradients."""
    parameters: int
    """Of the first stage, on one device."""

    @property
    def recomputed(self) -> int:
        """Blocks whose forward pass runs twice."""
        return sum(layers[1] for layers, policy in zip(self.held, self.recompute, strict=True) if policy != "none")


def cuts(blocks: int, stages: int) -> list[tuple[tuple[int, int, int], ...]]:
    """Return all ways to cut embedding, blocks and head into runs, none of them empty."""
    kinds = [0] + [1] * blocks + [2]
    found = []
    for inner in combinations(range(1, len(kinds)), stages - 1):
        ends = (0, *inner, len(kinds))
        runs = [kinds[begin:end] for begin, end in pairwise(ends)]
        found.append(tuple((run.count(0), run.count(1), run.count(2)) for run in runs))
    return found


@cache
def ways(workload: Workload) -> tuple[Way, ...]:
    """Return every way to use all devices, whether it fits or not."""
    found = []
    devices = CHOICES.accelerators
    for tensor, microbatch, stages, replicas in product((1, 2), (1, 2), range(1, 9), range(1, 9)):
        if tensor * stages * replicas != devices or workload.global_batch % (replicas * microbatch):
            continue
        sharding = LayerSharding(tensor=tensor, microbatch=microbatch)
        step = workload.step(sharding)
        microbatches = workload.global_batch // (replicas * microbatch)
        memory = memory_coefficients(
            step.layers,
            step.parameter_bytes,
            states=StateSharding(),
            replicas=Replicas.of(sharding, StateSharding(), replicas),
            allowance=CHOICES.allowance,
        )
        # Every stage of a pipeline is given buffers to both sides.
        crossing = float(step.layers[1][0].input_bytes) if stages > 1 else 0.0
        degrees = {Axis.TENSOR: tensor, Axis.DATA: replicas, Axis.PIPELINE: stages}
        orders = [
            (order, str(NETWORK.shares(order.group(Axis.TENSOR))), *communication_s(step, order))
            for order in (DeviceOrder(tuple((axis, degrees[axis]) for axis in axes)) for axes in permutations(degrees))
        ]
        for held, recompute in product(
            cuts(step.layers[1][1], stages), product((Recompute.NONE, Recompute.FULL), repeat=stages)
        ):
            needs = [
                memory.stage_bytes(
                    np.array(layers),
                    policy,
                    float(min(stages - position, microbatches)),
                    entering_bytes=crossing,
                    leaving_bytes=crossing,
                )
                for position, (layers, policy) in enumerate(zip(held, recompute, strict=True))
            ]
            first = sum(n * layer.parameters for n, (layer, _) in zip(held[0], step.layers, strict=True))
            for order, place, hop_s, reductions_s in orders:
                way = Way(
                    sharding=sharding,
                    order=order,
                    stages=stages,
                    replicas=replicas,
                    microbatches=microbatches,
                    held=held,
                    recompute=recompute,
                    needs_bytes=float(max(needs)),
                    place=place,
                    hop_s=hop_s,
                    reductions_s=reductions_s,
                    parameters=first,
                )
                found.append(way)
    return tuple(found)


def communication_s(step: TrainingStep, order: DeviceOrder) -> tuple[float, tuple[float, ...]]:
    """Return the seconds of handing an activation to the next stage, and of reducing each kind of layer's gradients."""
    sharding = step.sharding
    n_bytes, pipeline = float(step.layers[1][0].input_bytes), order.group(Axis.PIPELINE)
    hop = float(NETWORK.transfer_s(n_bytes, pipeline))
    if sharding.tensor > 1:
        # All of a tensor-parallel group hold the same: each may send a part, which the next stage's group gathers.
        gather = NETWORK.seconds(CollectiveKind.ALL_GATHER, n_bytes, order.group(Axis.TENSOR))
        hop = min(hop, float(NETWORK.transfer_s(n_bytes / sharding.tensor, pipeline) + gather))
    reductions = tuple(
        float(
            NETWORK.seconds(
                CollectiveKind.ALL_REDUCE,
                float(layer.parameters * step.parameter_bytes.gradient),
                order.group(Axis.DATA),
            )
        )
        for layer, _ in step.layers
    )
    return hop, reductions


@dataclass(frozen=True)
class Seconds:
    """Seconds of the three kinds of layers by solved schedules, or that no schedule undercuts."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    optimizer: float
    """Per parameter."""


def step_s(way: Way, seconds: Seconds) -> float:
    """Return the seconds of a step under 1F1B, from the formulas."""
    m, p = way.microbatches, way.stages
    # Messages hold up a stage all but once in as many microbatches as there are stages: one for each neighbour, and
    # both those that it exchanges with a single one.
    held_up = way.hop_s * (1 - 1 / p) * (2 if p == 2 else 1)
    loads, paces = [], []
    for position, (layers, policy) in enumerate(zip(way.held, way.recompute, strict=True)):
        load = sum(n * (f + b) for n, f, b in zip(layers, seconds.forward, seconds.backward, strict=True))
        load += layers[1] * seconds.forward[1] if policy is Recompute.FULL else 0.0
        loads.append(load)
        paces.append(load + held_up * ((position > 0) + (position < p - 1)))
    # The first microbatch goes down and up the pipeline.
    total = (m - 1) * max(paces) + sum(loads) + 2 * (p - 1) * way.hop_s
    first = way.held[0]
    if way.replicas > 1:
        # Behind the backward passes of the stage's other layers; the embedding's gradients come last.
        reduced = sum(n * r for n, r in zip(first, way.reductions_s, strict=True))
        beside = sum(n * b for n, b in zip(first, seconds.backward, strict=True)) - seconds.backward[1]
        total += max(way.reductions_s[0], reduced - max(beside, 0.0))
    return total + seconds.optimizer * way.parameters


def optimizer_operator(workload: Workload) -> Operator:
    """Return the optimizer step of many parameters."""
    work = workload.optimizer_work(OPTIMIZER_PARAMETERS)
    return Operator(name="o", unit=Unit.VECTOR, phase=Phase.OPTIMIZER, vector=work)


def layer_seconds(architectures, index, workload, sharding, order) -> tuple[Seconds, Seconds]:
    """Return what solved schedules take, and what no schedule undercuts."""
    archs = architectures.take(np.array([index]))
    pricer = Pricer(archs, CLUSTER, network=NETWORK).in_groups({Axis.TENSOR: order.group(Axis.TENSOR)})
    found: list[dict[str, list[float]]] = [{"forward": [], "backward": []}, {"forward": [], "backward": []}]
    for layer, _ in workload.step(sharding).layers:
        for name in ("forward", "backward"):
            operators = getattr(layer, name)
            prices = pricer.price(operators)
            schedule = SCHEDULES.solve(
                ScheduleGraph.of_operators(operators).problem(
                    one_s=prices.one_s[0],
                    all_s=prices.all_s[0],
                    tensor_units=int(archs.tensor_count[0]),
                    vector_units=int(archs.vector_count[0]),
                )
            )
            found[0][name].append(schedule.makespan_s)
            found[1][name].append(schedule.lower_bound_s)
    optimizer = float(pricer.price([optimizer_operator(workload)]).all_s[0, 0]) / OPTIMIZER_PARAMETERS
    best, least = (Seconds(tuple(each["forward"]), tuple(each["backward"]), optimizer) for each in found)
    return best, least


@dataclass(frozen=True)
class Placed:
    """The fastest placement of one option on one architecture."""

    step_s: float
    lower_s: float
    """The least of all placements of the option with the lower bounds of the schedules."""
    way: Way


Option = tuple[int, int, str, int]
"""Tensor-parallel degree, microbatch, where the groups lie, and the HBM capacity."""


def options_s(architectures, index: int, workload: Workload) -> dict[Option, Placed]:
    """Return the fastest placement of every option that fits, over everything."""
    found: dict[Option, Placed] = {}
    known: dict[tuple[int, int, str], tuple[Seconds, Seconds]] = {}
    for way in ways(workload):
        if way.needs_bytes > max(CHOICES.hbm_bytes):
            continue
        place = way.sharding.tensor, way.sharding.microbatch, way.place
        if place not in known:
            known[place] = layer_seconds(architectures, index, workload, way.sharding, way.order)
        step, lower = (step_s(way, seconds) for seconds in known[place])
        for capacity in CHOICES.hbm_bytes:
            if way.needs_bytes <= capacity:
                best = found.get((*place, capacity), Placed(np.inf, np.inf, way))
                lower_s = min(lower, best.lower_s)
                found[*place, capacity] = (
                    Placed(step, lower_s, way) if step < best.step_s else replace(best, lower_s=lower_s)
                )
    return found


def exhaustive_s(architectures, index: int, workload: Workload) -> tuple[float, float]:
    """Return the best step seconds over everything, with found schedules and with their lower bounds."""
    found = options_s(architectures, index, workload).values()
    return min(one.step_s for one in found), min(one.lower_s for one in found)
