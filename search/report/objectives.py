"""Objectives as people read them: names, units, directions, and values of design points as axes show them."""

from collections.abc import Sequence
from dataclasses import dataclass

from archplace.search.objectives import Objective, Objectives
from archplace.search.points import OBJECTIVE_COLUMNS, PointView
from archplace.search.wording import number

_TWO_DECADES = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One objective as an axis."""

    objective: Objective
    name: str
    unit: str
    maximise: bool
    scale: float = 1.0
    """What the value is multiplied by to be in ``unit``."""

    @property
    def title(self) -> str:
        """Name and unit."""
        return f"{self.name} ({self.unit})"

    @property
    def column(self) -> str:
        """The column of rows that holds the value."""
        return OBJECTIVE_COLUMNS[self.objective]

    def of(self, point: PointView) -> float:
        """Return the value of a point in :attr:`unit`; NaN where it is not known."""
        value = point.value(self.objective)
        return float("nan") if value is None else value * self.scale

    def shown(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return values that the search minimises as the axis shows them."""
        rate = self.objective in (Objective.THROUGHPUT, Objective.WORST_CASE)
        return tuple((1 / value if rate else value) * self.scale for value in values)

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{number(value)} {self.unit}"


_AXES = {
    Objective.THROUGHPUT: ("throughput", "samples/s", True, 1.0),
    Objective.WORST_CASE: ("worst relative throughput", "%", True, 100.0),
    Objective.ENERGY: ("energy", "J/sample", False, 1.0),
    Objective.COST: ("cost", "USD/sample", False, 1.0),
    Objective.POWER: ("peak power", "W", False, 1.0),
    Objective.AREA: ("area", "mm²", False, 1.0),
}

_MEANS = (Objective.THROUGHPUT, Objective.ENERGY, Objective.COST)


def axis(objective: Objective, *, several: bool = False) -> Axis:
    """Return an objective as an axis; with ``several`` workloads it says where it is a mean."""
    name, unit, maximise, scale = _AXES[objective]
    if several and objective in _MEANS:
        name += ", geometric mean"
    return Axis(objective=objective, name=name, unit=unit, maximise=maximise, scale=scale)


def axes(objectives: Objectives, *, several: bool = False) -> tuple[Axis, ...]:
    """Return all objectives of a run as axes."""
    return tuple(axis(name, several=several) for name in objectives.names)


def plane(objectives: Objectives, *, several: bool = False) -> tuple[Axis, Axis] | None:
    """Return the two objectives that one picture shows, across and up; None where there is only one.

    Area against throughput where both are objectives, else the second objective against the first.
    """
    if Objective.THROUGHPUT in objectives and Objective.AREA in objectives:
        up, across = Objective.THROUGHPUT, Objective.AREA
    elif len(objectives) > 1:
        up, across = objectives.names[:2]
    else:
        return None
    return axis(across, several=several), axis(up, several=several)


def in_words(objectives: Objectives) -> str:
    """Return the objectives' names as in a sentence."""
    names = [_AXES[name][0] for name in objectives.names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def spans_decades(values: Sequence[float]) -> bool:
    """Return whether positive values span more than two decades, so that an axis should be logarithmic."""
    positive = [value for value in values if value > 0]
    return len(positive) > 1 and max(positive) / min(positive) > _TWO_DECADES
