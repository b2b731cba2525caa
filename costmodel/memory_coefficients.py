"""What each kind of layer adds to the memory of its pipeline stage, as arrays over strategies.

A stage that holds ``n[k]`` layers of kind ``k`` under recomputation policy ``p`` and has ``f`` microbatches in flight
(a fraction where the schedule has virtual stages) needs on each device

    Σ_k n[k] · (state[k] + f · in_flight[p, k])  +  max over held k of working[p, k]  +  constant

bytes. *In flight* is what a layer keeps of a microbatch until its backward pass: everything, everything but the
attention core (Korthikanti et al. 2022, arXiv:2205.05198, section 5), or its input (Chen et al. 2016,
arXiv:1604.06174). *Working* is what only the layer at work needs, one at a time: what recomputation brings back,
temporary tensors, whole parameters and whole gradients where replicas share them, activations on their way to the host
and back. The constant is what lies between stages and what frameworks reserve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.costmodel.allowance import Allowance
from archplace.costmodel.offload import (
    HostTraffic,
    Offload,
    activation_traffic,
    host_state_bytes,
    optimizer_traffic,
)
from archplace.costmodel.replicas import Replicas
from archplace.costmodel.state_sharding import (
    Exchange,
    KeptStates,
    StateSharding,
    exchanges,
    gathered_bytes,
    kept_states,
    unreduced_bytes,
)
from archplace.costmodel.temporaries import temporary_bytes
from archplace.workloads.training_step import Layer, ParameterBytes, Recompute

POLICIES = tuple(Recompute)
"""The order of the policies' axis: from what recomputes least to what recomputes most."""

Chain = Sequence[tuple[Layer, int]]
"""Kinds of layers in model order, each with how many times it repeats in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingParts:
    """What one layer at work needs besides what it keeps; without the allowance for fragmentation.

    ``K`` kinds of layers, ``P`` policies in the order of ``POLICIES``; ``...`` stands for the axes of the strategies.
    """

    replayed_bytes: FloatArray
    """``(P, K)``: what recomputation brings back."""
    temporary_bytes: FloatArray
    """``(K,)``: tensors that live only inside the layer's forward or backward pass."""
    gathered_bytes: FloatArray
    """``(..., K)``: whole parameters of the layer at work and of the next."""
    unreduced_bytes: FloatArray
    """``(..., K)``: whole gradients of the layer at work and of the one whose gradients are being reduced."""
    transit_bytes: FloatArray
    """``(P, K)``: activations on their way to the host and back."""

    @property
    def total_bytes(self) -> FloatArray:
        """``(..., P, K)``."""
        by_kind = self.temporary_bytes + self.gathered_bytes + self.unreduced_bytes
        return self.replayed_bytes + self.transit_bytes + by_kind[..., None, :]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCoefficients:
    """The memory of stages, linear in their layers; axes as in :class:`WorkingParts`."""

    states: KeptStates
    """``(..., K)`` each."""
    kept_bytes: FloatArray
    """``(P, K)``: activations of one microbatch, on the device or its host, without fragmentation."""
    working: WorkingParts
    host_state_bytes: FloatArray
    """``(..., K)``: optimizer states in the host."""
    update_traffic: HostTraffic
    """``(..., K)``: to and from the host once per step."""
    offload: Offload
    allowance: Allowance

    @property
    def state_bytes(self) -> FloatArray:
        """``(..., K)``: of one layer, whatever is in flight."""
        return self.states.total_bytes

    @property
    def in_flight_bytes(self) -> FloatArray:
        """``(P, K)``: of one layer for each microbatch in flight, with fragmentation."""
        return self.allowance.growth * (1.0 - self.offload.activations) * self.kept_bytes

    @property
    def working_bytes(self) -> FloatArray:
        """``(..., P, K)``: of the layer at work, with fragmentation; a stage needs the largest."""
        return self.allowance.growth * self.working.total_bytes

    @property
    def host_in_flight_bytes(self) -> FloatArray:
        """``(P, K)``: in the host for each microbatch in flight."""
        return self.offload.activations * self.kept_bytes

    @property
    def activation_traffic(self) -> HostTraffic:
        """``(P, K)``: to and from the host for each microbatch."""
        return activation_traffic(self.kept_bytes, self.offload)

    def stage_bytes(
        self,
        counts: FloatArray | NDArray[np.int64],
        policy: Recompute,
        in_flight: FloatArray | float,
        *,
        entering_bytes: FloatArray | float,
        leaving_bytes: FloatArray | float,
    ) -> FloatArray:
        """Return the bytes on each device of stages that hold ``counts``, ``(..., K)``, of the layers; ``(...,)``.

        All arguments broadcast over the axes of the strategies. A stage without layers needs the constant.
        """
        held, row = np.asarray(counts, dtype=np.float64), POLICIES.index(policy)
        flight = np.asarray(in_flight, dtype=np.float64)
        kept = (held * (self.state_bytes + flight[..., None] * self.in_flight_bytes[row])).sum(axis=-1)
        working = np.where(held > 0, self.working_bytes[..., row, :], 0.0).max(axis=-1)
        outputs = flight * self.allowance.kept_output_bytes(leaving_bytes)
        total: FloatArray = kept + working + outputs + self.allowance.constant_bytes(entering_bytes, leaving_bytes)
        return total

    def host_bytes(
        self, counts: FloatArray | NDArray[np.int64], policy: Recompute, in_flight: FloatArray | float
    ) -> FloatArray:
        """Return the bytes that each device of such stages needs in its host; ``(...,)``."""
        held, row = np.asarray(counts, dtype=np.float64), POLICIES.index(policy)
        flight = np.asarray(in_flight, dtype=np.float64)[..., None]
        total: FloatArray = (held * (self.host_state_bytes + flight * self.host_in_flight_bytes[row])).sum(axis=-1)
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """What layers need by themselves, however their states are shared; worked out once for many ways to share them."""

    kept_bytes: FloatArray
    """``(P, K)``: activations of one microbatch."""
    replayed_bytes: FloatArray
    """``(P, K)``: what a replay brings back."""
    temporary_bytes: FloatArray
    """``(K,)``: tensors that live only inside a pass."""

    @classmethod
    def of(cls, layers: Chain) -> "Footprint":
        """Return the footprint of a chain of layers."""
        kept, replayed = _by_policy([layer for layer, _ in layers])
        temporary = np.array([temporary_bytes(layer) for layer, _ in layers], dtype=np.float64)
        return cls(kept_bytes=kept, replayed_bytes=replayed, temporary_bytes=temporary)


