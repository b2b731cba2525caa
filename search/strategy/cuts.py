"""The best cut of one strategy's chain into stages, with the best recomputation policy of each stage, exactly.

For a load that every stage must stay below, the least sum of the stages' fills and of the first stage's tail is found
by a dynamic program over stages; of a stage's policies the first that fits has both the least load and the least fill.
The limit starts where even the least conceivable sum could not make up for the pace of a larger load, and is lowered
below the largest load of each cut found, until what is left could only be slower. Stages only hold runs of layers
within the limit, so that the arrays' size is layers × layers whatever the number of stages.
"""

from dataclasses import dataclass

import numpy as np

from archplace.search.strategy.bounds import least_sums_s
from archplace.search.strategy.chain import ChainRows, FloatArray, IntArray

_SLACK = 1e-12
"""Relative excess over the capacity that counts as fitting: sums in another order."""

_WIDER = 1.02
"""Factor on the limit while no cut is found: where every stage must hold a layer the packed load may be too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A chain cut into stages."""

    time_s: float
    load_s: float
    """Of the slowest stage."""
    held: tuple[tuple[int, ...], ...]
    """Layers of each segment on each stage."""
    policies: tuple[int, ...]
    """The policy of each stage."""
    loads_s: tuple[float, ...]
    tail_s: float
    """What follows the last microbatch, on the first stage."""


class _Chain:
    """One row's layers, one by one."""

    def __init__(self, rows: ChainRows, row: int) -> None:
        one = rows.take(slice(row, row + 1))
        counts = np.array(rows.counts)
        kind = np.repeat(np.arange(len(counts)), counts)
        self.stages = rows.n_stages
        self.n_layers = len(kind)
        self.pace, self.constant_s = float(one.pace[0]), float(one.constant_s[0])
        self.capacity_bytes = float(one.capacity_bytes[0]) * (1 + _SLACK)
        self.load_s = _prefix(one.load_s[0][:, kind])
        """``(P, N + 1)``, as the following: sums of the first layers."""
        self.fill_s = _prefix(one.fill_s[0][:, kind])
        self.flight_bytes = _prefix(one.flight_bytes[0][:, kind])
        self.state_bytes = _prefix(one.state_bytes[0][None, kind])[0]
        self.working_bytes = one.working_bytes[0]
        self.held = _prefix((kind == np.arange(len(counts))[:, None]).astype(np.int64)).T
        """``(N + 1, S)``: layers of each segment among the first."""
        self.tail_s = np.array([one.tails_s(first)[0] for first in self.held])
        """``(N + 1,)``: by the end of the first stage."""
        self.ends_s = float(one.boundary_s[0]) * rows.neighbours()
        self.in_flight = one.in_flight[0]
        self.least_sum_s = float(least_sums_s(one)[0])


