"""PHAZE's prices of a pipeline stage.

Source: the cost formulas of PHAZE ("Integrated Hardware Architecture and Device Placement Search", ICML 2024) as its
placement solver evaluates them: one flat network bandwidth, no overlap of a stage's transfers with its computation,
1F1B memory, and a gradient synchronisation that charges the first stage only.
"""

import numpy as np

from archplace.search.placement.dp import PlacementResult, place
from archplace.search.placement.instances import LayerChain, Optimizer, PlacementInstance
from archplace.search.placement.prices import FloatArray, IntArray, StagePrices

_BYTES_PER_PARAMETER_BYTE = {Optimizer.SGD: 2.0, Optimizer.ADAM: 3.0}
"""Weights and gradients, and with Adam one more copy (as PHAZE counts it: physically there are two moments)."""


def _sums(*values: FloatArray) -> list[FloatArray]:
    """Return the sums of each of ``values``, ``(n,)``, over all intervals: ``(n + 1, n + 1)``, ``[start, end]``.

    Added up from each start, not as differences of one prefix sum: nothing cancels, and equal runs of layers get equal
    floats wherever they stand, so that ties are ties.
    """
    n = len(values[0])
    from_start = np.tri(n).T.copy()
    result = []
    for each in values:
        sums = np.zeros((n + 1, n + 1))
        np.cumsum(each * from_start, axis=1, out=sums[:n, 1:])
        result.append(sums)
    return result


def transfer_bytes(chain: LayerChain) -> tuple[FloatArray, FloatArray]:
    """Return the bytes on the edges entering and on those leaving each interval, each ``(n + 1, n + 1)``.

    An edge that skips over a whole stage neither enters nor leaves it.
    """
    n = chain.n_layers
    shape = (n + 1, n + 1)
    if bool(np.all(chain.edge_targets == chain.edge_sources + 1)):
        at_cut = np.zeros(n + 1)
        at_cut[chain.edge_targets] = chain.edge_bytes
        return np.broadcast_to(at_cut[:, None], shape), np.broadcast_to(at_cut, shape)
    between = np.zeros((n, n))
    np.add.at(between, (chain.edge_sources, chain.edge_targets), chain.edge_bytes)
    entering, leaving = np.zeros(shape), np.zeros(shape)
    # Sources before `start`, targets from `start` up to `end`.
    before = np.zeros((n + 1, n))
    np.cumsum(between, axis=0, out=before[1:])
    np.cumsum(before * np.tri(n, n + 1).T, axis=1, out=entering[:, 1:])
    # Targets from `end` on, sources from `end - 1` down to `start`.
    after = np.zeros((n, n + 1))
    after[:, :n] = np.cumsum(between[:, ::-1], axis=1)[:, ::-1]
    leaving[:n] = np.cumsum((after * np.tri(n + 1, n, -1).T)[::-1], axis=0)[::-1]
    return entering, leaving


def phaze_prices(instance: PlacementInstance, tensor_parallel: int) -> StagePrices:
    """Return the prices of ``instance``'s chain at one tensor-parallel width.

    With f, b the summed forward and backward latencies, P and A the summed parameter and activation bytes, c_in and
    c_out the bytes on entering and leaving edges, B the bandwidth:

    - load = f + c_in/B + b + c_out/B; with recompute, in all but the last stage, f + c_in/B + max(f, c_out/B) + b;
    - memory at position p = 2P + A + (p - 1)·stash, and P more with Adam; stash = A, or c_in with recompute;
    - devices = the tensor-parallel width if any layer of the stage is tensor parallel, else 1;
    - synchronisation of d replicas = 4·(d - 1)/d · P of the first stage / B.
    """
    chain = instance.chains[tensor_parallel]
    bandwidth = instance.bandwidth_bytes_per_s
    forward_s, backward_s, parameter_bytes, activation_bytes = _sums(
        chain.forward_s, chain.backward_s, chain.parameter_bytes, chain.activation_bytes
    )
    entering, leaving = transfer_bytes(chain)
    receive_s, send_s = entering / bandwidth, leaving / bandwidth
    last_s = forward_s + receive_s + backward_s + send_s
    layer_s = chain.forward_s + chain.backward_s
    if instance.recompute:
        load_s: tuple[FloatArray, ...] = (last_s, forward_s + receive_s + np.maximum(forward_s, send_s) + backward_s)
        floors = (layer_s, layer_s + chain.forward_s)
    else:
        load_s = (last_s,)
        floors = (layer_s, layer_s)
    widths = np.where(chain.tensor_parallel, float(tensor_parallel), 1.0)
    if bool(np.all(widths == widths[0])):
        devices = np.broadcast_to(np.int64(widths[0]), entering.shape)
    else:
        is_wide = _sums(chain.tensor_parallel.astype(np.float64))[0] > 0
        devices = np.where(is_wide, tensor_parallel, 1).astype(np.int64)
    exchange_s = parameter_bytes[0] / bandwidth

    def synchronisation_s(replicas: IntArray, pipeline_devices: int, first_ends: IntArray) -> FloatArray:  # noqa: ARG001
        rounds: FloatArray = 4.0 * (replicas - 1) / replicas
        seconds: FloatArray = rounds[:, None] * exchange_s[first_ends]
        return seconds

    return StagePrices(
        tensor_parallel=tensor_parallel,
        load_s=load_s,
        base_bytes=_BYTES_PER_PARAMETER_BYTE[instance.optimizer] * parameter_bytes + activation_bytes,
        in_flight_bytes=entering if instance.recompute else activation_bytes,
        devices=devices,
        synchronisation_s=synchronisation_s,
        synchronisation_by_devices=False,
        layer_floor_s=floors,
    )


def place_instance(instance: PlacementInstance) -> PlacementResult:
    """Return the optimal placement of ``instance`` over all its tensor-parallel widths."""
    return place(
        [phaze_prices(instance, width) for width in sorted(instance.chains)],
        max_devices=instance.max_devices,
        microbatches=instance.microbatches,
        memory_bytes=instance.memory_bytes,
    )
