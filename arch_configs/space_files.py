"""Design spaces from YAML files: the built-in ones by name, the user's by path."""

from math import prod
from pathlib import Path
from typing import Annotated, Self, TypedDict

from pydantic import Field, field_validator, model_validator

from archplace.arch_configs._builtin import builtin_names, locate
from archplace.arch_configs._choices import (
    AnyChoice,
    BandwidthChoice,
    BytesChoice,
    CountChoice,
    HbmBandwidthChoice,
    HertzChoice,
    TensorBufferChoice,
    VectorBufferChoice,
    to_parameter,
)
from archplace.arch_configs._sources import Sourced, check_sources, collect_sources
from archplace.arch_configs._suggest import unknown_name
from archplace.arch_configs._yaml import Document, KeyPath
from archplace.arch_configs.accelerator_files import (
    BlocksFields,
    CalibrationFields,
    Count,
    MacRates,
    accelerator_names,
    load_accelerator,
)
from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration
from archplace.arch_configs.errors import ConfigError
from archplace.arch_configs.files import FileModel, parse_document, read_lenient
from archplace.arch_configs.space import AREA_PARAMETERS, PARAMETERS, DesignSpace, Parameter
from archplace.arch_configs.technology import load_technology, technology_names
from archplace.arch_configs.units import Bytes, SquareMillimetres

_MOST_COMBINATIONS = 2_000_000_000


class _TensorUnits(Sourced):
    count: CountChoice
    rows: CountChoice
    cols: CountChoice
    macs_per_element_per_cycle: MacRates
    local_buffer: TensorBufferChoice
    local_bandwidth: BandwidthChoice
    blocks: BlocksFields | None = None


class _VectorUnits(Sourced):
    count: CountChoice
    lanes: CountChoice
    local_buffer: VectorBufferChoice


class _GlobalBuffer(Sourced):
    capacity: BytesChoice
    bandwidth: BandwidthChoice


class _Hbm(Sourced):
    stacks: CountChoice
    capacity: BytesChoice | None = None
    capacity_per_stack: BytesChoice | None = None
    bandwidth: HbmBandwidthChoice | None = None
    bandwidth_per_stack: HbmBandwidthChoice | None = None
    separate_ports: bool = False

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for name in ("capacity", "bandwidth"):
            if (getattr(self, name) is None) == (getattr(self, f"{name}_per_stack") is None):
                raise ValueError(f"needs exactly one of '{name}' and '{name}_per_stack'")
        return self


class _Reference(FileModel):
    """An architecture whose area is the budget."""

    tensor_units: Count
    rows: Count
    cols: Count
    tensor_buffer: Bytes | None = None
    vector_units: Count
    lanes: Count | None = None
    vector_buffer: Bytes | None = None
    global_buffer: Bytes
    hbm_stacks: Count | None = None


_REFERENCE = {
    "tensor_units": "tensor_units.count",
    "rows": "tensor_units.rows",
    "cols": "tensor_units.cols",
    "tensor_buffer": "tensor_units.local_buffer",
    "vector_units": "vector_units.count",
    "lanes": "vector_units.lanes",
    "vector_buffer": "vector_units.local_buffer",
    "global_buffer": "global_buffer.capacity",
    "hbm_stacks": "hbm.stacks",
}


class _Budget(Sourced):
    area: SquareMillimetres | None = None
    area_of: _Reference | None = None
    at_least: Annotated[float, Field(ge=0, le=1)] = 0.0
    waive_at_least_for_single_units: bool = False

    @model_validator(mode="after")
    def _one_area(self) -> Self:
        if (self.area is None) == (self.area_of is None):
            raise ValueError("needs exactly one of 'area' and 'area_of'")
        return self


class _Space(Sourced):
    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    technology: str
    clock: HertzChoice
    tensor_units: _TensorUnits
    vector_units: _VectorUnits
    global_buffer: _GlobalBuffer
    hbm: _Hbm
    budget: _Budget | None = None
    calibration: CalibrationFields | None = None
    kernels_of: str | None = None

    @model_validator(mode="after")
    def _kernels_once(self) -> Self:
        if self.kernels_of is not None and (self.calibration is not None or self.tensor_units.blocks is not None):
            raise ValueError("found 'kernels_of' beside 'calibration' or 'tensor_units.blocks'; it stands for both")
        return self

    @field_validator("kernels_of")
    @classmethod
    def _known_accelerator(cls, value: str | None) -> str | None:
        if value is not None and value not in accelerator_names():
            raise ValueError(unknown_name(value, accelerator_names(), what="accelerator"))
        return value

    @field_validator("technology")
    @classmethod
    def _known_technology(cls, value: str) -> str:
        if not value.endswith((".yaml", ".yml")) and value not in technology_names():
            raise ValueError(unknown_name(value, technology_names(), what="technology table"))
        return value


class _SpaceFile(FileModel):
    space: _Space


_SECTIONS: list[KeyPath] = [
    ("space",),
    *[("space", name) for name in ("tensor_units", "vector_units", "global_buffer", "hbm", "budget", "calibration")],
    ("space", "tensor_units", "blocks"),
]


