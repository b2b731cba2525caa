"""What runs on a farm's workers: a question, and the run that it belongs to, give an answer."""

import pickle
import threading
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from archplace import __version__
from archplace.search.evaluator import BoundBlock, Evaluator
from archplace.search.explore import SOLVER_LIMIT_S
from archplace.search.farm.questions import (
    BoundsQuestion,
    Question,
    RecordsAnswer,
    SchedulesQuestion,
)
from archplace.search.outcome import Record
from archplace.search.run import evaluator_of
from archplace.search.runfile import Run
from archplace.search.schedule import Schedule, ScheduleCache, ScheduleProblem, solve_many

Answer = BoundBlock | RecordsAnswer | tuple[Schedule, ...]

RECORDS = TypeAdapter(list[Record])

_KEPT_RUNS = 2
"""Runs whose evaluators a worker keeps: one, and the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The run that questions belong to: its name, and all of it for a worker that does not know it yet."""

    key: str
    version: str
    package: bytes | None
    """A pickled pair of run and reference seconds; None for workers that were given it before."""

    @classmethod
    def of(cls, job: Run, references_s: tuple[float, ...]) -> "Work":
        """Pack a run."""
        key = f"{job.digest} {references_s!r}"
        return cls(key=key, version=__version__, package=pickle.dumps((job, references_s)))


class UnknownWorkError(Exception):
    """The worker does not know the run (it was started anew, say) and must be given it again."""


class OtherVersionError(Exception):
    """The worker has another archplace than the one that asks."""


@dataclass(slots=True, kw_only=True)
class _NotingCache(ScheduleCache):
    """A cache that knows the problems it was asked for."""

    problems: dict[str, ScheduleProblem] = field(default_factory=dict)

    def solve(self, problem: ScheduleProblem, *, time_limit_s: float | None = None) -> Schedule:
        """Solve and note the problem."""
        self.problems[problem.key()] = problem
        # The bare super() does not know a class that was made anew with slots.
        return ScheduleCache.solve(self, problem, time_limit_s=time_limit_s)


_evaluators: dict[str, Evaluator] = {}
_lock = threading.Lock()


def answer(work: Work, question: Question) -> Answer:
    """Answer a question about a run, as the process that asks would.

    One at a time in a process: an evaluator belongs to one thread. Raises :class:`UnknownWorkError` when the run is
    neither known nor given, :class:`OtherVersionError` when it is of another archplace.
    """
    if work.version != __version__:
        raise OtherVersionError(f"archplace {__version__}, this run needs {work.version}")
    with _lock:
        evaluator = _evaluator(work)
        try:
            return answer_with(evaluator, question)
        finally:
            evaluator.forget()


def answer_with(evaluator: Evaluator, question: Question) -> Answer:
    """Answer a question with the evaluator of its run."""
    if isinstance(question, BoundsQuestion):
        return evaluator.bounds(question.indices, question.kind)
    if isinstance(question, SchedulesQuestion):
        found = solve_many(list(question.problems), engine=question.engine, time_limit_s=question.time_limit_s)
        return tuple(found)
    cache = _NotingCache(time_limit_s=SOLVER_LIMIT_S)
    records = evaluator.evaluate(question.indices, question.options, cache=cache)
    solved = tuple((problem, cache.schedules[key]) for key, problem in cache.problems.items())
    return RecordsAnswer(records=RECORDS.dump_json(records), solved=solved)


def _evaluator(work: Work) -> Evaluator:
    known = _evaluators.get(work.key)
    if known is not None:
        return known
    if work.package is None:
        raise UnknownWorkError(work.key)
    job, references_s = pickle.loads(work.package)
    if f"{job.digest} {references_s!r}" != work.key:
        raise OtherVersionError("the run means something else here; install the same archplace everywhere")
    while len(_evaluators) >= _KEPT_RUNS:
        del _evaluators[next(iter(_evaluators))]
    evaluator = evaluator_of(job, job.architectures(), references_s)
    _evaluators[work.key] = evaluator
    return evaluator
