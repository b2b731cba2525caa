"""Bytes that one device keeps: parameters, gradients, optimizer states and activations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each device of one pipeline stage."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float

    @property
    def total_bytes(self) -> float:
        """Bytes altogether."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes
