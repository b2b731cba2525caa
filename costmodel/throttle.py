"""The clock that a power limit leaves, for a given load.

A chip at its limit lowers clock and supply voltage together. With x the clock and v the voltage by their nominal
values, v = v₀ + (1 − v₀)·x, switching takes v² as much energy, leakage v as much power, and what the clock times takes
1/x as long; HBM and links keep their own clocks:

    P(x) = leakage · v + control · x · v² + [E_clocked · v² + E_other] / T,   T = T_clocked / x + T_other.

Every term rises with x, so that one x meets the limit. (Switching energy C·V²: Rabaey, Chandrakasan and Nikolić,
Digital Integrated Circuits, section 5.5; that voltage falls with the clock in a straight line is an approximation.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.accelerator import Accelerator
from archplace.arch_configs.architectures import Architectures, FloatArray, Throttled
from archplace.arch_configs.area import price_accelerator_area
from archplace.arch_configs.calibration import NOMINAL
from archplace.arch_configs.cluster import Cluster
from archplace.arch_configs.technology import Technology
from archplace.costmodel.energy import control_power_w, energy_parts, static_power_w
from archplace.costmodel.operators import Pricer
from archplace.workloads.operators import Gemm, Operator, Phase, Unit

LOWEST_CLOCK = 0.1
"""No chip is slowed down below this share of its nominal clock."""
_HALVINGS = 50
_SIDE = 8192
"""Rows, columns and summed elements of the product under which a limit is held: no operator of a job draws more."""
_AT_A_TIME = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an accelerator does over and over, at its nominal clock; shapes ``(n_archs,)`` or such that broadcast."""

    clocked_s: FloatArray
    """Seconds that grow as the clock falls: arrays, lanes, on-chip buffers."""
    other_s: FloatArray
    """Seconds that do not: HBM and links, and waiting."""
    clocked_j: FloatArray
    """Dynamic joules of what has the chip's supply: arrays, lanes, on-chip buffers."""
    other_j: FloatArray
    """Dynamic joules of HBM and links."""

    @property
    def seconds(self) -> FloatArray:
        """Seconds at the nominal clock."""
        return self.clocked_s + self.other_s


def load_of(pricer: Pricer, operators: Sequence[Operator], technology: Technology, *, idle_s: float = 0.0) -> Load:
    """Return the load of ``operators``, one after the other on all units, and ``idle_s`` in which nothing runs.

    An operator that HBM or the network holds up counts as not clocked, any other as clocked. Raises
    :class:`ConfigError` for a table without energies or without an operator's precision.
    """
    shape = (len(pricer.architectures),)
    clocked_s, other_s = np.zeros(shape), np.full(shape, float(idle_s))
    clocked_j, other_j = np.zeros(shape), np.zeros(shape)
    for operator in operators:
        seconds = pricer.price([operator]).all_s[:, 0]
        if operator.unit is Unit.NETWORK:
            held_up = np.ones(shape, dtype=np.bool_)
        else:
            parts = pricer.parts(operator, one_unit=False)
            held_up = np.broadcast_to(2 * parts.hbm_s >= seconds, shape)
        clocked_s += np.where(held_up, 0.0, seconds)
        other_s += np.where(held_up, seconds, 0.0)
        joules = energy_parts(pricer, operator, technology)
        off_chip_j = joules.hbm_j + joules.network_j
        other_j += off_chip_j
        clocked_j += joules.total_j - off_chip_j
    return Load(clocked_s=clocked_s, other_s=other_s, clocked_j=clocked_j, other_j=other_j)


def power_w(load: Load, clock: float | FloatArray, architectures: Architectures, technology: Technology) -> FloatArray:
    """Return the mean watts of each accelerator under ``load`` at the share ``clock`` of its nominal clock.

    Shape ``(n_archs,)``; without the host. It rises with the clock. Raises :class:`ConfigError` for a table without
    static power.
    """
    return _power_w(load, np.asarray(clock, dtype=np.float64), *_standing(architectures, technology), technology)


