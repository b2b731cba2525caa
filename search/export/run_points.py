"""The design points of a run as candidates to export, and why others are none."""

from collections.abc import Iterable
from pathlib import Path

from archplace.arch_configs.errors import StoreError
from archplace.costmodel.network import PricingMode
from archplace.search.choices import WorkloadResult
from archplace.search.export.candidates import Candidate, Origin
from archplace.search.export.placed import Placement
from archplace.search.outcome import Fate
from archplace.search.points import PointView
from archplace.search.run import RunResult
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.evaluate import Evaluation
from archplace.search.strategy.strategy import DEALT_EVENLY
from archplace.search.tables import fate_row
from archplace.workloads import TrainingJob

_SAME = 1e-6
"""Relative difference of a step's seconds, stored and priced again, that is rounding."""


def of_points(points: Iterable[PointView], folder: Path) -> list[Candidate]:
    """Return the placements of design points, one for each workload.

    Raises :class:`StoreError` for a point whose placement has another price now than is stored: it was found by another
    version, or with other inputs.
    """
    return [
        _of_point(point, workload, found, folder)
        for point in points
        for workload, found in zip(point.result.run.workloads, point.point.results, strict=True)
    ]


def _of_point(point: PointView, workload: TrainingJob, found: WorkloadResult, folder: Path) -> Candidate:
    run, best = point.result.run, found.placement
    strategy = best.strategy
    placement = Placement(
        workload=workload,
        architectures=point.architectures,
        cluster=run.cluster,
        strategy=strategy,
        held=None if strategy.schedule in DEALT_EVENLY else best.cut.held,
        policies=best.policies,
        hbm_bytes=float(found.option.hbm_bytes),
        allowance=run.choices.allowance,
    )
    cache = point.result.cache
    origin = Origin(name=run.name, folder=folder.resolve(), point=str(point.id), digest=run.digest)
    now = _evaluation(placement, cache, folder, str(point.id))
    now_s = now.step_s
    if abs(now_s - best.step_s) > _SAME * best.step_s:
        raise StoreError(
            f"{folder}: design {point.id} is stale: {workload.name} is stored with a step of {best.step_s:.6g} s, and "
            f"takes {now_s:.6g} s at the prices of this version; search again, and export what is found then"
        )
    return Candidate(origin=origin, placement=placement, accelerator=f"design {point.id}", predicted=now, cache=cache)


def _evaluation(placement: Placement, cache: ScheduleCache, folder: Path, point: str) -> Evaluation:
    """Return what the placement takes as the search prices it."""
    try:
        return placement.priced(PricingMode.BEST, cache).evaluation
    except ValueError as error:
        raise StoreError(
            f"{folder}: design {point} is stale: this version refuses its placement: {error}; search again, and export "
            "what is found then"
        ) from None


def without_point(result: RunResult, architecture: int) -> str:
    """Return why an architecture has no design point to export, and what to do instead."""
    row = fate_row(result, architecture)
    fate = Fate(int(result.outcome.fate[architecture]))
    if fate is Fate.INFEASIBLE:
        return (
            f"design {architecture} is infeasible: {row['reason'] or 'no placement fits'}; list others: archplace show"
        )
    if fate is Fate.PRUNED:
        by = row["dominated_by"]
        instead = "" if by is None else f"; design {by} is better in everything: export that one"
        return f"design {architecture} was never placed: its bound rules it out{instead}"
    return f"design {architecture} was not evaluated yet: the run is not finished; go on with it first"
