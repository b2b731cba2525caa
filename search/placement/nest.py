"""NEST's prices of a pipeline stage.

Source: the cost formulas of NEST (arXiv 2603.06798, MLSys 2026) as its placement solver evaluates them; its optional
ZeRO, which is free there, is left out. What differs from PHAZE's:

- The devices of a replica are consecutive, the last stage's first: with ``a`` devices a stage, the stage at position
  ``k`` has the devices ``(k - 1)·a … k·a - 1``, so that its transfers pass the network's level at which ``k·a`` and
  ``(k - 1)·a``, or ``(k - 1)·a`` and ``(k - 2)·a``, meet. Loads therefore depend on the position.
- A transfer of ``e`` bytes takes ``e/B + L`` within the innermost level and ``2·(e/B + L)`` over a higher one, ``B``
  being the least bandwidth up to that level. Transfers go on while the stage computes: a layer starts when the one
  before it has ended and its bytes from other stages are there.
- Gradients are exchanged by halving and doubling over the replicas' first devices, then once up and down every level
  above: see :func:`exchange_coefficients`.
- Adam keeps six times the parameters' bytes beside weights and gradients.
"""

from functools import cache

import numpy as np

from archplace.search.placement._intervals import interval_sums, transfer_bytes
from archplace.search.placement.instances import LayerChain, NestInstance, NetworkLevel, Optimizer
from archplace.search.placement.prices import FloatArray, IntArray, StagePrices

_BYTES_PER_PARAMETER_BYTE = {Optimizer.SGD: 2.0, Optimizer.ADAM: 8.0}
"""Weights and gradients, and with Adam two moments and a copy in twice the precision each."""


def meeting_level(levels: tuple[NetworkLevel, ...], first: int, second: int) -> int:
    """Return the innermost level at which two devices are in one group; the top level for any beyond the network."""
    for index, level in enumerate(levels[:-1]):
        first, second = first // level.fan_out, second // level.fan_out
        if first == second:
            return index
    return len(levels) - 1


def _transfer_s(levels: tuple[NetworkLevel, ...], sizes: FloatArray) -> FloatArray:
    """Return the seconds that transfers of ``sizes`` bytes take over each level, ``(n_levels, *sizes.shape)``.

    No transfer is ``-inf`` bytes and ``-inf`` seconds: whatever waits for it starts at once. One of 0 bytes takes the
    latency.
    """
    bandwidth = np.minimum.accumulate([level.bandwidth_bytes_per_s for level in levels])
    seconds = [
        (1.0 if index == 0 else 2.0) * (sizes / bandwidth[index] + level.latency_s)
        for index, level in enumerate(levels)
    ]
    return np.array(seconds)


