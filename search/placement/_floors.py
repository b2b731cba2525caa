"""How many stages a chain needs at least if no stage's load shall exceed a limit.

The floors of the layers bound the loads from below; they are only added up, so that filling every stage as far as the
limit and the memory allow, from the first one on, takes as few stages as there can be. A stage has besides the least
that any interval's load has beyond the floors of its layers, transfers above all.
"""

from bisect import bisect_right

import numpy as np

from archplace.search.placement._suffixes import Suffixes
from archplace.search.placement.prices import FloatArray, StagePrices


class StageFloors:
    """Lower bounds of the stages of one chain."""

    def __init__(self, prices: StagePrices, suffixes: Suffixes, most_stages: int) -> None:
        n = prices.n_layers
        last, earlier = prices.layer_floor_s
        prefix = np.concatenate(([0.0], np.cumsum(earlier)))
        tail = np.concatenate(([0.0], np.cumsum(last[::-1])))
        self._n = n
        self._furthest = suffixes.furthest_ends
        self._prefix_s, self._tail_s = prefix.tolist(), tail.tolist()
        last_s = prices.load_at(1)[:n, n]
        self._alone_s = float(last_s[0])
        # Rounding must not rule out a stage: an error of every addition that a sum of all layers can have.
        self._slack_s = 2.0**-51 * n * float(prefix[n] + tail[n])
        self._floors_s = float((prefix[1:n] + tail[n - 1 : 0 : -1]).min(initial=np.inf)) - n * self._slack_s
        self._beyond_s = self._beyond_first_s = self._beyond_last_s = 0.0
        if n > 1 and most_stages > 1:
            self._beyond_last_s = float((last_s[1:] - tail[n - 1 : 0 : -1]).min())
            first_loads = {id(loads): loads[0, 1:n] for loads in prices.load_s[1:most_stages] or prices.load_s}
            self._beyond_first_s = float(min((loads - prefix[1:n]).min() for loads in first_loads.values()))
            self._floors_s += self._beyond_first_s + self._beyond_last_s
        if most_stages > 2:
            self._beyond_s = suffixes.least_beyond_s(prefix, most_stages)

    def fewest_stages(self, bottleneck_s: float) -> int:
        """Return how many stages it takes to stay within ``bottleneck_s``, or fewer; ``n + 1`` if none do."""
        limit_s = bottleneck_s + self._slack_s
        prefix_s, furthest, none = self._prefix_s, self._furthest, self._n + 1
        end = furthest[0]
        if self._alone_s <= limit_s and end == self._n:
            return 1
        last = min(bisect_right(self._tail_s, limit_s - self._beyond_last_s) - 1, self._n - 1)
        end = min(bisect_right(prefix_s, limit_s - self._beyond_first_s) - 1, end)
        if last < 1 or end < 1:
            return none
        room_s = limit_s - self._beyond_s
        behind = self._n - last
        stages = 2
        while end < behind:
            further = bisect_right(prefix_s, prefix_s[end] + room_s) - 1
            if further > furthest[end]:
                further = furthest[end]
            if further <= end:
                return none
            end = further
            stages += 1
        return stages

    def most_stages(self, bottleneck_s: FloatArray, fewest: int) -> int:
        """Return a number of stages with more than which none stays within its limit, 0 if it is below ``fewest``.

        ``bottleneck_s`` are the limits of ``fewest`` stages, one more, and so on. If they fall with the stages, the
        answer lies where as many stages as there are become too few: a bisection finds that place, and from there on
        one limit after the other proves that nothing follows, each up to the stages that it takes.
        """
        numbers = np.arange(fewest, fewest + len(bottleneck_s))
        totals_s = (numbers - 2) * self._beyond_s + self._floors_s
        able = np.flatnonzero((totals_s <= numbers * bottleneck_s) | (numbers == 1))
        if not len(able):
            return 0
        limits_s = bottleneck_s[: able[-1] + 1]
        top = fewest + int(able[-1])
        # The largest limit of so many stages or more.
        largest_s = np.maximum.accumulate(limits_s[::-1])[::-1].tolist()
        low, high = fewest, top + 1
        while low < high:
            middle = (low + high) // 2
            if self.fewest_stages(largest_s[middle - fewest]) <= middle:
                low = middle + 1
            else:
                high = middle
        most, stages = low - 1, low
        while stages <= top:
            needed = self.fewest_stages(largest_s[stages - fewest])
            if needed <= stages:
                most = stages
            stages = max(needed, stages + 1)
        return most if most >= fewest else 0
