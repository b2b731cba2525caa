"""Fronts of more than two objectives: every pair of them in a scatter matrix, all at once in parallel coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from plotly import graph_objects as go
from plotly.subplots import make_subplots

from archplace.search.pareto import front_mask
from archplace.search.points import PointView
from archplace.search.report.colours import (
    AXIS,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LAYOUT,
    LEGEND,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    legend_room,
    plain,
)
from archplace.search.report.objectives import Axis, axes, spans_decades
from archplace.search.report.picks import Pick, by_point
from archplace.search.run import RunResult
from archplace.search.wording import number

MOST_DRAWN = 600
"""Designs drawn at most: each is an element of every panel."""
_PICK_COLOURS = (VERMILLION, GREEN, PURPLE, ORANGE, BLACK, SKY)
_DASHES = ("solid", "dash", "dot")
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_PANEL = 190
_BEYOND = 0.08
"""Share of an upright axis beyond its ends that a baseline may reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One design: its values on all axes."""

    id: int | str
    values: tuple[float, ...]
    """In the units of the axes."""
    name: str = ""
    """Why it stands out; empty where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyPlot:
    """What both figures show."""

    axes: tuple[Axis, ...]
    log: tuple[bool, ...]
    """By axis: logarithmic where the front's values span more than two decades."""
    front: tuple[Line, ...]
    """At most :data:`MOST_DRAWN` designs of the front that are no picks, evenly taken in its order."""
    n_front: int
    """How many designs there are on the front."""
    picks: tuple[Line, ...]
    baseline: Line | None
    on_pair: Mapping[tuple[int, int], frozenset[int | str]]
    """By pair of axes which designs are on the front of these two alone."""

    def share(self, axis: int, value: float) -> float:
        """Return where a value lies between the worst (0) and the best (1) of the front on an axis.

        A baseline may lie beyond: a little of that is kept, so that one far away does not squeeze the front.
        """
        low, high = self._ends(axis)
        if self.log[axis]:
            value, low, high = float(np.log10(value)), float(np.log10(low)), float(np.log10(high))
        part = 0.5 if high == low else (value - low) / (high - low)
        share = part if self.axes[axis].maximise else 1 - part
        return min(max(share, -_BEYOND), 1 + _BEYOND)

    def at(self, axis: int, share: float) -> float:
        """Return the value at a share, the inverse of :meth:`share`."""
        low, high = self._ends(axis)
        part = share if self.axes[axis].maximise else 1 - share
        if self.log[axis]:
            return float(low * (high / low) ** part)
        return low + part * (high - low)

    def _ends(self, axis: int) -> tuple[float, float]:
        values = [line.values[axis] for line in (*self.front, *self.picks)]
        return min(values), max(values)


def prepare_many(
    result: RunResult, front: Sequence[PointView], baseline: PointView | None, picks: Sequence[Pick]
) -> ManyPlot:
    """Return what the figures show of a front of more than two objectives, which must not be empty."""
    outcome = result.outcome
    shown = axes(outcome.objectives, several=len(result.run.workloads) > 1)
    picked = {group[0].point.id: ", ".join(pick.name for pick in group) for group in by_point(picks)}

    def line(point: PointView, name: str = "") -> Line:
        return Line(id=point.id, values=tuple(axis.of(point) for axis in shown), name=name)

    star = None if baseline is None else line(baseline, f"{baseline.label} (baseline)")
    if star is not None and not np.isfinite(star.values).all():
        star = None
    plain_ones = [point for point in front if point.id not in picked]
    some = np.unique(np.linspace(0, len(plain_ones) - 1, min(MOST_DRAWN, len(plain_ones))).round().astype(int))
    marked = tuple(line(point, f"{picked[point.id]} ({point.id})") for point in front if point.id in picked)
    drawn = tuple(line(plain_ones[i]) for i in some.tolist())
    values = np.array([point.point.values for point in front])
    on_pair = {
        (i, j): frozenset(front[k].id for k in np.flatnonzero(front_mask(values[:, [i, j]])).tolist())
        for i in range(len(shown))
        for j in range(i)
    }
    everything = [one.values for one in (*drawn, *marked)]
    return ManyPlot(
        axes=shown,
        log=tuple(spans_decades([one[i] for one in everything]) for i in range(len(shown))),
        front=drawn,
        n_front=len(front),
        picks=marked,
        baseline=star,
        on_pair=on_pair,
    )


def draw_matrix(data: ManyPlot) -> go.Figure:
    """Draw every pair of objectives: those below the diagonal of a matrix, one row for each but the first."""
    count = len(data.axes)
    figure = make_subplots(
        rows=count - 1,
        cols=count - 1,
        horizontal_spacing=0.03,
        vertical_spacing=0.03,
        specs=[[{} if j <= i else None for j in range(count - 1)] for i in range(count - 1)],
    )
    for i in range(1, count):
        for j in range(i):
            _panel(figure, data, i, j)
            place = {"row": i, "col": j + 1}
            last, first = i == count - 1, j == 0
            for update, axis, named in (
                (figure.update_xaxes, j, last),
                (figure.update_yaxes, i, first),
            ):
                update(
                    **AXIS,
                    type="log" if data.log[axis] else "linear",
                    nticks=4,
                    showticklabels=named,
                    title_text=data.axes[axis].title if named else None,
                    title_font_size=12,
                    **place,
                )
    below = 70 + legend_room([trace.name for trace in figure.data if trace.showlegend])
    figure.update_layout(
        **LAYOUT,
        height=20 + below + _PANEL * (count - 1),
        margin={"l": 80, "r": 20, "t": 20, "b": below},
        hovermode="closest",
        legend=LEGEND,
    )
    return figure


