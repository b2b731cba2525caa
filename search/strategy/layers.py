"""Seconds of the passes over each kind of layer: exact schedules of their operator graphs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from archplace.costmodel import Pricer
from archplace.search.schedule import ScheduleCache, ScheduleGraph, ScheduleProblem, bracket_s
from archplace.search.strategy.chain import FloatArray
from archplace.workloads import Layer, Operator, Phase


class Pass(StrEnum):
    """What a device executes of a layer without interruption."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """Gradients of inputs and of weights together."""
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    SELECTIVE_REPLAY = "selective_replay"
    """What selective recomputation runs again before the backward pass."""
    PAIR = "pair"
    """The forward pass of one microbatch together with the backward pass of another: what one exchanges runs behind
    what the other computes (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1)."""


def operators_of(layer: Layer, which: Pass) -> tuple[Operator, ...]:
    """Return the operators of one pass over ``layer``, each after its inputs; empty where there is nothing to do."""
    if which is Pass.FORWARD:
        return layer.forward
    if which is Pass.BACKWARD:
        return layer.backward
    if which is Pass.SELECTIVE_REPLAY:
        again = set(layer.selective_replay)
        return _part(operator for operator in layer.forward if operator.name in again)
    if which is Pass.PAIR:
        return (*_named(layer.forward, "forward."), *_named(layer.backward, "backward."))
    of_weights = which is Pass.WEIGHT_GRADIENT
    return _part(operator for operator in layer.backward if (operator.phase is Phase.WEIGHT_GRADIENT) == of_weights)


def _part(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Return the operators without the inputs that are none of them: those are there before the pass begins."""
    chosen = tuple(operators)
    names = {operator.name for operator in chosen}
    return tuple(
        replace(operator, inputs=tuple(name for name in operator.inputs if name in names)) for operator in chosen
    )


def _named(operators: Sequence[Operator], prefix: str) -> list[Operator]:
    return [
        replace(operator, name=prefix + operator.name, inputs=tuple(prefix + name for name in operator.inputs))
        for operator in operators
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """Seconds of one pass over every kind of layer on every architecture, ``(n_archs, S)`` each."""

    least_s: FloatArray
    """What no schedule undercuts."""
    seconds: FloatArray
    """What the best schedule found takes; equal to ``least_s`` where that is proven optimal."""


def pass_seconds(
    layers: Sequence[Layer], passes: Sequence[Pass], pricer: Pricer, cache: ScheduleCache
) -> Mapping[Pass, PassSeconds]:
    """Return the seconds of ``passes`` over each of ``layers`` on the architectures of ``pricer``.

    Schedules that bound and list schedule do not settle are solved, with what ``cache`` knows.
    """
    archs = pricer.architectures
    shape = (len(archs), len(layers))
    found = {which: PassSeconds(least_s=np.zeros(shape), seconds=np.zeros(shape)) for which in passes}
    open_: list[tuple[Pass, int, int, ScheduleProblem]] = []
    for which in passes:
        for column, layer in enumerate(layers):
            operators = operators_of(layer, which)
            if not operators:
                continue
            graph, prices = ScheduleGraph.of_operators(operators), pricer.price(operators)
            bracket = bracket_s(graph, prices.one_s, prices.all_s, archs.tensor_count, archs.vector_count)
            found[which].seconds[:, column] = bracket.upper_s
            found[which].least_s[:, column] = np.where(bracket.closed, bracket.upper_s, bracket.lower_s)
            open_ += [
                (
                    which,
                    row,
                    column,
                    graph.problem(
                        one_s=prices.one_s[row],
                        all_s=prices.all_s[row],
                        tensor_units=int(archs.tensor_count[row]),
                        vector_units=int(archs.vector_count[row]),
                    ),
                )
                for row in np.flatnonzero(~bracket.closed).tolist()
            ]
    cache.solve_many([problem for *_, problem in open_])
    for which, row, column, problem in open_:
        schedule, values = cache.solve(problem), found[which]
        values.seconds[row, column] = min(values.seconds[row, column], schedule.makespan_s)
        least = max(values.least_s[row, column], schedule.lower_bound_s)
        values.least_s[row, column] = min(least, values.seconds[row, column])
    return found
