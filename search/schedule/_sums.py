"""Sums over operators that come out the same, bit for bit, however many architectures are summed at once.

A matrix product or a plain ``sum`` adds in an order that depends on the number of columns and on the layout. Bounds
differ by rounding then, and a schedule may depend on which others were solved beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Floats


def total(values: Floats) -> Floats:
    """(n,) sums of the columns of (k, n), added from the first row to the last."""
    if values.shape[1] == 1:
        # NumPy adds a single column in pairs.
        return np.add.accumulate(values, axis=0)[-1] if len(values) else np.zeros(1)
    summed: Floats = np.ascontiguousarray(values).sum(axis=0)
    return summed


@dataclass(frozen=True, kw_only=True, slots=True)
class SubsetSums:
    """How to sum several subsets of operators, such as the ancestors of each, with few additions.

    A subset that contains another one starts from its sum: along a chain that is one addition per operator.
    """

    steps: Sequence[tuple[int, int, tuple[int, ...]]]
    """(row, row to start from or -1, operators to add), each after the row it starts from; rows that are not listed are
    empty.
    """

    @classmethod
    def of(cls, subsets: NDArray[np.bool_]) -> "SubsetSums":
        """Plan the sums of the rows of ``subsets`` (m, k): ``[r, i]`` if operator i belongs to row r."""
        sizes = subsets.sum(axis=1)
        steps: list[tuple[int, int, tuple[int, ...]]] = []
        for row in np.argsort(sizes, kind="stable").tolist():
            if not sizes[row]:
                continue
            inside = [done for done, _, _ in steps if not (subsets[done] & ~subsets[row]).any()]
            start = max(inside, key=lambda done: int(sizes[done]), default=-1)
            rest = subsets[row] & ~subsets[start] if start >= 0 else subsets[row]
            steps.append((row, start, tuple(np.flatnonzero(rest).tolist())))
        return cls(steps=steps)

    def __call__(self, values: Floats, out: Floats) -> Floats:
        """Write the sums of ``values`` (k, n) to the rows of ``out`` (m, n) that are not empty; return ``out``."""
        for row, start, added in self.steps:
            into = out[row]
            if start < 0:
                into[:] = values[added[0]]
            elif added:
                np.add(out[start], values[added[0]], out=into)
            else:
                into[:] = out[start]
            for i in added[1:]:
                into += values[i]
        return out
