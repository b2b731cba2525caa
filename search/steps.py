"""Who an exploration deals with beside its engine: a journal of its steps, and others who explore the same space."""

from collections.abc import Sequence
from typing import Protocol

from archplace.arch_configs.architectures import FloatArray
from archplace.search.evaluator import BoundBlock
from archplace.search.outcome import Bound, Evaluated, Progress, Record


class Journal(Protocol):
    """What is kept of an exploration while it runs, so that another process can go on with it.

    The ``number`` of a block of bounds follows from the architectures in it: a block that is not the same is not found.
    """

    def bounds(self, kind: Bound, number: int) -> BoundBlock | None:
        """Return the bounds of the block ``number``, or None where it was not finished."""

    def keep_bounds(self, kind: Bound, number: int, block: BoundBlock, progress: Progress) -> None:
        """Keep the bounds of a block."""

    def record(self, architecture: int, *, solved: bool) -> Record | None:
        """Return what evaluating an architecture gave, or None where it was not finished."""

    def keep_records(self, records: Sequence[Record], *, solved: bool) -> None:
        """Keep what evaluating architectures gave."""

    def show(self, progress: Progress) -> None:
        """Hear how far the exploration is."""


class NoJournal:
    """Keeps nothing."""

    def bounds(self, kind: Bound, number: int) -> BoundBlock | None:  # noqa: ARG002
        """Return None."""
        return None

    def keep_bounds(self, kind: Bound, number: int, block: BoundBlock, progress: Progress) -> None:
        """Keep nothing."""

    def record(self, architecture: int, *, solved: bool) -> Record | None:  # noqa: ARG002
        """Return None."""
        return None

    def keep_records(self, records: Sequence[Record], *, solved: bool) -> None:
        """Keep nothing."""

    def show(self, progress: Progress) -> None:
        """Tell nobody."""


class Exchange(Protocol):
    """Others who explore other architectures of the same space."""

    def exchange(self, front: Sequence[Evaluated]) -> FloatArray:
        """Show the front so far; return the values (n, n_objectives) of points that the others have shown since.

        Asked the same number of times by a resumed exploration, it must give the same answers.
        """
