"""The cards of record: what was explored and what not, health checks, the table of the front, inputs."""

from collections.abc import Mapping, Sequence

from archplace import __version__
from archplace.search.outcome import BOUND_NAMES, Bound
from archplace.search.report._axes import axes_words
from archplace.search.report._card import card, empty, facts
from archplace.search.report._format import cell, heading
from archplace.search.report._html import Html, element, table
from archplace.search.report.contents import Contents
from archplace.search.report.health import Level
from archplace.search.report.objectives import axes, in_words
from archplace.search.report.summary import MOST_NAMED, ReasonGroup
from archplace.search.wording import count, gigabytes, number, percent

_BOUND_WORDS = {
    BOUND_NAMES[Bound.WORK]: "beaten although every unit is busy all the time and the pipeline is perfectly balanced",
    BOUND_NAMES[Bound.SCHEDULE]: "beaten by lower bounds of its schedules and the best cut of its layers",
}
_FATE_WORDS = {
    "open": "no fate yet",
    "front": "on the front",
    "dominated": "evaluated, beaten",
    "pruned": "pruned by their bound",
    "infeasible": "infeasible",
}
_OPTION_WORDS = {
    "open": "the run is not finished",
    "front": "the placement of a design on the front",
    "dominated": "evaluated exactly; another option on the architecture or another design is better",
    "pruned": "not evaluated: its own bound is beaten on its architecture, or all of the architecture is",
    "infeasible": "does not divide the model, does not fit the memory, or is over a budget",
}
MOST_ROWS = 1000
"""Rows of the table at most: a browser should stay quick."""
_LEVEL_WORDS = {Level.ATTENTION: "Look at this", Level.NOTE: "Note", Level.GOOD: "Good"}


def _training(contents: Contents) -> str:
    """Return how much is trained, in words."""
    run = contents.result.run
    if run.choices.training is None:
        return "the run file does not say how much is trained"
    tokens = [
        f"{workload.name} on {number(run.choices.training.of(workload.name) * workload.sequence_length / 1e9)} billion"
        " tokens"
        for workload in run.workloads
    ]
    return f"{'; '.join(tokens)}; checkpoints and restarts not included"


def _prices(contents: Contents) -> str:
    """Return what a joule and an hour of hardware cost, in words."""
    cost = contents.result.run.space.technology.cost
    if cost is None:
        return "the technology table has none"
    return (
        f"electricity at {number(cost.electricity_usd_per_j * 3.6e6)} USD/kWh with a PUE of "
        f"{number(cost.power_usage_effectiveness)}; hardware written off over "
        f"{number(cost.service_life_s / (365.25 * 86400))} years"
    )


def header(contents: Contents) -> list[Html]:
    """Return what was run, and on what."""
    run, choices = contents.result.run, contents.result.run.choices
    names = ", ".join(workload.name for workload in run.workloads)
    workloads = [
        f"{workload.name}: {workload.model_name}, {count(workload.sequence_length, 'token')} per sequence, "
        f"{count(workload.global_batch, 'sequence')} per step, {workload.precision}, {workload.optimizer}"
        for workload in run.workloads
    ]
    hbm = "each architecture's own" if choices.hbm_bytes is None else ", ".join(map(gigabytes, choices.hbm_bytes))
    budgets = [
        f"{budget.name.replace('_', ' ')} at {'least' if budget.least else 'most'} {number(budget.limit)} {budget.unit}"
        for budget in contents.budgets
    ]
    objectives = [
        f"{axis.name} ({'more' if axis.maximise else 'less'} is better)"
        for axis in axes(run.objectives, several=len(workloads) > 1)
    ]
    return [
        element("h1", f"{names} on {choices.accelerators:,} accelerators of the space {run.space_name}"),
        element(
            "p",
            f"{count(contents.counts.architectures, 'architecture')} searched together with the placement of the job; ",
            f"{count(len(contents.front), 'design is', 'designs are')} on the Pareto front of "
            if len(run.objectives) > 1
            else f"{count(len(contents.front), 'design has', 'designs have')} the best ",
            f"{in_words(run.objectives)}.",
            class_="lead",
        ),
        element("p", contents.warning, class_="warning", role="alert") if contents.warning else Html(""),
        element("p", contents.note, class_="caveat"),
        element("p", contents.sureness, class_="caveat") if contents.sureness else Html(""),
        element("p", f"archplace {__version__}, inputs ", element("code", run.digest[:16]), class_="lead"),
        element(
            "details",
            element("summary", "What was run, with which inputs"),
            facts(
                ("Run", run.name),
                ("Workloads" if len(workloads) > 1 else "Workload", "; ".join(workloads)),
                ("Design space", f"{run.space_name} ({count(contents.counts.raw, 'raw combination')})"),
                ("Cluster", f"{run.cluster.name}, {count(run.cluster.size, 'device')}"),
                *axes_words(choices.axes),
                ("HBM capacities", hbm),
                ("Budgets", "; ".join(budgets) or "none"),
                ("Training", _training(contents)),
                ("Prices", _prices(contents)),
                ("Objectives", "; ".join(objectives)),
                ("Effort", f"{run.effort}: {contents.certainty}"),
                ("Solver and limits", contents.solver),
                ("archplace", __version__),
                ("Hash of all inputs", element("code", run.digest)),
            ),
            table(
                "Content hashes of the inputs (SHA-256)",
                ("input", "hash"),
                list(run.inputs.items()),
            ),
        ),
    ]