def memory_coefficients(
    layers: Chain,
    size: ParameterBytes,
    *,
    states: StateSharding,
    replicas: Replicas,
    offload: Offload | None = None,
    allowance: Allowance | None = None,
    footprint: Footprint | None = None,
) -> MemoryCoefficients:
    """Return the coefficients of a chain of layers; the entries of ``replicas`` are the axes ``...``.

    A layer keeps what its :func:`policy_of` says. ``footprint`` is that of ``layers``, where it is known.
    """
    offload, allowance = offload or Offload(), allowance or Allowance()
    footprint = footprint or Footprint.of(layers)
    dense, expert = parameters_of(layers)
    z, z_expert = replicas.dense_shards[..., None], replicas.expert_shards[..., None]
    kept_parts = [kept_states(dense, size, states, z), kept_states(expert, size, states, z_expert)]
    whole = kept_parts[0] + kept_parts[1]
    updated = updated_parameters(layers, states, replicas)
    gathered = gathered_bytes(dense, size, states, z) + gathered_bytes(expert, size, states, z_expert)
    unreduced = unreduced_bytes(dense, size, states, z) + unreduced_bytes(expert, size, states, z_expert)
    counts = [count for _, count in layers]
    kept = footprint.kept_bytes
    return MemoryCoefficients(
        states=KeptStates(
            weights_bytes=whole.weights_bytes,
            gradients_bytes=whole.gradients_bytes,
            optimizer_bytes=(1.0 - offload.optimizer) * whole.optimizer_bytes,
        ),
        kept_bytes=kept,
        working=WorkingParts(
            replayed_bytes=footprint.replayed_bytes,
            temporary_bytes=footprint.temporary_bytes,
            gathered_bytes=_with_neighbour(gathered, counts),
            unreduced_bytes=_with_neighbour(unreduced, counts),
            transit_bytes=2.0 * offload.activations * kept,
        ),
        host_state_bytes=host_state_bytes(updated, size, offload),
        update_traffic=optimizer_traffic(updated, size, offload),
        offload=offload,
        allowance=allowance,
    )


