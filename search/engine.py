"""Who computes what an exploration asks for: this process, or others."""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.evaluator import BoundBlock, Evaluator
from archplace.search.outcome import Bound, Record
from archplace.search.pool import SchedulePool
from archplace.search.schedule import ScheduleCache

Indices = NDArray[np.int64]
Keep = Callable[[Sequence[Record]], None]


KEPT_AT_ONCE = 256
"""Architectures after which a local engine hands over what it has: a kill costs no more than these."""


class Engine(Protocol):
    """Answers an exploration's questions; the answers are those of one :class:`Evaluator`, whoever computes them."""

    def __enter__(self) -> Self:
        """Get ready."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of all processes; after an exception without waiting for them."""

    def bounds(self, blocks: Sequence[Indices], kind: Bound) -> Iterator[BoundBlock]:
        """Yield the bounds of each block of architectures, in order; several may be computed ahead."""

    def evaluate(self, indices: Indices, options: tuple[FloatArray, ...], *, solve: bool, keep: Keep) -> None:
        """Evaluate architectures, handing records to ``keep`` as they come, in any order.

        ``options`` are their bounds as in :class:`BoundBlock`, or nothing. With ``solve`` schedules that matter are
        solved, else only bracketed.
        """


class LocalEngine:
    """Evaluates in this process; schedules are solved by several."""

    def __init__(self, evaluator: Evaluator, cache: ScheduleCache, *, jobs: int | None = None) -> None:
        self._evaluator = evaluator
        self._cache = cache
        self._pool = SchedulePool(cache, jobs=jobs)

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, value, trace)
        self._evaluator.forget()

    def bounds(self, blocks: Sequence[Indices], kind: Bound) -> Iterator[BoundBlock]:
        """Yield the bounds of each block of architectures, one after the other."""
        return (self._evaluator.bounds(indices, kind) for indices in blocks)

    def evaluate(self, indices: Indices, options: tuple[FloatArray, ...], *, solve: bool, keep: Keep) -> None:
        """Evaluate architectures and hand their records to ``keep``, some hundred at a time."""
        for start in range(0, len(indices), KEPT_AT_ONCE):
            rows = slice(start, start + KEPT_AT_ONCE)
            keep(self._evaluate(indices[rows], tuple(one[:, rows] for one in options), solve=solve))

    def _evaluate(self, indices: Indices, options: tuple[FloatArray, ...], *, solve: bool) -> list[Record]:
        evaluator = self._evaluator
        if solve:
            options = options or evaluator.bounds(indices, Bound.SCHEDULE).options
            self._pool.fill(evaluator.open_problems(indices, options))
        return evaluator.evaluate(indices, options, cache=self._cache, solve=solve)
