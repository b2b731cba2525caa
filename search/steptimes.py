"""Seconds of a workload's layers on every architecture: bounds for all, exact schedules for those that need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.costmodel import Pricer
from archplace.search.placement.training import ChainSeconds, split_chain
from archplace.search.schedule import ScheduleCache, ScheduleGraph, list_makespan_s, lower_bound_s
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
    gap: NDArray[np.bool_]
    """Whether a schedule behind these seconds is not proven optimal (always false for bounds)."""

    def chain(self, *, recompute: bool) -> ChainSeconds:
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
        self._optimizer = Operator(
            name="optimizer",
            unit=Unit.VECTOR,
            phase=Phase.OPTIMIZER,
            vector=optimizer,
        )

    def bounds(self) -> LayerSeconds:
        """Return lower bounds for every architecture."""
        return self._seconds(None, upper=False)

    def bounds_at(self, indices: NDArray[np.int64]) -> tuple[LayerSeconds, LayerSeconds]:
        """Return lower bounds and list-schedule seconds for the architectures at ``indices``."""
        return self._seconds(indices, upper=False), self._seconds(indices, upper=True)

    def exact(self, indices: NDArray[np.int64], cache: ScheduleCache) -> LayerSeconds:
        """Return the seconds of optimal schedules for the architectures at ``indices``.

        Where bound and list schedule meet, that is the optimum; where they do not, ``cache`` knows or a solver closes
        it.
        """
        pricer, archs = self._pricer.subset(indices), self._archs.take(indices)
        gap = np.zeros(len(indices), dtype=np.bool_)
        seconds = {}
        for key, graph in self.layers.graphs.items():
            prices = pricer.price(self.layers.operators[key])
            low = lower_bound_s(graph, prices.one_s, prices.all_s, archs.tensor_count, archs.vector_count)
            high = list_makespan_s(graph, prices.one_s, prices.all_s, archs.tensor_count, archs.vector_count)
            value = high.copy()
            for i in np.flatnonzero(high > low * (1 + 1e-9)).tolist():
                problem = graph.problem(
                    tensor_units=int(archs.tensor_count[i]),
                    vector_units=int(archs.vector_count[i]),
                    one_s=prices.one_s[i],
                    all_s=prices.all_s[i],
                )
                schedule = cache.solve(problem)
                value[i] = schedule.makespan_s
                gap[i] |= schedule.status != "optimal"
            seconds[key] = value
        return LayerSeconds(seconds=seconds, optimizer_s_per_parameter=self._optimizer_s(pricer), gap=gap)

    def _optimizer_s(self, pricer: Pricer) -> FloatArray:
        return pricer.price([self._optimizer]).all_s[:, 0] / OPTIMIZER_PARAMETERS

    def _seconds(self, indices: NDArray[np.int64] | None, *, upper: bool) -> LayerSeconds:
        chosen = np.arange(len(self._archs)) if indices is None else indices
        bound = list_makespan_s if upper else lower_bound_s
        pieces: list[LayerSeconds] = []
        for start in range(0, len(chosen), BLOCK):
            block = chosen[start : start + BLOCK]
            pricer, archs = self._pricer.subset(block), self._archs.take(block)
            seconds = {}
            for key, graph in self.layers.graphs.items():
                prices = pricer.price(self.layers.operators[key])
                seconds[key] = bound(graph, prices.one_s, prices.all_s, archs.tensor_count, archs.vector_count)
            pieces.append(
                LayerSeconds(
                    seconds=seconds,
                    optimizer_s_per_parameter=self._optimizer_s(pricer),
                    gap=np.zeros(len(block), dtype=np.bool_),
                )
            )
        return _join(pieces)


def _join(pieces: Sequence[LayerSeconds]) -> LayerSeconds:
    keys = pieces[0].seconds
    return LayerSeconds(
        seconds={key: np.concatenate([piece.seconds[key] for piece in pieces]) for key in keys},
        optimizer_s_per_parameter=np.concatenate([piece.optimizer_s_per_parameter for piece in pieces]),
        gap=np.concatenate([piece.gap for piece in pieces]),
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
