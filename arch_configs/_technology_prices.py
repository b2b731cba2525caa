"""The sections of a technology file beside the areas: joules of operations, static watts, and dollars."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from archplace.arch_configs._sources import Sourced
from archplace.arch_configs._yaml import KeyPath
from archplace.arch_configs.architectures import FloatArray, IntArray
from archplace.arch_configs.errors import ConfigError
from archplace.arch_configs.files import FileModel
from archplace.arch_configs.units import POWER, Dimension, parse_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyTable:
    """Joules of the operations that an accelerator does, in one manufacturing process."""

    mac_j: Mapping[str, float]
    """One multiply-accumulate with its operands' step through the array, by precision."""
    lane_operation_j: float
    """One operation of one vector lane with its registers."""
    sram_j_per_byte: float
    """One byte into or out of an on-chip buffer of no size: the part that does not depend on the capacity."""
    sram_j_per_byte_per_sqrt_byte: float
    """What each byte costs more for each √byte of the buffer's capacity: wires as long as the buffer's edge."""
    hbm_j_per_byte: float
    """One byte read from or written to HBM, interface included."""
    network_j_per_byte: float
    """One byte sent to another device: both ends and the switches between."""

    def of_mac_j(self, precision: str) -> float:
        """Return the joules of one multiply-accumulate; :class:`ConfigError` for a precision that is not here."""
        if precision not in self.mac_j:
            raise ConfigError(
                f"precision {precision}: the technology table has no energy of a multiply-accumulate for it; it has "
                f"{', '.join(sorted(self.mac_j))}; add 'energy.multiply_accumulate.by_precision.{precision}'"
            )
        return self.mac_j[precision]

    def buffer_j_per_byte(self, capacity_bytes: IntArray | FloatArray) -> FloatArray:
        """Return the joules of moving one byte into or out of a buffer, e0 + e1·√capacity; shape of the argument.

        The wires to a cell are as long as the array's edge (Accelergy's CACTI tables follow the form within a few
        per cent from 256 KiB on).
        """
        root: FloatArray = np.sqrt(np.asarray(capacity_bytes, dtype=np.float64))
        return self.sram_j_per_byte + self.sram_j_per_byte_per_sqrt_byte * root


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTable:
    """Watts that an accelerator at work draws whatever it does."""

    die_w_per_mm2: float
    """Leakage, and clocks that are not gated, per area of the die."""
    hbm_w_per_stack: float
    """Refresh and interface of one idle HBM stack."""
    host_w_per_accelerator: float
    """One accelerator's share of host, network interfaces, fans and power conversion."""
    control_j_per_vector_unit_cycle: float = 0.0
    """What makes each vector unit a programmable core, per cycle of the clock: fetching, scheduling, collecting
    operands, clocks that are not gated while a job runs; 0 where the file has no section ``power.control``."""
    voltage_at_standstill: float = 1.0
    """The supply voltage that a vanishing clock would need, by that of the nominal clock; in between it is linear. 1, a
    constant voltage, where the file has no section ``power.clock``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """Dollars of an accelerator, of its share of a server, and of energy."""

    wafer_usd: float
    wafer_diameter_mm: float
    defects_per_mm2: float
    defect_clustering: float
    """The exponent α of the negative binomial yield; Poisson's law for α → ∞."""
    package_usd: float
    """Package, assembly and test of one accelerator."""
    hbm_usd_per_byte: float
    host_usd_per_accelerator: float
    """One accelerator's share of everything else in the server."""
    electricity_usd_per_j: float
    """Price of a joule at the meter."""
    power_usage_effectiveness: float
    """Joules at the meter for one that an accelerator or its host takes: cooling and distribution."""
    service_life_s: float
    """Seconds over which the hardware is written off."""

    @property
    def energy_usd_per_j(self) -> float:
        """Price of a joule that the accelerator or its host takes, cooling and distribution included."""
        return self.electricity_usd_per_j * self.power_usage_effectiveness

    def at(
        self,
        *,
        usd_per_kwh: float | None = None,
        power_usage_effectiveness: float | None = None,
        service_years: float | None = None,
    ) -> "CostTable":
        """Return the table with other prices of a site; None leaves a price as it is."""
        changed: dict[str, float] = {}
        if usd_per_kwh is not None:
            changed["electricity_usd_per_j"] = usd_per_kwh / _JOULES_PER_KWH
        if power_usage_effectiveness is not None:
            changed["power_usage_effectiveness"] = power_usage_effectiveness
        if service_years is not None:
            changed["service_life_s"] = service_years * _SECONDS_PER_YEAR
        return replace(self, **changed)


_SECONDS_PER_YEAR = 365.25 * 86400
_JOULES_PER_KWH = 3.6e6


