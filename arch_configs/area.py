"""Area of accelerators from a technology table, for many at once.

The form is A = overhead · (tensor units + their buffers + vector units + their buffers + control + global buffer + HBM
interfaces + links + double precision + fixed functions). With an overhead of 1, and units and buffers alone, it is the
area that PHAZE (Wang et al., ICML 2024) computes with Accelergy and CACTI.

The area of an architecture of a design space is that of its working parts: no spare units, no cache, no circuits that
training does not need. A chip that exists carries such things, which its section ``die`` names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
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
    cached: bool = False
    """Whether the global buffer is a cache."""
    fp64_macs_per_cycle: float = 0.0
    fixed_function_mm2: float = 0.0

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

    @classmethod
    def on_die(cls, accelerator: Accelerator) -> Self:
        """Return the resources of one accelerator's die, each of shape ``(1,)``: spares and unused circuits included.

        As :meth:`of` where nothing is known of the die.
        """
        working, die = cls.of(Architectures.of(accelerator)), accelerator.die
        if die is None:
            return working

        def total(spare: int | None, used: IntArray) -> IntArray:
            return used if spare is None else np.array([spare])

        return replace(
            working,
            tensor_count=total(die.tensor_units, working.tensor_count),
            vector_count=total(die.vector_units, working.vector_count),
            global_buffer_bytes=total(die.global_buffer_bytes, working.global_buffer_bytes),
            hbm_stacks=total(die.hbm_interfaces, working.hbm_stacks),
            cached=die.cached,
            fp64_macs_per_cycle=die.fp64_macs_per_cycle,
            fixed_function_mm2=die.fixed_function_mm2,
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
    control: FloatArray
    """What makes each vector unit a programmable core, its port of the network on chip included."""
    fp64: FloatArray
    global_buffer: FloatArray
    hbm_phy: FloatArray
    """Interfaces and controllers of the HBM stacks."""
    interfaces: FloatArray
    """Links to other devices and to the host."""
    fixed_function: FloatArray
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
    listed = _components(resources, technology)
    parts = dict(zip(listed, np.broadcast_arrays(*listed.values()), strict=True))
    overhead = (technology.overhead_factor - 1.0) * _sum(listed)
    return AreaBreakdown(**parts, overhead=np.broadcast_to(overhead, parts["tensor_units"].shape))


def area_mm2(resources: Resources | Architectures, technology: Technology) -> FloatArray:
    """Return the area of each architecture in mm², shape ``(n_archs,)``."""
    return technology.overhead_factor * _sum(_components(resources, technology))


def _components(resources: Resources | Architectures, technology: Technology) -> dict[str, FloatArray]:
    """Return the area of each component but the overhead, each of the shape of what it depends on."""
    r = Resources.of(resources) if isinstance(resources, Architectures) else resources
    cache_factor = technology.cache_factor if r.cached else 1.0
    return {
        "tensor_units": r.tensor_count * r.tensor_elements * r.tensor_macs_per_element * technology.array_element_mm2,
        "tensor_buffers": r.tensor_count * technology.sram.area_mm2(r.tensor_local_bytes),
        "vector_units": r.vector_count * r.vector_lanes * technology.vector_lane_mm2,
        "vector_buffers": r.vector_count * technology.sram.area_mm2(r.vector_local_bytes),
        "control": r.vector_count * technology.control_mm2_per_vector_unit,
        "global_buffer": technology.sram.area_mm2(r.global_buffer_bytes) * cache_factor,
        "hbm_phy": r.hbm_stacks * technology.hbm_phy_mm2_per_stack,
        "fp64": np.asarray(r.fp64_macs_per_cycle * technology.fp64_mac_mm2),
        "interfaces": np.asarray(technology.interfaces_mm2),
        "fixed_function": np.asarray(r.fixed_function_mm2),
    }


def _sum(components: Mapping[str, FloatArray]) -> FloatArray:
    return np.asarray(sum(components.values()), dtype=np.float64)


def known_area_mm2(architectures: Architectures, technology: Technology) -> FloatArray:
    """Return the area of each architecture in mm², shape ``(n_archs,)``: what its column has, else :func:`area_mm2`.

    The column of a chip that exists counts its whole die (:func:`price_accelerator_area`); that of a design space is
    :func:`area_mm2` already. ``technology`` must be the table that the column was priced by.
    """
    known = architectures.area_mm2
    missing = np.isnan(known)
    return np.where(missing, area_mm2(architectures, technology), known) if missing.any() else known


def price_accelerator_area(accelerator: Accelerator, technology: Technology) -> float:
    """Return the area in mm² that ``technology`` gives for one accelerator, whatever its published area.

    In the process that the chip is made in, which its file names, its section ``die`` counts: the result is its die. In
    any other it is that of its working parts, as a design space's architectures are priced.
    """
    return float(area_mm2(_priced(accelerator, technology), technology)[0])


def working_area_mm2(accelerator: Accelerator, technology: Technology) -> float:
    """Return the area in mm² of an accelerator's working parts, as a design space's architectures are priced.

    What its die carries beside them does not count, whatever process it is made in.
    """
    return float(area_mm2(Resources.of(Architectures.of(accelerator)), technology)[0])


def accelerator_area_breakdown(accelerator: Accelerator, technology: Technology) -> AreaBreakdown:
    """Return the components of :func:`price_accelerator_area`, each of shape ``(1,)``."""
    return area_breakdown(_priced(accelerator, technology), technology)


def _priced(accelerator: Accelerator, technology: Technology) -> Resources:
    made_in_it = accelerator.technology == technology.name
    return Resources.on_die(accelerator) if made_in_it else Resources.of(Architectures.of(accelerator))
