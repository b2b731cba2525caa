"""Lower bounds on the makespan, for all architectures at once.

Let a and o be an operator's seconds on all units and on one, E the total time of the operators that run on all units.
No schedule is shorter than any of

- the durations along a path of the precedence graph, collectives included;
- the sum of the collectives;
- E + the seconds of the other compute operators on one path (none of these overlap);
- E + (seconds of the other tensor and fused operators) / w, with w how many of them can run at once: the tensor units
  there are, or the widest antichain if that is smaller; the same for the vector units.

The modes are free, so the last two are not bounds by themselves. But for weights λ >= 0 that sum to 1 their λ-weighted
sum is at least Σ_i min over i's modes of i's weighted contribution: a Lagrangian bound, valid for every λ. The best
weight of the path against the work is computed exactly (the bound is concave and piecewise linear in it).

Three things make this strong. (1) Parts of the graph that can only run one after the other are bounded apart and
summed. (2) A mode that cannot occur in a schedule shorter than a known one is dropped; the bound is then the smaller
of that schedule's makespan and the bound without the mode. (3) The contributions also bound what must happen before
and after every operator, and between collectives (heads and tails, as in Carlier, "The one-machine sequencing
problem", European Journal of Operational Research 11, 1982).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archplace.search.schedule._distinct import distinct
from archplace.search.schedule._durations import UNAVAILABLE_S, Durations, Floats
from archplace.search.schedule._independent import independent_s
from archplace.search.schedule._part import Part, parts_of, paths_of
from archplace.search.schedule._sums import total
from archplace.search.schedule.graph import ScheduleGraph

_FLOOR = 1e-20
"""Least weight of a mode: too small to move a bound, enough to keep unavailable modes from costing nothing."""
_ROUNDING = 1e-12
"""Bounds are lowered by this share, which exceeds the rounding in the sums they come from."""
_HALVINGS = 8
"""Of the interval of the weight; any weight is valid, so precision only affects how tight the bound is."""
_SEARCHED = 4096
"""Architectures among which equal ones are looked for, so that their durations stay in the processor's cache."""
_DROP_ROUNDS = 3
"""Dropping a mode tightens the test for the next; later rounds find little."""


def lower_bound_s(
    graph: ScheduleGraph, one_s: ArrayLike, all_s: ArrayLike, tensor_units: ArrayLike, vector_units: ArrayLike
) -> Floats:
    """(n_archs,) seconds that no schedule can undercut.

    ``one_s`` and ``all_s`` (n_archs, n_ops) are seconds on one unit and on all, ``inf`` where that mode is not
    available (a collective lasts the smaller of its two); ``tensor_units`` and ``vector_units`` (n_archs,) or one for
    all. The result is ``inf`` for an architecture on which some operator has neither mode, 0 for an empty graph.
    Raises ``ValueError`` as :meth:`Durations.of` does. :func:`~archplace.search.schedule.listing.bracket_s` knows
    schedules and bounds better.
    """
    data = Durations.of(graph, one_s, all_s, tensor_units, vector_units)
    parts = parts_of(graph)
    bound_s = total(data.ops(parts.alone).fastest_s)
    for first in range(0, data.n_archs, _SEARCHED):
        searched = slice(first, first + _SEARCHED)
        block = data.archs(searched)
        for part in parts.others:
            bound_s[searched] += _quick_bound_s(part, block.ops(part.members))
    return as_bound(bound_s)


def _quick_bound_s(part: Part, data: Durations) -> Floats:
    """(n,) bounds of one part, of equal architectures once."""
    chosen, place = distinct(data)
    if len(chosen) < data.n_archs:
        data = data.archs(chosen)
    bound_s = np.empty(data.n_archs)
    for start in range(0, data.n_archs, part.block_size):
        archs = slice(start, start + part.block_size)
        block = data.archs(archs)
        bound_s[archs] = part_bound(part, block, total(block.fastest_s), quick=True).bound_s
    return bound_s[place]


def as_bound(sum_s: Floats) -> Floats:
    """(n_archs,) the sum of part bounds, made safe against rounding; ``inf`` where nothing can run."""
    bound_s: Floats = np.where(sum_s >= UNAVAILABLE_S, np.inf, sum_s * (1 - _ROUNDING))
    return bound_s


