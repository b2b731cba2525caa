"""Cycles of matrix products that kernels cut into tiles, one thread block each, as GPUs' kernels do.

A multiprocessor, several tensor units with their local buffers, works on one tile of the result at a time; its
accumulators stay while the summed dimension passes. A product with T tiles takes ⌈T / multiprocessors⌉ waves, each as
long as one whole tile: what a tile has beyond the result (tile quantisation) and the multiprocessors that find no tile
in the last wave (wave quantisation) are lost (NVIDIA, "Matrix Multiplication Background User's Guide", sections "Tile
Quantization" and "Wave Quantization"). Where tiles are few, the summed dimension is cut as well and the partial results
are added through the global buffer (*split-K*; Osama et al. 2023, arXiv:2301.03598, section 2).
"""

from functools import lru_cache

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.calibration import Blocks
from archplace.costmodel._gemm import ArrayCycles, Pipelining, TensorConfigs
from archplace.workloads.operators import Gemm

ACCUMULATOR_BYTES = 4
"""Partial sums are fp32 (NVIDIA A100 white paper, table of tensor-core modes)."""
_MOST_SPLITS = 16
"""The summed dimension is cut into at most so many parts, powers of two."""


@lru_cache(maxsize=1024)
def _options(blocks: Blocks, k: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows and columns of the tile and the parts of the summed dimension of every way to cut."""
    splits = [1 << i for i in range(_MOST_SPLITS.bit_length()) if 1 << i <= k]
    ways = [(rows, cols, split) for rows, cols in blocks.tiles for split in splits]
    rows, cols, parts = np.array(ways, dtype=np.float64).T
    return rows, cols, parts


def block_cycles(
    gemm: Gemm,
    configs: TensorConfigs,
    blocks: Blocks,
    pipelining: Pipelining = Pipelining.OVERLAPPED,
    *,
    element_bytes: float,
    sustained: float = 1.0,
    epilogue: tuple[float, float] = (0.0, 0.0),
) -> ArrayCycles:
    """Return the cycles of one product on every configuration, cut in the best of the ways that ``blocks`` has.

    Per way, with a tile of r × c, the summed dimension in p parts of κ = ⌈K/p⌉, T = batch · ⌈M/r⌉ · ⌈N/c⌉ · p tiles,
    S = ⌊units / units per block⌋ multiprocessors of u units with arrays of d × w, each element a multiply-accumulates
    per cycle:

    * one tile takes t = ⌈⌈r/d⌉·⌈c/w⌉ / u⌉ · ⌈κ/a⌉ cycles, all of them W·t in W = ⌈T/S⌉ waves;
    * a power limit lets the arrays run at the fraction φ (``sustained``) of their rate when all work, and at more when
      fewer do: W·t · max(1, min(T/S, 1)/φ);
    * local port: a tile's operands once per d rows or w columns of the arrays, and the result;
    * global port: each tile reads its operands itself, (r + c)·κ; in a cluster of g multiprocessors the longer one is
      shared, (min(r, c) + max(r, c)/g)·κ;
    * a multiprocessor's arrays wait while its tile's result leaves: all results, what an epilogue reads, and partial
      results, written and read back, pass the global port with no computing beside.

    A tile's accumulators take at most half of its multiprocessor's local buffers; the smallest tile always goes. The
    rest is as in :func:`archplace.costmodel._gemm.array_cycles`.
    """
    rows, cols, parts = _options(blocks, gemm.k)
    d, w, rate, count = (
        column[:, None] for column in (configs.rows, configs.cols, configs.macs_per_element, configs.count)
    )
    units = np.minimum(count, blocks.units).astype(np.float64)
    processors = np.maximum(count // blocks.units, 1).astype(np.float64)
    kappa = np.ceil(gemm.k / parts)
    tiles = gemm.batch * np.ceil(gemm.m / rows) * np.ceil(gemm.n / cols) * parts
    waves = np.ceil(tiles / processors)

    tile_cycles = np.ceil(np.ceil(rows / d) * np.ceil(cols / w) / units) * np.ceil(kappa / rate)
    unthrottled = waves * tile_cycles
    compute = unthrottled * np.maximum(np.minimum(tiles / processors, 1.0) / sustained, 1.0)
    tile_elements = np.ceil(cols / w) * rows * kappa + np.ceil(rows / d) * cols * kappa + rows * cols
    local = waves * tile_elements / (units * configs.local_elements_per_cycle[:, None])
    partial = np.where(parts > 1, parts, 0.0) * (gemm.batch * gemm.m * gemm.n * ACCUMULATOR_BYTES / element_bytes)
    extent = np.minimum(rows, cols) + np.maximum(rows, cols) / blocks.cluster
    read = tiles * extent * kappa + partial + epilogue[0]
    result = max(float(gemm.batch * gemm.m * gemm.n), epilogue[1])
    shared = np.maximum(read, partial + result) / configs.global_elements_per_cycle[:, None]
    leaving = (2 * partial + result + epilogue[0]) / configs.global_elements_per_cycle[:, None]

    fill = np.minimum(d, rows) + np.minimum(w, cols) - 2
    if pipelining is Pipelining.IDEAL:
        fill = np.zeros_like(fill)
    if pipelining is Pipelining.SERIAL:
        fill = fill * waves
    room = units * configs.local_elements[:, None] * (element_bytes / ACCUMULATOR_BYTES / 2)
    fits = (rows * cols <= room) | (rows * cols == (rows * cols).min())
    total = np.where(fits, np.maximum(np.maximum(compute, local) + fill + leaving, shared), np.inf)

    best = (np.arange(len(total)), total.argmin(axis=1))
    tiles, read = (np.broadcast_to(column, total.shape)[best] for column in (tiles, read))
    return ArrayCycles(
        compute=compute[best],
        local_port=local[best],
        global_port=shared[best],
        fill=np.broadcast_to(fill, total.shape)[best],
        balanced=tiles * tile_cycles[best] * units[:, 0] / count[:, 0],
        unthrottled=unthrottled[best],
        leaving=leaving[best],
        local_elements=tiles * np.broadcast_to(tile_elements, total.shape)[best],
        global_read_elements=read,
    )
