"""An engine whose work is done by the workers of a dask scheduler.

Bounds go out in parts of blocks, several blocks ahead; evaluation in batches; schedules are solved problem by problem,
equal ones once, and come back checked. Each answer is the one that this process would give, so that the outcome does
not depend on who computes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.errors import ConfigError, StoppedError
from archplace.search.engine import Indices, Keep
from archplace.search.evaluator import BoundBlock, Evaluator
from archplace.search.farm.answers import Answer, Work, answer_with
from archplace.search.farm.checks import check, recheck, records_of
from archplace.search.farm.dispatch import Dispatcher, Part, Workers
from archplace.search.farm.questions import (
    BoundsQuestion,
    RecordsAnswer,
    RecordsQuestion,
    SchedulesQuestion,
)
from archplace.search.outcome import Bound
from archplace.search.run import MakeEngine
from archplace.search.runfile import Run
from archplace.search.schedule import ScheduleCache, ScheduleProblem

if TYPE_CHECKING:
    from archplace.search.farm.dask_workers import DaskWorkers

WAIT_S = 300.0
"""For the first worker to come."""
BOUNDED = (4096, 16384)
"""Least and most architectures whose bounds one question asks for: a question begins with a tenth of a second."""
EVALUATED = (32, 256)
"""Least and most architectures that one question asks to evaluate."""
SOLVED = 8
"""Schedules that one question asks for at least: they are solved faster together."""
AHEAD = 2
"""Blocks of bounds that may be finished before the oldest is, beside those that the workers hold."""

_FIRST_WORD_S = 5.0
_GREETING_S = 3.0
"""For workers to say which version they have."""
_BETWEEN_WORDS_S = 15.0


class DaskEngine:
    """Answers an exploration's questions with dask workers; where they fail, in this process."""

    def __init__(
        self,
        job: Run,
        evaluator: Evaluator,
        cache: ScheduleCache,
        *,
        scheduler: str,
        say: Callable[[str], None],
        wait_s: float = WAIT_S,
    ) -> None:
        """Prepare for the run ``job``, whose evaluator is ``evaluator``.

        ``scheduler`` is an address or the name of a scheduler file; ``say`` tells the user what goes wrong;
        ``wait_s`` is how long to wait for the first worker. Nothing is connected before the engine is entered.
        """
        self._work = Work.of(job, evaluator.references.seconds)
        self._evaluator = evaluator
        self._cache = cache
        self._scheduler = scheduler
        self._say = say
        self._wait_s = wait_s
        self._workers: DaskWorkers | None = None
        self._dispatcher: Dispatcher | None = None

    def __enter__(self) -> Self:
        """Connect and wait for a worker.

        Raises :class:`ConfigError` where dask or the scheduler is missing, :class:`StoppedError` where no worker comes.
        """
        try:
            from archplace.search.farm.dask_workers import DaskWorkers
        except ImportError as error:
            raise ConfigError(
                f"--engine dask: {error.name or 'distributed'} is not installed; install it with: "
                "pip install 'archplace[farm]'"
            ) from None
        workers = DaskWorkers(self._scheduler, self._work, self._say)
        try:
            self._wait(workers)
        except BaseException:
            workers.close()
            raise
        self._workers = workers
        self._dispatcher = self._dispatch_to(workers)
        return self

    def _dispatch_to(self, workers: Workers) -> Dispatcher:
        return Dispatcher(
            workers,
            check=lambda question, answer: check(self._evaluator, question, answer),
            recheck=lambda question, answer, sample: recheck(self._evaluator, question, answer, sample),
            answer_here=lambda question: answer_with(self._evaluator, question),
            say=self._say,
        )

    def _wait(self, workers: "DaskWorkers") -> None:
        started, said = time.monotonic(), -_BETWEEN_WORDS_S + _FIRST_WORD_S
        while not workers.names():
            waited = time.monotonic() - started
            if waited >= self._wait_s:
                others = ", ".join(f"{name} has {why}" for name, why in sorted(workers.refused.items()))
                raise StoppedError(
                    f"no worker came to the scheduler {self._scheduler} within {self._wait_s:.0f} s"
                    + (f" that could be used ({others})" if others else "")
                    + f"; start some with: dask worker {self._scheduler} --nthreads 1"
                )
            if waited - said >= _BETWEEN_WORDS_S:
                said = waited
                self._say(f"waiting for workers at {self._scheduler}: none yet, {self._wait_s - waited:.0f} s more")
            time.sleep(0.05)
        # Others that are there already may as well be used from the start.
        first_came = time.monotonic()
        while workers.some_are_greeted and time.monotonic() - first_came < _GREETING_S:
            workers.names()
            time.sleep(0.05)
        self._say(f"{len(workers.names())} workers at {self._scheduler} so far")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workers is not None:
            self._workers.close()
        self._workers = self._dispatcher = None
        self._evaluator.forget()

    def bounds(self, blocks: Sequence[Indices], kind: Bound) -> Iterator[BoundBlock]:
        """Yield the bounds of each block, in order."""
        groups = self._evaluator.groups_of(kind)
        # A bound of a group serves all its members.
        each = 1 if groups is None else max(1, len(groups.of) // len(groups.best))
        size = self._size(sum(len(indices) for indices in blocks), (BOUNDED[0] * each, BOUNDED[1] * each))
        parts = [
            Part(question=BoundsQuestion(indices=indices[start:end], kind=kind), block=number, start=start)
            for number, indices in enumerate(blocks)
            for start, end in _cuts(len(indices), size)
        ]
        joined = _Joined([len(indices) for indices in blocks], ahead=AHEAD + len(self._names()) // 2)
        for part, answer in self._ask(parts, joined.room):
            assert isinstance(answer, BoundBlock)
            yield from joined.add(part, answer)

    def evaluate(self, indices: Indices, options: tuple[FloatArray, ...], *, solve: bool, keep: Keep) -> None:
        """Evaluate architectures; with ``solve`` the workers solve the schedules, and points follow from these here."""
        evaluator = self._evaluator
        options = options or evaluator.bounds(indices, Bound.SCHEDULE).options
        if solve:
            self._solve(evaluator.open_problems(indices, options), keep)
            keep(evaluator.evaluate(indices, options, cache=self._cache, solve=True))
            return
        parts = [
            Part(
                question=RecordsQuestion(
                    indices=indices[start:end], options=tuple(one[:, start:end] for one in options)
                )
            )
            for start, end in _cuts(len(indices), self._size(len(indices), EVALUATED))
        ]
        for _, answer in self._ask(parts, lambda _: True):
            assert isinstance(answer, RecordsAnswer)
            for problem, schedule in answer.solved:
                self._cache.keep(problem.key(), schedule)
            keep(records_of(answer))

    def _solve(self, problems: Sequence[ScheduleProblem], keep: Keep) -> None:
        """Have the schedules solved that the cache does not know."""
        known = self._cache.schedules
        new = {problem.key(): problem for problem in problems}
        todo = [problem for key, problem in new.items() if key not in known]
        if not todo:
            return
        # Two questions per worker leave little to wait for at the end; those of one graph are solved together.
        count = max(1, min(2 * len(self._names()), len(todo) // SOLVED))
        parts = [
            Part(
                question=SchedulesQuestion(
                    problems=tuple(todo[first::count]), engine=self._cache.engine, time_limit_s=self._cache.time_limit_s
                )
            )
            for first in range(count)
        ]
        for part, answer in self._ask(parts, lambda _: True):
            assert isinstance(answer, tuple)
            assert isinstance(part.question, SchedulesQuestion)
            for problem, schedule in zip(part.question.problems, answer, strict=True):
                self._cache.keep(problem.key(), schedule)
            # No point follows from them yet, but they need not be solved again if the run is interrupted now.
            keep(())

    def _size(self, count: int, limits: tuple[int, int]) -> int:
        """Return how many of ``count`` architectures a question is about: two questions per worker, within limits."""
        least, most = limits
        return min(max(least, -(-count // (2 * max(1, len(self._names()))))), most)

    def _names(self) -> frozenset[str]:
        return self._workers.names() if self._workers is not None else frozenset()

    def _ask(self, parts: Sequence[Part], room: Callable[[Part], bool]) -> Iterator[tuple[Part, Answer]]:
        assert self._dispatcher is not None, "the engine has not been entered"
        return self._dispatcher.answers(parts, room=room)


def dask_engine(scheduler: str, *, say: Callable[[str], None], wait_s: float = WAIT_S) -> MakeEngine:
    """Return what makes the engine of a run; arguments as for :class:`DaskEngine`."""

    def make(job: Run, evaluator: Evaluator, cache: ScheduleCache) -> DaskEngine:
        return DaskEngine(job, evaluator, cache, scheduler=scheduler, say=say, wait_s=wait_s)

    return make


def _cuts(count: int, size: int) -> list[tuple[int, int]]:
    """Return where to cut ``count`` things into parts of nearly ``size``; none is of one thing, unless all are."""
    n_parts = max(1, -(-count // size))
    if count > 1:
        n_parts = min(n_parts, count // 2)
    edges = [count * i // n_parts for i in range(n_parts + 1)]
    return [(start, end) for start, end in pairwise(edges) if end > start]


class _Joined:
    """Puts blocks together from their parts."""

    def __init__(self, lengths: list[int], *, ahead: int) -> None:
        self._lengths = lengths
        self._pieces: list[dict[int, BoundBlock]] = [{} for _ in lengths]
        self._ahead = ahead
        self._due = 0

    def room(self, part: Part) -> bool:
        """Return whether a part may be asked for: not too far ahead of the oldest block that is not whole."""
        return part.block <= self._due + self._ahead

    def add(self, part: Part, answer: BoundBlock) -> Iterator[BoundBlock]:
        """Add a part; yield the blocks that are now whole and whose turn it is."""
        self._pieces[part.block][part.start] = answer
        while self._due < len(self._lengths):
            pieces = self._pieces[self._due]
            if sum(len(piece.values) for piece in pieces.values()) < self._lengths[self._due]:
                return
            self._pieces[self._due] = {}
            self._due += 1
            yield _in_one([piece for _, piece in sorted(pieces.items(), key=lambda item: item[0])])


def _in_one(blocks: list[BoundBlock]) -> BoundBlock:
    if len(blocks) == 1:
        return blocks[0]
    return BoundBlock(
        values=np.concatenate([block.values for block in blocks]),
        code=np.concatenate([block.code for block in blocks]),
        amount=np.concatenate([block.amount for block in blocks]),
        options=tuple(np.concatenate(each, axis=1) for each in zip(*(b.options for b in blocks), strict=True)),
    )
