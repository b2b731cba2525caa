"""What programs reach of an accelerator, how their kernels cut matrix products, and how sure predictions are.

The data sheet says none of it, and all are optional. Without the first two an accelerator is what mappers assume:
arrays that any division of a product may use at their full rate, memories at their full bandwidth, operators that start
at no cost.
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


CENTRAL_SHARE = 0.8
"""Share of measured steps that an interval is meant to cover; half of the others lie below it, half above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """How far measured training steps lie from what a calibration predicts, as ratios of the two.

    Residuals of steps that the fit has not seen: :mod:`archplace.search.accuracy.residuals` says how they are had.
    """

    low: float
    """Measured over predicted seconds: a tenth of the steps lies below."""
    high: float
    """A tenth lies above."""
    compared: float | None = None
    """How far the ratio of two predictions for one model on as many devices is off, in four of five pairs: what the
    errors of both have in common cancels. None where too few steps can be compared."""
    steps: int
    """Measured steps that all this is drawn from."""

    def __post_init__(self) -> None:
        problems = []
        if not 0 < self.low <= self.high:
            problems.append(f"low is {self.low:g} and high is {self.high:g}; allowed: 0 < low <= high")
        if self.compared is not None and not self.compared >= 0:
            problems.append(f"compared is {self.compared:g}, must not be negative")
        if self.steps < 1:
            problems.append(f"steps is {self.steps}, must be at least 1")
        if problems:
            raise ValueError("; ".join(problems))
