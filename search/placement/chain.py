"""The least bottleneck of embedding + n equal blocks + head on s stages, in closed form, over many architectures.

With ``k`` blocks the first stage (which also holds the embedding) has load ``first + block·k``, a middle stage
``middle + block·k`` with ``k >= 1``, the last stage (which also holds the head) ``last + block·k``; memory caps each
stage's ``k``. For a level ``K``, let no middle stage hold more than ``K`` blocks. The middle stages then take
``M(K) = Σ min(cap, K)`` blocks, the same for all architectures, and the first and last stage share the rest::

    T(K)  = max(middle + block·K, S(n - M(K)))
    S(r)  = min over k of max(first + block·k, last + block·(r - k))

The least bottleneck is the minimum of ``T`` over ``K``, and both ``T`` and the inner maximum are the larger of
something that grows and something that falls: the minimum lies beside the crossing. All three sequences of loads have
the same slope, so that crossings are differences of bases in units of ``block``; only ``M``, which is no straight line,
needs a search, by bisection on ``K``. Crossings are computed with rounding, but what is compared are the loads
themselves, as the floats that they are: where a crossing comes so close to a whole number that rounding could move it
across, its neighbours are tried too.
"""

from collections.abc import Sequence

import numpy as np

from archplace.search.placement.prices import FloatArray, IntArray

_CLOSE = 1e-6
"""Distance of a crossing from a whole number below which its neighbours are tried. Crossings beyond ± n are cut to
that, so that their rounding error is at most a few n · 2⁻⁵² there."""


def _caps(caps: Sequence[int] | IntArray, n_blocks: int) -> list[int] | None:
    """Return the caps, at most ``n_blocks`` each, or ``None`` where they do not allow ``n_blocks``."""
    stages = [min(int(cap), n_blocks) for cap in caps]
    if not stages:
        raise ValueError("caps: no stage given; give one cap per stage")
    if n_blocks < 0:
        raise ValueError(f"n_blocks: found {n_blocks}, needs at least 0")
    least = max(len(stages) - 2, 0)
    if min(stages) < 0 or any(cap < 1 for cap in stages[1:-1]) or not least <= n_blocks <= sum(stages):
        return None
    return stages


