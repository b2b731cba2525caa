"""Why a design takes the time and the memory that it does: stacked bars of step seconds and of the fullest stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from plotly import graph_objects as go
from plotly.subplots import make_subplots

from archplace.costmodel import StageMemory
from archplace.search.explain import PARTS
from archplace.search.report._format import gigabytes, number, percent, seconds
from archplace.search.report.colours import AXIS, BLACK, LAYOUT, LEGEND, MEMORY_STYLE, filled, plain
from archplace.search.report.picks import Pick, by_point
from archplace.search.tables import PointView

_ROW_HEIGHT = 44
_COMPARABLE = 10.0
"""Times the fastest design's step up to which bars are shown in full."""
_SMALLEST_SHARE = 5e-4
"""Parts below this share everywhere are not worth a colour in the legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One design on one workload."""

    label: str
    step_s: float
    parts_s: tuple[float, ...]
    """Seconds by :data:`~archplace.search.explain.PARTS`."""
    memory_bytes: tuple[float, ...]
    """Weights, gradients, optimizer, activations on each device of the fullest stage."""
    fullest_stage: int
    """From 1."""
    stages: int
    capacity_bytes: int
    mfu: float
    bottleneck: str

    @property
    def sentence(self) -> str:
        """Return what holds the design back, in words."""
        total = sum(self.parts_s)
        ranked = sorted(zip(PARTS, self.parts_s, strict=True), key=lambda item: -item[1])
        following = [f"{part} ({percent(value / total)})" for part, value in ranked[1:3] if value > 0.01 * total]
        used = sum(self.memory_bytes)
        where = f"stage {self.fullest_stage} of {self.stages}" if self.stages > 1 else "every device"
        return (
            f"A step takes {seconds(self.step_s)} at {percent(self.mfu)} of peak FLOP/s. The bottleneck is "
            f"{ranked[0][0]} ({percent(ranked[0][1] / total)} of the step)"
            + (f", followed by {' and '.join(following)}" if following else "")
            + f". Memory is fullest on {where}: {gigabytes(used)} of {gigabytes(self.capacity_bytes)} "
            f"({percent(used / self.capacity_bytes)})."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyPlot:
    """The bars, first one on top."""

    bars: tuple[Bar, ...]

    @property
    def seconds_limit(self) -> float:
        """Where the axis of seconds ends: one very slow design must not make the others' bars invisible.

        That of the slowest design that takes at most ten times as long as the fastest, unless all do.
        """
        fastest = min(bar.step_s for bar in self.bars)
        return max(bar.step_s for bar in self.bars if bar.step_s <= _COMPARABLE * fastest)


def labelled_points(picks: Sequence[Pick], baseline: PointView | None) -> list[tuple[str, PointView]]:
    """Return the picked designs, each once, and the baseline, with what to call them."""
    found = [
        (f"{', '.join(pick.name for pick in group)} ({group[0].point.id})", group[0].point) for group in by_point(picks)
    ]
    if baseline is not None:
        found.append((f"{baseline.label} (baseline)", baseline))
    return found


def prepare_why(points: Sequence[tuple[str, PointView]]) -> WhyPlot:
    """Return one bar per point and workload."""
    bars = []
    for label, point in points:
        workloads = point.result.run.workloads
        for workload, found, why in zip(workloads, point.point.results, point.explanations, strict=True):
            fullest = max(range(len(why.stages)), key=lambda i: why.stages[i].memory.total_bytes)
            bars.append(
                Bar(
                    label=f"{label}, {workload.name}" if len(workloads) > 1 else label,
                    step_s=found.placement.step_s,
                    parts_s=tuple(why.parts_s[part] for part in PARTS),
                    memory_bytes=_memory(why.stages[fullest].memory),
                    fullest_stage=fullest + 1,
                    stages=len(why.stages),
                    capacity_bytes=found.option.hbm_bytes,
                    mfu=why.mfu,
                    bottleneck=why.bottleneck,
                )
            )
    return WhyPlot(bars=tuple(bars))


def _memory(memory: StageMemory) -> tuple[float, ...]:
    return (memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes, memory.activations_bytes)


def draw_step(data: WhyPlot) -> go.Figure:
    """Draw the step's seconds by part: on the left in seconds, on the right as shares."""
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04)
    labels = [_wrapped(bar.label) for bar in data.bars]
    for i, part in enumerate(PARTS):
        if all(bar.parts_s[i] <= _SMALLEST_SHARE * bar.step_s for bar in data.bars):
            continue
        marker = {**filled(part), "line": {"width": 0}}
        common = {"y": labels, "name": part, "orientation": "h", "marker": marker, "legendgroup": part}
        values = [bar.parts_s[i] for bar in data.bars]
        shares = [100 * value / sum(bar.parts_s) for value, bar in zip(values, data.bars, strict=True)]
        hover = [f"{part}: {seconds(value)}, {share:.1f} %" for value, share in zip(values, shares, strict=True)]
        tip = {"hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>"}
        figure.add_trace(go.Bar(x=_rounded(values), **common, **tip), row=1, col=1)
        figure.add_trace(go.Bar(x=_rounded(shares), showlegend=False, **common, **tip), row=1, col=2)
    figure.update_layout(
        **LAYOUT,
        barmode="stack",
        bargap=0.35,
        height=140 + _ROW_HEIGHT * len(data.bars),
        margin={"l": 10, "r": 20, "t": 10, "b": 130},
        legend=LEGEND,
    )
    limit = data.seconds_limit
    figure.update_xaxes(**AXIS, title_text="seconds per step", range=[0, 1.05 * limit], row=1, col=1)
    for label, bar in zip(labels, data.bars, strict=True):
        if bar.step_s > limit:
            text = f"{seconds(bar.step_s)} ▸"
            style = {"showarrow": False, "xanchor": "right", "bgcolor": "#FFFFFF", "font": {"color": BLACK}}
            figure.add_annotation(x=1.04 * limit, y=label, xref="x", yref="y", text=text, **style)
    figure.update_xaxes(**AXIS, title_text="% of the step", range=[0, 100], row=1, col=2)
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="", showgrid=False)
    return figure


