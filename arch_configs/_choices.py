"""How a design-space file writes the values that one parameter may take.

``8``; ``[8, 12, 16]``; ``{powers_of_two: [1, 4096]}``; ``{from: 0.8 GHz, to: 1.6 GHz, step: 100 MHz}``, with units
where the parameter has a unit. A coupled parameter is written per something else: ``{equal_to: tensor_units.cols}``,
``{per_element: 16 B, at_least: 1 KiB}``, ``{per_cycle: 4 KiB}``; the number may again be a list or range.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from archplace.arch_configs._suggest import close_match
from archplace.arch_configs.accelerator_files import Count
from archplace.arch_configs.files import FileModel
from archplace.arch_configs.space import EDGE, ELEMENTS, Parameter
from archplace.arch_configs.units import Bytes, BytesPerSecond, Hertz

V = TypeVar("V", int, float)

_MOST_VALUES = 10_000


class PowersOfTwo(FileModel, Generic[V]):
    """All powers of two between two of them."""

    powers_of_two: tuple[V, V]

    @model_validator(mode="after")
    def _are_powers(self) -> Self:
        low, high = self.powers_of_two
        if not (_is_power_of_two(low) and _is_power_of_two(high) and low <= high):
            raise ValueError(f"found [{low}, {high}]; allowed: two powers of two, the smaller first, such as [1, 4096]")
        return self

    def values(self) -> tuple[float, ...]:
        """Return the values, rising."""
        low, high = (int(value) for value in self.powers_of_two)
        return tuple(float(2**e) for e in range(low.bit_length() - 1, high.bit_length()))


def _is_power_of_two(value: float) -> bool:
    return value >= 1 and int(value) == value and int(value).bit_count() == 1


class Range(FileModel, Generic[V]):
    """Evenly spaced values from one end up, with the other end if the last step reaches it."""

    low: V = Field(alias="from")
    high: V = Field(alias="to")
    step: V

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"found 'to' {self.high:g}, which is below 'from' {self.low:g}; exchange them")
        if (self.high - self.low) / self.step >= _MOST_VALUES:
            raise ValueError(f"found 'step' {self.step:g}; allowed: a step that gives at most {_MOST_VALUES:,} values")
        return self

    def values(self) -> tuple[float, ...]:
        """Return the values, rising."""
        # As fractions of the shortest decimals, so that 0.8 to 1.6 in steps of 0.1 ends at 1.6 and not just before.
        low, high, step = (Fraction(repr(value)) for value in (self.low, self.high, self.step))
        return tuple(float(low + i * step) for i in range(int((high - low) / step) + 1))


def _values(choice: int | float | Sequence[float] | PowersOfTwo[int] | Range[int] | Range[float]) -> tuple[float, ...]:
    if isinstance(choice, PowersOfTwo | Range):
        return choice.values()
    return (float(choice),) if isinstance(choice, int | float) else tuple(float(value) for value in choice)


def _distinct(values: tuple[V, ...]) -> tuple[V, ...]:
    seen: set[V] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"found {value:g} more than once; each value may stand once: remove the repetition")
        seen.add(value)
    return values


def _shape(*couplings: str) -> Discriminator:
    """Tell the ways to write a choice apart by type and key, so that a mistake is judged against the way meant.

    ``couplings`` are the keys that mark ways besides value, list, powers of two and range.
    """
    marks = {"powers_of_two": "<powers>", "from": "<range>", "to": "<range>", "step": "<range>"}
    marks |= {coupling: f"<{coupling}>" for coupling in couplings}

    def shape(value: object) -> str:
        if isinstance(value, list | tuple):
            return "<list>"
        if not isinstance(value, dict):
            return "<value>"
        exact = [key for key in value if key in marks]
        meant = exact or [match for key in value if (match := close_match(key, marks)) is not None]
        return marks[meant[0]] if meant else "<range>"

    return Discriminator(shape)


_LIST = (Field(min_length=1, max_length=_MOST_VALUES), AfterValidator(_distinct), Tag("<list>"))

BytesChoice: TypeAlias = Annotated[
    Annotated[Bytes, Tag("<value>")]
    | Annotated[tuple[Bytes, ...], *_LIST]
    | Annotated[PowersOfTwo[Bytes], Tag("<powers>")]
    | Annotated[Range[Bytes], Tag("<range>")],
    _shape(),
]
"""Capacities."""


class EqualTo(FileModel):
    """The same value as another parameter."""

    equal_to: Literal["tensor_units.count", "tensor_units.rows", "tensor_units.cols", "vector_units.count"]


class PerElement(FileModel):
    """So many bytes per array element of a tensor unit."""

    per_element: BytesChoice
    at_least: Bytes | None = None


class PerLane(FileModel):
    """So many bytes per lane of a vector unit."""

    per_lane: BytesChoice
    at_least: Bytes | None = None


class PerCycle(FileModel):
    """So many bytes per cycle of the clock."""

    per_cycle: BytesChoice


class PerCycleAndEdge(FileModel):
    """So many bytes per cycle of the clock for each of the rows + cols elements along the edges of an array."""

    per_cycle_and_edge_element: BytesChoice


CountChoice: TypeAlias = Annotated[
    Annotated[Count, Tag("<value>")]
    | Annotated[tuple[Count, ...], *_LIST]
    | Annotated[PowersOfTwo[Count], Tag("<powers>")]
    | Annotated[Range[Count], Tag("<range>")]
    | Annotated[EqualTo, Tag("<equal_to>")],
    _shape("equal_to"),
]
"""Numbers of things."""
TensorBufferChoice: TypeAlias = Annotated[
    Annotated[Bytes, Tag("<value>")]
    | Annotated[tuple[Bytes, ...], *_LIST]
    | Annotated[PowersOfTwo[Bytes], Tag("<powers>")]
    | Annotated[Range[Bytes], Tag("<range>")]
    | Annotated[PerElement, Tag("<per_element>")],
    _shape("per_element"),
]
"""Capacities of a tensor unit's buffer."""
VectorBufferChoice: TypeAlias = Annotated[
    Annotated[Bytes, Tag("<value>")]
    | Annotated[tuple[Bytes, ...], *_LIST]
    | Annotated[PowersOfTwo[Bytes], Tag("<powers>")]
    | Annotated[Range[Bytes], Tag("<range>")]
    | Annotated[PerLane, Tag("<per_lane>")],
    _shape("per_lane"),
]
"""Capacities of a vector unit's buffer."""
HertzChoice: TypeAlias = Annotated[
    Annotated[Hertz, Tag("<value>")] | Annotated[tuple[Hertz, ...], *_LIST] | Annotated[Range[Hertz], Tag("<range>")],
    _shape(),
]
"""Clocks."""
HbmBandwidthChoice: TypeAlias = Annotated[
    Annotated[BytesPerSecond, Tag("<value>")]
    | Annotated[tuple[BytesPerSecond, ...], *_LIST]
    | Annotated[Range[BytesPerSecond], Tag("<range>")],
    _shape(),
]
"""Bandwidths that have nothing to do with the clock."""
BandwidthChoice: TypeAlias = Annotated[
    Annotated[BytesPerSecond, Tag("<value>")]
    | Annotated[tuple[BytesPerSecond, ...], *_LIST]
    | Annotated[Range[BytesPerSecond], Tag("<range>")]
    | Annotated[PerCycle, Tag("<per_cycle>")]
    | Annotated[PerCycleAndEdge, Tag("<per_cycle_and_edge_element>")],
    _shape("per_cycle", "per_cycle_and_edge_element"),
]
"""Bandwidths, or bytes per cycle."""

AnyChoice: TypeAlias = (
    CountChoice | TensorBufferChoice | VectorBufferChoice | HertzChoice | HbmBandwidthChoice | BandwidthChoice
)


def to_parameter(name: str, choice: AnyChoice, *, per: tuple[str, ...] = ()) -> Parameter:
    """Return what a file wrote for the parameter ``name``, in SI; ``per`` is what the file's key implies."""
    match choice:
        case EqualTo():
            return Parameter(name=name, values=(1.0,), per=(choice.equal_to,))
        case PerElement():
            least = float(choice.at_least or 0)
            return Parameter(name=name, values=_values(choice.per_element), per=(ELEMENTS,), at_least=least)
        case PerLane():
            least = float(choice.at_least or 0)
            return Parameter(name=name, values=_values(choice.per_lane), per=("vector_units.lanes",), at_least=least)
        case PerCycle():
            return Parameter(name=name, values=_values(choice.per_cycle), per=("clock",))
        case PerCycleAndEdge():
            return Parameter(name=name, values=_values(choice.per_cycle_and_edge_element), per=("clock", EDGE))
        case _:
            return Parameter(name=name, values=_values(choice), per=per)
