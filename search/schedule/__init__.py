"""Schedule the operators of one layer slice on one accelerator.

A :class:`ScheduleGraph` is built once per operator graph. For many architectures at once, :func:`lower_bound_s`,
:func:`list_makespan_s` and :func:`bracket_s` bound the makespan; for one architecture, :func:`solve` finds a schedule
and says what is proven about it, :func:`solve_many` does so for many at once, and a :class:`ScheduleCache` remembers
schedules by content. Solvers are imported when asked.
"""

from archplace.search.schedule.bounds import lower_bound_s
from archplace.search.schedule.cache import ScheduleCache
from archplace.search.schedule.graph import Kind, ScheduleGraph, segments
from archplace.search.schedule.instance_file import ScheduleInstance, read_schedule_instances
from archplace.search.schedule.listing import Bracket, bracket_s, list_makespan_s
from archplace.search.schedule.problem import (
    PROOF_TOLERANCE,
    Mode,
    Schedule,
    ScheduleProblem,
    ScheduleStatus,
    durations_s,
)
from archplace.search.schedule.solve import ENGINES, TIME_LIMIT_S, solve, solve_many
from archplace.search.schedule.verify import verify

__all__ = [
    "ENGINES",
    "PROOF_TOLERANCE",
    "TIME_LIMIT_S",
    "Bracket",
    "Kind",
    "Mode",
    "Schedule",
    "ScheduleCache",
    "ScheduleGraph",
    "ScheduleInstance",
    "ScheduleProblem",
    "ScheduleStatus",
    "bracket_s",
    "durations_s",
    "list_makespan_s",
    "lower_bound_s",
    "read_schedule_instances",
    "segments",
    "solve",
    "solve_many",
    "verify",
]
