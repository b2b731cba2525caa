"""One design point as a document: architecture, placement, metrics, breakdown, memory, difference to the baseline."""

from archplace.search.choices import WorkloadResult
from archplace.search.explain import Explanation
from archplace.search.intervals import bounds_row, ties_of, ties_row, uncertainty_of
from archplace.search.metrics import ENERGY_PARTS, WorkloadMetrics
from archplace.search.outcome import Fate
from archplace.search.points import PointView, Row, placement_row, point_views
from archplace.search.report.picks import difference
from archplace.workloads import TrainingJob


def design_document(point: PointView, baseline: PointView | None) -> Row:
    """Return everything about an evaluated point, nested; SI units in the keys, shares as fractions of one."""
    result = point.result
    document: Row = {"name": point.label, **point.headline()}
    if not point.is_baseline:
        by = point.dominated_by
        document["fate"] = point.fate.name.lower()
        document["dominated_by"] = by.id if by is not None else None
        document["other_designs"] = [
            other.id
            for other in result.outcome.records[point.point.architecture].points
            if other.number != point.point.number
        ]
    document["expected"] = {**bounds_row(point), **_ties(point), "words": uncertainty_of(point).words}
    if slack := point.slack():
        document["budgets"] = slack
    document["architecture"] = point.architecture()
    document["area_parts_mm2"] = dict(point.area_parts_mm2)
    document["workloads"] = [
        _workload(workload, found, why, figures)
        for workload, found, why, figures in zip(
            result.run.workloads, point.point.results, point.explanations, point.metrics.workloads, strict=True
        )
    ]
    document["difference_to_baseline"] = difference_row(point, baseline)
    return document


def _ties(point: PointView) -> Row:
    """Return the ties of a design of the front; nothing for one that is not on it."""
    if point.is_baseline or point.fate is not Fate.FRONT:
        return {}
    front = point_views(point.result)
    index = [other.id for other in front].index(point.id)
    return ties_row(front, ties_of(front)[index])


def difference_row(point: PointView, baseline: PointView | None) -> Row | None:
    """Return what ``point`` has more than the baseline, as fractions; None without a baseline, and for itself."""
    if baseline is None or point.is_baseline:
        return None
    return {"baseline": baseline.label, **difference(point, baseline)}


def _workload(workload: TrainingJob, found: WorkloadResult, why: Explanation, figures: WorkloadMetrics) -> Row:
    placement, strategy = found.placement, found.placement.strategy
    more: Row = {}
    if figures.relative_throughput is not None:
        more["relative_throughput"] = figures.relative_throughput
    if figures.parts_j is not None:
        more["energy_j_per_sample"] = figures.joules_per_sample
        more["parts_j_per_sample"] = dict(zip(ENERGY_PARTS, figures.parts_j, strict=True))
    if figures.usd_per_sample is not None:
        more["cost_usd_per_sample"] = figures.usd_per_sample
    whole = {"run_s": figures.run_s, "run_j": figures.run_j, "run_usd": figures.run_usd}
    more |= {key: value for key, value in whole.items() if value is not None}
    return {
        "workload": workload.name,
        "step_s": placement.step_s,
        "lower_step_s": found.lower_step_s,
        "samples_per_s": workload.global_batch / placement.step_s,
        "tokens_per_s": workload.tokens_per_step / placement.step_s,
        "mfu": why.mfu,
        "bottleneck": why.bottleneck,
        "proven_optimal": found.proven,
        "placement": {
            key: value
            for key, value in placement_row(workload, found).items()
            if key not in ("step_s", "lower_step_s", "optimality_gap", "tokens_per_s", "proven_optimal")
        },
        "parts_s": dict(why.parts_s),
        **more,
        "stages": [
            {
                "stage": number,
                "layers": stage.layers,
                "recompute": str(placement.policies[number - 1]),
                "devices": strategy.devices // strategy.stages,
                "load_s": stage.load_s,
                "weights_bytes": stage.memory.weights_bytes,
                "gradients_bytes": stage.memory.gradients_bytes,
                "optimizer_bytes": stage.memory.optimizer_bytes,
                "activations_bytes": stage.memory.activations_bytes,
                "memory_bytes": stage.memory.total_bytes,
            }
            for number, stage in enumerate(why.stages, start=1)
        ],
    }
