"""The cards that answer: the picks, the front, why the picks are as they are."""

from collections.abc import Sequence

from archplace.search.explain import PARTS
from archplace.search.report._card import card, command, empty, facts, figure
from archplace.search.report._format import count, gigabytes, number, percent, seconds, signed_percent
from archplace.search.report._html import Html, element, table
from archplace.search.report.contents import Contents
from archplace.search.report.front_plot import describe, draw_front, prepare_front
from archplace.search.report.picks import Pick, by_point, difference
from archplace.search.report.why_plot import draw_memory, draw_step, labelled_points, prepare_why
from archplace.search.tables import PointView


def answer_card(contents: Contents) -> Html:
    """Return the picks as cards."""
    title = "The answer"
    how = (
        "Each box is a design on the front that stands out for the reason given; ± compares it with the baseline chip "
        "under the same workload, cluster and placement options, but with the HBM that chip has."
    )
    if not contents.picks:
        return card("answer", title, how, empty(nothing_feasible(contents)))
    boxes = [element("li", _pick(group, contents.baseline), class_="pick") for group in by_point(contents.picks)]
    note: Html | None = None
    if contents.baseline is None:
        note = empty(f"No comparison: {contents.baseline_missing}")
    else:
        base = contents.baseline
        note = element(
            "p",
            f"Baseline {base.label}: {number(base.samples_per_s)} samples/s on {number(base.area_mm2)} mm² by the same "
            f"models: {describe(base)}. ",
            command("show DIR baseline"),
        )
    return card("answer", title, how, note, element("ul", boxes, class_="picks"))


def nothing_feasible(contents: Contents) -> str:
    """Return why the front is empty."""
    groups = [*contents.option_reasons, *contents.architecture_reasons]
    largest = max(groups, key=lambda group: group.count, default=None)
    total = count(contents.counts.architectures, "architecture")
    text = f"Nothing is feasible: none of {total} meets memory and budgets."
    if largest is not None:
        text += f" The most frequent reason ({largest.count:,} times): {largest.reason}."
    return text


def _pick(group: Sequence[Pick], baseline: PointView | None) -> list[Html | None]:
    point = group[0].point
    compared: Html | None = None
    if baseline is not None:
        more = difference(point, baseline)
        values = [
            ("throughput", more.throughput),
            ("area", more.area),
            ("throughput per mm²", more.throughput_per_area),
        ]
        compared = element(
            "div",
            [element("div", signed_percent(value), element("small", name)) for name, value in values],
            class_="differences",
            role="group",
            aria_label=f"Compared with {baseline.label}",
        )
    workloads = point.result.run.workloads
    placements = [
        (workload.name if len(workloads) > 1 else "Placement", _placement(point, i), why.mfu, why.bottleneck)
        for i, (workload, why) in enumerate(zip(workloads, point.explanations, strict=True))
    ]
    return [
        element("h3", ", ".join(pick.name for pick in group)),
        element("ul", [element("li", f"{pick.why[0].upper()}{pick.why[1:]}.") for pick in group], class_="why"),
        element(
            "p",
            number(point.samples_per_s),
            element("small", " samples/s on "),
            number(point.area_mm2),
            element("small", " mm²"),
            class_="big",
        ),
        compared,
        facts(
            ("Design", element("button", str(point.id), class_="point", type="button", data_select=point.id)),
            ("Hardware", describe(point).split(";")[0]),
            *(
                fact
                for name, placement, mfu, bottleneck in placements
                for fact in ((name, placement), ("MFU", percent(mfu)), ("Bottleneck", bottleneck))
            ),
            ("Schedules", "proven optimal" if point.proven else "not all proven optimal"),
        ),
        command(f"show DIR {point.id}"),
    ]


def _placement(point: PointView, workload: int) -> str:
    found = point.point.results[workload]
    degrees = found.placement.degrees
    return (
        f"tensor {found.option.tensor_parallel} × data {degrees.replicas} × pipeline {degrees.stages}, microbatch "
        f"{found.option.microbatch}, {'recompute' if found.option.recompute else 'no recompute'}, "
        f"{gigabytes(found.option.hbm_bytes)} HBM, step {seconds(found.placement.step_s)}"
    )


def front_card(contents: Contents) -> Html:
    """Return the front plot and the panel for a selected design."""
    title = "The front"
    proven = (
        "No design of the whole space lies above the line"
        if all(point.proven for point in contents.result.outcome.front)
        else "No design is known above the line; where a schedule is not proven optimal, one could be by its gap"
    )
    how = (
        f"Up and left is better. {proven}; hover a point for its design, click it for everything, and click an entry "
        f"of the legend to hide or show it."
    )
    if not contents.front:
        return card("front", title, how, empty("The front is empty: see the answer above."))
    data = prepare_front(contents.result, contents.front, contents.baseline, contents.picks)
    fastest, smallest = contents.front[0], min(contents.front, key=lambda point: point.area_mm2)
    summary = (
        f"Area against throughput: {count(len(contents.front), 'design')} on the front, from "
        f"{number(smallest.area_mm2)} mm² with {number(smallest.samples_per_s)} samples/s to "
        f"{number(fastest.area_mm2)} mm² with {number(fastest.samples_per_s)} samples/s"
    )
    if contents.baseline is not None:
        base = contents.baseline
        beaten = sum(
            point.area_mm2 <= base.area_mm2 and point.samples_per_s >= base.samples_per_s for point in contents.front
        )
        summary += (
            f"; the baseline {base.label} has {number(base.samples_per_s)} samples/s on {number(base.area_mm2)} mm², "
            f"and {count(beaten, 'design is', 'designs are') if beaten else 'no design is'} no larger and no slower"
        )
    details = element("div", element("p", "Select a design to see it here."), id="details", aria_live="polite")
    return card("front", title, how, figure("front-plot", draw_front(data), f"{summary}.", details))


def why_card(contents: Contents) -> Html:
    """Return where time and memory of the picks and the baseline go."""
    title = "Why these designs"
    how = (
        "The longest colour is what to improve next: faster units help only a bar that is mostly compute, more HBM "
        "bandwidth only one that is mostly HBM."
    )
    points = labelled_points(contents.picks, contents.baseline)
    if not points:
        return card("why", title, how, empty("There is no feasible design to explain."))
    data = prepare_why(points)
    numbers = table(
        "Seconds of a step by part, and bytes per device of the fullest stage",
        ("design", "step (s)", *(f"{part} (s)" for part in PARTS), "weights (GB)", "gradients (GB)", "optimizer (GB)",
         "activations (GB)", "HBM (GB)"),
        [
            (
                bar.label,
                *(number(value) for value in (bar.step_s, *bar.parts_s)),
                *(number(value / 1e9) for value in (*bar.memory_bytes, bar.capacity_bytes)),
            )
            for bar in data.bars
        ],
        numeric=range(1, len(PARTS) + 7),
    )  # fmt: skip
    return card(
        "why",
        title,
        how,
        element("ul", [element("li", element("b", bar.label), ": ", bar.sentence) for bar in data.bars]),
        element("h3", "Time of a step"),
        figure("step-plot", draw_step(data), "Seconds of one training step by what the slowest stage waits for."),
        element("h3", "Memory"),
        figure(
            "memory-plot",
            draw_memory(data),
            "Memory of each device of the fullest pipeline stage; the bar across is the HBM capacity of the placement.",
        ),
        element("details", element("summary", "The numbers behind both figures"), numbers),
    )
