"""Which calls of a PyTorch trace are its operators: the outermost that have a schema, not what they are made of.

``aten::linear`` is an operator; the transposition and the product inside are how it works today. Autograd's wrappers,
modules and annotations have no schema: they say where an operator is. Allocations are none: they move nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from archplace.workloads.traces.host_trace import ANNOTATION_SCOPE, BACKWARD_SCOPE, HostNode

_ALLOCATIONS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_quantized", "new_empty", "new_empty_strided")
)
RECORD = "record_param_comms"
_NO_COMMUNICATION = frozenset(("wait", "init", "", "Missing comms info"))


class TracePhase(StrEnum):
    """Part of the training step in which an operator was called."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An outermost call with what was called inside."""

    node: HostNode
    inside: tuple[HostNode, ...]
    """All calls inside, in the order in which they began."""
    within: tuple[str, ...]
    """Names of the calls around it, outermost first, without process and thread."""
    phase: TracePhase
    gradient_seq: int = -1
    """Of an operator of the backward pass the number of the gradient's call that it belongs to, which the forward
    operator has, too; -1 for none."""

    @property
    def record(self) -> HostNode | None:
        """What the communication library noted of a communication, or None."""
        return next((node for node in (self.node, *self.inside) if recorded_name(node)), None)


def recorded_name(node: HostNode) -> str:
    """Return the collective that a note of a communication names; empty for all other calls, waits among them."""
    if node.name != RECORD:
        return ""
    name = node.extras.get("collective_name")
    if not isinstance(name, str):
        # Before the note had attributes, it had only values: the name is the text among them.
        name = next((item.value for item in node.inputs if item.type == "String"), "")
    return "" if name in _NO_COMMUNICATION else str(name)


def outermost_operators(nodes: Sequence[HostNode], callers: Mapping[int, int] | None = None) -> tuple[Operator, ...]:
    """Return the operators among ``nodes``, which are ordered by id, in the order in which they began.

    ``callers`` says who called whom where something better is known than the trace's own word; callers that are not
    among the nodes (they began before the window) are none.
    """
    by_id = {node.id: node for node in nodes}
    caller = {node.id: node.parent if callers is None else callers.get(node.id, node.parent) for node in nodes}
    numbers = {caller[node.id]: node.seq_id for node in nodes if node.scope == BACKWARD_SCOPE and node.seq_id >= 0}
    top: dict[int, int | None] = {}
    inside: dict[int, list[HostNode]] = {}
    for node in nodes:
        for number in _unknown_callers(node.id, caller, top, by_id):
            above = top.get(caller[number]) if caller[number] != number else None
            here = by_id[number]
            top[number] = above if above is not None else number if _is_operator(here) else None
        found = top[node.id]
        if found is not None:
            inside.setdefault(found, [])
            if found != node.id:
                inside[found].append(node)
    operators = []
    for number in sorted(inside):
        if by_id[number].name not in _ALLOCATIONS:
            around = _around(number, caller, by_id)
            operators.append(
                Operator(
                    node=by_id[number],
                    inside=tuple(inside[number]),
                    within=tuple(node.name for node in around),
                    phase=_phase(by_id[number], around),
                    gradient_seq=_gradient_seq(by_id[number], around, numbers),
                )
            )
    return tuple(operators)


def _is_operator(node: HostNode) -> bool:
    # Compiled kernels have a back end instead of a schema.
    return bool(node.op_schema or node.kernel_backend or recorded_name(node))


def _unknown_callers(
    number: int, caller: Mapping[int, int], known: Mapping[int, object], by_id: Mapping[int, HostNode]
) -> list[int]:
    """Return ``number`` and its callers up to the first that is known, outermost first."""
    path: dict[int, None] = {}
    while number in by_id and number not in known and number not in path:
        path[number] = None
        number = caller[number]
    return list(reversed(path))


def _around(number: int, caller: Mapping[int, int], by_id: Mapping[int, HostNode]) -> list[HostNode]:
    found: dict[int, HostNode] = {}
    number = caller[number]
    while number in by_id and number not in found:
        found[number] = by_id[number]
        number = caller[number]
    return [node for node in reversed(found.values()) if not node.name.startswith("[pytorch|")]


def _phase(node: HostNode, around: Sequence[HostNode]) -> TracePhase:
    if any(call.name.startswith("Optimizer.step") for call in around if call.scope == ANNOTATION_SCOPE):
        return TracePhase.OPTIMIZER
    backward = any(call.scope == BACKWARD_SCOPE or call.name.startswith("autograd::engine") for call in around)
    return TracePhase.BACKWARD if backward or node.scope == BACKWARD_SCOPE else TracePhase.FORWARD


def _gradient_seq(node: HostNode, around: Sequence[HostNode], numbers: Mapping[int, int]) -> int:
    """The innermost number around; what the engine does beside a gradient's own call (``numbers``) has its number."""
    for call in (node, *reversed(around)):
        if call.scope == BACKWARD_SCOPE and call.seq_id >= 0:
            return call.seq_id
        if call.id in numbers and call.name.startswith("autograd::engine"):
            return numbers[call.id]
    return -1