def sustained_clock(load: Load, limit_w: float, architectures: Architectures, technology: Technology) -> FloatArray:
    """Return the share of its nominal clock that each accelerator keeps under ``load`` within ``limit_w``.

    Shape ``(n_archs,)``, at most 1; NaN where even :data:`LOWEST_CLOCK` draws more than the limit. The step of a
    training job then takes ``clocked_s / share + other_s``.

    Raises ``ValueError`` for a limit that is not positive, :class:`ConfigError` for a table without static power.
    """
    if not limit_w > 0:
        raise ValueError(f"power limit: found {limit_w:g} W; allowed: more than 0")
    leakage_w, control_w = _standing(architectures, technology)

    def within(clock: FloatArray) -> NDArray[np.bool_]:
        return _power_w(load, clock, leakage_w, control_w, technology) <= limit_w

    low, high = np.full(leakage_w.shape, LOWEST_CLOCK), np.ones(leakage_w.shape)
    at_lowest = within(low)
    low = np.where(within(high), high, low)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = within(middle)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(at_lowest, low, np.nan)


def within_limit(
    architectures: Architectures,
    limit_w: float,
    technology: Technology,
    cluster: Cluster,
    precisions: Sequence[str],
    *,
    known: float = 1.0,
) -> Architectures:
    """Return the architectures at the clocks that a power limit leaves them under large products.

    Arrays, lanes and on-chip buffers slow down, HBM and links do not; ``throttled`` has the clock, the voltage and the
    watts, at most the limit but for those that draw more at :data:`LOWEST_CLOCK` even. Of several ``precisions`` the
    hungriest counts.

    What kernels and software are known to reach of the arrays' rate was measured under a power limit, which left the
    share ``known`` of the clock (:func:`kept_clock` of the chip that was measured). So that nothing is counted twice,
    only what this limit takes beyond that makes operators slower.

    Raises ``ValueError`` for a limit that is not positive, :class:`ConfigError` for a table without energies or static
    power, or precisions that it or the arrays lack.
    """
    count = len(architectures)
    clock, watts = np.ones(count), np.zeros(count)
    for start in range(0, count, _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        some = replace(architectures.take(part), calibration=NOMINAL)
        for precision in precisions:
            load = load_of(Pricer(some, cluster), [_product(precision)], technology)
            kept = sustained_clock(load, limit_w, some, technology)
            at_limit = kept < 1.0
            kept = np.where(np.isnan(kept), LOWEST_CLOCK, kept)
            # To the last digit: who draws the limit is not to beat another one by rounding.
            drawn = np.where(at_limit, limit_w, power_w(load, kept, some, technology))
            clock[part] = np.minimum(clock[part], kept)
            watts[part] = np.maximum(watts[part], drawn)
    at_rest = technology.need_power().voltage_at_standstill
    throttled = Throttled(
        clock_hz=clock * architectures.clock_hz, voltage=at_rest + (1.0 - at_rest) * clock, power_w=watts
    )
    share = np.minimum(clock / known, 1.0)
    return replace(
        architectures,
        clock_hz=architectures.clock_hz * share,
        tensor_local_bytes_per_s=architectures.tensor_local_bytes_per_s * share,
        global_buffer_bytes_per_s=architectures.global_buffer_bytes_per_s * share,
        throttled=throttled,
    )


def kept_clock(accelerator: Accelerator, technology: Technology, cluster: Cluster, precision: str) -> float | None:
    """Return the share of its clock that a chip keeps under large products at its thermal design power.

    None where its file has no such power.
    """
    if accelerator.thermal_design_power_w is None:
        return None
    area_mm2 = price_accelerator_area(accelerator, technology)
    chip = replace(Architectures.of(accelerator, area_mm2=area_mm2), calibration=NOMINAL)
    load = load_of(Pricer(chip, cluster), [_product(precision)], technology)
    clock = float(sustained_clock(load, accelerator.thermal_design_power_w, chip, technology)[0])
    return LOWEST_CLOCK if np.isnan(clock) else clock


def _product(precision: str) -> Operator:
    gemm = Gemm(m=_SIDE, n=_SIDE, k=_SIDE)
    return Operator(name="product", unit=Unit.TENSOR, phase=Phase.FORWARD, gemm=gemm, precision=precision)


def _standing(architectures: Architectures, technology: Technology) -> tuple[FloatArray, FloatArray]:
    """Return the watts of leakage with idle HBM, and of control at the nominal clock."""
    control_w = control_power_w(architectures, technology)
    return static_power_w(architectures, technology) - control_w, control_w


def _power_w(
    load: Load, clock: FloatArray, leakage_w: FloatArray, control_w: FloatArray, technology: Technology
) -> FloatArray:
    at_rest = technology.need_power().voltage_at_standstill
    voltage = at_rest + (1.0 - at_rest) * clock
    seconds = load.clocked_s / clock + load.other_s
    standing = leakage_w * voltage + control_w * clock * voltage**2
    watts: FloatArray = standing + (load.clocked_j * voltage**2 + load.other_j) / seconds
    return watts
