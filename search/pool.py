"""Solve many schedules at once, on the processes of this machine."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Self

from archplace.search.schedule import Schedule, ScheduleCache, ScheduleProblem, solve_many

_FEW = 64
"""Schedules that are solved here rather than by waiting for processes to start; also the fewest of one task, since
together they take a fraction of the time that each takes alone."""


class SchedulePool:
    """Fills a :class:`ScheduleCache` from several processes; the answers do not depend on how many.

    Processes start when first needed, by ``spawn``: a fork of a process with threads (progress display, solvers) may
    hang. Use as a context manager.
    """

    def __init__(self, cache: ScheduleCache, *, jobs: int | None = None) -> None:
        self.cache = cache
        self._jobs = jobs or os.cpu_count() or 1
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=kind is None, cancel_futures=True)

    def fill(self, problems: Sequence[ScheduleProblem]) -> None:
        """Solve those of ``problems`` that the cache does not know; equal ones once."""
        known = self.cache.schedules
        new: dict[str, ScheduleProblem] = {}
        for problem in problems:
            key = problem.key()
            if key not in known:
                new.setdefault(key, problem)
        if len(new) < 2 * _FEW or self._jobs == 1:
            self.cache.solve_many(list(new.values()))
            return
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self._jobs, mp_context=get_context("spawn"), initializer=_end_with_parent, initargs=(os.getpid(),)
            )
        # Two tasks per process leave little to wait for at the end. Which problems share a task changes no answer.
        count = min(2 * self._jobs, len(new) // _FEW)
        items = list(new.items())
        shares = [items[first::count] for first in range(count)]
        tasks = [([problem for _, problem in share], self.cache.engine, self.cache.time_limit_s) for share in shares]
        for share, schedules in zip(shares, self._executor.map(_solve, tasks), strict=True):
            for (key, _), schedule in zip(share, schedules, strict=True):
                self.cache.keep(key, schedule)


def _end_with_parent(parent: int) -> None:
    """Watch the process that started this one: when it is killed, its workers must not stay behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _solve(task: tuple[list[ScheduleProblem], str, float]) -> list[Schedule]:
    problems, engine, time_limit_s = task
    return solve_many(problems, engine=engine, time_limit_s=time_limit_s)