def _prefix(values: FloatArray | IntArray) -> FloatArray:
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choices:
    """What each stage costs when it begins at a layer and holds so many: ``(J, N + 1, W)``, ``[…, w]`` for ``w + 1``.

    Infinite where no policy fits and where the load is too large.
    """

    load_s: FloatArray
    fill_s: FloatArray
    policy: IntArray

    @classmethod
    def below(cls, chain: _Chain, limit_s: float) -> "_Choices":
        """Return what loads below ``limit_s`` allow."""
        fastest = chain.load_s[0]
        longest = int((np.searchsorted(fastest, fastest + limit_s) - np.arange(chain.n_layers + 1)).max())
        width = max(1, min(chain.n_layers, longest))
        start = np.arange(chain.n_layers + 1)[:, None]
        end = np.minimum(start + np.arange(1, width + 1), chain.n_layers)
        outside = start + np.arange(1, width + 1) > chain.n_layers
        shape = (chain.stages, *end.shape)
        load_s, fill_s = np.full(shape, np.inf), np.full(shape, np.inf)
        policy = np.full(shape, -1, dtype=np.int64)
        present = chain.held[end] > chain.held[start]
        states = chain.state_bytes[end] - chain.state_bytes[start]
        for number in range(len(chain.load_s)):
            working = (present * chain.working_bytes[number]).max(axis=2)
            flight = chain.flight_bytes[number][end] - chain.flight_bytes[number][start]
            memory = (states + working) + chain.in_flight[:, None, None] * flight
            load = (chain.load_s[number][end] - chain.load_s[number][start]) + chain.ends_s[:, None, None]
            fits = (memory <= chain.capacity_bytes) & (policy < 0) & ~outside
            np.copyto(load_s, load, where=fits)
            np.copyto(fill_s, chain.fill_s[number][end] - chain.fill_s[number][start], where=fits)
            policy[fits] = number
        return cls(load_s=load_s, fill_s=fill_s, policy=policy)

    def least_sum(self, chain: _Chain, limit_s: float) -> Cut | None:
        """Return the cut with the least sum of fills and tail of those whose loads are all below ``limit_s``."""
        stages, n_starts, width = self.load_s.shape
        allowed = np.where(self.load_s < limit_s, self.fill_s, np.inf)
        start = np.arange(n_starts)
        end = np.minimum(start[:, None] + np.arange(1, width + 1), n_starts - 1)
        # From the last stage to the first: the least sum of the stages from j on, by where stage j begins.
        rest = np.full(n_starts, np.inf)
        rest[-1] = 0.0
        chosen = np.zeros((stages, n_starts), dtype=np.int64)
        for stage in range(stages - 1, 0, -1):
            total = allowed[stage] + rest[end]
            chosen[stage] = total.argmin(axis=1)
            rest = total[start, chosen[stage]]
        total = allowed[0, 0] + rest[end[0]] + chain.tail_s[end[0]]
        first = int(total.argmin())
        if not np.isfinite(total[first]):
            return None
        lengths = [first]
        ends = [first + 1]
        for stage in range(1, stages):
            lengths.append(int(chosen[stage, ends[-1]]))
            ends.append(ends[-1] + lengths[-1] + 1)
        at = list(zip(range(stages), (0, *ends[:-1]), lengths, strict=True))
        loads = tuple(float(self.load_s[place]) for place in at)
        return Cut(
            time_s=chain.pace * max(loads) + float(total[first]) + chain.constant_s,
            load_s=max(loads),
            held=tuple(
                tuple(int(n) for n in chain.held[end] - chain.held[begin])
                for begin, end in zip((0, *ends[:-1]), ends, strict=True)
            ),
            policies=tuple(int(self.policy[place]) for place in at),
            loads_s=loads,
            tail_s=float(chain.tail_s[ends[0]]),
        )


def best_cut(rows: ChainRows, row: int, packed_load_s: float, *, better_than_s: float = np.inf) -> Cut | None:
    """Return the cut of one row that takes least time, or None where none fits or takes less than ``better_than_s``.

    ``packed_load_s`` is the row's :func:`~archplace.search.strategy.bounds.packed_loads_s`.
    """
    chain = _Chain(rows, row)
    if chain.stages > chain.n_layers or not np.isfinite(packed_load_s):
        return None
    if chain.pace <= 0:
        cut = _Choices.below(chain, np.inf).least_sum(chain, np.inf)
        return cut if cut is not None and cut.time_s < better_than_s else None
    best = _first_cut(chain, packed_load_s)
    if best is None:
        return None
    if best.time_s >= better_than_s:
        best = None
    known_s = better_than_s if best is None else best.time_s
    limit_s = float(np.nextafter((known_s - chain.constant_s - chain.least_sum_s) / chain.pace, np.inf))
    choices = _Choices.below(chain, limit_s)
    while limit_s > packed_load_s:
        cut = choices.least_sum(chain, limit_s)
        if cut is None:
            break
        sum_s = cut.time_s - chain.pace * cut.load_s
        if cut.time_s < known_s or (best is not None and cut.time_s == known_s):
            best, known_s = cut, cut.time_s
        # Smaller limits never lower the sum: what is left must come from the pace.
        limit_s = min(cut.load_s, float(np.nextafter((known_s - sum_s) / chain.pace, np.inf)))
    return best


def _first_cut(chain: _Chain, packed_load_s: float) -> Cut | None:
    """Return a cut whose largest load is about the least there is, or None when none fits."""
    limit_s = packed_load_s * (1 + 1e-6)
    most_s = float(chain.load_s[-1][-1]) + float(chain.ends_s.max()) + packed_load_s
    while True:
        cut = _Choices.below(chain, limit_s).least_sum(chain, limit_s)
        if cut is not None or limit_s > most_s:
            return cut
        limit_s *= _WIDER
