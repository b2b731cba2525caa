"""Why a design takes the time and the memory that it does: stacked bars of step seconds and of the fullest stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plotly import graph_objects as go
from plotly.subplots import make_subplots

from archplace.costmodel import StageMemory
from archplace.search.explain import PARTS
from archplace.search.metrics import ENERGY_PARTS
from archplace.search.points import PointView
from archplace.search.report.colours import (
    AXIS,
    BLACK,
    ENERGY_STYLE,
    LAYOUT,
    LEGEND,
    MEMORY_STYLE,
    filled,
    legend_room,
    plain,
)
from archplace.search.report.picks import Pick, by_point
from archplace.search.wording import gigabytes, number, percent, seconds

_ROW_HEIGHT = 44
_LINE_HEIGHT = 16
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
    workload: str = ""
    """Its name, where there are several."""
    mfu: float
    bottleneck: str
    energy_j: tuple[float, ...] | None = None
    """Joules per sample by :data:`~archplace.search.metrics.ENERGY_PARTS`; None where they are not known."""

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
            f"({percent(used / self.capacity_bytes)})." + self._energy_sentence
        )

    @property
    def _energy_sentence(self) -> str:
        if self.energy_j is None:
            return ""
        total = sum(self.energy_j)
        ranked = sorted(zip(ENERGY_PARTS, self.energy_j, strict=True), key=lambda item: -item[1])
        listed = " and ".join(f"{part} ({percent(value / total)})" for part, value in ranked[:2])
        return f" A sample takes {number(total)} J, most of it in {listed}."


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyPlot:
    """The bars, first one on top."""

    bars: tuple[Bar, ...]

    @property
    def relative(self) -> bool:
        """Whether bars are drawn relative to the best design of their workload: steps of several differ by decades."""
        return any(bar.workload for bar in self.bars)

    @property
    def step_lengths(self) -> tuple[float, ...]:
        """How long each bar of time is: seconds, or times the fastest step of the bar's workload."""
        return self._lengths([bar.step_s for bar in self.bars])

    @property
    def energy_lengths(self) -> tuple[float, ...]:
        """How long each bar of energy is: joules, or times the least of the bar's workload; 0 where not known."""
        return self._lengths([0.0 if bar.energy_j is None else sum(bar.energy_j) for bar in self.bars])

    def _lengths(self, values: Sequence[float]) -> tuple[float, ...]:
        if not self.relative:
            return tuple(values)
        best: dict[str, float] = {}
        for bar, value in zip(self.bars, values, strict=True):
            if value > 0:
                best[bar.workload] = min(value, best.get(bar.workload, value))
        return tuple(value / best.get(bar.workload, 1.0) for bar, value in zip(self.bars, values, strict=True))


