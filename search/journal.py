"""The journal of an exploration in a run's store: an interrupted run goes on with the answers that stand there."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from archplace.search.evaluator import BoundBlock
from archplace.search.outcome import Bound, Fate, Progress, Record
from archplace.search.pace import Pace
from archplace.search.schedule import ScheduleCache
from archplace.search.store import Store

SECONDS_BETWEEN_NOTES = 1.0
"""Between two notes of the progress: each costs a write to the disk."""


@dataclass(slots=True, kw_only=True)
class Answers:
    """How many answers came from the store, and how many were computed."""

    bounds_stored: int = 0
    """Blocks."""
    bounds_computed: int = 0
    records_stored: int = 0
    """Architectures, by themselves and with their schedules solved."""
    records_computed: int = 0

    @property
    def computed(self) -> bool:
        """Whether anything was computed."""
        return self.bounds_computed + self.records_computed > 0


class StoreJournal:
    """Keeps the steps of an exploration in a store, and tells somebody how far it is."""

    def __init__(
        self, store: Store, cache: ScheduleCache, on_progress: Callable[[Progress], None], *, scope: str = ""
    ) -> None:
        """``scope`` tells apart what a run explores besides its space under its objectives."""
        self._store = store
        self._cache = cache
        self._on_progress = on_progress
        self._scope = scope
        self._stored_schedules = set(cache.schedules)
        earlier = store.progress() or {}
        seconds = earlier.get("elapsed_s", 0.0)
        self._earlier_s = float(seconds) if isinstance(seconds, int | float) else 0.0
        self._started = time.monotonic()
        self._noted_at = -SECONDS_BETWEEN_NOTES
        self._noted_phase = ""
        self._pace = Pace()
        self.answers = Answers()

    def bounds(self, kind: Bound, number: int) -> BoundBlock | None:
        """Return stored bounds."""
        block = self._store.bounds(kind, number, scope=self._scope)
        self.answers.bounds_stored += block is not None
        return block

    def keep_bounds(self, kind: Bound, number: int, block: BoundBlock, progress: Progress) -> None:
        """Store bounds."""
        self.answers.bounds_computed += 1
        told = self._told(progress)
        self._store.keep_bounds(kind, number, block, noted(told), scope=self._scope)
        self._on_progress(told)

    def record(self, architecture: int, *, solved: bool) -> Record | None:
        """Return a stored record."""
        record = self._store.record(architecture, solved=solved, scope=self._scope)
        self.answers.records_stored += record is not None
        return record

    def keep_records(self, records: Sequence[Record], *, solved: bool) -> None:
        """Store records, and the schedules that have been solved since."""
        self.answers.records_computed += len(records)
        known = self._cache.schedules
        new = {key: known[key] for key in known.keys() - self._stored_schedules}
        self._store.keep_records(records, solved=solved, schedules=new, scope=self._scope)
        self._stored_schedules.update(new)

    def show(self, progress: Progress) -> None:
        """Tell how far it is, and store that now and then."""
        told = self._told(progress)
        now = time.monotonic()
        # What a run that goes on finds in its store is behind what the interrupted one has noted.
        if self.answers.computed and (told.phase != self._noted_phase or now - self._noted_at >= SECONDS_BETWEEN_NOTES):
            self._store.keep_progress(noted(told))
            self._noted_at, self._noted_phase = now, told.phase
        self._on_progress(told)

    def last(self, progress: Progress) -> dict[str, object]:
        """Return what is to be noted of a progress that is the last one."""
        return noted(replace(self._told(progress), phase="done"))

    def _told(self, progress: Progress) -> Progress:
        if self._scope:
            # Its values are not those of the run's objectives.
            progress = replace(progress, phase=f"{self._scope}: {progress.phase}", front=0, best=())
        return replace(
            progress,
            # By a clock that nobody sets.
            elapsed_s=self._earlier_s + time.monotonic() - self._started,
            remaining_s=self._pace.remaining_s(progress) if self.answers.computed else None,
        )


def noted(progress: Progress) -> dict[str, object]:
    """Return what is stored of a progress."""
    return {
        "phase": progress.phase,
        "bounded": progress.bounded,
        "decided": progress.decided,
        "total": progress.total,
        "evaluated": progress.evaluated,
        "front": progress.front,
        "best": [None if value != value else value for value in progress.best],
        "fates": {fate.name.lower(): progress.fates[fate] for fate in Fate},
        "unproven": progress.unproven,
        "elapsed_s": progress.elapsed_s,
        "remaining_s": progress.remaining_s,
        # The time of day is only told: nothing is computed from it.
        "written_at": time.time(),
    }
