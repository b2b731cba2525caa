"""Fit what kernels reach of an accelerator's rates to measured kernels.

The parameters are those of :class:`archplace.arch_configs.Calibration`: five, all physical, one set for an accelerator
and none for a shape. Quantisation makes the error a step function of some of them, so that the fit compares values
instead of following slopes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from archplace.arch_configs.accelerator import Accelerator
from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.calibration import Calibration
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel.operators import Pricer
from archplace.workloads.operators import Operator

LIMITS = {
    "tensor_rate": (0.3, 1.0),
    "lane_rate": (0.1, 1.0),
    "global_buffer_bandwidth": (0.2, 1.0),
    "hbm_bandwidth": (0.3, 1.0),
    "launch_s": (0.0, 20e-6),
}
"""What a fit may find, by field of :class:`Calibration`."""
_POINTS = 5
_ROUNDS = 6
_SHRINK = 0.45
_NOWHERE = Cluster(name="none", dimensions=(), sources={})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """One compute operator that was measured alone, on all units."""

    operator: Operator
    seconds: float
    call_s: float = 0.0
    """Seconds of the measurement that the host needs and the device does not: a call that waits for its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFit:
    """A fitted calibration, and how far its prices are from the measurements that it was fitted to."""

    calibration: Calibration
    relative_errors: FloatArray
    """Priced / measured − 1, in the order of the measurements."""

    @property
    def mean_error(self) -> float:
        """Mean of the absolute relative errors."""
        return float(np.abs(self.relative_errors).mean())


def kernel_errors(accelerator: Accelerator, kernels: Sequence[MeasuredKernel]) -> FloatArray:
    """Return priced / measured − 1 of every kernel, shape ``(n,)``."""
    pricer = Pricer(Architectures.of(accelerator), _NOWHERE)
    priced = [pricer.parts(kernel.operator, one_unit=False).total_s.item() + kernel.call_s for kernel in kernels]
    errors: FloatArray = np.array(priced) / np.array([kernel.seconds for kernel in kernels]) - 1.0
    return errors


def fit_calibration(accelerator: Accelerator, kernels: Sequence[MeasuredKernel], *, fields: Sequence[str]) -> KernelFit:
    """Return the accelerator's calibration with those values of ``fields`` that give the least mean absolute error.

    One field after the other takes the best of five values around the present one, in a range that halves each round,
    from the middle of its limits; the other fields stay as the accelerator has them. Raises ``ValueError`` for a field
    without limits, and for fewer kernels than fields.
    """
    unknown = [name for name in fields if name not in LIMITS]
    if unknown:
        raise ValueError(f"no field {unknown[0]!r} to fit; allowed: {', '.join(LIMITS)}")
    if len(kernels) < len(fields):
        raise ValueError(f"found {len(kernels)} kernels for {len(fields)} fields; measure more, or fit fewer fields")

    def errors(values: dict[str, float]) -> FloatArray:
        found = replace(accelerator.calibration, **values)
        return kernel_errors(replace(accelerator, calibration=found), kernels)

    values = {name: sum(LIMITS[name]) / 2 for name in fields}
    best = errors(values)
    reach = 1.0
    for _ in range(_ROUNDS):
        for name in fields:
            low, high = LIMITS[name]
            around, half = values[name], reach * (high - low) / 2
            for value in np.linspace(max(low, around - half), min(high, around + half), _POINTS).tolist():
                found = errors(values | {name: value})
                if np.abs(found).mean() < np.abs(best).mean():
                    values, best = values | {name: value}, found
        reach *= _SHRINK
    return KernelFit(calibration=replace(accelerator.calibration, **values), relative_errors=best)
