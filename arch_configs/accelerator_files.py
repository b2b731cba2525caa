"""Accelerators from YAML files: the built-in ones by name, the user's by path, or in place in another file."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from archplace.arch_configs._builtin import builtin_names, locate
from archplace.arch_configs._sources import Sourced, check_sources, collect_sources
from archplace.arch_configs._suggest import unknown_name
from archplace.arch_configs._yaml import Document, KeyPath
from archplace.arch_configs.accelerator import Accelerator, GlobalBuffer, Hbm, TensorUnits, VectorUnits
from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration
from archplace.arch_configs.die import Die
from archplace.arch_configs.files import FileModel, parse_document, read_lenient
from archplace.arch_configs.technology import technology_names
from archplace.arch_configs.units import (
    Bytes,
    BytesPerSecond,
    Hertz,
    SecondsOrZero,
    SquareMillimetres,
    SquareMillimetresOrZero,
    Watts,
)

Count = Annotated[int, Field(ge=1, le=2**24)]
MacRates = Annotated[dict[str, Annotated[float, Field(gt=0, le=2**16)]], Field(min_length=1)]
"""Multiply-accumulates per element and cycle, by precision."""

Side = Annotated[int, Field(ge=1, le=2**16)]
Tiles = Annotated[list[tuple[Side, Side]], Field(min_length=1, max_length=64)]
"""Rows and columns of tiles of a product's result."""
Fraction = Annotated[float, Field(gt=0, le=1)]


class BlocksFields(Sourced):
    """How kernels cut products, as a file gives it."""

    units: Count
    tiles: Tiles
    cluster: Count = 1

    def blocks(self) -> Blocks:
        """Return them as the program uses them."""
        return Blocks(units=self.units, tiles=tuple(self.tiles), cluster=self.cluster)


class _TensorUnits(Sourced):
    count: Count
    rows: Count
    cols: Count
    macs_per_element_per_cycle: MacRates
    local_buffer: Bytes
    local_bandwidth: BytesPerSecond
    blocks: BlocksFields | None = None

    @model_validator(mode="after")
    def _blocks_of_what_there_is(self) -> Self:
        if self.blocks is not None and self.blocks.units > self.count:
            raise ValueError(
                f"found blocks of {self.blocks.units} units, more than the {self.count} that there are; give the units "
                "of one multiprocessor"
            )
        return self


class _VectorUnits(Sourced):
    count: Count
    lanes: Count
    local_buffer: Bytes


class _GlobalBuffer(Sourced):
    capacity: Bytes
    bandwidth: BytesPerSecond


class _Hbm(Sourced):
    capacity: Bytes
    bandwidth: BytesPerSecond
    stacks: Count
    separate_ports: bool = False


class CalibrationFields(Sourced):
    """What kernels reach, as a file gives it."""

    tensor_rate: Fraction = NOMINAL.tensor_rate
    lane_rate: Fraction = NOMINAL.lane_rate
    global_buffer_bandwidth: Fraction = NOMINAL.global_buffer_bandwidth
    hbm_bandwidth: Fraction = NOMINAL.hbm_bandwidth
    launch: SecondsOrZero = NOMINAL.launch_s

    def calibration(self) -> Calibration:
        """Return it as the program uses it."""
        return Calibration(
            tensor_rate=self.tensor_rate,
            lane_rate=self.lane_rate,
            global_buffer_bandwidth=self.global_buffer_bandwidth,
            hbm_bandwidth=self.hbm_bandwidth,
            launch_s=self.launch,
        )


class _Die(Sourced):
    tensor_units: Count | None = None
    vector_units: Count | None = None
    global_buffer: Bytes | None = None
    cached: bool = False
    hbm_interfaces: Count | None = None
    fp64_macs_per_cycle: Annotated[float, Field(ge=0, le=2**32)] = 0.0
    fixed_function: SquareMillimetresOrZero = 0.0


