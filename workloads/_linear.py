"""Linear layers that a tensor-parallel group shares, with the exchanges around them, and their gradients.

A *column-cut* layer reads all tokens and gives columns; a *row-cut* one reads columns and gives partial sums of whole
tokens (Shoeybi et al. 2019, arXiv:1909.08053, section 3). Without sequence parallelism every device holds all tokens:
an all-reduce follows the row-cut layer, and one the gradient of the column-cut layer's input. With it (Korthikanti et
al. 2022, arXiv:2205.05198, section 4.2.2) a device holds its share of the tokens outside these layers: an all-gather
stands before the column-cut layer and before the gradient of the row-cut one, a reduce-scatter takes the place of each
all-reduce; the column-cut layer's input is kept as a share and gathered again for the weight gradient.

With ``overlap_pieces`` above 1, products with an exchange before or behind them are cut along the tokens, so that the
exchange of one piece can run beside the product of another (Wang et al. 2023, ASPLOS, doi:10.1145/3567955.3567959).
Where linear layers read a narrower format than the activations', their inputs and the gradients of their outputs are
cast first; an all-gather then moves what was cast, a sum moves activations.

Functions take and give the pieces of a tensor as the operators that yield them: one, or one for each piece.
"""

from archplace.workloads import _vector
from archplace.workloads._graph import OUTSIDE, Graph, piece_names
from archplace.workloads._shard import Shard
from archplace.workloads.operators import Gemm, Phase, VectorWork
from archplace.workloads.precision import MASK_BYTES


def enter(graph: Graph, shard: Shard, name: str, source: str) -> tuple[str, ...]:
    """Make all tokens of ``source`` available to column-cut layers, cast where they read narrower operands.

    ``name`` says what the tokens are. A cast keeps its result.
    """
    source = graph.cast(f"{name}.cast", shard.row_tokens, shard.model.d_model, source, kept=True)
    if not shard.sharding.sequence:
        return (source,)
    payload = _operand_bytes(shard) // shard.pieces
    return tuple(graph.gather_rows(f"{piece}.", payload, source) for piece in piece_names(name, shard.pieces))


