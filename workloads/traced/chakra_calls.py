"""The calls of a training step out of a Chakra trace that was imported from PyTorch's.

Such a trace has the outermost operators with their operands, the names of the calls around each, and the number that a
gradient shares with its forward operator. Calls inside of calls are gone: what an operator does follows from its name
and shapes, and what one of the forward pass keeps besides its results is not seen.
"""

import ast
import bisect
import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traces import Node, NodeKind, Operands, load_trace
from archplace.workloads.traces.host_trace import (
    ANNOTATION_SCOPE,
    BACKWARD_SCOPE,
    Argument,
    HostNode,
    HostTrace,
    Tensor,
    read_arguments,
    with_strides,
)

_BACKWARD = "autograd::engine::evaluate_function"
_AROUND = ("Optimizer.step", "torch::autograd::AccumulateGrad", "torch.distributed.ddp.reducer::")
"""Beginnings of names of calls that say by themselves what is done inside."""
_NO_NUMBER = re.compile(r"(?<![\w'\"])(?:inf|nan)(?![\w'\"])")


def host_trace_of(path: str | Path) -> HostTrace:
    """Return the calls that a Chakra trace holds, as PyTorch's observer would have written them.

    Raises :class:`ConfigError` for what is no Chakra trace, for one without operators of PyTorch, as converters of
    other tools write them, and for operands that cannot be read.
    """
    nodes = [node for node in load_trace(path).nodes if node.kind is NodeKind.COMPUTE]
    operators = [node for node in nodes if node.value("op_schema") and node.value("within") is not None]
    if not operators:
        message = (
            "no operators of PyTorch with their operands and the calls around them; a model is known from an execution "
            "trace of PyTorch (.json), or from what archplace workload import or collect made of one"
        )
        raise ConfigError([Problem(place=str(path), key="", message=message)])
    operators.sort(key=lambda node: node.id)
    forward = sorted({seq for node in operators if (seq := _number(node, "seq_id")) >= 0})
    # where strides are written at all, they are left out of what lies row by row
    laid_out = any(node.value(f"{side}_strides") is not None for node in operators for side in ("input", "output"))
    calls = [call for node in operators for call in _calls(node, forward, laid_out, str(path))]
    return HostTrace(path=Path(path), schema="", pid=0, nodes=tuple(calls))


def _calls(node: Node, forward: Sequence[int], laid_out: bool, path: str) -> Iterator[HostNode]:
    """Yield what is known of the calls around an operator, and the operator."""
    within = node.value("within")
    names = [str(name) for name in within] if isinstance(within, Sequence) else []
    seq = _number(node, "gradient_seq_id")
    # an operator that calls others has the number of the first of them
    at = bisect.bisect_right(forward, seq)
    seq = forward[at - 1] if seq >= 0 and at else seq
    around = _around(node, names, seq)
    if around is not None:
        yield around
        if around.name.startswith(_BACKWARD):  # the engine knows its number from the gradient's own call
            yield HostNode(
                id=3 * node.id + 1, parent=around.id, name="", inputs=(), outputs=(), scope=BACKWARD_SCOPE, seq_id=seq
            )
    try:
        inputs = _arguments("input", node.inputs, node.value("input_strides"))
        outputs = _arguments("output", node.outputs, node.value("output_strides"))
        if laid_out:
            inputs, outputs = _in_rows(inputs), _in_rows(outputs)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        message = f"node {node.id} ({node.name:.60}): operands are no lists of Python: {error}"
        raise ConfigError([Problem(place=path, key="", message=message)]) from None
    yield HostNode(
        id=3 * node.id + 2,
        parent=-1 if around is None else around.id,
        name=node.name,
        inputs=inputs,
        outputs=outputs,
        op_schema=str(node.value("op_schema")),
        seq_id=_number(node, "seq_id"),
        scope=_number(node, "scope", 0),
        tid=_number(node, "tid", 0),
        fw_tid=_number(node, "fw_tid", 0),
    )


def _around(node: Node, names: Sequence[str], seq: int) -> HostNode | None:
    """The call that says which pass an operator belongs to, and which gradient; None in the forward pass."""
    said = next((one for one in names if one.startswith(_AROUND)), None)
    if said is not None:
        name, scope = said, ANNOTATION_SCOPE if said.startswith(_AROUND[0]) else 0
    elif names and names[-1].startswith(_BACKWARD):
        name, scope = names[-1], 0
    elif seq >= 0 or any(one.startswith(_BACKWARD) for one in names):
        name, scope = names[-1] if names else "", BACKWARD_SCOPE
    else:
        return None
    return HostNode(id=3 * node.id, parent=-1, name=name, inputs=(), outputs=(), scope=scope, seq_id=seq)


def _arguments(side: str, operands: Operands | None, strides: object) -> tuple[Argument, ...]:
    if operands is None:
        return ()
    texts = (operands.values, operands.shapes, operands.types)
    values, shapes, types = (ast.literal_eval(_NO_NUMBER.sub("1e999", text) or "[]") for text in texts)
    arguments = read_arguments(side, values, shapes, types)
    if not isinstance(strides, str):
        return arguments
    steps = iter(ast.literal_eval(strides))
    return tuple(
        argument._replace(tensors=tuple(_laid_out(tensor, next(steps, None)) for tensor in argument.tensors))
        for argument in arguments
    )


def _in_rows(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments with the strides of rows where none are known."""

    def laid(tensor: Tensor) -> Tensor:
        if tensor.strides is not None or prod(tensor.shape) != tensor.elements:
            return tensor
        return with_strides(tensor, tuple(prod(tensor.shape[dim + 1 :]) for dim in range(len(tensor.shape))))

    return tuple(
        argument._replace(tensors=tuple(laid(tensor) for tensor in argument.tensors)) for argument in arguments
    )


def _laid_out(tensor: Tensor, steps: object) -> Tensor:
    return tensor if steps is None else with_strides(tensor, tuple(steps) if isinstance(steps, list) else ())


def _number(node: Node, name: str, default: int = -1) -> int:
    found = node.value(name)
    return found if isinstance(found, int) else default
