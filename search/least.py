"""The least figures of one workload on many architectures, over all its placement options."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.outcome import Bound

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """Of each architecture the least lower bounds of figures per sample that an option has."""

    lowest: FloatArray
    """(n, n_figures) whatever the budgets; infinite where no option fits."""
    within: FloatArray
    """(n, n_figures) of the options within the budgets; infinite where there is none."""
    possible: NDArray[np.bool_]
    """(n,) whether an option is within the budgets."""

    @classmethod
    def of(cls, figures: FloatArray, within: NDArray[np.bool_]) -> "Least":
        """Return the least of ``figures`` (n_options, n, n_figures), of which those of ``within`` keep the budgets."""
        return cls(
            lowest=figures.min(axis=0, initial=np.inf),
            within=np.where(within[..., None], figures, np.inf).min(axis=0, initial=np.inf),
            possible=np.asarray(within.any(axis=0)),
        )

    def take(self, rows: NDArray[np.intp]) -> "Least":
        """Return the figures of some architectures, in any order and number."""
        return Least(lowest=self.lowest[rows], within=self.within[rows], possible=self.possible[rows])


class LeastMemory:
    """What has been found of a workload: the search for its best by itself and that with others ask the same."""

    def __init__(self, n_figures: int) -> None:
        self._n_figures = n_figures
        self._known: dict[Bound, tuple[NDArray[np.bool_], Least]] = {}

    def recall(self, kind: Bound, indices: Indices, count: int, find: Callable[[Indices], Least]) -> Least:
        """Return the figures at ``indices`` of ``count`` architectures or groups; ``find`` finds those missing."""
        if kind not in self._known:
            unknown = Least(
                lowest=np.empty((count, self._n_figures)),
                within=np.empty((count, self._n_figures)),
                possible=np.zeros(count, dtype=np.bool_),
            )
            self._known[kind] = np.zeros(count, dtype=np.bool_), unknown
        done, kept = self._known[kind]
        missing = indices[~done[indices]]
        if len(missing):
            new = find(missing)
            kept.lowest[missing], kept.within[missing], kept.possible[missing] = new.lowest, new.within, new.possible
            done[missing] = True
        return kept.take(indices)
