"""What a report says, before it is written as HTML, CSV or JSON."""

from dataclasses import asdict, dataclass

from archplace import __version__
from archplace.arch_configs.calibration import CENTRAL_SHARE
from archplace.search.budgets import Budget, budgets_of
from archplace.search.intervals import full_rows, ties_of, uncertainty_of
from archplace.search.points import PointView, Row, baseline_view, point_views
from archplace.search.report._axes import axes_row
from archplace.search.report.design import difference_row
from archplace.search.report.health import Finding, health
from archplace.search.report.picks import Pick, picks
from archplace.search.report.summary import Counts, ReasonGroup, group_architectures, group_reasons
from archplace.search.run import RunResult
from archplace.search.tables import gap_text

CAVEAT = "Estimates of an analytical model, not sign-off."
PRIORS = (
    "Energy, power and cost follow from the technology table's numbers, which no measurement of this kind of chip has "
    "calibrated. Dynamic energy counts the traffic that an operator has on all units, which is optimistic for "
    "schedules that run operators side by side; static power and the hosts' share count for all accelerators over the "
    "whole step."
)
UNLIMITED = "Peak power is that of everything at full rate and clock; chips with a lower limit slow down (power_limit)."
LIMITED = "Peak power is that of large products at the clock that the power limit leaves; operators run no faster."


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """One run, digested."""

    result: RunResult
    front: tuple[PointView, ...]
    """Best in the first objective first."""
    rows: tuple[Row, ...]
    """Every design of the front with all its metrics, in the same order."""
    baseline: PointView | None
    baseline_missing: str
    """Why there is no baseline point; empty where there is one."""
    picks: tuple[Pick, ...]
    ties: tuple[tuple[int, ...], ...]
    """Of each design of the front the positions of those that the model cannot tell from it, the closest first."""
    counts: Counts
    option_reasons: tuple[ReasonGroup, ...]
    architecture_reasons: tuple[ReasonGroup, ...]
    findings: tuple[Finding, ...]
    budgets: tuple[Budget, ...]

    @classmethod
    def of(cls, result: RunResult) -> "Contents":
        """Digest a run."""
        front, baseline, counts = point_views(result), baseline_view(result), Counts.of(result)
        ties = ties_of(front)
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
            rows=tuple(full_rows(front)),
            baseline=baseline,
            baseline_missing=missing,
            picks=picks(front, baseline),
            ties=tuple(ties),
            counts=counts,
            option_reasons=options,
            architecture_reasons=architectures,
            findings=health(result, front, ties, counts, options, architectures),
            budgets=budgets_of(result.run),
        )

    @property
    def note(self) -> str:
        """What to keep in mind about every number."""
        priced = any(point.metrics.joules_per_sample is not None for point in self.front[:1])
        limited = self.result.run.choices.power_limit_w is not None
        return f"{CAVEAT} {PRIORS} {LIMITED if limited else UNLIMITED}" if priced else CAVEAT

    @property
    def sureness(self) -> str:
        """How far measured figures may be from the ones that stand here, and when two designs are a tie."""
        if not self.front:
            return ""
        uncertainty = uncertainty_of(self.front[0])
        return f"{uncertainty.words} {uncertainty.comparison_words}"

    @property
    def warning(self) -> str:
        """That the run is not finished, and how far it is; empty for a finished one."""
        if not self.result.partial:
            return ""
        evaluated = len(self.result.outcome.records)
        return (
            f"The run is not finished: {evaluated:,} of {self.counts.architectures:,} architectures have been "
            "evaluated so far, and what follows may be dominated by others. Go on with: archplace search "
            f"{self.result.run.name}.yaml --out DIR"
        )

    @property
    def certainty(self) -> str:
        """How far the front may be from the true one, in words."""
        if self.result.partial:
            return "the run is not finished: better designs may follow"
        if self.result.outcome.gap is None and not all(point.proven for point in self.result.outcome.front):
            return "no design is known that is better; where a schedule is not proven optimal, one could be by its gap"
        return gap_text(self.result.outcome)

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
        "note": contents.note,
        **({"uncertainty": _uncertainty(contents)} if contents.front else {}),
        **({"warning": contents.warning} if contents.warning else {}),
        "run": {
            "name": run.name,
            "workloads": [
                {
                    "name": workload.name,
                    "model": workload.model_name,
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
            "axes": axes_row(choices.axes),
            "hbm_bytes": None if choices.hbm_bytes is None else list(choices.hbm_bytes),
            "objectives": [str(name) for name in run.objectives.names],
            "effort": run.effort,
            "budgets": {budget.name: {"limit": budget.limit, "unit": budget.unit} for budget in contents.budgets},
            "solver": contents.solver,
        },
        "digest": run.digest,
        "inputs": dict(run.inputs),
        "counts": asdict(contents.counts),
        "gap": _gap(contents),
        "best_samples_per_s": _best(contents),
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
        "front": list(contents.rows),
    }


def _uncertainty(contents: Contents) -> Row:
    found = uncertainty_of(contents.front[0])
    return {
        "words": contents.sureness,
        "basis": str(found.basis),
        "probability": CENTRAL_SHARE,
        "measured_over_predicted_s_low": found.interval.low,
        "measured_over_predicted_s_high": found.interval.high,
        "error_of_ratios": found.compared,
    }


def _gap(contents: Contents) -> Row | None:
    outcome = contents.result.outcome
    return None if outcome.gap is None else dict(zip(map(str, outcome.objectives.names), outcome.gap, strict=True))


def _best(contents: Contents) -> Row | None:
    """Return of several workloads the best throughput of each in the space, alone."""
    references_s, workloads = contents.result.outcome.references_s, contents.result.run.workloads
    if not references_s:
        return None
    return {workload.name: 1 / seconds for workload, seconds in zip(workloads, references_s, strict=True)}


def _baseline(contents: Contents) -> Row | None:
    if contents.result.baseline is None:
        return None
    if contents.baseline is None:
        return {"name": contents.result.baseline.name, "reason": contents.result.baseline.reason}
    return {"name": contents.baseline.label, **contents.baseline.row()}
