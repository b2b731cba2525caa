"""One scheduling problem (a graph and one architecture's durations) and its answer."""

import hashlib
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.search.schedule.graph import ScheduleGraph

PROOF_TOLERANCE = 1e-9
"""Relative distance of makespan and lower bound below which a schedule counts as proven optimal."""


class Mode(IntEnum):
    """How an operator runs."""

    ONE = 0
    """On one unit of its kind; a fused operator on tensor unit c and vector unit c. Collectives have only this mode."""
    ALL = 1
    """Spread over all units: no other compute operator runs meanwhile."""


class ScheduleStatus(StrEnum):
    """What is proven about a schedule."""

    OPTIMAL = "optimal"
    """No schedule is shorter (within :data:`PROOF_TOLERANCE`)."""
    GAP = "gap"
    """A valid schedule; the best one lies between ``lower_bound_s`` and ``makespan_s``."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScheduleProblem:
    """Order ``graph`` on ``tensor_units`` and ``vector_units`` units with the shortest makespan.

    Each compute operator runs on one unit of its kind in ``one_s`` or on all units in ``all_s`` (no other compute
    operator meanwhile); ``inf`` marks a mode that is not available. A collective has one mode, whose duration is the
    smaller of its two entries; collectives run one at a time and overlap any operator that is unrelated to them. An
    operator of no duration occupies nothing.

    Raises ``ConfigError`` naming every duration that is negative, NaN or missing in both modes, wrong array lengths,
    and unit counts below one.
    """

    graph: ScheduleGraph
    one_s: NDArray[np.float64]
    """(n_ops,) seconds on one unit."""
    all_s: NDArray[np.float64]
    """(n_ops,) seconds on all units."""
    tensor_units: int
    vector_units: int

    def __post_init__(self) -> None:
        problems = [
            Problem(place="", key=name, message=f"found {count}, needs at least 1")
            for name, count in (("tensor_units", self.tensor_units), ("vector_units", self.vector_units))
            if count < 1
        ]
        names = self.graph.names
        for key, durations in (("one_s", self.one_s), ("all_s", self.all_s)):
            if durations.shape != (self.graph.n_ops,):
                text = f"found {durations.shape[0]} durations for {self.graph.n_ops} operators"
                problems.append(Problem(place="", key=key, message=text))
                continue
            problems += [
                Problem(
                    place=names[i], key=key, message=f"found {durations[i]}, needs seconds >= 0 (inf: not available)"
                )
                for i in np.flatnonzero(~(durations >= 0))
            ]
        if not problems:
            problems = [
                Problem(place=names[i], key="", message="neither mode is available: one_s and all_s are both inf")
                for i in np.flatnonzero(np.isinf(self.one_s) & np.isinf(self.all_s))
            ]
        if problems:
            raise ConfigError(problems)
        self.one_s.setflags(write=False)
        self.all_s.setflags(write=False)

    @property
    def n_ops(self) -> int:
        """Number of operators."""
        return self.graph.n_ops

    @property
    def kinds(self) -> NDArray[np.int8]:
        """(n_ops,) codes of :class:`~archplace.search.schedule.graph.Kind`."""
        return self.graph.kinds

    @property
    def edges(self) -> NDArray[np.int64]:
        """(n_edges, 2) precedence."""
        return self.graph.edges

    def canonical(self) -> "ScheduleProblem":
        """The same problem without modes that no best schedule needs and units that cannot be used.

        Makespans are unchanged: (1) on one unit in no more time than on all is never worse, so ``all_s`` becomes
        ``inf``; (2) an operator that no compute operator can overlap takes its faster mode; (3) more units of a kind
        than operators that could use them change nothing. Operators whose faster mode takes no time keep that mode.
        A schedule of the canonical problem is a schedule of this one.
        """
        graph = self.graph
        one_s = np.where(graph.is_network, np.minimum(self.one_s, self.all_s), self.one_s)
        all_s = np.where(graph.is_network | (one_s <= self.all_s), np.inf, self.all_s)
        alone = ~graph.is_network & ~graph.overlapped
        one_s = np.where((alone & (all_s < one_s)) | (all_s == 0), np.inf, one_s)
        return ScheduleProblem(
            graph=graph,
            one_s=one_s,
            all_s=all_s,
            tensor_units=min(self.tensor_units, max(1, int(graph.uses_tensor.sum()))),
            vector_units=min(self.vector_units, max(1, int(graph.uses_vector.sum()))),
        )

    def key(self) -> str:
        """Hash of what decides the makespan: equal for two architectures that give the same latencies.

        Taken over the canonical problem and the transitive reduction of its precedence; names do not enter.
        """
        canonical = self.canonical()
        digest = hashlib.sha256()
        digest.update(np.array([canonical.n_ops, canonical.tensor_units, canonical.vector_units], "<i8").tobytes())
        digest.update(canonical.kinds.astype("i1").tobytes())
        digest.update(canonical.graph.reduced_edges.astype("<i8").tobytes())
        # Adding 0.0 turns -0.0 into 0.0, which would otherwise hash differently.
        digest.update((canonical.one_s + 0.0).astype("<f8").tobytes())
        digest.update((canonical.all_s + 0.0).astype("<f8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Schedule:
    """When, how and where every operator runs, and what is proven about it."""

    start_s: NDArray[np.float64]
    """(n_ops,) start times, from 0."""
    mode: NDArray[np.int8]
    """(n_ops,) codes of :class:`Mode`."""
    unit: NDArray[np.int64]
    """(n_ops,) index of the unit (of both units, if fused) in mode ONE; -1 in mode ALL and for collectives."""
    makespan_s: float
    lower_bound_s: float
    """No schedule is shorter; equals ``makespan_s`` when optimal."""
    status: ScheduleStatus
    """``optimal`` or ``gap``."""

    @property
    def relative_gap(self) -> float:
        """How much shorter the best schedule may be, as a share of ``makespan_s``; 0 when optimal."""
        return 0.0 if self.makespan_s <= 0 else 1.0 - self.lower_bound_s / self.makespan_s


def durations_s(problem: ScheduleProblem, mode: NDArray[np.int8]) -> NDArray[np.float64]:
    """(n_ops,) seconds of each operator in its mode; collectives take the smaller of their entries."""
    chosen = np.where(mode == Mode.ALL, problem.all_s, problem.one_s)
    return np.where(problem.graph.is_network, np.minimum(problem.one_s, problem.all_s), chosen)


def status_of(*, makespan_s: float, lower_bound_s: float) -> ScheduleStatus:
    """Optimal if the bound reaches the makespan within :data:`PROOF_TOLERANCE`."""
    met = makespan_s - lower_bound_s <= PROOF_TOLERANCE * makespan_s
    return ScheduleStatus.OPTIMAL if met else ScheduleStatus.GAP


def with_bound(schedule: Schedule, lower_bound_s: float) -> Schedule:
    """``schedule`` with this bound; one that meets the makespan within the tolerance, or exceeds it by rounding,
    is set to it.
    """
    status = status_of(makespan_s=schedule.makespan_s, lower_bound_s=lower_bound_s)
    if status is ScheduleStatus.OPTIMAL:
        lower_bound_s = schedule.makespan_s
    return replace(schedule, lower_bound_s=lower_bound_s, status=status)
