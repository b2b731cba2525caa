"""How far a front may be from the true one."""

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.search.objectives import Objective
from archplace.search.outcome import Fate, Outcome
from archplace.search.pareto import dominated_by, front_mask


def stated_gap(outcome: Outcome, others: FloatArray, references_gap: float = 0.0) -> tuple[float, ...]:
    """Return by objective how much better than the front, with ``others`` (n, n_objectives), a point could be.

    Relative: what was pruned is at least its bound, and what is not proven at least its best case. References that are
    up to 1 + ``references_gap`` times the true ones make every worst case so much less than it is at most: a point that
    is 1 + g times another by these is (1 + g)(1 + ``references_gap``) times it by the true ones at most.
    """
    ratio = 1.0
    front = np.array([point.values for point in outcome.front]).reshape(-1, len(outcome.objectives))
    front = np.concatenate((front, others))
    lowest = [outcome.bound[outcome.fate == Fate.PRUNED]]
    lowest += [np.array([p.best_case for p in outcome.points if not p.proven]).reshape(-1, front.shape[1])]
    moving = np.array(outcome.objectives.depend_on_time)
    for all_lowest in lowest:
        # What the front dominates as it is leaves no gap.
        some = all_lowest[dominated_by(all_lowest, front[front_mask(front)]) < 0]
        nearest = np.full(len(some), np.inf)
        for point in front:
            fits = (point[~moving] <= some[:, ~moving]).all(axis=1)
            worse = (point[moving] / some[:, moving]).max(axis=1, initial=1.0)
            np.minimum(nearest, np.where(fits, worse, np.inf), out=nearest)
        ratio = max(ratio, float(nearest.max(initial=1.0)))
    return tuple(
        ratio * (1 + references_gap if name is Objective.WORST_CASE else 1) - 1 if moves else 0.0
        for name, moves in zip(outcome.objectives.names, moving.tolist(), strict=True)
    )
