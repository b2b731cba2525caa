"""Seconds and bytes of collectives of groups: the one door to the prices of the network."""

from enum import StrEnum

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.cluster import Cluster, Endpoint
from archplace.costmodel.network.astra_sim import AstraSimSystem, astra_sim_s
from archplace.costmodel.network.groups import Group
from archplace.costmodel.network.hierarchy import plan
from archplace.costmodel.network.layout import Share, lay
from archplace.costmodel.network.plans import Phase
from archplace.costmodel.network.ring import ring_bytes, ring_s
from archplace.workloads.operators import CollectiveKind


class PricingMode(StrEnum):
    """Under which assumptions collectives are priced."""

    BEST = "best"
    """Per dimension and payload the fastest algorithm that its topology allows, links with the fraction of their
    bandwidth that messages of each size achieve, and what a collective costs at its endpoints."""
    RING = "ring"
    """Rings in every dimension over ideal links: linear in the payload."""
    ASTRA_SIM = "astra_sim"
    """What the simulator ASTRA-sim (analytical, without congestion) finds for ring and direct collectives, to the
    nanosecond."""


class NetworkPricer:
    """Prices collectives of groups in a cluster.

    Payloads are those of :class:`~archplace.workloads.operators.Collective`: the full buffer of each device, of an
    all-to-all all that a device sends, of a point-to-point step what one device sends. They are numbers or arrays of
    any shape, which the results have too; a group of one costs nothing. Where a group does not fit the cluster,
    ``ValueError`` says so with the numbers.
    """

    def __init__(
        self,
        cluster: Cluster,
        mode: PricingMode = PricingMode.BEST,
        *,
        astra_sim: AstraSimSystem | None = None,
    ) -> None:
        self.cluster = cluster
        self.mode = mode
        self._astra_sim = astra_sim or AstraSimSystem()

    def shares(self, group: Group) -> tuple[Share, ...]:
        """Return how the groups lie in the network; what lies alike costs the same."""
        return lay(self.cluster, group)

    def seconds(self, kind: CollectiveKind, payload_bytes: FloatArray | float, group: Group) -> FloatArray:
        """Return the seconds of a collective; an empty payload still takes its latency."""
        payload = _payload(payload_bytes)
        shares = self.shares(group)
        if self.mode is PricingMode.RING:
            return ring_s(kind, payload, shares)
        if self.mode is PricingMode.ASTRA_SIM:
            whole = group.size == self.cluster.size
            return astra_sim_s(kind, payload, shares, system=self._astra_sim, whole=whole)
        return plan(kind, shares).curve.at(payload) + endpoint_s(self.cluster.endpoint, kind, payload, shares)

    def sent_bytes(self, kind: CollectiveKind, payload_bytes: FloatArray | float, group: Group) -> FloatArray:
        """Return the bytes that one device sends in the collective whose seconds :meth:`seconds` gives.

        Of ASTRA-sim's collectives those of the rings, which carry the same bytes.
        """
        payload = _payload(payload_bytes)
        if self.mode is PricingMode.BEST:
            return plan(kind, self.shares(group)).sent_bytes(payload)
        return ring_bytes(kind, payload, self.shares(group))

    def algorithm(self, kind: CollectiveKind, payload_bytes: float, group: Group) -> tuple[Phase, ...]:
        """Return what the fastest way of mode ``best`` carries out in the network for one payload, in order."""
        return plan(kind, self.shares(group)).phases(float(_payload(payload_bytes)))

    def transfer_s(self, payload_bytes: FloatArray | float, group: Group) -> FloatArray:
        """Return the seconds in which each member sends its payload to the next one, as pipeline stages do.

        The slowest boundary between neighbours counts. The same as :meth:`seconds` of a point-to-point step.
        """
        return self.seconds(CollectiveKind.POINT_TO_POINT, payload_bytes, group)


_PASSES = {
    CollectiveKind.ALL_REDUCE: 1.0,
    CollectiveKind.REDUCE_SCATTER: 0.5,
    CollectiveKind.ALL_GATHER: 0.5,
}
"""Of the buffer by its device. Measured for all-reduces, whose halves are taken to share it evenly; the others only
send what lies in the buffer, or write what comes."""


def endpoint_s(
    endpoint: Endpoint, kind: CollectiveKind, payload_bytes: FloatArray, shares: tuple[Share, ...]
) -> FloatArray:
    """Return the seconds that a collective costs a device beside the network; none for a group of one."""
    if not shares:
        return np.zeros_like(payload_bytes)
    passed = _PASSES.get(kind, 0.0) * payload_bytes
    seconds = np.full_like(payload_bytes, endpoint.start_s)
    return seconds if endpoint.pass_bytes_per_s is None else seconds + passed / endpoint.pass_bytes_per_s


def _payload(payload_bytes: FloatArray | float) -> FloatArray:
    payload = np.asarray(payload_bytes, dtype=np.float64)
    if not (payload >= 0).all():
        raise ValueError(f"payload_bytes: found {payload[~(payload >= 0)].ravel()[0]}; allowed: 0 or more")
    return payload
