"""The distinct layers of a transformer with their operator graphs, as one device executes them."""

from archplace.workloads._block import block_backward, block_forward
from archplace.workloads._embedding import embedding_backward, embedding_forward
from archplace.workloads._experts import expert_parameters
from archplace.workloads._graph import Graph
from archplace.workloads._head import head_backward, head_forward
from archplace.workloads._shard import Shard
from archplace.workloads.training_step import Layer


def build_layers(shard: Shard) -> tuple[tuple[Layer, int], ...]:
    """Return embedding, the kinds of blocks and head in model order, each with how many times it repeats.

    A layer's parameters are those that a device holds. Norms, position tables and biases behind an exchange are whole
    on every device. A tied matrix counts in the embedding and again in the head, because a pipeline keeps it on its
    first and on its last stage. Between layers each device holds the activation of all tokens of its tensor-parallel
    group, or with sequence parallelism that of its share.

    Raises ``ValueError`` when the model cannot be cut as ``shard`` asks; ``shard.refusal()`` says so beforehand.
    """
    refusal = shard.refusal()
    if refusal is not None:
        raise ValueError(refusal)
    hidden = shard.boundary_bytes
    embedding = _layer(
        "embedding", embedding_forward(shard), embedding_backward(shard), input_bytes=0, output_bytes=hidden
    )
    blocks = tuple(
        (
            _layer(
                block.name,
                block_forward(shard, block),
                block_backward(shard, block),
                expert_parameters=expert_parameters(shard) if block.has_experts else 0,
                input_bytes=hidden,
                output_bytes=hidden,
            ),
            block.count,
        )
        for block in shard.model.blocks
    )
    head = _layer("head", head_forward(shard), head_backward(shard), input_bytes=hidden, output_bytes=0)
    return ((embedding, 1), *blocks, (head, 1))


def _layer(
    name: str, forward: Graph, backward: Graph, *, expert_parameters: int = 0, input_bytes: int, output_bytes: int
) -> Layer:
    stash_bytes = sum(operator.stash_bytes for operator in forward.operators)
    return Layer(
        name=name,
        forward=forward.operators,
        backward=backward.operators,
        parameters=sum(operator.parameters for operator in forward.operators),
        expert_parameters=expert_parameters,
        stash_bytes=stash_bytes,
        selective_stash_bytes=stash_bytes - forward.dropped_bytes if forward.dropped_bytes else None,
        selective_replay=forward.replay if forward.dropped_bytes else (),
        input_bytes=input_bytes,
        output_bytes=output_bytes,
    )