class AcceleratorFields(Sourced):
    """An accelerator as a file gives it; the meanings are those of :class:`Accelerator`."""

    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    clock: Hertz
    die_area: SquareMillimetres | None = None
    thermal_design_power: Watts | None = None
    technology: str | None = None
    tensor_units: _TensorUnits
    vector_units: _VectorUnits
    global_buffer: _GlobalBuffer
    hbm: _Hbm
    calibration: CalibrationFields | None = None
    die: _Die | None = None

    @field_validator("technology")
    @classmethod
    def _known_technology(cls, value: str | None) -> str | None:
        if value is not None and value not in technology_names():
            raise ValueError(unknown_name(value, technology_names(), what="technology table"))
        return value


class _AcceleratorFile(FileModel):
    accelerator: AcceleratorFields


def accelerator_sections(key_path: KeyPath) -> list[KeyPath]:
    """Return the sections whose numbers need sources, of the accelerator that stands at ``key_path`` of a file."""
    parts = ("tensor_units", "vector_units", "global_buffer", "hbm", "calibration", "die")
    return [key_path, *((*key_path, part) for part in parts), (*key_path, "tensor_units", "blocks")]


def accelerator_names() -> tuple[str, ...]:
    """Return the names of the built-in accelerators."""
    return builtin_names("accelerators")


def load_accelerator(name_or_path: str | Path) -> Accelerator:
    """Return a built-in accelerator by name, or the one of a YAML file by path.

    Raises :class:`ConfigError` with all problems of the file, or with a suggestion for an unknown name.
    """
    sections = accelerator_sections(("accelerator",))
    document = check_sources(read_lenient(locate(name_or_path, "accelerators", "accelerator")), sections)
    return build_accelerator(parse_document(document, _AcceleratorFile).accelerator, document, ("accelerator",))


def build_accelerator(fields: AcceleratorFields, document: Document, key_path: KeyPath) -> Accelerator:
    """Return the accelerator that stands at ``key_path`` of ``document``, whose sources have been checked."""
    tensor, vector = fields.tensor_units, fields.vector_units
    return Accelerator(
        name=fields.name,
        clock_hz=fields.clock,
        tensor_units=TensorUnits(
            count=tensor.count,
            rows=tensor.rows,
            cols=tensor.cols,
            macs_per_element_per_cycle=tensor.macs_per_element_per_cycle,
            local_buffer_bytes=tensor.local_buffer,
            local_bandwidth_bytes_per_s=tensor.local_bandwidth,
            blocks=None if tensor.blocks is None else tensor.blocks.blocks(),
        ),
        vector_units=VectorUnits(count=vector.count, lanes=vector.lanes, local_buffer_bytes=vector.local_buffer),
        global_buffer=GlobalBuffer(
            capacity_bytes=fields.global_buffer.capacity, bandwidth_bytes_per_s=fields.global_buffer.bandwidth
        ),
        hbm=Hbm(
            capacity_bytes=fields.hbm.capacity,
            bandwidth_bytes_per_s=fields.hbm.bandwidth,
            stacks=fields.hbm.stacks,
            separate_ports=fields.hbm.separate_ports,
        ),
        die_area_mm2=fields.die_area,
        thermal_design_power_w=fields.thermal_design_power,
        technology=fields.technology,
        calibration=NOMINAL if fields.calibration is None else fields.calibration.calibration(),
        die=None if fields.die is None else _die(fields.die),
        sources=collect_sources(document, accelerator_sections(key_path)),
    )


def _die(fields: _Die) -> Die:
    return Die(
        tensor_units=fields.tensor_units,
        vector_units=fields.vector_units,
        global_buffer_bytes=fields.global_buffer,
        cached=fields.cached,
        hbm_interfaces=fields.hbm_interfaces,
        fp64_macs_per_cycle=fields.fp64_macs_per_cycle,
        fixed_function_mm2=fields.fixed_function,
    )
