"""The operator graphs of the embedding on one tensor-parallel device.

The token table is cut by rows of the vocabulary: a device looks up the tokens it holds, leaves zeros for the others,
and an all-reduce completes the sum (Shoeybi et al. 2019, arXiv:1909.08053, section 3), or with sequence parallelism a
reduce-scatter that of its share of the tokens, whose gradients are then gathered. Of evenly spread tokens each device
finds one in ``tensor_parallel``. Position and segment tables are whole on each device. A projection behind a narrower
embedding is cut by columns and gathered. Token numbers are not counted among the bytes. Biases of relative positions
are cut by heads.
"""

from dataclasses import replace

from archplace.workloads import _vector
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._shard import Shard
from archplace.workloads.model import Positions
from archplace.workloads.operators import CollectiveKind, Gemm, Phase, VectorWork
from archplace.workloads.precision import MASK_BYTES


def embedding_forward(shard: Shard) -> Graph:
    """The operators from token numbers to the first block's input, each after its inputs."""
    graph = Graph(shard, Phase.FORWARD)
    relative_table(graph, shard)
    embed(graph, shard)
    return graph


def embedding_backward(shard: Shard) -> Graph:
    """The operators that turn the gradient of the first block's input into those of the tables."""
    graph = Graph(shard, Phase.DATA_GRADIENT)
    embed_gradients(graph, shard, OUTSIDE)
    relative_table_gradient(graph, shard)
    return graph


def relative_table(graph: Graph, shard: Shard, *, prefix: str = "") -> None:
    """Add the biases of all pairs of positions, of the heads on this device, where positions are relative.

    All blocks of a stack read them. In a pipeline every stage looks them up; here they count once.
    """
    if shard.model.relative_buckets:
        parameters = shard.model.relative_table_parameters // shard.tensor_parallel
        graph.vector(f"{prefix}relative_positions", _relative_work(shard), parameters=parameters)


def relative_table_gradient(graph: Graph, shard: Shard, *, prefix: str = "") -> None:
    """Add the gradient of the table of relative positions, from that of all biases."""
    if shard.model.relative_buckets:
        work = _relative_work(shard)
        work = replace(work, read_bytes=work.write_bytes, write_bytes=work.read_bytes)
        graph.vector(f"{prefix}relative_positions.weight_gradient", work, phase=Phase.WEIGHT_GRADIENT)


def embed(graph: Graph, shard: Shard, *, prefix: str = "") -> str:
    """Add what turns token numbers into the activation between layers, and return it.

    ``prefix`` stands before the operators' names.
    """
    model, e = shard.model, shard.element_bytes
    tokens, d, width = shard.tokens, model.d_model, model.embedding_width
    lookup = VectorWork(
        rows=tokens,
        row_length=width,
        operations_per_element=1,
        read_bytes=_found_tokens(shard) * width * e,
        write_bytes=tokens * width * e,
    )
    found = graph.vector(f"{prefix}lookup", lookup, parameters=shard.vocabulary_rows * width)
    if not model.projects_embedding:
        embedded = graph.reduce_rows(f"{prefix}lookup.", shard.hidden_bytes, found)
    else:
        embedded = graph.collective(f"{prefix}lookup.all_reduce", tokens * width * e, found)
        columns = graph.product(
            f"{prefix}project_in",
            Gemm(m=tokens, n=shard.d_width, k=width),
            embedded,
            parameters=width * shard.d_width,
            stash_bytes=tokens * width * e,
        )
        embedded = graph.collective(
            f"{prefix}project_in.all_gather", shard.hidden_bytes, columns, kind=CollectiveKind.ALL_GATHER
        )
    rows = shard.row_tokens  # from here on, each device's share of the tokens
    dropout = model.embedding_dropout > 0
    mask_bytes = rows * d * MASK_BYTES if dropout else 0
    tables = _tables(shard)
    drop_with_sum = dropout and not model.embedding_norm
    if tables or drop_with_sum:
        work = VectorWork(
            rows=rows,
            row_length=d,
            operations_per_element=tables + (_vector.DROPOUT if drop_with_sum else 0),
            read_bytes=shard.boundary_bytes + _table_bytes(shard),
            write_bytes=shard.boundary_bytes + (mask_bytes if drop_with_sum else 0),
        )
        embedded = graph.vector(
            f"{prefix}embedding_sum",
            work,
            embedded,
            parameters=(model.position_rows + model.token_types) * d,
            stash_bytes=mask_bytes if drop_with_sum else 0,
        )
    if model.embedding_norm:
        embedded = graph.vector(
            f"{prefix}embedding_norm",
            _vector.norm(model.norm, rows, d, e, dropout=dropout),
            embedded,
            parameters=model.norm_parameters,
            stash_bytes=shard.boundary_bytes + mask_bytes,
        )
    return embedded


def embed_gradients(graph: Graph, shard: Shard, gradient: str, *, prefix: str = "") -> None:
    """Add what turns the gradient of the embedded tokens into those of the tables."""
    model, e = shard.model, shard.element_bytes
    tokens, rows, d, width = shard.tokens, shard.row_tokens, model.d_model, model.embedding_width
    if model.embedding_norm:
        work = _vector.norm_gradient(model.norm, rows, d, e, dropout=model.embedding_dropout > 0)
        gradient = graph.vector(f"{prefix}embedding_norm.gradient", work, gradient)
    elif model.embedding_dropout:
        gradient = graph.vector(
            f"{prefix}embedding_sum.dropout.gradient", _vector.dropout_gradient(rows, d, e), gradient
        )
    tables = _tables(shard)
    if tables:
        work = VectorWork(
            rows=rows,
            row_length=d,
            operations_per_element=tables,
            read_bytes=shard.boundary_bytes + _table_bytes(shard),
            write_bytes=_table_bytes(shard),
        )
        graph.vector(f"{prefix}embedding_sum.weight_gradient", work, gradient, phase=Phase.WEIGHT_GRADIENT)
    gradient = graph.gather_rows(f"{prefix}embedding.gradient_", shard.hidden_bytes, gradient)
    if model.projects_embedding:
        gradient = graph.linear_gradients(f"{prefix}project_in", gradient, k=width, n=shard.d_width, rows=tokens)
        gradient = graph.collective(f"{prefix}project_in.gradient_all_reduce", tokens * width * e, gradient)
    scatter = _vector.addition(_found_tokens(shard), width, e)
    graph.vector(f"{prefix}lookup.weight_gradient", scatter, gradient, phase=Phase.WEIGHT_GRADIENT)


def _relative_work(shard: Shard) -> VectorWork:
    """One row of biases per head and position on this device."""
    heads, e = shard.model.n_heads // shard.tensor_parallel, shard.element_bytes
    return VectorWork(
        rows=heads * shard.local_length,
        row_length=shard.sequence_length,
        operations_per_element=1,
        read_bytes=shard.model.relative_buckets * heads * e,
        write_bytes=shard.position_bias_bytes,
    )


def _found_tokens(shard: Shard) -> int:
    """Tokens whose rows this device holds, rounded up."""
    return -(-shard.tokens // shard.tensor_parallel)


def _tables(shard: Shard) -> int:
    """How many tables are added to the token embedding."""
    return (shard.model.positions is Positions.LEARNED) + (shard.model.token_types > 0)


def _table_bytes(shard: Shard) -> int:
    """Bytes of the distinct rows of those tables that a microbatch touches."""
    model = shard.model
    positions = shard.row_length if model.positions is Positions.LEARNED else 0
    return (positions + model.token_types) * model.d_model * shard.element_bytes
