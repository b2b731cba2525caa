"""Design spaces: which accelerators may be, enumerated into columns under an area budget.

A space is a list of parameters, each with the values it may take. A parameter may be expressed *per* something else: a
buffer per array element, a bandwidth per cycle, lanes per array column; such a parameter is coupled, not independent.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray, IntArray
from archplace.arch_configs.area import Resources, area_mm2, sixteen_bit_rate
from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration
from archplace.arch_configs.errors import ConfigError, InfeasibleError
from archplace.arch_configs.technology import Technology
from archplace.arch_configs.units import format_bytes

AREA_PARAMETERS = (
    "tensor_units.count",
    "vector_units.count",
    "tensor_units.rows",
    "tensor_units.cols",
    "tensor_units.local_buffer",
    "vector_units.lanes",
    "vector_units.local_buffer",
    "global_buffer.capacity",
    "hbm.stacks",
)
"""The parameters that have an area; the first varies slowest in the enumeration."""
FREE_PARAMETERS = (
    "clock",
    "tensor_units.local_bandwidth",
    "global_buffer.bandwidth",
    "hbm.capacity",
    "hbm.bandwidth",
)
"""The parameters that have none; they vary faster than those that have."""
PARAMETERS = AREA_PARAMETERS + FREE_PARAMETERS

ELEMENTS = "tensor_units.elements"
"""Rows times columns: what a parameter may be expressed per, besides other parameters."""
EDGE = "tensor_units.edge"
"""Rows plus columns: the array elements that take part in a stream of operands or results."""

_BLOCK = 1 << 17
_MOST_ARCHITECTURES = 20_000_000
# Rounding may put an architecture that equals the budget's reference a hair beside it.
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: ``max(value · product of what it is per, at_least)`` for each of its ``values``."""

    name: str
    """One of :data:`PARAMETERS`."""
    values: tuple[float, ...]
    """In SI units, or SI units per what ``per`` names."""
    per: tuple[str, ...] = ()
    """Names of other parameters, :data:`ELEMENTS` or :data:`EDGE`."""
    at_least: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignSpace:
    """All combinations of the parameters' values whose area is within the budget."""

    name: str
    parameters: tuple[Parameter, ...]
    """One for each of :data:`PARAMETERS`, in that order."""
    macs_per_element_per_cycle: Mapping[str, float]
    """Multiply-accumulates of an array element per cycle, by precision; the same for all."""
    hbm_separate_ports: bool
    technology: Technology
    area_max_mm2: float | None
    """Largest area allowed; None for no limit."""
    area_min_fraction: float
    """Smallest area allowed as a fraction of the largest."""
    waive_min_for_single_units: bool
    """Whether the smallest area is waived for architectures with a single tensor or a single vector unit (PHAZE)."""
    sources: Mapping[str, str]
    blocks: Blocks | None = None
    """How kernels cut products on every architecture; None where any division over the units will do."""
    calibration: Calibration = NOMINAL
    """What kernels reach of the rates, on every architecture."""

    @property
    def n_raw(self) -> int:
        """Number of combinations before the area budget."""
        return prod(len(parameter.values) for parameter in self.parameters)

    def enumerate(self) -> Architectures:
        """Return the architectures within the area budget, in a fixed order.

        The first of :data:`PARAMETERS` varies slowest and each takes its values in the order given. Memory is
        proportional to the architectures that remain; a column that is constant takes none.

        Raises :class:`InfeasibleError` if none is within the budget, with the nearest area and who has it, and
        :class:`ConfigError` if more than twenty million are.
        """
        kept, areas = self._within_budget()
        free = [parameter for parameter in self.parameters if parameter.name in FREE_PARAMETERS]
        repeats = prod(len(parameter.values) for parameter in free)
        if len(kept) * repeats > _MOST_ARCHITECTURES:
            raise ConfigError(
                f"the design space {self.name!r} has {len(kept) * repeats:,} architectures within its area budget; at "
                f"most {_MOST_ARCHITECTURES:,} are allowed: take fewer values per parameter or a narrower budget"
            )
        index = (kept[:, None] * repeats + np.arange(repeats)).ravel()
        columns = _Columns(self.parameters, index)
        n = len(index)

        def whole(name: str) -> IntArray:
            return np.broadcast_to(columns[name].astype(np.int64), (n,))

        def real(name: str) -> FloatArray:
            return np.broadcast_to(columns[name], (n,))

        return Architectures(
            clock_hz=real("clock"),
            tensor_count=whole("tensor_units.count"),
            tensor_rows=whole("tensor_units.rows"),
            tensor_cols=whole("tensor_units.cols"),
            tensor_macs_per_element={
                precision: np.broadcast_to(np.float64(rate), (n,))
                for precision, rate in self.macs_per_element_per_cycle.items()
            },
            tensor_local_bytes=whole("tensor_units.local_buffer"),
            tensor_local_bytes_per_s=real("tensor_units.local_bandwidth"),
            vector_count=whole("vector_units.count"),
            vector_lanes=whole("vector_units.lanes"),
            vector_local_bytes=whole("vector_units.local_buffer"),
            global_buffer_bytes=whole("global_buffer.capacity"),
            global_buffer_bytes_per_s=real("global_buffer.bandwidth"),
            hbm_bytes=whole("hbm.capacity"),
            hbm_bytes_per_s=real("hbm.bandwidth"),
            hbm_separate_ports=np.broadcast_to(np.bool_(self.hbm_separate_ports), (n,)),
            hbm_stacks=whole("hbm.stacks"),
            area_mm2=areas if repeats == 1 else np.repeat(areas, repeats),
            blocks=self.blocks,
            calibration=self.calibration,
        )

    def _within_budget(self) -> tuple[NDArray[np.int64], FloatArray]:
        """Return index (in mixed radix, area parameters only) and area of the combinations that the budget allows."""
        kept: list[NDArray[np.int64]] = []
        areas: list[FloatArray] = []
        smallest, largest = (np.inf, 0), (-np.inf, 0)
        total = 0
        for index, columns, area in self._blocks():
            low, high = int(np.argmin(area)), int(np.argmax(area))
            smallest = min(smallest, (float(area[low]), int(index[low])))
            largest = max(largest, (float(area[high]), int(index[high])))
            fits = self._fits(columns, area)
            kept.append(index[fits])
            areas.append(area[fits])
            total += len(kept[-1])
            if total > _MOST_ARCHITECTURES:
                raise ConfigError(
                    f"the design space {self.name!r} has more than {_MOST_ARCHITECTURES:,} architectures within its "
                    "area budget: take fewer values per parameter or a narrower budget"
                )
        if total == 0:
            raise InfeasibleError(self._nothing_fits(smallest, largest))
        return np.concatenate(kept), np.concatenate(areas)

    def _blocks(self) -> Iterator[tuple[NDArray[np.int64], "_Columns", FloatArray]]:
        parameters = [parameter for parameter in self.parameters if parameter.name in AREA_PARAMETERS]
        n = prod(len(parameter.values) for parameter in parameters)
        for start in range(0, n, _BLOCK):
            index = np.arange(start, min(start + _BLOCK, n), dtype=np.int64)
            columns = _Columns(tuple(parameters), index)
            yield index, columns, np.broadcast_to(self._area(columns), index.shape)

    def _area(self, columns: "_Columns") -> FloatArray:
        def whole(name: str) -> IntArray:
            return columns[name].astype(np.int64)

        rates = {name: np.float64(rate) for name, rate in self.macs_per_element_per_cycle.items()}
        resources = Resources(
            tensor_count=whole("tensor_units.count"),
            tensor_elements=whole(ELEMENTS),
            tensor_macs_per_element=sixteen_bit_rate({name: np.asarray(rate) for name, rate in rates.items()}),
            tensor_local_bytes=whole("tensor_units.local_buffer"),
            vector_count=whole("vector_units.count"),
            vector_lanes=whole("vector_units.lanes"),
            vector_local_bytes=whole("vector_units.local_buffer"),
            global_buffer_bytes=whole("global_buffer.capacity"),
            hbm_stacks=whole("hbm.stacks"),
        )
        return area_mm2(resources, self.technology)

    def _fits(self, columns: "_Columns", area: FloatArray) -> NDArray[np.bool_]:
        if self.area_max_mm2 is None:
            return np.ones(area.shape, dtype=np.bool_)
        large_enough = area >= self.area_min_fraction * self.area_max_mm2 * (1 - _TOLERANCE)
        if self.waive_min_for_single_units:
            single = (columns["tensor_units.count"] == 1) | (columns["vector_units.count"] == 1)
            large_enough = large_enough | single
        fits: NDArray[np.bool_] = large_enough & (area <= self.area_max_mm2 * (1 + _TOLERANCE))
        return fits

    def _nothing_fits(self, smallest: tuple[float, int], largest: tuple[float, int]) -> str:
        assert self.area_max_mm2 is not None
        least = self.area_min_fraction * self.area_max_mm2
        budget = f"{least:.6g} to {self.area_max_mm2:.6g} mm2"
        if smallest[0] > self.area_max_mm2:
            area, index = smallest
            extreme, advice = "smallest", "raise the budget or allow smaller values"
        elif largest[0] < least:
            area, index = largest
            extreme, advice = "largest", "lower the budget or allow larger values"
        else:
            area, index = smallest
            extreme, advice = (
                "smallest",
                f"the largest has {largest[0]:.6g} mm2, and none lies between: widen the budget",
            )
        return (
            f"no architecture of the design space {self.name!r} has an area of {budget}: the {extreme} of "
            f"{self.n_raw:,} combinations has {area:.6g} mm2 ({self._spell(index)}); {advice}"
        )

    def _spell(self, index: int) -> str:
        parameters = tuple(parameter for parameter in self.parameters if parameter.name in AREA_PARAMETERS)
        columns = _Columns(parameters, np.array([index]))
        shown = []
        for name in AREA_PARAMETERS:
            value = int(columns[name].flat[0])
            shown.append(f"{name} {format_bytes(value) if name.endswith(('buffer', 'capacity')) else value}")
        return ", ".join(shown)

    def with_budget(self, *, area_max_mm2: float) -> Self:
        """Return the same space with another largest area."""
        return replace(self, area_max_mm2=area_max_mm2)

    def area_of(self, values: Mapping[str, float]) -> float:
        """Return the area in mm² of the combination that takes ``values`` where they say so.

        A parameter not in ``values`` takes its coupled or only value; raises :class:`ConfigError` if it has several.
        """
        fixed = []
        for parameter in self.parameters:
            if parameter.name in values:
                parameter = Parameter(name=parameter.name, values=(float(values[parameter.name]),))
            elif parameter.name in AREA_PARAMETERS and len(parameter.values) > 1:
                raise ConfigError(f"the parameter {parameter.name!r} has several values; say which is meant")
            fixed.append(parameter)
        area_parameters = tuple(parameter for parameter in fixed if parameter.name in AREA_PARAMETERS)
        return float(self._area(_Columns(area_parameters, np.zeros(1, dtype=np.int64))).flat[0])