def _passes_s(chain: LayerChain, levels: tuple[NetworkLevel, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the seconds of the forward and of the backward pass: ``(n_levels, n + 1, n + 1)``, ``[…, start, end]``.

    By the level that the transfers into the stage (forward) and back into it (backward) pass.
    """
    n = chain.n_layers
    between = np.full((n, n), -np.inf)
    np.maximum.at(between, (chain.edge_sources, chain.edge_targets), chain.edge_bytes)
    # Of what enters a layer from before `start`, and of what leaves one for `end` or behind, the largest arrives last.
    entering = np.full((n + 1, n), -np.inf)
    np.maximum.accumulate(between, axis=0, out=entering[1:])
    leaving = np.full((n, n + 1), -np.inf)
    leaving[:, :n] = np.maximum.accumulate(between[:, ::-1], axis=1)[:, ::-1]
    arrives_s, returns_s = _transfer_s(levels, entering), _transfer_s(levels, leaving)
    forward_s, backward_s = np.zeros((2, len(levels), n + 1, n + 1))
    for layer in range(n):
        start = np.s_[: layer + 1]
        ready_s = np.maximum(forward_s[:, start, layer], arrives_s[:, start, layer])
        forward_s[:, start, layer + 1] = ready_s + chain.forward_s[layer]
    for layer in reversed(range(n)):
        end = np.s_[layer + 1 :]
        ready_s = np.maximum(backward_s[:, layer + 1, end], returns_s[:, layer, end])
        backward_s[:, layer, end] = ready_s + chain.backward_s[layer]
    return forward_s, backward_s


def exchange_coefficients(
    levels: tuple[NetworkLevel, ...], replicas: IntArray, pipeline_devices: int
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds, and the seconds per byte, in which replicas exchange their gradients, each ``(n_replicas,)``.

    ``pipeline_devices`` lie between the first devices of two replicas. With ``L``, ``B`` of a level and ``P`` bytes::

        low = 0;  total = Σ over i < floor(log2 replicas) of (L0 + P/2^i/B0)
        per level l = 1 … the one at which all replicas meet:  total += 2·(L + P/B) + low;  low += total

    so that lower levels are counted more than once. Both results grow with the replicas.
    """
    doublings = np.frexp(replicas.astype(np.float64))[1] - 1
    reach = np.cumprod([float(level.fan_out) for level in levels[:-1]])
    tops = reach.searchsorted((replicas - 1) * pipeline_devices, side="right")
    # Seconds and seconds per byte, the latter `1/B0 + 1/(2·B0) + …`.
    total = np.array(
        [
            doublings * levels[0].latency_s,
            (2.0 - 2.0 ** (1.0 - doublings)) / levels[0].bandwidth_bytes_per_s,
        ]
    )
    low = np.zeros_like(total)
    for index, level in enumerate(levels[1:], start=1):
        up_and_down = np.array([[2.0 * level.latency_s], [2.0 / level.bandwidth_bytes_per_s]])
        total = np.where(tops >= index, total + up_and_down + low, total)
        low = low + total
    return total[0], total[1]


def nest_prices(instance: NestInstance, tensor_parallel: int) -> StagePrices:
    """Return the prices of ``instance``'s chain at one tensor-parallel width."""
    chain, levels = instance.chains[tensor_parallel], instance.levels
    n, a = chain.n_layers, instance.stage_devices(tensor_parallel)
    forward_s, backward_s = _passes_s(chain, levels)
    repeated_layer_s = chain.backward_s if instance.recomputed_forward_as_backward else chain.forward_s
    repeating_s = interval_sums(repeated_layer_s + chain.backward_s)
    first_bytes = np.concatenate(([0.0], np.cumsum(chain.parameter_bytes)))
    held_bytes = _BYTES_PER_PARAMETER_BYTE[instance.optimizer] * chain.parameter_bytes + chain.activation_bytes
    layer_s = chain.forward_s + chain.backward_s

    @cache
    def load_s(level_in: int, level_out: int, *, repeats: bool) -> FloatArray:
        # The bytes that come back for the backward pass travel while the forward pass is repeated.
        back = np.maximum(repeating_s, backward_s[level_out]) if repeats else backward_s[level_out]
        load: FloatArray = forward_s[level_in] + back
        return load

    def position_s(position: int) -> FloatArray:
        into, own, out = position * a, (position - 1) * a, max(position - 2, 0) * a
        repeats = instance.recompute and position > 1
        return load_s(meeting_level(levels, into, own), meeting_level(levels, own, out), repeats=repeats)

    def synchronisation_s(replicas: IntArray, pipeline_devices: int, first_ends: IntArray) -> FloatArray:
        seconds, seconds_per_byte = exchange_coefficients(levels, replicas, pipeline_devices)
        exchange_s: FloatArray = seconds[:, None] + seconds_per_byte[:, None] * first_bytes[first_ends]
        return exchange_s

    return StagePrices(
        tensor_parallel=tensor_parallel,
        load_s=tuple(position_s(position) for position in range(1, max(min(n, instance.max_devices // a), 1) + 1)),
        base_bytes=interval_sums(held_bytes),
        in_flight_bytes=transfer_bytes(chain)[0] if instance.recompute else interval_sums(chain.activation_bytes),
        devices=np.broadcast_to(np.int64(a), (n + 1, n + 1)),
        synchronisation_s=synchronisation_s,
        layer_floor_s=(layer_s, layer_s + repeated_layer_s if instance.recompute else layer_s),
    )
