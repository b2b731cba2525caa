"""The least bottleneck of every suffix of a layer chain, one stage more at a time.

Let ``best[s][x][i]`` be the least bottleneck with which the layers from ``i`` to the end form ``s`` stages on
``s · fewest + x · unit`` devices. The stage added in front has position ``s``, which fixes its load and its memory::

    best[s][x][i] = min over j of max(load[s][i, j], best[s - 1][x - extra(i, j)][j])

``fewest`` is the smallest number of devices of any stage and ``unit`` the step between the numbers that occur, so that
a chain whose stages all need equally many devices has ``x = 0`` only, and the general case costs nothing there.
"""

import math

import numpy as np

from archplace.search.placement.prices import FloatArray, IntArray, StagePrices


class Suffixes:
    """The table ``best`` for one chain; call :meth:`add_stage` for ``s`` = 1, 2, … in turn."""

    def __init__(self, prices: StagePrices, *, max_devices: int, memory_bytes: float) -> None:
        n = prices.n_layers
        self._prices = prices
        self._max_devices = max_devices
        # Turned, ends first: the minimum over ends then runs along whole rows.
        ends_first = np.ascontiguousarray(prices.last_position(memory_bytes).T)
        ends_first[np.tri(n + 1, n + 1, dtype=np.bool_).T] = 0
        self._last_position = ends_first
        order = np.argsort(ends_first.ravel().astype(np.int32), kind="stable")
        self._by_last_position = order
        self._bounds = np.searchsorted(ends_first.ravel()[order], np.arange(n + 2))
        self.fewest_devices, self._unit, self._extras = _device_steps(prices.devices)
        self._costs: list[FloatArray] = []
        self._loads: FloatArray | None = None
        self._best: list[FloatArray] = []

    def devices(self, stages: int, extra: int) -> int:
        """Return the devices of ``stages`` stages with ``extra`` units more than the fewest."""
        return stages * self.fewest_devices + extra * self._unit

    def _price_stage(self, position: int) -> None:
        """Bring the costs (loads, ``inf`` where the memory does not suffice) to ``position``."""
        loads = self._prices.load_at(position)
        if loads is self._loads:
            # Only what fitted one position later and does not fit here has changed.
            first, end = self._bounds[position - 1], self._bounds[position]
            if end > first:
                for cost in self._costs:
                    cost.ravel()[self._by_last_position[first:end]] = np.inf
            return
        self._loads = loads
        cost = np.where(self._last_position >= position, loads.T, np.inf)
        if len(self._extras) == 1:
            self._costs = [cost]
            return
        devices = self._prices.devices.T
        self._costs = [
            np.where(devices == self.fewest_devices + extra * self._unit, cost, np.inf) for extra in self._extras
        ]

    def add_stage(self) -> bool:
        """Put one more stage in front of every suffix; return whether any suffix has a placement left."""
        n = self._prices.n_layers
        stages = len(self._best) + 1
        self._price_stage(stages)
        widest = min(stages * self._extras[-1], (self._max_devices - stages * self.fewest_devices) // self._unit)
        best = np.full((max(widest, -1) + 1, n + 1), np.inf)
        for extra, cost in zip(self._extras, self._costs, strict=True):
            if stages == 1:
                if extra <= widest:
                    best[extra, :n] = cost[n, :n]
                continue
            before = self._best[-1]
            for x in range(min(len(before), widest - extra + 1)):
                finite = np.flatnonzero(np.isfinite(before[x]))
                if not len(finite):
                    continue
                low, high = int(finite[0]), int(finite[-1]) + 1
                low = max(low, 1)
                if low >= high:
                    continue
                worst = np.maximum(cost[low:high, : high - 1], before[x, low:high, None])
                row = best[x + extra, : high - 1]
                np.minimum(row, worst.min(axis=0), out=row)
        self._best.append(best)
        return bool(np.isfinite(best).any())

    def whole_chain_s(self) -> FloatArray:
        """Return the least bottleneck of the whole chain by extra devices, for the stages added so far."""
        return self._best[-1][:, 0]

    def first_cuts(self, stages: int, extra: int) -> tuple[IntArray, FloatArray]:
        """Return where the first of the ``stages`` stages just added may end, and the bottleneck of each choice."""
        assert stages == len(self._best), "the costs at hand are those of the stage added last"
        bottleneck = self._through(0, stages, extra, self._costs)
        ends = np.flatnonzero(np.isfinite(bottleneck))
        return ends, bottleneck[ends]

    def _through(self, start: int, stages: int, extra: int, costs: list[FloatArray]) -> FloatArray:
        """Return the bottleneck of ``stages`` stages from ``start`` on by the end of the first, shape ``(n + 1,)``."""
        n = self._prices.n_layers
        bottleneck = np.full(n + 1, np.inf)
        for step, cost in zip(self._extras, costs, strict=True):
            if stages == 1:
                if step == extra:
                    bottleneck[n] = cost[n, start]
            elif 0 <= extra - step < len(self._best[stages - 2]):
                rest = self._best[stages - 2][extra - step]
                np.minimum(bottleneck, np.maximum(cost[:, start], rest), out=bottleneck)
        return bottleneck

    def starts(self, stages: int, extra: int, first_end: int) -> list[int]:
        """Return the first layer of each stage, given where the first stage ends."""
        starts, end = [0], first_end
        while True:
            width = int(self._prices.devices[starts[-1], end])
            extra -= (width - self.fewest_devices) // self._unit
            stages -= 1
            if not stages:
                return starts
            starts.append(end)
            allowed = self._last_position[:, end] >= stages
            cost = np.where(allowed, self._prices.load_at(stages)[end], np.inf)
            devices = self._prices.devices[end]
            costs = [
                np.where(devices == self.fewest_devices + step * self._unit, cost, np.inf)[:, None]
                for step in self._extras
            ]
            shifted = self._through(0, stages, extra, costs)
            end = int(shifted.argmin())


def _device_steps(devices: IntArray) -> tuple[int, int, list[int]]:
    """Return the fewest devices of a stage, the unit of further ones, and the multiples of it that occur."""
    if devices.strides == (0, 0):
        return int(devices.flat[0]), 1, [0]
    start, end = np.triu_indices(devices.shape[0], 1)
    occurring = np.unique(devices[start, end])
    fewest = int(occurring[0])
    unit = math.gcd(*(int(each) - fewest for each in occurring)) or 1
    return fewest, unit, [(int(each) - fewest) // unit for each in occurring]
