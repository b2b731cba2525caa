"""Quantities with units, as people write them in files: ``"16 MiB"``, ``"900 GB/s"``, ``"1.05 GHz"``, ``"700 ns"``.

Inside the program everything is SI. A number without a unit is SI as well, except for areas, where nobody means square
metres. Prefixes are as written: ``k``, ``M``, ``G``, ``T`` are powers of 1000 and ``Ki``, ``Mi``, ``Gi``, ``Ti`` powers
of 1024; ``B`` is a byte and ``b`` or ``bit`` a bit.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator

from archplace.arch_configs._suggest import clip, close_match, describe, listing

__all__ = [
    "AREA",
    "BYTES",
    "BYTES_PER_SECOND",
    "FREQUENCY",
    "POWER",
    "TIME",
    "Bytes",
    "BytesPerSecond",
    "Dimension",
    "Hertz",
    "Seconds",
    "SecondsOrZero",
    "SquareMillimetres",
    "SquareMillimetresOrZero",
    "Watts",
    "format_bytes",
    "format_bytes_per_s",
    "format_quantity",
    "parse_quantity",
]

_QUANTITY = re.compile(
    r"([-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?)\s*([A-Za-zµμ][A-Za-zµμ/^²2]*)?", re.ASCII
)

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_BYTES = {f"{prefix}B": Fraction(factor) for prefix, factor in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}{bit}": Fraction(factor, 8) for prefix, factor in _DECIMAL.items() for bit in ("b", "bit")}
_SMALL = {"m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "µ": Fraction(1, 10**6), "μ": Fraction(1, 10**6)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A kind of quantity and the units that it may be written in."""

    name: str
    units: Mapping[str, Fraction]
    """Unit to its factor to the unit used inside."""
    examples: str
    inside: str
    """The unit used inside: what :func:`parse_quantity` returns."""
    bare: bool = True
    """Whether a number without a unit is accepted, and then is in the unit used inside."""
    whole: bool = False
    """Whether only whole numbers of the inside unit make sense."""


BYTES = Dimension(name="capacity", units=_BYTES, examples="'16 MiB', '80 GB' or bytes", inside="B", whole=True)
BYTES_PER_SECOND = Dimension(
    name="bandwidth",
    units={f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()},
    examples="'900 GB/s', '200 Gb/s' (bits) or bytes per second",
    inside="B/s",
)
FREQUENCY = Dimension(
    name="frequency",
    units={f"{prefix}Hz": Fraction(factor) for prefix, factor in _DECIMAL.items()},
    examples="'1.05 GHz' or hertz",
    inside="Hz",
)
TIME = Dimension(
    name="time",
    units={"s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}
    | {f"{prefix}s": factor for prefix, factor in _SMALL.items()}
    | {"ns": Fraction(1, 10**9), "ps": Fraction(1, 10**12)},
    examples="'700 ns', '2 us' or seconds",
    inside="s",
)
POWER = Dimension(
    name="power",
    units={"mW": Fraction(1, 1000), "W": Fraction(1), "kW": Fraction(1000), "MW": Fraction(10**6)},
    examples="'400 W' or watts",
    inside="W",
)
AREA = Dimension(
    name="area",
    units={
        f"{prefix}{suffix}": factor
        for prefix, factor in {
            "mm": Fraction(1),
            "cm": Fraction(100),
            "um": Fraction(1, 10**6),
            "µm": Fraction(1, 10**6),
            "μm": Fraction(1, 10**6),
        }.items()
        for suffix in ("2", "^2", "²")
    },
    examples="'850 mm2' or '760 um2'",
    inside="mm2",
    bare=False,
)


def parse_quantity(value: object, dimension: Dimension, *, zero: bool = False) -> float | int:
    """Return ``value`` (text with a unit, or a number) in the unit that ``dimension`` uses inside.

    Exactly rounded: ``"0.1 GB"`` is 100000000 bytes. Raises :class:`ValueError`, with what is allowed, for another
    unit, text that is no quantity, NaN, infinity, a negative number, and zero unless ``zero`` is set.
    """
    wanted = f"allowed: {dimension.name} such as {dimension.examples}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"found {describe(value)}; {wanted}")
    if isinstance(value, str):
        number, unit = _split(value, dimension, wanted)
    else:
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"found {value}; {wanted}")
        number, unit = Fraction(value), ""
    if not unit and not dimension.bare:
        raise ValueError(f"found {clip(value)} without a unit; write '{value} {dimension.inside}'")
    exact = number * (dimension.units[unit] if unit else 1)
    if exact < 0 or (exact == 0 and not zero):
        raise ValueError(f"found {clip(value)}, which is {'negative' if exact < 0 else 'zero'}; {wanted}")
    if dimension.whole:
        if exact.denominator != 1:
            raise ValueError(f"found {clip(value)}, which is not a whole number of {dimension.inside}")
        if exact >= 2**63:
            raise ValueError(f"found {clip(value)}, which is too large; {wanted}")
        return int(exact)
    try:
        result = float(exact)
    except OverflowError:
        raise ValueError(f"found {clip(value)}, which is too large; {wanted}") from None
    if result == 0 and exact != 0:
        raise ValueError(f"found {clip(value)}, which is too small; {wanted}")
    return result


