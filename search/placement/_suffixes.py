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
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from archplace.search.placement.prices import FloatArray, IntArray, StagePrices

Number = TypeVar("Number", np.float64, np.int64, np.int16)


class Suffixes:
    """The table ``best`` for one chain; call :meth:`add_stage` for ``s`` = 1, 2, … in turn."""

    def __init__(self, prices: StagePrices, *, max_devices: int, memory_bytes: float) -> None:
        n = prices.n_layers
        self._prices = prices
        self._n = n
        self._max_devices = max_devices
        # Small integers sort fast.
        assert n < 2**15, "the matrices of a longer chain fill any memory"
        last_position = prices.last_position(memory_bytes).astype(np.int16)
        last_position *= np.tri(n + 1, k=-1, dtype=np.int16).T  # no interval is empty or runs backwards
        self._last_position = last_position
        self._longest = n
        by_length = self._lengthwise(last_position)
        by_length *= np.tri(n, dtype=np.int16)[::-1]  # nor does one run beyond the chain
        self._longest = n - int((by_length.max(axis=1)[::-1] > 0).argmax())
        self._last_by_length = by_length = by_length[: self._longest]
        self._leaving = np.argsort(by_length, axis=None, kind="stable")
        self._leaving_from = np.searchsorted(by_length.ravel()[self._leaving], np.arange(n + 2)).tolist()
        self.fewest_devices, self._unit, self._extras = _device_steps(prices.devices)
        self._costs: list[FloatArray] = []
        self._loads: FloatArray | None = None
        self._least_load_s = np.empty(0)
        """By length: no interval that long or longer has a smaller load."""
        self._best: list[FloatArray] = []
        self._scratch = np.empty(self._longest * n)

    def _lengthwise(self, values: NDArray[Number]) -> NDArray[Number]:
        """Return a copy of ``values[start, end]`` as ``[length - 1, start]``, arbitrary what ends beyond the chain."""
        n, size = self._n, values.itemsize
        flat = np.ascontiguousarray(values).ravel()
        return as_strided(flat[1:], (self._longest, n), (size, (n + 2) * size)).copy()

    @property
    def fewest_stages(self) -> int:
        """A number of stages with fewer than which the whole chain fits no memory."""
        n = self._n
        fits = self._last_position > 0
        # The last end of any stage that begins at a layer or before.
        ends = np.maximum.accumulate(np.where(fits.any(axis=1), n - fits[:, ::-1].argmax(axis=1), 0)).tolist()
        stages, end = 0, 0
        while end < n and ends[end] > end:
            stages, end = stages + 1, ends[end]
        return stages if end == n else n + 1

    def devices(self, stages: int, extra: int) -> int:
        """Return the devices of ``stages`` stages with ``extra`` units more than the fewest."""
        return stages * self.fewest_devices + extra * self._unit

    def _price_stage(self, position: int) -> None:
        """Bring the costs (loads, ``inf`` where the memory does not suffice) to ``position``."""
        loads = self._prices.load_at(position)
        if loads is self._loads:
            # Only what fitted one position later and does not fit here has changed.
            first, end = self._leaving_from[position - 1], self._leaving_from[position]
            if end > first:
                for cost in self._costs:
                    cost.ravel()[self._leaving[first:end]] = np.inf
            return
        self._loads = loads
        cost = self._lengthwise(loads)
        cost[self._last_by_length < position] = np.inf
        self._least_load_s = np.minimum.accumulate(cost.min(axis=1)[::-1])[::-1]
        if len(self._extras) == 1:
            self._costs = [cost]
        else:
            devices = self._lengthwise(self._prices.devices)
            self._costs = [np.where(devices == self.devices(1, extra), cost, np.inf) for extra in self._extras]

    def add_stage(self, limit_s: float = math.inf) -> bool:
        """Put one more stage in front of every suffix; return whether any suffix has a placement left.

        What has a bottleneck above ``limit_s`` may be left out; the limit must not rise from call to call.
        """
        n = self._n
        stages = len(self._best) + 1
        self._price_stage(stages)
        widest = min(stages * self._extras[-1], (self._max_devices - stages * self.fewest_devices) // self._unit)
        # Beyond the chain's end no suffix begins: room for the view of all intervals below.
        best = np.empty((max(widest, -1) + 1, 2 * n + 1))
        best.fill(np.inf)
        lengths = int(self._least_load_s.searchsorted(limit_s, side="right"))
        starts = n - stages + 1
        for extra, cost in zip(self._extras, self._costs, strict=True):
            if stages == 1:
                if extra <= widest:
                    length = np.arange(1, self._longest + 1)
                    best[extra, n - length] = cost[length - 1, n - length]
                continue
            before = self._best[-1]
            worst = self._scratch[: lengths * starts].reshape(lengths, starts)
            for x in range(min(len(before), widest - extra + 1)):
                # rest[length - 1, start] is the best of what begins behind the interval.
                size = before.itemsize
                rest = np.ndarray((lengths, starts), before.dtype, before, (x * (2 * n + 1) + 1) * size, (size, size))
                np.maximum(cost[:lengths, :starts], rest, out=worst)
                row = best[x + extra, :starts]
                if len(self._costs) == 1:
                    np.minimum.reduce(worst, axis=0, initial=np.inf, out=row)
                else:
                    np.minimum(row, np.minimum.reduce(worst, axis=0, initial=np.inf), out=row)
        self._best.append(best)
        return bool(np.minimum.reduce(best, axis=None, initial=np.inf) < np.inf)

    def whole_chain_s(self) -> FloatArray:
        """Return the least bottleneck of the whole chain by extra devices, for the stages added so far."""
        return self._best[-1][:, 0]

    def by_end(self, start: int, stages: int, extra: int) -> FloatArray:
        """Return the bottleneck of ``stages`` stages from layer ``start`` on by the end of the first, ``(n + 1,)``."""
        bottleneck = np.full(self._n + 1, np.inf)
        fits = self._last_position[start] >= stages
        load = self._prices.load_at(stages)[start]
        devices = self._prices.devices[start]
        for step in self._extras:
            able = fits & (devices == self.devices(1, step))
            if stages == 1:
                if step == extra and able[-1]:
                    bottleneck[-1] = load[-1]
            elif 0 <= extra - step < len(self._best[stages - 2]):
                rest = self._best[stages - 2][extra - step, : self._n + 1]
                np.copyto(bottleneck, np.maximum(load, rest), where=able)
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
