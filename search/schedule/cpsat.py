"""The schedule as a constraint program, solved by CP-SAT (OR-tools).

Problem
    Operators run on one unit of their kind or on all units, a collective on the network; precedence holds; the last
    end is to be as early as possible (:class:`~archplace.search.schedule.problem.ScheduleProblem`).
Variables
    ``start[i]``, and for an operator with both modes ``all[i]``: it runs on all units. One optional interval per mode.
Constraints
    1. ``start[j] >= end[i]`` for every edge (i, j).
    2. Tensor units: intervals in mode ONE of tensor and fused operators take 1 of ``tensor_units``; every interval in
       mode ALL, of whatever kind, takes all of them. 3. Vector units: the same. Together: nothing overlaps mode ALL.
    4. Collectives do not overlap each other. 5. A fused operator needs the same index on both sides. Where fused
    operators share units with others, capacities 2 and 3 are only a relaxation; its solution
       is kept if units can be assigned to it, otherwise the model is solved again with a unit chosen per operator.
Objective
    Minimise the makespan, which is at least the bound handed in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from archplace.search.schedule._times import assign_units, order_by_start, schedule_in_order
from archplace.search.schedule.problem import PROOF_TOLERANCE, Mode, Schedule, ScheduleProblem, with_bound

_TICKS = 2.0**36
"""Ticks of the horizon when durations are not integers: rounding 50 operators costs less than 1e-9 of the makespan."""
_DETERMINISTIC_SHARE = 0.2
"""CP-SAT's unit of deterministic time took 2 to 10 s of a core on graphs of 20 to 30 operators; most often 5."""


