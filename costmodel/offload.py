"""What a device keeps in its host's memory, and what then crosses the link between them."""

from dataclasses import dataclass

from archplace.arch_configs.architectures import FloatArray
from archplace.workloads.training_step import ParameterBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Shares of memory that lie in the host.

    Raises ``ValueError`` for a share that is not between 0 and 1.
    """

    activations: float = 0.0
    """Of what a layer keeps for its backward pass: sent out behind the forward pass of the next layer, fetched behind
    the backward pass of that layer. One layer's share on its way out and one on its way in stay on the device."""
    optimizer: float = 0.0
    """Of master weights and moments: the host updates these parameters; gradients go out and new weights come back,
    once per step (ZeRO-Offload: Ren et al. 2021, arXiv:2101.06840). Gradients also stay on the device, where
    microbatches are summed. What the host's own work takes is not said here."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value}, must be a share between 0 and 1"
            for name, value in (("activations", self.activations), ("optimizer", self.optimizer))
            if not 0 <= value <= 1
        ]
        if problems:
            raise ValueError("; ".join(problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTraffic:
    """Bytes over the link between device and host; all of one shape."""

    out_bytes: FloatArray
    """From the device."""
    in_bytes: FloatArray
    """To the device."""

    def seconds(self, bandwidth_bytes_per_s: float) -> FloatArray:
        """Return the seconds on a link of this bandwidth per direction, the directions one after the other.

        Raises ``ValueError`` unless the bandwidth is positive.
        """
        if not bandwidth_bytes_per_s > 0:
            raise ValueError(f"bandwidth to the host is {bandwidth_bytes_per_s} bytes/s, must be positive")
        return (self.out_bytes + self.in_bytes) / bandwidth_bytes_per_s


def activation_traffic(kept_bytes: FloatArray, offload: Offload) -> HostTraffic:
    """Return what one microbatch moves of a layer that keeps ``kept_bytes``: out after forward, in before backward."""
    moved = offload.activations * kept_bytes
    return HostTraffic(out_bytes=moved, in_bytes=moved)


def optimizer_traffic(updated: FloatArray, size: ParameterBytes, offload: Offload) -> HostTraffic:
    """Return what one optimizer step moves for the ``updated`` parameters whose update is this device's share."""
    return HostTraffic(
        out_bytes=offload.optimizer * size.gradient * updated, in_bytes=offload.optimizer * size.weight * updated
    )


def host_state_bytes(updated: FloatArray, size: ParameterBytes, offload: Offload) -> FloatArray:
    """Return the host bytes of the ``updated`` parameters' optimizer states and of the gradients that arrive."""
    return offload.optimizer * (size.optimizer + size.gradient) * updated
