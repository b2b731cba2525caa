"""The front plot: two objectives against each other, with what lies behind the front."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from plotly import graph_objects as go

from archplace.arch_configs.architectures import FloatArray
from archplace.search.outcome import Evaluated, Fate, Outcome
from archplace.search.pareto import front_mask
from archplace.search.points import PointView, views
from archplace.search.report.colours import (
    AXIS,
    BLACK,
    BLUE,
    GREY,
    LAYOUT,
    LEGEND,
    LIGHT_GREY,
    ORANGE,
    SKY,
    VERMILLION,
    plain,
)
from archplace.search.report.objectives import Axis, plane, spans_decades
from archplace.search.report.picks import Pick, by_point
from archplace.search.run import RunResult
from archplace.search.wording import number

MOST_BOUNDS = 5000
"""Bounds drawn at most: every point is an element of the page, and a browser should stay quick."""
MOST_DOMINATED = 5000
"""Dominated designs drawn at most."""
_DIGITS = 5
"""Significant digits of coordinates: beyond what a screen resolves."""
_FROM_ZERO_SHARE = 0.5
"""Smallest value as a share of the largest below which a linear axis starts at zero."""
_NEAR_SHARE = 0.25
"""Distance of two labels, as a share of what is drawn, below which they could meet."""
_DEPTH, _DEPTH_STEP = 34, 22
"""Pixels from a point to its label, and from label to label where they are near each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Points of one kind, in order along the horizontal axis."""

    ids: tuple[int | str, ...] = ()
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    hover: tuple[str, ...] = ()
    """One line about each; empty where the coordinates say all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A label beside a point."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPlot:
    """What the front plot shows; coordinates are exact, only :func:`draw_front` rounds."""

    across: Axis
    up: Axis
    front: Points
    """Designs on the front of these two objectives."""
    others: Points
    """Designs on the front that are dominated in these two objectives: they are there for the others."""
    dominated: Points
    """Designs that were evaluated and are dominated: those that come closest to the front."""
    n_dominated: int
    bounds: Points
    """Architectures that were not evaluated, at their bound: those that come closest to the front."""
    n_pruned: int
    """How many architectures were pruned; ``bounds`` may hold fewer."""
    baseline: Points
    baseline_name: str
    marks: tuple[Mark, ...]
    log_x: bool
    log_y: bool


def describe(point: PointView) -> str:
    """Return a design in one line."""
    row = point.architecture()
    text = (
        f"{row['tensor_units']}×{row['tensor_rows']}×{row['tensor_cols']} tensor, "
        f"{row['vector_units']}×{row['vector_lanes']} vector, "
        f"{number(int(point.architectures.global_buffer_bytes[0]) / 2**20)} MiB buffer"
    )
    for found in point.point.results:
        text += (
            f"; {found.placement.strategy} recompute {found.placement.recompute_words} "
            f"HBM {number(found.option.hbm_bytes / 1e9)} GB"
        )
    return text


def prepare_front(
    result: RunResult, front: Sequence[PointView], baseline: PointView | None, picks: Sequence[Pick]
) -> FrontPlot:
    """Return what the plot of two or more objectives shows, in the plane that :func:`plane` gives.

    Axes are logarithmic where what was evaluated spans more than two decades.
    """
    outcome = result.outcome
    chosen = plane(outcome.objectives, several=len(result.run.workloads) > 1)
    assert chosen is not None, "a single objective has no plane"
    across, up = chosen
    columns = [outcome.objectives.names.index(axis.objective) for axis in chosen]
    values = np.array([point.point.values for point in front]).reshape(len(front), -1)[:, columns]
    foremost = front_mask(values)
    on_plane = _points([point for point, first in zip(front, foremost, strict=True) if first], across, up)
    others = _points([point for point, first in zip(front, foremost, strict=True) if not first], across, up)
    dominated = _points(views(result, closest_dominated(outcome)), across, up)
    star = _points([baseline] if baseline is not None else [], across, up)
    shown = (on_plane, others, dominated, star)
    return FrontPlot(
        across=across,
        up=up,
        front=on_plane,
        others=others,
        dominated=dominated,
        n_dominated=outcome.n_points - len(outcome.front),
        bounds=_closest_bounds(result, values[foremost], (across, up), columns),
        n_pruned=int((outcome.fate == Fate.PRUNED).sum()),
        baseline=star,
        baseline_name=baseline.label if baseline is not None else "",
        marks=tuple(
            Mark(text=", ".join(pick.name for pick in group), x=across.of(group[0].point), y=up.of(group[0].point))
            for group in by_point(picks)
        ),
        log_x=spans_decades([x for points in shown for x in points.x]),
        log_y=spans_decades([y for points in shown for y in points.y]),
    )


