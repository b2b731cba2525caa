"""Joules of operators and watts of accelerators, from a technology table.

The energy of an operator is counted, not timed: multiply-accumulates, lane operations and bytes through each buffer,
each at the table's joules (the method of Accelergy: Wu, Emer and Sze, ICCAD 2019). What an accelerator draws whatever
it does, :func:`static_power_w`, comes on top for as long as it is switched on.

Traffic is that of a mode, as seconds are. On *all units* an operand has one copy in the global buffer, and all of the
buffer serves for its reuse. On *one unit* an operator has a share of the buffer and may read its operands again: where
many operators run side by side on small buffers, that is several times the traffic.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.area import known_area_mm2
from archplace.arch_configs.errors import ConfigError
from archplace.arch_configs.technology import Technology
from archplace.costmodel.operators import ELEMENT_BYTES, Pricer
from archplace.workloads.operators import Operator


class EnergyParts(NamedTuple):
    """Where the dynamic joules of one execution of an operator on one device go, shape ``(n_archs,)`` each."""

    arrays_j: FloatArray
    """Multiply-accumulates of the tensor units."""
    lanes_j: FloatArray
    local_buffers_j: FloatArray
    """Local buffers of the tensor units; those of the vector units are in the energy of a lane's operation."""
    global_buffer_j: FloatArray
    hbm_j: FloatArray
    network_j: FloatArray

    @property
    def total_j(self) -> FloatArray:
        """Joules of the operator."""
        return self.arrays_j + self.lanes_j + self.local_buffers_j + self.global_buffer_j + self.hbm_j + self.network_j


def energy_parts(pricer: Pricer, operator: Operator, technology: Technology, *, one_unit: bool = False) -> EnergyParts:
    """Return what the dynamic joules of one operator consist of, on every architecture of ``pricer``.

    On all units, or on ``one_unit`` while the others work on something else.

    Counts are those of :meth:`Pricer.activity`; padding costs time but no energy. The clock does not enter, as long as
    it does not change the mapping: with ports of so many bytes per *cycle* it never does.

    Raises :class:`ConfigError` for a table without energies or without the operator's precision.
    """
    return _Energies(pricer, technology).parts(operator, one_unit=one_unit)


def operator_energy_j(
    pricer: Pricer, operators: Sequence[Operator], technology: Technology, *, one_unit: bool = False
) -> FloatArray:
    """Return the dynamic joules of one execution of each operator on one device, shape ``(n_archs, n_ops)``.

    As the sum of :func:`energy_parts`. What :meth:`Pricer.price` has worked out is used again.
    """
    energies = _Energies(pricer, technology)
    joules = np.empty((len(pricer.architectures), len(operators)))
    for i, operator in enumerate(operators):
        joules[:, i] = energies.parts(operator, one_unit=one_unit).total_j
    return joules


class _Energies:
    """The table's energies for the buffers of each architecture."""

    def __init__(self, pricer: Pricer, technology: Technology) -> None:
        self._pricer = pricer
        self._table = technology.need_energy()
        self._local = self._table.buffer_j_per_byte(pricer.architectures.tensor_local_bytes)
        self._global = self._table.buffer_j_per_byte(pricer.architectures.global_buffer_bytes)
        throttled = pricer.architectures.throttled
        self._switching = np.ones(1) if throttled is None else throttled.voltage**2

    def parts(self, operator: Operator, *, one_unit: bool) -> EnergyParts:
        table, done = self._table, self._pricer.activity(operator, one_unit=one_unit)
        return EnergyParts(
            arrays_j=self._switching * (done.macs * table.of_mac_j(operator.precision) if done.macs else 0.0),
            lanes_j=self._switching * (done.lane_operations * table.lane_operation_j),
            local_buffers_j=self._switching * done.local_bytes * self._local,
            global_buffer_j=self._switching * done.global_bytes * self._global,
            hbm_j=done.hbm_bytes * table.hbm_j_per_byte,
            network_j=np.full(1, done.network_bytes * table.network_j_per_byte),
        )


