"""The hypervolume of a front: the share of a box of objectives that it dominates, exactly.

It is 0 for no front and 1 for one that reaches the ideal point; it grows whenever a point is found that no earlier one
dominates or equals. Two objectives take one sweep along the front; more take the WFG algorithm (L. While, L. Bradstreet
and L. Barone, "A fast way of calculating exact hypervolumes", IEEE Transactions on Evolutionary Computation 16(1),
2012): the volume that a point adds to those after it is its own less that of the others limited to it,

    hv(S) = Σ_i ( box(p_i) − hv(front of { max(p_j, p_i) : j > i }) )

whose time may grow exponentially with the number of objectives, so that it has a limit.
"""

from dataclasses import dataclass

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.search.pareto import front_mask

MOST_STEPS = 30_000
"""Sets of points looked at, some seconds; beyond that the front is too large for its number of objectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The box of objectives that a front is measured in: by logarithms, as objectives span decades."""

    ideal: FloatArray
    """(n_objectives,) positive values that no design of the space can be below."""
    reference: FloatArray
    """(n_objectives,) values beyond which a design does not count."""

    @classmethod
    def of_bounds(cls, bounds: FloatArray) -> "Box | None":
        """Return the box between the least and the greatest bound (n_archs, n_objectives) of each objective.

        Infeasible rows are infinite and do not count; None where nothing else is there. A design may be worse than all
        bounds: it then adds nothing.
        """
        feasible = bounds[np.isfinite(bounds).all(axis=1) & (bounds > 0).all(axis=1)]
        if len(feasible) == 0:
            return None
        return cls(ideal=feasible.min(axis=0), reference=feasible.max(axis=0))

    def share(self, values: FloatArray, *, most_steps: int = MOST_STEPS) -> float | None:
        """Return the share of the box that ``values`` (n_points, n_objectives) dominate; None where it takes too long.

        An objective that is the same everywhere has no width, and does not count.
        """
        wide = self.reference > self.ideal
        inside = (values <= self.reference).all(axis=1)
        if not inside.any():
            return 0.0
        if not wide.any():
            return 1.0
        ideal, reference = self.ideal[wide], self.reference[wide]
        places = np.log(np.maximum(values[inside][:, wide], ideal) / ideal) / np.log(reference / ideal)
        return hypervolume(places, most_steps=most_steps)


def hypervolume(points: FloatArray, *, most_steps: int = MOST_STEPS) -> float | None:
    """Return the volume of the unit cube that ``points`` (n_points, n_objectives), all minimised, dominate.

    Points outside the cube count as far as they dominate some of it. None where it takes more than ``most_steps`` sets
    of points.
    """
    points = np.clip(points, 0.0, None)
    points = points[(points < 1).all(axis=1)]
    if len(points) == 0:
        return 0.0
    work = _Work(most_steps)
    try:
        return work.volume(_front(points))
    except _TooManySteps:
        return None


class _TooManySteps(Exception):  # noqa: N818  # it ends a recursion, it is no error
    """The limit has been reached."""


class _Work:
    def __init__(self, most_steps: int) -> None:
        self._left = most_steps

    def volume(self, front: FloatArray) -> float:
        """Return the volume of a front of distinct points inside the cube."""
        self._left -= 1
        if self._left < 0:
            raise _TooManySteps
        n, k = front.shape
        if n == 0:
            return 0.0
        if k == 1:
            return float(1 - front.min())
        if n == 1:
            return float(np.prod(1 - front[0]))
        if k == 2:
            return _area(front)
        # Worst in the last objective first: what is limited by such a point all has its last value, so that the volume
        # that remains has one objective less.
        front = front[np.lexsort((*front.T[:-1], -front[:, -1]))]
        total = 0.0
        for i in range(n):
            own = float(np.prod(1 - front[i]))
            if i + 1 < n:
                limited = np.maximum(front[i + 1 :, :-1], front[i, :-1])
                own -= float(1 - front[i, -1]) * self.volume(_front(limited))
            total += own
        return total


def _front(points: FloatArray) -> FloatArray:
    distinct: FloatArray = np.unique(points[front_mask(points)], axis=0)
    return distinct


def _area(front: FloatArray) -> float:
    """Return the area that a staircase of points sorted by the first objective dominates."""
    x, y = front[:, 0], front[:, 1]
    below = np.concatenate(([1.0], y[:-1]))
    return float(((1 - x) * (below - y)).sum())
