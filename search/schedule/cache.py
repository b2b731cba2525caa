"""Schedules by content: two architectures that give the same latencies share one."""

from dataclasses import dataclass, field

from archplace.search.schedule.problem import Schedule, ScheduleProblem, ScheduleStatus
from archplace.search.schedule.solve import TIME_LIMIT_S, solve


@dataclass(frozen=True, slots=True, kw_only=True)
class Makespan:
    """What is known of a problem without its schedule: enough to store and to compare."""

    makespan_s: float
    lower_bound_s: float
    status: ScheduleStatus


@dataclass(slots=True, kw_only=True)
class ScheduleCache:
    """Answers by :meth:`ScheduleProblem.key`; :meth:`rows` and :meth:`remember` carry them from one run to the next."""

    engine: str = "auto"
    """As for :func:`solve`."""
    time_limit_s: float = TIME_LIMIT_S
    """As for :func:`solve`: deterministic time for CP-SAT, so that every run has the same answers."""
    _makespans: dict[str, Makespan] = field(default_factory=dict)
    _schedules: dict[str, Schedule] = field(default_factory=dict)
    _limits_s: dict[str, float] = field(default_factory=dict)
    """The limit under which each schedule was found."""

    def solve(self, problem: ScheduleProblem, *, time_limit_s: float | None = None) -> Schedule:
        """The schedule of the problem or of an equal one, solved unless this cache has done that before.

        ``time_limit_s`` replaces the cache's own limit; a schedule that was not proven optimal under a shorter limit is
        solved again. So is what was only remembered, since it has no start times.
        """
        limit_s = self.time_limit_s if time_limit_s is None else time_limit_s
        key = problem.key()
        known = self._schedules.get(key)
        if known is not None and (known.status is ScheduleStatus.OPTIMAL or self._limits_s[key] >= limit_s):
            return known
        schedule = solve(problem, engine=self.engine, time_limit_s=limit_s)
        self._schedules[key] = schedule
        self._limits_s[key] = limit_s
        self._makespans[key] = Makespan(
            makespan_s=schedule.makespan_s, lower_bound_s=schedule.lower_bound_s, status=schedule.status
        )
        return schedule

    def makespan(self, problem: ScheduleProblem) -> Makespan:
        """The makespan of the problem, remembered or solved."""
        key = problem.key()
        if key not in self._makespans:
            self.solve(problem)
        return self._makespans[key]

    def remember(self, key: str, makespan_s: float, lower_bound_s: float, status: str) -> None:
        """Take over an answer from elsewhere; one solved here is kept. Raises ``ValueError`` for an unknown status."""
        known = Makespan(makespan_s=makespan_s, lower_bound_s=lower_bound_s, status=ScheduleStatus(status))
        self._makespans.setdefault(key, known)

    def rows(self) -> dict[str, tuple[str, float, float, str]]:
        """Key to (key, makespan, lower bound, status) of everything known: the arguments of :meth:`remember`."""
        return {
            key: (key, known.makespan_s, known.lower_bound_s, known.status.value)
            for key, known in self._makespans.items()
        }

    def __len__(self) -> int:
        return len(self._makespans)
