"""Design points with what can be said of them: figures, placements, explanations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from archplace.arch_configs.architectures import Architectures
from archplace.arch_configs.area import area_breakdown
from archplace.costmodel.network import NetworkPricer
from archplace.search.budgets import budgets_of, tightest
from archplace.search.choices import WorkloadResult
from archplace.search.explain import Explanation, explain, peak_flops_per_s
from archplace.search.metrics import Metrics, metrics_of
from archplace.search.objectives import Objective
from archplace.search.outcome import Evaluated, Fate
from archplace.search.run import RunResult
from archplace.workloads import TrainingJob

Row = dict[str, object]

BASELINE = "baseline"
"""What stands for the baseline where a design's number is asked for."""

OBJECTIVE_COLUMNS = {
    Objective.THROUGHPUT: "throughput_samples_per_s",
    Objective.WORST_CASE: "worst_relative_throughput",
    Objective.ENERGY: "energy_j_per_sample",
    Objective.COST: "cost_usd_per_sample",
    Objective.POWER: "peak_power_w",
    Objective.AREA: "area_mm2",
}
"""Columns of the objectives' values, with their units."""


@dataclass(frozen=True, kw_only=True)
class PointGroup:
    """Design points that are priced and explained together, which takes little more than one of them does."""

    result: RunResult
    points: tuple[Evaluated, ...]
    architectures: Architectures
    """One row per point."""

    @cached_property
    def metrics(self) -> list[Metrics]:
        """Figures of every point."""
        run = self.result.run
        return metrics_of(
            self.points,
            self.architectures,
            run.workloads,
            run.cluster,
            run.space.technology,
            accelerators=run.choices.accelerators,
            references_s=self.result.outcome.references_s,
            training=run.choices.training,
        )

    @cached_property
    def explanations(self) -> list[tuple[Explanation, ...]]:
        """Of every point why each workload takes the time it does."""
        run = self.result.run
        columns = [
            explain(
                [point.results[w] for point in self.points],
                workload,
                self.architectures,
                NetworkPricer(run.cluster),
                self.result.cache,
                accelerators=run.choices.accelerators,
                allowance=run.choices.allowance,
            )
            for w, workload in enumerate(run.workloads)
        ]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, kw_only=True)
