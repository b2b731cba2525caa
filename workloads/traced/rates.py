"""How long a device takes for what sharding decides: arithmetic, memory traffic, exchanges."""

from dataclasses import dataclass
from math import isfinite

from archplace.workloads.operators import CollectiveKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Peak rates by which shardings of a layer are compared; only their ratios decide.

    The defaults are those of an H100 SXM in a server: 989 TFLOP/s in bf16 and 3.35 TB/s of HBM (NVIDIA H100 data
    sheet, 2023), 450 GB/s per direction over NVLink (the same), and 10 µs to start a collective, the order of what
    nccl-tests report for small messages inside a server. Raises ``ValueError`` that names every value that is not
    positive and finite.
    """

    flops_per_s: float = 989e12
    hbm_bytes_per_s: float = 3.35e12
    link_bytes_per_s: float = 450e9
    """Of one device, in each direction."""
    collective_latency_s: float = 10e-6
    """Of each collective, whatever its size."""

    def __post_init__(self) -> None:
        named = (
            "flops_per_s",
            "hbm_bytes_per_s",
            "link_bytes_per_s",
            "collective_latency_s",
        )
        problems = [
            f"{name} is {getattr(self, name)}, must be more than 0 and finite"
            for name in named
            if not (getattr(self, name) > 0 and isfinite(getattr(self, name)))
        ]
        if problems:
            raise ValueError("; ".join(problems))

    def compute_s(self, macs: float, moved_bytes: float) -> float:
        """Return the seconds of an operator that overlaps its arithmetic with its traffic (a roofline)."""
        return max(2.0 * macs / self.flops_per_s, moved_bytes / self.hbm_bytes_per_s)

    def exchange_s(self, kind: CollectiveKind, payload_bytes: float, group_size: int) -> float:
        """Return the seconds of a collective whose payload is as :class:`archplace.workloads.Collective` counts it.

        A ring sends (g − 1)/g of the payload, an all-reduce twice as much (Patarasuk and Yuan 2009, section 4). A
        group of one exchanges nothing.
        """
        if group_size == 1:
            return 0.0
        return self.collective_latency_s + self.transfer_s(kind, payload_bytes, group_size)

    def transfer_s(self, kind: CollectiveKind, payload_bytes: float, group_size: int) -> float:
        """Return the seconds of a collective without its latency, as of one that goes along with others."""
        rounds = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
        return rounds * payload_bytes * (group_size - 1) / group_size / self.link_bytes_per_s
