"""The report as one HTML file that needs no network."""

from importlib.resources import files

from plotly.offline import get_plotlyjs

from archplace import __version__
from archplace.search.points import PointView, Row, views
from archplace.search.report._answer import answer_card, why_card
from archplace.search.report._format import cell, heading
from archplace.search.report._front import front_card, objectives_card
from archplace.search.report._html import Html, element, join, json_script
from archplace.search.report._placement import placement_card
from archplace.search.report._record import explored_card, header, health_card, table_card
from archplace.search.report.contents import Contents
from archplace.search.report.front_plot import closest_dominated

SECTIONS = (
    ("answer", "Answer"),
    ("front", "Front"),
    ("objectives", "Objectives"),
    ("why", "Why"),
    ("placement", "Placement and schedule"),
    ("explored", "Explored"),
    ("health", "Health"),
    ("designs", "Designs"),
)

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""What a browser may load: nothing that is not in the file itself."""


def write_page(contents: Contents, *, beside_run: bool) -> str:
    """Return the page. ``beside_run`` says that it will lie in the run's folder, whose name it can then show.

    The same run gives the same text: nothing of the folder, the machine or the time is in it.
    """
    title = f"archplace: {contents.result.run.name}"
    sections = [
        element("li", element("a", name, href=f"#{identifier}"))
        for identifier, name in SECTIONS
        if identifier != "objectives" or len(contents.result.outcome.objectives) > 2
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(_asset("page.css"))),
        element("script", Html(get_plotlyjs())),
    )
    body = element(
        "body",
        element("header", *header(contents), element("nav", element("ul", sections), aria_label="Sections")),
        element(
            "main",
            answer_card(contents),
            front_card(contents),
            objectives_card(contents),
            why_card(contents),
            placement_card(contents),
            explored_card(contents),
            health_card(contents),
            table_card(contents),
        ),
        element("footer", element("p", f"archplace {__version__}. {contents.note}")),
        json_script("page-data", _page_data(contents, beside_run=beside_run)),
        element("script", Html(_asset("page.js"))),
    )
    return join([Html("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), Html("\n")])


def _asset(name: str) -> str:
    return files("archplace.search.report").joinpath(name).read_text(encoding="utf-8")


def _page_data(contents: Contents, *, beside_run: bool) -> dict[str, object]:
    """Return what the page's script knows: every evaluated design, and which one it shows first."""
    outcome = contents.result.outcome
    dominated = views(contents.result, closest_dominated(outcome))
    baseline = [contents.baseline] if contents.baseline is not None else []
    return {
        "beside_run": beside_run,
        "first": str(contents.picks[0].point.id) if contents.picks else None,
        "points": {
            "front": _fields(list(zip(contents.front, contents.rows, strict=True))),
            "dominated": _fields([(point, _known(point)) for point in dominated]),
            "baseline": _fields([(point, point.row()) for point in baseline]),
        },
    }


def _known(point: PointView) -> Row:
    """Return what is known of a dominated design without explaining it."""
    by = point.dominated_by
    return {
        **point.known(),
        "dominated_by": None if by is None else str(by.id),
    }


def _fields(rows: list[tuple[PointView, Row]]) -> dict[str, object]:
    columns = [column for column in (rows[0][1] if rows else {}) if column != "id"]
    return {
        "headings": [heading(column) for column in columns],
        "rows": {str(point.id): [cell(column, row[column]) for column in columns] for point, row in rows},
    }
