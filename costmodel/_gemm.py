"""Cycles and traffic of matrix products on arrays of tensor units.

One tensor unit is an array of ``rows`` × ``cols`` elements. A product C[M, N] = A[M, K] · B[K, N] is cut into tiles
that fill the array; dimensions that do not divide are padded (ceilings), never refused. Three dataflows are priced
and the cheapest is taken: weight stationary (a K × N tile stays, M streams past), output stationary (M × N stays, K
streams) and input stationary (K × M stays, N streams).

Partial sums live in accumulators at the edge of the array (as in the TPU: Jouppi et al., ISCA 2017, section 2), so that
they do not cross the local buffer's port.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray, IntArray
from archplace.workloads.operators import Gemm


class Pipelining(StrEnum):
    """What happens between two tiles of an array."""

    OVERLAPPED = "overlapped"
    """The next stationary tile is loaded behind the present one; the array fills and drains once. The default."""
    IDEAL = "ideal"
    """As overlapped, and filling, draining and the first load cost nothing: what mappers such as Timeloop assume."""
    SERIAL = "serial"
    """Every tile is loaded, streamed and drained before the next: SCALE-Sim's closed forms."""


class Dataflow(StrEnum):
    """Which operand's tile stays in the array while the others stream."""

    WEIGHT_STATIONARY = "weight_stationary"
    OUTPUT_STATIONARY = "output_stationary"
    INPUT_STATIONARY = "input_stationary"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorConfigs:
    """``n`` distinct tensor-unit configurations; capacities and rates in elements and elements per cycle."""

    count: IntArray
    rows: FloatArray
    cols: FloatArray
    macs_per_element: FloatArray
    local_elements: FloatArray
    """Capacity of one unit's local buffer."""
    local_elements_per_cycle: FloatArray
    global_elements_per_cycle: FloatArray
    """Global-buffer port, per direction, shared by all units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayCycles:
    """Cycles of one product on each configuration, shape ``(n,)``."""

    compute: FloatArray
    local_port: FloatArray
    global_port: FloatArray
    fill: FloatArray
    """Fill and drain of the array, which follow its computing."""
    local_elements: FloatArray
    """Elements that all units together exchange with their local buffers; not cycles."""
    global_read_elements: FloatArray
    """Elements read from the global buffer, once for all units that need them; not cycles."""
    balanced: FloatArray
    """What computing would take if all units had equal shares, padding included."""
    unthrottled: FloatArray
    """What computing would take at the arrays' full rate."""
    leaving: FloatArray | None = None
    """Cycles of the global port in which arrays wait for their results to leave; ``None``: they leave behind the
    computing."""

    @property
    def total(self) -> FloatArray:
        """Computing and local port overlap, filling and draining come on top; the global port runs beside all that."""
        array = np.maximum(self.compute, self.local_port) + self.fill
        if self.leaving is not None:
            array = array + self.leaving
        return np.maximum(array, self.global_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Elements moved between a buffer and the memory behind it, by operand; arrays over capacities."""

    a: FloatArray
    b: FloatArray
    c: FloatArray


def canonical(gemm: Gemm) -> Gemm:
    """Return the same product with shared operands folded: a shared B makes the batch more rows of A, a shared A more
    columns of B. What remains batched has operands of its own."""
    if gemm.batch > 1 and gemm.b_shared:
        return Gemm(m=gemm.batch * gemm.m, n=gemm.n, k=gemm.k)
    if gemm.batch > 1 and gemm.a_shared:
        return Gemm(m=gemm.m, n=gemm.batch * gemm.n, k=gemm.k)
    return Gemm(batch=gemm.batch, m=gemm.m, n=gemm.n, k=gemm.k)


def traffic(
    m: FloatArray,
    n: FloatArray,
    k: FloatArray,
    capacity: FloatArray,
    *,
    parts_m: FloatArray | float = 1.0,
    parts_n: FloatArray | float = 1.0,
) -> Traffic:
    """Return the elements that one product moves through a buffer of ``capacity`` elements, result written once.

    Half of the buffer holds what is reused, the other half is being filled (double buffering). The least of four
    schedules is taken: everything resident (each operand once); a panel of ``t`` rows of A resident, ``t = S/K``, B
    read once per panel; a panel of columns of B resident, A read once per panel; a block of C resident while K
    streams, A and B read once per block row and column. With S → ∞ this is the compulsory traffic; the C block
    reaches Hong and Kung's bound 2·M·N·K/√S within a constant (STOC 1981).
    """
    half = capacity / 2
    panel = np.maximum(np.floor(half / k), 1.0)
    fits_panel = half >= k
    a_panel = k * n * np.ceil(m / panel)  # B re-read
    b_panel = m * k * np.ceil(n / panel)  # A re-read
    # A square block, made longer along one side where the other is short.
    side = np.maximum(np.floor(np.sqrt(half)), 1.0)
    block_m = np.where(n < side, np.maximum(np.floor(half / n), 1.0), side)
    block_n = np.where(m < side, np.maximum(np.floor(half / m), 1.0), side)
    block_m, block_n = np.minimum(block_m, m), np.minimum(block_n, n)
    a_block, b_block = m * k * np.ceil(n / block_n), k * n * np.ceil(m / block_m)
    a, b = a_block, b_block
    for a_other, b_other, allowed in ((m * k, a_panel, fits_panel), (b_panel, k * n, fits_panel)):
        better = allowed & (a_other * parts_m + b_other * parts_n < a * parts_m + b * parts_n)
        a, b = np.where(better, a_other, a), np.where(better, b_other, b)
    resident = m * k + k * n + m * n <= half
    a, b = np.where(resident, m * k, a), np.where(resident, k * n, b)
    return Traffic(a=a, b=b, c=np.broadcast_to(m * n, a.shape))


@lru_cache(maxsize=4096)
def _splits(count: int, batch: int) -> tuple[tuple[int, int, int], ...]:
    """Ways to divide ``count`` units over (batch, M, N): powers of two on one side, what is left on the other.

    Every way for ``count`` has one for ``count + 1`` that is at least as large in each direction, so that one more unit
    never costs time.
    """
    batches = {1 << j for j in range(min(count, batch).bit_length())} | {min(count, batch)}
    ways = set()
    for over_batch in batches:
        rest = count // over_batch
        for i in range(rest.bit_length()):
            ways.add((over_batch, 1 << i, rest >> i))
            ways.add((over_batch, rest >> i, 1 << i))
    return tuple(sorted(ways))


@lru_cache(maxsize=64)
def _divisions(
    counts: tuple[int, ...], batch: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray, FloatArray, FloatArray]:
    """Return all divisions of all configurations in a row: whose it is, where each configuration's begin, and the units
    over batch, M and N."""
    ways = [np.array(_splits(count, batch), dtype=np.float64) for count in counts]
    lengths = np.array([len(way) for way in ways])
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    over_batch, over_m, over_n = np.ascontiguousarray(np.concatenate(ways).T)
    return np.repeat(np.arange(len(counts)), lengths), starts, over_batch, over_m, over_n


def array_cycles(
    gemm: Gemm,
    configs: TensorConfigs,
    pipelining: Pipelining = Pipelining.OVERLAPPED,
    dataflows: Sequence[Dataflow] = tuple(Dataflow),
    *,
    sustained: float = 1.0,
    epilogue: tuple[float, float] = (0.0, 0.0),
) -> ArrayCycles:
    """Return the cycles of one product (:func:`canonical`) on every configuration, all units of each working on it.

    The units are divided over batch, M and N; operands that several units need are read from the global buffer once
    (multicast). Per division and dataflow, with ``d`` = rows, ``w`` = cols and one unit's share (m, n, k):

    * weight stationary: ⌈n/w⌉ · max(⌈k/d⌉·m, k) — streaming M per tile, against loading k rows of weights per column
      of tiles; output stationary: ⌈n/w⌉ · max(⌈m/d⌉·k, m); input stationary: ⌈m/w⌉ · max(⌈k/d⌉·n, k);
    * serial: SCALE-Sim's (Samajdar et al., ISPASS 2020) ⌈k/d⌉⌈n/w⌉(m+2d+w−2) and ⌈m/d⌉⌈n/w⌉(k+d+w−2);
    * local port: streamed operand once per stationary tile column, the others once, results once;
    * global port: :func:`traffic` at the local buffer's capacity.

    A fused ``epilogue`` reads so many elements more from the global buffer and writes so many, instead of the result
    where that is more. Arrays run at the fraction ``sustained`` of their rate. The division and dataflow with the least
    :attr:`ArrayCycles.total` wins.
    """
    of, starts, over_batch, over_m, over_n = _divisions(tuple(configs.count.tolist()), gemm.batch)
    d, w, rate = configs.rows[of], configs.cols[of], configs.macs_per_element[of]
    b = np.ceil(gemm.batch / over_batch)
    m, n = np.ceil(gemm.m / over_m), np.ceil(gemm.n / over_n)
    k = np.full_like(m, float(gemm.k))

    tiles_kd, tiles_md = np.ceil(k / d), np.ceil(m / d)
    tiles_nw, tiles_mw = np.ceil(n / w), np.ceil(m / w)
    # Tiles of the stationary rows and columns, stream length, rows loaded per column of tiles, extents that are filled,
    # times the rows are passed in serial operation, elements read from the local buffer.
    details = {
        Dataflow.WEIGHT_STATIONARY: (
            (tiles_kd, tiles_nw, np.ceil(m / rate), np.ceil(k / rate), k, n, 2.0, tiles_nw * m * k + k * n)
        ),
        Dataflow.OUTPUT_STATIONARY: (
            (tiles_md, tiles_nw, np.ceil(k / rate), np.ceil(m / rate), m, n, 1.0, tiles_nw * m * k + tiles_md * n * k)
        ),
        Dataflow.INPUT_STATIONARY: (
            (tiles_kd, tiles_mw, np.ceil(n / rate), np.ceil(k / rate), k, m, 2.0, tiles_mw * n * k + m * k)
        ),
    }
    # All units that need the same rows of A or columns of B get them in one read; the last part may be smaller, so that
    # the parts are counted as M/m and N/n.
    parts_m, parts_n = gemm.m / m, gemm.n / n
    moved = traffic(m, n, k, configs.local_elements[of], parts_m=parts_m, parts_n=parts_n)
    read = gemm.batch * (moved.a * parts_m + moved.b * parts_n) + epilogue[0]
    written = max(float(gemm.batch * gemm.m * gemm.n), epilogue[1])
    shared = np.maximum(read, written) / configs.global_elements_per_cycle[of]
    compute = local = fill = cost = np.full_like(m, np.inf)
    for dataflow in dataflows:
        tile_rows, tile_cols, stream, load, rows_used, cols_used, loads, reads = details[dataflow]
        if pipelining is Pipelining.SERIAL:
            cycles = b * tile_rows * tile_cols * (stream + loads * d + w - 2)
            extra = np.zeros_like(cycles)
        else:
            cycles = b * tile_cols * np.maximum(tile_rows * stream, load)
            extra = np.minimum(d, rows_used) + np.minimum(w, cols_used) - 2
        if pipelining is Pipelining.IDEAL:
            extra = np.zeros_like(cycles)
        if sustained < 1.0:
            cycles = cycles / sustained
        port = b * (reads + m * n) / configs.local_elements_per_cycle[of]
        total = np.maximum(np.maximum(cycles, port) + extra, shared)
        better = total < cost
        compute, local = np.where(better, cycles, compute), np.where(better, port, local)
        fill, cost = np.where(better, extra, fill), np.where(better, total, cost)

    cheapest = np.flatnonzero(cost == np.minimum.reduceat(cost, starts)[of])
    best = cheapest[np.concatenate(([True], np.diff(of[cheapest]) > 0))]  # the first of each configuration
    # The last units' parts may be smaller: all units together exchange what M/m × N/n whole parts do.
    parts = gemm.batch * parts_m[best] * parts_n[best] / b[best]
    return ArrayCycles(
        compute=compute[best],
        local_port=local[best],
        global_port=shared[best],
        fill=fill[best],
        local_elements=local[best] * configs.local_elements_per_cycle * parts,
        global_read_elements=read[best],
        balanced=compute[best] * sustained * parts / configs.count,
        unthrottled=compute[best] * sustained,
    )
