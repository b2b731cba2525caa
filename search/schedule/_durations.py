"""Durations of many architectures, laid out for arithmetic on rows of operators."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archplace.search.schedule.graph import ScheduleGraph

Floats = NDArray[np.float64]

UNAVAILABLE_S = 1e150
"""Stands for inf inside: sums and products with it stay finite. Compare with ``>=``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Durations:
    """What an operator takes in each mode, operators first."""

    one_s: Floats
    """(n_ops, n_archs) seconds on one unit, of a collective its duration; unavailable modes large and finite."""
    all_s: Floats
    """(n_ops, n_archs) seconds on all units; unavailable modes (all collectives') large and finite."""
    tensor_units: NDArray[np.int64]
    """(n_archs,)"""
    vector_units: NDArray[np.int64]
    """(n_archs,)"""

    @classmethod
    def of(
        cls, graph: ScheduleGraph, one_s: ArrayLike, all_s: ArrayLike, tensor_units: ArrayLike, vector_units: ArrayLike
    ) -> "Durations":
        """From (n_archs, n_ops) arrays with ``inf`` for unavailable modes; unit counts (n_archs,) or one for all.

        An operator that no compute operator can overlap takes its faster mode and counts as running on all units.
        Raises ``ValueError`` for shapes that do not fit, durations that are negative or NaN, unit counts below one.
        """
        one = np.asarray(one_s, dtype=np.float64)
        every = np.asarray(all_s, dtype=np.float64)
        if one.ndim != 2 or one.shape != every.shape or one.shape[1] != graph.n_ops:
            raise ValueError(f"one_s {one.shape} and all_s {every.shape} must both be (n_archs, {graph.n_ops})")
        if not ((one >= 0).all() and (every >= 0).all()):
            raise ValueError("durations must be seconds >= 0 (inf: mode not available)")
        n_archs = one.shape[0]
        tensor = np.broadcast_to(np.asarray(tensor_units, dtype=np.int64), (n_archs,))
        vector = np.broadcast_to(np.asarray(vector_units, dtype=np.int64), (n_archs,))
        if n_archs and min(tensor.min(), vector.min()) < 1:
            raise ValueError("tensor_units and vector_units must be at least 1")
        one = np.minimum(one.T, UNAVAILABLE_S, order="C")
        every = np.minimum(every.T, UNAVAILABLE_S, order="C")
        for i in range(graph.n_ops):
            if graph.is_network[i]:
                np.minimum(one[i], every[i], out=one[i])
                every[i] = UNAVAILABLE_S
            elif not graph.overlapped[i]:
                np.minimum(one[i], every[i], out=every[i])
                one[i] = UNAVAILABLE_S
        return cls(one_s=one, all_s=every, tensor_units=tensor, vector_units=vector)

    @property
    def n_archs(self) -> int:
        """Number of architectures."""
        return int(self.one_s.shape[1])

    @property
    def fastest_s(self) -> Floats:
        """(n_ops, n_archs) the shorter mode."""
        return np.minimum(self.one_s, self.all_s)

    def archs(self, chosen: slice | NDArray[np.int64]) -> "Durations":
        """These architectures only."""
        if isinstance(chosen, slice):
            one_s, all_s = self.one_s[:, chosen], self.all_s[:, chosen]
        else:
            # Indexing would return arrays whose columns are contiguous, which all arithmetic on rows then pays for.
            one_s, all_s = self.one_s.take(chosen, axis=1), self.all_s.take(chosen, axis=1)
        return Durations(
            one_s=one_s,
            all_s=all_s,
            tensor_units=self.tensor_units[chosen],
            vector_units=self.vector_units[chosen],
        )

    def ops(self, members: NDArray[np.int64]) -> "Durations":
        """These operators only."""
        if len(members) == len(self.one_s) and (members == np.arange(len(members))).all():
            return self
        return Durations(
            one_s=self.one_s[members],
            all_s=self.all_s[members],
            tensor_units=self.tensor_units,
            vector_units=self.vector_units,
        )
