"""Design points as rows: what listings, CSV, JSON and the report's table show."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from archplace.arch_configs.architectures import Architectures
from archplace.search.explain import Explanation, explain, peak_flops_per_s
from archplace.search.fates import options_of
from archplace.search.objectives import Objective
from archplace.search.outcome import BOUND_NAMES, Bound, Evaluated, Fate, Outcome
from archplace.search.run import RunResult, evaluator_of
from archplace.search.workload_search import WorkloadResult
from archplace.workloads import Workload

Row = dict[str, object]

BASELINE = "baseline"
"""What stands for the baseline where a design's number is asked for."""


@dataclass(frozen=True, kw_only=True)
class PointView:
    """One evaluated design point with its explanations, one per workload (computed when first asked for)."""

    result: RunResult
    point: Evaluated
    architectures: Architectures
    """One row: the architecture."""
    label: str
    is_baseline: bool = False

    @property
    def id(self) -> int | str:
        """What ``archplace show DIR`` takes: the number in the enumeration, or ``baseline``."""
        return BASELINE if self.is_baseline else self.point.id

    @property
    def area_mm2(self) -> float:
        """Area by the space's technology table."""
        return float(self.architectures.area_mm2[0])

    @property
    def samples_per_s(self) -> float:
        """Sequences per second; with several workloads their geometric mean."""
        return 1 / self.point.seconds_per_sample

    @property
    def samples_per_s_per_mm2(self) -> float:
        """Throughput per area."""
        return self.samples_per_s / self.area_mm2

    @property
    def proven(self) -> bool:
        """Whether nothing faster is possible on this architecture: every schedule that matters is proven optimal."""
        return self.point.proven

    @property
    def fate(self) -> Fate:
        """On the front or dominated: of this point, whatever other points its architecture has."""
        here = (self.point.architecture, self.point.number)
        return Fate.FRONT if here in self.result.outcome.front_ids else Fate.DOMINATED

    @property
    def dominated_by(self) -> Evaluated | None:
        """The point of the front that dominates this one, or None."""
        return None if self.is_baseline else self.result.outcome.witness(np.array(self.point.values))

    @cached_property
    def explanations(self) -> tuple[Explanation, ...]:
        """Why each workload takes the time it does."""
        run = self.result.run
        return tuple(
            explain(
                found,
                workload,
                self.architectures,
                run.cluster,
                self.result.cache,
                accelerators=run.choices.accelerators,
            )
            for found, workload in zip(self.point.results, run.workloads, strict=True)
        )

    def headline(self) -> Row:
        """Return what the point is and the objectives."""
        return {
            "id": self.id,
            "throughput_samples_per_s": self.samples_per_s,
            "area_mm2": self.area_mm2,
            "samples_per_s_per_mm2": self.samples_per_s_per_mm2,
        }

    def architecture(self) -> Row:
        """Return the architecture's parameters."""
        return architecture_row(self.architectures)

    def placement(self) -> Row:
        """Return placements and utilisation, which need no schedule; several workloads' columns carry their names."""
        run = self.result.run
        columns = []
        for workload, found in zip(run.workloads, self.point.results, strict=True):
            row = _placement(workload, found)
            peak = run.choices.accelerators * peak_flops_per_s(self.architectures, workload)
            row["mfu"] = workload.flops_per_step / (found.placement.step_s * peak)
            columns.append(row)
        return self._prefixed(tuple(columns))

    def breakdown(self) -> Row:
        """Return what the explanations add: memory, bottleneck, seconds by part."""
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
        return {**self.headline(), **self.architecture(), **self.placement(), **self.breakdown()}

    def _prefixed(self, columns: tuple[Row, ...]) -> Row:
        workloads = self.result.run.workloads
        if len(workloads) == 1:
            return columns[0]
        return {
            f"{workload.name}.{key}": value
            for workload, row in zip(workloads, columns, strict=True)
            for key, value in row.items()
        }


def part_column(part: str) -> str:
    """Return the column of a part of the step: ``HBM`` is ``hbm_s``."""
    return re.sub(r"\W+", "_", part).lower() + "_s"


