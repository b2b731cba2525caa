"""What programs reach of an accelerator, and how their kernels cut matrix products; the data sheet says neither.

Both are optional. Without them an accelerator is what mappers assume: arrays that any division of a product may use at
their full rate, memories at their full bandwidth, operators that start at no cost.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Thread blocks: kernels of GPUs give each multiprocessor one tile of the result at a time.

    The tile stays in the multiprocessor's registers while the summed dimension passes. A product takes as many waves of
    tiles as it has tiles for each multiprocessor, the last of them seldom full (NVIDIA, "Matrix Multiplication
    Background User's Guide", sections "Tile Quantization" and "Wave Quantization").
    """

    units: int
    """Tensor units that work on one tile together: those of a multiprocessor."""
    tiles: tuple[tuple[int, int], ...]
    """Rows and columns of the tiles of the result that there are kernels for."""
    cluster: int = 1
    """Multiprocessors that work on neighbouring tiles and read what these share once (NVIDIA H100 white paper, "Thread
    Block Clusters")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fractions of an accelerator's rates that kernels reach, measured or fitted; the defaults say all of them."""

    tensor_rate: float = 1.0
    """Of the tensor units' rate when all of them work for long: the clock that the power limit leaves."""
    lane_rate: float = 1.0
    """Of the vector units' rate in operators that stream from memory, whose lanes also load, convert, store and
    compute addresses."""
    global_buffer_bandwidth: float = 1.0
    """Of the global buffer's bandwidth."""
    hbm_bandwidth: float = 1.0
    """Of the HBM's bandwidth."""
    launch_s: float = 0.0
    """Seconds from the end of one operator to the start of the next on the same device, when both are queued."""


NOMINAL = Calibration()
"""Data-sheet rates."""
