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
from archplace.search.schedule._part import Part, block_size, parts_of
from archplace.search.schedule.bounds import as_bound, part_bound
from archplace.search.schedule.graph import ScheduleGraph
from archplace.search.schedule.problem import PROOF_TOLERANCE

_WEIGHTS = (0.01, 0.1, 0.5, 2.0)


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
    lower_s = np.zeros(data.n_archs)
    upper_s = np.zeros(data.n_archs)
    parts = parts_of(graph, data)
    size = block_size(parts)
    for first in range(0, data.n_archs, size):
        archs = slice(first, first + size)
        block = data.archs(archs)
        for part in parts:
            lower, upper = _bracket_part(part, block.ops(part.members))
            lower_s[archs] += lower
            upper_s[archs] += upper
    lower_s = as_bound(lower_s)
    upper_s = np.where(np.isinf(lower_s), np.inf, upper_s)
    return Bracket(lower_s=np.minimum(lower_s, upper_s), upper_s=upper_s)


def _bracket_part(part: Part, data: Durations) -> tuple[Floats, Floats]:
    """(n,), (n,) bounds on one part; where some operator cannot run, at least ``UNAVAILABLE_S``."""
    if part.graph.n_ops == 1:
        return data.fastest_s[0], data.fastest_s[0]
    if part.small:
        exact = independent_s(part.graph.kinds, data)
        return exact, exact
    fastest = (data.all_s < data.one_s) & part.compute[:, None]
    upper = data.fastest_s.sum(axis=0)  # one after the other
    bound = part_bound(part, data, upper)
    lower = bound.bound_s
    _play(part, data, fastest, lower=lower, upper=upper)
    for _ in range(2):
        # The better schedule sharpens the bound, and the bound's relaxation may know better modes.
        open_ = np.flatnonzero(~met(lower, upper))
        if not len(open_):
            break
        own, known = data.archs(open_), upper[open_]
        bound = part_bound(part, own, known)
        lower[open_] = below = np.maximum(lower[open_], bound.bound_s)
        other = np.flatnonzero((bound.on_all != fastest[:, open_]).any(axis=0) & ~met(below, known))
        played = known[other]
        _play(part, own.archs(other), bound.on_all[:, other], lower=below[other], upper=played)
        if not (played < known[other]).any():
            break
        upper[open_[other]] = played
    return lower, upper


def _play(part: Part, data: Durations, on_all: NDArray[np.bool_], *, lower: Floats, upper: Floats) -> None:
    """Lower ``upper`` (n,), in place, to the best makespan of the rules with these modes.

    Architectures whose ``lower`` is reached are not played any further.
    """
    # A relaxation may have dropped both modes of an operator: nothing beats the known schedule then.
    on_all = np.where(data.all_s >= UNAVAILABLE_S, False, on_all)
    on_all = np.where(data.one_s >= UNAVAILABLE_S, part.compute[:, None], on_all)
    duration_s = np.where(on_all, data.all_s, data.one_s)
    _, after = part.longest(duration_s)
    for weight in _WEIGHTS:
        open_ = np.flatnonzero(~met(lower, upper))
        if not len(open_):
            break
        played = dispatch(
            part.graph,
            duration_s=duration_s[:, open_],
            on_all=on_all[:, open_],
            priority_s=weight * (after + duration_s)[:, open_],
            tensor_units=data.tensor_units[open_],
            vector_units=data.vector_units[open_],
        )
        upper[open_] = np.minimum(upper[open_], played.makespan_s)
