"""Seconds of a workload's layers on every architecture: bounds for all, exact schedules for those that need them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.technology import Technology
from archplace.costmodel import OperatorPrices, Pricer, operator_energy_j
from archplace.costmodel.network import Group
from archplace.search.schedule import ScheduleCache, ScheduleGraph, ScheduleProblem, bracket_s, lower_bound_s
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Pass, operators_of
from archplace.workloads import Axis, TrainingStep
from archplace.workloads.operators import Operator, Phase, Unit, VectorWork

ROUNDING = 1e-12
"""Relative share that a bound gives away for the order in which it adds."""

Prices = Callable[[NDArray[np.int64]], tuple[Architectures, Pricer]]
"""What makes architectures and their pricer from indices."""

Key = tuple[Pass, int]
"""A pass over the layer of one kind, by its place in the chain."""

OPTIMIZER_PARAMETERS = 1 << 20
"""Size at which the optimizer step is priced; its seconds are proportional to the parameters beyond some thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraphs:
    """The operator graphs of passes over one step's layers, with what the scheduler needs of them."""

    step: TrainingStep
    passes: tuple[Pass, ...]
    operators: Mapping[Key, tuple[Operator, ...]]
    """Of those that have any."""
    graphs: Mapping[Key, ScheduleGraph]

    @classmethod
    def of(cls, step: TrainingStep, passes: Sequence[Pass]) -> "LayerGraphs":
        """Build the graphs of ``step``."""
        operators = {
            (which, kind): listed
            for which in passes
            for kind, (layer, _) in enumerate(step.layers)
            if (listed := operators_of(layer, which))
        }
        graphs = {key: ScheduleGraph.of_operators(listed) for key, listed in operators.items()}
        return cls(step=step, passes=tuple(passes), operators=operators, graphs=graphs)

    def seconds(self, found: Mapping[Key, FloatArray], optimizer_s_per_parameter: FloatArray) -> LayerSeconds:
        """Return the seconds of all graphs, ``(n,)`` each, as one table; 0 where a pass has no operators."""
        shape = (len(optimizer_s_per_parameter), len(self.step.layers))
        passes = {which: np.zeros(shape) for which in self.passes}
        for (which, kind), values in found.items():
            passes[which][:, kind] = values
        return LayerSeconds(passes=passes, optimizer_s_per_parameter=optimizer_s_per_parameter)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerJoules:
    """Dynamic joules of the passes over each kind of layer for one microbatch on one device, ``(n_archs, S)`` each."""

    passes: Mapping[Pass, FloatArray]

    def take(self, rows: NDArray[np.intp]) -> "LayerJoules":
        """Return some of the architectures."""
        return LayerJoules(passes={which: values[rows] for which, values in self.passes.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracketed:
    """The schedules of one architecture's layers: what they cannot undercut, what they reach, and what is open."""

    lower: Mapping[Key, float]
    upper: Mapping[Key, float]
    optimizer_s_per_parameter: float
    problems: Mapping[Key, ScheduleProblem]
    """The schedules that the two do not settle."""


def optimizer_operator(work: VectorWork) -> Operator:
    """Return the optimizer step as an operator."""
    return Operator(name="optimizer", unit=Unit.VECTOR, phase=Phase.OPTIMIZER, vector=work)


class StepTimes:
    """The passes over the layers of one workload, shared and laid out in one way, on any architectures."""

    def __init__(
        self, step: TrainingStep, passes: Sequence[Pass], groups: Mapping[Axis, Group], optimizer: VectorWork
    ) -> None:
        self.layers = LayerGraphs.of(step, passes)
        self.groups = dict(groups)
        self._known: dict[int, Bracketed] = {}
        self._optimizer = optimizer_operator(optimizer)

    def work_bounds(self, architectures: Architectures, pricer: Pricer) -> LayerSeconds:
        """Return cheap lower bounds, looser than :meth:`bounds`: the larger of work and path.

        *Work*: no kind of unit finishes its operators before all its units are busy. *Path*: no chain of operators ends
        before each has run in its faster mode. ``pricer`` prices ``architectures``.
        """
        pricer = pricer.in_groups(self.groups)
        seconds = {}
        for key, operators in self.layers.operators.items():
            prices = pricer.price(operators)
            kinds = [
                (architectures.tensor_count, (Unit.TENSOR, Unit.FUSED)),
                (architectures.vector_count, (Unit.VECTOR, Unit.FUSED)),
                (np.ones_like(architectures.tensor_count), (Unit.NETWORK,)),
            ]
            least = self._path_s(key, prices)
            for count, units in kinds:
                at = [i for i, operator in enumerate(operators) if operator.unit in units]
                if at:
                    # Of a unit's time: all units for the one duration, or one of them for the other.
                    each = np.minimum(prices.all_s[:, at], prices.one_s[:, at] / count[:, None])
                    np.maximum(least, _row_sums(each), out=least)
            seconds[key] = least * (1 - ROUNDING)
        found = self.layers.seconds(seconds, self._optimizer_s(pricer))
        return LayerSeconds.at_least(found.passes, found.optimizer_s_per_parameter)

    def _path_s(self, key: Key, prices: OperatorPrices) -> FloatArray:
        """Return the seconds of the longest path, each operator in its faster mode, ``(n_archs,)``."""
        graph = self.layers.graphs[key]
        fastest = np.minimum(prices.one_s, prices.all_s).T.copy()
        ends = np.zeros_like(fastest)
        earlier: dict[int, list[int]] = {}
        for before, after in graph.reduced_edges.tolist():
            earlier.setdefault(after, []).append(before)
        for i in graph.order.tolist():
            if i in earlier:
                ends[i] = ends[earlier[i]].max(axis=0)
            ends[i] += fastest[i]
        longest: FloatArray = ends.max(axis=0, initial=0.0)
        return longest

    def bounds(self, architectures: Architectures, pricer: Pricer) -> LayerSeconds:
        """Return lower bounds for every architecture, which ``pricer`` prices."""
        pricer = pricer.in_groups(self.groups)
        seconds = {}
        for key, graph in self.layers.graphs.items():
            prices = pricer.price(self.layers.operators[key])
            seconds[key] = lower_bound_s(
                graph, prices.one_s, prices.all_s, architectures.tensor_count, architectures.vector_count
            )
        found = self.layers.seconds(seconds, self._optimizer_s(pricer))
        return LayerSeconds.at_least(found.passes, found.optimizer_s_per_parameter)

    def joules(self, pricer: Pricer, technology: Technology) -> LayerJoules:
        """Return the dynamic energy of the passes over each kind of layer on every architecture.

        Gradients of inputs and of weights apart take what they take together.
        """
        pricer = pricer.in_groups(self.groups)
        shape = (len(pricer.architectures), len(self.layers.step.layers))
        passes = {}
        for which in (Pass.FORWARD, Pass.BACKWARD, Pass.SELECTIVE_REPLAY, Pass.FULL_REPLAY):
            passes[which] = np.zeros(shape)
            for kind, (layer, _) in enumerate(self.layers.step.layers):
                if operators := operators_of(layer, which):
                    passes[which][:, kind] = _row_sums(operator_energy_j(pricer, operators, technology))
        return LayerJoules(passes=passes)

    def brackets(self, indices: NDArray[np.int64], price: Prices) -> tuple[LayerSeconds, LayerSeconds]:
        """Return seconds that no schedule undercuts and seconds that list schedules reach, for ``indices``.

        ``price`` makes architectures and pricer for those indices that are new.
        """
        new = np.array([i for i in indices.tolist() if i not in self._known], dtype=np.int64)
        if len(new):
            self._bracket(new, *price(new))
        known = [self._known[i] for i in indices.tolist()]
        return self._tables([one.lower for one in known], [one.upper for one in known], known)

    def _tables(
        self, lower: Sequence[Mapping[Key, float]], upper: Sequence[Mapping[Key, float]], known: Sequence[Bracketed]
    ) -> tuple[LayerSeconds, LayerSeconds]:
        """Return single architectures' seconds as two tables, the first with the second as its upper limits."""
        optimizer_s = np.array([one.optimizer_s_per_parameter for one in known])
        low, high = (
            self.layers.seconds(
                {key: np.array([each[key] for each in seconds]) for key in self.layers.graphs}, optimizer_s
            )
            for seconds in (lower, upper)
        )
        return replace(low, most=high.passes), high

    def _bracket(self, indices: NDArray[np.int64], archs: Architectures, pricer: Pricer) -> None:
        """Bracket the schedules of new architectures and remember them."""
        pricer = pricer.in_groups(self.groups)
        lower, upper = {}, {}
        problems: list[dict[Key, ScheduleProblem]] = [{} for _ in indices]
        for key, graph in self.layers.graphs.items():
            prices = pricer.price(self.layers.operators[key])
            found = bracket_s(graph, prices.one_s, prices.all_s, archs.tensor_count, archs.vector_count)
            upper[key] = found.upper_s
            lower[key] = np.where(found.closed, found.upper_s, found.lower_s)
            for row in np.flatnonzero(lower[key] < upper[key]).tolist():
                problems[row][key] = graph.problem(
                    one_s=prices.one_s[row].copy(),
                    all_s=prices.all_s[row].copy(),
                    tensor_units=int(archs.tensor_count[row]),
                    vector_units=int(archs.vector_count[row]),
                )
        optimizer = self._optimizer_s(pricer)
        for row, index in enumerate(indices.tolist()):
            self._known[index] = Bracketed(
                lower={key: float(values[row]) for key, values in lower.items()},
                upper={key: float(values[row]) for key, values in upper.items()},
                optimizer_s_per_parameter=float(optimizer[row]),
                problems=problems[row],
            )

    def open_problems(self, index: int) -> Mapping[Key, ScheduleProblem]:
        """Return the schedules of one architecture whose brackets, which must be known, are open."""
        return self._known[index].problems

    def solved(self, index: int, cache: ScheduleCache) -> tuple[LayerSeconds, LayerSeconds]:
        """Return the brackets of one architecture, open ones closed if the cache's time limit allows.

        The brackets must be known.
        """
        known = self._known[index]
        best, least = dict(known.upper), dict(known.lower)
        for key, problem in known.problems.items():
            schedule = cache.solve(problem)
            best[key] = min(best[key], schedule.makespan_s)
            least[key] = min(max(least[key], schedule.lower_bound_s), best[key])
        return self._tables([least], [best], [known])

    def forget(self) -> None:
        """Drop what is known of single architectures."""
        self._known.clear()

    def _optimizer_s(self, pricer: Pricer) -> FloatArray:
        return pricer.price([self._optimizer]).all_s[:, 0] / OPTIMIZER_PARAMETERS


def _row_sums(values: FloatArray) -> FloatArray:
    """Return the sums over operators, ``(n_archs,)``, added in their order whatever the number of architectures.

    NumPy's own sums may round differently for one row and for many: the same question must have the same answer.
    """
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    return total