def _split(text: str, dimension: Dimension, wanted: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"found the text {clip(text)}; {wanted}")
    number, unit = match[1], (match[2] or "").strip()
    if unit and unit not in dimension.units:
        # Upper and lower case differ in meaning (Gb, GB), so all spellings of the same letters are offered.
        same = [known for known in dimension.units if known.lower() == unit.lower()]
        near = same or [known for known in [close_match(unit, dimension.units)] if known is not None]
        meant = f"did you mean {' or '.join(repr(known) for known in near)}? " if near else ""
        raise ValueError(
            f"found the unit {clip(unit)}; {meant}allowed units of {dimension.name}: {listing(dimension.units)}"
        )
    return Fraction(number), unit


def _reader(dimension: Dimension, *, zero: bool = False) -> Callable[[object], float | int]:
    def read(value: object) -> float | int:
        return parse_quantity(value, dimension, zero=zero)

    return read


Bytes = Annotated[int, BeforeValidator(_reader(BYTES))]
"""A positive whole number of bytes: ``16 MiB``, ``80 GB``, ``1048576``."""
BytesPerSecond = Annotated[float, BeforeValidator(_reader(BYTES_PER_SECOND))]
"""A positive bandwidth in bytes per second: ``900 GB/s``, ``200 Gb/s``."""
Hertz = Annotated[float, BeforeValidator(_reader(FREQUENCY))]
"""A positive frequency in hertz: ``1.05 GHz``."""
Seconds = Annotated[float, BeforeValidator(_reader(TIME))]
"""A positive time in seconds: ``700 ns``."""
SecondsOrZero = Annotated[float, BeforeValidator(_reader(TIME, zero=True))]
"""A time in seconds that may be zero."""
Watts = Annotated[float, BeforeValidator(_reader(POWER))]
"""A positive power in watts: ``400 W``."""
SquareMillimetres = Annotated[float, BeforeValidator(_reader(AREA))]
"""A positive area in mm²: ``850 mm2``, ``760 um2``; the unit is required."""
SquareMillimetresOrZero = Annotated[float, BeforeValidator(_reader(AREA, zero=True))]
"""An area in mm² that may be zero."""


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def format_bytes(capacity_bytes: float) -> str:
    """Return a capacity with the unit that shows it shortest: ``16 MiB``, ``80 GB``, ``512 B``.

    Powers of 1000 where they make a round number, powers of 1024 otherwise, to four digits.
    """
    sizes = {unit: int(factor) for unit, factor in _BYTES.items()}
    fitting = [unit for unit, factor in sizes.items() if abs(capacity_bytes) >= factor]
    exact = [unit for unit in fitting if capacity_bytes % sizes[unit] == 0]
    if exact:
        best = max(exact, key=lambda unit: sizes[unit])
        if capacity_bytes / sizes[best] < 10_000:
            return f"{int(capacity_bytes // sizes[best])} {best}"
    binary = [unit for unit in fitting if unit == "B" or unit[1:2] == "i"]
    unit = max(binary, key=lambda unit: sizes[unit]) if binary else "B"
    return f"{_short(capacity_bytes / sizes[unit])} {unit}"


def format_bytes_per_s(bandwidth_bytes_per_s: float) -> str:
    """Return a bandwidth to four digits: ``900 GB/s``."""
    return format_quantity(bandwidth_bytes_per_s, BYTES_PER_SECOND)


_SHOWN = {
    "B": ("TB", "GB", "MB", "kB", "B"),
    "B/s": ("TB/s", "GB/s", "MB/s", "kB/s", "B/s"),
    "Hz": ("GHz", "MHz", "kHz", "Hz"),
    "s": ("s", "ms", "us", "ns", "ps"),
    "W": ("MW", "kW", "W", "mW"),
    "mm2": ("mm2", "um2"),
}


def format_quantity(value: float, dimension: Dimension) -> str:
    """Return ``value``, in the unit used inside, to four digits in the largest unit in which it is at least 1."""
    units = _SHOWN[dimension.inside]
    unit = next((unit for unit in units if abs(value) >= dimension.units[unit]), units[-1])
    if value == 0:
        unit = dimension.inside
    return f"{_short(value / float(dimension.units[unit]))} {unit}"
