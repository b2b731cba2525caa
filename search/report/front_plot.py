"""The front plot: area against throughput, with what lies below the front."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from plotly import graph_objects as go

from archplace.search.outcome import Fate
from archplace.search.report._format import number
from archplace.search.report.colours import (
    AXIS,
    BLACK,
    BLUE,
    GREY,
    LAYOUT,
    LEGEND,
    LIGHT_GREY,
    ORANGE,
    VERMILLION,
    plain,
)
from archplace.search.report.picks import Pick, by_point
from archplace.search.run import RunResult
from archplace.search.tables import PointView, view

MOST_BOUNDS = 5000
"""Bounds drawn at most: every point is an element of the page, and a browser should stay quick."""
_DIGITS = 5
"""Significant digits of coordinates: beyond what a screen resolves."""
_TWO_DECADES = 100.0
_FROM_ZERO_SHARE = 0.5
"""Smallest value as a share of the largest below which a linear axis starts at zero."""
_NEAR_SHARE = 0.25
"""Distance of two labels, as a share of all labels' extent, below which they could meet."""
_DEPTH, _DEPTH_STEP = 34, 22
"""Pixels from a point down to its label, and from label to label where they are near each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Points of one kind, in order of area."""

    ids: tuple[int | str, ...] = ()
    area_mm2: tuple[float, ...] = ()
    samples_per_s: tuple[float, ...] = ()
    hover: tuple[str, ...] = ()
    """One line about each; empty where the coordinates say all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A label beside a point."""

    text: str
    area_mm2: float
    samples_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPlot:
    """What the front plot shows; coordinates are exact, only :func:`draw_front` rounds."""

    front: Points
    dominated: Points
    bounds: Points
    """Architectures that were not evaluated, at their bound: those that come closest to the front."""
    n_pruned: int
    """How many architectures were pruned; ``bounds`` may hold fewer."""
    baseline: Points
    baseline_name: str
    marks: tuple[Mark, ...]
    log_area: bool
    log_throughput: bool
    throughput_title: str


def describe(point: PointView) -> str:
    """Return a design in one line."""
    row = point.architecture()
    text = (
        f"{row['tensor_units']}×{row['tensor_rows']}×{row['tensor_cols']} tensor, "
        f"{row['vector_units']}×{row['vector_lanes']} vector, "
        f"{number(int(point.architectures.global_buffer_bytes[0]) / 2**20)} MiB buffer"
    )
    for found in point.point.results:
        degrees = found.placement.degrees
        text += (
            f"; t={found.option.tensor_parallel} d={degrees.replicas} p={degrees.stages} "
            f"microbatch {found.option.microbatch}{' recompute' if found.option.recompute else ''} "
            f"HBM {number(found.option.hbm_bytes / 1e9)} GB"
        )
    return text


def prepare_front(
    result: RunResult, front: Sequence[PointView], baseline: PointView | None, picks: Sequence[Pick]
) -> FrontPlot:
    """Return what the plot shows; axes are logarithmic where what was evaluated spans more than two decades."""
    outcome = result.outcome
    beaten = [view(result, point) for point in outcome.dominated]
    front_points, dominated = _points(front), _points(beaten)
    star = _points([baseline] if baseline is not None and np.isfinite(baseline.area_mm2) else [])
    areas = front_points.area_mm2 + dominated.area_mm2 + star.area_mm2
    speeds = front_points.samples_per_s + dominated.samples_per_s + star.samples_per_s
    several = len(result.run.workloads) > 1
    return FrontPlot(
        front=front_points,
        dominated=dominated,
        bounds=_closest_bounds(result, front_points),
        n_pruned=int((outcome.fate == Fate.PRUNED).sum()),
        baseline=star,
        baseline_name=baseline.label if baseline is not None else "",
        marks=tuple(
            Mark(
                text=", ".join(pick.name for pick in group),
                area_mm2=group[0].point.area_mm2,
                samples_per_s=group[0].point.samples_per_s,
            )
            for group in by_point(picks)
        ),
        log_area=_spans(areas),
        log_throughput=_spans(speeds),
        throughput_title="throughput, geometric mean (samples/s)" if several else "throughput (samples/s)",
    )


def _points(views: Sequence[PointView]) -> Points:
    ordered = sorted(views, key=lambda point: (point.area_mm2, point.samples_per_s, str(point.id)))
    return Points(
        ids=tuple(point.id for point in ordered),
        area_mm2=tuple(point.area_mm2 for point in ordered),
        samples_per_s=tuple(point.samples_per_s for point in ordered),
        hover=tuple(describe(point) for point in ordered),
    )


def _closest_bounds(result: RunResult, front: Points) -> Points:
    """Return the pruned architectures' bounds, at most :data:`MOST_BOUNDS`: those nearest below the front's step."""
    outcome = result.outcome
    pruned = np.flatnonzero(outcome.fate == Fate.PRUNED)
    if len(pruned) == 0 or not front.ids:
        return Points()
    area, speed = result.architectures.area_mm2[pruned], 1 / outcome.bound[pruned, 0]
    # Whatever dominates a bound has no more area, so that every bound has a step of the front at its left.
    best = np.maximum.accumulate(np.array(front.samples_per_s))
    step = best[np.maximum(np.searchsorted(front.area_mm2, area, side="right") - 1, 0)]
    kept = np.sort(np.argsort(-(speed / step), kind="stable")[:MOST_BOUNDS])
    kept = kept[np.lexsort((pruned[kept], speed[kept], area[kept]))]
    return Points(
        ids=tuple(pruned[kept].tolist()),
        area_mm2=tuple(area[kept].tolist()),
        samples_per_s=tuple(speed[kept].tolist()),
    )