def _placement(workload: Workload, found: WorkloadResult) -> Row:
    option, placement, degrees = found.option, found.placement, found.placement.degrees
    return {
        "step_s": placement.step_s,
        "lower_step_s": found.lower_step_s,
        "tokens_per_s": workload.tokens_per_step / placement.step_s,
        "tensor_parallel": option.tensor_parallel,
        "data_parallel": degrees.replicas,
        "pipeline_stages": degrees.stages,
        "accelerators_used": option.tensor_parallel * degrees.replicas * degrees.stages,
        "microbatch": option.microbatch,
        "microbatches_per_replica": degrees.microbatches,
        "recompute": option.recompute,
        "hbm_bytes": option.hbm_bytes,
        "blocks_per_stage": " ".join(str(blocks) for blocks in placement.blocks),
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


def point_views(result: RunResult) -> list[PointView]:
    """Return the front, fastest first."""
    return [view(result, point) for point in result.outcome.front]


def front_rows(result: RunResult) -> list[Row]:
    """Return the front's rows that fit a terminal, fastest first."""
    return [
        short_row({**point.headline(), **point.architecture(), **point.placement()}) for point in point_views(result)
    ]


def view(result: RunResult, point: Evaluated) -> PointView:
    """Return one evaluated point of the run's space."""
    return PointView(
        result=result,
        point=point,
        architectures=result.architectures.take(slice(point.architecture, point.architecture + 1)),
        label=f"design {point.id}",
    )


def baseline_view(result: RunResult) -> PointView | None:
    """Return the baseline as a point, or None where there is none or nothing fits on it."""
    baseline = result.baseline
    if baseline is None or baseline.point is None:
        return None
    return PointView(
        result=result,
        point=baseline.point,
        architectures=baseline.architectures,
        label=baseline.name,
        is_baseline=True,
    )


def fate_row(result: RunResult, architecture: int) -> Row:
    """Return what became of an architecture, evaluated or not, with its bound, what dominates it, or the reason."""
    outcome = result.outcome
    fate = Fate(int(outcome.fate[architecture]))
    by = outcome.witness_of(architecture) if fate in (Fate.DOMINATED, Fate.PRUNED) else None
    one = result.architectures.take(slice(architecture, architecture + 1))
    bounds = {
        f"bound_{OBJECTIVE_COLUMNS[name]}": displayed(name, value)
        for name, value in zip(outcome.objectives.names, outcome.bound[architecture].tolist(), strict=True)
        if name not in (Objective.AREA, Objective.POWER)
    }
    return {
        "id": architecture,
        "fate": fate.name.lower(),
        "area_mm2": float(one.area_mm2[0]),
        **bounds,
        "bound": BOUND_NAMES[Bound(int(outcome.bound_kind[architecture]))],
        "dominated_by": by.id if by is not None else None,
        "reason": outcome.reasons.get(architecture),
        **architecture_row(one),
    }


OBJECTIVE_COLUMNS = {
    Objective.THROUGHPUT: "throughput_samples_per_s",
    Objective.WORST_CASE: "worst_relative_throughput",
    Objective.ENERGY: "energy_j_per_sample",
    Objective.COST: "cost_usd_per_sample",
    Objective.POWER: "peak_power_w",
    Objective.AREA: "area_mm2",
}
"""Columns of the objectives' values, with their units."""

_UNITS = {
    Objective.THROUGHPUT: "samples/s",
    Objective.WORST_CASE: "of the best throughput in the worst case",
    Objective.ENERGY: "J/sample",
    Objective.COST: "USD/sample",
    Objective.POWER: "W",
    Objective.AREA: "mm²",
}


def displayed(name: Objective, value: float) -> float | None:
    """Return an objective's minimised value as it is shown: throughput as a rate. None where it is infinite."""
    if not 0 < value < float("inf"):
        return None
    return 1 / value if name in (Objective.THROUGHPUT, Objective.WORST_CASE) else value


def value_text(name: Objective, value: float) -> str:
    """Return an objective's minimised value in words."""
    shown = displayed(name, value)
    return "none" if shown is None else f"{shown:.4g} {_UNITS[name]}"


def gap_text(outcome: Outcome) -> str:
    """Return in words how far the front may be from the true one."""
    if outcome.gap is None or not any(outcome.gap):
        return "no design of the space dominates one of the front: the front is exact"
    named = [
        f"{100 * gap:.2g} % in {name.replace('_', ' ')}"
        for name, gap in zip(outcome.objectives.names, outcome.gap, strict=True)
    ]
    return f"no design of the space is better than the front by more than {', '.join(named)}"


def option_rows(result: RunResult, architecture: int) -> list[Row]:
    """Return the fate of every placement option on one architecture, with what beats it or the reason."""
    evaluator = evaluator_of(result.run, result.architectures, result.outcome.references_s)
    several = len(result.run.workloads) > 1
    return [
        {
            **({"workload": one.workload} if several else {}),
            "option": one.option,
            "fate": one.fate.name.lower(),
            "beaten_by": one.by,
            "reason": one.reason,
        }
        for one in options_of(result.outcome, evaluator, architecture)
    ]


def short_row(row: Row) -> Row:
    """Return the columns that fit a terminal, in human units."""

    def number(key: str) -> float:
        value = row[key]
        assert isinstance(value, int | float)
        return float(value)

    short: Row = {
        "id": row["id"],
        # One workload's own figure, or the geometric mean of several.
        "samples/s" if "step_s" in row else "geomean samples/s": round(number("throughput_samples_per_s"), 2),
        "area_mm2": round(number("area_mm2"), 2),
        "tensor": f"{row['tensor_units']}×{row['tensor_rows']}×{row['tensor_cols']}",
        "vector": f"{row['vector_units']}×{row['vector_lanes']}",
        "buffer_MiB": round(number("global_buffer_bytes") / 2**20, 2),
    }
    if "step_s" in row:
        short |= {
            "HBM_GB": round(number("hbm_bytes") / 1e9, 1),
            "t": row["tensor_parallel"],
            "d": row["data_parallel"],
            "p": row["pipeline_stages"],
            "microbatch": row["microbatch"],
            "recompute": row["recompute"],
            "MFU": f"{number('mfu'):.1%}",
            "proven": row["proven_optimal"],
        }
    return short
