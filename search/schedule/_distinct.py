"""Which architectures have the same durations: they share bounds."""

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Durations

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, and without pattern: 2**64 over the golden ratio."""
_SHIFT = np.uint64(32)


def distinct(data: Durations) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(m,) one architecture of each set of equal ones, and (n_archs,) which of these m each is equal to.

    Architectures are sorted by a hash and compared with the one that follows: where two different ones share a hash,
    some sets may be split, which costs time and nothing else.
    """
    columns = [*data.one_s.view(np.uint64), *data.all_s.view(np.uint64)]
    columns += [data.tensor_units.view(np.uint64), data.vector_units.view(np.uint64)]
    key = np.zeros(data.n_archs, dtype=np.uint64)
    for column in columns:
        key ^= column
        key *= _FACTOR
        key ^= key >> _SHIFT
    order = np.argsort(key)
    alike = key[order[1:]] == key[order[:-1]]
    pairs = np.flatnonzero(alike)
    before, after = order[pairs], order[pairs + 1]
    differs = np.zeros(len(pairs), dtype=np.bool_)
    for column in columns:
        differs |= column[before] != column[after]
    alike[pairs[differs]] = False
    new = np.concatenate([np.ones(min(1, len(order)), dtype=np.bool_), ~alike])
    # Each set is represented by the architecture that the sorting put first; these in ascending order.
    first = order[new]
    represents = np.zeros(len(order), dtype=np.bool_)
    represents[first] = True
    position = np.cumsum(represents) - 1
    place = np.empty(len(order), dtype=np.int64)
    place[order] = position[first][np.cumsum(new) - 1]
    return np.flatnonzero(represents), place
