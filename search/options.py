"""Placement options: what a run lets the search choose besides the architecture, and the seconds per batch of each."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.search.placement.best import Placements, best_placements
from archplace.search.placement.bounds import balanced_bound_s, bound_s
from archplace.search.placement.caps import StageCaps
from archplace.search.placement.pipelines import Pipeline, PipelineTable
from archplace.search.placement.training import (
    BestPlacement,
    ChainMemory,
    ChainSeconds,
    Ways,
    ways_for,
)
from archplace.workloads import TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Option:
    """One choice of what surrounds the architecture."""

    tensor_parallel: int
    microbatch: int
    recompute: bool
    hbm_bytes: int

    @property
    def graph_key(self) -> tuple[int, int]:
        """What decides the operator graphs: (tensor-parallel width, microbatch)."""
        return self.tensor_parallel, self.microbatch

    def __str__(self) -> str:
        recompute = "recompute" if self.recompute else "stash"
        return f"t={self.tensor_parallel} b={self.microbatch} {recompute} HBM {self.hbm_bytes / 1e9:g} GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpace:
    """All placements of one option: pipelines that fit, or the reason why none does."""

    option: Option
    step: TrainingStep
    table: PipelineTable = field(repr=False, compare=False)
    """The pipelines as arrays; options that allow the same ones share it."""
    reason: str | None

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines that fit."""
        return self.table.pipelines

    @classmethod
    def of(
        cls, option: Option, step: TrainingStep, cluster: Cluster, *, accelerators: int, global_batch: int
    ) -> "OptionSpace":
        """Return the pipelines of ``option``; with none, ``reason`` says what is short and by how much."""
        memory = ChainMemory.of(step, recompute=option.recompute)
        most = min(memory.n_blocks + 2, accelerators // option.tensor_parallel)
        microbatches = global_batch // option.microbatch
        ways = ways_for(step, cluster, accelerators=accelerators, microbatches=microbatches, most_stages=most)
        table = _laid_out(step, ways, StageCaps(memory, option.hbm_bytes, max(most, 1)))
        reason = None
        if not table.pipelines:
            reason = _shortage(memory, option, accelerators, most, microbatches)
        return cls(option=option, step=step, table=table, reason=reason)

    def bound_s(self, seconds: ChainSeconds[FloatArray]) -> FloatArray:
        """Return a lower bound on the step seconds of every architecture, ``(n_archs,)``; infinite when infeasible.

        For each number of stages the smallest bottleneck, with memory's caps, and the synchronisation and optimizer
        step of the emptiest first stage: each at most what an actual placement has. Never above the step seconds of
        :meth:`best_of` for the same seconds, not even by rounding.
        """
        return bound_s(self.table, seconds)

    def balanced_bound_s(self, seconds: ChainSeconds[FloatArray]) -> FloatArray:
        """Return a lower bound that is never above :meth:`bound_s`, in a small part of its time, ``(n_archs,)``.

        Stages are perfectly balanced and neither transfer nor synchronise.
        """
        return balanced_bound_s(self.table, seconds)

    def best_of(self, seconds: ChainSeconds[FloatArray], better_than_s: FloatArray | float = np.inf) -> Placements:
        """Return the best placement on every architecture, of those strictly faster than ``better_than_s``.

        ``better_than_s`` is one number or ``(n_archs,)``. The result's ``step_s``, ``(n_archs,)``, is infinite where
        nothing is faster, and its ``at(row)`` writes out the placement on one architecture, or None. Exact.
        """
        return best_placements(self.table, seconds, better_than_s)

    def best(self, seconds: ChainSeconds[float], *, better_than_s: float = np.inf) -> BestPlacement | None:
        """Return the best placement on one architecture, or None when nothing is faster than ``better_than_s``."""
        one = ChainSeconds(
            first_s=np.array([seconds.first_s]),
            block_s=np.array([seconds.block_s]),
            last_s=np.array([seconds.last_s]),
            optimizer_s_per_parameter=np.array([seconds.optimizer_s_per_parameter]),
        )
        return self.best_of(one, better_than_s).at(0)


@lru_cache(maxsize=256)
def _laid_out(step: TrainingStep, ways: Ways, caps: StageCaps) -> PipelineTable:
    fits = np.flatnonzero(caps.fits(ways.stages, ways.in_flight))
    pipelines = [
        Pipeline(caps=caps.caps(stages=stages, microbatches=in_flight), degrees=ways.degrees[i])
        for i, stages, in_flight in zip(
            fits.tolist(), ways.stages[fits].tolist(), ways.in_flight[fits].tolist(), strict=True
        )
    ]
    return PipelineTable.of(step, pipelines)


def _human(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.4g} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.4g} MB"


_BISECTIONS = 40
"""Of the least capacity: to a millionth of a byte of what one device would need."""


@lru_cache(maxsize=256)
def _least_need(memory: ChainMemory, most: int, groups: int, microbatches: int) -> tuple[float, int]:
    """Return the smallest capacity on which some pipeline of up to ``most`` stages fits, and its stages.

    ``groups`` are the tensor-parallel groups of devices; a replica takes one for each stage, and gets the fewer of the
    ``microbatches`` the more replicas there are.
    """

    replicas = np.clip(groups // np.arange(1, min(most, memory.n_blocks + 2) + 1), 1, microbatches)
    in_flight = -(-microbatches // replicas)
    high = memory.stage_bytes(position=1, stages=1, blocks=memory.n_blocks, microbatches=int(in_flight[0]))
    low, stages = 0.0, 1
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fewest = memory.least_stages(middle, in_flight)
        if fewest is None:
            low = middle
        else:
            high, stages = middle, fewest
    return high, stages


def _shortage(memory: ChainMemory, option: Option, accelerators: int, most: int, microbatches: int) -> str:
    if most < 1:
        return f"tensor-parallel width {option.tensor_parallel} exceeds the {accelerators} accelerators"
    groups = accelerators // option.tensor_parallel
    needed, stages = _least_need(memory, most, groups, max(1, microbatches))
    return (
        f"memory: needs at least {_human(needed)} per device with {stages} stages of "
        f"{option.tensor_parallel} devices, HBM has {_human(option.hbm_bytes)}"
    )