@dataclass(frozen=True, kw_only=True, slots=True)
class PartBound:
    """A bound on one part and the modes it comes from."""

    bound_s: Floats
    """(n,)"""
    data: Durations
    """The durations less the modes that no better schedule than the known one can have."""
    on_all: NDArray[np.bool_]
    """(k, n) the mode on all units is the relaxation's choice: a hint for list schedules."""


def part_bound(part: Part, data: Durations, known_s: Floats, *, quick: bool = False) -> PartBound:
    """Bound one part from below, given ``known_s`` (n,): the makespan of some schedule of it.

    The bound may equal ``known_s``, then no schedule is shorter, but never exceeds it. ``quick`` tries fewer weights
    and paths, once.
    """
    if part.small:
        fastest_on_all = (data.all_s < data.one_s) & part.compute[:, None]
        return PartBound(
            bound_s=np.minimum(known_s, independent_s(part.graph.kinds, data)), data=data, on_all=fastest_on_all
        )
    ahead, after = part.longest(data.fastest_s)
    reduced = _drop_modes(part, data, ahead, after, known_s)
    share_s, bound_s, ahead, after = _bound(part, reduced, known_s, quick=quick)
    # What is known now about times before and after may rule out more modes, where there still is a choice.
    if not quick and len(again := np.flatnonzero((bound_s < known_s) & _shared(part, reduced).any(axis=0))):
        rest = _drop_modes(
            part, reduced.archs(again), ahead.take(again, axis=1), after.take(again, axis=1), known_s[again]
        )
        reduced.one_s[:, again], reduced.all_s[:, again] = rest.one_s, rest.all_s
        share_s[:, again], better_s, _, _ = _bound(part, rest, known_s[again], quick=False)
        bound_s[again] = np.maximum(bound_s[again], better_s)
    on_all = (reduced.all_s <= share_s) | (reduced.one_s >= UNAVAILABLE_S)
    on_all &= part.compute[:, None] & (reduced.all_s < UNAVAILABLE_S)
    return PartBound(bound_s=bound_s, data=reduced, on_all=on_all)


