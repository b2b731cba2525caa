"""Layers and degrees for the tests of memory."""

import numpy as np

from archplace.costmodel import Replicas
from archplace.workloads import Layer, ParameterBytes

ADAM = ParameterBytes(weight=2, gradient=2, optimizer=12)


def layer(
    name="block", parameters=1000, expert=0, stash=340, selective=100, entering=20, leaving=20, forward=(), backward=()
):
    return Layer(
        name=name,
        forward=forward,
        backward=backward,
        parameters=parameters,
        expert_parameters=expert,
        stash_bytes=stash,
        selective_stash_bytes=selective,
        input_bytes=entering,
        output_bytes=leaving,
    )


def replicas(dense_shards=1, dense_copies=1, expert_shards=1, expert_copies=1):
    return Replicas(
        dense_shards=np.asarray(dense_shards),
        dense_copies=np.asarray(dense_copies),
        expert_shards=np.asarray(expert_shards),
        expert_copies=np.asarray(expert_copies),
    )


def chain(blocks=4, **block):
    """Embedding, blocks and head."""
    return (
        (layer("embedding", parameters=5000, stash=30, selective=None, entering=0, leaving=20), 1),
        (layer(**block), blocks),
        (layer("head", parameters=5100, stash=900, selective=None, entering=20, leaving=0), 1),
    )
