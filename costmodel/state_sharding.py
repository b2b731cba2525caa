"""Parameters, gradients and optimizer states shared by data-parallel replicas: bytes kept, and what is exchanged.

What is shared, and the bytes that remain on each of z devices that share one copy, follow ZeRO (Rajbhandari et al.
2020, arXiv:1910.02054, section 5 and figure 1); the exchange layer by layer with shared parameters, and sharing inside
groups of replicas only, follow FSDP (Zhao et al. 2023, arXiv:2304.11277, section 3.2). A shard is taken as an exact
z-th: the padding of single tensors is not counted.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from archplace.arch_configs.architectures import FloatArray, IntArray
from archplace.workloads.operators import CollectiveKind
from archplace.workloads.training_step import ParameterBytes


class SharedStates(StrEnum):
    """What replicas share out among themselves; each member includes those before it."""

    NONE = "none"
    """Every replica keeps everything."""
    OPTIMIZER = "optimizer"
    """Master weights and moments (ZeRO-1, Megatron's distributed optimizer)."""
    GRADIENTS = "gradients"
    """And the summed gradients (ZeRO-2)."""
    PARAMETERS = "parameters"
    """And the parameters, which are gathered layer by layer (ZeRO-3, FSDP)."""


class Members(StrEnum):
    """Which of the devices that hold the same parameters take part in an exchange."""

    SHARDS = "shards"
    """Those that share one copy."""
    COPIES = "copies"
    """Those that hold the same shard of different copies."""


class Moment(StrEnum):
    """When an exchange of a layer takes place, which says behind what it can hide."""

    BEFORE_FORWARD = "before_forward"
    """Behind the forward pass of the layer before."""
    BEFORE_BACKWARD = "before_backward"
    """Behind the backward pass of the layer after; a replay of the forward pass uses what it brings."""
    AFTER_BACKWARD = "after_backward"
    """Behind the backward pass of the layers before."""
    AFTER_UPDATE = "after_update"
    """After the optimizer step: behind the next step's forward pass of the layers before, or exposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSharding:
    """How states are shared.

    Raises ``ValueError`` for a group below 1 and for a group where nothing is shared.
    """

    states: SharedStates = SharedStates.NONE
    group: int | None = None
    """Replicas that share one copy (hybrid sharding); ``None`` for all of them."""
    accumulate_shard: bool = True
    """Where gradients are shared: whether every microbatch's are reduced at once and summed in the shard, or summed
    whole on each device and reduced once per step (FSDP's ``no_sync``), for more memory and less traffic."""

    def __post_init__(self) -> None:
        if self.group is not None and self.group < 1:
            raise ValueError(f"group is {self.group}, must be at least 1 replica, or none for all replicas")
        if self.group is not None and self.states is SharedStates.NONE:
            raise ValueError(f"group is {self.group}, but no states are shared: leave it out, or share some")

    @property
    def shares_optimizer(self) -> bool:
        """Whether master weights and moments are shared."""
        return self.states is not SharedStates.NONE

    @property
    def shares_gradients(self) -> bool:
        """Whether only a shard of the summed gradients is kept."""
        return self.states in (SharedStates.GRADIENTS, SharedStates.PARAMETERS) and self.accumulate_shard

    @property
    def shares_parameters(self) -> bool:
        """Whether parameters are gathered before use."""
        return self.states is SharedStates.PARAMETERS


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptStates:
    """Bytes that one device keeps, whatever is in flight; all of one shape."""

    weights_bytes: FloatArray
    gradients_bytes: FloatArray
    optimizer_bytes: FloatArray

    @property
    def total_bytes(self) -> FloatArray:
        """Bytes altogether."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    def __add__(self, other: "KeptStates") -> "KeptStates":
        return KeptStates(
            weights_bytes=self.weights_bytes + other.weights_bytes,
            gradients_bytes=self.gradients_bytes + other.gradients_bytes,
            optimizer_bytes=self.optimizer_bytes + other.optimizer_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One collective of a layer's states."""

    kind: CollectiveKind
    members: Members
    moment: Moment
    per_microbatch: bool
    """Whether it takes place for every microbatch, or once per step, with the last."""
    expert: bool
    """Whether routed experts' parameters are exchanged or all others."""
    group_size: IntArray
    """Devices that take part; where it is 1 the payload is 0."""
    payload_bytes: FloatArray
    """Bytes of the full buffer, as :class:`~archplace.workloads.operators.Collective` counts them."""


def kept_states(
    parameters: FloatArray, size: ParameterBytes, sharding: StateSharding, shards: IntArray | int
) -> KeptStates:
    """Return what each of ``shards`` devices keeps of ``parameters`` parameters; the two broadcast."""
    whole, z = np.broadcast_arrays(np.asarray(parameters, dtype=np.float64), shards)
    part = whole / z
    return KeptStates(
        weights_bytes=(part if sharding.shares_parameters else whole) * (size.weight + size.weight_copies),
        gradients_bytes=(part if sharding.shares_gradients else whole) * size.gradient,
        optimizer_bytes=(part if sharding.shares_optimizer else whole) * size.optimizer,
    )


def gathered_bytes(
    parameters: FloatArray, size: ParameterBytes, sharding: StateSharding, shards: IntArray | int
) -> FloatArray:
    """Return the bytes of a layer's parameters in one piece while it is at work; 0 where they always are."""
    return _only_shared(sharding.shares_parameters, parameters, shards) * size.weight


def unreduced_bytes(
    parameters: FloatArray, size: ParameterBytes, sharding: StateSharding, shards: IntArray | int
) -> FloatArray:
    """Return the bytes of a layer's gradients of one microbatch before only a shard of their sum remains.

    0 where gradients are kept whole: they are reduced in place.
    """
    return _only_shared(sharding.shares_gradients, parameters, shards) * size.gradient


def exchanges(
    parameters: FloatArray,
    size: ParameterBytes,
    sharding: StateSharding,
    *,
    shards: IntArray | int,
    copies: IntArray | int,
    expert: bool = False,
) -> tuple[Exchange, ...]:
    """Return what ``shards · copies`` devices exchange of ``parameters`` parameters; the three broadcast.

    Without sharing: one all-reduce of the gradients. With it, gradients are reduced and scattered among the shards,
    shards' sums reduced over the copies once per step, and what the update changed is gathered: once per step where
    each device keeps all parameters, else before every forward and every backward pass of a microbatch. Per device a
    single microbatch so moves 2, 2, 2 and 3 times the parameters (ZeRO, section 7).
    """
    z, r = np.asarray(shards, dtype=np.int64), np.asarray(copies, dtype=np.int64)
    gradients = np.asarray(parameters, dtype=np.float64) * size.gradient
    weights = np.asarray(parameters, dtype=np.float64) * size.weight

    def exchange(
        kind: CollectiveKind, members: Members, moment: Moment, payload: FloatArray, *, per_microbatch: bool
    ) -> Exchange:
        group, bytes_moved = np.broadcast_arrays(z if members is Members.SHARDS else r, payload)
        return Exchange(
            kind=kind,
            members=members,
            moment=moment,
            per_microbatch=per_microbatch,
            expert=expert,
            group_size=group,
            payload_bytes=np.where(group > 1, bytes_moved, 0.0),
        )

    found = []
    shared = sharding.states is not SharedStates.NONE
    if sharding.shares_parameters:
        for moment in (Moment.BEFORE_FORWARD, Moment.BEFORE_BACKWARD):
            found.append(exchange(CollectiveKind.ALL_GATHER, Members.SHARDS, moment, weights, per_microbatch=True))
    if shared:
        found.append(
            exchange(
                CollectiveKind.REDUCE_SCATTER,
                Members.SHARDS,
                Moment.AFTER_BACKWARD,
                gradients,
                per_microbatch=sharding.shares_gradients,
            )
        )
    found.append(
        exchange(
            CollectiveKind.ALL_REDUCE,
            Members.COPIES,
            Moment.AFTER_BACKWARD,
            gradients / z if shared else gradients,
            per_microbatch=False,
        )
    )
    if shared and not sharding.shares_parameters:
        found.append(
            exchange(CollectiveKind.ALL_GATHER, Members.SHARDS, Moment.AFTER_UPDATE, weights, per_microbatch=False)
        )
    return tuple(found)


def _only_shared(shared: bool, parameters: FloatArray, shards: IntArray | int) -> FloatArray:
    whole = np.asarray(parameters, dtype=np.float64)
    found: FloatArray = np.where(np.logical_and(shared, np.asarray(shards) > 1), whole, 0.0)
    return found
