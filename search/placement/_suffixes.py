"""The least bottleneck of every suffix of a layer chain, one stage more at a time.

Let ``best[s][x][i]`` be the least bottleneck with which the layers from ``i`` to the end form ``s`` stages on
``s · fewest + x · unit`` devices. The stage added in front has position ``s``, which fixes its load and its memory::

    best[s][x][i] = min over j of max(load[s][i, j], best[s - 1][x - extra(i, j)][j])

``fewest`` is the smallest number of devices of any stage and ``unit`` the step between the numbers that occur, so that
a chain whose stages all need equally many devices has ``x = 0`` only, and the general case costs nothing there.

The minimum is taken over all ``j`` at once. Loads grow with ``j`` as a rule and the rest's bottleneck falls, so that a
bisection would do, but transfers and memory break the rule, and at a hundred layers the whole matrix is faster anyway.
"""

import math

import numpy as np

from archplace.search.placement.prices import FloatArray, IntArray, StagePrices


class Suffixes:
    """The table ``best`` for one chain; call :meth:`add_stage` for ``s`` = 1, 2, … in turn."""

    def __init__(self, prices: StagePrices, *, max_devices: int, memory_bytes: float) -> None:
        n = prices.n_layers
        self._prices = prices
        self._n = n
        self._max_devices = max_devices
        # Ends first: the minimum over ends then runs along whole rows. Small integers sort fast.
        assert n < 2**15, "the matrices of a longer chain fill any memory"
        last_position = prices.last_position(memory_bytes).astype(np.int16).T.copy()
        last_position *= np.tri(n + 1, k=-1, dtype=np.int16)  # no interval is empty or runs backwards
        self._last_position = last_position
        self._leaving = np.argsort(last_position, axis=None, kind="stable")
        self._leaving_from = np.searchsorted(last_position.ravel()[self._leaving], np.arange(n + 2)).tolist()
        self.fewest_devices, self._unit, self._extras = _device_steps(prices.devices)
        self._costs: list[FloatArray] = []
        self._loads: FloatArray | None = None
        self._best: list[FloatArray] = []
        self._scratch = np.empty((n + 1) * (n + 1))

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
        cost = np.where(self._last_position >= position, loads.T, np.inf)
        if len(self._extras) == 1:
            self._costs = [cost]
        else:
            devices = self._prices.devices.T
            self._costs = [np.where(devices == self.devices(1, extra), cost, np.inf) for extra in self._extras]

    def add_stage(self) -> bool:
        """Put one more stage in front of every suffix; return whether any suffix has a placement left."""
        n = self._n
        stages = len(self._best) + 1
        self._price_stage(stages)
        widest = min(stages * self._extras[-1], (self._max_devices - stages * self.fewest_devices) // self._unit)
        best = np.empty((max(widest, -1) + 1, n + 1))
        best.fill(np.inf)
        # The suffixes of `stages - 1` stages begin in front of as many layers at the latest.
        end = n - stages + 2
        for extra, cost in zip(self._extras, self._costs, strict=True):
            if stages == 1:
                if extra <= widest:
                    best[extra, :n] = cost[n, :n]
                continue
            before = self._best[-1]
            for x in range(min(len(before), widest - extra + 1)):
                rest = before[x, :end]
                begin = max(int((rest < np.inf).argmax()), 1)
                if end <= begin:
                    continue
                rest = rest[begin:]
                worst = self._scratch[: len(rest) * (end - 1)].reshape(len(rest), end - 1)
                np.maximum(cost[begin:end, : end - 1], rest[:, None], out=worst)
                row = best[x + extra, : end - 1]
                np.minimum(row, np.minimum.reduce(worst, axis=0), out=row)
        self._best.append(best)
        return bool((best < np.inf).any())

    def whole_chain_s(self) -> FloatArray:
        """Return the least bottleneck of the whole chain by extra devices, for the stages added so far."""
        return self._best[-1][:, 0]

    def by_end(self, start: int, stages: int, extra: int) -> FloatArray:
        """Return the bottleneck of ``stages`` stages from layer ``start`` on by the end of the first, ``(n + 1,)``."""
        bottleneck = np.full(self._n + 1, np.inf)
        fits = self._last_position[:, start] >= stages
        load = self._prices.load_at(stages)[start]
        devices = self._prices.devices[start]
        for step in self._extras:
            able = fits & (devices == self.devices(1, step))
            if stages == 1:
                if step == extra and able[-1]:
                    bottleneck[-1] = load[-1]
            elif 0 <= extra - step < len(self._best[stages - 2]):
                rest = self._best[stages - 2][extra - step]
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
