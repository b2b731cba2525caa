"""Local search for one architecture: many variants of modes and priorities are played at once, the best breed the
next.
"""

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._dispatch import dispatch
from archplace.search.schedule._durations import UNAVAILABLE_S, Durations, Floats
from archplace.search.schedule._part import Part
from archplace.search.schedule._times import schedule_in_order
from archplace.search.schedule.problem import PROOF_TOLERANCE, Schedule, ScheduleProblem

_VARIANTS = 128
_PARENTS = 16
_WEIGHTS = np.array([0.01, 0.1, 0.5, 2.0])
_FLIP_SHARES = np.array([0.0, 0.1, 0.3, 0.3])
"""Of the modes, in the first generation; the variants cycle through these."""


def improve(
    problem: ScheduleProblem,
    part: Part,
    *,
    hints: list[NDArray[np.bool_]],
    lower_bound_s: float,
    generations: int,
) -> Schedule:
    """The best schedule found for ``problem``, whose graph must be ``part.graph`` and which must be canonical.

    ``hints`` are mode choices (k,) to start from (True: all units). Each generation plays variants of the best so far:
    modes flipped, priorities shaken, two parents mixed. Stops when ``lower_bound_s`` is reached. Deterministic: the
    seed is fixed.
    """
    random = np.random.default_rng(0)
    one = np.minimum(problem.one_s, UNAVAILABLE_S)[:, None]
    every = np.minimum(problem.all_s, UNAVAILABLE_S)[:, None]
    both = (one < UNAVAILABLE_S) & (every < UNAVAILABLE_S)
    k = part.graph.n_ops
    variants = np.arange(_VARIANTS)
    units = Durations(
        one_s=one,
        all_s=every,
        tensor_units=np.full(_VARIANTS, problem.tensor_units),
        vector_units=np.full(_VARIANTS, problem.vector_units),
    )
    fastest = (every < one)[:, 0]
    starts = [np.where(both[:, 0], hint, fastest) for hint in (fastest, *hints)]
    on_all = np.stack([starts[v % len(starts)] for v in variants], axis=1)
    on_all ^= both & (random.random((k, _VARIANTS)) < _FLIP_SHARES[variants // len(starts) % len(_FLIP_SHARES)])
    duration = np.where(on_all, every, one)
    _, after = part.longest(duration)
    priority = (after + duration) * _WEIGHTS[variants // 2 % len(_WEIGHTS)]
    # The first variants are the plain rules; the others are shaken.
    priority *= np.where(variants < 2 * len(_WEIGHTS), 1.0, np.exp(random.normal(0, 0.3, (k, _VARIANTS))))

    pool_on = np.empty((k, 0), dtype=np.bool_)
    pool_priority = np.empty((k, 0))
    pool_makespan: Floats = np.empty(0)
    for _ in range(generations):
        played = dispatch(
            part.graph,
            duration_s=np.where(on_all, every, one),
            on_all=on_all,
            priority_s=priority,
            tensor_units=units.tensor_units,
            vector_units=units.vector_units,
        )
        pool_on = np.concatenate([pool_on, on_all], axis=1)
        pool_priority = np.concatenate([pool_priority, priority], axis=1)
        pool_makespan = np.concatenate([pool_makespan, played.makespan_s])
        best = np.argsort(pool_makespan, kind="stable")[:_PARENTS]
        pool_on, pool_priority, pool_makespan = pool_on[:, best], pool_priority[:, best], pool_makespan[best]
        if pool_makespan[0] * (1 - PROOF_TOLERANCE) <= lower_bound_s:
            break
        parent = random.integers(0, _PARENTS, (2, _VARIANTS)).min(axis=0)
        other = random.integers(0, _PARENTS, _VARIANTS)
        mixed = (variants % 3 == 0) & (random.random((k, _VARIANTS)) < 0.5)
        on_all = np.where(mixed, pool_on[:, other], pool_on[:, parent])
        on_all ^= both & (random.random((k, _VARIANTS)) < 1.5 / k)
        priority = np.where(mixed, pool_priority[:, other], pool_priority[:, parent])
        shaken = random.random((k, _VARIANTS)) < 0.15
        priority = priority * np.exp(np.where(shaken, random.normal(0, 0.5, (k, _VARIANTS)), 0.0))
    return _played_again(problem, part, pool_on[:, :1], pool_priority[:, :1], lower_bound_s)


def _played_again(
    problem: ScheduleProblem, part: Part, on_all: NDArray[np.bool_], priority: Floats, lower_bound_s: float
) -> Schedule:
    """Play one variant for its times and units."""
    duration = np.where(on_all[:, 0], problem.all_s, problem.one_s)
    played = dispatch(
        part.graph,
        duration_s=duration[:, None],
        on_all=on_all,
        priority_s=priority,
        tensor_units=np.array([problem.tensor_units]),
        vector_units=np.array([problem.vector_units]),
    )
    start = played.start_s[:, 0]
    order = np.lexsort((np.arange(part.graph.n_ops), start + duration, start))
    return schedule_in_order(
        problem, order=order, mode=on_all[:, 0].astype(np.int8), unit=played.unit[:, 0], lower_bound_s=lower_bound_s
    )
