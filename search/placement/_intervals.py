"""Sums over all intervals of a chain, and what crosses their ends: arrays ``(n + 1, n + 1)``, ``[start, end]``."""

import math

import numpy as np

from archplace.search.placement.instances import LayerChain
from archplace.search.placement.prices import FloatArray


def interval_sums(values: FloatArray) -> FloatArray:
    """Return the sums of ``values``, ``(n,)``, not negative, over all intervals: ``(n + 1, n + 1)``, ``[start, end]``.

    Each is the true sum, rounded once, so that equal runs of layers get equal floats wherever they stand and ties are
    ties. The values are cut in two so that the prefix sums of both parts, and the differences of these, are exact: a
    multiple of a unit of which the total has at most 2⁵² and what is left, in a unit finer still (below that a value
    is rounded: by less than 2⁻⁹⁰ of the total). Entries with ``start > end`` have the opposite sign.
    """
    coarse = _on_grid(values)
    sums = _differences(coarse)
    fine = values - coarse
    if fine.any():
        sums += _differences(_on_grid(fine))
    return sums


def _on_grid(values: FloatArray) -> FloatArray:
    """Return ``values`` rounded to multiples of a power of two so large that sums of them are exact."""
    exponent = math.frexp(float(np.abs(values).sum()))[1] - 51
    unit = math.ldexp(1.0, max(exponent, -1074))
    rounded: FloatArray = np.rint(values / unit) * unit
    return rounded


def _differences(values: FloatArray) -> FloatArray:
    prefix = np.zeros(len(values) + 1)
    np.cumsum(values, out=prefix[1:])
    differences: FloatArray = prefix - prefix[:, None]
    return differences


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
