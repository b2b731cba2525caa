"""Which tensors of a layer lie in the memory of another, and how many bytes wait for the backward pass."""

from collections import defaultdict

from archplace.workloads.traced.flow import Flow
from archplace.workloads.traced.tensor_graph import TensorLayer, TensorOpKind, TensorRole


def roots(layer: TensorLayer) -> tuple[int, ...]:
    """Return for each tensor the one in whose memory it lies: its own number, unless it is a view."""
    found = list(range(len(layer.tensors)))
    for op in layer.operators:
        if op.kind is TensorOpKind.VIEW and len(op.reads) == 1:
            for access in op.writes:
                found[access.tensor] = found[op.reads[0].tensor]
    return tuple(found)


def kept_bytes(layer: TensorLayer, flow: Flow) -> dict[int, float]:
    """Return the bytes that one device keeps between the passes, by the tensor in whose memory they lie.

    Views of one tensor count together, up to all of it. Parameters and constants are there anyway; what enters and
    leaves unchanged is kept once for all layers that it passes.
    """
    root = roots(layer)
    passing = set(layer.enters) & set(layer.leaves)
    kept: dict[int, float] = defaultdict(float)
    for t in flow.kept:
        if layer.tensors[root[t]].role is TensorRole.ACTIVATION and root[t] not in passing:
            kept[root[t]] += layer.tensors[t].bytes
    return {t: min(size, layer.tensors[t].bytes) for t, size in kept.items()}