def _spans(values: Sequence[float]) -> bool:
    positive = [value for value in values if value > 0]
    return len(positive) > 1 and max(positive) / min(positive) > _TWO_DECADES


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def draw_front(data: FrontPlot) -> go.Figure:
    """Draw the front plot."""
    figure = go.Figure()
    shown_always = (data.front, data.dominated, data.baseline)
    areas = [area for points in shown_always for area in points.area_mm2]
    speeds = [speed for points in shown_always for speed in points.samples_per_s]
    if data.bounds.ids:
        shown = len(data.bounds.ids)
        label = f"not evaluated, at their bound ({shown:,}"
        label += ")" if shown == data.n_pruned else f" of {data.n_pruned:,}, the closest)"
        figure.add_trace(
            _scatter(
                data.bounds,
                label,
                "bound",
                marker={"symbol": "circle-open", "size": 4, "color": LIGHT_GREY},
                visible="legendonly",
            )
        )
    if data.dominated.ids:
        figure.add_trace(
            _scatter(
                data.dominated,
                f"evaluated, dominated ({len(data.dominated.ids):,})",
                "dominated",
                marker={"symbol": "circle", "size": 6, "color": GREY, "opacity": 0.35},
            )
        )
    if data.front.ids:
        figure.add_trace(
            _scatter(
                data.front,
                f"Pareto front ({len(data.front.ids):,})",
                "on the front",
                mode="lines+markers",
                line={"shape": "hv", "color": BLUE, "width": 1.5},
                marker={"symbol": "circle", "size": 8, "color": BLUE},
            )
        )
    if data.baseline.ids:
        figure.add_trace(
            _scatter(
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
        xaxis=_axis(areas, log=data.log_area),
        yaxis=_axis(speeds, log=data.log_throughput),
        annotations=[*_labels(data), _better()],
    )
    figure.update_xaxes(title_text="area (mm²)")
    figure.update_yaxes(title_text=data.throughput_title)
    return figure


def _axis(values: Sequence[float], *, log: bool) -> dict[str, object]:
    """Return an axis: logarithmic with a line per decade, or linear, from zero where that wastes little of it."""
    if log:
        return {**AXIS, "type": "log", "dtick": 1}
    from_zero = min(values, default=0.0) < _FROM_ZERO_SHARE * max(values, default=0.0)
    return {**AXIS, "type": "linear", "rangemode": "tozero" if from_zero else "normal"}


def _scatter(points: Points, name: str, kind: str, mode: str = "markers", **style: object) -> go.Scatter:
    lines = points.hover or [""] * len(points.ids)
    return go.Scatter(
        x=_rounded(points.area_mm2),
        y=_rounded(points.samples_per_s),
        customdata=list(points.ids),
        hovertext=[f"{kind} {identifier}<br>{plain(line)}" for identifier, line in zip(points.ids, lines, strict=True)],
        hovertemplate="%{hovertext}<br>%{x:,.4~g} mm², %{y:,.4~g} samples/s<extra></extra>",
        name=name,
        mode=mode,
        **style,
    )


def _labels(data: FrontPlot) -> list[Mapping[str, object]]:
    """Return the picks' labels: the last one above its point, the others below and right of theirs.

    A label hangs lower than that of a near neighbour at its right, whose line would cross it otherwise.
    """
    ordered = sorted(data.marks, key=lambda mark: mark.area_mm2, reverse=True)
    places = [float(np.log10(mark.area_mm2)) if data.log_area else mark.area_mm2 for mark in ordered]
    near = _NEAR_SHARE * (max(places, default=0.0) - min(places, default=0.0))
    labels: list[Mapping[str, object]] = []
    depth = _DEPTH
    for i, (mark, x) in enumerate(zip(ordered, places, strict=True)):
        above = i == 0 and len(ordered) > 1
        if i > 1:
            depth = depth + _DEPTH_STEP if places[i - 1] - x < near else _DEPTH
        labels.append(
            {
                "x": x,
                "y": float(np.log10(mark.samples_per_s)) if data.log_throughput else mark.samples_per_s,
                "text": plain(mark.text),
                "showarrow": True,
                "arrowhead": 0,
                "arrowwidth": 1,
                "arrowcolor": VERMILLION,
                "ax": -20 if above else 24,
                "ay": -18 if above else depth,
                "xanchor": "right" if above else "left",
                "font": {"color": VERMILLION, "size": 12},
            }
        )
    return labels


def _better() -> Mapping[str, object]:
    """Return the arrow towards better designs; nothing can lie in that corner."""
    return {
        "xref": "paper",
        "yref": "paper",
        "x": 0.015,
        "y": 0.985,
        "ax": 46,
        "ay": 34,
        "text": "better",
        "showarrow": True,
        "arrowhead": 2,
        "arrowwidth": 1.5,
        "arrowcolor": GREY,
        "font": {"color": GREY},
    }
