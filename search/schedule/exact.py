"""Exact schedules by going through partial schedules, layer by layer.

A layer holds the states of equally many started operators (:mod:`archplace.search.schedule._states`); every state of
the next one starts one more operator, no earlier than the ones before. A state is dropped if

- no schedule from it beats the best one known (a weighted bound over units and paths, the collectives, tails), or
- another state has started the same operators, and leaves every unit, the network and every waiting operator free no
  later: what completes the one completes the other as early (the cut-set rule of Demeulemeester and Herroelen, "A
  branch-and-bound procedure for the multiple resource-constrained project scheduling problem", Management Science 38,
  1992).

Few sets of operators of a transformer layer can have started while others have not, since its backward pass is a chain
with leaves and equal leaves are interchangeable; the search then ends after some thousand states. Where it does not, a
layer keeps the states of the least bounds. The least bound dropped that way is a bound on every schedule, and the
schedule found is often better than the known one: the next, wider pass drops more by it.

Units are counted first. If the fused operators of the best schedule then find no tensor and vector unit of one index,
the search starts again with units told apart.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Floats
from archplace.search.schedule._part import Part
from archplace.search.schedule._states import MOST_OPERATORS, Children, Model, States
from archplace.search.schedule._times import assign_units, order_by_start, schedule_in_order
from archplace.search.schedule.problem import (
    PROOF_TOLERANCE,
    Mode,
    Schedule,
    ScheduleProblem,
    ScheduleStatus,
    durations_s,
    with_bound,
)

_FIRST_WIDTH = 256
"""States per layer in the first pass."""
_WIDER = 8
"""Factor of the width from pass to pass."""
_MOST_WIDTH = 16384
_BLOCK = 1024
"""States whose children are made at a time."""
_CROWD = 8
"""Times the width: children of a layer among which the superfluous are looked for; with the block, what limits
memory."""
_SLACK = PROOF_TOLERANCE / 4
"""A state must promise to be better than the known schedule by this share, which exceeds all rounding."""
_ROUNDING = 1e-14
"""Share of the makespan by which a state may be worse and still make another superfluous: rounding of equal sums.
Small enough that thousands of such steps stay within the slack."""
_COMPARED = 40
"""A state is compared with up to this many others of the same operators. More would find little, and none is
required."""


def solve_exact(
    problem: ScheduleProblem, part: Part, *, known: Schedule, lower_bound_s: float, state_limit: int
) -> Schedule:
    """The best schedule of ``problem``, or the best found and a bound if proof takes more than ``state_limit`` states.

    ``problem`` must be canonical, its graph ``part.graph``. ``known`` is a valid schedule to beat, returned if none is
    better; ``lower_bound_s`` is what is known below. ``state_limit`` counts the states made in all passes: where it is
    reached, the pass goes on with the width of the first. Besides this limit and that of the width, only a part of
    more operators than a word has bits ends with a gap.
    """
    members = np.flatnonzero(np.minimum(problem.one_s, problem.all_s) > 0)
    best = with_bound(known, lower_bound_s)
    if not 0 < len(members) <= MOST_OPERATORS:
        return best
    model = Model(problem, part, members, paired=False)
    width, made = _FIRST_WIDTH, 0
    while best.status is not ScheduleStatus.OPTIMAL:
        found = _pass(model, known_s=best.makespan_s, width=width, most=state_limit - made)
        made += found.made
        better = _schedule(problem, members, found) if found.operators else best
        if better is not None:
            best = replace(better, lower_bound_s=best.lower_bound_s)
        bound_s = min(found.bound_s * (1 - PROOF_TOLERANCE / 2), best.makespan_s)
        best = with_bound(best, max(best.lower_bound_s, bound_s))
        if better is None:
            assert not model.pairs, "these times come from units of matching indices"
            model = Model(problem, part, members, paired=True)
            width = _FIRST_WIDTH
        elif found.cut:
            width *= _WIDER
        else:
            break
        if made + found.made > state_limit or width > _MOST_WIDTH:
            break
    return best


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What one pass has found."""

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


