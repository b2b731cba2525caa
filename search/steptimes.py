"""Seconds of a workload's layers on every architecture: bounds for all, exact schedules for those that need them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.costmodel import Pricer
from archplace.search.placement.training import ChainSeconds, split_chain
from archplace.search.schedule import ScheduleCache, ScheduleGraph, ScheduleProblem, bracket_s, lower_bound_s
from archplace.workloads import TrainingStep, Workload
from archplace.workloads.operators import Operator, Phase, Unit, VectorWork

BLOCK = 16384
"""Architectures priced at a time: bounds memory at about 100 MB for graphs of some 30 operators."""

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


class StepTimes:
    """The layers of one workload at one tensor-parallel width and microbatch, on all architectures of a space."""

    def __init__(self, step: TrainingStep, optimizer: VectorWork, architectures: Architectures, pricer: Pricer) -> None:
        self.layers = LayerGraphs.of(step)
        self._archs = architectures
        self._pricer = pricer
        self._known: dict[int, tuple[LayerSeconds, LayerSeconds]] = {}
        self._optimizer = Operator(
            name="optimizer",
            unit=Unit.VECTOR,
            phase=Phase.OPTIMIZER,
            vector=optimizer,
        )

    def bounds(self) -> LayerSeconds:
        """Return lower bounds for every architecture."""
        pieces: list[LayerSeconds] = []
        for start in range(0, len(self._archs), BLOCK):
            block = slice(start, min(start + BLOCK, len(self._archs)))
            pricer, archs = self._pricer.subset(block), self._archs.take(block)
            seconds = {}
            for key, graph in self.layers.graphs.items():
                prices = pricer.price(self.layers.operators[key])
                seconds[key] = lower_bound_s(graph, prices.one_s, prices.all_s, archs.tensor_count, archs.vector_count)
            pieces.append(LayerSeconds(seconds=seconds, optimizer_s_per_parameter=self._optimizer_s(pricer)))
        return _join(pieces)

    def brackets(self, indices: NDArray[np.int64]) -> tuple[LayerSeconds, LayerSeconds]:
        """Return seconds that no schedule undercuts and seconds that list schedules reach, for ``indices``."""
        self._bracket(np.array([i for i in indices.tolist() if i not in self._known], dtype=np.int64))
        known = [self._known[i] for i in indices.tolist()]
        return _join([lower for lower, _ in known]), _join([upper for _, upper in known])

    def _bracket(self, indices: NDArray[np.int64]) -> None:
        """Bracket the schedules of new architectures and remember them."""
        if len(indices) == 0:
            return
        pricer, archs = self._pricer.subset(indices), self._archs.take(indices)
        lower, upper = {}, {}
        for key, graph in self.layers.graphs.items():
            prices = pricer.price(self.layers.operators[key])
            found = bracket_s(graph, prices.one_s, prices.all_s, archs.tensor_count, archs.vector_count)
            upper[key] = found.upper_s
            lower[key] = np.where(found.closed, found.upper_s, found.lower_s)
        optimizer = self._optimizer_s(pricer)
        for row, index in enumerate(indices.tolist()):
            at = slice(row, row + 1)
            self._known[index] = (
                LayerSeconds(
                    seconds={key: value[at] for key, value in lower.items()}, optimizer_s_per_parameter=optimizer[at]
                ),
                LayerSeconds(
                    seconds={key: value[at] for key, value in upper.items()}, optimizer_s_per_parameter=optimizer[at]
                ),
            )

    def problems(self, index: int, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], ScheduleProblem]:
        """Return some schedules of one architecture as problems, by kind of layer and direction."""
        indices = np.array([index])
        pricer, archs = self._pricer.subset(indices), self._archs.take(indices)
        found = {}
        for key in keys:
            prices = pricer.price(self.layers.operators[key])
            found[key] = self.layers.graphs[key].problem(
                one_s=prices.one_s[0],
                all_s=prices.all_s[0],
                tensor_units=int(archs.tensor_count[0]),
                vector_units=int(archs.vector_count[0]),
            )
        return found

    def open_problems(self, index: int) -> dict[tuple[str, str], ScheduleProblem]:
        """Return the schedules of one architecture whose brackets are open."""
        lower, upper = self.brackets(np.array([index]))
        return self.problems(index, [key for key in lower.seconds if lower.seconds[key][0] < upper.seconds[key][0]])

    def solved(self, index: int, cache: ScheduleCache) -> tuple[LayerSeconds, LayerSeconds]:
        """Return the same for one architecture, open brackets closed if the cache's time limit allows."""
        lower, upper = self.brackets(np.array([index]))
        best, least = dict(upper.seconds), dict(lower.seconds)
        for key, problem in self.open_problems(index).items():
            schedule = cache.solve(problem)
            best[key] = np.minimum(best[key], schedule.makespan_s)
            least[key] = np.minimum(np.maximum(least[key], schedule.lower_bound_s), best[key])
        return replace(lower, seconds=least), replace(upper, seconds=best)

    def _optimizer_s(self, pricer: Pricer) -> FloatArray:
        return pricer.price([self._optimizer]).all_s[:, 0] / OPTIMIZER_PARAMETERS


def _join(pieces: Sequence[LayerSeconds]) -> LayerSeconds:
    keys = pieces[0].seconds
    return LayerSeconds(
        seconds={key: np.concatenate([piece.seconds[key] for piece in pieces]) for key in keys},
        optimizer_s_per_parameter=np.concatenate([piece.optimizer_s_per_parameter for piece in pieces]),
    )


def refusals(workload: Workload, widths: Sequence[int], microbatches: Sequence[int]) -> dict[tuple[int, int], str]:
    """Return the reason why each (tensor-parallel width, microbatch) is impossible; possible ones are absent."""
    found = {}
    for width in widths:
        for microbatch in microbatches:
            reason = workload.refusal(tensor_parallel=width, microbatch=microbatch)
            if reason is not None:
                found[width, microbatch] = reason
    return found
