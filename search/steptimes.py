"""Seconds of a workload's layers on every architecture: bounds for all, exact schedules for those that need them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.technology import Technology
from archplace.costmodel import OperatorPrices, Pricer, operator_energy_j
from archplace.search.placement.training import ChainSeconds, split_chain
from archplace.search.schedule import ScheduleCache, ScheduleGraph, ScheduleProblem, bracket_s, lower_bound_s
from archplace.workloads import LayerSharding, TrainingStep, Workload
from archplace.workloads.operators import Operator, Phase, Unit, VectorWork

ROUNDING = 1e-12
"""Relative share that a bound gives away for the order in which it adds."""

Prices = Callable[[NDArray[np.int64]], tuple[Architectures, Pricer]]
"""What makes architectures and their pricer from indices."""

LAYERS = ("first", "block", "last")
"""The kinds of layer of a chain, in the order of :func:`split_chain`."""

OPTIMIZER_PARAMETERS = 1 << 20
"""Size at which the optimizer step is priced; its seconds are proportional to the parameters beyond some thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraphs:
    """The operator graphs of one step's layers, with what the scheduler needs of them."""

    step: TrainingStep
    operators: Mapping[tuple[str, str], tuple[Operator, ...]]
    """By (kind of layer, ``forward`` or ``backward``)."""
    graphs: Mapping[tuple[str, str], ScheduleGraph]

    @classmethod
    def of(cls, step: TrainingStep) -> "LayerGraphs":
        """Build the graphs of ``step``."""
        first, block, _, last = split_chain(step)
        operators = {
            (name, direction): getattr(layer, direction)
            for name, layer in zip(LAYERS, (first, block, last), strict=True)
            for direction in ("forward", "backward")
        }
        graphs = {key: ScheduleGraph.of_operators(listed) for key, listed in operators.items()}
        return cls(step=step, operators=operators, graphs=graphs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeconds:
    """Forward and backward seconds of the three kinds of layer, ``(n_archs,)`` each, without recomputation."""

    seconds: Mapping[tuple[str, str], FloatArray]
    optimizer_s_per_parameter: FloatArray

    @classmethod
    def join(cls, pieces: Sequence["LayerSeconds"]) -> "LayerSeconds":
        """Return several tables of architectures as one."""
        return cls(
            seconds={key: np.concatenate([piece.seconds[key] for piece in pieces]) for key in pieces[0].seconds},
            optimizer_s_per_parameter=np.concatenate([piece.optimizer_s_per_parameter for piece in pieces]),
        )

    def chain(self, *, recompute: bool) -> ChainSeconds[FloatArray]:
        """Return the seconds per layer and microbatch; with ``recompute`` the blocks' forward pass counts twice."""
        total = {name: self.seconds[name, "forward"] + self.seconds[name, "backward"] for name in LAYERS}
        block = total["block"] + self.seconds["block", "forward"] if recompute else total["block"]
        return ChainSeconds(
            first_s=total["first"],
            block_s=block,
            last_s=total["last"],
            optimizer_s_per_parameter=self.optimizer_s_per_parameter,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerJoules:
    """Dynamic joules of the three kinds of layer for one microbatch on one device, ``(n_archs,)`` each."""

    joules: Mapping[tuple[str, str], FloatArray]

    def step_j(self, step: TrainingStep, *, microbatches: int, recompute: bool) -> FloatArray:
        """Return the dynamic joules of all microbatches of a step on all devices, ``(n_archs,)``.

        Every microbatch passes every layer, on ``tensor_parallel`` devices each.
        """
        _, _, n_blocks, _ = split_chain(step)
        each = {name: self.joules[name, "forward"] + self.joules[name, "backward"] for name in LAYERS}
        inner = each["block"] + (self.joules["block", "forward"] if recompute else 0.0)
        total: FloatArray = step.tensor_parallel * microbatches * (each["first"] + n_blocks * inner + each["last"])
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracketed:
    """The schedules of one architecture's layers: what they cannot undercut, what they reach, and what is open."""

    lower: LayerSeconds
    """Tables of one row."""
    upper: LayerSeconds
    problems: Mapping[tuple[str, str], ScheduleProblem]
    """The schedules that the two do not settle, by kind of layer and direction."""


def optimizer_operator(work: VectorWork) -> Operator:
    """Return the optimizer step as an operator."""
    return Operator(name="optimizer", unit=Unit.VECTOR, phase=Phase.OPTIMIZER, vector=work)


class StepTimes:
    """The layers of one workload at one tensor-parallel width and microbatch, on any architectures."""

    def __init__(self, step: TrainingStep, optimizer: VectorWork) -> None:
        self.layers = LayerGraphs.of(step)
        self._known: dict[int, Bracketed] = {}
        self._optimizer = optimizer_operator(optimizer)

    def work_bounds(self, architectures: Architectures, pricer: Pricer) -> LayerSeconds:
        """Return cheap lower bounds, looser than :meth:`bounds`: the larger of work and path.

        *Work*: no kind of unit finishes its operators before all its units are busy. *Path*: no chain of operators ends
        before each has run in its faster mode. ``pricer`` prices ``architectures``.
        """
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
        return LayerSeconds(seconds=seconds, optimizer_s_per_parameter=self._optimizer_s(pricer))

    def _path_s(self, key: tuple[str, str], prices: OperatorPrices) -> FloatArray:
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
        seconds = {}
        for key, graph in self.layers.graphs.items():
            prices = pricer.price(self.layers.operators[key])
            seconds[key] = lower_bound_s(
                graph, prices.one_s, prices.all_s, architectures.tensor_count, architectures.vector_count
            )
        return LayerSeconds(seconds=seconds, optimizer_s_per_parameter=self._optimizer_s(pricer))

    def joules(self, pricer: Pricer, technology: Technology) -> LayerJoules:
        """Return the dynamic energy of each kind of layer on every architecture."""
        return LayerJoules(
            joules={
                key: _row_sums(operator_energy_j(pricer, operators, technology))
                for key, operators in self.layers.operators.items()
            }
        )

    def brackets(self, indices: NDArray[np.int64], price: Prices) -> tuple[LayerSeconds, LayerSeconds]:
        """Return seconds that no schedule undercuts and seconds that list schedules reach, for ``indices``.

        ``price`` makes architectures and pricer for those indices that are new.
        """
        new = np.array([i for i in indices.tolist() if i not in self._known], dtype=np.int64)
        if len(new):
            self._bracket(new, *price(new))
        known = [self._known[i] for i in indices.tolist()]
        return LayerSeconds.join([one.lower for one in known]), LayerSeconds.join([one.upper for one in known])

    def _bracket(self, indices: NDArray[np.int64], archs: Architectures, pricer: Pricer) -> None:
        """Bracket the schedules of new architectures and remember them."""
        lower, upper = {}, {}
        problems: list[dict[tuple[str, str], ScheduleProblem]] = [{} for _ in indices]
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
            at = slice(row, row + 1)
            low, high = (
                LayerSeconds(
                    seconds={key: value[at] for key, value in side.items()}, optimizer_s_per_parameter=optimizer[at]
                )
                for side in (lower, upper)
            )
            self._known[index] = Bracketed(lower=low, upper=high, problems=problems[row])

    def open_problems(self, index: int) -> Mapping[tuple[str, str], ScheduleProblem]:
        """Return the schedules of one architecture whose brackets, which must be known, are open."""
        return self._known[index].problems

    def solved(self, index: int, cache: ScheduleCache) -> tuple[LayerSeconds, LayerSeconds]:
        """Return the brackets of one architecture, open ones closed if the cache's time limit allows.

        The brackets must be known.
        """
        known = self._known[index]
        best, least = dict(known.upper.seconds), dict(known.lower.seconds)
        for key, problem in known.problems.items():
            schedule = cache.solve(problem)
            best[key] = np.minimum(best[key], schedule.makespan_s)
            least[key] = np.minimum(np.maximum(least[key], schedule.lower_bound_s), best[key])
        return replace(known.lower, seconds=least), replace(known.upper, seconds=best)

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


def refusals(workload: Workload, widths: Sequence[int], microbatches: Sequence[int]) -> dict[tuple[int, int], str]:
    """Return the reason why each (tensor-parallel width, microbatch) is impossible; possible ones are absent.

    The search of accelerators lays out chains of an embedding, blocks of one kind, and a head.
    """
    kinds = workload.model.blocks
    if len(kinds) > 1:
        names = ", ".join(f"{block.count} × {block.name}" for block in kinds)
        several = (
            f"{workload.model.name} has {len(kinds)} kinds of blocks ({names}); the search of accelerators places "
            "models of one kind"
        )
        return {(width, microbatch): several for width in widths for microbatch in microbatches}
    found = {}
    for width in widths:
        for microbatch in microbatches:
            reason = workload.refusal(LayerSharding(tensor=width, microbatch=microbatch))
            if reason is not None:
                found[width, microbatch] = reason
    return found