def _points(found: Sequence[PointView], across: Axis, up: Axis) -> Points:
    placed = [(across.of(point), up.of(point), str(point.id), point) for point in found]
    ordered = sorted((one for one in placed if np.isfinite(one[:2]).all()), key=lambda one: one[:3])
    return Points(
        ids=tuple(point.id for *_, point in ordered),
        x=tuple(x for x, *_ in ordered),
        y=tuple(y for _, y, *_ in ordered),
        hover=tuple(describe(point) for *_, point in ordered),
    )


def _closest_bounds(
    result: RunResult,
    front: FloatArray,
    axes: tuple[Axis, Axis],
    columns: list[int],
) -> Points:
    """Return the pruned architectures' bounds, at most :data:`MOST_BOUNDS`: those nearest behind the front's step.

    ``front`` (n, 2) are minimised values on the two axes.
    """
    outcome = result.outcome
    pruned = np.flatnonzero(outcome.fate == Fate.PRUNED)
    if len(pruned) == 0 or len(front) == 0:
        return Points()
    x, y = outcome.bound[pruned][:, columns].T
    kept = _closest(front, x, y, MOST_BOUNDS)
    shown_x, shown_y = (np.array(axis.shown(values[kept].tolist())) for axis, values in zip(axes, (x, y), strict=True))
    order = np.lexsort((pruned[kept], shown_y, shown_x))
    return Points(
        ids=tuple(pruned[kept][order].tolist()),
        x=tuple(shown_x[order].tolist()),
        y=tuple(shown_y[order].tolist()),
    )


def closest_dominated(outcome: Outcome) -> list[Evaluated]:
    """Return the dominated designs, at most :data:`MOST_DOMINATED`: those nearest behind the front.

    Behind its step in the plane of two objectives, or in the value of a single one.
    """
    dominated = outcome.dominated
    chosen = plane(outcome.objectives)
    if len(dominated) <= MOST_DOMINATED or not outcome.front:
        return dominated
    columns = [0, 0] if chosen is None else [outcome.objectives.names.index(axis.objective) for axis in chosen]
    front, behind = (np.array([point.values for point in some])[:, columns] for some in (outcome.front, dominated))
    return [dominated[i] for i in _closest(front, behind[:, 0], behind[:, 1], MOST_DOMINATED).tolist()]


def _closest(front: FloatArray, x: FloatArray, y: FloatArray, most: int) -> NDArray[np.intp]:
    """Return which points (n,) are nearest behind the step of ``front`` (m, 2): ``most`` of them, in their order."""
    steps = front[np.lexsort((front[:, 1], front[:, 0]))]
    best = np.minimum.accumulate(steps[:, 1])
    # Whatever dominates a point is no worse on the horizontal axis, so that every point has a step before it.
    step = best[np.maximum(np.searchsorted(steps[:, 0], x, side="right") - 1, 0)]
    return np.sort(np.argsort(-(step / y), kind="stable")[:most])


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def draw_front(data: FrontPlot) -> go.Figure:
    """Draw the front plot."""
    figure = go.Figure()
    shown_always = (data.front, data.others, data.dominated, data.baseline)
    if data.bounds.ids:
        shown = len(data.bounds.ids)
        label = f"not evaluated, at their bound ({_of(shown, data.n_pruned)})"
        marker = {"symbol": "circle-open", "size": 4, "color": LIGHT_GREY}
        figure.add_trace(_scatter(data, data.bounds, label, "bound", marker=marker, visible="legendonly"))
    if data.dominated.ids:
        label = f"evaluated, dominated ({_of(len(data.dominated.ids), data.n_dominated)})"
        marker = {"symbol": "circle", "size": 6, "color": GREY, "opacity": 0.35}
        figure.add_trace(_scatter(data, data.dominated, label, "dominated", marker=marker))
    if data.others.ids:
        label = f"on the front for other objectives ({len(data.others.ids):,})"
        marker = {"symbol": "circle-open", "size": 8, "color": SKY, "line": {"width": 1.5}}
        figure.add_trace(_scatter(data, data.others, label, "on the front", marker=marker))
    if data.front.ids:
        label = f"{'front of these two' if data.others.ids else 'Pareto front'} ({len(data.front.ids):,})"
        figure.add_trace(
            _scatter(
                data,
                data.front,
                label,
                "on the front",
                mode="lines+markers",
                # Between two designs the worse of them in one objective is what can be had of the other.
                line={"shape": "vh" if data.across.maximise else "hv", "color": BLUE, "width": 1.5},
                marker={"symbol": "circle", "size": 8, "color": BLUE},
            )
        )
    if data.baseline.ids:
        figure.add_trace(
            _scatter(
                data,
                data.baseline,
                f"baseline: {plain(data.baseline_name)}",
                "baseline",
                mode="markers+text",
                text=[plain(data.baseline_name)],
                textposition="bottom center",
                marker={"symbol": "star", "size": 16, "color": ORANGE, "line": {"color": BLACK, "width": 1}},
            )
        )
    figure.update_layout(
        **LAYOUT,
        height=520,
        margin={"l": 70, "r": 20, "t": 34, "b": 96},
        hovermode="closest",
        legend=LEGEND,
        xaxis=scale([x for points in shown_always for x in points.x], log=data.log_x),
        yaxis=scale([y for points in shown_always for y in points.y], log=data.log_y),
        annotations=[*_labels(data), _better(data)],
    )
    figure.update_xaxes(title_text=data.across.title)
    figure.update_yaxes(title_text=data.up.title)
    return figure