def explored_card(contents: Contents) -> Html:
    """Return counts by fate and reasons."""
    counts = contents.counts
    rows = [
        ("raw combinations", counts.raw, "of the space's parameters"),
        ("architectures", counts.architectures, "within the space's own area budget and constraints"),
        ("on the front", counts.front, "evaluated exactly; nothing in the space is better"),
        ("dominated", counts.dominated, "evaluated exactly; a design on the front is better"),
        (
            "pruned by their bound",
            counts.pruned,
            "not evaluated: a design on the front beats even the best that bounds allow; show DIR ID says which",
        ),
        *((f"– by {name}", number_, _BOUND_WORDS[name]) for name, number_ in counts.pruned_by.items()),
        ("infeasible", counts.infeasible, "no placement fits, or over a budget of the run"),
    ]
    if counts.undecided:
        rows.append(("no fate yet", counts.undecided, "the run is not finished"))
    shares = [
        (name, f"{value:,}", "" if name == "raw combinations" else percent(value / max(counts.architectures, 1)), text)
        for name, value, text in rows
    ]
    return card(
        "explored",
        "What was explored",
        "Front, dominated, pruned and infeasible add up to the architectures: each has exactly one fate.",
        table("Architectures by fate", ("fate", "count", "share", "meaning"), shares, numeric=(1, 2)),
        element(
            "p",
            f"{count(counts.designs_evaluated, 'design')} evaluated exactly, {counts.designs_on_front:,} on the front; "
            f"{contents.certainty}.",
        ),
        _options(counts.options),
        _references(contents),
        element("h3", "What was not explored"),
        element("p", counts.not_explored),
        element("h3", "Infeasible placement options"),
        _reasons(
            contents.option_reasons,
            "Placement options that no architecture of the space can use, by reason",
            "Every placement option fits in memory and suits the model.",
        ),
        element("h3", "Infeasible architectures"),
        _reasons(contents.architecture_reasons, "Architectures without a placement, by reason", "There are none."),
    )


def _options(options: Mapping[str, int]) -> Html | None:
    """Return architecture × workload × placement option by fate; None where they are not counted."""
    if not options:
        return None
    total = sum(options.values())
    rows = [
        (_FATE_WORDS[fate], f"{number_:,}", percent(number_ / max(total, 1)), _OPTION_WORDS[fate])
        for fate, number_ in options.items()
        if number_ or fate != "open"
    ]
    caption = f"Placement options by fate: {total:,} of architecture × workload × option"
    return table(caption, ("fate", "count", "share", "meaning"), rows, numeric=(1, 2))


