"""Write HTML: elements whose text is escaped unless it is markup already."""

import html
import json
from collections.abc import Collection, Iterable

_VOID = frozenset({"meta", "input", "br", "hr", "wbr"})


class Html(str):
    """Text that is markup already; any other text is escaped where it enters an element."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def element(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """Return ``<name …>children</name>``.

    A child is text (escaped), :class:`Html`, None (nothing) or an iterable of children. Attribute names lose a trailing
    underscore and write the others as hyphens (``class_``, ``aria_label``); True gives a bare attribute, None and False
    none.
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        written.append(f" {label}" if value is True else f' {label}="{html.escape(str(value))}"')
    start = f"<{name}{''.join(written)}>"
    return Html(start) if name in _VOID else Html(f"{start}{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Return the children one after the other."""
    return Html("".join(_text(child) for child in children))


def json_script(identifier: str, data: object) -> Html:
    """Return ``data`` as JSON that a script of the page reads; nothing in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", Html(text), type="application/json", id=identifier)


def table(
    caption: str, headings: Iterable[str], rows: Iterable[Iterable[str]], *, numeric: Collection[int] = ()
) -> Html:
    """Return a table whose first column heads its rows; the columns ``numeric`` (from 0) are aligned as numbers."""

    def align(column: int) -> str | None:
        return "number" if column in numeric else None

    head = element(
        "tr",
        [element("th", heading, scope="col", class_=align(column)) for column, heading in enumerate(headings)],
    )
    body = []
    for row in rows:
        first, *rest = row
        cells = [element("th", first, scope="row")]
        cells += [element("td", cell, class_=align(column)) for column, cell in enumerate(rest, start=1)]
        body.append(element("tr", cells))
    whole = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", body),
    )
    return element("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return child if isinstance(child, Html) else html.escape(child, quote=False)
    return join(child)
