"""What may start next in a partial schedule, and what it must still cost: one model for many problems."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import UNAVAILABLE_S, Durations, Floats
from archplace.search.schedule._part import Part, paths_of
from archplace.search.schedule._states import Children, States
from archplace.search.schedule.problem import ScheduleProblem

MOST_OPERATORS = 64
"""Sets of operators are bits of one word."""
_WEIGHT_STEPS = 4
"""Weights of the bounds are multiples of one over this; finer ones saved no states."""


class Model:
    """Problems on one graph with as many units, whose operators all take time, prepared for arrays of states.

    A tensor or vector operator takes the unit that is free first. So do fused operators, on both sides apart: a
    relaxation, since the indices of their units must agree. ``paired`` keeps units of one index together and tries
    every unit for every operator: exact, and several times as many states. Arrays of the model start with an axis of
    the problems, unless all share them.
    """

    def __init__(
        self, problems: Sequence[ScheduleProblem], part: Part, members: NDArray[np.int64], *, paired: bool
    ) -> None:
        """``problems`` on the graph of ``part``, canonical; ``members`` are the operators that take time in all."""
        graph = part.graph if len(members) == part.graph.n_ops else part.graph.part(members)
        self.n_problems = len(problems)
        self.n_ops = graph.n_ops
        assert self.n_ops <= MOST_OPERATORS
        self.tensor_units, self.vector_units = units_of(problems[0], part, paired=paired)
        self.pairs = min(self.tensor_units, self.vector_units) if paired else 0
        """Units of either kind that are told apart, since both kinds have them."""
        self.uses_tensor = graph.uses_tensor
        self.uses_vector = graph.uses_vector
        self.network = graph.is_network
        one_s = np.array([problem.one_s for problem in problems])
        all_s = np.array([problem.all_s for problem in problems])
        paths = _paths(part, one_s, all_s)[:, members]
        one_s, all_s = one_s[:, members], all_s[:, members]
        self.one_s = np.where(self.network, np.minimum(one_s, all_s), one_s)
        self.all_s = np.where(self.network, np.inf, all_s)
        self.fastest_s = np.minimum(self.one_s, self.all_s)
        self.network_s = np.where(self.network, self.one_s, 0.0)
        self.before = graph.before
        self.follows = np.zeros((self.n_ops, self.n_ops), dtype=np.bool_)
        edges = graph.reduced_edges
        self.follows[edges[:, 0], edges[:, 1]] = True
        self.bit = np.uint64(1) << np.arange(self.n_ops, dtype=np.uint64)
        starts_first = self.before | self._interchangeable(graph.kinds)
        # (p, k): the operators that must start before each.
        self.needs = (starts_first * self.bit[:, None]).sum(axis=1, dtype=np.uint64)
        self.on_path = paths
        self._set_choices()
        self._set_weights()
        # What must follow each operator: its descendants under any weight, or a path.
        self.tail_s = np.zeros((self.n_problems, self.n_ops))
        for i in reversed(graph.order.tolist()):
            later = np.flatnonzero(self.before[i]).tolist()
            if later:
                summed = np.add.accumulate(self.share_s[:, later], axis=1)[:, -1]
                self.tail_s[:, i] = summed.max(axis=1)
            for j in np.flatnonzero(self.follows[i]).tolist():
                np.maximum(self.tail_s[:, i], self.fastest_s[:, j] + self.tail_s[:, j], out=self.tail_s[:, i])
        self.least_rest_s = self.fastest_s + self.tail_s

    def _interchangeable(self, kinds: NDArray[np.int8]) -> NDArray[np.bool_]:
        """(p, k, k) pairs of which the first may be required to start first, and not after the second.

        Both have the same kind and durations and no order; whatever precedes the first precedes the second, and
        whatever follows the second follows the first. Where the second starts first, exchanging them (times, modes,
        units) leaves a valid schedule of the same makespan; each exchange puts a pair right, weighted by the place in
        a linear extension of this relation, so there is an end to them. Equals are ordered by index.
        """
        before = self.before
        same = (self.one_s[:, :, None] == self.one_s[:, None]) & (self.all_s[:, :, None] == self.all_s[:, None])
        same &= kinds[:, None] == kinds
        same &= ~(before | before.T | np.eye(self.n_ops, dtype=np.bool_))
        # extra[a, b]: a has a predecessor that b lacks, or b a successor that a lacks.
        counts = before.astype(np.float64)
        extra = (counts.T @ (1 - counts)) + ((1 - counts) @ counts.T) > 0
        by_index: NDArray[np.bool_] = np.tri(self.n_ops, dtype=np.bool_).T
        first: NDArray[np.bool_] = same & ~extra & (extra.T | by_index)
        return first

    def _set_choices(self) -> None:
        """Every operator with every mode and, in mode ONE, the units that need trying.

        Units that are alike are sorted by when they are free, so the first stands for all.
        """
        tensor, vector = self.tensor_units, self.vector_units
        compute = list(range(tensor + vector))
        apart = list(range(self.pairs))
        choices: list[tuple[int, bool, list[int]]] = []
        for i in range(self.n_ops):
            if np.isfinite(self.all_s[:, i]).any():
                choices.append((i, True, compute))
            if not np.isfinite(self.one_s[:, i]).any():
                continue
            if self.network[i]:
                choices.append((i, False, [tensor + vector]))
            elif self.uses_tensor[i] and self.uses_vector[i]:
                choices += [(i, False, [c, tensor + c]) for c in apart or [0]]
            elif self.uses_tensor[i]:
                choices += [(i, False, [c]) for c in apart + [self.pairs] * (self.pairs < tensor)]
            else:
                choices += [(i, False, [tensor + c]) for c in apart + [self.pairs] * (self.pairs < vector)]
        self.operator = np.array([i for i, _, _ in choices])
        self.on_all = np.array([on_all for _, on_all, _ in choices])
        self.choice_s = np.where(self.on_all, self.all_s[:, self.operator], self.one_s[:, self.operator])
        # A choice that some problems lack never starts in these.
        self.barred_s = None if np.isfinite(self.choice_s).all() else np.where(np.isinf(self.choice_s), np.inf, 0.0)
        self.takes = np.zeros((len(choices), tensor + vector + 1), dtype=np.bool_)
        for row, (_, _, units) in zip(self.takes, choices, strict=True):
            row[units] = True
        # The free times that decide a start: one or two units, or the latest of all, which gets a column of its own.
        self.first_taken = np.array([len(compute) + 1 if on_all else units[0] for _, on_all, units in choices])
        self.last_taken = np.array([len(compute) + 1 if on_all else units[-1] for _, on_all, units in choices])

    def _set_weights(self) -> None:
        """The weights of the bounds, on a grid.

        From any state, the makespan is at least the weighted mean of: the mean time at which tensor units are free,
        plus E and the seconds of other work per tensor unit; the same for vector units; the end of the last operator
        on a path, plus E and the rest of the path. E is the time of all that runs on all units. Weights sum to 1, so
        an operator contributes its time on all units, or its weighted time on one: at least the smaller
        (:mod:`archplace.search.schedule.bounds`).
        """
        steps = range(_WEIGHT_STEPS + 1)
        weights = [
            (tensor / _WEIGHT_STEPS, vector / _WEIGHT_STEPS, (_WEIGHT_STEPS - tensor - vector) / _WEIGHT_STEPS, path)
            for path in range(self.on_path.shape[2])
            for tensor in steps
            for vector in steps
            # Without a weight on the path, the path makes no difference.
            if tensor + vector < _WEIGHT_STEPS or (tensor + vector == _WEIGHT_STEPS and path == 0)
        ]
        tensor_weight, vector_weight, path_weight = np.array([weight[:3] for weight in weights]).T
        self.weight_tensor, self.weight_vector, self.weight_path = tensor_weight, vector_weight, path_weight
        self.weight_on = np.array([weight[3] for weight in weights])
        worth = (
            self.uses_tensor[:, None] * (tensor_weight / self.tensor_units)
            + self.uses_vector[:, None] * (vector_weight / self.vector_units)
            + self.on_path[:, :, self.weight_on] * path_weight
        )
        available = np.isfinite(self.one_s)[:, :, None]
        weighted_s = np.where(available, np.where(available, self.one_s[:, :, None], 0.0) * worth, np.inf)
        self.share_s = np.where(self.network[:, None], 0.0, np.minimum(weighted_s, self.all_s[:, :, None]))

    def root(self) -> States:
        """One state per problem, in which nothing has started."""
        count = self.n_problems
        problem = np.arange(count)
        started = np.zeros(count, dtype=np.uint64)
        free_s = np.zeros((count, self.tensor_units + self.vector_units + 1))
        ready_s = np.zeros((count, self.n_ops))
        return States(
            problem=problem,
            started=started,
            free_s=free_s,
            ready_s=ready_s,
            path_end_s=np.zeros((count, self.on_path.shape[2])),
            rest_s=np.add.accumulate(self.share_s, axis=1)[:, -1],
            starts_s=self._starts(problem, started, free_s, ready_s),
        )

    def _starts(
        self, problem: NDArray[np.int64], started: NDArray[np.uint64], free_s: Floats, ready_s: Floats
    ) -> Floats:
        """(n, n_choices) the earliest start of each choice; inf where the operator cannot be next."""
        needs = self.needs[problem]
        may = (started[:, None] & needs) == needs
        may &= (started[:, None] & self.bit) == 0
        free = np.concatenate([free_s, free_s[:, :-1].max(axis=1, keepdims=True)], axis=1)
        starts: Floats = np.maximum(free[:, self.first_taken], free[:, self.last_taken])
        np.maximum(starts, np.where(may, ready_s, np.inf)[:, self.operator], out=starts)
        if self.barred_s is not None:
            np.maximum(starts, self.barred_s[problem], out=starts)
        return starts

    def children(self, states: States, rows: slice, *, complete: bool) -> Children:
        """Start one more operator in the states of these rows, in all ways that may be needed.

        In the order of start times, none may start so late that another could end before. (That one could be moved
        there: nothing else is in the way, and the sum of start times falls.) ``complete``: it is the last one.
        """
        states = states.rows(rows)
        ends = states.starts_s + self.choice_s[states.problem]
        parent, choice = np.nonzero(states.starts_s < ends.min(axis=1)[:, None])
        operator = self.operator[choice]
        problem = states.problem[parent]
        start = states.starts_s[parent, choice]
        end = ends[parent, choice][:, None]
        started = states.started[parent] | self.bit[operator]
        free_s = self._sorted(np.where(self.takes[choice], end, states.free_s[parent]))
        ready_s = states.ready_s[parent]
        np.maximum(ready_s, end, out=ready_s, where=self.follows[operator])
        path_end_s = np.where(self.on_path[problem, operator], end, states.path_end_s[parent])
        waiting = (started[:, None] & self.bit) == 0
        starts_s = self._starts(problem, started, free_s, ready_s)
        next_s = (start if complete else np.maximum(start, starts_s.min(axis=1)))[:, None]
        for times in (free_s, path_end_s, ready_s, starts_s):
            np.maximum(times, next_s, out=times)
        ready_s[~waiting] = 0.0
        after = States(
            problem=problem,
            started=started,
            free_s=free_s,
            ready_s=ready_s,
            path_end_s=path_end_s,
            rest_s=states.rest_s[parent] - self.share_s[problem, operator],
            starts_s=starts_s,
        )
        return Children(
            states=after,
            bound_s=free_s.max(axis=1) if complete else self._bound_s(after, waiting),
            parent=parent + rows.start,
            operator=operator,
            on_all=self.on_all[choice],
            start_s=start,
        )

    def _sorted(self, free_s: Floats) -> Floats:
        """Units that are alike, in the order in which they are free; in place."""
        tensor, pairs = self.tensor_units, self.pairs
        if pairs:
            both = (free_s[:, tensor : tensor + pairs], free_s[:, :pairs])
            order = np.lexsort(both, axis=1)
            for times in both:
                times[:] = np.take_along_axis(times, order, axis=1)
        for alike in (free_s[:, pairs:tensor], free_s[:, tensor + pairs : -1]):
            if alike.shape[1] > 1:
                alike.sort(axis=1)
        return free_s

    def _bound_s(self, states: States, waiting: NDArray[np.bool_]) -> Floats:
        """(n,) see :meth:`_set_weights`; also what has started, the collectives, and every operator's tail."""
        tensor = self.tensor_units
        problem = states.problem
        ends = states.free_s.max(axis=1)
        tails = np.where(waiting, states.ready_s + self.least_rest_s[problem], 0.0).max(axis=1)
        weighted = states.rest_s + states.free_s[:, :tensor].mean(axis=1)[:, None] * self.weight_tensor
        weighted += states.free_s[:, tensor:-1].mean(axis=1)[:, None] * self.weight_vector
        weighted += states.path_end_s[:, self.weight_on] * self.weight_path
        bound_s: Floats = np.maximum.reduce([ends, tails, weighted.max(axis=1)])
        if self.network.any():
            network = states.free_s[:, -1] + np.where(waiting, self.network_s[problem], 0.0).sum(axis=1)
            np.maximum(bound_s, network, out=bound_s)
        return bound_s


def units_of(problem: ScheduleProblem, part: Part, *, paired: bool) -> tuple[int, int]:
    """Tensor and vector units of the model: more than operators that can ever use them at once change nothing.

    That holds for either kind by itself, so not where units are ``paired``.
    """
    if paired:
        return problem.tensor_units, problem.vector_units
    return (
        min(problem.tensor_units, max(1, part.tensor_width)),
        min(problem.vector_units, max(1, part.vector_width)),
    )


def _paths(part: Part, one_s: Floats, all_s: Floats) -> NDArray[np.bool_]:
    """(p, k, n_paths) the compute operators on candidates for the longest path."""
    data = Durations(
        one_s=np.minimum(one_s, UNAVAILABLE_S).T,
        all_s=np.minimum(all_s, UNAVAILABLE_S).T,
        tensor_units=np.ones(len(one_s), dtype=np.int64),
        vector_units=np.ones(len(one_s), dtype=np.int64),
    )
    paths = [path.T for path in paths_of(part, data)]
    return np.stack(np.broadcast_arrays(*paths), axis=2) > 0
