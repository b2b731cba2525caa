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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Floats
from archplace.search.schedule._part import Part
from archplace.search.schedule._states import MOST_OPERATORS, Children, Model, States, units_of
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

_FIRST_WIDTH = 4
"""States per layer in the first pass; most best schedules are found in a narrow one, and then only proven."""
_LIMITED_WIDTH = 256
"""States per layer once the limit is reached."""
_WIDER = 8
"""Factor of the width from pass to pass."""
_MOST_WIDTH = 16384
_TOGETHER = 16384
"""States per layer of all problems that are searched together; limits memory."""
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


def solve_exact(
    problems: Sequence[ScheduleProblem],
    part: Part,
    *,
    known: Sequence[Schedule],
    lower_bound_s: Sequence[float],
    state_limit: int,
) -> list[Schedule]:
    """The best schedule of each problem, or the best found and a bound if proof takes more than ``state_limit`` states.

    ``problems`` must be canonical, their graphs ``part.graph``. ``known`` are valid schedules to beat, returned where
    none is better; ``lower_bound_s`` is what is known below. ``state_limit`` counts the states of one problem made in
    all passes: where it is reached, the pass goes on narrowly. Besides this limit and that of the width, only a part of
    more operators than a word has bits ends with a gap. No problem influences another.
    """
    searches = [
        _Search.of(problem, part, with_bound(schedule, bound_s))
        for problem, schedule, bound_s in zip(problems, known, lower_bound_s, strict=True)
    ]
    open_ = [search for search in searches if 0 < len(search.members) <= MOST_OPERATORS and not search.proven]
    while open_:
        alike: dict[tuple[object, ...], list[_Search]] = {}
        for search in open_:
            alike.setdefault(search.alike, []).append(search)
        for group in alike.values():
            size = max(1, _TOGETHER // group[0].width)
            for first in range(0, len(group), size):
                _go_through(group[first : first + size], part, state_limit=state_limit)
        open_ = [search for search in open_ if search.goes_on]
    return [search.best for search in searches]


@dataclass(kw_only=True, slots=True)
class _Search:
    """One problem under way."""

    problem: ScheduleProblem
    members: NDArray[np.int64]
    """Operators that take time."""
    units: tuple[int, int]
    """Of the model."""
    best: Schedule
    width: int = 0
    made: int = 0
    """States."""
    paired: bool = False
    goes_on: bool = True

    @classmethod
    def of(cls, problem: ScheduleProblem, part: Part, best: Schedule) -> "_Search":
        members = np.flatnonzero(np.minimum(problem.one_s, problem.all_s) > 0)
        units = units_of(problem, part, paired=False)
        return cls(problem=problem, members=members, units=units, best=best, width=_FIRST_WIDTH)

    @property
    def proven(self) -> bool:
        return self.best.status is ScheduleStatus.OPTIMAL

    @property
    def alike(self) -> tuple[object, ...]:
        """What searches that share a pass have in common."""
        units = (self.problem.tensor_units, self.problem.vector_units) if self.paired else self.units
        return self.members.tobytes(), units, self.width, self.paired

    def take(self, found: "_Found", *, state_limit: int) -> None:
        """Renew what is known by what a pass has found, and decide whether there is to be another."""
        self.made += found.made
        best = self.best
        better = _schedule(self.problem, self.members, found) if found.operators else best
        if better is not None:
            best = replace(better, lower_bound_s=best.lower_bound_s)
        bound_s = min(found.bound_s * (1 - PROOF_TOLERANCE / 2), best.makespan_s)
        self.best = with_bound(best, max(best.lower_bound_s, bound_s))
        if better is None:
            assert not self.paired, "these times come from units of matching indices"
            self.paired = True
            self.width = _FIRST_WIDTH
        elif found.cut:
            self.width *= _WIDER
        else:
            self.goes_on = False
        if self.proven or self.made + found.made > state_limit or self.width > _MOST_WIDTH:
            self.goes_on = False


def _go_through(searches: list[_Search], part: Part, *, state_limit: int) -> None:
    """One pass for searches that are alike."""
    first = searches[0]
    model = Model([search.problem for search in searches], part, first.members, paired=first.paired)
    found = _pass(
        model,
        known_s=np.array([search.best.makespan_s for search in searches]),
        width=first.width,
        most=np.array([state_limit - search.made for search in searches]),
    )
    for search, each in zip(searches, found, strict=True):
        search.take(each, state_limit=state_limit)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
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


def _pass(model: Model, *, known_s: Floats, width: int, most: NDArray[np.int64]) -> list[_Found]:
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
) -> _Found:
    """What a pass has found that ends in this ``row``, or in none."""
    if row is None:
        return _Found(operators=[], on_all=[], start_s=[], bound_s=min(known_s, cut_s), cut=cut_s < np.inf, made=made)
    best_s = float(makespan_s[row])
    operators: list[int] = []
    on_all: list[bool] = []
    start_s: list[float] = []
    for step in reversed(steps):
        operators.append(int(step.operator[row]))
        on_all.append(bool(step.on_all[row]))
        start_s.append(float(step.start_s[row]))
        row = int(step.parent[row])
    return _Found(
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
