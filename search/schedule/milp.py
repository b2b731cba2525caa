"""The same schedule as a mixed-integer program in PuLP: an independent check of CP-SAT, and a way to other solvers.

Problem
    As in :mod:`archplace.search.schedule.cpsat`. The orders between operators are variables, as in PHAZE (ICML 2024):
    no time index.
Variables
    ``start[i]`` >= 0; ``all[i]`` = 1 if operator i runs on all units; for pairs that precedence leaves open and that
    can compete, ``first[i,j]`` = 1 only if i ends before j starts; ``unit[i,c]`` = 1 if i runs on unit c, where units
    can run short. d[i] is the duration in the mode chosen.
Constraints
    1. ``start[j] >= start[i] + d[i]`` for every edge; ``makespan >= start[i] + d[i]``.
    2. ``start[j] >= start[i] + d[i] - H * (1 - first[i,j])``, with H the makespan of a known schedule.
    3. An operator on all units overlaps no compute operator: ``first[i,j] + first[j,i] >= all[i]``, and ``>= all[j]``.
    4. Collectives do not overlap: ``first[i,j] + first[j,i] = 1``.
    5. ``Σ_c unit[i,c] = 1 - all[i]``; on one unit no overlap: ``first[i,j] + first[j,i] >= unit[i,c] + unit[j,c] - 1``.
Objective
    Minimise the makespan.
"""

import numpy as np
import pulp

from archplace.search.schedule._part import antichain_width
from archplace.search.schedule._times import assign_units, order_by_start, schedule_in_order
from archplace.search.schedule.graph import Kind
from archplace.search.schedule.problem import Mode, Schedule, ScheduleProblem, durations_s, with_bound
from archplace.workloads.milp_solver import minimise

_TOLERANCE = 1e-6
"""What MILP solvers allow constraints to be off by, relative to the horizon."""
_HORIZON = 1 + 1e-3
"""Latest end. A little more than the known schedule's, which else hangs on the solver's rounding of sums that just
fit.
"""


def solve_milp(problem: ScheduleProblem, *, hint: Schedule, time_limit_s: float, solver: str = "HiGHS") -> Schedule:
    """The best schedule found by the MILP ``solver`` within ``time_limit_s`` seconds of wall-clock time.

    ``problem`` must be canonical. ``hint`` is a valid schedule; its makespan is the horizon H, and it is returned when
    nothing better turns up. The bound of ``hint`` is not used: only the solver's own proof makes the result
    ``optimal``, and only if the makespan recomputed in floats agrees with its objective within its tolerance. Times
    are in units of H inside.
    """
    horizon_s = hint.makespan_s
    if horizon_s == 0:
        return hint
    model = _Model(problem, horizon_s)
    answer = minimise(model.model, solver=solver, time_limit_s=time_limit_s)
    if not answer.found:
        return with_bound(hint, 0.0)
    start = np.array([_value(variable) for variable in model.start])
    mode = np.array([round(_value(flag)) for flag in model.on_all], dtype=np.int8)
    order = order_by_start(problem, start)
    if model.unit:
        unit = np.full(problem.n_ops, -1, dtype=np.int64)
        for (i, c), variable in model.unit.items():
            if mode[i] == Mode.ONE and round(_value(variable)) == 1:
                unit[i] = c
    else:
        end = start + durations_s(problem, mode) / horizon_s - _TOLERANCE
        assigned = assign_units(problem, start=start, end=end, mode=mode)
        assert assigned is not None, "the model leaves out unit variables only where units suffice"
        unit = assigned
    found = schedule_in_order(problem, order=order, mode=mode, unit=unit, lower_bound_s=0.0)
    bound_s = 0.0
    if answer.proven:
        objective_s = _value(model.makespan) * horizon_s
        bound_s = found.makespan_s if found.makespan_s <= objective_s + _TOLERANCE * horizon_s else objective_s
    return with_bound(min((found, hint), key=lambda schedule: schedule.makespan_s), bound_s)


def _value(variable: pulp.LpVariable | pulp.LpAffineExpression | float) -> float:
    found = pulp.value(variable)
    return 0.0 if found is None else float(found)  # a variable in no constraint has no value


