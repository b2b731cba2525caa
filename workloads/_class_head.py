"""The operator graphs of an image classifier's head on one device: final norm, projection of the class token, loss.

The projection is cut by classes. The norm sees all tokens, as the published code has it, and their gradients but the
class token's are zeros. Dosovitskiy et al. 2021 (arXiv:2010.11929), section 3.1.
"""

from archplace.workloads import _vector
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._loss import loss_forward
from archplace.workloads._residual import norm, norm_gradient
from archplace.workloads._shard import Shard
from archplace.workloads.operators import Gemm, Phase


def class_head_forward(shard: Shard) -> Graph:
    """The operators from the last block's output to the loss, each after its inputs."""
    graph = Graph(shard, Phase.FORWARD)
    images, classes, d = shard.microbatch, _classes(shard), shard.model.d_model
    hidden = norm(graph, shard, "final_norm", OUTSIDE, stash_bytes=2 * shard.hidden_bytes)
    logits = graph.product(
        "logits",
        Gemm(m=images, n=classes, k=d),
        hidden,
        parameters=(d + (1 if shard.model.head_bias else 0)) * classes,
    )
    loss_forward(graph, shard, logits, tokens=images, answers=classes)
    return graph


def class_head_backward(shard: Shard) -> Graph:
    """The operators from the loss to the gradient of the last block's output, which the last one gives."""
    graph = Graph(shard, Phase.DATA_GRADIENT)
    images, classes, d, e = shard.microbatch, _classes(shard), shard.model.d_model, shard.element_bytes
    gradient = graph.vector("loss.gradient", _vector.cross_entropy_gradient(images, classes, e))
    gradient = graph.linear_gradients("logits", gradient, k=d, n=classes, rows=images)
    gradient = graph.collective("logits.gradient_all_reduce", images * d * e, gradient)
    norm_gradient(graph, shard, "final_norm", gradient)
    return graph


def _classes(shard: Shard) -> int:
    """Classes whose logits this device has."""
    return shard.model.classes // shard.tensor_parallel
