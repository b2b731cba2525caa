"""What a farm's workers are asked: pieces of an exploration's questions that can be asked again, or in halves."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.outcome import Bound
from archplace.search.schedule import Schedule, ScheduleProblem

Indices = NDArray[np.int64]

_SMALLEST = 2
"""A question about one architecture alone would add in another order than one about several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsQuestion:
    """The bounds of some architectures; the answer is a :class:`BoundBlock`."""

    indices: Indices
    kind: Bound

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def size(self) -> str:
        """What the question is about, in words."""
        return f"bounds of {len(self.indices):,} architectures"

    def halves(self) -> tuple[Self, ...]:
        """Return two questions instead of this one, or none where it is small."""
        half = len(self.indices) // 2
        if half < _SMALLEST:
            return ()
        parts = (self.indices[:half], self.indices[half:])
        return tuple(type(self)(indices=indices, kind=self.kind) for indices in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsQuestion:
    """The design points of some architectures; the answer is a :class:`RecordsAnswer`."""

    indices: Indices
    options: tuple[FloatArray, ...]
    """Bounds of the placement options of each workload, (n_options, n, n_figures)."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def size(self) -> str:
        """What the question is about, in words."""
        return f"evaluation of {len(self.indices):,} architectures"

    def halves(self) -> tuple[Self, ...]:
        """Return two questions instead of this one, or none where it is small."""
        half = len(self.indices) // 2
        if half < _SMALLEST:
            return ()
        parts = (slice(None, half), slice(half, None))
        return tuple(
            type(self)(indices=self.indices[part], options=tuple(one[:, part] for one in self.options))
            for part in parts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulesQuestion:
    """Schedules to solve; the answer is a tuple of them, in the order of the problems."""

    problems: tuple[ScheduleProblem, ...]
    engine: str
    time_limit_s: float

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def size(self) -> str:
        """What the question is about, in words."""
        return f"solving of {len(self.problems):,} schedules"

    def halves(self) -> tuple[Self, ...]:
        """Return two questions instead of this one, or none where it is small."""
        half = len(self.problems) // 2
        if half == 0:
            return ()
        parts = (self.problems[:half], self.problems[half:])
        return tuple(type(self)(problems=part, engine=self.engine, time_limit_s=self.time_limit_s) for part in parts)


Question = BoundsQuestion | RecordsQuestion | SchedulesQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsAnswer:
    """What evaluating gave."""

    records: bytes
    """A JSON list of records: read back, each field has the type that it should have, whoever wrote it."""
    solved: tuple[tuple[ScheduleProblem, Schedule], ...]
    """Schedules that had to be solved to tell whether budgets are kept."""
