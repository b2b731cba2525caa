"""Which values of a trace are parameters, which are their gradients, and which need no gradient at all."""

import itertools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod

from archplace.workloads.traced._rules_maps import MADE_OF_NOTHING
from archplace.workloads.traced.calls import Pass
from archplace.workloads.traced.loops_of import base_name
from archplace.workloads.traced.nests import Nest
from archplace.workloads.traced.tensor_graph import TensorOpKind
from archplace.workloads.traced.versions import Step, Value
from archplace.workloads.traces._op_schema import schema_arguments

_REAL = ("float", "double", "half", "bfloat16", "c10::half", "c10::bfloat16")
_LOOKS = (TensorOpKind.VIEW, TensorOpKind.MOVE)
_STATISTICS = frozenset(("running_mean", "running_var"))
"""What norms of batches keep, of the shape of their gains, and no optimizer changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Values by role; what is in none of the sets is an activation."""

    parameters: AbstractSet[int]
    gradients: Mapping[int, int | None]
    """Gradients of parameters, with the parameter where it is known."""
    constants: AbstractSet[int]
    """What depends on no parameter and on nothing random."""


def find_roles(values: Sequence[Value], steps: Sequence[Step], nests: Mapping[int, Sequence[Nest]]) -> Roles:
    """Return the roles. ``nests`` are those of each step of the forward and backward pass, by its place."""
    gradients = _gradients(values, steps)
    parameters = _parameters(values, steps, nests, gradients)
    constants = _constants(values, steps, nests, parameters)
    return Roles(parameters=parameters, gradients=_paired(values, steps, parameters, gradients), constants=constants)


def is_real(value: Value) -> bool:
    """Whether a value's elements are real numbers, which alone have gradients."""
    return value.dtype.lower().startswith(_REAL)


def _gradients(values: Sequence[Value], steps: Sequence[Step]) -> set[int]:
    made = {value for step in steps if step.call.part is Pass.BACKWARD for value in step.results}
    taken = {
        value
        for step in steps
        if step.call.part in (Pass.ACCUMULATION, Pass.OPTIMIZER)
        for argument in step.arguments
        for value in argument
    }
    return {value for value in made & taken if is_real(values[value])}


def _parameters(
    values: Sequence[Value], steps: Sequence[Step], nests: Mapping[int, Sequence[Nest]], gradients: AbstractSet[int]
) -> set[int]:
    """Parameters are what the optimizer changes; in a trace without optimizer what has the shape of a gradient; without
    gradients all that comes from outside and is no sample."""
    asked: dict[int, set[str]] = {}
    for step in steps:
        if step.call.part is Pass.FORWARD:
            names = [argument.name for argument in schema_arguments(step.call.node.op_schema)]
            for place, argument in enumerate(step.arguments):
                for value in argument:
                    asked.setdefault(value, set()).add(names[place] if place < len(names) else "")
    candidates = {
        value
        for value, names in asked.items()
        if values[value].is_external and is_real(values[value]) and not names & _STATISTICS
    }
    # Buffers that data-parallel training sends around before the forward pass.
    sent = {
        values[one].storage for step in steps if step.call.part is Pass.FORWARD and step.moves for one in step.results
    }
    candidates = {value for value in candidates if values[value].storage not in sent}
    changed = {
        values[value].storage for step in steps if step.call.part is Pass.OPTIMIZER for value in step.results
    } & {values[value].storage for value in candidates}
    if changed:
        return {value for value in candidates if values[value].storage in changed}
    shapes = {values[value].shape for value in gradients}
    if shapes:
        return {value for value in candidates if values[value].shape in shapes}
    return {value for value in candidates if values[value].shape} - _data(steps, nests)


