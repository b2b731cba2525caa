"""Predicted over measured seconds as a picture: one point for each step, one colour for each source."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from archplace.search.accuracy.predict import Prediction

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Colours that colour-blind readers tell apart (Okabe and Ito 2008, Color Universal Design)."""
_SIZE, _MARGIN = 560.0, 64.0
_LINE = 18.0
_BAND = 0.1
"""Relative error at which lines are drawn beside the diagonal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """What the picture shows."""

    points: tuple[tuple[str, str, float, float], ...]
    """Source, id, measured and predicted seconds of every priced step."""
    low_s: float
    high_s: float
    """What both axes span, powers of ten."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources in the order in which they appear."""
        return tuple(dict.fromkeys(source for source, *_ in self.points))


def prepare(predictions: Iterable[Prediction]) -> Scatter:
    """Return the points of all steps that are priced; raises ``ValueError`` where none is."""
    points = tuple(
        (each.step.source, each.step.id, each.step.step_s, each.predicted_s)
        for each in predictions
        if each.reason is None
    )
    if not points:
        raise ValueError("no step could be priced: there is nothing to draw")
    values = [value for *_, measured, predicted in points for value in (measured, predicted)]
    lowest = math.floor(math.log10(min(values)))
    highest = max(math.ceil(math.log10(max(values))), lowest + 1)
    return Scatter(points=points, low_s=10.0**lowest, high_s=10.0**highest)


def draw(scatter: Scatter) -> str:
    """Return the picture as SVG; the same points give the same bytes."""
    colours = {source: SERIES[i % len(SERIES)] for i, source in enumerate(scatter.sources)}
    span = math.log10(scatter.high_s / scatter.low_s)

    def place(seconds: float) -> float:
        return (_SIZE - 2 * _MARGIN) * math.log10(seconds / scatter.low_s) / span

    def line(factor: float, dashes: str) -> str:
        begin, end = max(scatter.low_s, scatter.low_s / factor), min(scatter.high_s, scatter.high_s / factor)
        ends = [_MARGIN + place(begin), _SIZE - _MARGIN - place(begin * factor)]
        ends += [_MARGIN + place(end), _SIZE - _MARGIN - place(end * factor)]
        x1, y1, x2, y2 = (f"{value:.1f}" for value in ends)
        return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#888" {dashes}/>'

    dashed = 'stroke-dasharray="4 4"'
    height = _SIZE + _LINE * len(colours)
    body = [line(1.0, ""), line(1 + _BAND, dashed), line(1 / (1 + _BAND), dashed)]
    for source, name, measured, predicted in scatter.points:
        x, y = _MARGIN + place(measured), _SIZE - _MARGIN - place(predicted)
        body.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[source]}" fill-opacity="0.7">'
            f"<title>{escape(name)}: {predicted / measured - 1:+.1%}</title></circle>"
        )
    body += _axes(scatter, place)
    for i, (source, colour) in enumerate(colours.items()):
        y = _SIZE + _LINE * i
        body.append(f'<circle cx="{_MARGIN}" cy="{y - 4:.1f}" r="5" fill="{colour}"/>')
        body.append(f'<text x="{_MARGIN + 12}" y="{y:.1f}">{escape(source)}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE:.0f} {height:.0f}" font-family="sans-serif" '
        'font-size="13">'
    )
    background = f'<rect width="{_SIZE:.0f}" height="{height:.0f}" fill="white"/>'
    return "\n".join([head, background, *body, "</svg>"]) + "\n"


def _axes(scatter: Scatter, place: Callable[[float], float]) -> Sequence[str]:
    inside = _SIZE - 2 * _MARGIN
    found = [f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{inside}" height="{inside}" fill="none" stroke="#444"/>']
    decades = range(round(math.log10(scatter.low_s)), round(math.log10(scatter.high_s)) + 1)
    for decade in decades:
        at, label = place(10.0**decade), f"{10.0**decade:g} s"
        found.append(f'<text x="{_MARGIN + at:.1f}" y="{_SIZE - _MARGIN + 18}" text-anchor="middle">{label}</text>')
        found.append(f'<text x="{_MARGIN - 6}" y="{_SIZE - _MARGIN - at + 4:.1f}" text-anchor="end">{label}</text>')
    middle = _SIZE / 2
    found.append(f'<text x="{middle}" y="{_SIZE - _MARGIN + 38}" text-anchor="middle">measured</text>')
    found.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">predicted</text>')
    return found
