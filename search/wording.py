"""Numbers and lines as people read them on a terminal; machine-readable output keeps SI units and full precision."""

import math
from collections.abc import Iterable, Mapping, Sequence

LINE = 100
"""Characters of a line of running text."""
_NARROW = "\u202f"
"""A narrow space at which no line breaks."""
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SHORTEST_BAR_SHARE = 1e-4
_BAR_WIDTH = 30


def number(value: float, digits: int = 4) -> str:
    """Return ``value`` with ``digits`` significant digits; from 1000 on in whole numbers with separators."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}{_NARROW}×{_NARROW}10{str(int(exponent)).translate(_RAISED)}"


def seconds(value: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1:
            return f"{number(value * scale)} {unit}"
    return f"{number(value * 1e6)} µs"


def between(low: float, high: float) -> str:
    """Return two times in the unit that suits the longer one: ``2.1 to 2.6 s``."""
    text = seconds(high)
    scale = {"s": 1.0, "ms": 1e3}.get(text.rsplit(" ", 1)[1], 1e6)
    return f"{number(low * scale, 3)} to {number(high * scale, 3)} {text.rsplit(' ', 1)[1]}"


def gigabytes(value: float) -> str:
    """Return bytes in GB (10⁹ bytes)."""
    return f"{number(value / 1e9)} GB"


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{share * 100:.1f} %"


def signed_percent(share: float) -> str:
    """Return a difference in per cent with its sign."""
    return f"{share * 100:+,.1f} %".replace("-", "−")


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 design``, ``2,000 designs``."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


def bars(parts: Mapping[str, float], unit: str | None) -> list[str]:
    """Return parts of a whole with shares and bars; in ``unit``, or seconds in what suits them."""
    total = sum(parts.values())
    return aligned(
        [
            (
                part,
                seconds(value) if unit is None else f"{number(value)} {unit}",
                percent(value / total),
                "█" * round(_BAR_WIDTH * value / total),
            )
            for part, value in parts.items()
            if value > _SHORTEST_BAR_SHARE * total
        ],
        left={0, 3},
    )


def pairs(lines: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and values as aligned lines."""
    return aligned(list(lines), left={0, 1})


def aligned(rows: Sequence[Sequence[str]], *, left: set[int]) -> list[str]:
    """Return rows as lines with aligned columns: those in ``left`` to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
