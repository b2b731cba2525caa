"""Place a training step: embedding, n equal blocks and head on pipeline stages, replicated over data-parallel groups.

The formula, for s stages of t devices, d replicas, M microbatches per batch (all of them given to the replicas evenly):

    step time = L · (⌈M/d⌉ + s − 1) + synchronisation + optimizer step

L is the largest stage load: forward (twice with recomputation of the blocks) and backward seconds of its layers plus
the two transfers the stage waits for, the activation that enters and the gradient that returns, one of each
neighbour. The synchronisation charged is the gradient all-reduce of the first stage over its d replicas, and so is
the optimizer step: the first stage is the last to finish; the others do both while the pipeline drains (PHAZE, ICML
2024, section 5). Devices are numbered with tensor parallelism innermost, then data, then pipeline, as Megatron-LM
numbers them, which says over which network dimensions a group is spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel import LayerMemory, ring_s, spread, transfer_s
from archplace.search.placement.caps import StageCaps
from archplace.search.placement.prices import IntArray
from archplace.workloads.operators import CollectiveKind
from archplace.workloads.training_step import Layer, TrainingStep

Seconds = TypeVar("Seconds", FloatArray, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """One way to use the cluster: pipeline stages and replicas, and what follows from them alone."""

    stages: int
    replicas: int
    microbatches: int
    """Microbatches per replica and batch, ⌈M/d⌉."""
    transfer_s: float
    """Seconds that a stage boundary costs a microbatch, each way."""
    sync_s_per_byte: float
    """Gradient all-reduce over the replicas: seconds per byte of gradients on a device …"""
    sync_latency_s: float
    """… and seconds whatever the bytes."""

    @property
    def slots(self) -> int:
        """Stage times that a batch takes, ⌈M/d⌉ + s − 1."""
        return self.microbatches + self.stages - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSeconds(Generic[Seconds]):
    """Seconds of the three kinds of layer for one microbatch, recomputation included; ``(n_archs,)`` or one number."""

    first_s: Seconds
    block_s: Seconds
    last_s: Seconds
    optimizer_s_per_parameter: Seconds

    def take(self: "ChainSeconds[FloatArray]", archs: slice | IntArray) -> "ChainSeconds[FloatArray]":
        """Return the seconds on ``archs`` only."""
        return ChainSeconds(
            first_s=self.first_s[archs],
            block_s=self.block_s[archs],
            last_s=self.last_s[archs],
            optimizer_s_per_parameter=self.optimizer_s_per_parameter[archs],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlacement:
    """The best placement of one option on one architecture."""

    step_s: float
    degrees: Degrees
    blocks: tuple[int, ...]
    """Blocks on each stage; the first also holds the embedding, the last the head."""
    load_s: float
    """Seconds of the slowest stage for one microbatch."""
    sync_s: float
    optimizer_s: float


def split_chain(step: TrainingStep) -> tuple[Layer, Layer, int, Layer]:
    """Return (embedding, block, number of blocks, head); the built-in models all have this shape."""
    (first, _), (block, count), (last, _) = step.layers
    return first, block, count, last


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ways:
    """All ways to use a cluster, of whatever memory: one entry for each number of stages and microbatches in flight."""

    stages: IntArray
    """``(n_entries,)``, ascending."""
    in_flight: IntArray
    """``(n_entries,)``: the most microbatches that a stage has in flight, were it the first of so many."""
    degrees: tuple[tuple[Degrees, ...], ...]
    """Of each entry, more replicas first."""


def ways_for(step: TrainingStep, cluster: Cluster, *, accelerators: int, microbatches: int, most_stages: int) -> Ways:
    """Return the numbers of stages and replicas worth considering, up to ``most_stages``.

    Of all replicas d that give the same ⌈M/d⌉ those are kept that no other beats in transfer and synchronisation; of
    equal ones the least. No entry has more stages than fit on ``accelerators`` devices.
    """
    block = split_chain(step)[1]
    return _ways(cluster, step.tensor_parallel, block.input_bytes, accelerators, microbatches, most_stages)


@lru_cache(maxsize=1024)
def _ways(cluster: Cluster, width: int, boundary_bytes: int, accelerators: int, batch: int, most_stages: int) -> Ways:
    entries: list[tuple[int, int, tuple[Degrees, ...]]] = []
    reductions: dict[int, tuple[float, float]] = {}
    for stages in range(1, most_stages + 1):
        # A stage never has more microbatches in flight than its replica has altogether.
        by_flight: dict[int, list[Degrees]] = {}
        ways = _degrees(
            cluster, width, boundary_bytes, reductions, accelerators=accelerators, batch=batch, stages=stages
        )
        for way in ways:
            by_flight.setdefault(min(way.microbatches, stages), []).append(way)
        entries += [(stages, in_flight, tuple(alike)) for in_flight, alike in by_flight.items()]
    return Ways(
        stages=np.array([stages for stages, _, _ in entries], dtype=np.int64),
        in_flight=np.array([in_flight for _, in_flight, _ in entries], dtype=np.int64),
        degrees=tuple(alike for _, _, alike in entries),
    )


def _degrees(
    cluster: Cluster,
    width: int,
    boundary_bytes: int,
    reductions: dict[int, tuple[float, float]],
    *,
    accelerators: int,
    batch: int,
    stages: int,
) -> list[Degrees]:
    """Return the replicas worth considering with ``stages``; notes in ``reductions`` what it prices, by replicas."""
    most = min(accelerators // (width * stages), batch)
    found: list[Degrees] = []
    same: list[Degrees] = []
    for replicas in range(most, 0, -1):
        if replicas not in reductions:
            reductions[replicas] = _reduction(cluster, width, replicas)
        sync_s_per_byte, sync_latency_s = reductions[replicas]
        between = width * replicas
        way = Degrees(
            stages=stages,
            replicas=replicas,
            microbatches=-(-batch // replicas),
            transfer_s=transfer_s(boundary_bytes, cluster, stride=between, members=stages) if stages > 1 else 0.0,
            sync_s_per_byte=sync_s_per_byte,
            sync_latency_s=sync_latency_s,
        )
        if same and same[0].microbatches != way.microbatches:
            found += same
            same = []
        # Ways come with fewer and fewer replicas: a later one that is no worse makes an earlier one needless.
        same = [other for other in same if not _no_worse(way, other)]
        if not any(_no_worse(other, way) for other in same):
            same.append(way)
    return found + same


def _reduction(cluster: Cluster, width: int, replicas: int) -> tuple[float, float]:
    """Return seconds per byte and latency of the gradient all-reduce, whatever the stages."""
    shares = spread(cluster, size=replicas, stride=width)
    latency = ring_s(CollectiveKind.ALL_REDUCE, 0.0, shares)
    return (ring_s(CollectiveKind.ALL_REDUCE, 1e9, shares) - latency) / 1e9, latency


def _no_worse(one: Degrees, other: Degrees) -> bool:
    return (
        one.transfer_s <= other.transfer_s
        and one.sync_s_per_byte <= other.sync_s_per_byte
        and one.sync_latency_s <= other.sync_latency_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainMemory:
    """Memory of a stage by its position and the blocks it holds; the same for all architectures.

    Embedding and head are never recomputed; with ``recompute`` the blocks are, on every stage.
    """

    first: LayerMemory
    block: LayerMemory
    last: LayerMemory
    n_blocks: int

    @classmethod
    def of(cls, step: TrainingStep, *, recompute: bool) -> "ChainMemory":
        """Return the memory of ``step``'s layers."""
        first, block, count, last = split_chain(step)
        size = step.parameter_bytes
        return cls(
            first=LayerMemory.of(first, size, recompute=False),
            block=LayerMemory.of(block, size, recompute=recompute),
            last=LayerMemory.of(last, size, recompute=False),
            n_blocks=count,
        )

    def stage_bytes(self, *, position: int, stages: int, blocks: int, microbatches: int) -> float:
        """Return the bytes on each device of the stage at ``position`` (from 1) that holds so many blocks."""
        in_flight = min(stages - position + 1, microbatches)
        total = blocks * (self.block.state_bytes + in_flight * self.block.in_flight_bytes)
        if blocks:
            total += self.block.working_bytes
        if position == 1:
            total += self.first.state_bytes + in_flight * self.first.in_flight_bytes
        if position == stages:
            total += self.last.state_bytes + in_flight * self.last.in_flight_bytes
        return total

    def caps(self, *, stages: int, capacity_bytes: float, microbatches: int) -> tuple[int, ...]:
        """Return the most blocks that each stage can hold within ``capacity_bytes``; −1 where not even none fit.

        ``microbatches`` per replica: no stage ever has more in flight.
        """
        return StageCaps(self, capacity_bytes, stages).caps(stages=stages, microbatches=microbatches)

    def fits(self, *, stages: int, caps: Sequence[int]) -> bool:
        """Return whether the blocks can be laid out within ``caps``: middle stages hold at least one each."""
        if min(caps) < 0 or (stages > 2 and min(caps[1:-1]) < 1) or stages > self.n_blocks + 2:
            return False
        return sum(caps) >= self.n_blocks if stages > 1 else caps[0] >= self.n_blocks

    def least_stages(self, capacity_bytes: float, microbatches: IntArray) -> int | None:
        """Return the fewest stages on which the blocks fit, or None.

        ``microbatches`` ``(most_stages,)`` gives those of a replica by the number of stages, from one.
        """
        stages = np.arange(1, len(microbatches) + 1)
        fits = StageCaps(self, capacity_bytes, len(microbatches)).fits(stages, microbatches)
        return int(stages[fits.argmax()]) if fits.any() else None


