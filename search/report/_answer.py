"""The cards that answer: the picks, and why they are as they are."""

from collections.abc import Sequence

from archplace.arch_configs.area import price_accelerator_area, working_area_mm2
from archplace.search.explain import PARTS
from archplace.search.intervals import intervals_of
from archplace.search.metrics import ENERGY_PARTS
from archplace.search.objectives import Objective
from archplace.search.points import PointView
from archplace.search.report._card import card, command, empty, facts, figure
from archplace.search.report._format import cell, heading
from archplace.search.report._html import Html, element, table
from archplace.search.report.area_plot import draw_area, prepare_area
from archplace.search.report.contents import Contents
from archplace.search.report.front_plot import describe
from archplace.search.report.picks import Pick, by_point, difference
from archplace.search.report.why_plot import WhyPlot, draw_energy, draw_memory, draw_step, labelled_points, prepare_why
from archplace.search.wording import count, gigabytes, number, percent, seconds, signed_percent

_COMPARED = {
    "throughput": "throughput",
    "area": "area",
    "throughput_per_area": "throughput per mm²",
    "throughput_per_watt": "throughput per watt",
    "samples_per_dollar": "samples per dollar",
    "peak_power": "peak power",
}
"""What a pick is compared in with the baseline: key of the difference, and its name."""

_PRICES = {
    "Energy": (("energy_j_per_sample", "J/sample"),),
    "Power": (("peak_power_w", "W peak"), ("mean_power_w", "W mean with host")),
    "Cost": (("accelerator_usd", "USD each"), ("cost_usd_per_sample", "USD/sample")),
}
"""Figures that a technology table with the numbers adds: columns with their units, by name."""
_WHOLE = {"run_usd": " USD", "run_s": " days", "run_j": " MWh"}
"""Figures of the whole training, where the run says how much is trained."""


def answer_card(contents: Contents) -> Html:
    """Return the picks as cards."""
    title = "The answer"
    how = (
        "Each box is a design on the front that stands out for the reason given; ± compares it with the baseline chip "
        "under the same workload, cluster and placement options, but with the HBM that chip has."
    )
    if not contents.picks:
        return card("answer", title, how, empty(nothing_feasible(contents)))
    boxes = [element("li", _pick(group, contents), class_="pick") for group in by_point(contents.picks)]
    note: Html | None = None
    if contents.baseline is None:
        note = empty(f"No comparison: {contents.baseline_missing}")
    else:
        base = contents.baseline
        note = element(
            "p",
            f"Baseline {base.label}: {number(base.samples_per_s)} samples/s on {number(base.area_mm2)} mm²"
            f"{_die(contents)}{''.join(f', {text}' for _, text in _prices(base))} by the same models: "
            f"{describe(base)}. ",
            command("show DIR baseline"),
        )
    return card("answer", title, how, note, element("ul", boxes, class_="picks"))


def _die(contents: Contents) -> str:
    """Return what the baseline's die carries beside its working parts, which alone are compared, in words."""
    run = contents.result.run
    if run.baseline is None:
        return ""
    whole = price_accelerator_area(run.baseline, run.space.technology)
    if whole <= working_area_mm2(run.baseline, run.space.technology) * (1 + 1e-9):
        return " of working parts"
    return f" of working parts ({number(whole)} mm² with all that its die carries, which the designs have none of)"


def nothing_feasible(contents: Contents) -> str:
    """Return why the front is empty."""
    groups = [*contents.option_reasons, *contents.architecture_reasons]
    largest = max(groups, key=lambda group: group.count, default=None)
    total = count(contents.counts.architectures, "architecture")
    if contents.result.partial:
        return "Nothing has been evaluated yet: the run is not finished."
    text = f"Nothing is feasible: none of {total} meets memory and budgets."
    if largest is not None:
        text += f" The most frequent reason ({largest.count:,} times): {largest.reason}."
    return text


def _pick(group: Sequence[Pick], contents: Contents) -> list[Html | None]:
    point, baseline = group[0].point, contents.baseline
    compared: Html | None = None
    if baseline is not None:
        more = difference(point, baseline)
        compared = element(
            "div",
            [
                element("div", signed_percent(more[key]), element("small", name))
                for key, name in _COMPARED.items()
                if key in more
            ],
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
            *_prices(point),
            ("Expected", _expected(point)),
            ("Ties", _ties(point, contents)),
            ("Schedules", "proven optimal" if point.proven else "not all proven optimal"),
        ),
        command(f"show DIR {point.id}"),
    ]


