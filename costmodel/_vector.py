"""Cycles and bytes of element-wise work on vector units."""

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.workloads.operators import VectorWork


def lane_cycles(work: VectorWork, units: FloatArray, lanes: FloatArray) -> FloatArray:
    """Return the cycles that ``units`` vector units of ``lanes`` lanes need, shape of the arguments' broadcast.

    ⌈elements / (units·lanes)⌉ · operations per element; and for each reduction over a row of R elements the tree that
    combines the lanes' partial results: ⌈rows/units⌉ · min(1, R/lanes) cycles, because rows follow each other through
    the tree (and several short rows share a wide unit), and ⌈log2 R⌉ once for the last of them.
    """
    cycles = np.ceil(work.elements / (units * lanes)) * work.operations_per_element
    if work.reductions:
        per_row = np.ceil(work.rows / units) * np.minimum(1.0, work.row_length / lanes)
        cycles = cycles + work.reductions * (per_row + np.ceil(np.log2(max(work.row_length, 2))))
    return cycles


def row_stays_on_chip(work: VectorWork, buffer_bytes: FloatArray) -> FloatArray:
    """Return 1 where a row's operands and results fit half of the buffer, so that later passes need no HBM, else 0.

    Half, because the next row is loaded meanwhile. Units share a row where there is no room for one each.
    """
    row_bytes = (work.read_bytes + work.write_bytes) / max(work.rows, 1)
    return (row_bytes <= buffer_bytes / 2).astype(np.float64)


def hbm_read_bytes(work: VectorWork, resident: FloatArray) -> FloatArray:
    """Return the bytes read from HBM: each operand once, or once per pass where the row is not ``resident``."""
    return work.read_bytes * np.where(resident > 0, 1.0, float(work.passes))
