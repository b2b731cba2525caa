"""Schedules by content: two architectures that give the same latencies share one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from archplace.search.schedule.problem import Schedule, ScheduleProblem, ScheduleStatus
from archplace.search.schedule.solve import TIME_LIMIT_S, solve, solve_many


@dataclass(slots=True, kw_only=True)
class ScheduleCache:
    """Schedules by :meth:`ScheduleProblem.key`.

    :attr:`schedules` and :meth:`keep` carry them from one run to the next.
    """

    engine: str = "auto"
    """As for :func:`solve`."""
    time_limit_s: float = TIME_LIMIT_S
    """As for :func:`solve`: deterministic time for CP-SAT, so that every run has the same answers."""
    _schedules: dict[str, Schedule] = field(default_factory=dict)
    _limits_s: dict[str, float] = field(default_factory=dict)
    """The limit under which each schedule was found."""

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """All known schedules by key."""
        return self._schedules

    def solve(self, problem: ScheduleProblem, *, time_limit_s: float | None = None) -> Schedule:
        """The schedule of the problem or of an equal one, solved unless this cache knows it.

        ``time_limit_s`` replaces the cache's own limit; a schedule that was not proven optimal under a shorter limit is
        solved again.
        """
        limit_s = self.time_limit_s if time_limit_s is None else time_limit_s
        key = problem.key()
        known = self._schedules.get(key)
        if known is not None and (known.status is ScheduleStatus.OPTIMAL or self._limits_s[key] >= limit_s):
            return known
        schedule = solve(problem, engine=self.engine, time_limit_s=limit_s)
        self.keep(key, schedule, time_limit_s=limit_s)
        return schedule

    def solve_many(self, problems: Sequence[ScheduleProblem]) -> None:
        """Solve those of ``problems`` of which this cache knows no schedule; together, so several times as fast."""
        new: dict[str, ScheduleProblem] = {}
        for problem in problems:
            key = problem.key()
            if key not in self._schedules:
                new.setdefault(key, problem)
        found = solve_many(list(new.values()), engine=self.engine, time_limit_s=self.time_limit_s)
        for key, schedule in zip(new, found, strict=True):
            self.keep(key, schedule)

    def keep(self, key: str, schedule: Schedule, *, time_limit_s: float | None = None) -> None:
        """Take over a schedule from elsewhere, found under ``time_limit_s`` (default: this cache's)."""
        self._schedules[key] = schedule
        self._limits_s[key] = self.time_limit_s if time_limit_s is None else time_limit_s

    def __len__(self) -> int:
        return len(self._schedules)