def _pass(model: Model, *, known_s: float, width: int, most: int) -> _Found:
    """Go through all layers, keeping up to ``width`` states of each; only few once ``most`` states are made."""
    states = model.root()
    steps: list[_Step] = []
    cut_s = np.inf
    made = 0
    for layer in range(model.n_ops):
        if made > most:
            width = min(width, _FIRST_WIDTH)
        blocks = []
        for first in range(0, len(states), _BLOCK):
            block = model.children(states, np.arange(first, min(first + _BLOCK, len(states))))
            made += len(block.states)
            blocks.append(block.rows(np.flatnonzero(block.bound_s < known_s * (1 - _SLACK))))
        children = Children.joined(blocks)
        if layer == model.n_ops - 1:
            children = children.rows(np.argsort(children.bound_s, kind="stable")[:1])
        else:
            children, crowded_s = _least(children, width * _CROWD)
            children = children.rows(_undominated(children.states, tolerance_s=known_s * _ROUNDING))
            children, dropped_s = _least(children, width)
            cut_s = min(cut_s, crowded_s, dropped_s)
        if not len(children.states):
            return _Found(
                operators=[], on_all=[], start_s=[], bound_s=min(known_s, cut_s), cut=bool(cut_s < np.inf), made=made
            )
        states = children.states
        steps.append(
            _Step(parent=children.parent, operator=children.operator, on_all=children.on_all, start_s=children.start_s)
        )
    makespan_s = float(children.bound_s[0])
    operators: list[int] = []
    on_all: list[bool] = []
    start_s: list[float] = []
    row = 0
    for step in reversed(steps):
        operators.append(int(step.operator[row]))
        on_all.append(bool(step.on_all[row]))
        start_s.append(float(step.start_s[row]))
        row = int(step.parent[row])
    return _Found(
        operators=operators[::-1],
        on_all=on_all[::-1],
        start_s=start_s[::-1],
        bound_s=min(makespan_s, cut_s),
        # What was cut off matters only if it could be better than what was found since.
        cut=cut_s < makespan_s * (1 - _SLACK),
        made=made,
    )


def _least(children: Children, count: int) -> tuple[Children, float]:
    """The ``count`` children of the least bounds, and the least bound of the others."""
    if len(children.states) <= count:
        return children, np.inf
    by_bound = np.argsort(children.bound_s, kind="stable")
    return children.rows(by_bound[:count]), float(children.bound_s[by_bound[count]])


def _undominated(states: States, *, tolerance_s: float) -> NDArray[np.int64]:
    """The rows that no other row makes superfluous."""
    # All that decides how a schedule may go on: less is better, column by column.
    profile = np.concatenate([states.free_s, states.ready_s], axis=1)
    rows = np.lexsort((profile.sum(axis=1), states.started))
    profile, started = profile[rows], states.started[rows]
    # Whatever makes a row superfluous has the smaller sum, so it comes earlier.
    distance = 1
    while distance <= min(_COMPARED, len(rows) - 1):
        same = np.flatnonzero(started[distance:] == started[:-distance])
        if not len(same):
            break
        worse = (profile[same] <= profile[same + distance] + tolerance_s).all(axis=1)
        superfluous = same[worse] + distance
        if len(superfluous):
            left = np.ones(len(rows), dtype=np.bool_)
            left[superfluous] = False
            rows, profile, started = rows[left], profile[left], started[left]
            continue  # others have moved to this distance
        distance += 1
    return np.sort(rows)


def _schedule(problem: ScheduleProblem, members: NDArray[np.int64], found: _Found) -> Schedule | None:
    """The schedule of these times and modes, operators of no duration included; None if no units fit."""
    graph = problem.graph
    instant = np.ones(problem.n_ops, dtype=np.bool_)
    instant[members] = False
    mode = np.full(problem.n_ops, Mode.ONE, dtype=np.int8)
    mode[members[found.operators]] = np.where(found.on_all, Mode.ALL, Mode.ONE)
    mode[instant & ~graph.is_network & (problem.one_s > 0)] = Mode.ALL
    start = np.zeros(problem.n_ops)
    start[members[found.operators]] = found.start_s
    end = start + durations_s(problem, mode)
    for i in graph.order.tolist():
        if instant[i]:
            start[i] = end[i] = end[graph.before[:, i]].max(initial=0.0)
    # Operators of no duration fit in anywhere, on any unit.
    unit = assign_units(problem, start=start, end=end, mode=np.where(instant, Mode.ALL, mode).astype(np.int8))
    if unit is None:
        return None
    unit[instant & (mode == Mode.ONE) & ~graph.is_network] = 0
    return schedule_in_order(problem, order=order_by_start(problem, start), mode=mode, unit=unit, lower_bound_s=0.0)
