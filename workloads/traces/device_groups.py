"""Which ranks form the process groups of a job whose ranks count along tensor, context and data, in this order.

As Megatron-Core numbers them: tensor-parallel neighbours are next to each other, then those that share a sequence, then
replicas. Routed experts are spread over the first ``expert_tensor · expert`` ranks, those that share an expert
innermost; the rest are replicas of the experts.
"""

from dataclasses import dataclass
from enum import StrEnum

from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.operators import Axis


class Reduction(StrEnum):
    """Whose gradients a group reduces."""

    DENSE = "dense gradients"
    """Of all parameters but the routed experts': context · data ranks hold the same."""
    EXPERT = "expert gradients"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroups:
    """All groups of more than one rank. Raises ValueError where the degrees do not go together."""

    sharding: LayerSharding
    data: int
    experts: bool
    """Whether layers have routed experts."""

    def __post_init__(self) -> None:
        spread = self.sharding.expert * self.sharding.expert_tensor
        if self.data < 1:
            raise ValueError(f"data parallel degree {self.data}: must be at least 1")
        if self.n_ranks % spread:
            raise ValueError(
                f"expert {self.sharding.expert} x expert_tensor {self.sharding.expert_tensor} = {spread} ranks do not "
                f"divide tensor {self.sharding.tensor} x context {self.sharding.context} x data {self.data} = "
                f"{self.n_ranks}"
            )

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""
        return self.sharding.stage_devices * self.data

    def members(self, use: Axis | Reduction, rank: int) -> tuple[int, ...]:
        """Return the group of ``rank``, ascending; itself alone where nothing is shared."""
        size, stride = self._level(use)
        first = rank - rank // stride % size * stride
        return tuple(first + place * stride for place in range(size))

    def named(self) -> dict[str, tuple[int, ...]]:
        """Return the groups by name; names are numbers from 1, as simulators need them."""
        found: dict[tuple[int, ...], None] = {}
        for use in (*Axis, *Reduction):
            if use in _NONE or (use in _OF_EXPERTS and not self.experts):
                continue
            for rank in range(self.n_ranks):
                members = self.members(use, rank)
                if members[0] == rank and len(members) > 1:
                    found[members] = None
        return {str(number): members for number, members in enumerate(found, 1)}

    def _level(self, use: Axis | Reduction) -> tuple[int, int]:
        sharding = self.sharding
        spread = sharding.expert * sharding.expert_tensor
        levels: dict[Axis | Reduction, tuple[int, int]] = {
            Axis.TENSOR: (sharding.tensor, 1),
            Axis.CONTEXT: (sharding.context, sharding.tensor),
            Axis.EXPERT_TENSOR: (sharding.expert_tensor, 1),
            Axis.EXPERT: (sharding.expert, sharding.expert_tensor),
            Reduction.DENSE: (sharding.context * self.data, sharding.tensor),
            Reduction.EXPERT: (self.n_ranks // spread, spread),
        }
        return levels[use]


_OF_EXPERTS = (Axis.EXPERT, Axis.EXPERT_TENSOR, Reduction.EXPERT)
_NONE = (Axis.DATA, Axis.PIPELINE)
"""Axes along which no operator of a layer communicates."""