def static_power_w(architectures: Architectures, technology: Technology, *, host: bool = False) -> FloatArray:
    """Return the watts that each accelerator at work draws whatever it does, shape ``(n_archs,)``.

    Leakage by the area (:func:`archplace.arch_configs.area.known_area_mm2`), idle HBM by its stacks, and
    :func:`control_power_w`; with ``host`` also the accelerator's share of its server, which is no part of the
    accelerator's own power but of what a training run takes.

    Raises :class:`ConfigError` for a table without static power.
    """
    table = technology.need_power()
    voltage = 1.0 if architectures.throttled is None else architectures.throttled.voltage
    watts: FloatArray = (
        voltage * table.die_w_per_mm2 * known_area_mm2(architectures, technology)
        + voltage * table.hbm_w_per_stack * architectures.hbm_stacks
        + control_power_w(architectures, technology)
        + (table.host_w_per_accelerator if host else 0.0)
    )
    return watts


def control_power_w(architectures: Architectures, technology: Technology) -> FloatArray:
    """Return the watts of what makes vector units programmable cores, shape ``(n_archs,)``.

    At the nominal clock, or at the clock and voltage that a power limit leaves.

    Instructions are fetched, scheduled and issued, and clocks run, whether the lanes and arrays behind them find their
    operands or wait. Raises :class:`ConfigError` for a table without static power.
    """
    per_cycle_j = technology.need_power().control_j_per_vector_unit_cycle
    throttled = architectures.throttled
    per_s = architectures.clock_hz if throttled is None else throttled.clock_hz * throttled.voltage**2
    watts: FloatArray = architectures.vector_count * per_s * per_cycle_j
    return watts


def peak_power_w(
    architectures: Architectures,
    technology: Technology,
    precision: str = "bf16",
    *,
    network_bytes_per_s: float = 0.0,
) -> FloatArray:
    """Return the watts that no operator of ``precision`` can exceed at the nominal clock, shape ``(n_archs,)``.

    Static power, lanes and HBM at full rate, and the larger of two loads: *arrays*, with all multiply-accumulates and
    local ports busy, and *vector work*, with the global buffer's port busy. In the first the global buffer moves

        hbm + min(port, 2 · element · MAC/s / ⌊√(S/2)⌋)   bytes per second,

    S the elements of a local buffer, because arrays at full rate take an operand from the global buffer again only
    after a block of ⌊√(S/2)⌋² results (the schedule of Hong and Kung, STOC 1981, with double buffering). Kernels that
    cut products into tiles of their own choice may keep the port busy all the same.

    For every operator, dynamic joules divided by the seconds on all units, plus static power, is at most this; an
    accelerator that sends ``network_bytes_per_s`` (the bandwidth of the fastest network dimension) at the same time
    draws that much more. The host's share is not in it. A chip whose limit is lower slows down instead
    (:mod:`archplace.costmodel.throttle`).

    Raises :class:`ConfigError` for a table without energies, static power or the precision, or arrays without it.
    """
    table, archs = technology.need_energy(), architectures
    if precision not in archs.tensor_macs_per_element:
        allowed = ", ".join(sorted(archs.tensor_macs_per_element))
        raise ConfigError(f"precision {precision}: the tensor units have no rate for it; they have {allowed}")
    size = ELEMENT_BYTES[precision]
    elements = archs.tensor_count * archs.tensor_rows * archs.tensor_cols
    macs_per_s = elements * archs.tensor_macs_per_element[precision] * archs.clock_hz
    block = np.maximum(np.floor(np.sqrt(archs.tensor_local_bytes / (2 * size))), 1.0)
    # Reads and writes that have ports of their own may both run at full rate.
    hbm_bytes_per_s = archs.hbm_bytes_per_s * np.where(archs.hbm_separate_ports, 2.0, 1.0)
    reused_bytes_per_s = archs.global_buffer_bytes_per_s
    if archs.blocks is None:
        reused_bytes_per_s = np.minimum(reused_bytes_per_s, 2 * size * macs_per_s / block)
    local = table.buffer_j_per_byte(archs.tensor_local_bytes)
    shared = table.buffer_j_per_byte(archs.global_buffer_bytes)
    both_w = (
        archs.vector_count * archs.vector_lanes * archs.clock_hz * table.lane_operation_j
        + hbm_bytes_per_s * (table.hbm_j_per_byte + shared)
        + network_bytes_per_s * table.network_j_per_byte
    )
    arrays_w = (
        macs_per_s * table.of_mac_j(precision)
        + archs.tensor_count * archs.tensor_local_bytes_per_s * local
        + reused_bytes_per_s * shared
    )
    vectors_w = archs.global_buffer_bytes_per_s * shared
    peak: FloatArray = static_power_w(archs, technology) + both_w + np.maximum(arrays_w, vectors_w)
    return peak
