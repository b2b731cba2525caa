"""What the time of a pass over a layer is spent on: its operators in the schedule, each with what it waits for."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.costmodel import Pricer
from archplace.search.schedule import Mode, ScheduleCache, ScheduleGraph
from archplace.workloads import Axis, Operator, Unit

COMPUTE_PARTS = ("tensor compute", "vector compute", "on-chip memory", "HBM", "fill and drain")
"""What an operator on the units of one device waits for."""

EXCHANGE_PARTS = {
    Axis.TENSOR: "tensor-parallel communication",
    Axis.CONTEXT: "context-parallel communication",
    Axis.EXPERT: "expert-parallel communication",
    Axis.EXPERT_TENSOR: "expert-parallel communication",
}
"""What an exchange between the devices of one layer counts as."""

_OF_FIELD = {
    "array_s": "tensor compute",
    "lanes_s": "vector compute",
    "local_port_s": "on-chip memory",
    "global_port_s": "on-chip memory",
    "hbm_s": "HBM",
}
_NETWORK_UNIT = Unit.NETWORK.value


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorBar:
    """One operator of a schedule, for a Gantt chart."""

    name: str
    unit: str
    """``tensor``, ``vector``, ``fused`` or ``network``."""
    phase: str
    start_s: float
    duration_s: float
    all_units: bool
    bound_by: str
    """What its time is mostly spent on: one of :data:`COMPUTE_PARTS` or :data:`EXCHANGE_PARTS`."""


def bars_of(
    graph: ScheduleGraph, operators: Sequence[Operator], pricer: Pricer, cache: ScheduleCache
) -> list[tuple[OperatorBar, ...]]:
    """Return the best schedule of ``operators``, whose graph is ``graph``, on every architecture of ``pricer``."""
    archs = pricer.architectures
    prices = pricer.price(operators)
    tensor_units, vector_units = archs.tensor_count.tolist(), archs.vector_count.tolist()
    problems = [
        graph.problem(
            one_s=prices.one_s[row],
            all_s=prices.all_s[row],
            tensor_units=tensor_units[row],
            vector_units=vector_units[row],
        )
        for row in range(len(archs))
    ]
    cache.solve_many(problems)
    binding = [
        (_binding(pricer, operator, one_unit=True), _binding(pricer, operator, one_unit=False))
        for operator in operators
    ]
    columns = [(operator.name, operator.unit.value, operator.phase.value) for operator in operators]
    found = []
    for row, problem in enumerate(problems):
        schedule = cache.solve(problem)
        one_s, all_s = prices.one_s[row].tolist(), prices.all_s[row].tolist()
        starts, modes = schedule.start_s.tolist(), schedule.mode.tolist()
        bars = []
        for i, (name, unit, phase) in enumerate(columns):
            all_units = unit != _NETWORK_UNIT and modes[i] == Mode.ALL
            bars.append(
                OperatorBar(
                    name=name,
                    unit=unit,
                    phase=phase,
                    start_s=starts[i],
                    duration_s=all_s[i] if all_units else one_s[i],
                    all_units=all_units,
                    bound_by=binding[i][all_units][row],
                )
            )
        found.append(tuple(bars))
    return found


def _binding(pricer: Pricer, operator: Operator, *, one_unit: bool) -> list[str]:
    """Return what an operator waits for on every architecture."""
    count = len(pricer.architectures)
    if operator.collective is not None:
        return [EXCHANGE_PARTS[operator.collective.axis]] * count
    parts = pricer.parts(operator, one_unit=one_unit)
    overlapped = np.array([np.broadcast_to(getattr(parts, name), count) for name in _OF_FIELD])
    names = list(_OF_FIELD.values())
    longest = overlapped.argmax(axis=0)
    filling = np.broadcast_to(parts.fill_s + parts.first_load_s, count) > overlapped[longest, np.arange(count)]
    return [
        "fill and drain" if fills else names[i] for i, fills in zip(longest.tolist(), filling.tolist(), strict=True)
    ]


def attribute(bars: Sequence[OperatorBar]) -> dict[str, float]:
    """Split a schedule's makespan by what it is spent on; parts that take nothing are left out.

    Each moment goes to the running compute operator that started first, or, where only exchanges run, to the first of
    those.
    """
    seconds: dict[str, float] = {}
    times = sorted({bar.start_s for bar in bars} | {bar.start_s + bar.duration_s for bar in bars})
    for begin, end in itertools.pairwise(times):
        middle = (begin + end) / 2
        running = [bar for bar in bars if bar.start_s <= middle < bar.start_s + bar.duration_s]
        compute = [bar for bar in running if bar.unit != _NETWORK_UNIT]
        if compute or running:
            part = min(compute or running, key=lambda bar: bar.start_s).bound_by
            seconds[part] = seconds.get(part, 0.0) + (end - begin)
    return seconds
