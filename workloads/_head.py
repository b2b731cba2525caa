"""The operator graphs of what follows the last block, on one tensor-parallel device: final norm, projection, loss.

The projection onto the vocabulary is cut by rows of the vocabulary, and the logits stay where they are: :mod:`_loss`.
Modules for further tokens share the projection; each has a final norm and a loss of its own. A dense layer before the
projection is cut by columns and gathered; an encoder's pooler by columns and the two-way classifier behind it by rows.
With sequence parallelism the final norm sees a device's share of the tokens, and what follows it all of them, gathered.
"""

from archplace.workloads import _vector
from archplace.workloads._graph import OUTSIDE, Graph
from archplace.workloads._loss import loss_forward
from archplace.workloads._shard import Shard
from archplace.workloads.model import ModelKind
from archplace.workloads.operators import CollectiveKind, Gemm, Phase
from archplace.workloads.precision import FP32_BYTES

CLASSES = 2
"""Answers of the next-sentence classifier."""


def head_forward(shard: Shard) -> Graph:
    """The operators from the last block's output to the loss, each after its inputs."""
    graph = Graph(shard, Phase.FORWARD)
    for module in range(1 + shard.model.multi_token_prediction):
        _predict(graph, shard, module)
    return graph


def head_backward(shard: Shard) -> Graph:
    """The operators from the loss to the gradient of the last block's output, which the last one gives."""
    graph = Graph(shard, Phase.DATA_GRADIENT)
    for module in range(1 + shard.model.multi_token_prediction):
        _predict_gradients(graph, shard, module)
    return graph


def _prefix(module: int) -> str:
    """Stands before the names of a module's operators; module 0 predicts the next token."""
    return f"prediction_{module}_" if module else ""


