"""What ``plan`` found as rows and as one document; SI units and shares of one."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import numpy as np

from archplace.costmodel import Offload
from archplace.search.remedies import Remedy
from archplace.search.strategy.fixed import Deal, even_deal, price_deal
from archplace.search.strategy.plan import Plan, Planned
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import DEALT_EVENLY, DEFAULT_ORDER, Strategy
from archplace.search.uncertainty import StepUncertainty, step_uncertainty

_NUMBER = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalKind:
    """Refusals that differ in their numbers only."""

    combinations: int
    reasons: int
    """Different ones."""
    example: str
    """The most frequent one."""


def refusal_kinds(refused: Mapping[str, int]) -> list[RefusalKind]:
    """Return reasons for refusals by kind, the most frequent kind first."""
    by_kind: dict[str, list[str]] = {}
    for reason in refused:
        by_kind.setdefault(_NUMBER.sub("#", reason), []).append(reason)
    kinds = [
        RefusalKind(
            combinations=sum(refused[reason] for reason in reasons),
            reasons=len(reasons),
            example=max(reasons, key=lambda reason: refused[reason]),
        )
        for reasons in by_kind.values()
    ]
    return sorted(kinds, key=lambda kind: -kind.combinations)


def placement_of(strategy: Strategy) -> dict[str, object]:
    """Return the strategy as the keys of a run file's ``placement``, without recomputation."""
    sharding, states = strategy.sharding, strategy.states
    # Axes of degree 1 may stand anywhere.
    order = (*strategy.order, *(axis for axis in DEFAULT_ORDER if axis not in strategy.order))
    found: dict[str, object] = {
        "tensor_parallel": sharding.tensor,
        "sequence_parallel": sharding.sequence,
        "context_parallel": sharding.context,
        "context_exchange": str(sharding.context_kind),
        "expert_parallel": sharding.expert,
        "expert_tensor_parallel": sharding.expert_tensor,
        "pipeline_parallel": strategy.stages,
        "data_parallel": strategy.data,
        "microbatch": sharding.microbatch,
        "schedule": str(strategy.schedule),
        "virtual_stages": strategy.virtual,
        "state_sharding": str(states.states),
        "offload": _offload_name(strategy.offload),
        "overlap": [name for name in ("data", "pipeline") if getattr(strategy.overlap, name)],
        "tensor_overlap_pieces": sharding.overlap_pieces,
        "device_order": [str(axis) for axis in order],
    }
    if states.group is not None:
        found["shard_group"] = states.group
    return found


def _offload_name(offload: Offload) -> str:
    names = [name for name in ("activations", "optimizer") if getattr(offload, name)]
    return "all" if len(names) > 1 else names[0] if names else "none"


def runs_text(values: Iterable[object]) -> str:
    """Return equal neighbours once with how often they stand: ``full ×3, none ×5``."""
    runs = [(str(value), sum(1 for _ in run)) for value, run in groupby(values)]
    return ", ".join(value if count == 1 else f"{value} ×{count}" for value, count in runs)


