"""The operator Gantt of one block: which unit runs what, forward and backward, and what each operator waits for."""

from collections.abc import Sequence
from dataclasses import dataclass

from plotly import graph_objects as go
from plotly.subplots import make_subplots

from archplace.search.attribution import OperatorBar
from archplace.search.explain import PARTS, Explanation
from archplace.search.report.colours import AXIS, LAYOUT, LEGEND, filled, plain
from archplace.search.wording import seconds

ROWS = ("tensor", "vector", "network")
_FUSED_ROWS = ("tensor", "vector")
_ROW_HEIGHT = 30
_LABELLED_SHARE = 0.06
"""Share of the longer schedule from which on a bar has room for its operator's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttBar:
    """One operator on one row; a fused operator has one bar on a tensor row and one on a vector row."""

    row: str
    operator: OperatorBar


@dataclass(frozen=True, slots=True, kw_only=True)
class Gantt:
    """One direction of the block."""

    direction: str
    rows: tuple[str, ...]
    """From top to bottom; a kind of unit that runs operators side by side has several."""
    bars: tuple[GanttBar, ...]
    makespan_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePlot:
    """Both directions, on one time scale."""

    directions: tuple[Gantt, ...]


def prepare_schedule(why: Explanation) -> SchedulePlot:
    """Return the block's schedules; operators that take no time are left out."""
    return SchedulePlot(directions=tuple(_gantt(direction, bars) for direction, bars in why.bars.items()))


def _gantt(direction: str, bars: Sequence[OperatorBar]) -> Gantt:
    placed: list[tuple[str, int, OperatorBar]] = []
    free: dict[str, list[float]] = {row: [] for row in ROWS}
    for bar in sorted(bars, key=lambda bar: (bar.start_s, bar.start_s + bar.duration_s, bar.name)):
        if bar.duration_s <= 0:
            continue
        for row in _FUSED_ROWS if bar.unit == "fused" else (bar.unit,):
            lane = _lane(free[row], bar)
            placed.append((row, lane, bar))
    names = {
        (row, lane): row if len(lanes) == 1 else f"{row} · {lane + 1}"
        for row, lanes in free.items()
        for lane in range(len(lanes))
    }
    return Gantt(
        direction=direction,
        rows=tuple(names.values()),
        bars=tuple(GanttBar(row=names[row, lane], operator=bar) for row, lane, bar in placed),
        makespan_s=max((bar.start_s + bar.duration_s for bar in bars), default=0.0),
    )


def _lane(free_s: list[float], bar: OperatorBar) -> int:
    """Take the first lane that is free when ``bar`` starts, or a new one."""
    end_s = bar.start_s + bar.duration_s
    slack_s = 1e-9 * end_s
    for lane, until_s in enumerate(free_s):
        if until_s <= bar.start_s + slack_s:
            free_s[lane] = end_s
            return lane
    free_s.append(end_s)
    return len(free_s) - 1


def draw_schedule(data: SchedulePlot) -> go.Figure:
    """Draw both directions, one below the other, coloured by what each operator waits for."""
    longest = max(gantt.makespan_s for gantt in data.directions)
    scale, unit = (1e3, "ms") if longest >= 1e-3 else (1e6, "µs")
    heights = [max(len(gantt.rows), 1) for gantt in data.directions]
    figure = make_subplots(
        rows=len(data.directions),
        cols=1,
        row_heights=heights,
        shared_xaxes=False,
        vertical_spacing=62 / (62 + _ROW_HEIGHT * sum(heights)),
        subplot_titles=[f"{gantt.direction}, {seconds(gantt.makespan_s)}" for gantt in data.directions],
    )
    present = {bar.operator.bound_by for gantt in data.directions for bar in gantt.bars}
    listed: set[str] = set()
    for index, gantt in enumerate(data.directions, start=1):
        for part in PARTS:
            bars = [bar for bar in gantt.bars if bar.operator.bound_by == part]
            if part not in present or not bars:
                continue
            figure.add_trace(
                go.Bar(
                    base=[_rounded(bar.operator.start_s * scale) for bar in bars],
                    x=[_rounded(bar.operator.duration_s * scale) for bar in bars],
                    y=[bar.row for bar in bars],
                    orientation="h",
                    name=part,
                    legendgroup=part,
                    showlegend=part not in listed,
                    text=[
                        plain(bar.operator.name) if bar.operator.duration_s >= _LABELLED_SHARE * longest else ""
                        for bar in bars
                    ],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    marker={**filled(part), "line": {"width": 1, "color": "#FFFFFF"}},
                    hovertext=[_hover(bar.operator) for bar in bars],
                    hovertemplate="%{hovertext}<extra></extra>",
                ),
                row=index,
                col=1,
            )
            listed.add(part)
        figure.update_yaxes(
            categoryorder="array",
            categoryarray=list(gantt.rows),
            autorange="reversed",
            automargin=True,
            ticks="",
            showgrid=False,
            row=index,
            col=1,
        )
        figure.update_xaxes(**AXIS, range=[0, longest * scale * 1.005], row=index, col=1)
    figure.update_xaxes(title_text=f"time within the block ({unit})", row=len(data.directions), col=1)
    total = _ROW_HEIGHT * sum(heights)
    figure.update_layout(
        **LAYOUT,
        barmode="overlay",
        bargap=0.2,
        height=180 + total,
        margin={"l": 10, "r": 20, "t": 30, "b": 88},
        uniformtext={"minsize": 9, "mode": "hide"},
        legend=LEGEND,
    )
    figure.update_layout(legend_title_text="waits for ")
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    return figure


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _hover(bar: OperatorBar) -> str:
    units = "the network" if bar.unit == "network" else f"{'all units' if bar.all_units else 'one unit'} ({bar.unit})"
    return (
        f"{plain(bar.name)}: {seconds(bar.duration_s)} from {seconds(bar.start_s) if bar.start_s else '0'}<br>"
        f"{bar.phase.replace('_', ' ')}, on {units}, waits for {bar.bound_by}"
    )
