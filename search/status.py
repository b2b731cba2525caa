"""How far a run is, read from its folder while it runs or after it was interrupted. Changes nothing there."""

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.search.hypervolume import Box
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound, Fate
from archplace.search.pareto import front_mask
from archplace.search.points import OBJECTIVE_COLUMNS, Row, displayed
from archplace.search.run import read_job, resume_command
from archplace.search.store import Store
from archplace.search.store_lock import is_locked


class State(StrEnum):
    """Whether a run goes on."""

    RUNNING = "running"
    """A process is writing the folder now."""
    INTERRUPTED = "interrupted"
    """No process is, and the run has not ended."""
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How far a run is."""

    folder: Path
    name: str
    state: State
    phase: str
    """As :attr:`Progress.phase`; ``start`` before anything was noted, ``done`` at the end."""
    objectives: Objectives
    total: int
    """Architectures of the space; 0 before anything was noted."""
    bounded: int
    decided: int
    evaluated: int
    """Architectures evaluated, whose design points are stored."""
    unproven: int
    """As :attr:`Progress.unproven`."""
    fates: dict[Fate, int]
    """Architectures by fate, when the progress was noted last."""
    front: FloatArray
    """(n_points, n_objectives) values on the front of all stored design points, minimised."""
    box: Box | None
    """What the hypervolume is measured in; None until all architectures are bounded."""
    hypervolume: float | None
    """Share of the box that the front dominates: it never falls while a run goes on. None without a box, or where the
    front has too many points for its number of objectives."""
    elapsed_s: float
    """Seconds explored until the progress was noted last, in all processes that have worked on the run."""
    remaining_s: float | None
    """Seconds from then to the end of the phase; None while that cannot be told or no process goes on."""
    noted_s_ago: float | None
    """Seconds since then by the time of day, at least 0; None before anything was noted."""
    resume: str | None
    """The command that goes on with an interrupted run."""

    @property
    def done(self) -> int:
        """Architectures that the present phase is through with."""
        return self.bounded if self.phase.endswith("bounds") else self.decided

    @property
    def architectures_per_s(self) -> float | None:
        """Architectures done per second explored; None at the start."""
        return self.done / self.elapsed_s if self.elapsed_s > 0 else None

    @property
    def best(self) -> tuple[float | None, ...]:
        """Least value of each objective; None while there is no design point."""
        if len(self.front) == 0:
            return (None,) * len(self.objectives)
        return tuple(self.front.min(axis=0).tolist())

    def row(self) -> Row:
        """Return everything in one flat row, SI units."""
        best = {
            f"best_{OBJECTIVE_COLUMNS[name]}": None if value is None else displayed(name, value)
            for name, value in zip(self.objectives.names, self.best, strict=True)
        }
        return {
            "run": self.name,
            "folder": str(self.folder),
            "state": str(self.state),
            "phase": self.phase,
            "architectures": self.total,
            "bounded": self.bounded,
            "decided": self.decided,
            "evaluated": self.evaluated,
            "schedules_to_close": self.unproven,
            **{f"fate_{fate.name.lower()}": self.fates[fate] for fate in Fate},
            "front_points": len(self.front),
            **best,
            "hypervolume": self.hypervolume,
            "architectures_per_s": self.architectures_per_s,
            "elapsed_s": self.elapsed_s,
            "phase_remaining_s": self.remaining_s,
            "noted_s_ago": self.noted_s_ago,
            "resume": self.resume,
        }


def read_status(folder: Path, *, box: Box | None = None) -> Status:
    """Return how far the run in ``folder`` is. ``box`` is that of an earlier status, which need not be found again.

    Raises :class:`StoreError` where there is no run.
    """
    # Before the store is read: a run that ends meanwhile is then found done, not interrupted.
    running = is_locked(folder)
    with Store.open(folder) as store:
        job = read_job(store)
        finished = store.finished
        noted = store.progress() or {}
        values = store.point_values(len(job.objectives))
        evaluated = store.n_evaluated
        total = _count(noted, "total")
        if box is None and total:
            box = _box(store, total)
        resume = resume_command(store)
    state = State.DONE if finished else State.RUNNING if running else State.INTERRUPTED
    front = values[front_mask(values)]
    share = None if box is None else box.share(front)
    fates = noted.get("fates")
    written_at = noted.get("written_at")
    return Status(
        folder=folder,
        name=job.name,
        state=state,
        phase=str(noted.get("phase", "start")),
        objectives=job.objectives,
        total=total,
        bounded=_count(noted, "bounded"),
        decided=_count(noted, "decided"),
        evaluated=evaluated,
        unproven=_count(noted, "unproven"),
        fates={fate: _count(fates if isinstance(fates, dict) else {}, fate.name.lower()) for fate in Fate},
        front=front,
        box=box,
        hypervolume=share,
        elapsed_s=_seconds(noted.get("elapsed_s")) or 0.0,
        remaining_s=_seconds(noted.get("remaining_s")) if state is State.RUNNING else None,
        # A clock that was set back must not make the past lie ahead.
        noted_s_ago=max(0.0, time.time() - written_at) if isinstance(written_at, int | float) else None,
        resume=resume if state is State.INTERRUPTED else None,
    )


def _box(store: Store, total: int) -> Box | None:
    bounds = [block.values for block in store.all_bounds(Bound.WORK)]
    if sum(len(values) for values in bounds) < total:
        return None
    return Box.of_bounds(np.concatenate(bounds))


def _count(noted: dict[str, object], key: str) -> int:
    value = noted.get(key)
    return value if isinstance(value, int) else 0


def _seconds(value: object) -> float | None:
    return max(0.0, float(value)) if isinstance(value, int | float) else None