def _panel(figure: go.Figure, data: ManyPlot, up: int, across: int) -> None:
    first = (up, across) == (1, 0)
    here = data.on_pair[up, across]
    groups: list[tuple[str, list[Line], dict[str, object]]] = [
        (
            "on the front for other objectives",
            [line for line in data.front if line.id not in here],
            {"symbol": "circle-open", "size": 5, "color": GREY, "opacity": 0.7},
        ),
        (
            "on the front of the two of a panel",
            [line for line in data.front if line.id in here],
            {"symbol": "circle", "size": 6, "color": BLUE},
        ),
    ]
    for number_, line in enumerate(data.picks):
        colour = _PICK_COLOURS[number_ % len(_PICK_COLOURS)]
        symbol = "diamond" if line.id in here else "diamond-open"
        groups.append((line.name, [line], {"symbol": symbol, "size": 10, "color": colour}))
    if data.baseline is not None:
        star = {"symbol": "star", "size": 12, "color": ORANGE, "line": {"color": BLACK, "width": 1}}
        groups.append((data.baseline.name, [data.baseline], star))
    for name, lines, marker in groups:
        if not lines and not first:
            continue
        figure.add_trace(
            go.Scatter(
                # A trace without points would not be in the legend.
                x=_rounded([line.values[across] for line in lines]) if lines else [None],
                y=_rounded([line.values[up] for line in lines]) if lines else [None],
                customdata=[line.id for line in lines],
                hovertemplate=f"%{{customdata}}: %{{x:,.4~g}} {data.axes[across].unit}, "
                f"%{{y:,.4~g}} {data.axes[up].unit}<extra></extra>",
                name=plain(name),
                legendgroup=name,
                showlegend=first,
                mode="markers",
                marker=marker,
            ),
            row=up,
            col=across + 1,
        )


def draw_parallel(data: ManyPlot) -> go.Figure:
    """Draw one line per design over one upright axis per objective, the best of each on top."""
    figure = go.Figure()
    count = len(data.axes)
    if data.front:
        across: list[float | None] = []
        up: list[float | None] = []
        ids: list[int | str | None] = []
        texts: list[str | None] = []
        for line in data.front:
            across += [*range(count), None]
            up += [*_shares(data, line), None]
            ids += [*[line.id] * count, None]
            texts += [*_texts(data, line), None]
        figure.add_trace(
            go.Scatter(
                x=across,
                y=up,
                customdata=ids,
                hovertext=texts,
                hovertemplate="%{hovertext}<extra></extra>",
                name=f"on the front ({len(data.front):,})",
                mode="lines+markers",
                line={"color": BLUE, "width": 1},
                marker={"size": 4, "color": BLUE},
                opacity=0.3,
                connectgaps=False,
            )
        )
    marked = [(line, _PICK_COLOURS[i % len(_PICK_COLOURS)], _DASHES[i // len(_PICK_COLOURS) % 3], 2.5)
              for i, line in enumerate(data.picks)]  # fmt: skip
    if data.baseline is not None:
        marked.append((data.baseline, BLACK, "dash", 1.5))
    for line, colour, dash, width in marked:
        figure.add_trace(
            go.Scatter(
                x=list(range(count)),
                y=_shares(data, line),
                customdata=[line.id] * count,
                hovertext=_texts(data, line),
                hovertemplate="%{hovertext}<extra></extra>",
                name=plain(line.name),
                mode="lines+markers",
                line={"color": colour, "width": width, "dash": dash},
                marker={"size": 7, "color": colour},
            )
        )
    below = 30 + legend_room([trace.name for trace in figure.data])
    figure.update_layout(
        **LAYOUT,
        height=380 + below,
        margin={"l": 60, "r": 60, "t": 40, "b": below},
        hovermode="closest",
        legend=LEGEND,
        shapes=[
            {"type": "line", "x0": i, "x1": i, "y0": 0, "y1": 1, "line": {"color": GREY, "width": 1}, "layer": "below"}
            for i in range(count)
        ],
        annotations=[note for i in range(count) for note in _scale(data, i)],
    )
    figure.update_xaxes(visible=False, range=[-0.3, count - 0.7])
    figure.update_yaxes(visible=False, range=[-0.1, 1.1])
    return figure


def _scale(data: ManyPlot, axis: int) -> list[dict[str, object]]:
    """Return an upright axis's name above it and the values beside it."""
    name = data.axes[axis].title
    notes: list[dict[str, object]] = [
        {
            "x": axis,
            "y": 1.0,
            "yshift": 38,
            "text": plain(f"{name}{', log' if data.log[axis] else ''}"),
            "showarrow": False,
            "font": {"size": 13},
        }
    ]
    notes += [
        {
            "x": axis,
            "y": share,
            # The ends stand clear of the lines, of which many meet there.
            "xshift": 6 if 0 < share < 1 else 4,
            "yshift": 9 if share == 1 else -9 if share == 0 else 0,
            "xanchor": "left",
            "text": number(data.at(axis, share), 3),
            "showarrow": False,
            "font": {"size": 11, "color": GREY},
        }
        for share in _TICKS
    ]
    return notes


def _shares(data: ManyPlot, line: Line) -> list[float | None]:
    return [round(data.share(axis, value), 4) for axis, value in enumerate(line.values)]


def _texts(data: ManyPlot, line: Line) -> list[str | None]:
    label = plain(line.name or f"design {line.id}")
    return [f"{label}<br>{axis.name}: {axis.text(value)}" for axis, value in zip(data.axes, line.values, strict=True)]


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
