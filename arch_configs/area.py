"""Area of accelerators from a technology table, for many at once.

The form is A = overhead · (tensor units + their buffers + vector units + their buffers + global buffer + HBM
interfaces). With an overhead of 1 and no HBM interface it is the area that PHAZE (Wang et al., ICML 2024) computes
with Accelergy and CACTI.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from archplace.arch_configs.accelerator import Accelerator
from archplace.arch_configs.architectures import Architectures, FloatArray, IntArray
from archplace.arch_configs.technology import Technology

_SIXTEEN_BIT = ("bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What has an area, one array per kind; shapes broadcast against each other."""

    tensor_count: IntArray
    tensor_elements: IntArray
    """Array elements of one tensor unit."""
    tensor_macs_per_element: FloatArray
    """16-bit multiply-accumulates per element and cycle; an element that does more is that much larger."""
    tensor_local_bytes: IntArray
    vector_count: IntArray
    vector_lanes: IntArray
    vector_local_bytes: IntArray
    global_buffer_bytes: IntArray
    hbm_stacks: IntArray

    @classmethod
    def of(cls, architectures: Architectures) -> Self:
        """Return the resources of ``architectures``, each of shape ``(n_archs,)``."""
        return cls(
            tensor_count=architectures.tensor_count,
            tensor_elements=architectures.tensor_rows * architectures.tensor_cols,
            tensor_macs_per_element=sixteen_bit_rate(architectures.tensor_macs_per_element),
            tensor_local_bytes=architectures.tensor_local_bytes,
            vector_count=architectures.vector_count,
            vector_lanes=architectures.vector_lanes,
            vector_local_bytes=architectures.vector_local_bytes,
            global_buffer_bytes=architectures.global_buffer_bytes,
            hbm_stacks=architectures.hbm_stacks,
        )


def sixteen_bit_rate(rates: Mapping[str, FloatArray]) -> FloatArray:
    """Return the multiply-accumulate rate that an element's area follows: the larger of bf16 and fp16.

    Narrower formats reuse the same multipliers. Without a 16-bit format the largest rate counts, whatever its width.
    """
    chosen = [rates[precision] for precision in _SIXTEEN_BIT if precision in rates] or list(rates.values())
    largest = np.asarray(chosen[0], dtype=np.float64)
    for rate in chosen[1:]:
        largest = np.maximum(largest, rate)
    return largest


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaBreakdown:
    """Area by component in mm², each of shape ``(n_archs,)``."""

    tensor_units: FloatArray
    tensor_buffers: FloatArray
    vector_units: FloatArray
    vector_buffers: FloatArray
    global_buffer: FloatArray
    hbm_phy: FloatArray
    overhead: FloatArray

    @property
    def total_mm2(self) -> FloatArray:
        """Sum of the components."""
        return np.asarray(sum(getattr(self, field.name) for field in fields(self)), dtype=np.float64)

    def by_component(self) -> dict[str, FloatArray]:
        """Return component name to area."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def area_breakdown(resources: Resources | Architectures, technology: Technology) -> AreaBreakdown:
    """Return the area of each component in mm²; shapes as the resources broadcast."""
    r = Resources.of(resources) if isinstance(resources, Architectures) else resources
    parts = np.broadcast_arrays(
        r.tensor_count * r.tensor_elements * r.tensor_macs_per_element * technology.array_element_mm2,
        r.tensor_count * technology.sram.area_mm2(r.tensor_local_bytes),
        r.vector_count * r.vector_lanes * technology.vector_lane_mm2,
        r.vector_count * technology.sram.area_mm2(r.vector_local_bytes),
        technology.sram.area_mm2(r.global_buffer_bytes),
        r.hbm_stacks * technology.hbm_phy_mm2_per_stack,
    )
    tensor, tensor_buffers, vector, vector_buffers, global_buffer, hbm = parts
    return AreaBreakdown(
        tensor_units=tensor,
        tensor_buffers=tensor_buffers,
        vector_units=vector,
        vector_buffers=vector_buffers,
        global_buffer=global_buffer,
        hbm_phy=hbm,
        overhead=(technology.overhead_factor - 1.0)
        * (tensor + tensor_buffers + vector + vector_buffers + global_buffer + hbm),
    )


def area_mm2(resources: Resources | Architectures, technology: Technology) -> FloatArray:
    """Return the area of each architecture in mm², shape ``(n_archs,)``."""
    return area_breakdown(resources, technology).total_mm2


def price_accelerator_area(accelerator: Accelerator, technology: Technology) -> float:
    """Return the area in mm² that ``technology`` gives for one accelerator, whatever its published die area."""
    return float(area_mm2(Architectures.of(accelerator), technology)[0])
