"""The operator graphs of an image's embedding on one device: a linear map of each patch, class token, positions.

The map is cut by columns and gathered; the class token and the position table are whole on each device. Pixels need no
gradient. Dosovitskiy et al. 2021 (arXiv:2010.11929), equation 1.
"""

from archplace.workloads import _vector
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._shard import Shard
from archplace.workloads.model import Positions
from archplace.workloads.model_parts import Patches
from archplace.workloads.operators import CollectiveKind, Gemm, Phase, VectorWork
from archplace.workloads.precision import MASK_BYTES


def patches_forward(shard: Shard) -> Graph:
    """The operators from pixels to the first block's input, each after its inputs."""
    model, e, d, patches = shard.model, shard.element_bytes, shard.model.d_model, _patches(shard)
    graph = Graph(shard, Phase.FORWARD)
    rows = shard.microbatch * patches.count
    columns = graph.product(
        "patches",
        Gemm(m=rows, n=shard.d_width, k=patches.pixels),
        parameters=(patches.pixels + 1) * shard.d_width,
        stash_bytes=rows * patches.pixels * e,
    )
    embedded = graph.collective("patches.all_gather", rows * d * e, columns, kind=CollectiveKind.ALL_GATHER)
    mask_bytes = shard.tokens * d * MASK_BYTES if model.embedding_dropout else 0
    tables = int(model.positions is Positions.LEARNED)
    work = VectorWork(
        rows=shard.tokens,
        row_length=d,
        operations_per_element=1 + tables + (_vector.DROPOUT if mask_bytes else 0),
        read_bytes=(rows + 1 + tables * patches.tokens) * d * e,
        write_bytes=shard.hidden_bytes + mask_bytes,
    )
    embedded = graph.vector(
        "embedding_sum",
        work,
        embedded,
        parameters=(1 + model.position_rows) * d,
        stash_bytes=0 if model.embedding_norm else mask_bytes,
    )
    if model.embedding_norm:
        graph.vector(
            "embedding_norm",
            _vector.norm(model.norm, shard.tokens, d, e),
            embedded,
            parameters=model.norm_parameters,
            stash_bytes=shard.hidden_bytes + mask_bytes,
        )
    return graph


def patches_backward(shard: Shard) -> Graph:
    """The operators that turn the gradient of the first block's input into those of tables and map."""
    model, e, d, patches = shard.model, shard.element_bytes, shard.model.d_model, _patches(shard)
    graph = Graph(shard, Phase.DATA_GRADIENT)
    gradient = OUTSIDE
    if model.embedding_norm:
        gradient = graph.vector("embedding_norm.gradient", _vector.norm_gradient(model.norm, shard.tokens, d, e))
    if model.embedding_dropout:
        work = _vector.dropout_gradient(shard.tokens, d, e)
        gradient = graph.vector("embedding_sum.dropout.gradient", work, gradient)
    table_bytes = (1 + model.position_rows) * d * e
    work = VectorWork(
        rows=shard.tokens,
        row_length=d,
        operations_per_element=1,
        read_bytes=shard.hidden_bytes + table_bytes,
        write_bytes=table_bytes,
    )
    graph.vector("embedding_sum.weight_gradient", work, gradient, phase=Phase.WEIGHT_GRADIENT)
    weight = Gemm(m=patches.pixels, n=shard.d_width, k=shard.microbatch * patches.count)
    graph.product("patches.weight_gradient", weight, gradient, phase=Phase.WEIGHT_GRADIENT)
    return graph


def _patches(shard: Shard) -> Patches:
    patches = shard.model.patches
    assert patches is not None
    return patches
