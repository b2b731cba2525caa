"""What crosses from one stage of a pipeline to the next."""

from dataclasses import dataclass

from archplace.search.export.placed import Placed
from archplace.workloads import Axis, CollectiveKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The message of one device to the same device of the next stage."""

    whole_bytes: int
    """The activation, or its gradient, on every device."""
    message_bytes: int
    gathers: bool
    """Whether each device of a tensor-parallel group sends its part, and the receivers gather the others' (Narayanan et
    al. 2021, arXiv:2104.04473, section 4.1)."""

    @classmethod
    def of(cls, placed: Placed) -> "Boundary":
        """Return the way that the cost model takes: of sending all and sending parts the faster."""
        whole, tensor = placed.block.table.boundary_bytes, placed.step.sharding.tensor
        plain = cls(whole_bytes=int(whole), message_bytes=int(whole), gathers=False)
        if tensor == 1 or placed.step.sharding.sequence or placed.shape.stages == 1:
            return plain
        network, order = placed.network, placed.order
        stages, neighbours = order.group(Axis.PIPELINE), order.group(Axis.TENSOR)
        part_s = float(network.transfer_s(whole / tensor, stages))
        part_s += float(network.seconds(CollectiveKind.ALL_GATHER, whole, neighbours))
        if float(network.transfer_s(whole, stages)) <= part_s:
            return plain
        return cls(whole_bytes=int(whole), message_bytes=int(whole / tensor), gathers=True)
