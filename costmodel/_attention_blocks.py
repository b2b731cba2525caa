"""How kernels of fused attention cut it into thread blocks, one tile each, on GPUs.

A forward tile has some query rows, whose context accumulates while the keys and values that they meet pass; a backward
tile has some keys, whose and whose values' gradients accumulate while the rows pass (Dao 2023, arXiv:2307.08691,
sections 3.2 and 3.3). What passes is read by every tile, through the global buffer. In the backward pass a row's query
gradient has a term from every tile: the tiles add theirs in fp32 by atomic operations, which read and write.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.calibration import Blocks
from archplace.costmodel._vector import lane_cycles
from archplace.workloads.operators import FusedAttention, VectorWork

_SUM_BYTES = 4


class AttentionTiles(NamedTuple):
    """The tiles of one fused attention; what a causal mask spares is spared on average."""

    tiles: int
    tile_macs: float
    """Multiply-accumulates of one tile, padding included."""
    tile_work: VectorWork
    """The lane work of one tile; its bytes are meaningless."""
    read_elements: float
    """Read from the global buffer by all tiles together."""
    sum_bytes: float
    """Of fp32 sums that tiles read from and write to the global buffer."""


class Busy(NamedTuple):
    """Cycles of the arrays, as those of :class:`archplace.costmodel._gemm.ArrayCycles`, by configuration."""

    balanced: FloatArray
    unthrottled: FloatArray
    compute: FloatArray


def attention_tiles(attention: FusedAttention, work: VectorWork, blocks: Blocks) -> AttentionTiles:
    """Return the tiles of ``attention``.

    A tile has as many rows (or keys) of operand and result as the largest tile of a product has room for, a power of
    two. In the backward pass, query heads that share a key head have tiles of their own, one set for each time that the
    rows are as many as the keys.
    """
    width = attention.head_dim + attention.value_dim
    heads = max(attention.rows // attention.keys, 1) if attention.gradients else 1
    room = max(rows * cols for rows, cols in blocks.tiles) // width
    side = 1 << max(room.bit_length() - 1, 0)
    if attention.gradients:
        extent, passing = attention.keys, attention.rows / heads * attention.met_keys / attention.keys
    else:
        extent, passing = attention.rows, float(attention.met_keys)
    side = min(side, extent)
    tiles = attention.batch * heads * -(-extent // side)
    passed = tiles * passing
    return AttentionTiles(
        tiles=tiles,
        tile_macs=attention.macs / (attention.batch * heads * extent) * side,
        tile_work=replace(work, rows=-(-work.rows // tiles)),
        read_elements=(passed + attention.batch * heads * extent) * width,
        sum_bytes=2.0 * _SUM_BYTES * passed * attention.head_dim if attention.gradients else 0.0,
    )


def tile_lane_cycles(tiles: AttentionTiles, vector_count: FloatArray, lanes: FloatArray) -> FloatArray:
    """Return the lanes' cycles: a vector unit does whole tiles."""
    return np.ceil(tiles.tiles / vector_count) * lane_cycles(tiles.tile_work, np.ones(1), lanes)


def tile_array_cycles(
    tiles: AttentionTiles, tensor_count: FloatArray, unit_macs_per_cycle: FloatArray, blocks: Blocks, sustained: float
) -> Busy:
    """Return the arrays' cycles: waves of whole tiles, as :func:`archplace.costmodel._blocks.block_cycles` counts."""
    units = np.minimum(tensor_count, blocks.units)
    processors = np.maximum(tensor_count // blocks.units, 1.0)
    tile_cycles = tiles.tile_macs / (units * unit_macs_per_cycle)
    unthrottled = np.ceil(tiles.tiles / processors) * tile_cycles
    return Busy(
        balanced=tiles.tiles * tile_cycles * units / tensor_count,
        unthrottled=unthrottled,
        compute=unthrottled * np.maximum(np.minimum(tiles.tiles / processors, 1.0) / sustained, 1.0),
    )