def limit_of(lengths: Sequence[float]) -> float:
    """Return where an axis of bars ends: one very slow design must not make the others' bars invisible.

    At the longest bar that is at most ten times the shortest, unless all are. Bars of no length do not count.
    """
    shortest = min((length for length in lengths if length > 0), default=0.0)
    return max((length for length in lengths if length <= _COMPARABLE * shortest), default=0.0)


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
        figures = point.metrics.workloads
        for workload, found, why, more in zip(workloads, point.point.results, point.explanations, figures, strict=True):
            fullest = max(range(len(why.stages)), key=lambda i: why.stages[i].memory.total_bytes)
            bars.append(
                Bar(
                    label=f"{label}, {workload.name}" if len(workloads) > 1 else label,
                    workload=workload.name if len(workloads) > 1 else "",
                    step_s=found.placement.step_s,
                    parts_s=tuple(why.parts_s[part] for part in PARTS),
                    memory_bytes=_memory(why.stages[fullest].memory),
                    fullest_stage=fullest + 1,
                    stages=len(why.stages),
                    capacity_bytes=found.option.hbm_bytes,
                    mfu=why.mfu,
                    bottleneck=why.bottleneck,
                    energy_j=more.parts_j,
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
        values = [bar.parts_s[i] for bar in data.bars]
        shares = [100 * value / sum(bar.parts_s) for value, bar in zip(values, data.bars, strict=True)]
        lengths = [share / 100 * length for share, length in zip(shares, data.step_lengths, strict=True)]
        hover = [f"{part}: {seconds(value)}, {share:.1f} %" for value, share in zip(values, shares, strict=True)]
        _stack(figure, part, labels, marker, lengths, shares, hover)
    title = "step time, times the workload's fastest here" if data.relative else "seconds per step"
    _cut(figure, labels, data.step_lengths, [seconds(bar.step_s) for bar in data.bars])
    _lay_out(figure, labels, titles=(title, "% of the step"))
    return figure


def _stack(
    figure: go.Figure,
    part: str,
    labels: Sequence[str],
    marker: Mapping[str, object],
    lengths: Sequence[float],
    shares: Sequence[float],
    hover: Sequence[str],
) -> None:
    """Add one part of every bar: on the left as a length, on the right as a share in per cent."""
    common = {"y": labels, "name": part, "orientation": "h", "marker": marker, "legendgroup": part}
    tip = {"hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>"}
    figure.add_trace(go.Bar(x=_rounded(lengths), **common, **tip), row=1, col=1)
    figure.add_trace(go.Bar(x=_rounded(shares), showlegend=False, **common, **tip), row=1, col=2)


def _lay_out(figure: go.Figure, labels: Sequence[str], *, titles: tuple[str, str]) -> None:
    """Set sizes and axes, with room under the bars for the legend."""
    below = 70 + legend_room([trace.name for trace in figure.data if trace.showlegend is not False])
    figure.update_layout(
        **LAYOUT,
        barmode="stack",
        bargap=0.35,
        height=10 + below + _height(labels),
        margin={"l": 10, "r": 20, "t": 10, "b": below},
        legend=LEGEND,
    )
    figure.update_xaxes(title_text=titles[0], row=1, col=1)
    figure.update_xaxes(**AXIS, title_text=titles[1], range=[0, 100], row=1, col=2)
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="", showgrid=False)


def _cut(figure: go.Figure, labels: Sequence[str], lengths: Sequence[float], texts: Sequence[str]) -> None:
    """End the left axis at :func:`limit_of` the bars, and write beside those that go on how long they are."""
    limit = limit_of(lengths)
    figure.update_xaxes(**AXIS, range=[0, 1.05 * limit], row=1, col=1)
    for label, length, text in zip(labels, lengths, texts, strict=True):
        if length > limit:
            style = {"showarrow": False, "xanchor": "right", "bgcolor": "#FFFFFF", "font": {"color": BLACK}}
            figure.add_annotation(x=1.04 * limit, y=label, xref="x", yref="y", text=f"{text} ▸", **style)


def draw_energy(data: WhyPlot) -> go.Figure:
    """Draw the energy of a sample by component: on the left in joules, on the right as shares.

    Only designs whose energy is known; there must be one.
    """
    known = [
        (_wrapped(bar.label), bar.energy_j, length)
        for bar, length in zip(data.bars, data.energy_lengths, strict=True)
        if bar.energy_j is not None
    ]
    labels = [label for label, *_ in known]
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04)
    for i, part in enumerate(ENERGY_PARTS):
        values = [joules[i] for _, joules, _ in known]
        shares = [100 * joules[i] / sum(joules) for _, joules, _ in known]
        lengths = [length * joules[i] / sum(joules) for _, joules, length in known]
        if max(shares) <= 100 * _SMALLEST_SHARE:
            continue
        marker = {**filled(part, ENERGY_STYLE), "line": {"width": 0}}
        hover = [f"{part}: {number(value)} J, {share:.1f} %" for value, share in zip(values, shares, strict=True)]
        _stack(figure, part, labels, marker, lengths, shares, hover)
    title = "energy, times the workload's least here" if data.relative else "joules per sample, all accelerators"
    _cut(figure, labels, [length for *_, length in known], [f"{number(sum(joules))} J" for _, joules, _ in known])
    _lay_out(figure, labels, titles=(title, "% of the energy"))
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
        height=94 + _height(labels),
        margin={"l": 10, "r": 20, "t": 10, "b": 84},
        legend=LEGEND,
        xaxis={**AXIS, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "ticks": "", "showgrid": False},
    )
    figure.update_xaxes(title_text="GB per device on the fullest stage")
    return figure


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _height(labels: Sequence[str]) -> int:
    """Return the pixels that bars with these labels need."""
    return len(labels) * max([_ROW_HEIGHT, *(_LINE_HEIGHT * (label.count("<br>") + 1) + 6 for label in labels)])


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