def _data(steps: Sequence[Step], nests: Mapping[int, Sequence[Nest]]) -> set[int]:
    """Return what is the first operand of a product, with what that is a view of: samples stand there, not weights."""
    source = {
        result: step.arguments[0] for step in steps if not step.moves and step.arguments for result in step.results
    }
    found: set[int] = set()
    stack = [
        nest.reads[0][0] for one in nests.values() for nest in one if nest.kind is TensorOpKind.PRODUCT and nest.reads
    ]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack.extend(source.get(value, ()))
    return found


def _constants(
    values: Sequence[Value], steps: Sequence[Step], nests: Mapping[int, Sequence[Nest]], parameters: AbstractSet[int]
) -> set[int]:
    constants = {number for number, value in enumerate(values) if value.is_external and number not in parameters}
    for place, step in enumerate(steps):
        name = base_name(step.name)
        is_made = name in MADE_OF_NOTHING
        if place not in nests or not (is_made or any(nest.reads for nest in nests[place])):
            continue
        # The loss's own gradient is 1, but what the backward pass makes of it and the labels is work of every step.
        if step.call.part is Pass.BACKWARD and not is_made and any(nest.kind not in _LOOKS for nest in nests[place]):
            continue
        if all(value in constants for nest in nests[place] for value, _ in nest.reads):
            constants.update(step.results)
    return constants


def _paired(
    values: Sequence[Value], steps: Sequence[Step], parameters: AbstractSet[int], gradients: AbstractSet[int]
) -> dict[int, int | None]:
    """Return each gradient's parameter: the one that the optimizer computes with it, over its moments and over what the
    gradient was copied to; or else the one of as many elements that the forward operator of the same number reads."""
    group = list(range(len(values)))

    def root(number: int) -> int:
        while group[number] != number:
            group[number] = group[group[number]]
            number = group[number]
        return number

    for step in steps:
        if step.call.part not in (Pass.ACCUMULATION, Pass.OPTIMIZER):
            continue
        columns: dict[int, list[int]] = {}
        for argument in step.arguments:
            for at, value in enumerate(argument):
                columns.setdefault(at if len(argument) > 1 else 0, []).append(value)
        for at, value in enumerate(step.results):
            columns.setdefault(at if len(step.results) > 1 else 0, []).append(value)
        for column in columns.values():
            # Factors and counts of steps are smaller than what they go with.
            most = max(prod(values[value].shape) for value in column)
            whole = [value for value in column if prod(values[value].shape) == most]
            for one, other in itertools.pairwise(whole):
                group[root(one)] = root(other)
    members: dict[int, list[int]] = {}
    for parameter in sorted(parameters):
        members.setdefault(root(parameter), []).append(parameter)
    found: dict[int, int | None] = {}
    for gradient in sorted(gradients):
        near = members.get(root(gradient), [])
        found[gradient] = near[0] if len(near) == 1 else None
    _pair_by_number(values, steps, parameters, found)
    return found


def _pair_by_number(
    values: Sequence[Value], steps: Sequence[Step], parameters: AbstractSet[int], found: dict[int, int | None]
) -> None:
    """Pair what is left by the number that a forward operator shares with its gradient: by size, in order."""
    read_by: dict[int, dict[int, None]] = {}
    made_by: dict[int, dict[int, None]] = {}
    for step in steps:
        if step.call.seq < 0:
            continue
        if step.call.part is Pass.FORWARD:
            read = (value for argument in step.arguments for value in argument)
            wanted = (value for value in read if value in parameters)
            read_by.setdefault(step.call.seq, {}).update(dict.fromkeys(wanted))
        elif step.call.part is Pass.BACKWARD:
            made_by.setdefault(step.call.seq, {}).update(dict.fromkeys(one for one in step.results if one in found))
    for number, made in made_by.items():
        for size in {prod(values[value].shape) for value in made}:
            ours = [value for value in made if prod(values[value].shape) == size]
            near = [value for value in read_by.get(number, ()) if prod(values[value].shape) == size]
            if len(ours) == len(near):
                found.update(pair for pair in zip(ours, near, strict=True) if found[pair[0]] is None)
