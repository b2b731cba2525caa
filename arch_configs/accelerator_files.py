"""Accelerators from YAML files: the built-in ones by name, the user's by path, or in place in another file."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from archplace.arch_configs._builtin import builtin_names, locate
from archplace.arch_configs._sources import Sourced, check_sources, collect_sources
from archplace.arch_configs._suggest import unknown_name
from archplace.arch_configs._yaml import Document, KeyPath
from archplace.arch_configs.accelerator import Accelerator, GlobalBuffer, Hbm, TensorUnits, VectorUnits
from archplace.arch_configs.files import FileModel, parse_document, read_lenient
from archplace.arch_configs.technology import technology_names
from archplace.arch_configs.units import Bytes, BytesPerSecond, Hertz, SquareMillimetres, Watts

Count = Annotated[int, Field(ge=1, le=2**24)]
MacRates = Annotated[dict[str, Annotated[float, Field(gt=0, le=2**16)]], Field(min_length=1)]
"""Multiply-accumulates per element and cycle, by precision."""


class _TensorUnits(Sourced):
    count: Count
    rows: Count
    cols: Count
    macs_per_element_per_cycle: MacRates
    local_buffer: Bytes
    local_bandwidth: BytesPerSecond


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
    return [key_path, *((*key_path, part) for part in ("tensor_units", "vector_units", "global_buffer", "hbm"))]


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
        sources=collect_sources(document, accelerator_sections(key_path)),
    )
