"""The memory of one stage, part by part, for display."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from archplace.costmodel.memory_coefficients import POLICIES, MemoryCoefficients
from archplace.workloads.training_step import Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItems:
    """Bytes on each device of one pipeline stage, and beside them those in its host."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    """Master weights and moments."""
    activations_bytes: float
    """Of all microbatches in flight."""
    replayed_bytes: float
    """What recomputation brings back, of the layer at work."""
    temporary_bytes: float
    """Tensors inside the layer at work."""
    gathered_bytes: float
    """Whole parameters of the layer at work and of the next, where replicas share them."""
    unreduced_bytes: float
    """Whole gradients of the layer at work and of the one before, where replicas share them."""
    transit_bytes: float
    """Activations on their way to the host and back."""
    boundary_bytes: float
    """Activations and gradients between stages."""
    fragmentation_bytes: float
    reserved_bytes: float
    host_activations_bytes: float
    """In the host; not part of the total."""
    host_optimizer_bytes: float
    """In the host: states and the gradients that arrive; not part of the total."""

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """Name and bytes of every part of the total, in order."""
        names = [field.name for field in fields(self) if not field.name.startswith("host_")]
        return tuple((name.removesuffix("_bytes"), getattr(self, name)) for name in names)

    @property
    def total_bytes(self) -> float:
        """Bytes on the device altogether."""
        return sum(value for _, value in self.parts)

    @property
    def host_total_bytes(self) -> float:
        """Bytes in the host altogether."""
        return self.host_activations_bytes + self.host_optimizer_bytes


def memory_items(
    coefficients: MemoryCoefficients,
    counts: Sequence[int],
    policy: Recompute,
    in_flight: float,
    *,
    entering_bytes: float,
    leaving_bytes: float,
) -> MemoryItems:
    """Return the parts of one stage that holds ``counts`` layers of each kind; arguments as ``stage_bytes`` takes them.

    The working parts are those of the layer that needs most. Raises ``ValueError`` when ``coefficients`` are of several
    strategies or ``counts`` does not name every kind of layer.
    """
    if coefficients.state_bytes.ndim != 1:
        raise ValueError(f"coefficients are of strategies of shape {coefficients.state_bytes.shape[:-1]}, must be one")
    held = np.asarray(counts, dtype=np.float64)
    if held.shape != coefficients.state_bytes.shape:
        raise ValueError(f"{len(counts)} counts for {len(coefficients.state_bytes)} kinds of layers")
    row, offload, allowance = POLICIES.index(policy), coefficients.offload, coefficients.allowance
    kept = in_flight * float(held @ coefficients.kept_bytes[row])
    working = coefficients.working
    totals = np.where(held > 0, working.total_bytes[row], -1.0)
    busiest = int(totals.argmax())
    at_work = float(held[busiest] > 0)
    coming_and_going = {
        "activations_bytes": (1.0 - offload.activations) * kept,
        "replayed_bytes": at_work * float(working.replayed_bytes[row, busiest]),
        "temporary_bytes": at_work * float(working.temporary_bytes[busiest]),
        "gathered_bytes": at_work * float(working.gathered_bytes[busiest]),
        "unreduced_bytes": at_work * float(working.unreduced_bytes[busiest]),
        "transit_bytes": at_work * float(working.transit_bytes[row, busiest]),
        "boundary_bytes": 2.0 * (entering_bytes + leaving_bytes)
        + (in_flight * leaving_bytes if allowance.outputs_kept else 0.0),
    }
    states = coefficients.states
    return MemoryItems(
        weights_bytes=float(held @ states.weights_bytes),
        gradients_bytes=float(held @ states.gradients_bytes),
        optimizer_bytes=float(held @ states.optimizer_bytes),
        **coming_and_going,
        fragmentation_bytes=allowance.fragmentation * sum(coming_and_going.values()),
        reserved_bytes=allowance.reserved_bytes,
        host_activations_bytes=offload.activations * kept,
        host_optimizer_bytes=float(held @ coefficients.host_state_bytes),
    )
