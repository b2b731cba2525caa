"""List schedules: valid schedules found by simple rules, for all architectures at once, and their distance to a bound.

A rule is a choice of modes and a weight. Operators start as early as units allow; among those that could start, the
one that starts first wins, where an operator may be late by the weight times the longest path after it and still win.
With a small weight the path only breaks ties: the data-gradient chain goes first and weight gradients fill in behind
collectives. Modes: the faster one for every operator, or those that the relaxation behind the lower bound has chosen
(:mod:`archplace.search.schedule.bounds`), which set independent operators side by side where that pays.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archplace.search.schedule._dispatch import dispatch
from archplace.search.schedule._durations import UNAVAILABLE_S, Durations, Floats
from archplace.search.schedule._independent import independent_s
from archplace.search.schedule._part import Part, parts_of
from archplace.search.schedule._sums import total
from archplace.search.schedule.bounds import as_bound, part_bound
from archplace.search.schedule.graph import ScheduleGraph
from archplace.search.schedule.problem import PROOF_TOLERANCE

_FIRST_WEIGHT = np.array([0.01])
_OTHER_WEIGHTS = np.array([0.1, 0.5, 2.0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Bracket:
    """What bounds and list schedules say about the best makespan of each architecture."""

    lower_s: Floats
    """(n_archs,) no schedule is shorter."""
    upper_s: Floats
    """(n_archs,) a schedule of this makespan exists; at least ``lower_s``, both ``inf`` where nothing can run."""

    @property
    def closed(self) -> NDArray[np.bool_]:
        """(n_archs,) the two meet: the best makespan is known without a solver."""
        return met(self.lower_s, self.upper_s)


def met(lower_s: Floats, upper_s: Floats) -> NDArray[np.bool_]:
    """(n,) bounds that meet within the proof tolerance; True where both are ``inf``."""
    return lower_s >= upper_s * (1 - PROOF_TOLERANCE)


def list_makespan_s(
    graph: ScheduleGraph, one_s: ArrayLike, all_s: ArrayLike, tensor_units: ArrayLike, vector_units: ArrayLike
) -> Floats:
    """(n_archs,) makespan of the best list schedule; arguments and edge cases as for ``lower_bound_s``."""
    return bracket_s(graph, one_s, all_s, tensor_units, vector_units).upper_s


def bracket_s(
    graph: ScheduleGraph, one_s: ArrayLike, all_s: ArrayLike, tensor_units: ArrayLike, vector_units: ArrayLike
) -> Bracket:
    """Bound the best makespan from both sides, trying harder only where the two do not meet yet.

    Arguments and edge cases as for :func:`~archplace.search.schedule.bounds.lower_bound_s`; knowing schedules, the
    lower side is often above what that finds.
    """
    data = Durations.of(graph, one_s, all_s, tensor_units, vector_units)
    parts = parts_of(graph)
    lower_s = total(data.ops(parts.alone).fastest_s)
    upper_s = lower_s.copy()
    for part in parts.others:
        for first in range(0, data.n_archs, part.block_size):
            archs = slice(first, first + part.block_size)
            own = data.archs(archs).ops(part.members)
            if part.small:
                lower = upper = independent_s(part.graph.kinds, own)
            else:
                listed = list_part(part, own)
                lower, upper = listed.lower_s, listed.upper_s
            lower_s[archs] += lower
            upper_s[archs] += upper
    lower_s = as_bound(lower_s)
    upper_s = np.where(np.isinf(lower_s), np.inf, upper_s)
    return Bracket(lower_s=np.minimum(lower_s, upper_s), upper_s=upper_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """The best list schedules of one part."""

    lower_s: Floats
    """(n,) no schedule is shorter; at least ``UNAVAILABLE_S`` where some operator cannot run."""
    upper_s: Floats
    """(n,) at most the time of all operators one after the other, in their faster modes."""
    on_all: NDArray[np.bool_]
    """(k, n) the modes of a list schedule that takes no longer than ``upper_s``."""
    priority_s: Floats
    """(k, n) its priorities, as :func:`~archplace.search.schedule._dispatch.dispatch` takes them."""


def list_part(part: Part, data: Durations) -> Listed:
    """Bound one part and play list schedules until these meet, or nothing gets better."""
    fastest = (data.all_s < data.one_s) & part.compute[:, None]
    upper = total(data.fastest_s)  # one after the other
    bound = part_bound(part, data, upper)
    lower = bound.bound_s
    upper, on_all, priority = _play(part, data, fastest, lower, upper)
    for _ in range(2):
        # The better schedule sharpens the bound, and the bound's relaxation may know better modes.
        open_ = np.flatnonzero(~met(lower, upper))
        if not len(open_):
            break
        own, known = data.archs(open_), upper[open_]
        bound = part_bound(part, own, known)
        lower[open_] = below = np.maximum(lower[open_], bound.bound_s)
        other = np.flatnonzero((bound.on_all != fastest.take(open_, axis=1)).any(axis=0) & ~met(below, known))
        if not len(other):
            break
        found = _play(part, own.archs(other), bound.on_all.take(other, axis=1), below[other], known[other])
        better = np.flatnonzero(found[0] < known[other])
        if not len(better):
            break
        columns = open_[other[better]]
        upper[columns] = found[0][better]
        on_all[:, columns] = found[1].take(better, axis=1)
        priority[:, columns] = found[2].take(better, axis=1)
    return Listed(lower_s=lower, upper_s=upper, on_all=on_all, priority_s=priority)


def _play(
    part: Part, data: Durations, on_all: NDArray[np.bool_], lower: Floats, known: Floats
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """(n,) the best makespan of the rules with these modes, at most ``known``; (k, n) modes and priorities of it.

    Architectures whose ``lower`` is reached are not played any further.
    """
    # A relaxation may have dropped both modes of an operator: nothing beats the known schedule then.
    on_all = np.where(data.all_s >= UNAVAILABLE_S, False, on_all)
    on_all = np.where(data.one_s >= UNAVAILABLE_S, part.compute[:, None], on_all)
    duration_s = np.where(on_all, data.all_s, data.one_s)
    _, reach = part.longest(duration_s)
    reach += duration_s
    upper = known.copy()
    weight = np.full(len(upper), _FIRST_WEIGHT[0])
    for weights in (_FIRST_WEIGHT, _OTHER_WEIGHTS):
        open_ = np.flatnonzero(~met(lower, upper))
        if not len(open_):
            break
        # All weights at once: for few architectures a play costs the same whatever their number.
        columns = np.repeat(open_, weights.size)
        played = dispatch(
            part.graph,
            duration_s=duration_s.take(columns, axis=1),
            on_all=on_all.take(columns, axis=1),
            priority_s=np.tile(weights, len(open_)) * reach.take(columns, axis=1),
            tensor_units=data.tensor_units[columns],
            vector_units=data.vector_units[columns],
        )
        makespan = played.makespan_s.reshape(len(open_), weights.size)
        best = makespan.argmin(axis=1)
        shortest = makespan[np.arange(len(open_)), best]
        better = shortest < upper[open_]
        upper[open_[better]] = shortest[better]
        weight[open_[better]] = weights[best[better]]
    return upper, on_all, weight * reach