def _of(shown: int, total: int) -> str:
    return f"{shown:,}" if shown == total else f"{shown:,} of {total:,}, the closest"


def scale(values: Sequence[float], *, log: bool) -> dict[str, object]:
    """Return an axis: logarithmic with a line per decade, or linear, from zero where that wastes little of it."""
    if log:
        return {**AXIS, "type": "log", "dtick": 1}
    from_zero = min(values, default=0.0) < _FROM_ZERO_SHARE * max(values, default=0.0)
    return {**AXIS, "type": "linear", "rangemode": "tozero" if from_zero else "normal"}


def _scatter(
    data: FrontPlot, points: Points, name: str, kind: str, mode: str = "markers", **style: object
) -> go.Scatter:
    lines = points.hover or [""] * len(points.ids)
    return go.Scatter(
        x=_rounded(points.x),
        y=_rounded(points.y),
        customdata=list(points.ids),
        hovertext=[f"{kind} {identifier}<br>{plain(line)}" for identifier, line in zip(points.ids, lines, strict=True)],
        hovertemplate=(
            f"%{{hovertext}}<br>%{{x:,.4~g}} {data.across.unit}, %{{y:,.4~g}} {data.up.unit}<extra></extra>"
        ),
        name=name,
        mode=mode,
        **style,
    )


def _labels(data: FrontPlot) -> list[Mapping[str, object]]:
    """Return the picks' labels: the outermost one outside of its point, the others behind the front.

    A label hangs farther away than that of a near neighbour, whose line would cross it otherwise. With area across and
    throughput up, behind is right and below; an axis of the other direction mirrors that.
    """
    sideways, upright = (-1 if data.across.maximise else 1), (1 if data.up.maximise else -1)
    ordered = sorted(data.marks, key=lambda mark: mark.x, reverse=not data.across.maximise)
    places = [float(np.log10(mark.x)) if data.log_x else mark.x for mark in ordered]
    shown = [x for points in (data.front, data.others, data.dominated, data.baseline) for x in points.x]
    extent = [float(np.log10(x)) if data.log_x else x for x in shown]
    near = _NEAR_SHARE * (max(extent, default=0.0) - min(extent, default=0.0))
    labels: list[Mapping[str, object]] = []
    depth = _DEPTH
    for i, (mark, x) in enumerate(zip(ordered, places, strict=True)):
        outermost = i == 0 and len(ordered) > 1
        if i > 1:
            depth = depth + _DEPTH_STEP if abs(places[i - 1] - x) < near else _DEPTH
        labels.append(
            {
                "x": x,
                "y": float(np.log10(mark.y)) if data.log_y else mark.y,
                "text": plain(mark.text),
                "showarrow": True,
                "arrowhead": 0,
                "arrowwidth": 1,
                "arrowcolor": VERMILLION,
                "ax": sideways * (-20 if outermost else 24),
                "ay": upright * (-18 if outermost else depth),
                "xanchor": "right" if outermost == (sideways > 0) else "left",
                "font": {"color": VERMILLION, "size": 12},
            }
        )
    return labels


def _better(data: FrontPlot) -> Mapping[str, object]:
    """Return the arrow towards better designs; nothing can lie in that corner."""
    return {
        "xref": "paper",
        "yref": "paper",
        "x": 0.985 if data.across.maximise else 0.015,
        "y": 0.985 if data.up.maximise else 0.015,
        "ax": -46 if data.across.maximise else 46,
        "ay": 34 if data.up.maximise else -34,
        "text": "better",
        "showarrow": True,
        "arrowhead": 2,
        "arrowwidth": 1.5,
        "arrowcolor": GREY,
        "font": {"color": GREY},
    }
