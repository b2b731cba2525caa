"""PHAZE's prices of a pipeline stage.

Source: the cost formulas of PHAZE ("Integrated Hardware Architecture and Device Placement Search", ICML 2024) as its
placement solver evaluates them: one flat network bandwidth, no overlap of a stage's transfers with its computation,
1F1B memory, and a gradient synchronisation that charges the first stage only.
"""

import numpy as np

from archplace.search.placement._intervals import interval_sums, transfer_bytes
from archplace.search.placement.instances import Optimizer, PlacementInstance
from archplace.search.placement.prices import FloatArray, IntArray, StagePrices

_BYTES_PER_PARAMETER_BYTE = {Optimizer.SGD: 2.0, Optimizer.ADAM: 3.0}
"""Weights and gradients, and with Adam one more copy (as PHAZE counts it: physically there are two moments)."""


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
    entering, leaving = transfer_bytes(chain)
    receive_s, send_s = entering / bandwidth, leaving / bandwidth
    layer_s = chain.forward_s + chain.backward_s
    computing_s = interval_sums(layer_s) + receive_s
    last_s = computing_s + send_s
    activation_bytes = chain.activation_bytes
    if instance.recompute:
        forward_s = interval_sums(chain.forward_s)
        load_s: tuple[FloatArray, ...] = (last_s, computing_s + np.maximum(forward_s, send_s))
        floors = (layer_s, layer_s + chain.forward_s)
        in_flight_bytes = entering
    else:
        load_s = (last_s,)
        floors = (layer_s, layer_s)
        in_flight_bytes = interval_sums(activation_bytes)
    widths = np.where(chain.tensor_parallel, float(tensor_parallel), 1.0)
    if bool(np.all(widths == widths[0])):
        devices = np.broadcast_to(np.int64(widths[0]), entering.shape)
    else:
        is_wide = interval_sums(chain.tensor_parallel.astype(np.float64)) > 0
        devices = np.where(is_wide, tensor_parallel, 1).astype(np.int64)
    exchange_s = np.concatenate(([0.0], np.cumsum(chain.parameter_bytes))) / bandwidth

    def synchronisation_s(replicas: IntArray, pipeline_devices: int, first_ends: IntArray) -> FloatArray:  # noqa: ARG001
        rounds: FloatArray = 4.0 * (replicas - 1) / replicas
        seconds: FloatArray = rounds[:, None] * exchange_s[first_ends]
        return seconds

    return StagePrices(
        tensor_parallel=tensor_parallel,
        load_s=load_s,
        base_bytes=interval_sums(
            _BYTES_PER_PARAMETER_BYTE[instance.optimizer] * chain.parameter_bytes + activation_bytes
        ),
        in_flight_bytes=in_flight_bytes,
        devices=devices,
        synchronisation_s=synchronisation_s,
        synchronisation_by_devices=False,
        layer_floor_s=floors,
    )
