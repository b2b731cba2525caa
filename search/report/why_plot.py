"""Why a design takes the time and the memory that it does: stacked bars of step seconds and of the fullest stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from plotly import graph_objects as go

from archplace.costmodel import StageMemory
from archplace.search.explain import PARTS
from archplace.search.metrics import ENERGY_PARTS
from archplace.search.points import PointView
from archplace.search.report.colours import AXIS, BLACK, ENERGY_STYLE, LAYOUT, LEGEND, MEMORY_STYLE, PART_STYLE
from archplace.search.report.picks import Pick, by_point
from archplace.search.report.stacks import SMALLEST_SHARE, cut, height, lay_out, left_and_right, rounded, stack, wrapped
from archplace.search.wording import gigabytes, number, percent, seconds


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
    figure = left_and_right()
    labels = [wrapped(bar.label) for bar in data.bars]
    for i, part in enumerate(PARTS):
        if all(bar.parts_s[i] <= SMALLEST_SHARE * bar.step_s for bar in data.bars):
            continue
        values = [bar.parts_s[i] for bar in data.bars]
        shares = [100 * value / sum(bar.parts_s) for value, bar in zip(values, data.bars, strict=True)]
        lengths = [share / 100 * length for share, length in zip(shares, data.step_lengths, strict=True)]
        hover = [f"{part}: {seconds(value)}, {share:.1f} %" for value, share in zip(values, shares, strict=True)]
        stack(figure, part, labels, PART_STYLE[part], lengths, shares, hover)
    title = "step time, times the workload's fastest here" if data.relative else "seconds per step"
    cut(figure, labels, data.step_lengths, [seconds(bar.step_s) for bar in data.bars])
    lay_out(figure, labels, titles=(title, "% of the step"))
    return figure


def draw_energy(data: WhyPlot) -> go.Figure:
    """Draw the energy of a sample by component: on the left in joules, on the right as shares.

    Only designs whose energy is known; there must be one.
    """
    known = [
        (wrapped(bar.label), bar.energy_j, length)
        for bar, length in zip(data.bars, data.energy_lengths, strict=True)
        if bar.energy_j is not None
    ]
    labels = [label for label, *_ in known]
    figure = left_and_right()
    for i, part in enumerate(ENERGY_PARTS):
        values = [joules[i] for _, joules, _ in known]
        shares = [100 * joules[i] / sum(joules) for _, joules, _ in known]
        lengths = [length * joules[i] / sum(joules) for _, joules, length in known]
        if max(shares) <= 100 * SMALLEST_SHARE:
            continue
        hover = [f"{part}: {number(value)} J, {share:.1f} %" for value, share in zip(values, shares, strict=True)]
        stack(figure, part, labels, ENERGY_STYLE[part], lengths, shares, hover)
    title = "energy, times the workload's least here" if data.relative else "joules per sample, all accelerators"
    cut(figure, labels, [length for *_, length in known], [f"{number(sum(joules))} J" for _, joules, _ in known])
    lay_out(figure, labels, titles=(title, "% of the energy"))
    return figure


def draw_memory(data: WhyPlot) -> go.Figure:
    """Draw the memory of each device of the fullest stage against the HBM capacity."""
    figure = go.Figure()
    labels = [wrapped(bar.label) for bar in data.bars]
    for i, (name, colour) in enumerate(MEMORY_STYLE.items()):
        values = [bar.memory_bytes[i] / 1e9 for bar in data.bars]
        figure.add_trace(
            go.Bar(
                x=rounded(values),
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
        height=94 + height(labels),
        margin={"l": 10, "r": 20, "t": 10, "b": 84},
        legend=LEGEND,
        xaxis={**AXIS, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "ticks": "", "showgrid": False},
    )
    figure.update_xaxes(title_text="GB per device on the fullest stage")
    return figure
