"""The least sum of fills and tail when every stage's load stays below a limit, by a dynamic program over stages.

Of a stage's policies the first that fits has both the least load and the least fill. Stages only hold runs of layers
within the limit, so that the arrays of a row have about layers × layers entries whatever the number of stages. In a
chain of a first layer, equal layers and a last one, what a stage costs depends on how many layers it holds and not on
where it begins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from archplace.search.strategy.chain import CAPACITY_SLACK, BoolArray, ChainRows, FloatArray, IntArray, of_layers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastSums:
    """The cut with the least sum of each row; of those without one, the rest has no meaning."""

    sum_s: FloatArray
    """``(R,)``: fills and tail; infinite where no cut stays below the limit."""
    tail_s: FloatArray
    """``(R,)``."""
    ends: IntArray
    """``(R, J)``: where the stages end, in layers of the whole chain."""
    policies: IntArray
    """``(R, J)``."""
    loads_s: FloatArray
    """``(R, J)``."""


def layers_before(counts: tuple[int, ...]) -> FloatArray:
    """Return the layers of each segment among the first 0, 1 … of the chain, ``(N + 1, S)``."""
    kind = np.repeat(np.arange(len(counts)), counts)
    held = np.zeros((len(kind) + 1, len(counts)))
    np.cumsum(kind[:, None] == np.arange(len(counts)), axis=0, out=held[1:])
    return held


def least_sums_of_equal(rows: ChainRows, limits_s: FloatArray) -> LeastSums:
    """Return the least sums below ``limits_s``, ``(R,)``, of chains of a first layer, equal layers and a last one."""
    n_layers, n_rows, stages = rows.counts[1], rows.n_rows, rows.n_stages
    every = np.arange(n_rows)
    costs = _EqualCosts(rows, limits_s)
    width = costs.load_s.shape[2]
    # From the last stage to the first: the least sum of the stages from j on, by how many equal layers lie before it;
    # beyond the layers there are none.
    rest = np.full((n_rows, n_layers + width), np.inf)
    rest[:, n_layers] = 0.0
    chosen = np.zeros((stages, n_rows, n_layers + 1), dtype=np.int64)
    ahead = sliding_window_view(rest, width, axis=1)
    """``(R, N + 1, W)``, ``[…, x, k]``: the rest with ``x + k`` layers before it."""
    flat = np.arange(n_rows * (n_layers + 1))
    for stage in range(stages - 1, 0, -1):
        total = costs.fill_s[stage][:, None, :] + ahead
        chosen[stage] = total.argmin(axis=2)
        rest[:, : n_layers + 1] = total.reshape(-1, width)[flat, chosen[stage].ravel()].reshape(n_rows, -1)
    held = np.zeros((width, 3))
    held[:, 0], held[:, 1], held[:, 2] = 1.0, np.arange(width), float(stages == 1)
    tails_s = np.stack([rows.tails_s(first) for first in held], axis=1)
    first = costs.fill_s[0] + rest[:, :width] + tails_s
    taken = first.argmin(axis=1)
    sum_s, tail_s = first[every, taken], tails_s[every, taken]
    found = _empty(rows, sum_s, tail_s)
    before = np.zeros(n_rows, dtype=np.int64)
    for stage in range(stages):
        if stage:
            taken = chosen[stage, every, before]
        found.loads_s[:, stage] = costs.load_s[stage, every, taken]
        found.policies[:, stage] = costs.policy[stage, every, taken]
        before = np.minimum(before + taken, n_layers)
        found.ends[:, stage] = 1 + before
    found.ends[:, -1] = n_layers + 2
    return found


class _EqualCosts:
    """What each stage costs with 0, 1 … equal layers, ``(J, R, W)``; infinite where that does not fit."""

    def __init__(self, rows: ChainRows, limits_s: FloatArray) -> None:
        stages = rows.n_stages
        ends = np.zeros((stages, 3))
        ends[0, 0] = ends[-1, 2] = 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.floor(limits_s / rows.load_s[:, 0, 1]).max(initial=0.0)
        width = int(min(most, rows.counts[1])) + 1
        held = np.arange(width)
        shape = (stages, rows.n_rows, width)
        self.load_s, self.fill_s = np.full(shape, np.inf), np.full(shape, np.inf)
        self.policy = np.full(shape, -1, dtype=np.int64)
        # A stage between the ends holds a layer at least.
        inner = (np.arange(stages) > 0) & (np.arange(stages) < stages - 1)
        enough = (held >= inner[:, None])[:, None, :]
        capacity = (rows.capacity_bytes * (1 + CAPACITY_SLACK))[:, None]
        waits_s = rows.boundary_s * rows.neighbours()[:, None]
        for policy in range(rows.load_s.shape[1]):
            flight, working = rows.flight_bytes[:, policy], rows.working_bytes[:, policy]
            each = rows.state_bytes + rows.in_flight.T[:, :, None] * flight
            fixed = of_layers(each, ends[:, None])
            alone = (working * ends[:, None]).max(axis=2)
            busy = np.where(held > 0, np.maximum(alone, working[:, 1])[:, :, None], alone[:, :, None])
            memory = each[:, :, 1, None] * held + (fixed[:, :, None] + busy)
            load = of_layers(rows.load_s[:, policy], ends[:, None]) + waits_s
            loads = rows.load_s[:, policy, 1, None] * held + load[:, :, None]
            fits: BoolArray = (memory <= capacity) & enough & (self.policy < 0)
            self.policy[fits] = policy
            fills = (
                rows.fill_s[:, policy, 1, None] * held + of_layers(rows.fill_s[:, policy], ends[:, None])[:, :, None]
            )
            np.copyto(self.load_s, loads, where=fits)
            np.copyto(self.fill_s, fills, where=fits & (loads < limits_s[:, None]))


def _empty(rows: ChainRows, sum_s: FloatArray, tail_s: FloatArray) -> LeastSums:
    shape = (rows.n_rows, rows.n_stages)
    return LeastSums(
        sum_s=sum_s,
        tail_s=tail_s,
        ends=np.zeros(shape, dtype=np.int64),
        policies=np.zeros(shape, dtype=np.int64),
        loads_s=np.zeros(shape),
    )


def least_sums_of_any(rows: ChainRows, limits_s: FloatArray) -> LeastSums:
    """Return the least sums below ``limits_s``, ``(R,)``, of chains of any segments."""
    chains = _Chains(rows)
    costs = _Costs(chains, limits_s)
    stages, n_rows, n_starts, _ = costs.load_s.shape
    every, start = np.arange(n_rows), np.arange(n_starts)
    limit = limits_s[:, None, None]
    # From the last stage to the first: the least sum of the stages from j on, by where stage j begins.
    rest = np.full((n_rows, n_starts), np.inf)
    rest[:, -1] = 0.0
    chosen = np.zeros((stages, n_rows, n_starts), dtype=np.int64)
    for stage in range(stages - 1, 0, -1):
        total = np.where(costs.load_s[stage] < limit, costs.fill_s[stage], np.inf)
        total += rest[:, costs.end]
        chosen[stage] = total.argmin(axis=2)
        rest = np.take_along_axis(total, chosen[stage][:, :, None], axis=2)[:, :, 0]
    first = np.where(costs.load_s[0, :, 0] < limits_s[:, None], costs.fill_s[0, :, 0], np.inf)
    first = first + rest[:, costs.end[0]] + chains.tail_s[:, costs.end[0]]
    lengths = first.argmin(axis=1)
    found = _empty(rows, first[every, lengths], chains.tail_s[every, costs.end[0][lengths]])
    begin = np.zeros(n_rows, dtype=np.int64)
    for stage in range(stages):
        if stage:
            lengths = chosen[stage, every, begin]
        found.loads_s[:, stage] = costs.load_s[stage, every, begin, lengths]
        found.policies[:, stage] = costs.policy[stage, every, begin, lengths]
        begin = np.minimum(begin + lengths + 1, start[-1])
        found.ends[:, stage] = begin
    return found


class _Chains:
    """Rows with their layers one by one: sums over the first layers, ``(R, …, N + 1)``."""

    def __init__(self, rows: ChainRows) -> None:
        kind = np.repeat(np.arange(len(rows.counts)), rows.counts)
        self.rows = rows
        self.n_layers = len(kind)
        self.held = layers_before(rows.counts)
        self.load_s = _prefix(rows.load_s[:, :, kind])
        self.fill_s = _prefix(rows.fill_s[:, :, kind])
        self.flight_bytes = _prefix(rows.flight_bytes[:, :, kind])
        self.state_bytes = _prefix(rows.state_bytes[:, kind])
        self.tail_s = np.stack([rows.tails_s(first) for first in self.held], axis=1)
        """``(R, N + 1)``: by the end of the first stage."""


def _prefix(values: FloatArray) -> FloatArray:
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums


class _Costs:
    """What each stage costs that begins at a layer and holds so many: ``(J, R, N + 1, W)``, ``[…, w]`` for ``w + 1``.

    Infinite where no policy fits and where the load is too large.
    """

    def __init__(self, chains: _Chains, limits_s: FloatArray) -> None:
        """Lay out what loads below ``limits_s``, ``(R,)``, allow."""
        rows = self.rows = chains.rows
        self.chains = chains
        n_layers = chains.n_layers
        longest = _longest(chains.load_s[:, 0], limits_s)
        self.width = width = max(1, min(n_layers, longest))
        start = np.arange(n_layers + 1)[:, None]
        self.end = end = np.minimum(start + np.arange(1, width + 1), n_layers)
        outside = start + np.arange(1, width + 1) > n_layers
        shape = (rows.n_stages, rows.n_rows, n_layers + 1, width)
        self.load_s, self.fill_s = np.full(shape, np.inf), np.full(shape, np.inf)
        self.policy = np.full(shape, -1, dtype=np.int8)
        present = chains.held[end] > chains.held[start]
        states = chains.state_bytes[:, end] - chains.state_bytes[:, start]
        capacity = (rows.capacity_bytes * (1 + CAPACITY_SLACK))[:, None, None]
        ends_s = rows.boundary_s[:, None] * rows.neighbours()
        for number in range(rows.load_s.shape[1]):
            working = np.zeros((rows.n_rows, *end.shape))
            for kind in range(len(rows.counts)):
                each = rows.working_bytes[:, number, kind, None, None]
                np.maximum(working, np.where(present[:, :, kind], each, 0.0), out=working)
            room = np.where(outside, -np.inf, capacity - (states + working))
            flight = chains.flight_bytes[:, number][:, end] - chains.flight_bytes[:, number][:, start]
            load = chains.load_s[:, number][:, end] - chains.load_s[:, number][:, start]
            fill = chains.fill_s[:, number][:, end] - chains.fill_s[:, number][:, start]
            for stage in range(rows.n_stages):
                fits: BoolArray = rows.in_flight[:, stage][:, None, None] * flight <= room
                fits &= self.policy[stage] < 0
                np.copyto(self.load_s[stage], load + ends_s[:, stage][:, None, None], where=fits)
                np.copyto(self.fill_s[stage], fill, where=fits)
                self.policy[stage][fits] = number


def _longest(load_s: FloatArray, limits_s: FloatArray) -> int:
    """Return the most layers of any run whose load is below its row's limit; ``load_s``, ``(R, N + 1)``, are sums."""
    least = 1
    most = load_s.shape[1] - 1
    while least < most:
        middle = (least + most + 1) // 2
        if bool((load_s[:, middle:] - load_s[:, :-middle] < limits_s[:, None]).any()):
            least = middle
        else:
            most = middle - 1
    return least
