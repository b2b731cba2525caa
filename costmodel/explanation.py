"""Why one operator takes the seconds that it takes: rate, quantisation, traffic, reuse and overlap by name."""

from typing import NamedTuple

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.costmodel.operators import ELEMENT_BYTES, Pricer
from archplace.workloads.operators import Operator, Unit


class Explanation(NamedTuple):
    """The seconds of one compute operator on all units, shape ``(n_archs,)`` each unless said otherwise.

    ``array_s`` is the sum of the four parts before it. The total is what the parts of :class:`Parts` make together:
    arrays or local port, then filling and waiting; lanes, global port and HBM beside; launch and first load before.
    """

    macs_s: FloatArray
    """The multiply-accumulates at the arrays' full rate, on all of them: peak FLOP/s."""
    tile_quantisation_s: FloatArray
    """Padding: what tiles of arrays and blocks have beyond the product."""
    wave_quantisation_s: FloatArray
    """Units that have no share or a smaller one, as in the last wave of tiles, while others compute."""
    throttling_s: FloatArray
    """What the arrays lose because they do not sustain their full rate."""
    array_s: FloatArray
    local_port_s: FloatArray
    fill_s: FloatArray
    """Filling and draining of the arrays, and their wait for results to leave."""
    turns_s: FloatArray
    """Work of the lanes that the arrays wait for."""
    lanes_s: FloatArray
    global_port_s: FloatArray
    hbm_s: FloatArray
    first_load_s: FloatArray
    launch_s: FloatArray
    total_s: FloatArray
    hidden_s: FloatArray
    """What overlaps: the seconds of arrays, lanes, ports and HBM, less those that the total has for them."""
    hbm_bytes: FloatArray
    compulsory_bytes: float
    """Each operand and result once."""
    operand_bytes: float
    """What the arrays would fetch if each multiply-accumulate fetched both of its operands."""

    @property
    def hbm_passes(self) -> FloatArray:
        """How often a byte crosses the HBM's pins on average, at least 1; less than 1 where nothing is compulsory."""
        return self.hbm_bytes / max(self.compulsory_bytes, 1.0)

    @property
    def reuse(self) -> FloatArray:
        """How often chip and arrays use an operand for each time that it comes from HBM; 0 without products."""
        return self.operand_bytes / np.maximum(self.hbm_bytes, 1.0)


def explain(pricer: Pricer, operator: Operator) -> Explanation:
    """Return why ``operator``, of any unit but the network, takes its seconds on every architecture of ``pricer``.

    Raises ``ValueError`` for a network operator: its seconds are those of its collective.
    """
    if operator.unit is Unit.NETWORK:
        raise ValueError(f"{operator.name} runs on the network; ask the network's prices about its collective")
    archs, count = pricer.architectures, len(pricer.architectures)
    parts, done = pricer.parts(operator, one_unit=False), pricer.activity(operator)

    def whole(seconds: FloatArray | float) -> FloatArray:
        return np.broadcast_to(np.asarray(seconds, dtype=np.float64), (count,))

    macs_s = balanced_s = unthrottled_s = np.zeros(count)
    if operator.unit is not Unit.VECTOR:
        elements = archs.tensor_count * archs.tensor_rows * archs.tensor_cols
        macs_s = done.macs / (elements * archs.tensor_macs_per_element[operator.precision] * archs.clock_hz)
        balanced_s, unthrottled_s = pricer.array_s(operator)
    total_s = whole(parts.total_s)
    work_s = parts.array_s + parts.local_port_s + parts.lanes_s + parts.global_port_s + parts.hbm_s
    alone_s = parts.fill_s + parts.turns_s + parts.first_load_s + parts.launch_s
    return Explanation(
        macs_s=whole(macs_s),
        tile_quantisation_s=whole(balanced_s - macs_s),
        wave_quantisation_s=whole(unthrottled_s - balanced_s),
        throttling_s=whole(parts.array_s - unthrottled_s),
        array_s=whole(parts.array_s),
        local_port_s=whole(parts.local_port_s),
        fill_s=whole(parts.fill_s),
        turns_s=whole(parts.turns_s),
        lanes_s=whole(parts.lanes_s),
        global_port_s=whole(parts.global_port_s),
        hbm_s=whole(parts.hbm_s),
        first_load_s=whole(parts.first_load_s),
        launch_s=whole(parts.launch_s),
        total_s=total_s,
        hidden_s=whole(np.maximum(work_s + alone_s - total_s, 0.0)),
        hbm_bytes=whole(done.hbm_bytes),
        compulsory_bytes=_compulsory_bytes(operator),
        operand_bytes=2.0 * done.macs * ELEMENT_BYTES[operator.precision],
    )


def _compulsory_bytes(operator: Operator) -> float:
    work, size = operator.vector, ELEMENT_BYTES[operator.precision]
    outside = float(work.read_bytes) if work is not None else 0.0
    if operator.gemm is None:
        assert work is not None
        return outside + work.write_bytes
    gemm = operator.gemm
    a, b = (1 if shared else gemm.batch for shared in (gemm.a_shared, gemm.b_shared))
    operands = (a * gemm.m * gemm.k + b * gemm.k * gemm.n) * size
    results = float(work.write_bytes) if work is not None else gemm.batch * gemm.m * gemm.n * size
    return outside + operands + results