def _expected(point: PointView) -> str:
    """Return the bounds between which a measured throughput is expected."""
    low, high = intervals_of(point)[Objective.THROUGHPUT].of(point.samples_per_s)
    return f"{number(low, 3)} to {number(high, 3)} samples/s when measured"


def _ties(point: PointView, contents: Contents) -> str:
    """Return how many designs the model cannot tell from one of the front, and the smallest of them."""
    front = contents.front
    tied = contents.ties[[other.id for other in front].index(point.id)]
    if not tied:
        return "none"
    smallest = min(tied, key=lambda index: front[index].area_mm2)
    text = f"{len(tied)} of the front, from {number(front[smallest].area_mm2)} mm²"
    return f"{text} (design {front[smallest].id})" if len(tied) > 1 else f"design {front[smallest].id}"


def _prices(point: PointView) -> list[tuple[str, str]]:
    """Return energy, power, cost and relative throughput in words, as far as they are known."""
    row, found = point.headline(), []
    for name, parts in _PRICES.items():
        known = [(row.get(column), unit) for column, unit in parts]
        texts = [f"{number(value, 3)} {unit}" for value, unit in known if isinstance(value, float)]
        if texts:
            found.append((name, ", ".join(texts)))
    whole = [cell(column, row[column]) + unit for column, unit in _WHOLE.items() if column in row]
    if whole:
        found.append(("Training", f"{', '.join(whole)} for all of it"))
    relative, worst = point.metrics.relative_throughput, point.metrics.worst_relative_throughput
    if relative is not None and worst is not None:
        found.append(("Relative", f"{percent(relative)} of each workload's best on average, {percent(worst)} at worst"))
    return found


def _placement(point: PointView, workload: int) -> str:
    found = point.point.results[workload]
    return (
        f"{found.placement.strategy}, recompute {found.placement.recompute_words}, "
        f"{gigabytes(found.option.hbm_bytes)} HBM, step {seconds(found.placement.step_s)}"
    )


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
    data, areas = prepare_why(points), prepare_area(points)
    energy = any(bar.energy_j is not None for bar in data.bars)
    numbers = table(
        "Seconds of a step by part, and bytes per device of the fullest stage",
        ("design", "step (s)", *(f"{part} (s)" for part in PARTS), "weights (GB)", "gradients (GB)", "optimizer (GB)",
         "activations (GB)", "HBM (GB)", *(f"{part} (J/sample)" for part in ENERGY_PARTS if energy)),
        [
            (
                bar.label,
                *(number(value) for value in (bar.step_s, *bar.parts_s)),
                *(number(value / 1e9) for value in (*bar.memory_bytes, bar.capacity_bytes)),
                *(number(value) for value in bar.energy_j or (float("nan"),) * len(ENERGY_PARTS) if energy),
            )
            for bar in data.bars
        ],
        numeric=range(1, len(PARTS) + 7 + len(ENERGY_PARTS) * energy),
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
            "Memory of each device of the fullest pipeline stage, activations with buffers and reserve; the bar across "
            "is the HBM capacity of the placement.",
        ),
        *_energy(data),
        element("h3", "Area of the chip"),
        figure(
            "area-plot",
            draw_area(areas),
            "Area of one accelerator by component, by the space's technology "
            "table; overhead is routing, clocks, test and white space.",
        ),
        element("details", element("summary", "The numbers behind the figures"), numbers, _areas(points)),
    )


def _areas(points: Sequence[tuple[str, PointView]]) -> Html:
    """Return the areas that the figure shows as a table."""
    parts = list(points[0][1].area_parts_mm2)
    return table(
        "Area of one accelerator by component",
        ("design", *(heading(f"area_{part}_mm2") for part in parts), "sum (mm²)"),
        [
            (label, *(number(point.area_parts_mm2[part]) for part in parts), number(point.area_mm2))
            for label, point in points
        ],
        numeric=range(1, len(parts) + 2),
    )


def _energy(data: WhyPlot) -> list[Html]:
    """Return where the energy goes, unless no design's is known."""
    if all(bar.energy_j is None for bar in data.bars):
        return []
    summary = "Joules of one sample by component, on all accelerators: static power and hosts draw theirs all the time."
    return [element("h3", "Energy of a sample"), figure("energy-plot", draw_energy(data), summary)]
