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

from archplace.search.schedule._layers import Found, go_through
from archplace.search.schedule._part import Part
from archplace.search.schedule._state_model import MOST_OPERATORS, Model, units_of
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
_WIDER = 8
"""Factor of the width from pass to pass."""
_MOST_WIDTH = 16384
_TOGETHER = 8192
"""States per layer of all problems that are searched together; limits memory."""


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
                _pass(group[first : first + size], part, state_limit=state_limit)
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

    def take(self, found: Found, *, state_limit: int) -> None:
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


def _pass(searches: list[_Search], part: Part, *, state_limit: int) -> None:
    """One pass for searches that are alike."""
    first = searches[0]
    model = Model([search.problem for search in searches], part, first.members, paired=first.paired)
    found = go_through(
        model,
        known_s=np.array([search.best.makespan_s for search in searches]),
        width=first.width,
        most=np.array([state_limit - search.made for search in searches]),
    )
    for search, each in zip(searches, found, strict=True):
        search.take(each, state_limit=state_limit)


def _schedule(problem: ScheduleProblem, members: NDArray[np.int64], found: Found) -> Schedule | None:
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
