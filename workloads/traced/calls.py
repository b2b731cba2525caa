"""The calls of a traced step that do its work, told apart by pass.

An operator that is made of others (``aten::linear``, ``aten::cross_entropy_loss``) is followed inside, down to calls
whose work is known: there the forward pass speaks the same language as the backward pass, and every tensor that is
kept between them is seen where it is made. Where nothing is seen inside that makes the results, the call itself counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from archplace.workloads.traces._op_schema import schema_arguments
from archplace.workloads.traces.host_trace import ANNOTATION_SCOPE, BACKWARD_SCOPE, HostNode

_ALLOCATIONS = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_quantized", "new_empty", "new_empty_strided", "resize_", "set_")
)
_SHAPINGS = frozenset(("as_strided_", "squeeze_", "unsqueeze_", "t_", "transpose_"))
"""What changes a tensor's shape in place, and none of its elements."""
_ACCUMULATION = "torch::autograd::AccumulateGrad"
_REDUCERS = ("torch.distributed.ddp.reducer::", "torch::distributed::reducer::", "c10d::")
"""Data-parallel training: copies gradients into buckets, reduces these, and copies back."""
_EVALUATION = "autograd::engine::evaluate_function"
_UPDATE = "Optimizer.step"


class Pass(StrEnum):
    """The part of the step that a call belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    ACCUMULATION = "accumulation"
    """Gradients become those of parameters, here and on other ranks."""
    OPTIMIZER = "optimizer"
    BETWEEN = "between"
    """After the backward pass began and outside of it: clipping of gradients, statistics, further microbatches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call."""

    node: HostNode
    part: Pass
    seq: int
    """In the forward pass the number that its gradient has, too; in the backward pass that of the forward operator
    whose gradient this is; -1 for none."""

    @property
    def name(self) -> str:
        """The operator's name, without its namespace where that is ATen's."""
        return self.node.name.removeprefix("aten::")


def _is_forward_again(call: Call) -> bool:
    """Whether a call in the backward pass counts as a forward operator, which has a gradient of its own."""
    return call.part is Pass.BACKWARD and call.node.scope == 0 and call.node.seq_id >= 0


@dataclass(frozen=True, slots=True)
class _Place:
    part: Pass
    seq: int
    by_engine: bool = False
    """Outside of the gradient's own call: gradients are summed to their operand's shape and added up."""


def calls_of(
    nodes: Sequence[HostNode], is_known: Callable[[str], bool], callers: Mapping[int, int] | None = None
) -> tuple[tuple[Call, ...], str]:
    """Return the calls in order, and the name of the optimizer, empty for none.

    ``is_known`` says of an operator's name whether its work is known. ``callers`` says who called whom where something
    better is known than the trace's own word. Raises ValueError where activations are recomputed.
    """
    by_id = {node.id: node for node in nodes}
    children: dict[int, list[HostNode]] = {}
    roots: list[HostNode] = []
    for node in nodes:
        caller = node.parent if callers is None else callers.get(node.id, node.parent)
        if caller in by_id and caller != node.id:
            children.setdefault(caller, []).append(node)
        else:
            roots.append(node)
    found = [call for root in roots for call in _below(root, _Place(Pass.FORWARD, -1), children, is_known)]
    found.sort(key=lambda call: call.node.id)
    again = sum(_is_forward_again(call) for call in found)
    if again:
        raise ValueError(
            f"the backward pass runs {again} operators of the forward pass again: turn activation checkpointing off "
            "for the traced step; which activations are recomputed is a choice of the placement"
        )
    updates = [node.name for node in nodes if node.scope == ANNOTATION_SCOPE and node.name.startswith(_UPDATE)]
    optimizer = updates[0].partition("#")[2].removesuffix(".step") if updates else ""
    return tuple(_in_one_pass(found)), optimizer


def _below(
    root: HostNode, place: _Place, children: Mapping[int, Sequence[HostNode]], is_known: Callable[[str], bool]
) -> Iterator[Call]:
    """Yield the calls that do the work of ``root``; a walk with a stack, because calls may be nested deeply."""
    stack = [(root, place)]
    while stack:
        node, around = stack.pop()
        inner = children.get(node.id, ())
        here = _place(node, around, inner)
        if _is_operator(node):
            name = node.name.removeprefix("aten::")
            if name in _ALLOCATIONS:
                continue
            if is_known(node.name) or not _makes_results(node, children):
                # What is added up are gradients of several readers, the last of which is at hand by chance.
                chance = here.by_engine and name in ("add", "add_")
                yield Call(node=node, part=here.part, seq=-1 if chance else here.seq)
                continue
        stack.extend((child, here) for child in reversed(inner))


def _place(node: HostNode, around: _Place, inner: Sequence[HostNode]) -> _Place:
    if node.name in (_ACCUMULATION, f"{_EVALUATION}: {_ACCUMULATION}") or node.name.startswith(_REDUCERS):
        return _Place(Pass.ACCUMULATION, -1)
    if node.name.startswith(_EVALUATION):
        seq = next((child.seq_id for child in inner if child.scope == BACKWARD_SCOPE), -1)
        return _Place(Pass.BACKWARD, seq, by_engine=True)
    if node.scope == BACKWARD_SCOPE and around.part is not Pass.ACCUMULATION:
        return _Place(Pass.BACKWARD, node.seq_id if node.seq_id >= 0 else around.seq)
    if node.scope == ANNOTATION_SCOPE and node.name.startswith(_UPDATE):
        return _Place(Pass.OPTIMIZER, -1)
    if around.part is Pass.FORWARD and node.op_schema:
        return replace(around, seq=node.seq_id)
    return around


def _is_operator(node: HostNode) -> bool:
    return bool(node.op_schema or node.kernel_backend)


def _makes_results(node: HostNode, children: Mapping[int, Sequence[HostNode]]) -> bool:
    """Whether all storages that leave a call entered it or are results of operators seen inside."""
    entered = {tensor.storage for argument in node.inputs for tensor in argument.tensors}
    left = (tensor for result in node.outputs for tensor in result.tensors)
    missing = {tensor.storage for tensor in left if tensor.elements} - entered
    inner = [child for child in children.get(node.id, ()) if _works(child, children)]
    if not inner:
        return False
    return missing <= {storage for child in inner for storage in _made(child)}


def _made(node: HostNode) -> Iterator[int]:
    """Yield the storages whose elements a call computes: those that did not enter, and those that it changes."""
    entered = {tensor.storage for argument in node.inputs for tensor in argument.tensors}
    arguments = schema_arguments(node.op_schema)
    if node.name.removeprefix("aten::") not in _SHAPINGS:
        for argument, known in zip(node.inputs, arguments, strict=False):
            if known.written:
                yield from (tensor.storage for tensor in argument.tensors)
    for result in node.outputs:
        yield from (tensor.storage for tensor in result.tensors if tensor.storage not in entered)


def _works(node: HostNode, children: Mapping[int, Sequence[HostNode]]) -> bool:
    if _is_operator(node):
        return node.name.removeprefix("aten::") not in _ALLOCATIONS
    return any(_works(child, children) for child in children.get(node.id, ()))


def _in_one_pass(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield the calls with those outside of the first forward and its backward pass marked as between.

    A window may begin in the middle of a step and hold several: a backward pass belongs to the forward pass that has
    its numbers. What has no number belongs to what ran before it.
    """
    numbers: set[int] = set()
    mine = not any(call.part is Pass.FORWARD and call.seq >= 0 for call in calls)
    began = False
    for call in calls:
        if call.part is Pass.FORWARD:
            if not began:
                numbers.add(call.seq)
            yield replace(call, part=Pass.BETWEEN) if began else call
        elif call.part in (Pass.BACKWARD, Pass.ACCUMULATION):
            if call.seq >= 0:
                mine = call.seq in numbers
            began = began or mine
            yield call if mine else replace(call, part=Pass.BETWEEN)
        else:
            yield call