class _Model:
    """The MILP of one problem, times in units of the horizon."""

    def __init__(self, problem: ScheduleProblem, horizon_s: float) -> None:
        self.model = model = pulp.LpProblem("operator_schedule", pulp.LpMinimize)
        graph = problem.graph
        one, every = problem.one_s / horizon_s, problem.all_s / horizon_s
        n_ops = graph.n_ops
        network = graph.is_network
        shortest = np.minimum(one, every)
        ahead = np.zeros(n_ops)
        after = np.zeros(n_ops)
        for j in graph.order:
            ahead[j] = (ahead + shortest)[graph.before[:, j]].max(initial=0.0)
        for i in graph.order[::-1]:
            after[i] = (after + shortest)[graph.before[i]].max(initial=0.0)

        # Variables
        self.makespan = model.add_variable("makespan", 0, _HORIZON)
        latest = _HORIZON - after - shortest
        self.start = [model.add_variable(f"start_{i}", ahead[i], latest[i]) for i in range(n_ops)]
        self.on_all: list[pulp.LpVariable | float] = []
        duration: list[pulp.LpAffineExpression | float] = []
        for i in range(n_ops):
            if np.isinf(every[i]):
                self.on_all.append(0.0)
                duration.append(one[i])
            elif np.isinf(one[i]):
                self.on_all.append(1.0)
                duration.append(every[i])
            else:
                flag = model.add_variable(f"all_{i}", cat=pulp.LpBinary)
                self.on_all.append(flag)
                duration.append(one[i] + (every[i] - one[i]) * flag)
        self.unit = self._units(problem)

        # Constraints 1
        for i, j in graph.reduced_edges.tolist():
            model.addConstraint(self.start[j] >= self.start[i] + duration[i])
        for i in range(n_ops):
            model.addConstraint(self.makespan >= self.start[i] + duration[i] + after[i])

        # Constraints 2 to 5
        limits = (problem.tensor_units, problem.vector_units)
        uses = (graph.uses_tensor, graph.uses_vector)
        for i, j in np.argwhere(np.triu(graph.unrelated)).tolist():
            if shortest[i] == 0 or shortest[j] == 0 or network[i] != network[j]:
                continue  # no duration, or a collective beside compute: free to overlap
            must: list[pulp.LpAffineExpression | pulp.LpVariable | float]
            if network[i]:
                must = [1.0]
            else:
                must = [
                    self.on_all[k] for k in (i, j) if not (isinstance(self.on_all[k], float) and self.on_all[k] == 0)
                ]
                shared = any(use[i] and use[j] for use in uses)
                if shared and self.unit:
                    must += [
                        self.unit[i, c] + self.unit[j, c] - 1
                        for c in range(max(limits))
                        if (i, c) in self.unit and (j, c) in self.unit
                    ]
                if shared and any(use[i] and use[j] and limit == 1 for use, limit in zip(uses, limits, strict=True)):
                    must = [1.0]
            if not must:
                continue
            first = [model.add_variable(f"first_{a}_{b}", cat=pulp.LpBinary) for a, b in ((i, j), (j, i))]
            for flag, (a, b) in zip(first, ((i, j), (j, i)), strict=True):
                # The least H that switches the constraint off, given how late a can end and how early b can start.
                slack = max(0.0, _HORIZON - after[a] - ahead[b])
                model.addConstraint(self.start[b] >= self.start[a] + duration[a] - slack * (1 - flag))
            model.addConstraint(first[0] + first[1] <= 1)
            for least in must:
                model.addConstraint(first[0] + first[1] >= least)

        # Objective
        model.setObjective(self.makespan)

    def _units(self, problem: ScheduleProblem) -> dict[tuple[int, int], pulp.LpVariable]:
        """Unit variables with their Σ, none if units cannot run short."""
        graph = problem.graph
        sides = ((graph.uses_tensor, problem.tensor_units), (graph.uses_vector, problem.vector_units))
        fused = (graph.kinds == Kind.FUSED).any()
        if fused:
            # The same index on both sides: enough if all operators can have their own.
            short = any(int(use.sum()) > limit > 1 for use, limit in sides)
        else:
            short = any(antichain_width(graph.before, np.flatnonzero(use)) > limit > 1 for use, limit in sides)
        unit: dict[tuple[int, int], pulp.LpVariable] = {}
        if not short:
            return unit
        for i in np.flatnonzero(~graph.is_network).tolist():
            limit = min(limit for use, limit in sides if use[i])
            own = [self.model.add_variable(f"unit_{i}_{c}", cat=pulp.LpBinary) for c in range(limit)]
            unit |= {(i, c): variable for c, variable in enumerate(own)}
            self.model.addConstraint(pulp.lpSum(own) == 1 - self.on_all[i])
        return unit
