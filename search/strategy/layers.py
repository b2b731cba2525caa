"""Seconds of the passes over each kind of layer: exact schedules of their operator graphs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

import numpy as np

from archplace.costmodel import Pricer
from archplace.search.pipeline import SPLIT_BACKWARD, PipelineSchedule
from archplace.search.schedule import ScheduleCache, ScheduleGraph, ScheduleProblem, bracket_s, lower_bound_s
from archplace.search.strategy.chain import FloatArray
from archplace.workloads import Collective, Layer, Operator, Phase, Recompute


class Pass(StrEnum):
    """What a device executes of a layer without interruption."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """Gradients of inputs and of weights together."""
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    SELECTIVE_REPLAY = "selective_replay"
    """What selective recomputation runs again before the backward pass."""
    FULL_REPLAY = "full_replay"
    """The same of full recomputation that stops early; nothing of layers whose recomputation does not."""
    PAIR = "pair"
    """The forward pass of one microbatch together with the backward pass of another: what one exchanges runs behind
    what the other computes (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1)."""


def needed_passes(schedules: Iterable[tuple[PipelineSchedule, int]], policies: Iterable[Recompute]) -> tuple[Pass, ...]:
    """Return the passes that these schedules, with their virtual stages, and policies are made of."""
    names = {schedule for schedule, _ in schedules}
    passes = [Pass.FORWARD, Pass.BACKWARD]
    passes += [Pass.SELECTIVE_REPLAY] * (Recompute.SELECTIVE in policies)
    passes += [Pass.FULL_REPLAY] * (Recompute.FULL in policies)
    passes += [Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT] * bool(names & SPLIT_BACKWARD)
    passes += [Pass.PAIR] * (PipelineSchedule.DUALPIPE in names)
    return tuple(passes)


def operators_of(layer: Layer, which: Pass) -> tuple[Operator, ...]:
    """Return the operators of one pass over ``layer``, each after its inputs; empty where there is nothing to do."""
    if which is Pass.FORWARD:
        return layer.forward
    if which is Pass.BACKWARD:
        return layer.backward
    if which in (Pass.SELECTIVE_REPLAY, Pass.FULL_REPLAY):
        again = set(layer.selective_replay if which is Pass.SELECTIVE_REPLAY else layer.full_replay)
        return _part(operator for operator in layer.forward if operator.name in again)
    if which is Pass.PAIR:
        return (*_named(layer.forward, "forward."), *_named(layer.backward, "backward."))
    of_weights = which is Pass.WEIGHT_GRADIENT
    return _part(operator for operator in layer.backward if (operator.phase is Phase.WEIGHT_GRADIENT) == of_weights)


def replay_of(policy: Recompute, layer: Layer) -> Pass | None:
    """Return what the backward pass runs again of a layer that is recomputed so, or None."""
    if policy is Recompute.FULL:
        return Pass.FULL_REPLAY if layer.full_replay else Pass.FORWARD
    return Pass.SELECTIVE_REPLAY if policy is Recompute.SELECTIVE else None


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


class Exchanges(Protocol):
    """Prices what the devices of a layer exchange."""

    def __call__(self, collective: Collective) -> float:
        """Return the seconds of one collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    """One pass over one layer: seconds on one unit and on all, ``(n_archs, n_ops)``, exchanges left open."""

    which: Pass
    column: int
    graph: ScheduleGraph
    one_s: FloatArray
    all_s: FloatArray
    collectives: tuple[tuple[int, Collective], ...]
    """By the place of the operator."""

    def priced(self, exchanges: Exchanges) -> tuple[FloatArray, FloatArray]:
        """Return the seconds with those of the exchanges."""
        if not self.collectives:
            return self.one_s, self.all_s
        one_s, all_s = self.one_s.copy(), self.all_s.copy()
        for i, collective in self.collectives:
            one_s[:, i] = all_s[:, i] = exchanges(collective)
        return one_s, all_s


class PassGraphs:
    """The operator graphs of ``passes`` over each of ``layers``, with what their computing takes.

    What is exchanged is priced on demand: the same layers may lie in the network in several ways.
    """

    def __init__(self, layers: Sequence[Layer], passes: Sequence[Pass], pricer: Pricer) -> None:
        self._archs = pricer.architectures
        self._passes = tuple(passes)
        self._shape = (len(self._archs), len(layers))
        self._graphs = [
            self._graph(which, column, operators, pricer)
            for which in passes
            for column, layer in enumerate(layers)
            if (operators := operators_of(layer, which))
        ]

    def _graph(self, which: Pass, column: int, operators: Sequence[Operator], pricer: Pricer) -> _Graph:
        shape = (self._shape[0], len(operators))
        one_s, all_s = np.zeros(shape), np.zeros(shape)
        inside = [i for i, operator in enumerate(operators) if operator.collective is None]
        prices = pricer.price([operators[i] for i in inside])
        one_s[:, inside], all_s[:, inside] = prices.one_s, prices.all_s
        return _Graph(
            which=which,
            column=column,
            graph=ScheduleGraph.of_operators(operators),
            one_s=one_s,
            all_s=all_s,
            collectives=tuple((i, each.collective) for i, each in enumerate(operators) if each.collective is not None),
        )

    def least_s(self, exchanges: Sequence[Exchanges]) -> list[Mapping[Pass, FloatArray]]:
        """Return what no schedule undercuts, ``(n_archs, S)`` each, sooner than :meth:`seconds` and less sharp.

        For each of ``exchanges``: bounds of several cost hardly more than those of one.
        """
        n_archs = self._shape[0]
        shape = (len(exchanges), *self._shape)
        found = {which: np.zeros(shape) for which in self._passes}
        counts = [np.tile(each, len(exchanges)) for each in (self._archs.tensor_count, self._archs.vector_count)]
        for each in self._graphs:
            priced = [each.priced(one) for one in exchanges] if each.collectives else [(each.one_s, each.all_s)]
            one_s, all_s = (np.concatenate(tables) for tables in zip(*priced, strict=True))
            bounds_s = lower_bound_s(each.graph, one_s, all_s, *(count[: len(one_s)] for count in counts))
            found[each.which][:, :, each.column] = bounds_s.reshape(-1, n_archs)
        return [{which: values[i] for which, values in found.items()} for i in range(len(exchanges))]

    def seconds(self, exchanges: Exchanges, cache: ScheduleCache) -> Mapping[Pass, FloatArray]:
        """Return what the best schedules take, ``(n_archs, S)`` each.

        Those that bound and list schedule do not settle are solved, with what ``cache`` knows.
        """
        archs = self._archs
        found = {which: np.zeros(self._shape) for which in self._passes}
        open_: list[tuple[_Graph, int, ScheduleProblem]] = []
        for each in self._graphs:
            one_s, all_s = each.priced(exchanges)
            bracket = bracket_s(each.graph, one_s, all_s, archs.tensor_count, archs.vector_count)
            found[each.which][:, each.column] = bracket.upper_s
            for row in np.flatnonzero(~bracket.closed).tolist():
                problem = each.graph.problem(
                    one_s=one_s[row],
                    all_s=all_s[row],
                    tensor_units=int(archs.tensor_count[row]),
                    vector_units=int(archs.vector_count[row]),
                )
                open_.append((each, row, problem))
        cache.solve_many([problem for *_, problem in open_])
        for each, row, problem in open_:
            values = found[each.which]
            values[row, each.column] = min(values[row, each.column], cache.solve(problem).makespan_s)
        return found
