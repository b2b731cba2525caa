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
from dataclasses import dataclass
from itertools import chain

import numpy as np

from archplace.search.placement.prices import BoolArray, FloatArray, IntArray

_CLOSE = 1e-6
"""Distance of a crossing from a whole number below which its neighbours are tried. Crossings beyond ± n are cut to
that, so that their rounding error is at most a few n · 2⁻⁵² there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCaps:
    """The caps of some pipelines of two stages or more, one row each; of a single stage nothing is read."""

    n_blocks: int
    first: IntArray
    """``(n_rows,)``: the most blocks on the first stage, as all caps at most ``n_blocks``."""
    last: IntArray
    """``(n_rows,)``: on the last stage; 0 for a single stage."""
    least_level: IntArray
    """``(n_rows,)``: the blocks that every middle stage holds: 1, or 0 without middle stages."""
    most_level: IntArray
    """``(n_rows,)``: the largest cap of the middle stages; 0 without middle stages."""
    taken: IntArray
    """``(n_rows, n_blocks + 1)``: ``M(K)``, cut to ``n_blocks + 1``."""

    @classmethod
    def of(cls, caps: Sequence[Sequence[int]], n_blocks: int) -> "ChainCaps":
        """Return the arrays of pipelines with these caps, from the first stage to the last, none negative."""
        taken = np.minimum(blocks_taken([each[1:-1] for each in caps], n_blocks), n_blocks + 1)
        return cls(
            n_blocks=n_blocks,
            first=np.array([min(each[0], n_blocks) for each in caps], dtype=np.int64),
            last=np.array([min(each[-1], n_blocks) if len(each) > 1 else 0 for each in caps], dtype=np.int64),
            least_level=np.array([int(len(each) > 2) for each in caps], dtype=np.int64),
            most_level=np.array([min(max(each[1:-1], default=0), n_blocks) for each in caps], dtype=np.int64),
            taken=taken,
        )

    def taken_at(self, rows: IntArray, levels: IntArray) -> IntArray:
        """Return ``M(K)`` of each row at the level beside it."""
        taken: IntArray = self.taken.ravel()[rows * (self.n_blocks + 1) + levels]
        return taken


def blocks_taken(caps: Sequence[Sequence[int]], n_blocks: int) -> IntArray:
    """Return how many blocks the stages with ``caps`` take when none holds more than 0, 1 … ``n_blocks`` blocks.

    ``(len(caps), n_blocks + 1)``, for several pipelines at once.
    """
    row = np.repeat(np.arange(len(caps)), [len(each) for each in caps])
    cap = np.minimum(np.fromiter(chain.from_iterable(caps), dtype=np.int64, count=len(row)), n_blocks)
    width = n_blocks + 1
    with_cap = np.bincount(row * width + cap, minlength=len(caps) * width).reshape(len(caps), width)
    taken = np.zeros((len(caps), width), dtype=np.int64)
    # As many stages take a K-th block as have a cap of at least K.
    np.cumsum(with_cap[:, :0:-1].cumsum(axis=1)[:, ::-1], axis=1, out=taken[:, 1:])
    return taken


def crossing(above_s: FloatArray, below_s: FloatArray, block_s: FloatArray, n_blocks: int) -> FloatArray:
    """Return ``(above - below) / block``: the blocks that the lower base is behind, cut to ``± (2 n + 2)``.

    No cap reaches beyond that. 0 where a block takes no time: any cut is then as good as another.
    """
    limit = 2.0 * n_blocks + 2.0
    with np.errstate(over="ignore"):
        blocks = np.divide(above_s - below_s, block_s, out=np.zeros_like(block_s), where=block_s > 0)
    np.minimum(blocks, limit, out=blocks)
    return np.maximum(blocks, -limit, out=blocks)


def is_close(crossings: FloatArray) -> BoolArray:
    """Return which crossings may have been rounded across a whole number."""
    return np.abs(crossings - np.rint(crossings)) < _CLOSE


def least_loads_s(
    first_s: FloatArray,
    middle_s: FloatArray,
    last_s: FloatArray,
    block_s: FloatArray,
    caps: ChainCaps,
    rows: IntArray,
) -> FloatArray:
    """Return the least bottleneck of each architecture on the pipeline of the row beside it, ``(n_archs,)``.

    The pipelines have two stages or more; ``middle_s`` is 0 where they have no middle stages. Otherwise as
    :func:`bottleneck_load_s`.
    """
    n_blocks = caps.n_blocks
    bases = _Bases(first_s, middle_s, last_s, block_s, rows)
    half = 0.5 * crossing(last_s, first_s, block_s, n_blocks)
    over_first = crossing(middle_s, first_s, block_s, n_blocks)
    over_last = crossing(middle_s, last_s, block_s, n_blocks)
    level = _level(caps, rows, over_first, over_last)
    load = _near_level_s(bases, caps, level, half, range(-1, 1), range(2))
    near = np.flatnonzero(is_close(over_first) | is_close(over_last) | is_close(2.0 * half))
    if len(near):
        load[near] = _near_level_s(bases.take(near), caps, level[near], half[near], range(-2, 2), range(-1, 3))
    return load


class _Bases:
    """The bases of the loads on some architectures and the rows of their pipelines, each ``(n,)``."""

    def __init__(
        self, first: FloatArray, middle: FloatArray, last: FloatArray, block: FloatArray, rows: IntArray
    ) -> None:
        self.first, self.middle, self.last, self.block, self.rows = first, middle, last, block, rows

    def take(self, some: IntArray) -> "_Bases":
        return _Bases(self.first[some], self.middle[some], self.last[some], self.block[some], self.rows[some])


def _level(caps: ChainCaps, rows: IntArray, over_first: FloatArray, over_last: FloatArray) -> IntArray:
    """Return the least level at whose load all blocks have a place, at most one above the highest.

    Below the load of level ``K`` the first stage has ``K + floor((middle - first) / block)`` blocks, within its cap,
    and the last likewise.
    """
    top, cap_first, cap_last = caps.most_level[rows], caps.first[rows], caps.last[rows]
    shift_first, shift_last = np.floor(over_first).astype(np.int64), np.floor(over_last).astype(np.int64)
    level = np.zeros(len(rows), dtype=np.int64)
    start = rows * (caps.n_blocks + 1)
    taken = caps.taken.ravel()
    step = 1 << max(int(top.max(initial=0)).bit_length() - 1, 0)
    # The highest level that has too little room, bit by bit; the one after it is the answer.
    while step:
        trial = level + step
        inside = np.minimum(trial, top)
        placed = taken[start + inside]
        placed += np.maximum(np.minimum(shift_first + inside, cap_first), 0)
        placed += np.maximum(np.minimum(shift_last + inside, cap_last), 0)
        level += step * ((placed < caps.n_blocks) & (trial < top))
        step >>= 1
    return level + 1


def _near_level_s(
    bases: _Bases, caps: ChainCaps, level: IntArray, half: FloatArray, level_spread: range, end_spread: range
) -> FloatArray:
    """Return the least ``T`` of the levels at ``level_spread`` around ``level``."""
    rows = bases.rows
    ends = caps.first[rows].astype(np.float64), caps.last[rows].astype(np.float64)
    least_level, most_level = caps.least_level[rows], caps.most_level[rows]
    least = np.full(len(level), np.inf)
    for offset in level_spread:
        nearby = np.maximum(np.minimum(level + offset, most_level), least_level)
        rest = np.maximum(caps.n_blocks - caps.taken_at(rows, nearby), 0).astype(np.float64)
        load = _ends_s(bases, rest, half, ends, end_spread)
        np.maximum(load, bases.middle + bases.block * nearby, out=load)
        np.minimum(least, load, out=least)
    return least


def _ends_s(
    bases: _Bases, rest: FloatArray, half: FloatArray, caps: tuple[FloatArray, FloatArray], spread: range
) -> FloatArray:
    """Return ``S(rest)``: the least larger load of first and last stage that share ``rest`` blocks, ``inf`` if too
    many.

    ``half`` is half the crossing of last over first; whole numbers at ``spread`` around the even share are tried.
    """
    cap_first, cap_last = caps
    low, high = np.maximum(rest - cap_last, 0.0), np.minimum(rest, cap_first)
    even = np.floor(0.5 * rest + half)
    least: FloatArray | None = None
    for offset in spread:
        k = np.maximum(np.minimum(even + offset, high), low)
        load = np.maximum(bases.first + bases.block * k, bases.last + bases.block * (rest - k))
        least = load if least is None else np.minimum(least, load, out=least)
    assert least is not None, "spread is never empty"
    return np.where(low <= high, least, np.inf)


def _allowed(caps: Sequence[int] | IntArray, n_blocks: int) -> list[int] | None:
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
    allowed = _allowed(caps, n_blocks)
    if allowed is None:
        return np.full(len(first_s), np.inf)
    if len(allowed) == 1:
        single: FloatArray = first_s + block_s * n_blocks + last_s
        return single
    rows = np.zeros(len(first_s), dtype=np.int64)
    middle = middle_s if len(allowed) > 2 else np.zeros_like(middle_s)
    return least_loads_s(first_s, middle, last_s, block_s, ChainCaps.of([allowed], n_blocks), rows)


def cuts(
    first_s: float, middle_s: float, last_s: float, block_s: float, n_blocks: int, caps: Sequence[int] | IntArray
) -> tuple[int, ...] | None:
    """Return the blocks of each stage, from the first to the last, for one architecture, or ``None`` if nothing fits.

    Arguments as for :func:`bottleneck_load_s`, whose value the most loaded stage has. Every block goes where it leads
    to the least load, ties to the later stage (which has fewer microbatches in flight), so that the loads are as even
    as the caps allow, not only the largest.
    """
    allowed = _allowed(caps, n_blocks)
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
