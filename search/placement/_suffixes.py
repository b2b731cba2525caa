"""The least bottleneck of every suffix of a layer chain, one stage more at a time.

Let ``best[s][x][i]`` be the least bottleneck with which the layers from ``i`` to the end form ``s`` stages on
``s · fewest + x · unit`` devices. The stage added in front has position ``s``, which fixes its load and its memory::

    best[s][x][i] = min over j of max(load[s][i, j], best[s - 1][x - extra(i, j)][j])

``fewest`` is the smallest number of devices of any stage and ``unit`` the step between the numbers that occur, so that
a chain whose stages all need equally many devices has ``x = 0`` only, and the general case costs nothing there.

The minimum is taken over all ``j`` at once. Loads grow with ``j`` as a rule and the rest's bottleneck falls, so that a
bisection would do, but transfers and memory break the rule, and at a hundred layers the whole matrix is faster anyway.
It is kept by the interval's length, ``[length - 1, start]``: lengths that fit no memory, or whose loads all exceed what
the caller can use, are whole rows, which are left out.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from archplace.search.placement.prices import BoolArray, FloatArray, IntArray, StagePrices, last_position

Number = TypeVar("Number", np.float64, np.int64)

_KEPT_COSTS = 8
"""How many loads are kept prepared, of those that positions share."""


@dataclass(slots=True, kw_only=True)
class _Costs:
    """The loads of some positions, ``inf`` where the memory does not suffice."""

    loads_s: FloatArray
    """What :meth:`StagePrices.load_at` returned."""
    by_extra: list[FloatArray]
    """By the devices of the stage, ``[length - 1, start]``."""
    least_s: list[float]
    """By length: no interval that long or longer has a smaller load."""
    position: int
    """What does not fit at this position is ``inf``."""


class Suffixes:
    """The table ``best`` for one chain; call :meth:`add_stage` for ``s`` = 1, 2, … in turn."""

    def __init__(self, prices: StagePrices, *, max_devices: int, memory_bytes: float) -> None:
        n = prices.n_layers
        self._prices = prices
        self._n = n
        self._max_devices = max_devices
        base_bytes = _lengthwise(prices.base_bytes, n)
        fits = (base_bytes <= memory_bytes) & _inside(n)
        fitting = np.flatnonzero(fits.any(axis=1))
        self._longest = longest = int(fitting[-1]) + 1 if len(fitting) else 0
        self._fits = fits[:longest]
        in_flight_bytes = _lengthwise(prices.in_flight_bytes, longest)
        last = last_position(base_bytes[:longest], in_flight_bytes, memory_bytes, n)
        # Small integers sort fast.
        assert n < 2**15, "the matrices of a longer chain fill any memory"
        self._last_position: NDArray[np.int8 | np.int16] = (last * self._fits).astype(np.int8 if n < 2**7 else np.int16)
        # What fits at a position and not at the one before it in the pipeline, in this order.
        positions = self._last_position.ravel()
        leaving = np.flatnonzero((positions > 0) & (positions < n))
        self._leaving = leaving[np.argsort(positions[leaving], kind="stable")]
        self._leaving_from = positions[self._leaving].searchsorted(np.arange(n + 1, dtype=positions.dtype)).tolist()
        self.fewest_devices, self._unit, self._extras = _device_steps(prices.devices)
        self._costs: list[_Costs] = []
        self._best: list[FloatArray] = []
        self._by_first_end = np.empty((0, n))
        self._scratch = np.empty(longest * n)

    @property
    def furthest_ends(self) -> list[int]:
        """Return the last end that the memory allows for a stage that begins at each layer or before, ``n`` of them."""
        n = self._n
        if not self._longest:
            return [0] * n
        longest = self._longest - self._fits[::-1].argmax(axis=0)
        ends: list[int] = np.maximum.accumulate(np.where(self._fits.any(axis=0), np.arange(n) + longest, 0)).tolist()
        return ends

    def least_beyond_s(self, prefix_s: FloatArray, most_stages: int) -> float:
        """Return the least that a stage between the first and the last has beyond the sum of its layers' floors.

        ``prefix_s``, ``(n + 1,)``, are the sums over the first layers.
        """
        n, rows, least = self._n, self._longest, math.inf
        prefix_s = np.concatenate((prefix_s, np.zeros(n)))
        step = prefix_s.itemsize
        sums_s = np.ndarray((rows, n), prefix_s.dtype, prefix_s, step, (step, step)) - prefix_s[:n]
        seen: set[int] = set()
        for position in range(2, min(max(len(self._prices.load_s), 2), most_stages) + 1):
            loads_s = self._prices.load_at(position)
            if id(loads_s) in seen:
                continue
            seen.add(id(loads_s))
            for cost in self._costs_at(position).by_extra:
                beyond_s = cost - sums_s
                beyond_s.ravel()[n - 1 : rows * (n - 1) + 1 : n - 1] = np.inf  # these end with the chain
                least = min(least, float(beyond_s[:, 1:].min(initial=np.inf)))
        return least

    def devices(self, stages: int, extra: int) -> int:
        """Return the devices of ``stages`` stages with ``extra`` units more than the fewest."""
        return stages * self.fewest_devices + extra * self._unit

    def _costs_at(self, position: int) -> _Costs:
        """Return the costs at ``position``; positions that share their loads must be asked for in ascending order."""
        loads_s = self._prices.load_at(position)
        for costs in self._costs:
            if costs.loads_s is loads_s:
                # Only what fitted at an earlier position and does not fit here has changed.
                first, end = self._leaving_from[costs.position], self._leaving_from[position]
                if end > first:
                    for cost in costs.by_extra:
                        cost.ravel()[self._leaving[first:end]] = np.inf
                costs.position = position
                return costs
        cost = _lengthwise(loads_s, self._longest)
        cost[self._last_position < position] = np.inf
        by_extra = [cost]
        if len(self._extras) > 1:
            devices = _lengthwise(self._prices.devices, self._longest)
            by_extra = [np.where(devices == self.devices(1, extra), cost, np.inf) for extra in self._extras]
        least_s = np.minimum.accumulate(cost.min(axis=1)[::-1])[::-1].tolist()
        costs = _Costs(loads_s=loads_s, by_extra=by_extra, least_s=least_s, position=position)
        self._costs = [*self._costs[1 - _KEPT_COSTS :], costs]
        return costs

    def _last_stage_s(self, extra: int) -> FloatArray:
        """Return the cost of the last stage by its first layer, ``(n,)``, on one number of devices."""
        n = self._n
        starts = n - np.arange(1, self._longest + 1)
        able = self._fits[n - starts - 1, starts]
        if len(self._extras) > 1:
            able = able & (self._prices.devices[starts, n] == self.devices(1, extra))
        cost = np.full(n, np.inf)
        cost[starts] = np.where(able, self._prices.load_at(1)[starts, n], np.inf)
        return cost

    def add_stage(self, limit_s: float = math.inf) -> bool:
        """Put one more stage in front of every suffix; return whether any suffix has a placement left.

        What has a bottleneck above ``limit_s`` may be left out; the limit must not rise from call to call.
        """
        n = self._n
        stages = len(self._best) + 1
        widest = min(stages * self._extras[-1], (self._max_devices - stages * self.fewest_devices) // self._unit)
        # Beyond the chain's end no suffix begins: room for the view of all intervals below.
        best = np.empty((max(widest, -1) + 1, 2 * n + 1))
        best.fill(np.inf)
        self._best.append(best)
        self._by_first_end = by_first_end = np.empty((len(best), n))
        by_first_end.fill(np.inf)
        if stages == 1:
            for extra in self._extras:
                if extra <= widest:
                    best[extra, :n] = self._last_stage_s(extra)
                    by_first_end[extra, -1] = best[extra, 0]
            return bool(best.min(initial=np.inf) < np.inf)
        costs = self._costs_at(stages)
        lengths = bisect_right(costs.least_s, limit_s)
        starts = n - stages + 1
        before = self._best[-2]
        worst = self._scratch[: lengths * starts].reshape(lengths, starts)
        size = before.itemsize
        least_s = np.inf
        for extra, cost in zip(self._extras, costs.by_extra, strict=True):
            for x in range(min(len(before), widest - extra + 1)):
                # rest[length - 1, start] is the best of what begins behind the interval.
                rest = np.ndarray((lengths, starts), before.dtype, before, (x * (2 * n + 1) + 1) * size, (size, size))
                np.maximum(cost[:lengths, :starts], rest, out=worst)
                row, by_end = best[x + extra, :starts], by_first_end[x + extra, :lengths]
                if len(self._extras) == 1:
                    np.minimum.reduce(worst, axis=0, initial=np.inf, out=row)
                    by_end[:] = worst[:, 0]
                else:
                    np.minimum(row, np.minimum.reduce(worst, axis=0, initial=np.inf), out=row)
                    np.minimum(by_end, worst[:, 0], out=by_end)
                least_s = min(least_s, np.minimum.reduce(row))
        return bool(least_s < np.inf)

    def whole_chain_s(self) -> FloatArray:
        """Return the least bottleneck of the whole chain by extra devices, for the stages added so far."""
        return self._best[-1][:, 0]

    def whole_chain_by_end_s(self, extra: int) -> FloatArray:
        """Return the bottleneck of the whole chain in the stages added so far by the end of the first, ``(n,)``.

        As :meth:`by_end`, from the end 1 on, but for what is above the limit of :meth:`add_stage`.
        """
        by_end: FloatArray = self._by_first_end[extra]
        return by_end

    def by_end(self, start: int, stages: int, extra: int) -> FloatArray:
        """Return the bottleneck of ``stages`` stages from layer ``start`` on by the end of the first, ``(n + 1,)``."""
        bottleneck = np.full(self._n + 1, np.inf)
        lengths = min(self._longest, self._n - start)
        ends = np.s_[start + 1 : start + 1 + lengths]
        fits = self._last_position[:lengths, start] >= stages
        load = self._prices.load_at(stages)[start]
        for step in self._extras:
            able = fits
            if len(self._extras) > 1:
                able = fits & (self._prices.devices[start, ends] == self.devices(1, step))
            if stages == 1:
                if step == extra and lengths == self._n - start and able[-1]:
                    bottleneck[-1] = load[-1]
            elif 0 <= extra - step < len(self._best[stages - 2]):
                rest = self._best[stages - 2][extra - step]
                np.copyto(bottleneck[ends], np.maximum(load[ends], rest[ends]), where=able)
        return bottleneck

    def starts(self, stages: int, extra: int, first_end: int) -> list[int]:
        """Return the first layer of each stage, given where the first stage ends.

        Each further stage leaves the least bottleneck of what begins with it, and is the shortest that does.
        """
        starts = [0]
        end = first_end
        for left in range(stages - 1, 0, -1):
            width = int(self._prices.devices[starts[-1], end])
            extra -= (width - self.fewest_devices) // self._unit
            starts.append(end)
            end = int(self.by_end(end, left, extra).argmin())
        return starts


def _device_steps(devices: IntArray) -> tuple[int, int, list[int]]:
    """Return the fewest devices of a stage, the unit of further ones, and the multiples of it that occur."""
    if devices.strides == (0, 0):
        return int(devices.flat[0]), 1, [0]
    start, end = np.triu_indices(devices.shape[0], 1)
    occurring = np.unique(devices[start, end]).tolist()
    fewest = occurring[0]
    unit = math.gcd(*(each - fewest for each in occurring)) or 1
    return fewest, unit, [(each - fewest) // unit for each in occurring]


def _lengthwise(values: NDArray[Number], lengths: int) -> NDArray[Number]:
    """Return a copy of ``values[start, end]`` as ``[length - 1, start]``, arbitrary what ends beyond the chain."""
    n, step = len(values) - 1, values.itemsize
    flat = np.ascontiguousarray(values).ravel()
    return as_strided(flat[1:], (lengths, n), (step, (n + 2) * step)).copy()


@lru_cache(maxsize=8)
def _inside(n: int) -> BoolArray:
    """Return which ``[length - 1, start]`` lie within a chain of ``n`` layers; not to be written to."""
    return np.tri(n, dtype=np.bool_)[::-1]