def draw_memory(data: WhyPlot) -> go.Figure:
    """Draw the memory of each device of the fullest stage against the HBM capacity."""
    figure = go.Figure()
    labels = [_wrapped(bar.label) for bar in data.bars]
    for i, (name, colour) in enumerate(MEMORY_STYLE.items()):
        values = [bar.memory_bytes[i] / 1e9 for bar in data.bars]
        figure.add_trace(
            go.Bar(
                x=_rounded(values),
                y=labels,
                name=name,
                orientation="h",
                marker={"color": colour, "line": {"width": 0}},
                hovertext=[f"{name}: {number(value)} GB" for value in values],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    capacities = [bar.capacity_bytes / 1e9 for bar in data.bars]
    figure.add_trace(
        go.Scatter(
            x=capacities,
            y=labels,
            name="HBM capacity",
            mode="markers",
            marker={"symbol": "line-ns", "size": 22, "line": {"width": 3, "color": BLACK}},
            hovertext=[f"HBM capacity: {number(value)} GB" for value in capacities],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    figure.update_layout(
        **LAYOUT,
        barmode="stack",
        bargap=0.35,
        height=94 + _ROW_HEIGHT * len(data.bars),
        margin={"l": 10, "r": 20, "t": 10, "b": 84},
        legend=LEGEND,
        xaxis={**AXIS, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "ticks": "", "showgrid": False},
    )
    figure.update_xaxes(title_text="GB per device on the fullest stage")
    return figure


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _wrapped(label: str) -> str:
    """Return a label in lines that leave room for the bars."""
    lines, line = [], ""
    for word in label.split(" "):
        if line and len(line) + len(word) > 26:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "<br>".join(plain(text) for text in [*lines, line])
