"""Solve many schedules at once, on the processes of this machine."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from archplace.search.schedule import Schedule, ScheduleCache, ScheduleProblem, solve_many

_FEW = 64
"""Schedules that are solved here rather than by waiting for processes to start; also the fewest of one task, since
together they take a fraction of the time that each takes alone."""


class SchedulePool:
    """Fills a :class:`ScheduleCache` from several processes; the answers do not depend on how many.

    Processes start when first needed, by ``spawn``: a fork of a process with threads (progress display, solvers) may
    hang. Where one of them is killed, by the system for want of memory say, this process does their work. Use as a
    context manager.
    """

    def __init__(self, cache: ScheduleCache, *, jobs: int | None = None) -> None:
        self.cache = cache
        self._jobs = jobs or os.cpu_count() or 1
        self._executor: ProcessPoolExecutor | None = None
        self._lifeline: tuple[Connection, Connection] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            if kind is not None:
                # What they work on is not wanted any more.
                self._cut_lifeline()
            # Python's own end of the program does not wait for an executor that is ending already.
            self._executor.shutdown()
        self._cut_lifeline()

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
        # Two tasks per process leave little to wait for at the end. Which problems share a task changes no answer.
        count = min(2 * self._jobs, len(new) // _FEW)
        items = list(new.items())
        shares = [items[first::count] for first in range(count)]
        tasks = [([problem for _, problem in share], self.cache.engine, self.cache.time_limit_s) for share in shares]
        try:
            executor = self._ready()
            # Not `map`, which cancels what is left when it is interrupted: the executor hangs if processes end then.
            with _starting_processes():
                answers = [executor.submit(_solve, task) for task in tasks]
            for share, answer in zip(shares, answers, strict=True):
                for (key, _), schedule in zip(share, answer.result(), strict=True):
                    self.cache.keep(key, schedule)
        except BrokenProcessPool:
            self._cut_lifeline()
            self._executor, self._jobs = None, 1
            self.cache.solve_many(list(new.values()))

    def _ready(self) -> ProcessPoolExecutor:
        """Return what starts the processes with the first task."""
        if self._executor is None:
            context = get_context("spawn")
            self._lifeline = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(
                self._jobs, mp_context=context, initializer=_hold_lifeline, initargs=self._lifeline[:1]
            )
        return self._executor

    def _cut_lifeline(self) -> None:
        for end in self._lifeline or ():
            end.close()
        self._lifeline = None


@contextlib.contextmanager
def _starting_processes() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, and without being interrupted oneself before all have been started.

    A terminal sends Ctrl-C to a whole group, of which one process is to answer. That one answers when this ends, and to
    a request to end likewise: a process that is half started would wait for ever.
    """
    # Python starts this process of its own with the first other one, and lets signals through when it has.
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        # What other threads let through interrupts this one, blocked or not.
        for number in (signal.SIGINT, signal.SIGTERM):
            if (handler := signal.getsignal(number)) is not None:
                handlers[number] = handler
                signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if came:
            signal.raise_signal(came[0])


def _hold_lifeline(end: Connection) -> None:
    """End when the process that started this one lets go of the other end of the pipe, or dies in whatever way."""

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            end.recv_bytes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _solve(task: tuple[list[ScheduleProblem], str, float]) -> list[Schedule]:
    problems, engine, time_limit_s = task
    return solve_many(problems, engine=engine, time_limit_s=time_limit_s)
