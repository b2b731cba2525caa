"""A set of numbers that come mostly in runs."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]


class SeenIds:
    """Numbers as runs without gaps: those of an ordered trace take a few bytes, however many they are."""

    def __init__(self) -> None:
        self._first: Ids = np.zeros(0, dtype=np.uint64)
        self._last: Ids = np.zeros(0, dtype=np.uint64)

    def __contains__(self, number: int) -> bool:
        return bool(self.holds(np.array([number], dtype=np.uint64))[0])

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self._first)

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Return of each of ``ids`` whether it was added."""
        at = np.searchsorted(self._first, ids, side="right") - 1
        found = at >= 0
        found[found] = ids[found] <= self._last[at[found]]
        return found

    def add(self, ids: Ids) -> None:
        """Add ``ids``: ascending, different, and none of them here yet."""
        if not len(ids):
            return
        # Differences, because a sum with the largest number there is would begin at zero again.
        breaks = np.flatnonzero(np.diff(ids) > 1)
        first = np.concatenate([self._first, ids[:1], ids[breaks + 1]])
        last = np.concatenate([self._last, ids[breaks], ids[-1:]])
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        apart = first[1:] - last[:-1] > 1
        self._first = first[np.concatenate([[True], apart])]
        self._last = last[np.concatenate([apart, [True]])]