_ENERGY = Dimension(
    name="energy",
    units={"J": Fraction(1), "nJ": Fraction(1, 10**9), "pJ": Fraction(1, 10**12), "fJ": Fraction(1, 10**15)},
    examples="'0.59 pJ' or '1.5 fJ'",
    inside="J",
    bare=False,
)


def _joules(value: object) -> float:
    return float(parse_quantity(value, _ENERGY, zero=True))


def _watts_or_zero(value: object) -> float:
    return float(parse_quantity(value, POWER, zero=True))


_Joules = Annotated[float, BeforeValidator(_joules)]
_Watts = Annotated[float, BeforeValidator(_watts_or_zero)]
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]


class _Mac(Sourced):
    by_precision: Annotated[dict[str, _Joules], Field(min_length=1)]


class _LaneOperation(Sourced):
    energy: _Joules


class _SramEnergy(Sourced):
    per_byte: _Joules
    per_byte_and_sqrt_byte: _Joules


class _PerByte(Sourced):
    per_byte: _Joules


class EnergySection(FileModel):
    """The section ``energy`` of a technology file."""

    multiply_accumulate: _Mac
    lane_operation: _LaneOperation
    sram: _SramEnergy
    hbm: _PerByte
    network: _PerByte

    def table(self) -> EnergyTable:
        """Return the section as the program uses it."""
        return EnergyTable(
            mac_j=dict(self.multiply_accumulate.by_precision),
            lane_operation_j=self.lane_operation.energy,
            sram_j_per_byte=self.sram.per_byte,
            sram_j_per_byte_per_sqrt_byte=self.sram.per_byte_and_sqrt_byte,
            hbm_j_per_byte=self.hbm.per_byte,
            network_j_per_byte=self.network.per_byte,
        )


class _Die(Sourced):
    per_mm2: _Watts


class _IdleHbm(Sourced):
    per_stack: _Watts


class _Host(Sourced):
    per_accelerator: _Watts


class _ControlPower(Sourced):
    per_vector_unit_and_cycle: _Joules


class _Clock(Sourced):
    voltage_at_standstill: Annotated[float, Field(gt=0, le=1)]


class PowerSection(FileModel):
    """The section ``power`` of a technology file."""

    die: _Die
    hbm: _IdleHbm
    host: _Host
    control: _ControlPower | None = None
    clock: _Clock | None = None

    def table(self) -> PowerTable:
        """Return the section as the program uses it."""
        return PowerTable(
            die_w_per_mm2=self.die.per_mm2,
            hbm_w_per_stack=self.hbm.per_stack,
            host_w_per_accelerator=self.host.per_accelerator,
            control_j_per_vector_unit_cycle=0.0 if self.control is None else self.control.per_vector_unit_and_cycle,
            voltage_at_standstill=self.clock.voltage_at_standstill if self.clock is not None else 1.0,
        )


class _Wafer(Sourced):
    usd: _Positive
    diameter_mm: Annotated[float, Field(ge=25, le=1000)]


class _Defects(Sourced):
    defects_per_cm2: _NotNegative
    clustering: _Positive


class _Usd(Sourced):
    usd: _NotNegative


class _HbmCost(Sourced):
    usd_per_gb: _NotNegative


class _Electricity(Sourced):
    usd_per_kwh: _NotNegative
    power_usage_effectiveness: Annotated[float, Field(ge=1, le=10)]


class _Service(Sourced):
    years: Annotated[float, Field(gt=0, le=100)]


class CostSection(FileModel):
    """The section ``cost`` of a technology file."""

    wafer: _Wafer
    defects: _Defects
    package: _Usd
    hbm: _HbmCost
    host: _Usd
    electricity: _Electricity
    service: _Service

    def table(self) -> CostTable:
        """Return the section as the program uses it."""
        power = self.electricity
        return CostTable(
            wafer_usd=self.wafer.usd,
            wafer_diameter_mm=self.wafer.diameter_mm,
            defects_per_mm2=self.defects.defects_per_cm2 / 100,
            defect_clustering=self.defects.clustering,
            package_usd=self.package.usd,
            hbm_usd_per_byte=self.hbm.usd_per_gb / 1e9,
            host_usd_per_accelerator=self.host.usd,
            electricity_usd_per_j=power.usd_per_kwh / _JOULES_PER_KWH,
            power_usage_effectiveness=power.power_usage_effectiveness,
            service_life_s=self.service.years * _SECONDS_PER_YEAR,
        )


def sections_below(root: KeyPath) -> list[KeyPath]:
    """Return the places of all sections with numbers in the three parts above, below ``root``."""
    models: dict[str, type[FileModel]] = {"energy": EnergySection, "power": PowerSection, "cost": CostSection}
    return [(*root, part, name) for part, model in models.items() for name in model.model_fields]
