"""One pass of the exact search through all layers of states, for many problems at once.

How states come about and which of them are dropped says :mod:`archplace.search.schedule.exact`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Floats
from archplace.search.schedule._state_model import Model
from archplace.search.schedule._states import Children, States
from archplace.search.schedule.problem import PROOF_TOLERANCE

_LIMITED_WIDTH = 256
"""States per layer once the limit is reached."""
_BLOCK = 1024
"""States whose children are made at a time."""
_CROWD = 8
"""Times the width: children of a layer among which the superfluous are looked for; with the block, what limits
memory."""
_SLACK = PROOF_TOLERANCE / 4
"""A state must promise to be better than the known schedule by this share, which exceeds all rounding."""
_ROUNDING = 1e-14
"""Share of the makespan by which a state may be worse and still make another superfluous: rounding of equal sums.
"""
_COMPARED = 40
"""A state is compared with up to this many others of the same operators. More would find little, and none is
required."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What one pass has found for one problem."""

    operators: list[int]
    """In the order of start times, numbered as the model does; empty if nothing better than the known schedule."""
    on_all: list[bool]
    """The mode of each, in that order."""
    start_s: list[float]
    """In that order."""
    bound_s: float
    """No schedule is shorter."""
    cut: bool
    """The width has cut off states that could have been better."""
    made: int
    """States made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """Where the states kept in one layer come from; arrays as in :class:`Children`."""

    parent: NDArray[np.int64]
    operator: NDArray[np.int64]
    on_all: NDArray[np.bool_]
    start_s: Floats


def go_through(model: Model, *, known_s: Floats, width: int, most: NDArray[np.int64]) -> list[Found]:
    """Go through all layers, keeping up to ``width`` states of each and problem; only few once ``most`` are made."""
    states = model.root()
    steps: list[_Step] = []
    cut_s = np.full(model.n_problems, np.inf)
    made = np.zeros(model.n_problems, dtype=np.int64)
    worth_s = known_s * (1 - _SLACK)
    last = model.n_ops - 1
    makespan_s = np.zeros(0)
    for layer in range(model.n_ops):
        widths = np.where(made > most, min(width, _LIMITED_WIDTH), width)
        blocks = []
        for first in range(0, len(states), _BLOCK):
            rows = slice(first, min(first + _BLOCK, len(states)))
            block = model.children(states, rows, complete=layer == last)
            made += np.bincount(block.states.problem, minlength=model.n_problems)
            blocks.append(block.rows(np.flatnonzero(block.bound_s < worth_s[block.states.problem])))
        children = Children.joined(blocks)
        if layer == last:
            children, _ = _least(children, np.ones(model.n_problems, dtype=np.int64))
        else:
            children, crowded_s = _least(children, widths * _CROWD)
            children = children.rows(_undominated(children.states, tolerance_s=known_s * _ROUNDING))
            children, dropped_s = _least(children, widths)
            cut_s = np.minimum(cut_s, np.minimum(crowded_s, dropped_s))
        states = children.states
        steps.append(
            _Step(parent=children.parent, operator=children.operator, on_all=children.on_all, start_s=children.start_s)
        )
        makespan_s = children.bound_s
        if not len(states):
            break
    complete = dict(zip(states.problem.tolist(), range(len(states)), strict=True))
    return [
        _found(steps, complete.get(i), makespan_s, known_s=float(known_s[i]), cut_s=float(cut_s[i]), made=int(made[i]))
        for i in range(model.n_problems)
    ]


def _found(
    steps: list[_Step], row: int | None, makespan_s: Floats, *, known_s: float, cut_s: float, made: int
) -> Found:
    """What a pass has found that ends in this ``row``, or in none."""
    if row is None:
        return Found(operators=[], on_all=[], start_s=[], bound_s=min(known_s, cut_s), cut=cut_s < np.inf, made=made)
    best_s = float(makespan_s[row])
    operators: list[int] = []
    on_all: list[bool] = []
    start_s: list[float] = []
    for step in reversed(steps):
        operators.append(int(step.operator[row]))
        on_all.append(bool(step.on_all[row]))
        start_s.append(float(step.start_s[row]))
        row = int(step.parent[row])
    return Found(
        operators=operators[::-1],
        on_all=on_all[::-1],
        start_s=start_s[::-1],
        bound_s=min(best_s, cut_s),
        # What was cut off matters only if it could be better than what was found since.
        cut=cut_s < best_s * (1 - _SLACK),
        made=made,
    )


def _least(children: Children, counts: NDArray[np.int64]) -> tuple[Children, Floats]:
    """The children of the least bounds, up to (p,) ``counts`` of each problem, in their order; (p,) the least of the
    others, inf where there are none.
    """
    problem = children.states.problem
    dropped_s = np.full(len(counts), np.inf)
    sizes = np.bincount(problem, minlength=len(counts))
    if (sizes <= counts).all():
        return children, dropped_s
    by_bound = np.lexsort((children.bound_s, problem))
    rank = np.arange(len(problem)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    most = counts[problem]  # rows of a problem stand together, before and after sorting
    next_best = np.flatnonzero(rank == most)
    dropped_s[problem[next_best]] = children.bound_s[by_bound[next_best]]
    return children.rows(np.sort(by_bound[rank < most])), dropped_s


def _undominated(states: States, *, tolerance_s: Floats) -> NDArray[np.int64]:
    """The rows that no other row of their problem makes superfluous; (p,) ``tolerance_s``."""
    # All that decides how a schedule may go on: less is better, column by column.
    profile = np.concatenate([states.free_s, states.ready_s], axis=1)
    rows = np.lexsort((profile.sum(axis=1), states.started, states.problem))
    profile, started, problem = profile[rows], states.started[rows], states.problem[rows]
    # Whatever makes a row superfluous has the smaller sum, so it comes earlier.
    distance = 1
    while distance <= min(_COMPARED, len(rows) - 1):
        same = np.flatnonzero((started[distance:] == started[:-distance]) & (problem[distance:] == problem[:-distance]))
        if not len(same):
            break
        more = profile[same] - profile[same + distance]
        superfluous = same[(more <= tolerance_s[problem[same]][:, None]).all(axis=1)] + distance
        if len(superfluous):
            left = np.ones(len(rows), dtype=np.bool_)
            left[superfluous] = False
            rows, profile, started, problem = rows[left], profile[left], started[left], problem[left]
            continue  # others have moved to this distance
        distance += 1
    return np.sort(rows)
