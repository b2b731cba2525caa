"""The run file of ``plan`` and ``evaluate``: one training job, one accelerator, and what may be decided about it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Discriminator, Field, Tag, field_validator

from archplace.arch_configs import Accelerator, Cluster, load_accelerator, load_cluster
from archplace.arch_configs._sources import check_sources
from archplace.arch_configs.accelerator_files import AcceleratorFields, accelerator_sections, build_accelerator
from archplace.arch_configs.errors import ConfigError, Problem
from archplace.arch_configs.files import Document, FileModel, KeyPath, parse_document, read_lenient
from archplace.arch_configs.units import Bytes
from archplace.costmodel import Allowance
from archplace.search.pipeline import PipelineSchedule
from archplace.search.placement_fields import Degree, PlacementFields
from archplace.search.run_names import placed, resolve, unknown_names
from archplace.search.sharding_rates import at_rates_of
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import DEFAULT_ORDER, Strategy
from archplace.workloads import LayerSharding, Recompute, TrainingJob, load_job

T = TypeVar("T")

SINGLE = Axes(
    tensor=(1,),
    sequence=(False,),
    microbatch=(1,),
    schedules=(PipelineSchedule.ONE_F_ONE_B,),
    virtual=(1,),
    policies=(Recompute.NONE,),
    states=Axes().states[:1],
    orders=(DEFAULT_ORDER,),
)
"""What a single placement is along the axes of which nothing is said; of pipeline and data-parallel degree, the one
that is left out follows from the others, and without either the pipeline has one stage."""

_ACCELERATOR: KeyPath = ("run", "accelerator")
_LOADERS: dict[str, Callable[[str], object]] = {
    "workload": load_job,
    "accelerator": load_accelerator,
    "cluster": load_cluster,
}
"""What a key of the run file names."""


class _Memory(FileModel):
    fragmentation: Annotated[float, Field(ge=0, le=1)] | None = None
    reserved: Bytes | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _given(cls, value: object) -> object:
        if value is None:
            raise ValueError("found no value; give one, or remove the key")
        return value


def _shape_of_accelerator(value: object) -> str:
    # Decided before validation, so that a mistake inside a mapping is not also reported as "text is needed".
    return "fields" if isinstance(value, dict | AcceleratorFields) else "name"


class _Run(FileModel):
    workload: str
    accelerator: Annotated[
        Annotated[str, Tag("name")] | Annotated[AcceleratorFields, Tag("fields")],
        Discriminator(_shape_of_accelerator),
    ]
    cluster: str
    accelerators: Degree
    global_batch: Degree | None = None
    sequence_length: Annotated[int, Field(ge=1, le=2**30)] | None = None
    placement: PlacementFields = PlacementFields()
    memory: _Memory = _Memory()
    stages: Annotated[tuple[Degree, ...], Field(min_length=1)] | None = None
    stage_recompute: Annotated[tuple[Recompute, ...], Field(min_length=1)] | None = None


class _RunFile(FileModel):
    run: _Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRun:
    """A run file with everything it names loaded."""

    name: str
    problem: PlanProblem
    axes: Axes
    """What ``plan`` searches."""
    document: Document
    """Where values stand, for messages."""
    fields: PlacementFields
    stages: tuple[int, ...] | None
    """Layers on each stage, in the model's order with embedding and head; None to leave them to the search."""
    stage_recompute: tuple[Recompute, ...] | None
    """Policy of each stage; None for that of the placement."""

    def strategy(self) -> Strategy:
        """Return the one strategy that the file describes, with what :data:`SINGLE` says where it says nothing.

        Raises :class:`ConfigError` for every axis that has several values. Whether the strategy is possible is not
        asked.
        """
        given = {key: getattr(self.fields, key) for key in PlacementFields.model_fields if key != "hbm"}
        problems = [
            self.problem_at(
                f"found {len(values)} values; a single placement has one along each axis: give one, or search them all "
                "with archplace plan",
                "placement",
                key,
            )
            for key, values in given.items()
            if values is not None and len(values) > 1
        ]
        if self.fields.shard_group is not None and self.fields.state_sharding is None:
            message = (
                "found a group, but not which states it shares; add state_sharding: optimizer, gradients or parameters"
            )
            problems.append(self.problem_at(message, "placement", "shard_group"))
        if self.fields.recompute is not None and self.stage_recompute is not None:
            message = "found the policies of the stages beside the key 'recompute' of the placement; give one of them"
            problems.append(self.problem_at(message, "stage_recompute"))
        if problems:
            raise ConfigError(problems)
        return self._strategy(self.fields.axes(SINGLE))

    def _strategy(self, axes: Axes) -> Strategy:
        sharding = LayerSharding(
            microbatch=axes.microbatch[0],
            tensor=axes.tensor[0],
            sequence=axes.sequence[0],
            context=axes.context[0],
            context_kind=axes.context_kind[0],
            expert=axes.expert[0],
            expert_tensor=axes.expert_tensor[0],
            overlap_pieces=axes.overlap_pieces[0],
        )
        stages = None if axes.stages is None else axes.stages[0]
        data = None if axes.data is None else axes.data[0]
        if stages is None:
            said = self.stages or self.stage_recompute
            stages = len(said) if said is not None else 1 if data is None else self._rest(sharding.stage_devices * data)
        if data is None:
            data = self._rest(sharding.stage_devices * stages)
        assert axes.orders is not None
        return Strategy(
            sharding=sharding,
            stages=stages,
            data=data,
            schedule=axes.schedules[0],
            virtual=axes.virtual[0],
            states=axes.states[0],
            offload=axes.offload[0],
            overlap=axes.overlap[0],
            order=axes.orders[0],
            policies=tuple(dict.fromkeys(self.stage_recompute or axes.policies)),
        )

    def near(self, strategy: Strategy) -> Axes:
        """Return the axes on which :meth:`strategy` is the only point, to look for others nearby."""
        axes = self.fields.axes(SINGLE)
        return replace(axes, stages=(strategy.stages,), data=(strategy.data,), policies=strategy.policies)

    def _rest(self, devices: int) -> int:
        """Return the degree that is left when the others take ``devices``; where none is, one that is refused."""
        return max(1, self.problem.accelerators // devices)

    def held(self, strategy: Strategy) -> tuple[tuple[int, ...], ...] | None:
        """Return the layers of each kind on each stage, or None where the file leaves them to the search.

        Raises :class:`ConfigError` for another number of stages or layers than there are.
        """
        if self.stages is None:
            return None
        layers = self.problem.workload.step(strategy.sharding).layers
        if len(self.stages) != strategy.stages:
            message = f"found {len(self.stages)} entries for {strategy.stages} stages; give the layers of each stage"
            raise ConfigError([self.problem_at(message, "stages")])
        counts = [count for _, count in layers]
        if sum(self.stages) != sum(counts):
            chain = " + ".join(f"{count} {layer.name}" for layer, count in layers)
            message = (
                f"found {sum(self.stages)} layers on all stages together; {self.problem.workload.model_name} has "
                f"{sum(counts)} ({chain}): give each of them a stage"
            )
            raise ConfigError([self.problem_at(message, "stages")])
        kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
        ends = list(accumulate(self.stages))
        parts = [kinds[begin:end] for begin, end in zip((0, *ends[:-1]), ends, strict=True)]
        return tuple(tuple(part.count(kind) for kind in range(len(counts))) for part in parts)

    def recompute(self, strategy: Strategy) -> tuple[Recompute, ...] | None:
        """Return the policy of each stage, or None where the placement's counts for all.

        Raises :class:`ConfigError` for another number of stages than there are.
        """
        if self.stage_recompute is not None and len(self.stage_recompute) != strategy.stages:
            message = f"found {len(self.stage_recompute)} entries for {strategy.stages} stages; give one for each stage"
            raise ConfigError([self.problem_at(message, "stage_recompute")])
        return self.stage_recompute

    def problem_at(self, message: str, *key: str) -> Problem:
        """Return a problem of the value at ``key`` below ``run``."""
        return self.document.problem(("run", *key), message)


def usual_axes(job: TrainingJob, accelerators: int) -> Axes:
    """Return what ``plan`` searches of a job along the axes of which the run file says nothing.

    Experts are spread over all powers of two of the accelerators that their number allows, up to 64, and sequences
    over those that leave each device 8,192 tokens, up to 16.
    """
    wider = [2**power for power in range(1, 7) if 2**power <= accelerators]
    experts = [width for width in wider if job.refusal(LayerSharding(microbatch=1, expert=width)) is None]
    long = [width for width in wider if width <= 16 and job.sequence_length >= 8192 * width]
    contexts = [width for width in long if job.refusal(LayerSharding(microbatch=1, context=width)) is None]
    return Axes(expert=(1, *experts), context=(1, *contexts))


def load_plan(path: Path | str) -> PlanRun:
    """Read a run file of ``plan`` or ``evaluate`` and all that it names.

    Names of files are relative to the run file; other names are those of built-in workloads, accelerators and clusters.
    Raises :class:`ConfigError` with every problem of the run file, or of the files it names.
    """
    document = check_sources(read_lenient(path), accelerator_sections(_ACCELERATOR))
    folder = Path(path).parent
    try:
        run = parse_document(document, _RunFile).run
    except ConfigError as error:
        # What the file names is looked up all the same: the user hears of everything at once.
        raise ConfigError([*error.problems, *unknown_names(document, folder, _LOADERS)]) from None
    problems: list[Problem] = []

    def attempt(load: Callable[[], T], key: KeyPath) -> T | None:
        try:
            return load()
        except ConfigError as error:
            problems.extend(placed(document, key, problem) for problem in error.problems)
        except ValueError as error:
            problems.append(document.problem(key, str(error)))
        return None

    workload = attempt(lambda: load_job(resolve(folder, run.workload)), ("run", "workload"))
    accelerator = attempt(lambda: _accelerator(run, document, folder), _ACCELERATOR)
    found = attempt(lambda: load_cluster(resolve(folder, run.cluster)), ("run", "cluster"))
    cluster = None if found is None else attempt(lambda: found.sized(run.accelerators), ("run", "accelerators"))
    length = run.sequence_length
    if workload is not None:
        workload = workload.resized(global_batch=run.global_batch)
        if length is not None:
            named = workload
            workload = attempt(lambda: named.resized(sequence_length=length), ("run", "sequence_length"))
    if workload is not None and accelerator is not None:
        problems += _without_rate(document, workload, accelerator)
    if found is not None and found.host is None:
        problems += _without_host(document, run.placement, found)
    if problems:
        raise ConfigError(problems)
    assert workload is not None
    assert accelerator is not None
    assert cluster is not None
    default = Allowance()
    memory = run.memory
    return PlanRun(
        name=Path(path).stem,
        problem=PlanProblem(
            workload=at_rates_of(workload, cluster, accelerator),
            accelerator=accelerator,
            cluster=cluster,
            allowance=Allowance(
                fragmentation=default.fragmentation if memory.fragmentation is None else memory.fragmentation,
                reserved_bytes=default.reserved_bytes if memory.reserved is None else float(memory.reserved),
            ),
        ),
        axes=run.placement.axes(usual_axes(workload, cluster.size)),
        document=document,
        fields=run.placement,
        stages=run.stages,
        stage_recompute=run.stage_recompute,
    )


def _accelerator(run: _Run, document: Document, folder: Path) -> Accelerator:
    """Return the accelerator that is named or described, with the capacity that the placement gives it."""
    if isinstance(run.accelerator, AcceleratorFields):
        found = build_accelerator(run.accelerator, document, _ACCELERATOR)
    else:
        found = load_accelerator(resolve(folder, run.accelerator))
    hbm = run.placement.hbm
    return found if hbm is None else replace(found, hbm=replace(found.hbm, capacity_bytes=hbm))


def _without_rate(document: Document, workload: TrainingJob, accelerator: Accelerator) -> list[Problem]:
    """Return a problem for each format of the workload's products that the tensor units cannot multiply."""
    rates, formats = accelerator.tensor_units.macs_per_element_per_cycle, workload.precision.formats
    missing = [name for name in dict.fromkeys((formats.products, formats.activations)) if str(name) not in rates]
    return [
        document.problem(
            _ACCELERATOR,
            f"the tensor units of {accelerator.name} have no rate for {name}, in which {workload.name} multiplies; "
            f"they have {', '.join(rates)}: choose another accelerator, or a workload file with another precision",
        )
        for name in missing
    ]


def _without_host(document: Document, placement: PlacementFields, cluster: Cluster) -> list[Problem]:
    """Return a problem if something shall be offloaded to hosts of which nothing is known."""
    if all(name == "none" for name in placement.offload or ()):
        return []
    return [
        document.problem(
            ("run", "placement", "offload"),
            f"the cluster {cluster.name} says nothing of hosts, to which states or activations could go; choose a "
            "cluster file with the section 'host', or offload: none",
        )
    ]
