"""What the area of a design goes to: stacked bars by component."""

from collections.abc import Sequence
from dataclasses import dataclass

from plotly import graph_objects as go

from archplace.search.points import PointView
from archplace.search.report._format import AREA_WORDS
from archplace.search.report.colours import AREA_STYLE
from archplace.search.report.stacks import SMALLEST_SHARE, cut, lay_out, left_and_right, stack, wrapped
from archplace.search.wording import number


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaPlot:
    """The bars, first one on top."""

    labels: tuple[str, ...]
    parts_mm2: tuple[tuple[float, ...], ...]
    """Of each bar by the components of :data:`~archplace.search.report.colours.AREA_STYLE`."""


def prepare_area(points: Sequence[tuple[str, PointView]]) -> AreaPlot:
    """Return one bar per point."""
    return AreaPlot(
        labels=tuple(label for label, _ in points),
        parts_mm2=tuple(tuple(point.area_parts_mm2[part] for part in AREA_STYLE) for _, point in points),
    )


def draw_area(data: AreaPlot) -> go.Figure:
    """Draw areas by component: on the left in mm², on the right as shares."""
    figure = left_and_right()
    labels, totals = [wrapped(label) for label in data.labels], [sum(parts) for parts in data.parts_mm2]
    for i, part in enumerate(AREA_STYLE):
        values = [parts[i] for parts in data.parts_mm2]
        shares = [100 * value / total for value, total in zip(values, totals, strict=True)]
        if max(shares) <= 100 * SMALLEST_SHARE:
            continue
        name = AREA_WORDS.get(part, part.replace("_", " "))
        hover = [f"{name}: {number(value)} mm², {share:.1f} %" for value, share in zip(values, shares, strict=True)]
        stack(figure, name, labels, AREA_STYLE[part], values, shares, hover)
    cut(figure, labels, totals, [f"{number(total)} mm²" for total in totals])
    lay_out(figure, labels, titles=("mm² of one accelerator's die", "% of the area"))
    return figure