def column_cut(
    graph: Graph,
    shard: Shard,
    name: str,
    columns: int,
    sources: tuple[str, ...],
    *,
    bias: bool,
    epilogue: VectorWork | None = None,
    stash_bytes: int = 0,
) -> tuple[str, ...]:
    """Add a linear layer from ``d_model`` to ``columns`` columns on this device.

    ``epilogue`` is that of all tokens. The first piece carries the parameters and the stash.
    """
    d, pieces = shard.model.d_model, len(sources)
    gemm = Gemm(m=shard.tokens // pieces, n=columns, k=d)
    part = None if epilogue is None else _vector.part(epilogue, pieces)
    return tuple(
        graph.linear(
            piece,
            gemm,
            source,
            epilogue=part,
            parameters=(d + (1 if bias else 0)) * columns if i == 0 else 0,
            stash_bytes=stash_bytes if i == 0 else 0,
        )
        for i, (piece, source) in enumerate(zip(piece_names(name, pieces), sources, strict=True))
    )


def row_cut(
    graph: Graph, shard: Shard, name: str, width: int, sources: tuple[str, ...], residual: str, *, stash_bytes: int
) -> str:
    """Add a linear layer from ``width`` columns to ``d_model``, its exchange, bias, dropout, and the residual's sum.

    On one device the epilogue of the product applies bias and dropout. Behind an exchange only the sum can. The
    residual and the product are the sum's two inputs. ``stash_bytes`` are kept of the sum.
    """
    model, e, d, pieces = shard.model, shard.element_bytes, shard.model.d_model, shard.pieces
    alone = shard.tensor_parallel == 1
    rows = shard.row_tokens
    dropout = model.dropout > 0
    mask_bytes = rows * d * MASK_BYTES if dropout else 0
    masking = _vector.elementwise(
        rows, d, _vector.DROPOUT, read_bytes_per_element=0, write_bytes_per_element=e + MASK_BYTES
    )
    parts = len(sources)
    names = piece_names(f"{name}_input.cast", parts)
    sources = tuple(
        graph.cast(cast, shard.tokens // parts, width, source, kept=True)
        for cast, source in zip(names, sources, strict=True)
    )
    reduced = []
    for i, piece in enumerate(piece_names(name, pieces)):
        product = graph.linear(
            piece,
            Gemm(m=shard.tokens // pieces, n=d, k=width),
            *_read_by(i, sources, pieces),
            epilogue=masking if alone and dropout else None,
            parameters=width * d + (d if model.bias else 0) if i == 0 else 0,
            stash_bytes=mask_bytes if alone else 0,
        )
        reduced.append(graph.reduce_rows(f"{piece}.", shard.hidden_bytes // pieces, product))
    behind = not alone
    work = _vector.elementwise(
        rows,
        d,
        1 + (behind and model.bias) + (_vector.DROPOUT if behind and dropout else 0),
        read_bytes_per_element=2 * e,
        write_bytes_per_element=e + (MASK_BYTES if behind and dropout else 0),
    )
    kept = stash_bytes + (mask_bytes if behind else 0)
    return graph.vector(f"{name}.residual", work, *reduced, residual, stash_bytes=kept)


def row_cut_gradients(graph: Graph, shard: Shard, name: str, width: int, gradient: str) -> tuple[str, ...]:
    """Add both gradients of a row-cut layer and of the dropout behind it; return the gradient of its input."""
    d, tokens = shard.model.d_model, shard.tokens
    if shard.model.dropout:
        work = _vector.dropout_gradient(shard.row_tokens, d, shard.element_bytes)
        gradient = graph.vector(f"{name}.dropout.gradient", work, gradient)
    gradient = graph.cast(f"{name}.gradient_cast", shard.row_tokens, d, gradient)
    gradients: tuple[str, ...] = (gradient,)
    if shard.sharding.sequence:
        payload = _operand_bytes(shard) // shard.pieces
        stems = piece_names(f"{name}.gradient", shard.pieces)
        gradients = tuple(graph.gather_rows(f"{stem}_", payload, gradient) for stem in stems)
    weight = Gemm(m=width, n=d, k=tokens)
    graph.linear(f"{name}.weight_gradient", weight, *gradients, phase=Phase.WEIGHT_GRADIENT)
    data = Gemm(m=tokens // len(gradients), n=width, k=d)
    names = piece_names(f"{name}.data_gradient", len(gradients))
    return tuple(graph.linear(piece, data, gradient) for piece, gradient in zip(names, gradients, strict=True))


def column_cut_gradients(
    graph: Graph,
    shard: Shard,
    input_name: str,
    layers: tuple[tuple[str, int, tuple[str, ...]], ...],
    *,
    in_pieces: bool = False,
) -> tuple[str, ...]:
    """Add the gradients of column-cut layers that read the same input; return the input's, after the exchange.

    ``layers`` gives each layer's name, columns, and the operators that yield the gradient of its output: several for
    parts of the columns, or where it comes ``in_pieces`` one for each piece of the tokens. The same operator may yield
    several gradients.
    """
    d, tokens, pieces = shard.model.d_model, shard.tokens, shard.pieces
    saved = graph.gather_rows(f"{input_name}.saved_", _operand_bytes(shard), OUTSIDE, phase=Phase.WEIGHT_GRADIENT)
    parts: list[list[str]] = [[] for _ in range(pieces)]
    for name, columns, outputs in layers:
        gradients = _cast_outputs(graph, shard, name, columns, outputs, in_pieces=in_pieces)
        weight = Gemm(m=d, n=columns, k=tokens)
        graph.linear(f"{name}.weight_gradient", weight, *gradients, saved, phase=Phase.WEIGHT_GRADIENT)
        data = Gemm(m=tokens // pieces, n=d, k=columns)
        for i, piece in enumerate(piece_names(f"{name}.data_gradient", pieces)):
            parts[i].append(graph.linear(piece, data, *(gradients[i : i + 1] if in_pieces else gradients)))
    totals = zip(piece_names(f"{input_name}.gradient_sum", pieces), parts, strict=True)
    sums = [_sum(graph, shard, name, tokens // pieces, addends) for name, addends in totals]
    stems = piece_names(f"{input_name}.gradient", pieces)
    payload = shard.hidden_bytes // pieces
    return tuple(graph.reduce_rows(f"{stem}_", payload, total) for stem, total in zip(stems, sums, strict=True))


def _operand_bytes(shard: Shard) -> int:
    """Bytes of all tokens as linear layers read them."""
    return shard.operand_bytes(shard.tokens * shard.model.d_model)


def _cast_outputs(
    graph: Graph, shard: Shard, name: str, columns: int, gradients: tuple[str, ...], *, in_pieces: bool
) -> tuple[str, ...]:
    """The gradient of a column-cut layer's output as its products read it."""
    if not shard.casts:
        return gradients
    if not in_pieces:
        return (graph.cast(f"{name}.gradient_cast", shard.tokens, columns, *gradients),)
    names = piece_names(f"{name}.gradient_cast", shard.pieces)
    rows = shard.tokens // shard.pieces
    return tuple(graph.cast(cast, rows, columns, one) for cast, one in zip(names, gradients, strict=True))


def _read_by(i: int, sources: tuple[str, ...], pieces: int) -> tuple[str, ...]:
    """The operators that piece ``i`` of so many waits for: the piece of the same tokens, or all there are."""
    return (sources[i],) if len(sources) == pieces else sources


def _sum(graph: Graph, shard: Shard, name: str, rows: int, gradients: list[str]) -> str:
    """The gradient of a tensor that several linear layers read."""
    if len(gradients) == 1:
        return gradients[0]
    work = _vector.addition(rows, shard.model.d_model, shard.element_bytes, addends=len(gradients))
    return graph.vector(name, work, *gradients)
