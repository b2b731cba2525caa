"""Sums over all intervals of a chain, and what crosses their ends: arrays ``(n + 1, n + 1)``, ``[start, end]``."""

import numpy as np

from archplace.search.placement.instances import LayerChain
from archplace.search.placement.prices import FloatArray


def interval_sums(*values: FloatArray) -> list[FloatArray]:
    """Return the sums of each of ``values``, ``(n,)``, over all intervals: ``(n + 1, n + 1)``, ``[start, end]``.

    Added up from each start, not as differences of one prefix sum: nothing cancels, and equal runs of layers get equal
    floats wherever they stand, so that ties are ties.
    """
    n = len(values[0])
    from_start = np.tri(n).T.copy()
    result = []
    for each in values:
        sums = np.zeros((n + 1, n + 1))
        np.cumsum(each * from_start, axis=1, out=sums[:n, 1:])
        result.append(sums)
    return result


def transfer_bytes(chain: LayerChain) -> tuple[FloatArray, FloatArray]:
    """Return the bytes on the edges entering and on those leaving each interval, each ``(n + 1, n + 1)``.

    An edge that skips over a whole stage neither enters nor leaves it.
    """
    n = chain.n_layers
    shape = (n + 1, n + 1)
    if bool(np.all(chain.edge_targets == chain.edge_sources + 1)):
        at_cut = np.zeros(n + 1)
        at_cut[chain.edge_targets] = chain.edge_bytes
        return np.broadcast_to(at_cut[:, None], shape), np.broadcast_to(at_cut, shape)
    between = np.zeros((n, n))
    np.add.at(between, (chain.edge_sources, chain.edge_targets), chain.edge_bytes)
    entering, leaving = np.zeros(shape), np.zeros(shape)
    # Sources before `start`, targets from `start` up to `end`.
    before = np.zeros((n + 1, n))
    np.cumsum(between, axis=0, out=before[1:])
    np.cumsum(before * np.tri(n, n + 1).T, axis=1, out=entering[:, 1:])
    # Targets from `end` on, sources from `end - 1` down to `start`.
    after = np.zeros((n, n + 1))
    after[:, :n] = np.cumsum(between[:, ::-1], axis=1)[:, ::-1]
    leaving[:n] = np.cumsum((after * np.tri(n + 1, n, -1).T)[::-1], axis=0)[::-1]
    return entering, leaving