def lay_out(
    k1: int, load_s: float, block_s: float, middle_s: float, last_s: float, caps: Sequence[int], n_blocks: int
) -> tuple[int, ...]:
    """Return the blocks of each stage within ``load_s``, of which ``k1`` are on the first, for one architecture.

    As even as possible over the middle stages and the last, what is left over on the earlier ones. ``middle_s`` and
    ``last_s`` are the loads without blocks.
    """
    if len(caps) == 1:
        return (n_blocks,)
    loads = block_s * np.arange(1, n_blocks + 1)
    within = int((middle_s + loads <= load_s).sum())
    rooms = np.minimum(np.array(caps[1:]), [*[within] * (len(caps) - 2), int((last_s + loads <= load_s).sum())])
    least = np.array([*[1] * (len(caps) - 2), 0])
    # The highest level, blocks on any stage but for the least, at which no more are laid out than there are.
    levels = np.maximum(np.minimum(rooms, np.arange(n_blocks + 1)[:, None]), least)
    level = int((levels.sum(axis=1) <= n_blocks - k1).sum()) - 1
    blocks = levels[level]
    free = np.flatnonzero((rooms > level) & (blocks == level))
    blocks[free[: n_blocks - k1 - int(blocks.sum())]] += 1
    return (k1, *blocks.tolist())
