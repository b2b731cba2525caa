"""The distinct layers of a transformer with their operator graphs, as one device executes them."""

from archplace.workloads._block import block_backward, block_forward
from archplace.workloads._class_head import class_head_backward, class_head_forward
from archplace.workloads._decoder_embedding import decoder_embedding_backward, decoder_embedding_forward
from archplace.workloads._embedding import embedding_backward, embedding_forward
from archplace.workloads._experts import expert_parameters
from archplace.workloads._graph import Graph
from archplace.workloads._head import head_backward, head_forward
from archplace.workloads._patches import patches_backward, patches_forward
from archplace.workloads._shard import Shard
from archplace.workloads.model_parts import Block
from archplace.workloads.training_step import Layer


def build_layers(shard: Shard) -> tuple[tuple[Layer, int], ...]:
    """Return the layers in model order, each with how many times it repeats in a row.

    An embedding, the model's kinds of blocks, a head. Between encoder and decoder blocks stands the decoder's embedding
    with the encoder's final norm; modules for further tokens stand before the head, each as a layer of its own, because
    one more activation leaves each of them.

    A layer's parameters are those that a device holds. Norms, position tables and biases behind an exchange are whole
    on every device. A tied matrix counts in the embedding and again in the head, because a pipeline keeps it on its
    first and on its last stage; so does the token table of a decoder and of a module for further tokens. Between layers
    each device holds the activation of all tokens of its tensor-parallel group, or with sequence parallelism that of
    its share.

    Raises ``ValueError`` when the model cannot be cut as ``shard`` asks; ``shard.refusal()`` says so beforehand.
    """
    refusal = shard.refusal()
    if refusal is not None:
        raise ValueError(refusal)
    hidden = shard.boundary_bytes
    images = shard.model.patches is not None
    embedding = _layer(
        "embedding",
        (patches_forward if images else embedding_forward)(shard),
        (patches_backward if images else embedding_backward)(shard),
        input_bytes=0,
        output_bytes=hidden,
    )
    layers = [(embedding, 1)]
    last = shard
    for block in shard.model.blocks:
        if block.cross_attention:
            last = shard.target
            layers += _decoder_layers(shard, last, block)
        elif block.prediction:
            layers += [(_block_layer(shard, block, module), 1) for module in range(1, block.count + 1)]
        else:
            layers.append((_block_layer(shard, block, 0), block.count))
    head = _layer(
        "head",
        (class_head_forward if images else head_forward)(last),
        (class_head_backward if images else head_backward)(last),
        input_bytes=last.boundary_bytes * (1 + shard.model.multi_token_prediction),
        output_bytes=0,
    )
    return (*layers, (head, 1))


def _block_layer(shard: Shard, block: Block, module: int) -> Layer:
    """A block; ``module`` counts those that predict a further token, and is 0 for all others."""
    hidden = shard.boundary_bytes
    before = max(module, 1)  # activations that the head reads pass on, the last one is read
    return _layer(
        block.name if block.count == 1 or not module else f"{block.name}_{module}",
        block_forward(shard, block),
        block_backward(shard, block),
        expert_parameters=expert_parameters(shard) if block.has_experts else 0,
        input_bytes=before * hidden,
        output_bytes=(module + 1) * hidden,
        carried_bytes=(before - 1) * hidden,
    )


def _decoder_layers(encoder: Shard, decoder: Shard, block: Block) -> list[tuple[Layer, int]]:
    """The decoder's embedding and its blocks, beside which the encoder's output passes."""
    encoded, both = encoder.boundary_bytes, encoder.boundary_bytes + decoder.boundary_bytes
    embedding = _layer(
        "decoder_embedding",
        decoder_embedding_forward(encoder, decoder),
        decoder_embedding_backward(encoder, decoder),
        input_bytes=encoded,
        output_bytes=both,
    )
    repeated = _layer(
        block.name,
        block_forward(decoder, block, encoder),
        block_backward(decoder, block, encoder),
        input_bytes=both,
        output_bytes=both,
        carried_bytes=encoded,
    )
    return [(embedding, 1), (repeated, block.count)]


def _layer(
    name: str,
    forward: Graph,
    backward: Graph,
    *,
    expert_parameters: int = 0,
    input_bytes: int,
    output_bytes: int,
    carried_bytes: int = 0,
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
        carried_bytes=carried_bytes,
    )
