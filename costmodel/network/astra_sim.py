"""Collectives as ASTRA-sim's analytical backend without congestion times them: whole nanoseconds, divisions truncated.

For a ring of n members, buffer S, messages of m bytes, T(m) = ⌊hops · latency + m / bandwidth⌋, P(m) = 3 ⌊m / memory⌋
for reading two operands and writing their sum, and d the delay at the end of each step:

- all-reduce, m = ⌊S/n⌋: 2(n−1)·T + (n−1)·P + (2(n−1)+1)·d
- reduce-scatter, m = ⌊S/n⌋: (n−1)·(T+P) + n·d
- all-gather, m = ⌊S/n⌋ (the trace's size is that of a shard): (n−1)·T + n·d
- all-to-all, m = ⌊S/n⌋: ring n(n−1)/2·T + (n(n−1)/2+1)·d; direct with one message at a time (n−1)·T + n·d; direct
  with all at once T + 2d
- send and receive: T(S)

A buffer of fewer bytes than members counts as one byte each. Hops: 2 through a switch, 1 between fully connected
devices, whose bandwidth is that of one link, and on a ring the shorter way round. Over several dimensions the parts are
those of BlueConnect (Cho et al., 2019), one after another: reduce-scatter up, all-reduce in the last, all-gather down;
an all-to-all is one in each. Read off the simulator's source (astra-sim, commit 518bd513, March 2026) and confirmed by
running it; with the simulator's own splitting of collectives switched off (one chunk).
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.cluster import NetworkDimension, Topology
from archplace.costmodel.network.layout import Share
from archplace.workloads.operators import CollectiveKind

_Whole = NDArray[np.int64]

_SUBGROUP_DELAY_NS = 10
"""Of groups that are not the whole cluster, whatever the system file says."""


class AllToAllImplementation(StrEnum):
    """ASTRA-sim's names for its all-to-alls."""

    RING = "ring"
    DIRECT_1 = "direct1"
    """One message at a time: right for a device with one port."""
    DIRECT = "direct"
    """All messages at once, each at full rate: right for links of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimSystem:
    """What ASTRA-sim's system file says of the devices."""

    endpoint_delay_ns: int = 10
    """Per step of a collective of all devices."""
    local_memory_bytes_per_s: float | None = None
    """Bandwidth at which partial results are added; none for no time at all."""
    all_to_all: AllToAllImplementation = AllToAllImplementation.DIRECT_1


def astra_sim_s(
    kind: CollectiveKind, payload_bytes: FloatArray, shares: tuple[Share, ...], *, system: AstraSimSystem, whole: bool
) -> FloatArray:
    """Return the seconds of a collective on ``payload_bytes``, whole nanoseconds; ``whole`` for one of all devices.

    Exact where all hops of a ring are equally far; on part of a ring the way back counts for every step. Raises
    ``ValueError`` for a broadcast, which the simulator does not simulate.
    """
    if kind is CollectiveKind.BROADCAST:
        raise ValueError("broadcast: ASTRA-sim simulates no broadcast; price it with mode 'best' or 'ring'")
    size = np.floor(payload_bytes).astype(np.int64)
    if kind is CollectiveKind.POINT_TO_POINT:
        slowest = np.zeros(size.shape, dtype=np.int64)
        for share in shares:
            slowest = np.maximum(slowest, _network_ns(share, size))
        return _seconds(slowest)
    delay = system.endpoint_delay_ns if whole else _SUBGROUP_DELAY_NS
    total = np.zeros(size.shape, dtype=np.int64)
    for index, share in enumerate(shares):
        last = index == len(shares) - 1
        for part in _parts(kind, last=last):
            total = total + _ring_ns(part, size, share, delay=delay, system=system)
        if kind is not CollectiveKind.ALL_TO_ALL:
            size = size // share.members
    return _seconds(total)


def _seconds(nanoseconds: _Whole) -> FloatArray:
    return nanoseconds.astype(np.float64) / 1e9


def _parts(kind: CollectiveKind, *, last: bool) -> tuple[CollectiveKind, ...]:
    if kind is CollectiveKind.ALL_REDUCE and not last:
        return CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER
    return (kind,)


def _ring_ns(kind: CollectiveKind, size: _Whole, share: Share, *, delay: int, system: AstraSimSystem) -> _Whole:
    n = share.members
    message: _Whole = np.maximum(size, n) // n
    network = _network_ns(share, message)
    if kind is CollectiveKind.ALL_GATHER:
        return (n - 1) * network + n * delay
    if kind is CollectiveKind.ALL_TO_ALL:
        if system.all_to_all is AllToAllImplementation.DIRECT:
            return network + 2 * delay
        if system.all_to_all is AllToAllImplementation.DIRECT_1:
            return (n - 1) * network + n * delay
        return n * (n - 1) // 2 * network + (n * (n - 1) // 2 + 1) * delay
    memory: _Whole = np.zeros_like(message)
    if system.local_memory_bytes_per_s is not None:
        memory = 3 * np.floor(message / system.local_memory_bytes_per_s * 1e9).astype(np.int64)
    if kind is CollectiveKind.REDUCE_SCATTER:
        return (n - 1) * (network + memory) + n * delay
    return 2 * (n - 1) * network + (n - 1) * memory + (2 * (n - 1) + 1) * delay


def _network_ns(share: Share, message: _Whole) -> _Whole:
    dimension = share.dimension
    per_ns = _link_bytes_per_s(dimension) / 1e9
    # Latencies come as seconds; what a nanosecond's multiple loses by that is far below a thousandth.
    latency_ns = round(dimension.latency_s * 1e9, 3)
    nanoseconds: _Whole = np.floor(_hops(share) * latency_ns + message / per_ns).astype(np.int64)
    return nanoseconds


def _link_bytes_per_s(dimension: NetworkDimension) -> float:
    if dimension.topology is Topology.FULLY_CONNECTED:
        return dimension.bandwidth_bytes_per_s / max(1, dimension.size - 1)
    return dimension.bandwidth_bytes_per_s


def _hops(share: Share) -> int:
    dimension = share.dimension
    if dimension.topology is Topology.SWITCH:
        return 2
    if dimension.topology is Topology.FULLY_CONNECTED:
        return 1
    back = (share.members - 1) * share.distance
    return max(min(way, dimension.size - way) for way in (share.distance, back))
