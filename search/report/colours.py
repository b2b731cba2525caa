"""Colours that differ for every kind of colour vision (Okabe and Ito, "Color Universal Design", 2008), and layout."""

from collections.abc import Iterable, Mapping

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT_GREY = "#8C8C8C", "#BDBDBD"

PART_STYLE: dict[str, tuple[str, str]] = {
    "tensor compute": (BLUE, ""),
    "vector compute": (SKY, ""),
    "on-chip memory": (YELLOW, ""),
    "HBM": (ORANGE, ""),
    "fill and drain": (PURPLE, ""),
    "recomputation": (BLUE, "/"),
    "tensor-parallel communication": (GREEN, ""),
    "context-parallel communication": (GREEN, "x"),
    "expert-parallel communication": (GREEN, "."),
    "state exchange": (VERMILLION, "x"),
    "host transfers": (ORANGE, "x"),
    "pipeline transfers": (GREEN, "/"),
    "pipeline bubble": (LIGHT_GREY, ""),
    "gradient reduction": (VERMILLION, ""),
    "parameter gathering": (VERMILLION, "/"),
    "optimizer step": (GREY, "x"),
}
"""Part of a step to (colour, pattern). There are more parts than colours that everybody can tell apart: a colour is a
kind of work, such as computing, exchanges within a layer or exchanges between replicas, and patterns tell its parts
apart."""

ENERGY_STYLE: dict[str, tuple[str, str]] = {
    "tensor arrays": (BLUE, ""),
    "vector lanes": (SKY, ""),
    "local buffers": (YELLOW, "/"),
    "global buffer": (YELLOW, ""),
    "HBM": (ORANGE, ""),
    "network": (GREEN, ""),
    "static power": (GREY, ""),
    "host": (LIGHT_GREY, ""),
}
"""Part of the energy to (colour, pattern); what is also a part of the time has the same colour."""

AREA_STYLE: dict[str, tuple[str, str]] = {
    "tensor_units": (BLUE, ""),
    "tensor_buffers": (BLUE, "/"),
    "vector_units": (SKY, ""),
    "vector_buffers": (SKY, "/"),
    "control": (PURPLE, ""),
    "fp64": (PURPLE, "/"),
    "global_buffer": (YELLOW, ""),
    "hbm_phy": (ORANGE, ""),
    "interfaces": (GREEN, ""),
    "fixed_function": (LIGHT_GREY, ""),
    "overhead": (GREY, "x"),
}
"""Component of the area to (colour, pattern); buffers have the colour of their units."""

MEMORY_STYLE: dict[str, str] = {
    "weights": BLUE,
    "gradients": SKY,
    "optimizer": ORANGE,
    "activations": GREEN,
}

FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif", "size": 13}

AXIS: dict[str, object] = {"zeroline": False, "title": {"font": {"size": 13}, "standoff": 8}}
LEGEND: dict[str, object] = {
    "orientation": "h",
    "yref": "container",
    "y": 0,
    "yanchor": "bottom",
    "x": 0,
    "traceorder": "normal",
    "title": {"font": {"size": 13}},
}
"""Below the figure; the bottom margin keeps it clear of the axis."""

_ENTRY_WIDTH, _LETTER_WIDTH, _ENTRY_HEIGHT = 48, 7, 20
"""Pixels of a legend's entry without its name, of a letter, and of a row of entries."""

LAYOUT: dict[str, object] = {
    "template": "none",
    "font": FONT,
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "hoverlabel": {"align": "left"},
    "separators": ".,",
    "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": LIGHT_GREY, "activecolor": GREY},
}
"""What all figures share; the page sets text and grid colours for light, dark and print."""


def legend_room(names: Iterable[str], *, width: int = 640) -> int:
    """Return the pixels that a legend below a figure needs; its columns are as wide as the longest name.

    ``width`` in pixels is what half a screen leaves beside the labels: on a wider one some of the room stays empty.
    """
    lengths = [len(name) for name in names]
    columns = max(1, width // (_ENTRY_WIDTH + _LETTER_WIDTH * max(lengths, default=0)))
    return _ENTRY_HEIGHT * -(-len(lengths) // columns)


def plain(text: str) -> str:
    """Return ``text`` for a figure, whose labels would take some HTML for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def filled(part: str, styles: Mapping[str, tuple[str, str]] = PART_STYLE) -> dict[str, object]:
    """Return the marker of a part of the step, or of what ``styles`` has."""
    colour, pattern = styles[part]
    return {"color": colour, "pattern": {"shape": pattern, "bgcolor": colour, "fgcolor": "#FFFFFF", "size": 6}}