def space_names() -> tuple[str, ...]:
    """Return the names of the built-in design spaces."""
    return builtin_names("spaces")


def load_space(name_or_path: str | Path) -> DesignSpace:
    """Return a built-in design space by name, or the one of a YAML file by path.

    A technology table of the user's own is named relative to the space's file. Raises :class:`ConfigError` with all
    problems of the file, or with a suggestion for an unknown name.
    """
    path = locate(name_or_path, "spaces", "design space")
    document = check_sources(read_lenient(path), _SECTIONS)
    file = parse_document(document, _SpaceFile).space
    parameters = _parameters(file)
    _check(document, parameters)
    table = file.technology
    technology = load_technology(path.parent / table if table.endswith((".yaml", ".yml")) else table)
    budget = file.budget
    space = DesignSpace(
        name=file.name,
        parameters=parameters,
        macs_per_element_per_cycle=file.tensor_units.macs_per_element_per_cycle,
        hbm_separate_ports=file.hbm.separate_ports,
        technology=technology,
        area_max_mm2=None if budget is None else budget.area,
        area_min_fraction=0.0 if budget is None else budget.at_least,
        waive_min_for_single_units=budget is not None and budget.waive_at_least_for_single_units,
        sources=collect_sources(document, _SECTIONS),
        **_kernels(file),
    )
    if budget is None or budget.area_of is None:
        return space
    reference = {_REFERENCE[key]: value for key, value in budget.area_of.model_dump(exclude_none=True).items()}
    try:
        return space.with_budget(area_max_mm2=space.area_of(reference))
    except ConfigError as error:
        problems = [document.problem(("space", "budget", "area_of"), problem.message) for problem in error.problems]
        raise ConfigError(problems) from None


class _Kernels(TypedDict):
    blocks: Blocks | None
    calibration: Calibration


def _kernels(file: _Space) -> _Kernels:
    """Return how kernels cut products on every architecture, and what they reach."""
    if file.kernels_of is not None:
        known = load_accelerator(file.kernels_of)
        return {"blocks": known.tensor_units.blocks, "calibration": known.calibration}
    blocks, calibration = file.tensor_units.blocks, file.calibration
    return {
        "blocks": None if blocks is None else blocks.blocks(),
        "calibration": NOMINAL if calibration is None else calibration.calibration(),
    }


def _parameters(file: _Space) -> tuple[Parameter, ...]:
    stacks = ("hbm.stacks",)
    written: dict[str, tuple[AnyChoice | None, tuple[str, ...]]] = {
        "tensor_units.count": (file.tensor_units.count, ()),
        "vector_units.count": (file.vector_units.count, ()),
        "tensor_units.rows": (file.tensor_units.rows, ()),
        "tensor_units.cols": (file.tensor_units.cols, ()),
        "tensor_units.local_buffer": (file.tensor_units.local_buffer, ()),
        "vector_units.lanes": (file.vector_units.lanes, ()),
        "vector_units.local_buffer": (file.vector_units.local_buffer, ()),
        "global_buffer.capacity": (file.global_buffer.capacity, ()),
        "hbm.stacks": (file.hbm.stacks, ()),
        "clock": (file.clock, ()),
        "tensor_units.local_bandwidth": (file.tensor_units.local_bandwidth, ()),
        "global_buffer.bandwidth": (file.global_buffer.bandwidth, ()),
        "hbm.capacity": (file.hbm.capacity, ())
        if file.hbm.capacity is not None
        else (file.hbm.capacity_per_stack, stacks),
        "hbm.bandwidth": (file.hbm.bandwidth, ())
        if file.hbm.bandwidth is not None
        else (file.hbm.bandwidth_per_stack, stacks),
    }
    parameters = []
    for name in PARAMETERS:
        choice, per = written[name]
        assert choice is not None
        parameters.append(to_parameter(name, choice, per=per))
    return tuple(parameters)


def _check(document: Document, parameters: tuple[Parameter, ...]) -> None:
    """Raise for parameters that are equal to each other in a circle, and for too many combinations."""
    problems = []
    equal = {p.name: p.per[0] for p in parameters if p.per and p.per[0] in _COUNTS and p.name in _COUNTS}
    for name in equal:
        seen = [name]
        while seen[-1] in equal and seen[-1] not in seen[:-1]:
            seen.append(equal[seen[-1]])
        if seen[-1] == name and len(seen) > 1:
            circle = " equal to ".join(seen)
            problems.append(document.problem(("space", *name.split(".")), f"found {circle}; give one of them values"))
    n_priced = prod(len(parameter.values) for parameter in parameters if parameter.name in AREA_PARAMETERS)
    if n_priced > _MOST_COMBINATIONS:
        message = f"found {n_priced:,} combinations; at most {_MOST_COMBINATIONS:,} are allowed: take fewer values"
        problems.append(document.problem(("space",), message))
    if problems:
        raise ConfigError(problems)


_COUNTS = frozenset(name for name in PARAMETERS if name.endswith((".count", ".rows", ".cols", ".lanes", ".stacks")))