def _references(contents: Contents) -> Html | None:
    """Return the best throughput of each of several workloads, to which others are relative."""
    outcome, workloads = contents.result.outcome, contents.result.run.workloads
    if not outcome.references_s:
        return None
    rows = [
        (workload.name, number(1 / seconds_))
        for workload, seconds_ in zip(workloads, outcome.references_s, strict=True)
    ]
    caption = "Best throughput of each workload in the space by itself: relative throughputs are relative to it"
    return table(caption, ("workload", "throughput (samples/s)"), rows, numeric=(1,))


def _reasons(groups: Sequence[ReasonGroup], caption: str, none: str) -> Html:
    if not groups:
        return empty(none)
    rows = []
    for group in groups:
        more = group.count - MOST_NAMED
        who = "; ".join(group.subjects[:MOST_NAMED]) + (f"; and {more:,} more" if more > 0 else "")
        rows.append((group.reason, f"{group.count:,}", who))
    return table(caption, ("reason", "count", "which"), rows, numeric=(1,))


def health_card(contents: Contents) -> Html:
    """Return the health checks."""
    findings = [
        element(
            "li",
            element("span", _LEVEL_WORDS[finding.level], class_=f"level {finding.level}"),
            element("p", element("b", finding.title), ". ", finding.text),
            class_="finding",
        )
        for finding in contents.findings
    ]
    return card(
        "health",
        "Health checks",
        "What to know before believing the front or repeating the search; the first entries deserve a look.",
        element("ul", findings, class_="findings"),
    )


def table_card(contents: Contents) -> Html:
    """Return the front as a table that can be sorted and filtered."""
    title = "All designs on the front"
    how = (
        "One row per design with every metric; a heading sorts, the box filters (all words must occur in a row), a "
        "design's number shows it beside the plot."
    )
    picked = {pick.point.id for pick in contents.picks}
    rows = [row for i, row in enumerate(contents.rows) if i < MOST_ROWS or row["id"] in picked]
    if not rows:
        return card("designs", title, how, empty("The front is empty: see the answer above."))
    columns = list(rows[0])
    same = [column for column in columns if len(rows) > 1 and len({row[column] for row in rows}) == 1]
    shown = [column for column in columns if column not in same]
    head = [
        element(
            "th",
            element("button", heading(column), type="button"),
            scope="col",
            aria_sort="none",
            class_="number" if _is_number(rows[0][column]) else None,
        )
        for column in shown
    ]
    body = []
    for row in rows:
        number_cell = element(
            "th",
            element("button", str(row["id"]), class_="point", type="button", data_select=str(row["id"])),
            scope="row",
            data_value=str(row["id"]),
        )
        cells = [
            element(
                "td",
                cell(column, row[column]),
                class_="number" if _is_number(row[column]) else None,
                data_value=_raw(row[column]),
            )
            for column in shown
            if column != "id"
        ]
        body.append(element("tr", number_cell, *cells, data_id=str(row["id"])))
    shared = [(heading(column), cell(column, rows[0][column])) for column in same]
    whole = element(
        "table",
        element(
            "caption",
            f"Designs on the front, in the order of {in_words(contents.result.outcome.objectives)}",
            "; throughput, energy and cost are geometric means over the workloads, unless a heading names one"
            if len(contents.result.run.workloads) > 1
            else "",
        ),
        element("thead", element("tr", head)),
        element("tbody", body),
    )
    return card(
        "designs",
        title,
        how,
        element("details", element("summary", f"{count(len(shared), 'metric')} the same for all"), facts(*shared))
        if shared
        else None,
        element(
            "div",
            element("label", "Filter", for_="filter"),
            element("input", type="search", id="filter", placeholder="such as: 128 recompute"),
            element("span", "", id="table-status", role="status", class_="lead"),
            class_="controls",
        ),
        element("div", whole, id="front-table", tabindex=0, role="region", aria_label="Designs on the Pareto front"),
        element(
            "p",
            f"The first {MOST_ROWS:,} and the picks. All {len(contents.rows):,}, with full precision and SI units: "
            if len(rows) < len(contents.rows)
            else "The same rows with full precision and SI units: ",
            element("code", "front.csv"),
            " and ",
            element("code", "front.json"),
            " beside this file.",
        ),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _raw(value: object) -> str | None:
    return repr(value) if _is_number(value) else None
