"""The loss of predictions whose logits a tensor-parallel group shares, on one device.

The logits stay where they are: softmax and loss exchange three fp32 scalars per prediction, the maximum, the target's
logit and the sum of exponentials (Shoeybi et al. 2019, arXiv:1909.08053, section 3). What the loss keeps is the fp32
softmax (Korthikanti et al. 2022, arXiv:2205.05198, section 4.3).
"""

from archplace.workloads import _vector
from archplace.workloads._graph import Graph
from archplace.workloads._shard import Shard
from archplace.workloads.operators import VectorWork
from archplace.workloads.precision import FP32_BYTES


def loss_forward(graph: Graph, shard: Shard, logits: str, *, tokens: int, answers: int, prefix: str = "") -> None:
    """Add the loss of ``tokens`` predictions, of whose logits this device has ``answers`` each."""
    e, rows = shard.element_bytes, answers
    kept = tokens * rows * FP32_BYTES
    if shard.tensor_parallel == 1:
        graph.vector(f"{prefix}loss", _vector.cross_entropy(tokens, rows, e), logits, stash_bytes=kept)
        return
    scalars = tokens * FP32_BYTES
    maximum = VectorWork(
        rows=tokens,
        row_length=rows,
        operations_per_element=1,
        reductions=1,
        read_bytes=tokens * rows * e,
        write_bytes=scalars,
    )
    exponentials = VectorWork(
        rows=tokens,
        row_length=rows,
        operations_per_element=_vector.EXPONENTIAL + 1,
        reductions=1,
        read_bytes=tokens * rows * e + scalars,
        write_bytes=kept + 2 * scalars,
    )
    softmax = VectorWork(
        rows=tokens,
        row_length=rows,
        operations_per_element=1,
        read_bytes=kept + 2 * scalars,
        write_bytes=kept,
    )
    largest = graph.vector(f"{prefix}loss_maximum", maximum, logits)
    largest = graph.collective(f"{prefix}loss_maximum.all_reduce", scalars, largest)
    parts = graph.vector(f"{prefix}loss_exponentials", exponentials, largest)
    target = graph.collective(f"{prefix}loss_target.all_reduce", scalars, parts)
    total = graph.collective(f"{prefix}loss_exponentials.all_reduce", scalars, parts)
    graph.vector(f"{prefix}loss_softmax", softmax, target, total, stash_bytes=kept)
