"""Rows and texts of listings: the front, an architecture's fate, its placement options."""

from archplace.search.choices import WorkloadResult
from archplace.search.fates import options_of
from archplace.search.objectives import Objective
from archplace.search.outcome import BOUND_NAMES, Bound, Fate, Outcome
from archplace.search.points import (
    BASELINE,
    OBJECTIVE_COLUMNS,
    PointView,
    Row,
    architecture_row,
    baseline_view,
    displayed,
    part_column,
    point_views,
    view,
)
from archplace.search.run import RunResult, evaluator_of

__all__ = [
    "BASELINE",
    "OBJECTIVE_COLUMNS",
    "PointView",
    "Row",
    "architecture_row",
    "baseline_view",
    "displayed",
    "fate_row",
    "front_rows",
    "gap_text",
    "option_rows",
    "part_column",
    "placement_text",
    "point_views",
    "short_row",
    "value_text",
    "view",
]

_UNITS = {
    Objective.THROUGHPUT: "samples/s",
    Objective.WORST_CASE: "of the best throughput in the worst case",
    Objective.ENERGY: "J/sample",
    Objective.COST: "USD/sample",
    Objective.POWER: "W",
    Objective.AREA: "mm²",
}

_SHORT = {
    Objective.ENERGY: ("J/sample", 5),
    Objective.COST: ("USD/sample", 5),
    Objective.POWER: ("peak_W", 5),
}
"""Objectives that a listing shows beside throughput and area: column and digits."""


def front_rows(result: RunResult) -> list[Row]:
    """Return the front's rows that fit a terminal, best in the first objective first."""
    return [short_row(point) for point in point_views(result)]


def fate_row(result: RunResult, architecture: int) -> Row:
    """Return what became of an architecture, evaluated or not, with its bound, what dominates it, or the reason."""
    outcome = result.outcome
    fate = Fate(int(outcome.fate[architecture]))
    by = outcome.witness_of(architecture) if fate in (Fate.DOMINATED, Fate.PRUNED) else None
    one = result.architectures.take(slice(architecture, architecture + 1))
    # Of what no placement changes the bound is the value.
    bounds = {
        f"{'bound_' if moves else ''}{OBJECTIVE_COLUMNS[name]}": displayed(name, value)
        for name, moves, value in zip(
            outcome.objectives.names,
            outcome.objectives.depend_on_time,
            outcome.bound[architecture].tolist(),
            strict=True,
        )
    }
    return {
        "id": architecture,
        "fate": fate.name.lower(),
        **bounds,
        "area_mm2": float(one.area_mm2[0]),
        "bound": BOUND_NAMES.get(Bound(kind)) if (kind := int(outcome.bound_kind[architecture])) else None,
        "dominated_by": by.id if by is not None else None,
        "reason": outcome.reasons.get(architecture),
        **architecture_row(one),
    }


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


def short_row(point: PointView) -> Row:
    """Return the columns that fit a terminal, in human units: the objectives, the chip, the placements."""
    headline, row, workloads = point.headline(), point.architecture(), point.result.run.workloads
    several = len(workloads) > 1
    # One workload's own figure, or the geometric mean of several.
    short: Row = {"id": point.id, "geomean samples/s" if several else "samples/s": round(point.samples_per_s, 2)}
    if several:
        for key, column in (("relative", "relative_throughput"), ("worst", "worst_relative_throughput")):
            share = headline.get(column)
            short[key] = f"{share:.1%}" if isinstance(share, float) else None
    for name in point.result.outcome.objectives.names:
        if name in _SHORT:
            label, digits = _SHORT[name]
            value = point.value(name)
            short[label] = None if value is None else float(f"{value:.{digits}g}")
    short |= {
        "area_mm2": round(point.area_mm2, 2),
        "tensor": f"{row['tensor_units']}×{row['tensor_rows']}×{row['tensor_cols']}",
        "vector": f"{row['vector_units']}×{row['vector_lanes']}",
        "buffer_MiB": round(float(point.architectures.global_buffer_bytes[0]) / 2**20, 2),
    }
    if several:
        for workload, found in zip(workloads, point.point.results, strict=True):
            short[workload.name] = placement_text(found)
    else:
        (found,) = point.point.results
        mfu = point.placement()["mfu"]
        short |= {
            "HBM_GB": round(found.option.hbm_bytes / 1e9, 1),
            "placement": str(found.placement.strategy),
            "recompute": found.placement.recompute_words,
            "MFU": f"{mfu:.1%}",
        }
    return {**short, "proven": point.proven}


def placement_text(found: WorkloadResult) -> str:
    """Return a placement in the field's short form, with recomputation and HBM capacity."""
    placement = found.placement
    return f"{placement.strategy} recompute {placement.recompute_words} HBM {found.option.hbm_bytes / 1e9:.4g} GB"
