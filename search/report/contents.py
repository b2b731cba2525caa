"""What a report says, before it is written as HTML, CSV or JSON."""

from dataclasses import asdict, dataclass

from archplace import __version__
from archplace.search.report.design import difference_row
from archplace.search.report.health import Finding, health
from archplace.search.report.picks import Pick, picks
from archplace.search.report.summary import Counts, ReasonGroup, group_architectures, group_reasons
from archplace.search.run import RunResult
from archplace.search.tables import PointView, Row, baseline_view, point_views

CAVEAT = "Estimates of an analytical model, not sign-off."


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """One run, digested."""

    result: RunResult
    front: tuple[PointView, ...]
    """Fastest first."""
    baseline: PointView | None
    baseline_missing: str
    """Why there is no baseline point; empty where there is one."""
    picks: tuple[Pick, ...]
    counts: Counts
    option_reasons: tuple[ReasonGroup, ...]
    architecture_reasons: tuple[ReasonGroup, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, result: RunResult) -> "Contents":
        """Digest a finished run."""
        front, baseline, counts = point_views(result), baseline_view(result), Counts.of(result)
        options = group_reasons(result.outcome.option_reasons)
        architectures = group_architectures(result.outcome.reasons)
        missing = ""
        if result.baseline is None:
            missing = "The run file names no baseline accelerator (key: baseline)."
        elif baseline is None:
            missing = f"{result.baseline.name} cannot run this workload: {result.baseline.reason}."
        return cls(
            result=result,
            front=tuple(front),
            baseline=baseline,
            baseline_missing=missing,
            picks=picks(front, baseline),
            counts=counts,
            option_reasons=options,
            architecture_reasons=architectures,
            findings=health(result, front, counts, options, architectures),
        )

    @property
    def solver(self) -> str:
        """How schedules are solved, in words."""
        limit_s = self.result.cache.time_limit_s
        return (
            "Operator schedules: bounds and list schedules, where these do not meet an exact search over partial "
            f"schedules, and at its limit CP-SAT (OR-Tools, one worker, seed 0) with at most {limit_s:g} s of "
            "deterministic time for each part. Placements: an exact search under the cost formulas."
        )


def document(contents: Contents) -> dict[str, object]:
    """Return the whole report as one JSON document: SI units in the keys, shares as fractions of one."""
    run, choices = contents.result.run, contents.result.run.choices
    return {
        "archplace_version": __version__,
        "note": CAVEAT,
        "run": {
            "name": run.name,
            "workloads": [
                {
                    "name": workload.name,
                    "model": workload.model.name,
                    "sequence_length": workload.sequence_length,
                    "global_batch": workload.global_batch,
                    "precision": str(workload.precision),
                    "optimizer": str(workload.optimizer),
                }
                for workload in run.workloads
            ],
            "space": run.space_name,
            "cluster": run.cluster.name,
            "accelerators": choices.accelerators,
            "tensor_parallel": list(choices.tensor_parallel),
            "microbatch": list(choices.microbatch),
            "recompute": list(choices.recompute),
            "hbm_bytes": None if choices.hbm_bytes is None else list(choices.hbm_bytes),
            "max_area_mm2": choices.max_area_mm2,
            "max_step_s": choices.max_step_s,
            "solver": contents.solver,
        },
        "digest": run.digest,
        "inputs": dict(run.inputs),
        "counts": asdict(contents.counts),
        "not_explored": contents.counts.not_explored,
        "reasons": {
            "placement_options": [asdict(group) for group in contents.option_reasons],
            "architectures": [
                {"reason": group.reason, "count": group.count} for group in contents.architecture_reasons
            ],
        },
        "baseline": _baseline(contents),
        "picks": [
            {
                "name": pick.name,
                "why": pick.why,
                "id": pick.point.id,
                "difference_to_baseline": difference_row(pick.point, contents.baseline),
            }
            for pick in contents.picks
        ],
        "health": [asdict(finding) for finding in contents.findings],
        "front": front_rows(contents),
    }


def front_rows(contents: Contents) -> list[Row]:
    """Return every front design with all its metrics, fastest first."""
    return [point.row() for point in contents.front]


def _baseline(contents: Contents) -> Row | None:
    if contents.result.baseline is None:
        return None
    if contents.baseline is None:
        return {"name": contents.result.baseline.name, "reason": contents.result.baseline.reason}
    return {"name": contents.baseline.label, **contents.baseline.row()}