def fullest_bytes(planned: Planned, hbm_bytes: float) -> float:
    """Return the memory that the fullest device of a planned strategy needs."""
    block, cut = planned.block, planned.cut
    rows = block.chain_rows(np.array([planned.row]))
    strategy = planned.strategy
    if strategy.schedule in DEALT_EVENLY:
        deal = even_deal(block.counts, strategy.schedule, strategy.stages, strategy.virtual)
    else:
        deal = Deal.of(cut.held)
    chosen = np.arange(len(strategy.policies))[:, None] == np.array(cut.policies)
    return hbm_bytes + float(price_deal(rows, deal, chosen).short_bytes[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One of the best strategies."""

    rank: int
    planned: Planned
    samples_per_s: float
    tokens_per_s_per_accelerator: float
    mfu: float
    memory_bytes: float
    """Of the fullest device."""
    microbatches: int
    uncertainty: StepUncertainty
    ties_with_best: bool
    """Whether the best strategy is faster by no more than what comparisons of predictions are off."""

    @property
    def recompute(self) -> list[str]:
        """Policy of each stage."""
        strategy = self.planned.strategy
        return [str(strategy.policies[number]) for number in self.planned.cut.policies]

    def document(self) -> dict[str, object]:
        """Return the row; what a run file of ``evaluate`` takes has its keys there."""
        strategy = self.planned.strategy
        found: dict[str, object] = {
            "rank": self.rank,
            "step_s": self.planned.step_s,
            "samples_per_s": self.samples_per_s,
            "tokens_per_s_per_accelerator": self.tokens_per_s_per_accelerator,
            "mfu": self.mfu,
            **self.uncertainty.columns({"step_s": self.planned.step_s}, {"samples_per_s": self.samples_per_s}),
            "ties_with_best": self.ties_with_best,
            "memory_bytes": self.memory_bytes,
            "strategy": str(strategy),
            "microbatches": self.microbatches,
            "placement": placement_of(strategy),
        }
        if strategy.schedule not in DEALT_EVENLY:
            found["stages"] = [sum(held) for held in self.planned.cut.held]
        return {**found, "stage_recompute": self.recompute}

    def flat(self) -> dict[str, object]:
        """Return the row with one cell for each key, those of the placement among them."""
        found = self.document()
        placement = placement_of(self.planned.strategy)
        del found["placement"]
        # Keys that only some rows have would otherwise come and go.
        found |= {"stages": None, "shard_group": None, **found, **placement}
        return {
            key: runs_text(value)
            if key in ("stages", "stage_recompute") and isinstance(value, list)
            else " ".join(map(str, value))
            if isinstance(value, list)
            else value
            for key, value in found.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """What a search found, ready to be shown."""

    problem: PlanProblem
    plan: Plan
    rows: tuple[PlanRow, ...]
    kinds: tuple[RefusalKind, ...]
    remedies: tuple[Remedy, ...]

    @classmethod
    def of(cls, problem: PlanProblem, plan: Plan, remedies: Sequence[Remedy] = ()) -> "PlanView":
        """Return the view of ``plan``; ``remedies`` are what would help where nothing fits."""
        return cls(
            problem=problem,
            plan=plan,
            rows=tuple(_row(problem, planned, rank, plan.best[0]) for rank, planned in enumerate(plan.best, 1)),
            kinds=tuple(refusal_kinds(plan.refused)),
            remedies=tuple(remedies),
        )

    @property
    def hbm_bytes(self) -> float:
        """Capacity of a device."""
        return float(self.problem.accelerator.hbm.capacity_bytes)

    @property
    def uncertainty(self) -> StepUncertainty:
        """How sure step times are."""
        return _uncertainty(self.problem)

    @property
    def no_other_below_s(self) -> float | None:
        """No strategy that is not among the best takes less; None where there is no other."""
        return self.plan.bound_s if self.plan.best and math.isfinite(self.plan.bound_s) else None

    @property
    def hbm_needed_bytes(self) -> float | None:
        """Where nothing fits, the least capacity with which something would with layers dealt out evenly."""
        closest = self.plan.closest
        return None if closest is None else self.hbm_bytes + closest.short_bytes

    def document(self) -> dict[str, object]:
        """Return everything as plain data."""
        problem, plan, closest = self.problem, self.plan, self.plan.closest
        return {
            "workload": problem.workload.name,
            "accelerator": problem.accelerator.name,
            "cluster": problem.cluster.name,
            "accelerators": problem.accelerators,
            "global_batch": problem.workload.global_batch,
            "sequence_length": problem.workload.sequence_length,
            "hbm_bytes": self.hbm_bytes,
            "fits": bool(plan.best),
            "best": [row.document() for row in self.rows],
            "others": {
                "possible": plan.n_strategies,
                "slower_by_bound": plan.n_bounded,
                "evaluated": plan.n_evaluated,
                "short_of_memory": plan.n_memory,
                "refused": sum(plan.refused.values()),
                "no_other_below_s": self.no_other_below_s,
            },
            "refused": [asdict(kind) for kind in self.kinds],
            "closest": None
            if closest is None
            else {
                "strategy": str(closest.strategy),
                "short_bytes": closest.short_bytes,
                "hbm_needed_bytes": self.hbm_needed_bytes,
                "placement": placement_of(closest.strategy),
            },
            "remedies": [asdict(remedy) for remedy in self.remedies],
        }


def _row(problem: PlanProblem, planned: Planned, rank: int, best: Planned) -> PlanRow:
    workload, step_s, devices = problem.workload, planned.step_s, problem.accelerators
    uncertainty = _uncertainty(problem)
    return PlanRow(
        rank=rank,
        planned=planned,
        samples_per_s=workload.global_batch / step_s,
        tokens_per_s_per_accelerator=workload.tokens_per_step / step_s / devices,
        mfu=workload.flops_per_step / (step_s * devices * problem.peak_flops_per_s),
        memory_bytes=fullest_bytes(planned, float(problem.accelerator.hbm.capacity_bytes)),
        microbatches=planned.strategy.microbatches(workload),
        uncertainty=uncertainty,
        ties_with_best=step_s / best.step_s <= 1 + uncertainty.compared,
    )


def _uncertainty(problem: PlanProblem) -> StepUncertainty:
    return step_uncertainty(problem.cluster, problem.accelerator.name, problem.accelerator.calibration)
