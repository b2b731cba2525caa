"""What is exported: a placement with what was predicted of it, such as that of a run file."""

from dataclasses import dataclass
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, InfeasibleError
from archplace.search.export.placed import Placement
from archplace.search.planfile import PlanRun
from archplace.search.run_names import resolve
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.evaluate import Evaluation, evaluate
from archplace.search.strategy.strategy import DEALT_EVENLY
from archplace.workloads import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a candidate comes from."""

    name: str
    """Of the run."""
    folder: Path | None = None
    """Of a run with a store."""
    point: str | None = None
    """The design point in it."""
    digest: str | None = None
    """Of the run's inputs."""
    workload: str | None = None
    """What a run file called it, a file by its path; None where that is not known."""
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A placement to export, with what was predicted of it."""

    origin: Origin
    placement: Placement
    accelerator: str
    """Its name, or the number of the design."""
    predicted: Evaluation
    """As the search prices networks."""
    cache: ScheduleCache

    @property
    def workload(self) -> TrainingJob:
        """What is trained."""
        return self.placement.workload

    @property
    def title(self) -> str:
        """One line for people."""
        point = "" if self.origin.point is None else f" design {self.origin.point}"
        return f"{self.origin.name}{point}: {self.workload.name} as {self.placement.strategy}"


def of_plan(job: PlanRun) -> Candidate:
    """Return the one placement of a run file, its layers cut as ``archplace evaluate`` cuts them.

    Raises :class:`ConfigError` where it is refused, :class:`InfeasibleError` where it does not fit into memory.
    """
    strategy, cache, problem = job.strategy(), ScheduleCache(), job.problem
    try:
        found = evaluate(problem, strategy, held=job.held(strategy), recompute=job.recompute(strategy), cache=cache)
    except ValueError as error:
        raise ConfigError([job.problem_at(str(error), "placement")]) from None
    for number, stage in enumerate(found.stages):
        if not stage.fits:
            needed, capacity = stage.memory.total_bytes / 1e9, stage.capacity_bytes / 1e9
            message = (
                f"stage {number} needs {needed:.1f} GB, and a device has {capacity:.1f} GB; what does not fit is not "
                "exported: archplace evaluate says what would help"
            )
            raise InfeasibleError(str(job.problem_at(message, "placement")))
    names = [layer.name for layer, _ in problem.workload.step(strategy.sharding).layers]
    held = tuple(tuple(dict(stage.layers).get(name, 0) for name in names) for stage in found.stages)
    placement = Placement(
        workload=problem.workload,
        architectures=problem.architectures,
        cluster=problem.cluster,
        strategy=strategy,
        held=None if strategy.schedule in DEALT_EVENLY else held,
        policies=tuple(stage.recompute for stage in found.stages),
        hbm_bytes=float(problem.accelerator.hbm.capacity_bytes),
        allowance=problem.allowance,
    )
    return Candidate(
        origin=_origin(job),
        placement=placement,
        accelerator=problem.accelerator.name,
        predicted=found,
        cache=cache,
    )


def _origin(job: PlanRun) -> Origin:
    folder = Path(job.document.path).parent
    data = job.document.data
    run = data.get("run") if isinstance(data, dict) else None
    assert isinstance(run, dict), "a run file that was read has a run"
    return Origin(
        name=job.name,
        workload=resolve(folder, str(run["workload"])),
        cluster=resolve(folder, str(run["cluster"])),
    )
