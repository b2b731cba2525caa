"""Distinct rows of columns, so that what architectures share is priced once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Distinct rows of some columns, and where each architecture's is."""

    rows: NDArray[np.float64]
    of: NDArray[np.intp]


def distinct(*columns: NDArray[np.generic]) -> Distinct:
    """Return the distinct rows of ``columns``, each of shape ``(n,)``, and the row of each of the n."""
    rows, of = np.unique(
        np.column_stack([np.asarray(c, dtype=np.float64) for c in columns]), axis=0, return_inverse=True
    )
    return Distinct(rows=rows, of=of.reshape(-1))
