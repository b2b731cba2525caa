"""Stacked bars on two axes side by side: lengths on the left, shares in per cent on the right."""

from collections.abc import Sequence

from plotly import graph_objects as go
from plotly.subplots import make_subplots

from archplace.search.report.colours import AXIS, BLACK, LAYOUT, LEGEND, filled, legend_room, plain

ROW_HEIGHT = 44
_LINE_HEIGHT = 16
COMPARABLE = 10.0
"""Times the shortest bar up to which bars are shown in full."""
SMALLEST_SHARE = 5e-4
"""Parts below this share everywhere are not worth a colour in the legend."""


def left_and_right() -> go.Figure:
    """Return a figure with the two axes."""
    return make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04)


def limit_of(lengths: Sequence[float]) -> float:
    """Return where an axis of bars ends: one very slow design must not make the others' bars invisible.

    At the longest bar that is at most ten times the shortest, unless all are. Bars of no length do not count.
    """
    shortest = min((length for length in lengths if length > 0), default=0.0)
    return max((length for length in lengths if length <= COMPARABLE * shortest), default=0.0)


def stack(
    figure: go.Figure,
    part: str,
    labels: Sequence[str],
    style: tuple[str, str],
    lengths: Sequence[float],
    shares: Sequence[float],
    hover: Sequence[str],
) -> None:
    """Add one part of every bar: on the left as a length, on the right as a share in per cent."""
    marker = {**filled(part, {part: style}), "line": {"width": 0}}
    common = {"y": labels, "name": part, "orientation": "h", "marker": marker, "legendgroup": part}
    tip = {"hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>"}
    figure.add_trace(go.Bar(x=rounded(lengths), **common, **tip), row=1, col=1)
    figure.add_trace(go.Bar(x=rounded(shares), showlegend=False, **common, **tip), row=1, col=2)


def lay_out(figure: go.Figure, labels: Sequence[str], *, titles: tuple[str, str]) -> None:
    """Set sizes and axes, with room under the bars for the legend."""
    below = 70 + legend_room([trace.name for trace in figure.data if trace.showlegend is not False])
    figure.update_layout(
        **LAYOUT,
        barmode="stack",
        bargap=0.35,
        height=10 + below + height(labels),
        margin={"l": 10, "r": 20, "t": 10, "b": below},
        legend=LEGEND,
    )
    figure.update_xaxes(title_text=titles[0], row=1, col=1)
    figure.update_xaxes(**AXIS, title_text=titles[1], range=[0, 100], row=1, col=2)
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="", showgrid=False)


def cut(figure: go.Figure, labels: Sequence[str], lengths: Sequence[float], texts: Sequence[str]) -> None:
    """End the left axis at :func:`limit_of` the bars, and write beside those that go on how long they are."""
    limit = limit_of(lengths)
    figure.update_xaxes(**AXIS, range=[0, 1.05 * limit], row=1, col=1)
    for label, length, text in zip(labels, lengths, texts, strict=True):
        if length > limit:
            style = {"showarrow": False, "xanchor": "right", "bgcolor": "#FFFFFF", "font": {"color": BLACK}}
            figure.add_annotation(x=1.04 * limit, y=label, xref="x", yref="y", text=f"{text} ▸", **style)


def rounded(values: Sequence[float]) -> list[float]:
    """Return lengths with as many digits as a picture shows."""
    return [float(f"{value:.6g}") for value in values]


def height(labels: Sequence[str]) -> int:
    """Return the pixels that bars with these labels need."""
    return len(labels) * max([ROW_HEIGHT, *(_LINE_HEIGHT * (label.count("<br>") + 1) + 6 for label in labels)])


def wrapped(label: str) -> str:
    """Return a label in lines that leave room for the bars."""
    lines, line = [], ""
    for word in label.split(" "):
        if line and len(line) + len(word) > 26:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "<br>".join(plain(text) for text in [*lines, line])
