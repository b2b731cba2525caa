"""Partial schedules, many at a time.

A state is a set of operators that have started, in the order of their start times, and what matters of it for the
rest: when each unit and the network become free, and when each operator that has not started may start at the earliest.
All times before the next possible start are raised to it. A row of every array is one state.

States of many problems on the same graph stand in the same arrays, since most searches are too small to keep NumPy
busy; rows of one problem stand together. No row influences another, so the company does not matter.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class States:
    """n states of the same number of started operators."""

    problem: NDArray[np.int64]
    """(n,) which problem of the model; ascending."""
    started: NDArray[np.uint64]
    """(n,) bit i: operator i has started."""
    free_s: Floats
    """(n, tensor units + vector units + 1) when each is free again; the last is the network."""
    ready_s: Floats
    """(n, k) no sooner than the ends of its started predecessors; 0 for operators that have started."""
    path_end_s: Floats
    """(n, n_paths) the end of the last started operator on each path."""
    rest_s: Floats
    """(n, n_weights) the least weighted time of the operators that have not started."""
    starts_s: Floats
    """(n, n_choices) the earliest start of each choice; inf where it cannot be next."""

    def __len__(self) -> int:
        return len(self.started)

    def rows(self, chosen: NDArray[np.int64] | slice) -> "States":
        """These states only."""
        return States(
            problem=self.problem[chosen],
            started=self.started[chosen],
            free_s=self.free_s[chosen],
            ready_s=self.ready_s[chosen],
            path_end_s=self.path_end_s[chosen],
            rest_s=self.rest_s[chosen],
            starts_s=self.starts_s[chosen],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Children:
    """States with one more operator, and where each comes from."""

    states: States
    bound_s: Floats
    """(n,) no schedule that goes on from the state is shorter; of complete schedules, the makespan."""
    parent: NDArray[np.int64]
    """(n,) row of the state before."""
    operator: NDArray[np.int64]
    """(n,) the operator that started."""
    on_all: NDArray[np.bool_]
    """(n,) its mode."""
    start_s: Floats
    """(n,)"""

    def rows(self, chosen: NDArray[np.int64]) -> "Children":
        """These children only."""
        return Children(
            states=self.states.rows(chosen),
            bound_s=self.bound_s[chosen],
            parent=self.parent[chosen],
            operator=self.operator[chosen],
            on_all=self.on_all[chosen],
            start_s=self.start_s[chosen],
        )

    @classmethod
    def joined(cls, blocks: list["Children"]) -> "Children":
        """The children of all ``blocks``, of which there is at least one."""
        if len(blocks) == 1:
            return blocks[0]
        states = [block.states for block in blocks]
        return cls(
            states=States(
                problem=np.concatenate([each.problem for each in states]),
                started=np.concatenate([each.started for each in states]),
                free_s=np.concatenate([each.free_s for each in states]),
                ready_s=np.concatenate([each.ready_s for each in states]),
                path_end_s=np.concatenate([each.path_end_s for each in states]),
                rest_s=np.concatenate([each.rest_s for each in states]),
                starts_s=np.concatenate([each.starts_s for each in states]),
            ),
            bound_s=np.concatenate([block.bound_s for block in blocks]),
            parent=np.concatenate([block.parent for block in blocks]),
            operator=np.concatenate([block.operator for block in blocks]),
            on_all=np.concatenate([block.on_all for block in blocks]),
            start_s=np.concatenate([block.start_s for block in blocks]),
        )
