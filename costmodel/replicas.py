"""How many devices hold the same parameters, and how many of those share one copy of the states.

Degrees follow Megatron-Core: a stage has tensor · context · data devices; routed experts are spread over
expert · expert_tensor of them, the others over tensor. So an expert's parameters lie on
tensor · context · data / (expert · expert_tensor) devices and all others on context · data.
"""

from dataclasses import dataclass

import numpy as np

from archplace.arch_configs.architectures import IntArray
from archplace.costmodel.state_sharding import SharedStates, StateSharding
from archplace.workloads.layer_sharding import LayerSharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Devices by what they hold in common; all fields of one shape, one entry per strategy."""

    dense_shards: IntArray
    """Devices that share one copy of the parameters that are not routed experts'."""
    dense_copies: IntArray
    """Copies of these."""
    expert_shards: IntArray
    """Devices that share one copy of the routed experts that each of them holds."""
    expert_copies: IntArray

    @classmethod
    def of(cls, sharding: LayerSharding, states: StateSharding, data: IntArray | int) -> "Replicas":
        """Return the counts for ``data`` data-parallel replicas (one number or an array).

        A group of replicas that shares states is context · data members of a tensor-parallel place, the nearest in
        device order; experts' states are shared by those of the same devices that hold the same experts.

        Raises ``ValueError`` with the reason where :func:`refusal` gives one for any entry; ask it first.
        """
        replicas = np.asarray(data, dtype=np.int64)
        if replicas.size and (reasons := [r for n in np.unique(replicas) if (r := refusal(sharding, states, int(n)))]):
            raise ValueError(reasons[0])
        spread = sharding.expert * sharding.expert_tensor
        dense = sharding.context * replicas
        expert = sharding.tensor * dense // spread
        if states.states is SharedStates.NONE:
            dense_shards, expert_shards = np.ones_like(dense), np.ones_like(expert)
        elif states.group is None:
            dense_shards, expert_shards = dense, expert
        else:
            dense_shards = np.full_like(dense, states.group)
            expert_shards = np.full_like(expert, max(1, states.group * sharding.tensor // spread))
        return cls(
            dense_shards=dense_shards,
            dense_copies=dense // dense_shards,
            expert_shards=expert_shards,
            expert_copies=expert // expert_shards,
        )


def refusal(sharding: LayerSharding, states: StateSharding, data: int) -> str | None:
    """Return why the degrees do not go together, with the numbers, or None."""
    if data < 1:
        return f"data parallel degree {data}: must be at least 1"
    spread = sharding.expert * sharding.expert_tensor
    devices = sharding.tensor * sharding.context * data
    if devices % spread:
        return (
            f"expert {sharding.expert} times expert_tensor {sharding.expert_tensor} is {spread} devices, which do not "
            f"divide the {devices} of a stage (tensor {sharding.tensor} times context {sharding.context} times data "
            f"{data})"
        )
    group = states.group
    if group is None:
        return None
    replicas = sharding.context * data
    if replicas % group:
        return (
            f"states are shared in groups of {group} replicas, which do not divide the {replicas} that hold the same "
            f"parameters (context {sharding.context} times data {data})"
        )
    together = group * sharding.tensor
    if together % spread and spread % together:
        return (
            f"states are shared by groups of {together} devices ({group} replicas times tensor {sharding.tensor}), "
            f"and experts are spread over {spread}: one must divide the other"
        )
    return None