def _predict(graph: Graph, shard: Shard, module: int) -> None:
    """One module's predictions and their loss."""
    model, e, prefix = shard.model, shard.element_bytes, _prefix(module)
    tokens, d, width, rows = shard.tokens, model.d_model, model.embedding_width, shard.vocabulary_rows
    hidden = OUTSIDE
    unkept_input_bytes = shard.boundary_bytes  # the first reader of the last block's output keeps it
    if model.final_norm:
        hidden = graph.vector(
            f"{prefix}final_norm",
            _vector.norm(model.norm, shard.row_tokens, d, e),
            parameters=model.norm_parameters,
            stash_bytes=2 * shard.boundary_bytes,
        )
        unkept_input_bytes = 0
    hidden = graph.gather_rows(f"{prefix}head_input.", shard.hidden_bytes, hidden)
    if model.next_sentence:
        _classifier_forward(graph, shard, hidden)
    if model.kind is ModelKind.ENCODER:
        hidden = _transform_forward(graph, shard, hidden, unkept_input_bytes)
        unkept_input_bytes = 0
    if model.projects_embedding:
        columns = graph.product(
            "project_out",
            Gemm(m=tokens, n=width // shard.tensor_parallel, k=d),
            hidden,
            parameters=d * width // shard.tensor_parallel,
            stash_bytes=tokens * width * e + unkept_input_bytes,
        )
        unkept_input_bytes = 0
        hidden = graph.collective("project_out.all_gather", tokens * width * e, columns, kind=CollectiveKind.ALL_GATHER)
    logits = graph.product(
        f"{prefix}logits",
        Gemm(m=tokens, n=rows, k=width),
        hidden,
        parameters=0 if module else (width + (1 if model.head_bias else 0)) * rows,
        stash_bytes=unkept_input_bytes,
    )
    loss_forward(graph, shard, logits, tokens=tokens, answers=rows, prefix=prefix)


def _predict_gradients(graph: Graph, shard: Shard, module: int) -> None:
    """The gradients of one module's predictions."""
    model, e, prefix = shard.model, shard.element_bytes, _prefix(module)
    tokens, d, width, rows = shard.tokens, model.d_model, model.embedding_width, shard.vocabulary_rows
    gradient = graph.vector(f"{prefix}loss.gradient", _vector.cross_entropy_gradient(tokens, rows, e))
    saved = graph.gather_rows(f"{prefix}head_input.saved_", shard.hidden_bytes, OUTSIDE, phase=Phase.WEIGHT_GRADIENT)
    encoder = model.kind is ModelKind.ENCODER
    inner = model.projects_embedding or encoder  # the logits' input is not the head's
    gradient = graph.linear_gradients(
        f"{prefix}logits", gradient, k=width, n=rows, rows=tokens, saved=OUTSIDE if inner else saved
    )
    if inner:
        gradient = graph.collective(f"{prefix}logits.gradient_all_reduce", tokens * width * e, gradient)
    else:
        gradient = graph.reduce_rows(f"{prefix}logits.gradient_", shard.hidden_bytes, gradient)
    if model.projects_embedding:
        columns = width // shard.tensor_parallel
        gradient = graph.linear_gradients(
            "project_out", gradient, k=d, n=columns, rows=tokens, saved=OUTSIDE if encoder else saved
        )
        if encoder:
            gradient = graph.collective("project_out.gradient_all_reduce", shard.hidden_bytes, gradient)
        else:
            gradient = graph.reduce_rows("project_out.gradient_", shard.hidden_bytes, gradient)
    if encoder:
        gradient = _dense_gradient(graph, shard, gradient, saved)
    if model.final_norm:
        work = _vector.norm_gradient(model.norm, shard.row_tokens, d, e)
        graph.vector(f"{prefix}final_norm.gradient", work, gradient)


def _transform_forward(graph: Graph, shard: Shard, source: str, input_stash_bytes: int) -> str:
    """An encoder's dense layer with activation and norm before the projection."""
    model, e = shard.model, shard.element_bytes
    tokens, d, columns = shard.tokens, model.d_model, shard.d_width
    keeps_input = _vector.keeps_input(model.activation)
    epilogue = _vector.elementwise(
        tokens,
        columns,
        _vector.activation_operations(model.activation),
        read_bytes_per_element=0,
        write_bytes_per_element=2 * e if keeps_input else e,
    )
    dense = graph.product(
        "transform",
        Gemm(m=tokens, n=columns, k=d),
        source,
        epilogue=epilogue,
        parameters=(d + 1) * columns,
        stash_bytes=input_stash_bytes + (tokens * columns * e if keeps_input else 0),
    )
    whole = graph.collective("transform.all_gather", shard.hidden_bytes, dense, kind=CollectiveKind.ALL_GATHER)
    # the norm keeps its input, which is whole here and in columns where the dense layer wrote it, and its output
    return graph.vector(
        "transform_norm",
        _vector.norm(model.norm, tokens, d, e),
        whole,
        parameters=model.norm_parameters,
        stash_bytes=2 * shard.hidden_bytes,
    )


def _classifier_forward(graph: Graph, shard: Shard, source: str) -> None:
    """Pooler and next-sentence classifier on the first token of each sequence, whose activation is kept elsewhere."""
    e, b, d, columns = shard.element_bytes, shard.microbatch, shard.model.d_model, shard.d_width
    tanh = _vector.elementwise(b, columns, _vector.SPECIAL, read_bytes_per_element=0, write_bytes_per_element=e)
    pooled = graph.product(
        "pooler",
        Gemm(m=b, n=columns, k=d),
        source,
        epilogue=tanh,
        parameters=(d + 1) * columns,
        stash_bytes=b * columns * e,
    )
    answers = graph.product(
        "next_sentence", Gemm(m=b, n=CLASSES, k=columns), pooled, parameters=CLASSES * columns + CLASSES
    )
    answers = graph.collective("next_sentence.all_reduce", b * CLASSES * e, answers)
    work = _vector.cross_entropy(b, CLASSES, e)
    graph.vector("next_sentence_loss", work, answers, stash_bytes=b * CLASSES * FP32_BYTES)


def _dense_gradient(graph: Graph, shard: Shard, gradient: str, saved: str) -> str:
    """From the gradient of the transform's norm to that of the encoder's output, which ``saved`` brings again."""
    model, e = shard.model, shard.element_bytes
    tokens, b, d, columns = shard.tokens, shard.microbatch, model.d_model, shard.d_width
    gradient = graph.vector("transform_norm.gradient", _vector.norm_gradient(model.norm, tokens, d, e), gradient)
    work = _vector.activation_gradient(model.activation, tokens, columns, e)
    gradient = graph.vector("transform.activation.gradient", work, gradient)
    gradient = graph.linear_gradients("transform", gradient, k=d, n=columns, rows=tokens, saved=saved)
    if model.next_sentence:
        pooled = graph.vector("next_sentence_loss.gradient", _vector.cross_entropy_gradient(b, CLASSES, e))
        pooled = graph.linear_gradients("next_sentence", pooled, k=columns, n=CLASSES, rows=b)
        # (1 − y²) · gradient
        tanh = _vector.elementwise(b, columns, 2, read_bytes_per_element=2 * e, write_bytes_per_element=e)
        pooled = graph.vector("pooler.activation.gradient", tanh, pooled)
        pooled = graph.linear_gradients("pooler", pooled, k=d, n=columns, rows=b, saved=saved)
        gradient = graph.vector("pooler.gradient_sum", _vector.addition(b, d, e), gradient, pooled)
    return graph.reduce_rows("encoder_output.gradient_", shard.hidden_bytes, gradient)
