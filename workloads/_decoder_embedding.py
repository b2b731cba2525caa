"""Between the encoder's last block and the decoder's first, on one device: the encoder's final norm, and the embedding
of the target sequence.

The tables are the encoder's; a stage that does not have them keeps a copy, which counts here. The normed output of the
encoder goes along with the activation through all decoder blocks.
"""

from archplace.workloads._embedding import embed, embed_gradients, relative_table, relative_table_gradient
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._residual import norm, norm_gradient
from archplace.workloads._shard import Shard
from archplace.workloads.operators import Phase

TARGET = "target_"
"""Stands before the names of the embedding's operators."""


def decoder_embedding_forward(encoder: Shard, decoder: Shard) -> Graph:
    """The operators on the encoder's output and on the target's token numbers, each after its inputs."""
    graph = Graph(encoder, Phase.FORWARD)
    norm(graph, encoder, "encoder_norm", OUTSIDE, stash_bytes=encoder.boundary_bytes)
    relative_table(graph, decoder, prefix=TARGET)
    embed(graph, decoder, prefix=TARGET)
    return graph


def decoder_embedding_backward(encoder: Shard, decoder: Shard) -> Graph:
    """The operators on the gradients of the first decoder block's input and of the encoder's normed output."""
    graph = Graph(encoder, Phase.DATA_GRADIENT)
    embed_gradients(graph, decoder, OUTSIDE, prefix=TARGET)
    relative_table_gradient(graph, decoder, prefix=TARGET)
    norm_gradient(graph, encoder, "encoder_norm", OUTSIDE)
    return graph
