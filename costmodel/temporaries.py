"""Bytes of tensors that live only while one layer's forward or backward pass runs.

Found by walking an operator graph in its order: an operator's result lives from its start to the end of the last
operator that waits for it. Vector work and reductions write over an input that nobody needs any more; matrix products
and collectives that change a tensor's size cannot. A result that is kept for the backward pass counts there, from its
operator on; gradients of weights have buffers of their own.
"""

from collections.abc import Sequence

from archplace.costmodel.operators import ELEMENT_BYTES
from archplace.workloads.operators import Collective, CollectiveKind, Operator, Phase, Unit
from archplace.workloads.training_step import Layer

_RESULT_BYTES = {precision: max(2, round(size)) for precision, size in ELEMENT_BYTES.items()}
"""Bytes of one element of a product's result: products of narrower operands leave in 16 bits (Micikevicius et al. 2022,
arXiv:2209.05433)."""


def temporary_bytes(layer: Layer) -> int:
    """Return the most bytes that either pass of ``layer`` needs beyond the whole stash.

    The backward pass holds the gradient of the layer's output and the stash until it has ended. 0 for a layer without
    operators.
    """
    stash = sum(operator.stash_bytes for operator in layer.forward)
    forward = _peak_bytes(layer.forward) - stash
    backward = layer.output_bytes + _peak_bytes(layer.backward) if layer.backward else 0
    return max(0, forward, backward)


def _peak_bytes(operators: Sequence[Operator]) -> int:
    """Return the most bytes of results and stashes that live at once."""
    last_reader: dict[str, int] = {}
    for place, operator in enumerate(operators):
        last_reader.update(dict.fromkeys(operator.inputs, place))
    live: dict[str, int] = {}
    kept = peak = 0
    for place, operator in enumerate(operators):
        result = max(0, _result_bytes(operator) - operator.stash_bytes)
        ended = sum(live.pop(name) for name in dict.fromkeys(operator.inputs) if last_reader[name] == place)
        kept += operator.stash_bytes
        others = sum(live.values()) + kept
        peak = max(peak, others + (max(ended, result) if _in_place(operator) else ended + result))
        live[operator.name] = result
    return peak


def _in_place(operator: Operator) -> bool:
    collective = operator.collective
    if collective is not None:
        return collective.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.BROADCAST)
    return operator.unit is Unit.VECTOR


def _result_bytes(operator: Operator) -> int:
    """Return the bytes that an operator writes for others to read."""
    if operator.collective is not None:
        return _received_bytes(operator.collective)
    if operator.phase is Phase.WEIGHT_GRADIENT:
        return 0
    if operator.vector is not None:
        return operator.vector.write_bytes
    assert operator.gemm is not None, operator.name
    gemm = operator.gemm
    return gemm.batch * gemm.m * gemm.n * _RESULT_BYTES[operator.precision]


def _received_bytes(collective: Collective) -> int:
    if collective.kind is CollectiveKind.REDUCE_SCATTER:
        return collective.payload_bytes // collective.group_size
    return collective.payload_bytes
