"""One accelerator, described by what a cost model needs to know.

TPUs and GPUs are both expressed this way: an H100 is 528 tensor units of 8 × 4 elements, each 16 multiply-accumulates
per cycle in bfloat16; a TPU v4 is 8 tensor units of 128 × 128 with one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration
from archplace.arch_configs.die import Die


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorUnits:
    """The matrix units of one accelerator, all alike."""

    count: int
    """Number of tensor units."""
    rows: int
    """Array extent along the contraction dimension of a stationary tile."""
    cols: int
    """Array extent along the output columns of a stationary tile."""
    macs_per_element_per_cycle: Mapping[str, float]
    """Multiply-accumulates that one array element does per cycle, by precision (``bf16``, ``fp16``, ``fp8``, …)."""
    local_buffer_bytes: int
    """Capacity of the operand buffer of one tensor unit."""
    local_bandwidth_bytes_per_s: float
    """Bytes per second between one tensor unit's local buffer and its array, reads and writes together."""
    blocks: Blocks | None = None
    """How kernels cut products into tiles; ``None`` where any division of a product over the units will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUnits:
    """The element-wise units of one accelerator, all alike."""

    count: int
    """Number of vector units."""
    lanes: int
    """Lanes of one vector unit; one lane does one operation per cycle."""
    local_buffer_bytes: int
    """Capacity of the operand buffer of one vector unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalBuffer:
    """On-chip memory shared by all units."""

    capacity_bytes: int
    bandwidth_bytes_per_s: float
    """Bytes per second between the global buffer and all units together, per direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hbm:
    """Off-chip memory."""

    capacity_bytes: int
    bandwidth_bytes_per_s: float
    """Bytes per second: of reads and writes together, or of each when ``separate_ports``."""
    stacks: int
    separate_ports: bool = False
    """Whether reads and writes each have the full bandwidth (as mappers assume) instead of sharing it (as HBM does)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator with a name and the source of its numbers."""

    name: str
    clock_hz: float
    tensor_units: TensorUnits
    vector_units: VectorUnits
    global_buffer: GlobalBuffer
    hbm: Hbm
    die_area_mm2: float | None = None
    """Published die area, where there is one; the area model gives its own figure."""
    thermal_design_power_w: float | None = None
    technology: str | None = None
    """Name of the technology table that prices this accelerator's area."""
    die: Die | None = None
    """What the die carries beside the units that run; ``None`` where nothing is known of it."""
    calibration: Calibration = NOMINAL
    sources: Mapping[str, str]
    """Where each number comes from: dotted key of the YAML file to source text."""
