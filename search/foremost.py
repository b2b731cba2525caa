"""Which of many bounds to look at first."""

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.pareto import front_mask

PROMISING_AT_ONCE = 128
"""Architectures evaluated before the front is renewed, where there are more than two objectives."""

FASTEST_AT_ONCE = 32
"""Architectures evaluated before the best is renewed, where there is one objective."""


def foremost(values: FloatArray) -> NDArray[np.intp]:
    """Return rows on the front of ``values`` (n, n_objectives): all for two objectives, some beyond, more for one.

    With more objectives the front of bounds may be most of them: those are taken that are least by one of some weighted
    sums of logarithms, which are on it.
    """
    if len(values) == 0:
        return np.empty(0, dtype=np.intp)
    if values.shape[1] == 1:
        # The front of one objective is a single point: some of those next to it are as promising.
        return np.sort(np.argsort(values[:, 0], kind="stable")[:FASTEST_AT_ONCE])
    if values.shape[1] == 2:
        return np.flatnonzero(front_mask(values))
    # The unit weights and fixed points of a simplex, by the fractional parts of multiples of irrational numbers.
    n_objectives = values.shape[1]
    steps = np.sqrt(np.array([2.0, 3.0, 5.0, 7.0, 11.0, 13.0][:n_objectives]))
    spread = np.modf(np.arange(1, PROMISING_AT_ONCE)[:, None] * steps[None, :])[0]
    weights = -np.log(np.maximum(spread, 1e-9))
    weights = np.concatenate((np.eye(n_objectives) + 1e-6, weights / weights.sum(axis=1, keepdims=True)))
    with np.errstate(divide="ignore"):
        scores = np.log(values) @ weights.T
    return np.unique(scores.argmin(axis=0))
