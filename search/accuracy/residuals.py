"""What residuals of a calibration say about predictions to come: intervals, and when two predictions differ.

*Intervals* are those of split conformal prediction (Papadopoulos et al. 2002, ECML, section 3; Lei et al. 2018, JASA
113, theorem 2.2): order statistics of residuals that the fit has not seen. If the next step is exchangeable with the n
measured ones, [k-th least, k-th greatest] with k = floor((n + 1) · (1 - share) / 2) covers it with a probability of at
least ``share``, whatever the residuals' distribution. Few steps give wide intervals, fewer than 2 / (1 - share) - 1
none.

*Residuals that the fit has not seen* are those of the steps that were held out, and for the others what they would be
had all steps of their model been left out. That takes no fit of its own: to first order leaving out the rows G moves
the parameters by (A - J_G' J_G)^-1 J_G' f_G, A = J'J of all rows and of the prior (Cook and Weisberg 1982, Residuals
and Influence in Regression, section 3.5.4).

*Comparisons.* Designs of one search, or placements of one job, share most of what a model gets wrong. The errors of
ratios of two predictions for one model on as many devices of one cluster are what is left of it.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.calibration import CENTRAL_SHARE, Uncertainty

FloatArray = NDArray[np.float64]

FEWEST_COMPARED = 5
"""Groups of comparable steps below which nothing is said about comparisons."""


def central_interval(residuals: FloatArray, share: float = CENTRAL_SHARE) -> tuple[float, float] | None:
    """Return the bounds between which ``share`` of what follows lies; None where the residuals are too few to say."""
    rank = int(np.floor((len(residuals) + 1) * (1 - share) / 2 + 1e-9))
    if rank < 1:
        return None
    ordered = np.sort(residuals)
    return float(ordered[rank - 1]), float(ordered[-rank])


def comparison_error(
    residuals: FloatArray, groups: Sequence[Hashable], share: float = CENTRAL_SHARE
) -> tuple[float, int]:
    """Return how far differences of two residuals of one group are from 0 in ``share`` of pairs, and how many groups.

    Every group with a pair weighs the same. NaN without any.
    """
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    sizes, weights = [], []
    for rows in members.values():
        if len(rows) > 1:
            first, second = np.triu_indices(len(rows), 1)
            found = residuals[rows]
            sizes.append(np.abs(found[first] - found[second]))
            weights.append(np.full(len(first), 1 / len(first)))
    if not sizes:
        return float("nan"), 0
    errors, weight = np.concatenate(sizes), np.concatenate(weights)
    order = np.argsort(errors)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(errors[order][np.searchsorted(reached, share - 1e-9)]), len(sizes)


def uncertainty_of(log_ratios: FloatArray, comparable: Sequence[Hashable]) -> Uncertainty | None:
    """Return what logarithms of measured over predicted seconds say; None where they are too few.

    Steps with equal ``comparable`` are of one model on as many devices.
    """
    interval = central_interval(log_ratios)
    if interval is None:
        return None
    error, groups = comparison_error(log_ratios, comparable)
    return Uncertainty(
        low=float(np.exp(interval[0])),
        high=float(np.exp(interval[1])),
        compared=float(np.expm1(error)) if groups >= FEWEST_COMPARED else None,
        steps=len(log_ratios),
    )


def left_out(
    ratios: FloatArray,
    slopes: FloatArray,
    residuals: FloatArray,
    jacobian: FloatArray,
    prior: FloatArray,
    groups: Sequence[Hashable],
) -> FloatArray:
    """Return what ``ratios`` (n,) would be if the parameters had been fitted without their group, to first order.

    ``slopes`` (n, p) are those of the ratios; ``residuals`` (n,) with ``jacobian`` (n, p) are what the fit makes least
    squares of, and ``prior`` (p,) the curvature that the parameters' prior adds.
    """
    if slopes.shape[1] == 0:
        return ratios
    normal = jacobian.T @ jacobian + np.diag(prior)
    found = ratios.copy()
    for group in dict.fromkeys(groups):
        rows = np.array([index for index, each in enumerate(groups) if each == group])
        part = jacobian[rows]
        moved = np.linalg.solve(normal - part.T @ part, part.T @ residuals[rows])
        found[rows] += slopes[rows] @ moved
    return found
