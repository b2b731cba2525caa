"""Technology tables: what the components of an accelerator cost in area, energy, power and money, from YAML files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from archplace.arch_configs._builtin import builtin_names, locate
from archplace.arch_configs._sources import Sourced, check_sources, collect_sources
from archplace.arch_configs._technology_prices import (
    CostSection,
    CostTable,
    EnergySection,
    EnergyTable,
    PowerSection,
    PowerTable,
    sections_below,
)
from archplace.arch_configs._yaml import KeyPath
from archplace.arch_configs.architectures import FloatArray, IntArray
from archplace.arch_configs.errors import ConfigError
from archplace.arch_configs.files import FileModel, parse_document, read_lenient
from archplace.arch_configs.units import Bytes, SquareMillimetres, SquareMillimetresOrZero

__all__ = [
    "CostTable",
    "EnergyTable",
    "PowerTable",
    "Sram",
    "Technology",
    "load_technology",
    "technology_names",
]

_Table = TypeVar("_Table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sram:
    """Area of one on-chip buffer by its capacity: a table, or ``fixed + per_sqrt_byte·√B + per_byte·B``.

    The second form is periphery around an array: decoders and sense amplifiers grow with its edge.
    """

    table_bytes: tuple[int, ...] = ()
    table_mm2: tuple[float, ...] = ()
    fixed_mm2: float = 0.0
    mm2_per_sqrt_byte: float = 0.0
    mm2_per_byte: float = 0.0

    def area_mm2(self, capacity_bytes: IntArray | FloatArray) -> FloatArray:
        """Return the area of a buffer, shape as ``capacity_bytes``; it never falls as the capacity grows.

        Between two entries of a table the area follows a power law through them; below the first it is that of the
        first, above the last it grows in proportion.
        """
        capacity = np.asarray(capacity_bytes, dtype=np.float64)
        if not self.table_bytes:
            return self.fixed_mm2 + self.mm2_per_sqrt_byte * np.sqrt(capacity) + self.mm2_per_byte * capacity
        sizes, areas = np.array(self.table_bytes, dtype=np.float64), np.array(self.table_mm2)
        exponents = np.append(np.log(areas[1:] / areas[:-1]) / np.log(sizes[1:] / sizes[:-1]), 1.0)
        capacity = np.maximum(capacity, sizes[0])
        entry = np.searchsorted(sizes, capacity, side="right") - 1
        # At an entry of the table the base of the power is 1, so that the entry comes back exactly.
        area: FloatArray = areas[entry] * (capacity / sizes[entry]) ** exponents[entry]
        return area


@dataclass(frozen=True, slots=True, kw_only=True)
class Technology:
    """Areas, energies, static power and prices of components in one manufacturing process."""

    name: str
    array_element_mm2: float
    """One array element that does one 16-bit multiply-accumulate per cycle, with its registers."""
    vector_lane_mm2: float
    sram: Sram
    hbm_phy_mm2_per_stack: float
    """Interface and controller of one HBM stack, on the die."""
    overhead_factor: float
    """Die area divided by the area of all components: routing, clock and power distribution, test, white space."""
    control_mm2_per_vector_unit: float = 0.0
    """What makes a vector unit a programmable core: fetch, decode, scheduling, load and store, its port of the network
    on chip; 0 where the file has no section ``control``."""
    cache_factor: float = 1.0
    """Area of a cache by that of a buffer of its capacity; 1 where the file has no section ``cache``."""
    interfaces_mm2: float = 0.0
    """Links to other devices and to the host; 0 where the file has no section ``interfaces``."""
    fp64_mac_mm2: float = 0.0
    """One double-precision multiply-accumulate per cycle; 0 where the file has no section ``fp64``."""
    energy: EnergyTable | None = None
    """Joules of operations; None where the file has no section ``energy``."""
    power: PowerTable | None = None
    """Static watts; None where the file has no section ``power``."""
    cost: CostTable | None = None
    """Dollars; None where the file has no section ``cost``."""
    sources: Mapping[str, str]

    def need_energy(self) -> EnergyTable:
        """Return :attr:`energy`; raises :class:`ConfigError`, which says how to add it, where there is none."""
        return self._need(self.energy, "energy", "the energy of operators")

    def need_power(self) -> PowerTable:
        """Return :attr:`power`; raises :class:`ConfigError`, which says how to add it, where there is none."""
        return self._need(self.power, "power", "energy per sample and power")

    def need_cost(self) -> CostTable:
        """Return :attr:`cost`; raises :class:`ConfigError`, which says how to add it, where there is none."""
        return self._need(self.cost, "cost", "cost")

    def _need(self, table: _Table | None, section: str, purpose: str) -> _Table:
        if table is None:
            raise ConfigError(
                f"technology {self.name}: the section '{section}' is missing, from which {purpose} would be computed; "
                f"add 'technology.{section}' to its file (the built-in table 7nm shows the keys), or leave out the "
                "objectives and budgets that need it"
            )
        return table


class _SramEntry(FileModel):
    capacity: Bytes
    area: SquareMillimetres


class _SramSection(Sourced):
    table: Annotated[tuple[_SramEntry, ...], Field(min_length=2)] | None = None
    fixed: SquareMillimetresOrZero | None = None
    per_sqrt_byte: SquareMillimetresOrZero | None = None
    per_byte: SquareMillimetres | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        formula = (self.fixed, self.per_sqrt_byte, self.per_byte)
        if self.table is None:
            if None in formula:
                raise ValueError("needs either 'table', or all of 'fixed', 'per_sqrt_byte' and 'per_byte'")
            return self
        if formula != (None, None, None):
            raise ValueError("found 'table' along with 'fixed', 'per_sqrt_byte' or 'per_byte'; give one form only")
        for before, after in zip(self.table, self.table[1:], strict=False):
            if after.capacity <= before.capacity or after.area < before.area:
                raise ValueError(
                    "the entries of 'table' must have rising capacities and areas that do not fall; found "
                    f"{before.capacity} B with {before.area} mm2 before {after.capacity} B with {after.area} mm2"
                )
        return self


class _Area(Sourced):
    area: SquareMillimetres


class _HbmPhy(Sourced):
    area_per_stack: SquareMillimetresOrZero


class _Overhead(Sourced):
    factor: Annotated[float, Field(ge=1, le=100)]


class _Control(Sourced):
    area_per_vector_unit: SquareMillimetresOrZero


class _Cache(Sourced):
    factor: Annotated[float, Field(ge=1, le=100)]


class _Interfaces(Sourced):
    area: SquareMillimetresOrZero


class _Technology(FileModel):
    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    array_element: _Area
    vector_lane: _Area
    sram: _SramSection
    hbm_phy: _HbmPhy
    overhead: _Overhead
    control: _Control | None = None
    cache: _Cache | None = None
    interfaces: _Interfaces | None = None
    fp64: _Area | None = None
    energy: EnergySection | None = None
    power: PowerSection | None = None
    cost: CostSection | None = None


class _TechnologyFile(FileModel):
    technology: _Technology


_ROOT: KeyPath = ("technology",)
_SECTIONS: list[KeyPath] = [
    *((*_ROOT, name) for name in ("array_element", "vector_lane", "sram", "hbm_phy", "overhead")),
    *((*_ROOT, name) for name in ("control", "cache", "interfaces", "fp64")),
    *sections_below(_ROOT),
]


def technology_names() -> tuple[str, ...]:
    """Return the names of the built-in technology tables."""
    return builtin_names("technology")


def load_technology(name_or_path: str | Path) -> Technology:
    """Return a built-in technology table by name, or the one of a YAML file by path.

    Raises :class:`ConfigError` with all problems of the file, or with a suggestion for an unknown name.
    """
    document = check_sources(read_lenient(locate(name_or_path, "technology", "technology table")), _SECTIONS)
    file = parse_document(document, _TechnologyFile).technology
    sram = file.sram
    return Technology(
        name=file.name,
        array_element_mm2=file.array_element.area,
        vector_lane_mm2=file.vector_lane.area,
        sram=Sram(
            table_bytes=tuple(entry.capacity for entry in sram.table or ()),
            table_mm2=tuple(entry.area for entry in sram.table or ()),
            fixed_mm2=sram.fixed or 0.0,
            mm2_per_sqrt_byte=sram.per_sqrt_byte or 0.0,
            mm2_per_byte=sram.per_byte or 0.0,
        ),
        hbm_phy_mm2_per_stack=file.hbm_phy.area_per_stack,
        overhead_factor=file.overhead.factor,
        control_mm2_per_vector_unit=file.control.area_per_vector_unit if file.control is not None else 0.0,
        cache_factor=file.cache.factor if file.cache is not None else 1.0,
        interfaces_mm2=file.interfaces.area if file.interfaces is not None else 0.0,
        fp64_mac_mm2=file.fp64.area if file.fp64 is not None else 0.0,
        energy=file.energy.table() if file.energy is not None else None,
        power=file.power.table() if file.power is not None else None,
        cost=file.cost.table() if file.cost is not None else None,
        sources={
            ".".join((*map(str, path[len(_ROOT) :]), key)): text
            for path in _SECTIONS
            for key, text in collect_sources(document, [path]).items()
        },
    )
