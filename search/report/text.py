"""A design point as text for a terminal."""

from collections.abc import Mapping, Sequence
from textwrap import wrap

from archplace.search.objectives import Objective
from archplace.search.points import OBJECTIVE_COLUMNS
from archplace.search.report._format import AREA_WORDS, cell, heading
from archplace.search.report.objectives import axis
from archplace.search.wording import LINE, aligned, bars, gigabytes, number, pairs, percent, seconds, signed_percent

_LAST = ("tokens_per_s", "mfu", "bottleneck", "proven_optimal")
FIGURES = (
    "throughput_samples_per_s",
    "relative_throughput",
    "worst_relative_throughput",
    "area_mm2",
    "samples_per_s_per_mm2",
    "energy_j_per_sample",
    "samples_per_s_per_w",
    "mean_power_w",
    "peak_power_w",
    "accelerator_usd",
    "cost_usd_per_sample",
    "samples_per_usd",
    "run_s",
    "run_j",
    "run_usd",
)
"""What a design's text begins with, as far as it is known."""


def design_text(document: Mapping[str, object]) -> str:
    """Return the text of :func:`~archplace.search.report.design.design_document`: sections of aligned lines."""
    fate = document.get("fate")
    title = str(document["name"])
    if fate == "front":
        title += ": on the front"
    elif fate is not None:
        title += f": {fate}"
        if document["dominated_by"] is not None:
            title += f" by design {document['dominated_by']}"
    workloads = document["workloads"]
    assert isinstance(workloads, Sequence)
    lines = [title, *(["throughput, energy and cost are geometric means"] if len(workloads) > 1 else []), ""]
    lines += pairs((heading(key), cell(key, document[key])) for key in document if key in FIGURES)
    expected = document["expected"]
    assert isinstance(expected, Mapping)
    lines += ["", *_expected(expected)]
    several = document.get("other_designs")
    if isinstance(several, Sequence) and several:
        lines += ["", f"Other designs on this architecture: {', '.join(map(str, several))}"]
    more = document["difference_to_baseline"]
    if isinstance(more, Mapping):
        lines += ["", f"Compared with {more['baseline']}"]
        lines += pairs((name.replace("_", " "), signed_percent(more[name])) for name in more if name != "baseline")
    budgets = document.get("budgets")
    if isinstance(budgets, Mapping):
        lines += ["", "Budgets", *pairs((heading(key), cell(key, value)) for key, value in budgets.items())]
    architecture = document["architecture"]
    assert isinstance(architecture, Mapping)
    lines += ["", "Architecture", *pairs((heading(key), cell(key, value)) for key, value in architecture.items())]
    areas = document["area_parts_mm2"]
    assert isinstance(areas, Mapping)
    lines += ["", f"Area: {number(sum(areas.values()))} mm²"]
    lines += bars({AREA_WORDS.get(part, part.replace("_", " ")): area for part, area in areas.items()}, "mm²")
    for workload in workloads:
        lines += ["", *_workload(workload)]
    return "\n".join(lines)


def _expected(expected: Mapping[str, object]) -> list[str]:
    """Return the bounds between which measured figures are expected, and what the design cannot be told from."""
    lines = ["Expected when measured, and ties"]
    rows = []
    for key, low in expected.items():
        if key.endswith("_low"):
            column = key.removesuffix("_low")
            rows.append((heading(column), f"{cell(column, low)} to {cell(column, expected[f'{column}_high'])}"))
    if expected.get("ties"):
        rows.append(("ties", f"{expected['ties']}: {expected['tied_with']}"))
    return [*lines, *pairs(rows), *(f"  {line}" for line in wrap(str(expected["words"]), LINE))]


def fate_text(row: Mapping[str, object]) -> str:
    """Return the text of :func:`~archplace.search.tables.fate_row`, for an architecture that was not evaluated."""
    fate, by = row["fate"], row["dominated_by"]
    lines = [f"design {row['id']}: {fate}", ""]
    if fate == "pruned":
        *some, last = _limits(row)
        limits = f"{', '.join(some)} or {last}" if some else last
        lines.append(
            f"Not evaluated: no placement can give it {limits}, and design {by} is at least as good in every objective."
            if by is not None
            else f"Not evaluated: no placement can give it {limits}, which is within the gap that this run may leave."
        )
    elif row["reason"] is not None:
        lines.append(f"Infeasible: {row['reason']}")
    else:
        lines.append("No fate yet: the run is not finished.")
    rest = {key: value for key, value in row.items() if key not in ("id", "fate", "dominated_by", "reason")}
    lines += ["", "Architecture", *pairs((heading(key), cell(key, value)) for key, value in rest.items())]
    if by is not None:
        lines += ["", f"next: archplace show DIR {by}"]
    return "\n".join(lines)


def _limits(row: Mapping[str, object]) -> list[str]:
    """Return what an architecture's bounds rule out, in words."""
    limits = []
    for objective in Objective:
        shown, bound = axis(objective), row.get(f"bound_{OBJECTIVE_COLUMNS[objective]}")
        if isinstance(bound, float):
            limits.append(f"{'more' if shown.maximise else 'less'} than {shown.text(bound * shown.scale)}")
    return limits or ["anything better"]


def _workload(document: Mapping[str, object]) -> list[str]:
    placement, parts, stages = document["placement"], document["parts_s"], document["stages"]
    assert isinstance(placement, Mapping)
    assert isinstance(parts, Mapping)
    assert isinstance(stages, Sequence)
    total = sum(parts.values())
    joules = document.get("parts_j_per_sample")
    energy: list[str] = []
    if isinstance(joules, Mapping):
        whole = sum(joules.values())
        energy = ["", f"Energy per sample, all accelerators: {number(whole)} J", *bars(joules, "J")]
    keys = [
        key for key in ("step_s", "lower_step_s", "samples_per_s", "relative_throughput", *_LAST) if key in document
    ]
    capacity = placement["hbm_bytes"]
    table = [
        (
            *("stage", "layers", "recompute", "devices", "load"),
            *("weights", "gradients", "optimizer", "activations", "total", "of HBM"),
        )
    ]
    for stage in stages:
        bytes_ = [stage[f"{name}_bytes"] for name in ("weights", "gradients", "optimizer", "activations", "memory")]
        table.append(
            (
                str(stage["stage"]),
                stage["layers"],
                stage["recompute"],
                str(stage["devices"]),
                seconds(stage["load_s"]),
                *(number(value / 1e9) for value in bytes_),
                percent(stage["memory_bytes"] / capacity),
            )
        )
    return [
        f"Workload {document['workload']}",
        *pairs((heading(key), cell(key, document[key])) for key in keys),
        "",
        "Placement",
        *pairs((heading(key), cell(key, value)) for key, value in placement.items()),
        "",
        f"Time of a step: {seconds(total)}",
        *bars(parts, None),
        *energy,
        "",
        f"Memory per device by stage (GB), activations with buffers and reserve; HBM {gigabytes(capacity)}",
        *aligned(table, left={1, 2}),
    ]