def _bound(part: Part, data: Durations, known_s: Floats, *, quick: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """(k, n) contributions, (n,) bound, (k, n) least times before and after each operator."""
    share_s = _contributions(part, data, quick=quick)
    fastest_s = data.fastest_s
    ahead, after = _heads_and_tails(part, share_s, fastest_s)
    found_s = np.maximum((ahead + fastest_s + after).max(axis=0), total(share_s))
    if part.network:
        np.maximum(found_s, total(data.one_s[part.network]), out=found_s)
    return share_s, np.minimum(found_s, known_s), ahead, after


def _shared(part: Part, data: Durations) -> NDArray[np.bool_]:
    """(k, n) compute operators that can run beside others."""
    shared: NDArray[np.bool_] = part.compute[:, None] & (data.one_s < UNAVAILABLE_S)
    return shared


def _drop_modes(
    part: Part, data: Durations, ahead: Floats, after: Floats, known_s: Floats, *, rounds: int = _DROP_ROUNDS
) -> Durations:
    """Drop modes whose operator could then not end in time for a makespan below ``known_s``.

    Besides the least times before and after it, an operator in mode ONE has this against it: it overlaps none of the
    operators that are known to run on all units, nor any other on its path. When all that could overlap an operator
    runs on all units, so in effect does it.
    """
    one, every = data.one_s.copy(), data.all_s.copy()
    compute = part.compute[:, None]
    available = compute & (one < UNAVAILABLE_S)
    exclusive_s = np.where(compute & ~available, every, 0.0)
    free_s = np.where(available, np.minimum(one, every), 0.0)
    free_ahead, free_after = part.longest(free_s)
    free_ahead += free_after
    free_ahead += total(exclusive_s)
    around = np.maximum(ahead + after, free_ahead, out=free_ahead)
    late_one = available & (around + one >= known_s)
    late_all = available & (around + every >= known_s)
    one[late_one] = UNAVAILABLE_S
    every[late_all] = UNAVAILABLE_S
    available &= ~late_one
    overlapped = (part.unrelated @ available.astype(np.float32)) > 0  # counts are exact in any order
    alone = available & ~overlapped
    np.minimum(every, one, out=every, where=alone)
    one[alone] = UNAVAILABLE_S
    dropped = Durations(one_s=one, all_s=every, tensor_units=data.tensor_units, vector_units=data.vector_units)
    changed = np.flatnonzero((late_one | late_all).any(axis=0))
    if rounds > 1 and len(changed):
        rest = _drop_modes(
            part,
            dropped.archs(changed),
            ahead.take(changed, axis=1),
            after.take(changed, axis=1),
            known_s[changed],
            rounds=rounds - 1,
        )
        one[:, changed], every[:, changed] = rest.one_s, rest.all_s
    return dropped


def _contributions(part: Part, data: Durations, *, quick: bool) -> Floats:
    """(k, n) each operator's least weighted contribution, under the best weights found; 0 for collectives."""
    share_s = np.where(part.compute[:, None], data.all_s, 0.0)
    shared = _shared(part, data)
    mixed = np.flatnonzero(shared.any(axis=0))
    if len(mixed) < data.n_archs:
        if len(mixed):
            share_s[:, mixed] = _contributions(part, data.archs(mixed), quick=quick)
        return share_s
    works = []
    for users, units, width in (
        (part.graph.uses_tensor, data.tensor_units, part.tensor_width),
        (part.graph.uses_vector, data.vector_units, part.vector_width),
    ):
        at_once = np.minimum(np.minimum(units, width), (shared & users[:, None]).sum(axis=0))
        works.append(users[:, None] / np.maximum(at_once, 1))
    best_s = np.full(data.n_archs, -1.0)
    if not quick:
        works.append((works[0] + works[1]) / 2)
    paths = paths_of(part, data)
    for work in works:
        for path in paths[:1] if quick else paths:
            candidate = _best_mix(data, work, path)
            candidate[part.network] = 0.0
            total_s = total(candidate)
            np.copyto(share_s, candidate, where=total_s > best_s)
            np.maximum(best_s, total_s, out=best_s)
    return share_s


def _best_mix(data: Durations, work: Floats, path: Floats) -> Floats:
    """(k, n) contributions min(all_s, one_s * (work + p * (path - work))) at the weight p in [0, 1] of the largest sum.

    The sum is concave and piecewise linear in p. Its slope starts at Σ one_s * (path - work) over the path; every
    operator takes one_s * |path - work| off it at the p where its two modes meet. The best p is where the slope
    reaches 0.
    """
    base = data.one_s * work
    slope = data.one_s * path
    slope -= base
    slope[data.one_s >= UNAVAILABLE_S] = 0.0
    start = total(slope * path)
    moves = slope != 0
    meet = np.ones_like(slope)
    with np.errstate(over="ignore"):
        np.divide(data.all_s - base, slope, out=meet, where=moves)
    np.clip(meet, 0.0, 1.0, out=meet)
    drop = np.abs(slope)
    low = np.full(data.n_archs, -1e-9)  # below 0, so that 0 itself can be found
    high = np.ones(data.n_archs)
    for _ in range(_HALVINGS):
        # Cubes of halves: the best weight is often as small as one over the number of units.
        middle = ((np.cbrt(low) + np.cbrt(high)) / 2) ** 3
        enough = total(drop * (meet <= middle)) >= start
        np.copyto(high, middle, where=enough)
        np.copyto(low, middle, where=~enough)
    # The slope reaches 0 where modes of some operator meet: at the first such weight in what is left of the interval.
    best = np.where(meet > low, meet, 1.0).min(axis=0)
    slope *= best
    base += slope
    # An unavailable mode of no weight must not look free.
    base += data.one_s * _FLOOR
    return np.minimum(data.all_s, base, out=base)


def _heads_and_tails(part: Part, share_s: Floats, fastest_s: Floats) -> tuple[Floats, Floats]:
    """(k, n) least times before and after each operator.

    Before v: the contributions of all its ancestors; any path; or a collective u, the time before u, and the
    contributions of all that must run between u and v. After v: the same mirrored.
    """
    ahead = part.ancestors(share_s, np.zeros_like(share_s))
    after = part.descendants(share_s, np.zeros_like(share_s))
    part.lengthen(ahead, after, fastest_s)
    for between in part.between:
        between.lengthen(ahead, share_s, fastest_s)
    for between in reversed(part.between_after):
        between.lengthen(after, share_s, fastest_s)
    if part.network:
        part.lengthen(ahead, after, fastest_s)
    return ahead, after
