"""One run from start to end: enumerate, bound, evaluate, store; and what is read back from a run's folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter, ValidationError

from archplace.arch_configs import Architectures, price_accelerator_area
from archplace.arch_configs.errors import ConfigError, StoreError
from archplace.search.explore import SOLVER_LIMIT_S, Evaluated, Exploration, Outcome, Progress
from archplace.search.runfile import Run
from archplace.search.schedule import ScheduleCache
from archplace.search.store import Store
from archplace.search.workload_search import Choices

_RUN = TypeAdapter(Run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The named chip that the front is compared with, under the same placement options and its own HBM."""

    name: str
    architectures: Architectures
    """One row; its area is what the space's technology table gives."""
    point: Evaluated | None
    reason: str | None
    """Why there is no point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished run with all that tables and reports need."""

    run: Run
    architectures: Architectures
    outcome: Outcome
    baseline: Baseline | None
    cache: ScheduleCache


class RunSearch:
    """A run in progress. Use as a context manager: the store stays open inside."""

    def __init__(self, job: Run, store: Store, exploration: Exploration) -> None:
        self.job = job
        self.store = store
        self._exploration = exploration
        self._stored_schedules: set[str] = set()

    @classmethod
    def start(cls, job: Run, folder: Path, *, jobs: int | None = None) -> Self:
        """Open or make the store in ``folder`` and enumerate the space.

        ``jobs`` processes solve schedules; None takes as many as there are processors. Raises :class:`StoreError` for
        a folder of other inputs, :class:`InfeasibleError` for an empty space.
        """
        store = Store.create(folder, digest=job.digest, meta={"name": job.name, "run": _RUN.dump_json(job).decode()})
        cache = ScheduleCache(time_limit_s=SOLVER_LIMIT_S)
        exploration = Exploration(
            job.space.enumerate(), job.workloads, job.cluster, job.choices, cache=cache, jobs=jobs
        )
        search = cls(job, store, exploration)
        for key, schedule in store.schedules().items():
            cache.keep(key, schedule)
        search._stored_schedules = set(cache.schedules)
        return search

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()

    @staticmethod
    def size(job: Run) -> dict[str, int]:
        """Return how large the search is, without searching."""
        choices, architectures = job.choices, job.space.enumerate()
        capacities = len(choices.hbm_bytes) if choices.hbm_bytes else 1
        options = len(choices.tensor_parallel) * len(choices.microbatch) * len(choices.recompute) * capacities
        return {
            "raw_combinations": job.space.n_raw,
            "architectures": len(architectures),
            "placement_options": options,
            "workloads": len(job.workloads),
            "points": len(architectures) * options * len(job.workloads),
        }

    def describe(self) -> str:
        """Return one line about what is searched."""
        names = ", ".join(workload.name for workload in self.job.workloads)
        options = sum(len(search.spaces) for search in self._exploration.searches)
        infeasible = sum(len(search.reasons) for search in self._exploration.searches)
        return (
            f"{names} on {self.job.choices.accelerators} accelerators: {len(self._exploration.architectures):,} of "
            f"{self.job.space.n_raw:,} combinations are architectures within the area budget; {options} placement "
            f"options fit, {infeasible} do not"
        )

    def bound(self) -> None:
        """Bound all architectures."""
        self._exploration.bound()

    def progress(self) -> Progress:
        """Return how far the search is."""
        return self._exploration.progress()

    def finish(self, on_points: Callable[[list[Evaluated], Progress], None]) -> Outcome:
        """Evaluate until every architecture has its fate, storing points as they come."""

        def store_points(points: list[Evaluated], progress: Progress) -> None:
            known = self._exploration.cache.schedules
            new = {key: known[key] for key in known.keys() - self._stored_schedules}
            self.store.add_schedules(new)
            self._stored_schedules.update(new)
            self.store.add_points(points)
            on_points(points, progress)

        outcome = self._exploration.run(stored=self.store.points(), on_points=store_points)
        self.store.finish(outcome)
        return outcome

    def result(self) -> RunResult:
        """Return what tables and reports need."""
        exploration = self._exploration
        return RunResult(
            run=self.job,
            architectures=exploration.architectures,
            outcome=exploration.outcome,
            baseline=_baseline(self.job, exploration.cache),
            cache=exploration.cache,
        )


def stored_run(store: Store) -> tuple[Run, Outcome]:
    """Return the run and its outcome from an open store. Raises :class:`StoreError` when it is not finished."""
    text = store.meta().get("run")
    if not isinstance(text, str):
        raise StoreError(f"{store.folder}: the store does not say what was run; search again into another folder")
    try:
        job = _RUN.validate_json(text)
    except ValidationError as error:
        raise StoreError(
            f"{store.folder}: the stored run cannot be read ({error.error_count()} errors); "
            "search again into another folder"
        ) from None
    outcome = store.outcome()
    if outcome is None:
        raise StoreError(
            f"{store.folder}: the run is not finished; go on with: "
            f"archplace search {job.name}.yaml --out {store.folder}"
        )
    return job, outcome


def open_result(folder: Path) -> RunResult:
    """Read a finished run back. Raises :class:`StoreError` when there is none or it is not finished."""
    with Store.open(folder) as store:
        job, outcome = stored_run(store)
        cache = ScheduleCache(time_limit_s=SOLVER_LIMIT_S)
        for key, schedule in store.schedules().items():
            cache.keep(key, schedule)
    return RunResult(
        run=job,
        architectures=job.space.enumerate(),
        outcome=outcome,
        baseline=_baseline(job, cache),
        cache=cache,
    )


def _baseline(job: Run, cache: ScheduleCache) -> Baseline | None:
    if job.baseline is None:
        return None
    area = price_accelerator_area(job.baseline, job.space.technology)
    architectures = Architectures.of(job.baseline, area_mm2=area)
    choices = Choices(
        accelerators=job.choices.accelerators,
        tensor_parallel=job.choices.tensor_parallel,
        microbatch=job.choices.microbatch,
        recompute=job.choices.recompute,
        hbm_bytes=None,
    )
    point, reason = None, None
    try:
        exploration = Exploration(architectures, job.workloads, job.cluster, choices, cache=cache, jobs=1)
        exploration.bound()
        outcome = exploration.run()
        point = outcome.points.get(0)
        if point is None:
            reason = next(iter([*outcome.option_reasons.values(), *outcome.reasons.values()]), "no placement fits")
    except ConfigError as error:  # the chip has no rate for the workload's precision
        reason = str(error)
    return Baseline(name=job.baseline.name, architectures=architectures, point=point, reason=reason)