def chain_exchanges(
    layers: Chain, size: ParameterBytes, *, states: StateSharding, replicas: Replicas
) -> tuple[Exchange, ...]:
    """Return what replicas exchange of each kind of layer: payloads and group sizes are ``(..., K)``.

    Routed experts' parameters apart from all others; without experts only the latter.
    """
    dense, expert = parameters_of(layers)
    found = exchanges(
        dense, size, states, shards=replicas.dense_shards[..., None], copies=replicas.dense_copies[..., None]
    )
    if expert.any():
        found += exchanges(
            expert,
            size,
            states,
            shards=replicas.expert_shards[..., None],
            copies=replicas.expert_copies[..., None],
            expert=True,
        )
    return found


def updated_parameters(layers: Chain, states: StateSharding, replicas: Replicas) -> FloatArray:
    """Return how many parameters of each kind of layer one device updates, or its host for it; ``(..., K)``.

    All that it holds where every replica updates them, its shard where optimizer states are shared.
    """
    dense, expert = parameters_of(layers)
    shared = states.shares_optimizer
    by_dense = replicas.dense_shards if shared else np.ones_like(replicas.dense_shards)
    by_expert = replicas.expert_shards if shared else np.ones_like(replicas.expert_shards)
    total: FloatArray = dense / by_dense[..., None] + expert / by_expert[..., None]
    return total


def policy_of(layer: Layer, policy: Recompute) -> Recompute:
    """Return what ``layer`` does on a stage that recomputes by ``policy``.

    The first and the last layer (which nothing enters or leaves) always keep everything, as frameworks recompute
    blocks only; and what has nothing to recompute selectively keeps everything under the selective policy.
    """
    if not (layer.input_bytes and layer.output_bytes):
        return Recompute.NONE
    if policy is Recompute.SELECTIVE and layer.selective_stash_bytes is None:
        return Recompute.NONE
    return policy


def parameters_of(layers: Chain) -> tuple[FloatArray, FloatArray]:
    """Return the parameters of each kind of layer, ``(K,)``: those outside routed experts, and the experts'."""
    expert = np.array([layer.expert_parameters for layer, _ in layers], dtype=np.float64)
    return np.array([layer.parameters for layer, _ in layers], dtype=np.float64) - expert, expert


def _by_policy(layers: Sequence[Layer]) -> tuple[FloatArray, FloatArray]:
    """Return what is kept of a microbatch and what a replay brings back, ``(P, K)`` each."""
    kept = np.array([[_kept_bytes(layer, policy_of(layer, policy)) for layer in layers] for policy in POLICIES], float)
    return kept, kept[POLICIES.index(Recompute.NONE)] - kept


def _kept_bytes(layer: Layer, policy: Recompute) -> int:
    selective = layer.stash_bytes if layer.selective_stash_bytes is None else layer.selective_stash_bytes
    if policy is Recompute.FULL:
        # the input is part of every stash, but may be counted with the layer before
        return min(layer.input_bytes, selective)
    return selective if policy is Recompute.SELECTIVE else layer.stash_bytes


def _with_neighbour(bytes_of_kind: FloatArray, counts: Sequence[int]) -> FloatArray:
    """Return the bytes of the layer at work and of the one beside it that is on its way, ``(..., K)``.

    The one beside is of the same kind where that repeats. Else it is the larger neighbour, but no larger than the layer
    itself: when a larger one is at work, that one's own sum counts both. So the maximum over the layers of a stage is
    that over its pairs, except where a stage holds only one of such a pair, which counts too much.
    """
    beside = np.zeros_like(bytes_of_kind)
    beside[..., 1:] = bytes_of_kind[..., :-1]
    beside[..., :-1] = np.maximum(beside[..., :-1], bytes_of_kind[..., 1:])
    repeats = np.array([count > 1 for count in counts])
    total: FloatArray = bytes_of_kind + np.where(repeats, bytes_of_kind, np.minimum(beside, bytes_of_kind))
    return total
