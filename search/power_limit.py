"""Architectures at the clocks that a run's power limit leaves them."""

from collections.abc import Sequence

from archplace.arch_configs import Accelerator, Architectures, Cluster, load_accelerator, load_technology
from archplace.arch_configs.calibration import NOMINAL
from archplace.arch_configs.cluster import IDEAL_SOFTWARE
from archplace.arch_configs.technology import Technology
from archplace.costmodel import kept_clock, within_limit


def throttled(
    architectures: Architectures, limit_w: float, technology: Technology, cluster: Cluster, precisions: Sequence[str]
) -> Architectures:
    """Return the architectures at the clocks that ``limit_w`` leaves each.

    What is known of kernels and software was measured on the cluster's accelerator at its own limit; where the cluster
    names none, or one without a limit, the rate of the arrays that they reach stands for the clock. A precision that it
    does not multiply in was not measured: the others count, all that it has if it has none of ``precisions``.
    """
    known = _known(architectures, cluster, precisions)
    return within_limit(architectures, limit_w, technology, cluster, precisions, known=known)


def throttled_chip(
    accelerator: Accelerator,
    architectures: Architectures,
    limit_w: float,
    technology: Technology,
    cluster: Cluster,
    precisions: Sequence[str],
) -> Architectures:
    """Return a chip that exists, ``architectures`` of one row, at its own limit; at ``limit_w`` if it has none."""
    own_w = accelerator.thermal_design_power_w
    return throttled(architectures, limit_w if own_w is None else own_w, technology, cluster, precisions)


def _known(architectures: Architectures, cluster: Cluster, precisions: Sequence[str]) -> float:
    """Return the share of the clock that calibrations stand for; 1 where nothing is calibrated."""
    if architectures.calibration == NOMINAL and cluster.software == IDEAL_SOFTWARE:
        return 1.0
    if cluster.accelerator is not None:
        chip = load_accelerator(cluster.accelerator)
        if chip.technology is not None and chip.thermal_design_power_w is not None:
            technology = load_technology(chip.technology)
            rates = chip.tensor_units.macs_per_element_per_cycle
            measured = [precision for precision in precisions if precision in rates] or sorted(rates)
            return min(kept_clock(chip, technology, cluster, precision) or 1.0 for precision in measured)
    return architectures.calibration.tensor_rate * cluster.software.tensor_rate
