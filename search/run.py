"""One run from start to end: enumerate, explore, store; and what is read back from a run's folder."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from archplace.arch_configs import Architectures
from archplace.arch_configs.area import working_area_mm2
from archplace.arch_configs.errors import ConfigError, StoreError
from archplace.search.engine import Engine
from archplace.search.evaluator import Evaluator, References
from archplace.search.explore import SOLVER_LIMIT_S, Exploration, references
from archplace.search.journal import StoreJournal
from archplace.search.offered import Offered
from archplace.search.outcome import Evaluated, Outcome, Progress
from archplace.search.power_limit import throttled_chip
from archplace.search.runfile import Run
from archplace.search.schedule import ScheduleCache
from archplace.search.steps import Exchange
from archplace.search.store import Store
from archplace.search.store_lock import is_locked
from archplace.search.unfinished import unfinished_outcome

_RUN = TypeAdapter(Run)

COMMAND = "command"
"""What the store's log calls the command that searches."""

MakeEngine = Callable[[Run, Evaluator, ScheduleCache], Engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The named chip that the front is compared with, under the same placement options and its own HBM."""

    name: str
    architectures: Architectures
    """One row; its area is that of its working parts by the space's technology table, like the designs'."""
    point: Evaluated | None
    reason: str | None
    """Why there is no point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run with all that tables and reports need."""

    run: Run
    architectures: Architectures
    outcome: Outcome
    baseline: Baseline | None
    cache: ScheduleCache
    partial: bool = False
    """Whether the run is not finished: the front is that of what was evaluated so far."""


class RunSearch:
    """A run in progress. Use as a context manager: the store stays open inside."""

    def __init__(self, job: Run, store: Store, architectures: Architectures, cache: ScheduleCache) -> None:
        self.job = job
        self.store = store
        self.architectures = architectures
        self.cache = cache
        self.evaluator = evaluator_of(job, architectures)
        self.finished_before = store.finished
        self._outcome: Outcome | None = None

    @classmethod
    def start(cls, job: Run, folder: Path, *, meta: Mapping[str, object] | None = None) -> Self:
        """Open or make the store in ``folder`` and enumerate the space; ``meta`` is kept with a new store.

        Raises :class:`StoreError` for a folder of other inputs or in use, :class:`InfeasibleError` for an empty space.
        """
        described = {"name": job.name, "run": _RUN.dump_json(job).decode(), **(meta or {})}
        store = Store.create(folder, digest=job.digest, meta=described)
        try:
            return cls(job, store, job.architectures(), _stored_schedules(store))
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()

    @staticmethod
    def size(job: Run) -> dict[str, int]:
        """Return how large the search is, without searching."""
        choices, architectures = job.choices, job.architectures()
        capacities = choices.hbm_bytes or tuple(sorted(set(architectures.hbm_bytes.tolist())))
        options = [Offered.of(workload, job.cluster, choices, capacities).n_options for workload in job.workloads]
        return {
            "raw_combinations": job.space.n_raw,
            "architectures": len(architectures),
            "placement_options": max(options),
            "workloads": len(job.workloads),
            "points": len(architectures) * sum(options),
        }

    def describe(self) -> str:
        """Return one line about what is searched."""
        names = ", ".join(workload.name for workload in self.job.workloads)
        options = sum(len(search.spaces) for search in self.evaluator.searches)
        infeasible = sum(len(search.reasons) for search in self.evaluator.searches)
        return (
            f"{names} on {self.job.choices.accelerators} accelerators: {len(self.architectures):,} of "
            f"{self.job.space.n_raw:,} combinations are architectures within the area budget; {options} placement "
            f"options fit, {infeasible} do not"
        )

    def note_command(self, command: str) -> None:
        """Note the command that goes on with this run, for whoever finds it interrupted."""
        given = {"command": command, "folder": str(Path.cwd())}
        if self.store.logged(COMMAND)[-1:] != [given]:
            self.store.log(COMMAND, given)

    def run(
        self,
        on_progress: Callable[[Progress], None],
        *,
        jobs: int | None = None,
        make_engine: MakeEngine | None = None,
        members: NDArray[np.bool_] | None = None,
        exchange: Exchange | None = None,
    ) -> Outcome:
        """Explore until every architecture has its fate, storing what is found as it comes.

        A run that was interrupted goes on with what it has stored, one that was finished is read back.
        ``jobs`` processes of this machine solve schedules (None: as many as there are processors), unless
        ``make_engine`` gives an engine that does all the work. ``members`` and ``exchange`` as for
        :class:`Exploration`, for a run that is shared out.
        """
        known = self.store.outcome(self._stored_references.seconds)
        if known is not None:
            self._outcome = known
            return known
        if len(self.job.workloads) > 1:
            known_best = self.references(on_progress, jobs=jobs, make_engine=make_engine)
            self.evaluator = self.evaluator.relative_to(known_best)
        journal = StoreJournal(self.store, self.cache, on_progress)
        engine = make_engine(self.job, self.evaluator, self.cache) if make_engine is not None else None
        exploration = Exploration(
            self.evaluator,
            engine=engine,
            cache=self.cache,
            jobs=jobs,
            tolerances=self.job.tolerances,
            members=members,
            exchange=exchange,
        )
        self._outcome = exploration.run(journal)
        self.store.finish(self._outcome, progress=journal.last(exploration.progress()))
        self.store.log("answers", asdict(journal.answers))
        return self._outcome

    @property
    def _stored_references(self) -> References:
        return stored_references(self.store)

    def references(
        self,
        on_progress: Callable[[Progress], None],
        *,
        jobs: int | None = None,
        make_engine: MakeEngine | None = None,
    ) -> References:
        """Return what throughputs of several workloads are relative to, found in the whole space and stored."""
        known = self._stored_references
        if known.seconds:
            return known

        def explore(alone: Evaluator) -> Outcome:
            journal = StoreJournal(self.store, self.cache, on_progress, scope=f"{alone.workloads[0].name} by itself")
            names = [workload.name for workload in alone.workloads]
            workloads = tuple(workload for workload in self.job.workloads if workload.name in names)
            job = replace(self.job, workloads=workloads, objectives=alone.objectives)
            engine = make_engine(job, alone, self.cache) if make_engine is not None else None
            tolerances = self.job.reference_tolerances
            return Exploration(alone, engine=engine, cache=self.cache, jobs=jobs, tolerances=tolerances).run(journal)

        found = references(self.evaluator, explore)
        keep_references(self.store, found)
        return found

    def result(self) -> RunResult:
        """Return what tables and reports need."""
        assert self._outcome is not None, "the run has not been run"
        baseline = _baseline(self.job, self.cache, self._outcome.references_s)
        return RunResult(
            run=self.job,
            architectures=self.architectures,
            outcome=self._outcome,
            baseline=baseline,
            cache=self.cache,
        )


def stored_references(store: Store) -> References:
    """Return what throughputs are relative to, as far as a store says it."""
    seconds, gap = store.text("references_s"), store.text("references_gap")
    return References(
        seconds=tuple(seconds) if isinstance(seconds, list) else (), gap=gap if isinstance(gap, float) else 0.0
    )


def keep_references(store: Store, references: References) -> None:
    """Store what throughputs are relative to; of exact references no gap is stored."""
    if references.gap:
        store.keep_text("references_gap", references.gap)
    store.keep_text("references_s", list(references.seconds))


def evaluator_of(job: Run, architectures: Architectures, references_s: Sequence[float] = ()) -> Evaluator:
    """Return the evaluator of a run's space."""
    return Evaluator(
        architectures=architectures,
        workloads=job.workloads,
        cluster=job.cluster,
        choices=job.choices,
        objectives=job.objectives,
        technology=job.space.technology,
        references=References(seconds=tuple(references_s)),
        coarse=job.effort == "quick",
    )


def _stored_schedules(store: Store) -> ScheduleCache:
    cache = ScheduleCache(time_limit_s=SOLVER_LIMIT_S)
    for key, schedule in store.schedules().items():
        cache.keep(key, schedule)
    return cache


def read_job(store: Store) -> Run:
    """Return what an open store is a run of."""
    text = store.meta().get("run")
    if not isinstance(text, str):
        raise StoreError(f"{store.folder}: the store does not say what was run; search again into another folder")
    try:
        return _RUN.validate_json(text)
    except ValidationError as error:
        raise StoreError(
            f"{store.folder}: the stored run cannot be read ({error.error_count()} errors); "
            "search again into another folder"
        ) from None


def resume_command(store: Store) -> str:
    """Return the command that goes on with a run: as it was given last, from where it was given."""
    given = store.logged(COMMAND)[-1:]
    match given:
        case [{"command": str(command), "folder": str(folder)}]:
            return command if Path(folder) == Path.cwd() else f"cd {shlex.quote(folder)} && {command}"
    return f"archplace search {store.meta().get('name', 'RUN')}.yaml --out {shlex.quote(str(store.folder))}"


def refuse_shard(store: Store) -> None:
    """Raise :class:`StoreError` for the store of a share of a run, which is not to be taken for the whole."""
    match store.meta().get("shard"):
        case [int(number), int(count)]:
            raise StoreError(
                f"{store.folder}: shard {number} of {count} of a run; put them together with: "
                f"archplace merge {shlex.quote(str(store.folder.parent))}"
            )


def stored_run(store: Store) -> tuple[Run, Outcome]:
    """Return the run and its outcome from an open store. Raises :class:`StoreError` when it is not finished."""
    refuse_shard(store)
    job = read_job(store)
    outcome = store.outcome(stored_references(store).seconds)
    if outcome is None:
        if is_locked(store.folder):
            raise StoreError(
                f"{store.folder}: the run is not finished, a process is at it; watch it with: "
                f"archplace status {store.folder} --watch"
            )
        raise StoreError(f"{store.folder}: the run is not finished; go on with: {resume_command(store)}")
    return job, outcome


def open_result(folder: Path) -> RunResult:
    """Read a run back, an unfinished one as far as it got. Raises :class:`StoreError` when there is none."""
    with Store.open(folder) as store:
        refuse_shard(store)
        partial = not store.finished
        cache = _stored_schedules(store)
        if partial:
            job = read_job(store)
            architectures = job.architectures()
            known = stored_references(store).seconds
            outcome = unfinished_outcome(store, job.objectives, len(architectures), known)
        else:
            job, outcome = stored_run(store)
            architectures = job.architectures()
    baseline = _baseline(job, cache, outcome.references_s)
    return RunResult(
        run=job,
        architectures=architectures,
        outcome=outcome,
        baseline=baseline,
        cache=cache,
        partial=partial,
    )


def _baseline(job: Run, cache: ScheduleCache, references: Sequence[float]) -> Baseline | None:
    if job.baseline is None:
        return None
    # Designs of the space have no spare units, double precision or cache tags: neither has what they are compared with.
    area = working_area_mm2(job.baseline, job.space.technology)
    architectures = Architectures.of(job.baseline, area_mm2=area)
    # The chip that exists is what it is: its own HBM and power limit, and no budgets.
    choices = replace(
        job.choices,
        hbm_bytes=None,
        max_area_mm2=None,
        max_power_w=None,
        power_limit_w=None,
        max_step_s=None,
        min_samples_per_s=None,
        max_joules_per_sample=None,
        max_usd_per_sample=None,
        training=None,
    )
    point, reason = None, None
    try:
        if job.choices.power_limit_w is not None:
            limit_w, technology = job.choices.power_limit_w, job.space.technology
            architectures = throttled_chip(
                job.baseline, architectures, limit_w, technology, job.cluster, job.precisions
            )
        evaluator = evaluator_of(replace(job, choices=choices), architectures, references)
        outcome = Exploration(evaluator, cache=cache, jobs=1).run()
        point = outcome.point(0)
        if point is None:
            reasons = [*outcome.option_reasons.values(), *(text for _, text in outcome.reasons.items())]
            reason = next(iter(reasons), "no placement fits")
    except ConfigError as error:  # the chip has no rate for the workload's precision
        reason = str(error)
    return Baseline(name=job.baseline.name, architectures=architectures, point=point, reason=reason)
