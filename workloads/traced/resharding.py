"""What it takes to bring a tensor from one state into another."""

from dataclasses import dataclass

from archplace.workloads.operators import CollectiveKind
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.states import PARTIAL, REPLICATED, State
from archplace.workloads.traced.tensor_graph import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A collective that brings a tensor from ``source`` to ``target``."""

    source: State
    target: State
    kind: CollectiveKind
    payload_bytes: float
    """As :class:`archplace.workloads.Collective` counts it."""

    def seconds(self, rates: Rates, degree: int) -> float:
        """Return its seconds in a group of ``degree`` devices."""
        return rates.exchange_s(self.kind, self.payload_bytes, degree)


def conversion(tensor: Tensor, source: State, target: State, degree: int) -> Conversion | None:
    """Return the collective that brings a tensor into another state, or None where the rules know none.

    Partial sums are added everywhere (all-reduce) or each part on one device (reduce-scatter); parts are gathered
    everywhere, or cut anew (all-to-all). Taking one's part of a whole tensor is no exchange; and nothing makes partial
    sums again.
    """
    if source in (target, REPLICATED) or target == PARTIAL:
        return None
    whole = tensor.bytes
    if source == PARTIAL:
        kind = CollectiveKind.REDUCE_SCATTER if target.is_cut else CollectiveKind.ALL_REDUCE
        return Conversion(source=source, target=target, kind=kind, payload_bytes=whole)
    if target.is_cut:
        kind, payload = CollectiveKind.ALL_TO_ALL, whole / degree
    else:
        kind, payload = CollectiveKind.ALL_GATHER, whole
    return Conversion(source=source, target=target, kind=kind, payload_bytes=payload)
