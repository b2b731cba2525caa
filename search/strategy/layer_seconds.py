"""Seconds of the passes over the layers of a chain, on one architecture or on many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.strategy.chain import BoolArray, FloatArray, IntArray
from archplace.search.strategy.layers import Pass

_UNKNOWN_S = np.float64(1e18)
"""Where nothing is known of how long something takes at most; finite, so that none of it is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerSeconds:
    """Rows of seconds, one for each architecture; ``S`` kinds of layers.

    Where schedules are not known yet, they lie between two limits. A step does not take longer in all its parts when a
    pass takes longer: what runs behind the pass is exposed less. So a bound of a step needs both limits.
    """

    passes: Mapping[Pass, FloatArray]
    """``(A, S)`` each; what they take at least where there is ``most``."""
    optimizer_s_per_parameter: FloatArray
    """``(A,)``."""
    most: Mapping[Pass, FloatArray] | None = None
    """``(A, S)`` each: what they take at most; None where ``passes`` is what they take."""

    @classmethod
    def at_least(cls, passes: Mapping[Pass, FloatArray], optimizer_s_per_parameter: FloatArray) -> "LayerSeconds":
        """Return seconds of which only lower limits are known."""
        most = {which: np.broadcast_to(_UNKNOWN_S, values.shape) for which, values in passes.items()}
        return cls(passes=passes, optimizer_s_per_parameter=optimizer_s_per_parameter, most=most)

    def __len__(self) -> int:
        return len(self.optimizer_s_per_parameter)

    def __getitem__(self, which: Pass) -> FloatArray:
        return self.passes[which]

    def longest(self, which: Pass) -> FloatArray:
        """Return what a pass takes at most, ``(A, S)``."""
        return self.passes[which] if self.most is None else self.most[which]

    @property
    def settled(self) -> BoolArray:
        """Whether all passes of an architecture are known exactly, ``(A,)``."""
        if self.most is None:
            return np.ones(len(self), dtype=np.bool_)
        equal = [(values == self.most[which]).all(axis=1) for which, values in self.passes.items()]
        found: BoolArray = np.logical_and.reduce(equal)
        return found

    @classmethod
    def join(cls, pieces: Sequence["LayerSeconds"]) -> "LayerSeconds":
        """Return several tables of architectures as one."""
        names = pieces[0].passes
        known = all(piece.most is None for piece in pieces)
        return cls(
            passes={which: np.concatenate([piece[which] for piece in pieces]) for which in names},
            optimizer_s_per_parameter=np.concatenate([piece.optimizer_s_per_parameter for piece in pieces]),
            most=None
            if known
            else {which: np.concatenate([piece.longest(which) for piece in pieces]) for which in names},
        )

    def equals(self, other: "LayerSeconds") -> bool:
        """Return whether all seconds of the passes are equal."""
        return all(np.array_equal(values, other[which]) for which, values in self.passes.items())

    def take(self, rows: IntArray | slice) -> "LayerSeconds":
        """Return some of the rows, each as often as it is named."""
        return LayerSeconds(
            passes={which: values[rows] for which, values in self.passes.items()},
            optimizer_s_per_parameter=self.optimizer_s_per_parameter[rows],
            most=None if self.most is None else {which: values[rows] for which, values in self.most.items()},
        )
