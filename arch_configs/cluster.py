"""A cluster: accelerators joined by network dimensions, from fast to slow."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Network dimensions from fast to slow; device ``x`` has coordinate ``x // prod(faster sizes) % size`` in each."""

    name: str
    dimensions: tuple[NetworkDimension, ...]
    sources: Mapping[str, str]

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(dimension.size for dimension in self.dimensions)
