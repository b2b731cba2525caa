"""Least squares inside bounds by Levenberg and Marquardt's method, for residuals that take seconds to work out."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Residuals = Callable[[FloatArray], FloatArray]

_STEP = 5e-3
"""Far enough that the step functions of quantisation are averaged over."""
_START_DAMPING = 1e-2
_MOST_DAMPING = 1e4
_ENOUGH = 1e-4
"""Relative gain of a round below which the search ends."""


def least_squares(
    residuals: Residuals, start: FloatArray, low: FloatArray, high: FloatArray, *, most_rounds: int
) -> FloatArray:
    """Return the point between ``low`` and ``high``, ``(n,)``, with a least sum of squares, from ``start`` downhill.

    Slopes are differences; a coordinate at its bound stays there while the slope points outwards (Kanzow, Yamashita and
    Fukushima 2004, J. Comput. Appl. Math. 172, section 3, take the same projected steps). The residuals may be of any
    length, but of the same at all points. A start outside the bounds is moved to the nearest point within.
    """
    at = np.clip(start, low, high)
    here = residuals(at)
    damping = _START_DAMPING
    for _ in range(most_rounds):
        slopes = _slopes(residuals, at, here, high)
        before = float(here @ here)
        while damping < _MOST_DAMPING:
            trial = np.clip(at - _step(slopes, here, at, low, high, damping), low, high)
            there = residuals(trial)
            if float(there @ there) < before:
                at, here, damping = trial, there, damping / 3
                break
            damping *= 6
        if before - float(here @ here) <= _ENOUGH * before:
            break
    return at


def _slopes(residuals: Residuals, at: FloatArray, here: FloatArray, high: FloatArray) -> FloatArray:
    """Return the differences towards the inside, ``(residuals, n)``."""
    slopes = np.empty((len(here), len(at)))
    for index in range(len(at)):
        step = _STEP if at[index] + _STEP <= high[index] else -_STEP
        moved = at.copy()
        moved[index] += step
        slopes[:, index] = (residuals(moved) - here) / step
    return slopes


def _step(
    slopes: FloatArray, here: FloatArray, at: FloatArray, low: FloatArray, high: FloatArray, damping: float
) -> FloatArray:
    gradient = slopes.T @ here
    stuck = ((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0))
    step = np.zeros_like(at)
    free = np.flatnonzero(~stuck)
    if len(free):
        normal = slopes[:, free].T @ slopes[:, free]
        normal += damping * np.diag(np.diag(normal) + 1e-9)
        step[free] = np.linalg.solve(normal, gradient[free])
    return step
