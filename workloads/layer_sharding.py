"""How one layer is shared by the devices of its pipeline stage, and how much of a batch it gets at a time."""

from dataclasses import dataclass
from enum import StrEnum

from archplace.workloads.operators import Axis


class ContextKind(StrEnum):
    """How attention meets the keys and values that other members of a context-parallel group hold."""

    RING = "ring"
    """They travel round the group, each step behind the attention of the one before (Liu, Zaharia and Abbeel 2023,
    arXiv:2310.01889)."""
    ALL_GATHER = "all_gather"
    """They are gathered before attention (Dubey et al. 2024, arXiv:2407.21783, section 3.3.2)."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LayerSharding:
    """The degrees that decide a layer's operator graphs.

    A stage of one replica has ``tensor · context`` devices. Routed experts are spread over ``expert · expert_tensor``
    devices, which are taken from the ``tensor · context · data`` devices of all replicas of the stage.
    """

    microbatch: int
    """Sequences per microbatch and replica."""
    tensor: int = 1
    sequence: bool = False
    """Norms, dropout and residuals are shared along the sequence by the tensor-parallel group (Korthikanti et al.
    2022, arXiv:2205.05198, section 4.2.2); needs ``tensor`` > 1."""
    context: int = 1
    """Devices that share each sequence. Behind a causal mask a device's share is a piece from the front and its mirror
    image from the back, so that all compute as many scores (Dubey et al. 2024, arXiv:2407.21783, section 3.3.2)."""
    context_kind: ContextKind = ContextKind.RING
    expert: int = 1
    expert_tensor: int = 1
    """Devices that share one expert's matrices."""
    overlap_pieces: int = 1
    """Pieces into which a matrix product and its tensor-parallel collective are cut so that one piece's exchange runs
    behind the next piece's product; 1 for no overlap."""

    @property
    def stage_devices(self) -> int:
        """Devices of one stage of one replica."""
        return self.tensor * self.context

    def degree(self, axis: Axis) -> int:
        """Return how many devices the layer's groups along ``axis`` have.

        Raises ``ValueError`` for data and pipeline, which decide nothing inside a layer.
        """
        degrees = {
            Axis.TENSOR: self.tensor,
            Axis.CONTEXT: self.context,
            Axis.EXPERT: self.expert,
            Axis.EXPERT_TENSOR: self.expert_tensor,
        }
        if axis not in degrees:
            raise ValueError(f"axis {axis} has no degree inside a layer; there are {', '.join(degrees)}")
        return degrees[axis]
