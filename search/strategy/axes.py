"""Which strategies are searched: the values allowed along every axis, and the combinations that make sense."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from archplace.costmodel import Offload, SharedStates, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.strategy.strategy import Overlap
from archplace.workloads import Axis, ContextKind, LayerSharding, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The values allowed along each axis; their meaningful combinations are searched.

    Combinations that repeat another under a second name are left out: sequence parallelism or pieces of a collective
    without tensor parallelism, a context exchange without context parallelism, schedules of a pipeline without stages,
    shared states of a single replica.
    """

    tensor: tuple[int, ...] = (1, 2, 4, 8)
    sequence: tuple[bool, ...] = (False, True)
    context: tuple[int, ...] = (1,)
    context_kind: tuple[ContextKind, ...] = (ContextKind.RING,)
    expert: tuple[int, ...] = (1,)
    expert_tensor: tuple[int, ...] = (1,)
    overlap_pieces: tuple[int, ...] = (1,)
    microbatch: tuple[int, ...] = (1, 2, 4, 8)
    stages: tuple[int, ...] | None = None
    """Lengths of pipelines; None for all that divide the devices."""
    data: tuple[int, ...] | None = None
    """Replicas; None for whatever the other degrees leave."""
    schedules: tuple[PipelineSchedule, ...] = (
        PipelineSchedule.ONE_F_ONE_B,
        PipelineSchedule.INTERLEAVED,
        PipelineSchedule.ZB_H1,
    )
    virtual: tuple[int, ...] = (2, 3, 4, 6, 8, 12)
    """Parts of the model on each device where the schedule interleaves them."""
    policies: tuple[Recompute, ...] = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    """What each stage chooses from."""
    states: tuple[StateSharding, ...] = (
        StateSharding(),
        StateSharding(states=SharedStates.OPTIMIZER),
        StateSharding(states=SharedStates.GRADIENTS),
        StateSharding(states=SharedStates.PARAMETERS),
    )
    offload: tuple[Offload, ...] = field(default=(Offload(),))
    overlap: tuple[Overlap, ...] = (Overlap(),)
    orders: tuple[tuple[Axis, ...], ...] | None = None
    """Orders of the devices' axes, innermost first; None for all that the network can tell apart."""

    def shardings(self) -> Iterator[LayerSharding]:
        """Yield every way to share a layer, each once."""
        for tensor, context, expert, microbatch in product(self.tensor, self.context, self.expert, self.microbatch):
            yield from (
                LayerSharding(
                    microbatch=microbatch,
                    tensor=tensor,
                    sequence=sequence,
                    context=context,
                    context_kind=kind,
                    expert=expert,
                    expert_tensor=expert_tensor,
                    overlap_pieces=pieces,
                )
                for sequence, kind, expert_tensor, pieces in product(
                    self.sequence if tensor > 1 else (False,),
                    self.context_kind if context > 1 else (ContextKind.RING,),
                    self.expert_tensor,
                    self.overlap_pieces if tensor > 1 else (1,),
                )
            )
