"""Bound many architectures at once: by the best of a group, an architecture that has the most of everything in it.

Architectures of a group have the same units, array shapes and HBM capacity, and nearly the same area; they differ in
what a cost model can only gain from: clock, lanes, buffer sizes and bandwidths. Seconds on the architecture that has
the most of each (it need not exist) are lower bounds of the seconds on all of them: the model never charges more for
more of such a resource. On finely stepped spaces a bound costs a fraction of what one for each architecture does.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray, IntArray

Column = TypeVar("Column", IntArray, FloatArray)

AREA_STEP = 0.05
"""Architectures whose areas differ by a larger share are in different groups: large ones have more of everything."""

LEAST_MEMBERS = 4
"""Mean size of groups below which they are not worth it."""

COARSE_LEAST_MEMBERS = 2
"""The same of coarse groups, which come before finer bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """A partition of a space."""

    of: NDArray[np.int64]
    """(n_archs,) the group of each architecture; groups are numbered as they first occur."""
    best: Architectures
    """One row for each group: the most of every resource, and the least area."""

    @classmethod
    def of_space(
        cls, architectures: Architectures, *, coarse: bool = False, within: "Groups | None" = None
    ) -> "Groups | None":
        """Return the groups of a space, or None where they would be too small to be worth it.

        ``coarse`` groups are of any areas: fewer of them, and a bound may be further from what its group can reach.
        With the coarse ones, ``within``, the others are found in less time.
        """
        archs = architectures
        if len(archs) == 0:
            return None
        code = within.of if within is not None else _partition(archs)
        if not coarse:
            code = _parted(code, np.floor(np.log(archs.area_mm2) / AREA_STEP))
        count = int(code.max()) + 1
        if count * (COARSE_LEAST_MEMBERS if coarse else LEAST_MEMBERS) > len(archs):
            return None
        order = np.argsort(code, kind="stable")
        starts = np.searchsorted(code[order], np.arange(count))

        def most(column: Column) -> Column:
            found: Column = np.maximum.reduceat(column[order], starts)
            return found

        best = replace(
            archs.take(order[starts]),
            clock_hz=most(archs.clock_hz),
            tensor_local_bytes=most(archs.tensor_local_bytes),
            tensor_local_bytes_per_s=most(archs.tensor_local_bytes_per_s),
            vector_lanes=most(archs.vector_lanes),
            vector_local_bytes=most(archs.vector_local_bytes),
            global_buffer_bytes=most(archs.global_buffer_bytes),
            global_buffer_bytes_per_s=most(archs.global_buffer_bytes_per_s),
            hbm_bytes_per_s=most(archs.hbm_bytes_per_s),
            area_mm2=-most(-archs.area_mm2),
        )
        return cls(of=code, best=best)


def _partition(archs: Architectures) -> IntArray:
    """Return the number of each architecture's group, whatever its area."""
    code = np.zeros(len(archs), dtype=np.int64)
    for column in (
        archs.tensor_count,
        archs.tensor_rows,
        archs.tensor_cols,
        archs.vector_count,
        archs.hbm_bytes,
        archs.hbm_separate_ports,
        archs.hbm_stacks,
        *archs.tensor_macs_per_element.values(),
    ):
        code = _parted(code, column)
    return code


def _parted(code: IntArray, column: NDArray[np.generic]) -> IntArray:
    """Return numbers that differ where ``code`` or ``column`` do, in their order, without gaps."""
    values, number = np.unique(column, return_inverse=True)
    if len(values) == 1:
        return code
    # Renumbered at each step, so that the product stays small.
    found: IntArray = np.unique(code * len(values) + number.reshape(-1), return_inverse=True)[1].reshape(-1)
    return found
