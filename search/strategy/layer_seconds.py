"""Seconds of the passes over the layers of a chain, on one architecture or on many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.strategy.chain import FloatArray, IntArray
from archplace.search.strategy.layers import Pass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerSeconds:
    """Rows of seconds, one for each architecture; ``S`` kinds of layers."""

    passes: Mapping[Pass, FloatArray]
    """``(A, S)`` each."""
    optimizer_s_per_parameter: FloatArray
    """``(A,)``."""

    def __len__(self) -> int:
        return len(self.optimizer_s_per_parameter)

    def __getitem__(self, which: Pass) -> FloatArray:
        return self.passes[which]

    @classmethod
    def join(cls, pieces: Sequence["LayerSeconds"]) -> "LayerSeconds":
        """Return several tables of architectures as one."""
        return cls(
            passes={which: np.concatenate([piece[which] for piece in pieces]) for which in pieces[0].passes},
            optimizer_s_per_parameter=np.concatenate([piece.optimizer_s_per_parameter for piece in pieces]),
        )

    def equals(self, other: "LayerSeconds") -> bool:
        """Return whether all seconds of the passes are equal."""
        return all(np.array_equal(values, other[which]) for which, values in self.passes.items())

    def take(self, rows: IntArray | slice) -> "LayerSeconds":
        """Return some of the rows, each as often as it is named."""
        return LayerSeconds(
            passes={which: values[rows] for which, values in self.passes.items()},
            optimizer_s_per_parameter=self.optimizer_s_per_parameter[rows],
        )