def solve_cpsat(
    problem: ScheduleProblem, *, hint: Schedule, lower_bound_s: float = 0.0, time_limit_s: float = 1.0
) -> Schedule:
    """The best schedule found, and the bound proven, within ``time_limit_s``.

    ``problem`` must be canonical. ``hint`` is a valid schedule to start from (and returned when nothing better turns
    up); its makespan bounds the horizon. The limit is on CP-SAT's deterministic time, so that the same problem gives
    the same schedule on every machine; seconds are what that takes roughly. Only what the solver has proven raises the
    bound.
    """
    if hint.makespan_s == 0:
        return hint
    tick_s = _tick_s(problem, hint.makespan_s)
    model = _Model(problem, hint=hint, lower_bound_s=lower_bound_s, tick_s=tick_s, explicit_units=False)
    found = model.solve(time_limit_s=time_limit_s)
    bound_s = max(lower_bound_s, model.bound_s)
    if isinstance(found, _NoUnits):
        model = _Model(problem, hint=hint, lower_bound_s=bound_s, tick_s=tick_s, explicit_units=True)
        found = model.solve(time_limit_s=time_limit_s)
        bound_s = max(bound_s, model.bound_s)
    if isinstance(found, _Found):
        order = order_by_start(problem, found.start)
        best = schedule_in_order(problem, order=order, mode=found.mode, unit=found.unit, lower_bound_s=bound_s)
        if best.makespan_s < hint.makespan_s:
            return best
    return with_bound(hint, bound_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """A solution, in ticks."""

    start: NDArray[np.float64]
    mode: NDArray[np.int8]
    unit: NDArray[np.int64]


class _NoUnits:
    """A solution whose fused operators admit no assignment of units."""


def _tick_s(problem: ScheduleProblem, horizon_s: float) -> float:
    """Seconds per tick: 1 if all durations are integers (then ticks are exact), else a fraction of the horizon."""
    durations = np.concatenate([problem.one_s, problem.all_s])
    durations = durations[np.isfinite(durations)]
    if horizon_s < _TICKS and (durations == np.rint(durations)).all():
        return 1.0
    return horizon_s / _TICKS


class _Model:
    """The CP-SAT model of one problem; ``bound_s`` is what a call of :meth:`solve` has proven."""

    def __init__(
        self, problem: ScheduleProblem, *, hint: Schedule, lower_bound_s: float, tick_s: float, explicit_units: bool
    ) -> None:
        self.problem = problem
        self.tick_s = tick_s
        self.bound_s = 0.0
        self.model = model = cp_model.CpModel()
        graph = problem.graph
        n_ops = graph.n_ops
        # Rounding down makes every tick model a relaxation: its optimum in seconds is a valid lower bound.
        one = self._ticks(problem.one_s)
        every = self._ticks(problem.all_s)
        hint_ticks = np.ceil(hint.start_s / tick_s).astype(np.int64)
        horizon = int(np.ceil(hint.makespan_s / tick_s)) + 1

        # Variables
        self.start = [model.new_int_var(0, horizon, f"start[{i}]") for i in range(n_ops)]
        self.all: list[cp_model.IntVar | int] = []
        end: list[cp_model.LinearExprT] = []
        one_intervals: dict[int, cp_model.IntervalVar] = {}
        all_intervals: list[cp_model.IntervalVar] = []
        for i in range(n_ops):
            start = self.start[i]
            if every[i] < 0:
                self.all.append(0)
                end.append(start + one[i])
                if one[i] > 0:
                    one_intervals[i] = model.new_fixed_size_interval_var(start, one[i], f"one[{i}]")
            elif one[i] < 0:
                self.all.append(1)
                end.append(start + every[i])
                if every[i] > 0:
                    all_intervals.append(model.new_fixed_size_interval_var(start, every[i], f"all[{i}]"))
            else:
                on_all = model.new_bool_var(f"all[{i}]")
                self.all.append(on_all)
                end.append(start + one[i] + (every[i] - one[i]) * on_all)
                one_intervals[i] = model.new_optional_fixed_size_interval_var(start, one[i], ~on_all, f"one[{i}]")
                all_intervals.append(model.new_optional_fixed_size_interval_var(start, every[i], on_all, f"all[{i}]"))
                model.add_hint(on_all, int(hint.mode[i]))
            model.add_hint(start, int(hint_ticks[i]))

        # Constraints
        for i, j in graph.reduced_edges.tolist():
            model.add(self.start[j] >= end[i])
        self.unit: dict[int, list[cp_model.IntVar]] = {}
        for users, count in ((graph.uses_tensor, problem.tensor_units), (graph.uses_vector, problem.vector_units)):
            own = [one_intervals[i] for i in np.flatnonzero(users).tolist() if i in one_intervals]
            if count == 1:
                model.add_no_overlap([*own, *all_intervals])
            else:
                demands = [1] * len(own) + [count] * len(all_intervals)
                model.add_cumulative([*own, *all_intervals], demands, count)
        model.add_no_overlap(
            [one_intervals[i] for i in np.flatnonzero(graph.is_network).tolist() if i in one_intervals]
        )
        if explicit_units:
            self._choose_units(one)

        # Objective
        # Rounding down may shorten each operator on the longest chain by less than a tick.
        lost = 0 if tick_s == 1.0 else n_ops
        floor = int(np.ceil(lower_bound_s / tick_s * (1 - PROOF_TOLERANCE))) - lost
        self.makespan = model.new_int_var(min(max(0, floor), horizon), horizon, "makespan")
        for i in np.flatnonzero(~graph.before.any(axis=1)).tolist():
            model.add(self.makespan >= end[i])
        model.minimize(self.makespan)

    def _ticks(self, durations_s: NDArray[np.float64]) -> list[int]:
        """Durations in ticks, rounded down; -1 where the mode is not available."""
        available = np.isfinite(durations_s)
        ticks = np.floor(np.where(available, durations_s, 0.0) / self.tick_s)
        return [int(tick) if there else -1 for tick, there in zip(ticks, available, strict=True)]

    def _choose_units(self, one: Sequence[int]) -> None:
        """Constraint 5: one unit per operator in mode ONE; operators on the same unit do not overlap."""
        problem, model = self.problem, self.model
        users = (problem.graph.uses_tensor, problem.graph.uses_vector)
        counts = (problem.tensor_units, problem.vector_units)
        on_unit: list[list[list[cp_model.IntervalVar]]] = [[[] for _ in range(count)] for count in counts]
        for i in range(problem.n_ops):
            if one[i] < 0 or not (users[0][i] or users[1][i]):
                continue
            limit = min(count for count, use in zip(counts, users, strict=True) if use[i])
            chosen = [model.new_bool_var(f"unit[{i},{c}]") for c in range(limit)]
            model.add(sum(chosen) + self.all[i] == 1)
            self.unit[i] = chosen
            for c, literal in enumerate(chosen):
                interval = model.new_optional_fixed_size_interval_var(self.start[i], one[i], literal, f"on[{i},{c}]")
                for side in (0, 1):
                    if users[side][i] and one[i] > 0:
                        on_unit[side][c].append(interval)
        for intervals in (*on_unit[0], *on_unit[1]):
            if len(intervals) > 1:
                model.add_no_overlap(intervals)

    def solve(self, *, time_limit_s: float) -> _Found | _NoUnits | None:
        """The best solution within the limit, None if there was no time for any; sets ``bound_s``."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = _DETERMINISTIC_SHARE * time_limit_s
        # The linear relaxation of this model is weak and costs most of the time; stronger propagation of who runs
        # before whom closed two to five times as many backward passes of a layer within a second.
        solver.parameters.linearization_level = 0
        solver.parameters.use_precedences_in_disjunctive_constraint = True
        solver.parameters.use_strong_propagation_in_disjunctive = True
        solver.parameters.use_dynamic_precedence_in_disjunctive = True
        solver.parameters.use_timetable_edge_finding_in_cumulative = True
        status = solver.solve(self.model)
        assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN), (
            f"CP-SAT says {solver.status_name(status)} although the hint is a solution"
        )
        self.bound_s = max(0.0, solver.best_objective_bound) * self.tick_s
        if status == cp_model.UNKNOWN:
            return None
        problem = self.problem
        start = np.array([solver.value(variable) for variable in self.start], dtype=np.float64)
        mode = np.array([solver.value(flag) for flag in self.all], dtype=np.int8)
        if self.unit:
            unit = np.full(problem.n_ops, -1, dtype=np.int64)
            for i, chosen in self.unit.items():
                for c, literal in enumerate(chosen):
                    if solver.boolean_value(literal):
                        unit[i] = c
            return _Found(start=start, mode=mode, unit=unit)
        end = start + np.where(mode == Mode.ALL, self._ticks(problem.all_s), self._ticks(problem.one_s))
        assigned = assign_units(problem, start=start, end=end, mode=mode)
        return _NoUnits() if assigned is None else _Found(start=start, mode=mode, unit=assigned)
