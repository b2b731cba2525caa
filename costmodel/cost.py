"""Dollars of an accelerator with its share of a server, and of the energy that it takes.

Manufacturing cost without design, masks, margins and buildings: what changes with the architecture.
"""

import numpy as np

from archplace.arch_configs.architectures import Architectures, FloatArray, IntArray
from archplace.arch_configs.area import known_area_mm2
from archplace.arch_configs.technology import CostTable, Technology

RETICLE_LIMIT_MM2 = 858.0
"""The largest die that one exposure makes: 26 mm × 33 mm."""


def die_yield(die_mm2: FloatArray, table: CostTable) -> FloatArray:
    """Return the share of dies without a defect, shape of the argument: the negative binomial law (1 + A·D/α)^−α.

    D defects per area that come in clusters, α of them (Stapper, IBM J. Res. Dev. 27(6), 1983). No die with a defect is
    sold with a part switched off, so that the cost is an upper limit for designs that have spare units.
    """
    good: FloatArray = (1 + die_mm2 * table.defects_per_mm2 / table.defect_clustering) ** -table.defect_clustering
    return good


def dies_per_wafer(die_mm2: FloatArray, table: CostTable) -> FloatArray:
    """Return how many whole dies of an area a wafer gives, shape of the argument, not rounded.

    π·d²/(4·A) · exp(−√(8·A)/d): to first order the usual π·d²/(4·A) − π·d/√(2·A) (Hennessy and Patterson, Computer
    Architecture, section 1.6), which turns negative for dies of a ninth of the wafer; this never does.
    """
    d = table.wafer_diameter_mm
    dies: FloatArray = np.pi * d**2 / (4 * die_mm2) * np.exp(-np.sqrt(8 * die_mm2) / d)
    return dies


def die_cost_usd(die_mm2: FloatArray, technology: Technology) -> FloatArray:
    """Return the dollars of a good die of each area, shape of the argument; it grows faster than the area.

    A die beyond :data:`RETICLE_LIMIT_MM2` is priced by the same law, as if it could be made in one piece: the price of
    several dies and of what joins them depends on how they are cut, which the area does not tell. An area budget keeps
    such dies out. Raises :class:`ConfigError` for a table without prices.
    """
    table = technology.need_cost()
    return table.wafer_usd / (dies_per_wafer(die_mm2, table) * die_yield(die_mm2, table))


def accelerator_cost_usd(
    architectures: Architectures, hbm_bytes: float | FloatArray | IntArray, technology: Technology
) -> FloatArray:
    """Return the dollars of each accelerator in a server, shape ``(n_archs,)``.

    Die by area and yield, package, HBM by ``hbm_bytes`` (one capacity, or one for each architecture, shape
    ``(n_archs,)``), share of the host. Raises :class:`ConfigError` for a table without prices.
    """
    table = technology.need_cost()
    memory = np.asarray(hbm_bytes, dtype=np.float64) * table.hbm_usd_per_byte
    die = die_cost_usd(known_area_mm2(architectures, technology), technology)
    total: FloatArray = die + table.package_usd + memory + table.host_usd_per_accelerator
    return total


def service_life_s(technology: Technology) -> float:
    """Return the seconds over which hardware is written off; :class:`ConfigError` for a table without prices."""
    return technology.need_cost().service_life_s
