"""A cluster: accelerators joined by network dimensions, from fast to slow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod
from typing import Self

from archplace.arch_configs.calibration import Uncertainty


class Topology(StrEnum):
    """How the devices of one network dimension are joined."""

    RING = "ring"
    FULLY_CONNECTED = "fully_connected"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDimension:
    """One level of the network. A k-dimensional torus is k dimensions of topology ``ring``."""

    name: str
    topology: Topology
    size: int
    """Number of devices (or of groups of the faster dimensions) that this dimension joins."""
    bandwidth_bytes_per_s: float
    """Bytes per second that one device can send in this dimension, all its links of the dimension together."""
    latency_s: float
    """Seconds that one hop adds."""
    achievable: tuple[tuple[int, float], ...] = ()
    """Message size in bytes and the fraction of the bandwidth that messages of it reach, by size; empty for all of it.

    Up to the first size the fraction is the first one, from the last size on the last one. Between two sizes the
    seconds of a message are interpolated linearly.
    """
    sustained: float = 1.0
    """Share of all that which the programs of the cluster sustain, as its :class:`Software` says."""

    def __post_init__(self) -> None:
        problem = achievable_problem(self.achievable)
        if problem is not None:
            raise ValueError(f"{self.name}: {problem[1]}")


def achievable_problem(table: Sequence[tuple[int, float]]) -> tuple[int, str] | None:
    """Return the first entry of a table of achievable fractions that cannot be, and why; None when all can.

    Sizes rise, fractions lie above 0 and at most at 1, and a larger message never takes less time than a smaller one.
    """
    before: tuple[int, float] | None = None
    for index, (size, fraction) in enumerate(table):
        if not 0 < fraction <= 1:
            return index, f"found the fraction {fraction:g}; allowed: more than 0 and at most 1"
        if size < 1:
            return index, f"found a message of {size} bytes; allowed: at least 1"
        if before is not None and size <= before[0]:
            return index, f"found a message of {size} bytes after one of {before[0]}; sort the table by size"
        if before is not None and size / fraction < before[0] / before[1]:
            most = before[1] * size / before[0]
            return index, (
                f"found the fraction {fraction:g} for {size} bytes, with which they would arrive sooner than "
                f"{before[0]} bytes do; allowed: at most {most:.4g}"
            )
        before = (size, fraction)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What a collective costs a device beside the network, once, however many dimensions it crosses."""

    start_s: float = 0.0
    """Seconds before the first byte leaves: launching a kernel and meeting the other members."""
    pass_bytes_per_s: float | None = None
    """Rate at which a device passes its buffer of an all-reduce once, to copy and to add, while nothing moves on the
    network; None for no time at all. A reduce-scatter and an all-gather pass half of it each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host's side of one device: where activations and optimizer states can be offloaded to."""

    bandwidth_bytes_per_s: float
    """Bytes per second between one device and the host's memory, each way, while all devices of the host use it."""
    memory_bytes: int
    """Host memory for each device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """How the programs that run on a cluster differ from ideal ones; the defaults say not at all."""

    dispatch_s: float = 0.0
    """Seconds in which a host hands a device its next operator. Where kernels are not recorded beforehand no operator
    takes less, because the device waits (PyTorch, "CUDA semantics", sections on asynchronous execution and graphs)."""
    tensor_rate: float = 1.0
    """What long runs reach of the rate of tensor units that single kernels reach: under load the clock falls to what
    power and heat allow."""
    vector_traffic: float = 1.0
    """Bytes that element-wise operators move, over those that they would move if each were one kernel: frameworks that
    run operators one by one write and read what lies between their steps, such as casts (Ivanov et al. 2021,
    arXiv:2007.00072, section 3)."""
    attention_time: float = 1.0
    """Seconds of fused attention, forward, over those of a kernel whose tiles wait for nothing but arrays and lanes."""
    attention_gradient_time: float = 1.0
    """The same of its gradients, whose kernels fall further behind (Dao 2023, arXiv:2307.08691, section 4.1)."""
    tensor_pieces: int = 1
    """Pieces into which jobs cut products to hide the exchanges of tensor parallelism behind them."""
    link_rate: float = 1.0
    """What long runs sustain of the bandwidth of links, of all dimensions but the slowest of several."""
    fabric_rate: float = 1.0
    """The same of the slowest of several dimensions."""
    data_overlap: bool = True
    """Whether replicas exchange gradients and parameters behind computing that does not suffer from it. Kernels of
    collectives take multiprocessors and bandwidth from what they run beside."""
    early_stop: bool = False
    """Whether full recomputation of a layer stops once the backward pass has what it needs."""

    def __post_init__(self) -> None:
        problems = []
        for name in ("tensor_rate", "link_rate", "fabric_rate"):
            if not 0 < getattr(self, name) <= 1:
                problems.append(f"{name} is {getattr(self, name)}, must be more than 0 and at most 1")
        if not self.dispatch_s >= 0:
            problems.append(f"dispatch_s is {self.dispatch_s}, must not be negative")
        for name in ("vector_traffic", "attention_time", "attention_gradient_time"):
            if not getattr(self, name) >= 1:
                problems.append(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.tensor_pieces < 1:
            problems.append(f"tensor_pieces is {self.tensor_pieces}, must be at least 1")
        if problems:
            raise ValueError("; ".join(problems))


IDEAL_SOFTWARE = Software()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Network dimensions from fast to slow; device ``x`` has coordinate ``x // prod(faster sizes) % size`` in each."""

    name: str
    dimensions: tuple[NetworkDimension, ...]
    sources: Mapping[str, str] = field(hash=False)
    endpoint: Endpoint = field(default_factory=Endpoint)
    host: Host | None = None
    """None where nothing is known of it; then nothing can be offloaded."""
    accelerator: str | None = None
    """Name of the built-in accelerator that the cluster consists of; None where any may stand in it."""
    software: Software = IDEAL_SOFTWARE
    uncertainty: Uncertainty | None = None
    """How far measured steps of the cluster's own accelerator are from predicted ones; None where no calibration says
    so."""

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(dimension.size for dimension in self.dimensions)

    def under(self, software: Software) -> Self:
        """Return the whole cluster with other software, and its links at the rates that this sustains."""
        last = len(self.dimensions) - 1
        rates = [software.fabric_rate if 0 < i == last else software.link_rate for i in range(last + 1)]
        dimensions = [replace(each, sustained=rate) for each, rate in zip(self.dimensions, rates, strict=True)]
        return replace(self, software=software, dimensions=tuple(dimensions))

    def sized(self, n_devices: int) -> Self:
        """Return the part of this cluster that a job of ``n_devices`` gets.

        The fast dimensions are kept as full as possible and the slow ones shrink: 1024 devices of a 16 × 16 × 16 torus
        are 16 × 16 × 4, and 64 devices of 140 nodes of 8 are 8 nodes. Every group of a dimension is equally full, so
        that 100 devices of nodes of 8 are 20 nodes with 5 each. Dimensions that shrink to 1 are left out; a ring that
        shrinks stays a ring (as optical switches make of a TPU v4 slice).

        Raises :class:`ValueError` if the cluster has fewer devices, or if ``n_devices`` cannot be divided so.
        """
        if not 1 <= n_devices <= self.size:
            raise ValueError(f"found {n_devices} devices; the cluster {self.name!r} has 1 to {self.size:,}")
        limits = [dimension.size for dimension in self.dimensions]
        sizes = _divide(n_devices, limits)
        if sizes is None:
            below = next(n for n in range(n_devices, 0, -1) if _divide(n, limits) is not None)
            above = next(n for n in range(n_devices, self.size + 1) if _divide(n, limits) is not None)
            shape = " × ".join(str(limit) for limit in limits)
            raise ValueError(
                f"found {n_devices} devices, which do not divide evenly over the {shape} devices of the cluster "
                f"{self.name!r}; the nearest numbers that do are {below} and {above}"
            )
        dimensions = [replace(dimension, size=size) for dimension, size in zip(self.dimensions, sizes, strict=True)]
        return replace(self, dimensions=tuple(d for d in dimensions if d.size > 1) or tuple(dimensions[:1]))


def _divide(n_devices: int, limits: list[int]) -> tuple[int, ...] | None:
    """Return factors of ``n_devices``, none above its limit, the first ones as large as possible; None if none are."""
    if not limits:
        return () if n_devices == 1 else None
    if n_devices > prod(limits):
        return None
    for size in range(min(n_devices, limits[0]), 0, -1):
        if n_devices % size == 0:
            rest = _divide(n_devices // size, limits[1:])
            if rest is not None:
                return (size, *rest)
    return None
