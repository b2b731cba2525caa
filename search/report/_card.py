"""The building blocks of the page: cards, commands, figures."""

from plotly import graph_objects as go

from archplace.search.report._html import Child, Html, element, json_script


def card(identifier: str, title: str, how_to_read: str, *content: Child) -> Html:
    """Return a section with a title and one sentence that teaches how to read it."""
    return element(
        "section",
        element("h2", title, id=f"{identifier}-title"),
        element("p", how_to_read, class_="how"),
        *content,
        id=identifier,
        class_="card",
        aria_labelledby=f"{identifier}-title",
    )


def empty(reason: str) -> Html:
    """Return why a card has nothing to show."""
    return element("p", reason, class_="why-not")


def command(words: str) -> Html:
    """Return an archplace command; in the page ``DIR`` becomes the run's folder where that is known."""
    return element("code", f"archplace {words}", class_="command", data_words=words)


def facts(*pairs: tuple[str, Child]) -> Html:
    """Return a list of names and values."""
    return element("dl", [(element("dt", name), element("dd", value)) for name, value in pairs], class_="facts")


def figure(identifier: str, drawing: go.Figure, summary: str, *below: Child) -> Html:
    """Return a figure that the page's script draws, with ``summary`` as its caption and its text for screen readers."""
    return element(
        "figure",
        element(
            "div",
            element("p", "This figure needs JavaScript; the tables hold the same numbers.", class_="why-not"),
            id=identifier,
            class_="plot",
            role="img",
            aria_label=summary,
            style=f"min-height:{drawing.layout.height}px",
        ),
        json_script(f"{identifier}-data", drawing.to_plotly_json()),
        element("figcaption", summary),
        *below,
    )