class _Columns:
    """Columns of the combinations at mixed-radix ``index``, each computed when first asked for.

    A column is of shape ``index.shape``, or ``()`` if it is the same for all.
    """

    def __init__(self, parameters: tuple[Parameter, ...], index: NDArray[np.int64]) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._index = index
        self._known: dict[str, FloatArray] = {}
        self._strides: dict[str, int] = {}
        stride = 1
        for parameter in reversed(parameters):
            self._strides[parameter.name] = stride
            stride *= len(parameter.values)

    def __getitem__(self, name: str) -> FloatArray:
        if name not in self._known:
            self._known[name] = self._derived(name) if name in _DERIVED else self._column(self._parameters[name])
        return self._known[name]

    def _derived(self, name: str) -> FloatArray:
        return _DERIVED[name](self["tensor_units.rows"], self["tensor_units.cols"])

    def _column(self, parameter: Parameter) -> FloatArray:
        values = np.array(parameter.values, dtype=np.float64)
        if len(values) == 1:
            column: FloatArray = values.reshape(())
        else:
            column = values[self._index // self._strides[parameter.name] % len(values)]
        for other in parameter.per:
            column = column * self[other]
        return np.asarray(np.maximum(column, parameter.at_least))


_DERIVED: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {ELEMENTS: np.multiply, EDGE: np.add}