class _Bases:
    """The bases of the loads on some architectures, each ``(n,)``."""

    def __init__(self, first: FloatArray, middle: FloatArray, last: FloatArray, block: FloatArray) -> None:
        self.first, self.middle, self.last, self.block = first, middle, last, block

    def take(self, rows: IntArray) -> "_Bases":
        return _Bases(self.first[rows], self.middle[rows], self.last[rows], self.block[rows])

    def crossing(self, above: FloatArray, below: FloatArray, limit: float) -> FloatArray:
        """Return ``(above - below) / block``, cut to ``± limit``; 0 where blocks take no time."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            blocks = (above - below) / self.block
        # With equal bases and no block time any cut is as good as another.
        np.nan_to_num(blocks, copy=False, nan=0.0, posinf=limit, neginf=-limit)
        np.minimum(blocks, limit, out=blocks)
        return np.maximum(blocks, -limit, out=blocks)


def _ends_s(bases: _Bases, rest: FloatArray, half: FloatArray, caps: tuple[int, int], spread: range) -> FloatArray:
    """Return ``S(rest)``: the least larger load of first and last stage that share ``rest`` blocks, ``inf`` if too
    many.

    ``half`` is half the crossing of last over first; whole numbers at ``spread`` around the even share are tried.
    """
    cap_first, cap_last = caps
    low, high = np.maximum(rest - cap_last, 0.0), np.minimum(rest, float(cap_first))
    even = np.floor(0.5 * rest + half)
    least: FloatArray | None = None
    for offset in spread:
        k = np.maximum(np.minimum(even + offset, high), low)
        load = np.maximum(bases.first + bases.block * k, bases.last + bases.block * (rest - k))
        least = load if least is None else np.minimum(least, load, out=least)
    assert least is not None, "spread is never empty"
    return np.where(low <= high, least, np.inf)


def _level(
    n_blocks: int, taken: FloatArray, over_first: FloatArray, over_last: FloatArray, caps: tuple[int, int]
) -> IntArray:
    """Return the least level at whose load all blocks have a place, at most the highest.

    ``taken[K]`` is ``M(K)``; below the load of level ``K`` the first stage has ``K + floor((middle - first) / block)``
    blocks, within its cap, and the last likewise.
    """
    cap_first, cap_last = caps
    top = len(taken) - 1
    level = np.zeros(len(over_first), dtype=np.intp)
    shift_first, shift_last = np.floor(over_first), np.floor(over_last)
    step = 1 << max(top.bit_length() - 1, 0)
    # The highest level that has too little room, bit by bit; the one after it is the answer.
    while step:
        trial = level + step
        inside = np.minimum(trial, top)
        placed = taken[inside]
        placed += np.maximum(np.minimum(shift_first + inside, cap_first), 0.0)
        placed += np.maximum(np.minimum(shift_last + inside, cap_last), 0.0)
        level += step * ((placed < n_blocks) & (trial < top))
        step >>= 1
    return level + 1


def bottleneck_load_s(
    first_s: FloatArray,
    middle_s: FloatArray,
    last_s: FloatArray,
    block_s: FloatArray,
    n_blocks: int,
    caps: Sequence[int] | IntArray,
) -> FloatArray:
    """Return the least bottleneck over all cuts into ``len(caps)`` stages, ``(n_archs,)``.

    ``first_s``, ``middle_s`` and ``last_s`` are the loads without any block (embedding, head and the transfers over
    stage boundaries), ``block_s`` what each block adds: finite, not negative, each ``(n_archs,)``. ``caps`` are the
    most blocks that fit on each stage, from the first stage to the last, -1 where not even none does; a middle stage
    holds at least one block. A single stage has the load ``first_s + block_s·n_blocks + last_s``.

    The result is exact: the very float that the best cut's most loaded stage has, computed as base + block·k. It is
    ``inf`` where the caps do not allow ``n_blocks`` or there are fewer blocks than middle stages. Raises ``ValueError``
    without a stage or with a negative number of blocks.
    """
    allowed = _caps(caps, n_blocks)
    if allowed is None:
        return np.full(len(first_s), np.inf)
    if len(allowed) == 1:
        single: FloatArray = first_s + block_s * n_blocks + last_s
        return single
    bases = _Bases(first_s, middle_s, last_s, block_s)
    ends = (allowed[0], allowed[-1])
    limit = float(2 * n_blocks + 2)
    half = 0.5 * bases.crossing(last_s, first_s, limit)
    middle = np.array(allowed[1:-1])
    if not len(middle):
        rest = np.full(len(first_s), float(n_blocks))
        load = _ends_s(bases, rest, half, ends, range(2))
        rows = np.flatnonzero(_close(half + 0.5 * n_blocks))
        load[rows] = _ends_s(bases.take(rows), rest[rows], half[rows], ends, range(-1, 3))
        return load
    levels = np.arange(int(middle.max()) + 1)
    taken = np.minimum(middle[:, None], levels).sum(axis=0).astype(np.float64)
    over_first = bases.crossing(middle_s, first_s, limit)
    over_last = bases.crossing(middle_s, last_s, limit)
    level = _level(n_blocks, taken, over_first, over_last, ends)
    load = _near_level_s(bases, n_blocks, taken, level, half, ends, range(-1, 1), range(2))
    rows = np.flatnonzero(_close(over_first) | _close(over_last) | _close(2.0 * half))
    if len(rows):
        load[rows] = _near_level_s(
            bases.take(rows), n_blocks, taken, level[rows], half[rows], ends, range(-2, 2), range(-1, 3)
        )
    return load


def _close(crossing: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.abs(crossing - np.rint(crossing)) < _CLOSE


def _near_level_s(
    bases: _Bases,
    n_blocks: int,
    taken: FloatArray,
    level: IntArray,
    half: FloatArray,
    caps: tuple[int, int],
    level_spread: range,
    end_spread: range,
) -> FloatArray:
    """Return the least ``T`` of the levels at ``level_spread`` around ``level``."""
    least = np.full(len(level), np.inf)
    for offset in level_spread:
        nearby = np.maximum(np.minimum(level + offset, len(taken) - 1), 1)
        rest = np.maximum(n_blocks - taken[nearby], 0.0)
        ends = _ends_s(bases, rest, half, caps, end_spread)
        np.maximum(ends, bases.middle + bases.block * nearby, out=ends)
        np.minimum(least, ends, out=least)
    return least


def cuts(
    first_s: float, middle_s: float, last_s: float, block_s: float, n_blocks: int, caps: Sequence[int] | IntArray
) -> tuple[int, ...] | None:
    """Return the blocks of each stage, from the first to the last, for one architecture, or ``None`` if nothing fits.

    Arguments as for :func:`bottleneck_load_s`, whose value the most loaded stage has. Every block goes where it leads
    to the least load, ties to the later stage (which has fewer microbatches in flight), so that the loads are as even
    as the caps allow, not only the largest.
    """
    allowed = _caps(caps, n_blocks)
    if allowed is None:
        return None
    stages = len(allowed)
    if stages == 1:
        return (n_blocks,)
    least = [0, *([1] * (stages - 2)), 0]
    bases = [first_s, *([middle_s] * (stages - 2)), last_s]
    steps = [
        (base + block_s * k, -stage)
        for stage, (base, low, cap) in enumerate(zip(bases, least, allowed, strict=True))
        for k in range(low + 1, cap + 1)
    ]
    blocks = list(least)
    for _, stage in sorted(steps)[: n_blocks - sum(least)]:
        blocks[-stage] += 1
    return tuple(blocks)
