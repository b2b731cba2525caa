"""Seconds that data-parallel replicas spend on exchanging the states of each layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.costmodel import Exchange, Members, Moment, Replicas, StateSharding, chain_exchanges
from archplace.costmodel.network import DeviceOrder, Group, NetworkPricer
from archplace.search.strategy.chain import FloatArray
from archplace.workloads import Axis, CollectiveKind, TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSeconds:
    """Seconds by kind of layer for one layer of it, ``(D, S)`` each for ``D`` numbers of replicas."""

    before_forward_s: FloatArray
    """Per microbatch: parameters are gathered."""
    before_backward_s: FloatArray
    after_backward_s: FloatArray
    """Per microbatch: gradients are reduced and scattered at once."""
    reduction_s: FloatArray
    """Once per step, with the last microbatch."""
    gathering_s: FloatArray
    """Once per step, after the optimizer's update."""


def boundary_s(step: TrainingStep, payload_bytes: float, order: DeviceOrder, network: NetworkPricer) -> float:
    """Return the seconds in which a stage hands an activation of ``payload_bytes`` on every device to the next stage.

    Devices of a tensor-parallel group that do not share the sequence all hold the same: each may send its part of it
    and gather the others' behind the boundary, where links are fast (Narayanan et al. 2021, arXiv:2104.04473, section
    4.1). The faster way is taken.
    """
    stages, sharding = order.group(Axis.PIPELINE), step.sharding
    whole = float(network.transfer_s(payload_bytes, stages))
    if sharding.tensor == 1 or sharding.sequence:
        return whole
    part = float(network.transfer_s(payload_bytes / sharding.tensor, stages))
    gathered = network.seconds(CollectiveKind.ALL_GATHER, payload_bytes, order.group(Axis.TENSOR))
    return min(whole, part + float(gathered))


def inner_and_outer(group: Group, size: int) -> tuple[Group, Group]:
    """Split a group into its first ``size`` members and the groups of equal place among those.

    Raises ``ValueError`` when the levels of the group cannot be divided so.
    """
    inner, outer = [], []
    left = size
    for members, stride in group.levels:
        taken = members if left % members == 0 else left
        if members % taken:
            raise ValueError(
                f"a group of {group.size} devices in levels of {[count for count, _ in group.levels]} cannot be "
                f"divided into parts of {size}: choose a number that fills whole levels"
            )
        inner.append((taken, stride))
        outer.append((members // taken, stride * taken))
        left //= taken
    return Group.of(inner), Group.of(outer)


def exchange_seconds(
    step: TrainingStep,
    states: StateSharding,
    replicas: Replicas,
    orders: Sequence[DeviceOrder],
    network: NetworkPricer,
) -> ExchangeSeconds:
    """Return the seconds for each of ``orders``, one for each entry of ``replicas``."""
    shape = (len(orders), len(step.layers))
    by_moment = {moment: np.zeros(shape) for moment in Moment}
    per_step = np.zeros(shape)
    for exchange in chain_exchanges(step.layers, step.parameter_bytes, states=states, replicas=replicas):
        once = exchange.moment is Moment.AFTER_BACKWARD and not exchange.per_microbatch
        target = per_step if once else by_moment[exchange.moment]
        payload = np.broadcast_to(exchange.payload_bytes, shape)
        for row, order in enumerate(orders):
            if payload[row].any():
                target[row] += network.seconds(
                    exchange.kind, payload[row], exchange_group(exchange, order, replicas, row)
                )
    return ExchangeSeconds(
        before_forward_s=by_moment[Moment.BEFORE_FORWARD],
        before_backward_s=by_moment[Moment.BEFORE_BACKWARD],
        after_backward_s=by_moment[Moment.AFTER_BACKWARD],
        reduction_s=per_step,
        gathering_s=by_moment[Moment.AFTER_UPDATE],
    )


def exchange_group(exchange: Exchange, order: DeviceOrder, replicas: Replicas, row: int) -> Group:
    """Return the devices of one exchange: those that share a copy are the nearest."""
    if exchange.expert:
        group, shards = order.expert_gradient_group, replicas.expert_shards
    else:
        group, shards = order.gradient_group, replicas.dense_shards
    inner, outer = inner_and_outer(group, int(shards[row]))
    return inner if exchange.members is Members.SHARDS else outer
