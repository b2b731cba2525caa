"""Many accelerators in columns: what the cost model and the search work on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.accelerator import Accelerator
from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NOT_COLUMNS = frozenset({"tensor_macs_per_element", "blocks", "calibration", "throttled"})


Rows = NDArray[np.intp] | NDArray[np.int64] | NDArray[np.bool_] | slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """Accelerators under load at a power limit, ``(n_archs,)`` each."""

    clock_hz: FloatArray
    """What the limit leaves under load. What kernels and software reach of the arrays' rate may stand for a part of
    that; the clock that operators are timed at is then higher."""
    voltage: FloatArray
    """By the nominal one: what is on the chip's supply takes the square of it in energy, leakage as much in power."""
    power_w: FloatArray
    """Watts of each under load: the limit, less, or more where the slowest clock even draws more."""

    def take(self, indices: Rows) -> Self:
        """Return the accelerators at ``indices``."""
        return replace(
            self, clock_hz=self.clock_hz[indices], voltage=self.voltage[indices], power_w=self.power_w[indices]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Architectures:
    """``n_archs`` accelerators, one array of shape ``(n_archs,)`` per parameter.

    A column that is the same for all architectures may be a read-only broadcast of one value and then takes no memory.
    Units are those of the fields' names; counts are ``int64``, the rest ``float64``.
    """

    clock_hz: FloatArray
    tensor_count: IntArray
    tensor_rows: IntArray
    tensor_cols: IntArray
    tensor_macs_per_element: Mapping[str, FloatArray]
    """Multiply-accumulates per array element and cycle, by precision."""
    tensor_local_bytes: IntArray
    """Operand buffer of one tensor unit."""
    tensor_local_bytes_per_s: FloatArray
    """Bandwidth of one tensor unit's local buffer, both directions together."""
    vector_count: IntArray
    vector_lanes: IntArray
    vector_local_bytes: IntArray
    global_buffer_bytes: IntArray
    global_buffer_bytes_per_s: FloatArray
    """Bandwidth between global buffer and all units together, per direction."""
    hbm_bytes: IntArray
    hbm_bytes_per_s: FloatArray
    hbm_separate_ports: NDArray[np.bool_]
    hbm_stacks: IntArray
    area_mm2: FloatArray
    """Area by the space's technology table; NaN where no table prices it."""
    blocks: Blocks | None = None
    """How kernels cut products on all of them."""
    calibration: Calibration = NOMINAL
    """What kernels reach of the rates, on all of them."""
    throttled: Throttled | None = None
    """What a power limit leaves of clock and supply voltage; None where nothing limits them."""

    def __len__(self) -> int:
        return len(self.clock_hz)

    def take(self, indices: Rows) -> Self:
        """Return the architectures at ``indices`` (an index array, a mask or a slice), in that order."""
        columns = {
            field.name: getattr(self, field.name)[indices] for field in fields(self) if field.name not in _NOT_COLUMNS
        }
        rates = {precision: rate[indices] for precision, rate in self.tensor_macs_per_element.items()}
        throttled = None if self.throttled is None else self.throttled.take(indices)
        return replace(self, **columns, tensor_macs_per_element=rates, throttled=throttled)

    @classmethod
    def of(cls, accelerator: Accelerator, *, area_mm2: float = float("nan")) -> Self:
        """Return one accelerator as a table of one row."""
        tensor, vector = accelerator.tensor_units, accelerator.vector_units
        return cls(
            clock_hz=np.array([accelerator.clock_hz]),
            tensor_count=np.array([tensor.count]),
            tensor_rows=np.array([tensor.rows]),
            tensor_cols=np.array([tensor.cols]),
            tensor_macs_per_element={p: np.array([r]) for p, r in tensor.macs_per_element_per_cycle.items()},
            tensor_local_bytes=np.array([tensor.local_buffer_bytes]),
            tensor_local_bytes_per_s=np.array([tensor.local_bandwidth_bytes_per_s]),
            vector_count=np.array([vector.count]),
            vector_lanes=np.array([vector.lanes]),
            vector_local_bytes=np.array([vector.local_buffer_bytes]),
            global_buffer_bytes=np.array([accelerator.global_buffer.capacity_bytes]),
            global_buffer_bytes_per_s=np.array([accelerator.global_buffer.bandwidth_bytes_per_s]),
            hbm_bytes=np.array([accelerator.hbm.capacity_bytes]),
            hbm_bytes_per_s=np.array([accelerator.hbm.bandwidth_bytes_per_s]),
            hbm_separate_ports=np.array([accelerator.hbm.separate_ports]),
            hbm_stacks=np.array([accelerator.hbm.stacks]),
            area_mm2=np.array([area_mm2], dtype=np.float64),
            blocks=tensor.blocks,
            calibration=accelerator.calibration,
        )
