"""Seconds of the passes over the layers of a chain, on one architecture or on many."""

from collections.abc import Mapping
from dataclasses import dataclass

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

    def take(self, rows: IntArray | slice) -> "LayerSeconds":
        """Return some of the rows, each as often as it is named."""
        return LayerSeconds(
            passes={which: values[rows] for which, values in self.passes.items()},
            optimizer_s_per_parameter=self.optimizer_s_per_parameter[rows],
        )
