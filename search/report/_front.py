"""The cards of the front: two objectives in a plane, more of them at once, or the best designs where there is one."""

from archplace.search.points import PointView, views
from archplace.search.report._card import card, empty, figure
from archplace.search.report._html import Html, element, table
from archplace.search.report.contents import Contents
from archplace.search.report.front_plot import FrontPlot, describe, draw_front, prepare_front
from archplace.search.report.many_plot import MOST_DRAWN, draw_matrix, draw_parallel, prepare_many
from archplace.search.report.objectives import Axis, axes, in_words
from archplace.search.wording import count, number, signed_percent

_RUNNERS_UP = 10
"""Dominated designs listed beside the best ones of a single objective."""


def front_card(contents: Contents) -> Html:
    """Return the front plot, or the table of a single objective, and the panel for a selected design."""
    title = "The front"
    objectives = contents.result.outcome.objectives
    details = element("div", element("p", "Select a design to see it here."), id="details", aria_live="polite")
    if not contents.front:
        return card("front", title, "The designs that none beats.", empty("The front is empty: see the answer above."))
    if len(objectives) == 1:
        how = (
            f"There is one objective, {in_words(objectives)}: the best designs, and the next best that were evaluated."
        )
        return card("front", title, how, _ranking(contents), details)
    data = prepare_front(contents.result, contents.front, contents.baseline, contents.picks)
    corner = f"{'Up' if data.up.maximise else 'Down'} and {'right' if data.across.maximise else 'left'} is better"
    certainty = contents.certainty
    how = (
        f"{corner}. {certainty[0].upper()}{certainty[1:]}. Hover a point for its design, click it for everything, and "
        "click an entry of the legend to hide or show it."
    )
    if data.others.ids:
        how += (
            f" Open circles are on the front for what this plane does not show: the objectives are "
            f"{in_words(objectives)}."
        )
    return card("front", title, how, figure("front-plot", draw_front(data), f"{_summary(contents, data)}.", details))


def _summary(contents: Contents, data: FrontPlot) -> str:
    across, up = data.across, data.up
    first, last = (min, max) if across.maximise is False else (max, min)
    ends = [choose(contents.front, key=across.of) for choose in (first, last)]
    text = (
        f"{across.name.capitalize()} against {up.name}: {count(len(contents.front), 'design')} on the front, from "
        f"{' to '.join(f'{across.text(across.of(end))} with {up.text(up.of(end))}' for end in ends)}"
    )
    base = contents.baseline
    if base is None:
        return text
    beaten = sum(_no_worse(point, base, across) and _no_worse(point, base, up) for point in contents.front)
    many = count(beaten, "design equals or beats", "designs equal or beat") if beaten else "no design equals or beats"
    theirs = f"{up.text(up.of(base))} and {across.text(across.of(base))}"
    return f"{text}; the baseline {base.label} has {theirs}, and {many} it in both"


def _no_worse(point: PointView, other: PointView, axis: Axis) -> bool:
    return axis.of(point) >= axis.of(other) if axis.maximise else axis.of(point) <= axis.of(other)


def _ranking(contents: Contents) -> Html:
    """Return the best designs of a single objective, then the best of those that they dominate, then the baseline."""
    outcome = contents.result.outcome
    (axis,) = axes(outcome.objectives, several=len(contents.result.run.workloads) > 1)
    beaten = sorted(outcome.dominated, key=lambda point: (point.values, point.architecture, point.number))
    shown = [*contents.front, *views(contents.result, beaten[:_RUNNERS_UP])]
    if contents.baseline is not None:
        shown.append(contents.baseline)
    best = axis.of(contents.front[0])
    rows = [
        (
            _button(point),
            number(axis.of(point), 5),
            signed_percent(axis.of(point) / best - 1),
            number(point.samples_per_s),
            number(point.area_mm2),
            describe(point),
        )
        for point in shown
    ]
    heads = (
        "design",
        axis.title,
        "difference to the best",
        "throughput (samples/s)",
        "area (mm²)",
        "design and placement",
    )
    caption = (
        f"{count(len(contents.front), 'best design')}, the next {min(_RUNNERS_UP, len(beaten))} of "
        f"{count(len(beaten), 'evaluated design')}{', and the baseline' if contents.baseline is not None else ''}"
    )
    return table(caption, heads, rows, numeric=range(1, 5))


def _button(point: PointView) -> Html:
    label = point.label if point.is_baseline else str(point.id)
    return element("button", label, class_="point", type="button", data_select=point.id)


def objectives_card(contents: Contents) -> Html | None:
    """Return every pair of more than two objectives, and all of them at once; None where there are fewer."""
    objectives = contents.result.outcome.objectives
    if len(objectives) <= 2:
        return None
    title = "All objectives"
    how = (
        "In the lines each design crosses every objective's axis, the best on top; a baseline beyond the front is "
        "just outside. Lines that cross between two axes show objectives that trade against each other. The panels "
        "show each pair; a click chooses a design."
    )
    if not contents.front:
        return card("objectives", title, how, empty("The front is empty: see the answer above."))
    data = prepare_many(contents.result, contents.front, contents.baseline, contents.picks)
    some = (
        f", of which {MOST_DRAWN:,} and the picks are drawn" if len(data.front) < data.n_front - len(data.picks) else ""
    )
    ranges = "; ".join(
        f"{axis.name} {number(min(values))} to {number(max(values))} {axis.unit}"
        for axis, values in ((axis, [axis.of(point) for point in contents.front]) for axis in data.axes)
    )
    summary = f"{count(data.n_front, 'design')} on the front{some}: {ranges}."
    return card(
        "objectives",
        title,
        how,
        figure("parallel-plot", draw_parallel(data), summary),
        figure(
            "matrix-plot", draw_matrix(data), "Every pair of objectives; filled points are on the front of the pair."
        ),
    )
