"""Health checks of a run in words: what an architect should know before believing or repeating it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from archplace.arch_configs.calibration import NOMINAL
from archplace.search.budgets import budgets_of
from archplace.search.choices import WorkloadResult
from archplace.search.intervals import SURE
from archplace.search.objectives import Objectives
from archplace.search.offered import Offered
from archplace.search.points import PointView, architecture_row
from archplace.search.report._format import cell, heading
from archplace.search.report.objectives import in_words
from archplace.search.report.summary import Counts, ReasonGroup
from archplace.search.run import RunResult
from archplace.search.tables import gap_text
from archplace.search.wording import count, gigabytes, number, percent

Value = TypeVar("Value")

PINNED_SHARE = 0.8
"""Share of the front at one end of a parameter's range from which on the range is called too narrow."""
BINDING_SHARE = 0.01
"""Share of a budget up to which what is left of it is nothing to build on."""
MOST_SHARE = 0.5
"""Share of all from which on one reason is said to reject most."""


class Level(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"
    ATTENTION = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: what was checked, what was found, and what could be done."""

    level: Level
    title: str
    text: str


def health(
    result: RunResult,
    front: Sequence[PointView],
    ties: Sequence[Sequence[int]],
    counts: Counts,
    option_reasons: Sequence[ReasonGroup],
    architecture_reasons: Sequence[ReasonGroup],
) -> tuple[Finding, ...]:
    """Return the findings about a run; those that ask for attention first."""
    found = [] if not result.partial else [_unfinished(counts)]
    found += [
        *_rejections(
            "placement options", sum(group.count for group in option_reasons), _options(result), option_reasons
        ),
        *_rejections("architectures", counts.infeasible, counts.architectures, architecture_reasons),
    ]
    found += _kernels(result)
    if front:
        found += [
            *_pinned(result, front),
            _equals(front),
            *_ties(front, ties),
            _proofs(result, front),
            *_binding(result, front),
            *_gap(result),
            *_capacity(result, front),
            *_unused(result, front),
        ]
    order = [Level.ATTENTION, Level.NOTE, Level.GOOD]
    return tuple(sorted(found, key=lambda finding: order.index(finding.level)))


def _unfinished(counts: Counts) -> Finding:
    text = f"{counts.undecided:,} of {counts.architectures:,} architectures have no fate yet."
    return Finding(level=Level.ATTENTION, title="The run is not finished", text=text)


def _kernels(result: RunResult) -> list[Finding]:
    """Find a baseline whose kernels are known to lose what the space's are not, or the other way round."""
    baseline, architectures = result.baseline, result.architectures
    if baseline is None:
        return []
    ours = (architectures.calibration != NOMINAL, architectures.blocks is not None)
    theirs = (baseline.architectures.calibration != NOMINAL, baseline.architectures.blocks is not None)
    if ours == theirs:
        return []
    reached = {True: "the rates that its kernels were measured to reach", False: "data-sheet rates"}
    text = (
        f"{baseline.name} is priced at {reached[any(theirs)]}, the space's architectures at {reached[any(ours)]}: "
        "differences between them are not of the hardware alone. The space's file may have the sections 'calibration' "
        f"and 'tensor_units.blocks', or the key 'kernels_of: {baseline.name}'."
    )
    return [Finding(level=Level.ATTENTION, title="Baseline and designs are priced unlike", text=text)]


def _options(result: RunResult) -> int:
    """Return how many placement options the run offers, counted as its reasons are.

    A way to share layers that the model refuses is one reason for all HBM capacities.
    """
    run = result.run
    capacities = run.choices.hbm_bytes or tuple(sorted(set(result.architectures.hbm_bytes.tolist())))
    offered = [Offered.of(workload, run.cluster, run.choices, capacities) for workload in run.workloads]
    return sum(len(each.options) + len(each.impossible) for each in offered)


def _rejections(what: str, rejected: int, total: int, groups: Sequence[ReasonGroup]) -> list[Finding]:
    if not rejected:
        return [Finding(level=Level.GOOD, title=f"No {what} rejected", text=f"All {total:,} {what} are feasible.")]
    largest = groups[0]
    if largest.count < MOST_SHARE * total:
        text = f"{rejected:,} of {total:,} {what} are infeasible; no single reason rejects most of them."
        return [Finding(level=Level.GOOD, title=f"Rejected {what}", text=text)]
    text = (
        f"One reason rejects {largest.count:,} of {total:,} {what} ({percent(largest.count / total)}): "
        f"{largest.reason}. If that constraint is softer than it looks, the front may move."
    )
    return [Finding(level=Level.ATTENTION, title=f"One constraint rejects most {what}", text=text)]


def _pinned(result: RunResult, front: Sequence[PointView]) -> list[Finding]:
    """Find parameters that most of the front holds at an end of what the space offers."""
    found = []
    archs = result.architectures
    indices = np.array([point.point.architecture for point in front], dtype=np.int64)
    columns = {
        "clock_hz": archs.clock_hz,
        "tensor_units": archs.tensor_count,
        "tensor_rows": archs.tensor_rows,
        "tensor_cols": archs.tensor_cols,
        "vector_units": archs.vector_count,
        "vector_lanes": archs.vector_lanes,
        "global_buffer_bytes": archs.global_buffer_bytes,
        "global_buffer_bytes_per_s": archs.global_buffer_bytes_per_s,
        "hbm_bytes_per_s": archs.hbm_bytes_per_s,
        "hbm_stacks": archs.hbm_stacks,
    }
    assert columns.keys() == architecture_row(archs.take(slice(0, 1))).keys()
    for column, values in columns.items():
        low, high = values.min(), values.max()
        if low == high:
            continue
        for end, word in ((low, "bottom"), (high, "top")):
            held = int((values[indices] == end).sum())
            if held >= PINNED_SHARE * len(front):
                value = cell(column, end.item())
                text = (
                    f"{held} of {count(len(front), 'front design')} sit at the {word} of the space's range, {value}. "
                    "The best value may lie outside: widen the range and search again."
                )
                found.append(Finding(level=Level.ATTENTION, title=f"{heading(column)} is pinned", text=text))
    if not found:
        text = f"No parameter is at an end of its range on {PINNED_SHARE:.0%} or more of the front."
        found.append(Finding(level=Level.GOOD, title="No parameter pinned", text=text))
    return found


def _equals(front: Sequence[PointView]) -> Finding:
    groups: dict[tuple[float, ...], list[str]] = {}
    for point in front:
        groups.setdefault(point.point.values, []).append(str(point.id))
    ties = [group for group in groups.values() if len(group) > 1]
    if not ties:
        return Finding(level=Level.GOOD, title="No equals", text="No two designs on the front have equal objectives.")
    examples = "; ".join(" = ".join(group[:4]) + (" = …" if len(group) > 4 else "") for group in ties[:3])
    text = (
        f"{sum(len(group) for group in ties)} designs on the front are equal to another one in every objective "
        f"({examples}{'; …' if len(ties) > 3 else ''}): choose among them by what the objectives leave out."
    )
    return Finding(level=Level.NOTE, title="Equals on the front", text=text)


def _ties(front: Sequence[PointView], ties: Sequence[Sequence[int]]) -> list[Finding]:
    """Say how many designs differ by less than predictions are worth, and what one gets by choosing among ties."""
    unsure = [name for name in front[0].result.outcome.objectives.names if name not in SURE]
    if not unsure:
        return []
    words = in_words(Objectives(names=tuple(unsure)))
    tied = [index for index, others in enumerate(ties) if others]
    if not tied:
        text = f"No two designs on the front are closer in {words} than comparisons of predictions are off."
        return [Finding(level=Level.GOOD, title="No ties", text=text)]
    text = (
        f"{len(tied)} of {count(len(front), 'front design')} cannot be told from another one in {words}: their "
        "intervals for comparison overlap. Choose among ties by what is surer, or by what the objectives leave out."
    )
    best = tied[0]
    smallest = min((best, *ties[best]), key=lambda index: front[index].area_mm2)
    if smallest != best:
        saved = 1 - front[smallest].area_mm2 / front[best].area_mm2
        text += f" Design {front[smallest].id} is a tie with design {front[best].id} and {percent(saved)} smaller."
    return [Finding(level=Level.NOTE, title="Ties on the front", text=text)]


def _proofs(result: RunResult, front: Sequence[PointView]) -> Finding:
    unproven = [str(point.id) for point in front if not point.proven]
    if not unproven:
        text = "Every design on the front is proven to be placed and scheduled optimally under the cost formulas."
        return Finding(level=Level.GOOD, title="Schedules proven", text=text)
    widest = max(1 - point.point.lower_seconds_per_sample / point.point.seconds_per_sample for point in front)
    listed = ", ".join(unproven[:6]) + (", …" if len(unproven) > 6 else "")
    # Where a gap is allowed, or the run goes on, schedules are open because nobody has tried to close them yet.
    tried = result.run.tolerance == 0 and not result.partial
    text = (
        f"{count(len(unproven), 'front design')} ({listed}) rest on a schedule that "
        f"{'the solver did not prove optimal within its limit' if tried else 'is not proven optimal'}. "
        f"None can be faster than shown by more than {percent(widest)} of its step time."
    )
    return Finding(level=Level.ATTENTION if tried else Level.NOTE, title="Schedules without proof", text=text)


def _binding(result: RunResult, front: Sequence[PointView]) -> list[Finding]:
    """Say which budgets designs of the front reach: what they would buy is outside."""
    found = []
    for budget in budgets_of(result.run):
        left = [share for point in front if (share := budget.left(point.metrics)) is not None]
        reached = sum(share <= BINDING_SHARE for share in left)
        name = budget.name.replace("_", " ")
        if reached:
            text = (
                f"{reached} of {count(len(front), 'front design')} leave at most {percent(BINDING_SHARE)} of the "
                f"budget {name}, {number(budget.limit)} {budget.unit}: a softer budget may give better designs."
            )
            found.append(Finding(level=Level.NOTE, title=f"Budget {name} binds", text=text))
        elif left:
            text = f"Every design on the front leaves at least {percent(min(left))} of the budget {name}."
            found.append(Finding(level=Level.GOOD, title=f"Budget {name} does not bind", text=text))
    return found


def _gap(result: RunResult) -> list[Finding]:
    if result.partial or result.outcome.gap is None:
        return []
    level = Level.NOTE if any(result.outcome.gap) else Level.GOOD
    text = f"The run's effort was {result.run.effort}: {gap_text(result.outcome)}."
    return [Finding(level=level, title="Gap of the front", text=text)]


def _capacity(result: RunResult, front: Sequence[PointView]) -> list[Finding]:
    capacities = result.run.choices.hbm_bytes
    if capacities is None or len(capacities) < 2:
        return []
    least = min(capacities)
    used = [found.option.hbm_bytes for point in front for found in point.point.results]
    larger = sum(capacity > least for capacity in used)
    if larger:
        text = f"{larger} of {count(len(used), 'placement')} on the front take more than {gigabytes(least)} of HBM."
        return [Finding(level=Level.NOTE, title="HBM capacity matters", text=text)]
    text = (
        f"Every design on the front takes the least HBM that was offered, {gigabytes(least)}: more capacity buys "
        "nothing here. Offer less to see where it begins to bind."
    )
    return [Finding(level=Level.NOTE, title="HBM capacity never binds", text=text)]


def _unused(result: RunResult, front: Sequence[PointView]) -> list[Finding]:
    choices, axes = result.run.choices, result.run.choices.axes
    results = [found for point in front for found in point.point.results]

    def missing(offered: Sequence[Value], used: Callable[[WorkloadResult], Value]) -> list[Value]:
        taken = {used(found) for found in results}
        return [value for value in offered if value not in taken]

    unused: dict[str, list[str]] = {
        "tensor-parallel width": [str(v) for v in missing(axes.tensor, lambda r: r.option.sharding.tensor)],
        "context-parallel degree": [str(v) for v in missing(axes.context, lambda r: r.option.sharding.context)],
        "expert-parallel degree": [str(v) for v in missing(axes.expert, lambda r: r.option.sharding.expert)],
        "microbatch": [str(v) for v in missing(axes.microbatch, lambda r: r.option.sharding.microbatch)],
        "schedule": [str(v) for v in missing(axes.schedules, lambda r: r.placement.strategy.schedule)],
        "state sharding": [
            str(v)
            for v in missing(
                list(dict.fromkeys(each.states for each in axes.states)), lambda r: r.placement.strategy.states.states
            )
        ],
        "recomputation": [
            str(policy) for policy in axes.policies if all(policy not in found.placement.policies for found in results)
        ],
        "HBM": [gigabytes(v) for v in missing(choices.hbm_bytes or (), lambda r: r.option.hbm_bytes)],
    }
    words = "; ".join(f"{name} {', '.join(values)}" for name, values in unused.items() if values)
    if not words:
        text = "Every offered degree, microbatch, HBM capacity and recomputation policy is on the front."
        return [Finding(level=Level.GOOD, title="All options used", text=text)]
    text = f"Offered, but best on no design of the front: {words}. Leaving them out would make the search smaller."
    return [Finding(level=Level.NOTE, title="Options never used", text=text)]