class PointView:
    """One evaluated design point."""

    group: PointGroup
    row_number: int
    """In the group."""
    label: str
    is_baseline: bool = False

    @property
    def result(self) -> RunResult:
        """The run that the point belongs to."""
        return self.group.result

    @property
    def point(self) -> Evaluated:
        """The point as the search has it."""
        return self.group.points[self.row_number]

    @cached_property
    def architectures(self) -> Architectures:
        """One row: the architecture."""
        return self.group.architectures.take(slice(self.row_number, self.row_number + 1))

    @property
    def id(self) -> int | str:
        """What ``archplace show DIR`` takes: the number in the enumeration, or ``baseline``."""
        return BASELINE if self.is_baseline else self.point.id

    @property
    def metrics(self) -> Metrics:
        """Figures of the point."""
        return self.group.metrics[self.row_number]

    @property
    def explanations(self) -> tuple[Explanation, ...]:
        """Why each workload takes the time it does."""
        return self.group.explanations[self.row_number]

    @property
    def fate(self) -> Fate:
        """On the front or dominated: of this point, whatever other points its architecture has."""
        here = (self.point.architecture, self.point.number)
        return Fate.FRONT if here in self.result.outcome.front_ids else Fate.DOMINATED

    @property
    def dominated_by(self) -> Evaluated | None:
        """The point of the front that dominates this one, or None."""
        return None if self.is_baseline else self.result.outcome.witness(np.array(self.point.values))

    @property
    def area_mm2(self) -> float:
        """Area by the space's technology table."""
        return float(self.group.architectures.area_mm2[self.row_number])

    @cached_property
    def area_parts_mm2(self) -> dict[str, float]:
        """Area by component, by the space's technology table."""
        found = area_breakdown(self.architectures, self.result.run.space.technology)
        return {component: float(area[0]) for component, area in found.by_component().items()}

    @property
    def samples_per_s(self) -> float:
        """Sequences per second; with several workloads their geometric mean."""
        return 1 / self.point.seconds_per_sample

    @property
    def proven(self) -> bool:
        """Whether nothing faster is possible on this architecture: every schedule that matters is proven optimal."""
        return self.point.proven

    def value(self, name: Objective) -> float | None:
        """Return what :data:`OBJECTIVE_COLUMNS` names, as it is shown; None where it is not known."""
        value = self.headline().get(OBJECTIVE_COLUMNS[name])
        return value if isinstance(value, float) else None

    def headline(self) -> Row:
        """Return what the point is, and every figure of it that is known, whatever the objectives."""
        metrics = self.metrics
        figures: dict[str, float | None] = {
            "throughput_samples_per_s": metrics.samples_per_s,
            "relative_throughput": metrics.relative_throughput,
            "worst_relative_throughput": metrics.worst_relative_throughput,
            "area_mm2": metrics.area_mm2,
            "samples_per_s_per_mm2": metrics.samples_per_s_per_mm2,
            "energy_j_per_sample": metrics.joules_per_sample,
            "samples_per_s_per_w": metrics.samples_per_s_per_w,
            "mean_power_w": metrics.mean_power_w,
            "peak_power_w": metrics.peak_power_w,
            "accelerator_usd": metrics.accelerator_usd,
            "cost_usd_per_sample": metrics.usd_per_sample,
            "samples_per_usd": metrics.samples_per_usd,
            "run_s": metrics.run_s,
            "run_j": metrics.run_j,
            "run_usd": metrics.run_usd,
        }
        objectives = self.result.outcome.objectives.names
        for name, value in zip(objectives, self.point.values, strict=True):
            if name is not Objective.WORST_CASE or self.result.outcome.references_s:
                # What the search compared is what is shown, to the last digit.
                figures[OBJECTIVE_COLUMNS[name]] = displayed(name, value)
        return {"id": self.id, **{column: value for column, value in figures.items() if value is not None}}

    def slack(self) -> Row:
        """Return which part of each budget is left; nothing for the baseline, which has none to keep."""
        budgets = () if self.is_baseline else budgets_of(self.result.run)
        row: Row = {f"{budget.name}_budget_left": budget.left(self.metrics) for budget in budgets}
        least = tightest(budgets, self.metrics)
        return row if least is None else {**row, "tightest_budget": least[0]}

    def architecture(self) -> Row:
        """Return the architecture's parameters, with the clock that a power limit leaves under load."""
        row, throttled = architecture_row(self.architectures), self.architectures.throttled
        return row if throttled is None else {**row, "clock_under_load_hz": float(throttled.clock_hz[0])}

    def placement(self) -> Row:
        """Return placements and utilisation, which need no schedule; several workloads' columns carry their names."""
        run = self.result.run
        columns = []
        for workload, found, one in zip(run.workloads, self.point.results, self.metrics.workloads, strict=True):
            row = placement_row(workload, found)
            peak = run.choices.accelerators * float(peak_flops_per_s(self.architectures, workload)[0])
            row["mfu"] = workload.flops_per_step / (found.placement.step_s * peak)
            if len(run.workloads) > 1:
                own = {
                    "relative_throughput": one.relative_throughput,
                    "energy_j_per_sample": one.joules_per_sample,
                    "cost_usd_per_sample": one.usd_per_sample,
                    "run_s": one.run_s,
                    "run_j": one.run_j,
                    "run_usd": one.run_usd,
                }
                row |= {key: value for key, value in own.items() if value is not None}
            columns.append(row)
        return self._prefixed(tuple(columns))

    def breakdown(self) -> Row:
        """Return what the explanations add: memory, bottleneck, seconds and joules by part."""
        columns = []
        for found, why in zip(self.point.results, self.explanations, strict=True):
            memory = max(stage.memory.total_bytes for stage in why.stages)
            loads = [stage.load_s for stage in why.stages]
            row: Row = {
                "memory_bytes": memory,
                "memory_slack_bytes": found.option.hbm_bytes - memory,
                "stage_load_balance": sum(loads) / len(loads) / max(loads),
                "bottleneck": why.bottleneck,
            }
            row.update({part_column(part): seconds for part, seconds in why.parts_s.items()})
            columns.append(row)
        return self._prefixed(tuple(columns))

    def row(self) -> Row:
        """Return the whole design point in one flat row, SI units."""
        areas = {f"area_{component}_mm2": area for component, area in self.area_parts_mm2.items()}
        return {**self.known(), **self.breakdown(), **areas}

    def known(self) -> Row:
        """Return what is known of the point without explaining it."""
        return {**self.headline(), **self.slack(), **self.architecture(), **self.placement()}

    def _prefixed(self, columns: tuple[Row, ...]) -> Row:
        workloads = self.result.run.workloads
        if len(workloads) == 1:
            return columns[0]
        return {
            f"{workload.name}.{key}": value
            for workload, row in zip(workloads, columns, strict=True)
            for key, value in row.items()
        }


def displayed(name: Objective, value: float) -> float | None:
    """Return an objective's minimised value as it is shown: throughput as a rate. None where it is infinite."""
    if not 0 < value < float("inf"):
        return None
    return 1 / value if name in (Objective.THROUGHPUT, Objective.WORST_CASE) else value


def part_column(part: str) -> str:
    """Return the column of a part of the step: ``HBM`` is ``hbm_s``."""
    return re.sub(r"\W+", "_", part).lower() + "_s"


def placement_row(workload: TrainingJob, found: WorkloadResult) -> Row:
    """Return a placement's columns."""
    strategy, cut = found.placement.strategy, found.placement.cut
    sharding = strategy.sharding
    return {
        "step_s": found.placement.step_s,
        "lower_step_s": found.lower_step_s,
        "optimality_gap": max(1 - found.lower_step_s / found.placement.step_s, 0.0),
        "tokens_per_s": workload.tokens_per_step / found.placement.step_s,
        "strategy": str(strategy),
        "tensor_parallel": sharding.tensor,
        "sequence_parallel": sharding.sequence,
        "context_parallel": sharding.context,
        "expert_parallel": sharding.expert,
        "expert_tensor_parallel": sharding.expert_tensor,
        "data_parallel": strategy.data,
        "pipeline_stages": strategy.stages,
        "virtual_stages": strategy.virtual,
        "schedule": str(strategy.schedule),
        "accelerators_used": strategy.devices,
        "microbatch": sharding.microbatch,
        "microbatches_per_replica": strategy.microbatches(workload),
        "state_sharding": str(strategy.states.states),
        "recompute": found.placement.recompute_words,
        "device_order": " ".join(strategy.order),
        "hbm_bytes": found.option.hbm_bytes,
        "layers_per_stage": " ".join(str(sum(layers)) for layers in cut.held),
        "proven_optimal": found.proven,
    }


def architecture_row(archs: Architectures) -> Row:
    """Return the parameters of a table of one row."""
    return {
        "clock_hz": float(archs.clock_hz[0]),
        "tensor_units": int(archs.tensor_count[0]),
        "tensor_rows": int(archs.tensor_rows[0]),
        "tensor_cols": int(archs.tensor_cols[0]),
        "vector_units": int(archs.vector_count[0]),
        "vector_lanes": int(archs.vector_lanes[0]),
        "global_buffer_bytes": int(archs.global_buffer_bytes[0]),
        "global_buffer_bytes_per_s": float(archs.global_buffer_bytes_per_s[0]),
        "hbm_bytes_per_s": float(archs.hbm_bytes_per_s[0]),
        "hbm_stacks": int(archs.hbm_stacks[0]),
    }


def views(result: RunResult, points: Sequence[Evaluated]) -> list[PointView]:
    """Return evaluated points of the run's space, in the order given, as one group."""
    indices = np.array([point.architecture for point in points], dtype=np.int64)
    group = PointGroup(result=result, points=tuple(points), architectures=result.architectures.take(indices))
    return [PointView(group=group, row_number=i, label=f"design {point.id}") for i, point in enumerate(points)]


def view(result: RunResult, point: Evaluated) -> PointView:
    """Return one evaluated point of the run's space."""
    return views(result, [point])[0]


def point_views(result: RunResult) -> list[PointView]:
    """Return the front, best in the first objective first."""
    return views(result, result.outcome.front)


def baseline_view(result: RunResult) -> PointView | None:
    """Return the baseline as a point, or None where there is none or nothing fits on it."""
    baseline = result.baseline
    if baseline is None or baseline.point is None:
        return None
    group = PointGroup(result=result, points=(baseline.point,), architectures=baseline.architectures)
    return PointView(group=group, row_number=0, label=baseline.name, is_baseline=True)
