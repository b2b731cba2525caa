"""The run file: what to search, read from YAML and resolved to the things it names."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, field_validator

from archplace.arch_configs import (
    Accelerator,
    Architectures,
    Cluster,
    DesignSpace,
    load_accelerator,
    load_cluster,
    load_space,
)
from archplace.arch_configs.errors import ConfigError, Problem
from archplace.arch_configs.files import Document, FileModel, KeyPath, parse_document, read_document
from archplace.arch_configs.technology import Technology
from archplace.arch_configs.units import Bytes, Seconds, SquareMillimetres, Watts
from archplace.costmodel import StateSharding
from archplace.search.choices import Choices
from archplace.search.objectives import Objective, Objectives
from archplace.search.pipeline import PipelineSchedule
from archplace.search.placement_fields import Degree, OneOrMore, StrategyFields
from archplace.search.power_limit import throttled
from archplace.search.run_names import check_capacity, placed, resolve, unknown_names
from archplace.search.sharding_rates import at_rates_of
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.strategy import DEFAULT_ORDER
from archplace.search.training_run import TrainingRun
from archplace.workloads import Recompute, Workload, load_job
from archplace.workloads.traced.traced_workload import TracedWorkload

T = TypeVar("T")

OBJECTIVES = tuple(str(name) for name in Objective)
"""What a run can optimise."""

Effort = Literal["normal", "quick"]
EFFORT_TOLERANCES: dict[Effort, tuple[float, ...]] = {"normal": (0.0,), "quick": (0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)}
"""Relative gap that a run may leave between its front and the true one: the largest for sure, smaller ones if cheap."""

REFERENCE_TOLERANCE = 0.2
"""Relative gap of the best of each workload by itself where worst cases are relative to it: it comes on top of the
front's."""

_LOADERS: dict[str, Callable[[str], object]] = {
    "workload": load_job,
    "space": load_space,
    "cluster": load_cluster,
    "baseline": load_accelerator,
}
"""What a key of the run file names."""


SEARCH_AXES = Axes(
    sequence=(False,),
    schedules=(PipelineSchedule.ONE_F_ONE_B,),
    policies=(Recompute.NONE, Recompute.FULL),
    states=(StateSharding(),),
    orders=(DEFAULT_ORDER,),
)
"""What a search over architectures chooses from along the axes of which the run file says nothing."""


def _named(value: object) -> object:
    """Take ``false`` and ``true`` for what they say of recomputation: none, and full."""
    words = {False: Recompute.NONE.value, True: Recompute.FULL.value}
    if isinstance(value, bool):
        return words[value]
    return [words[each] if isinstance(each, bool) else each for each in value] if isinstance(value, list) else value


class _Placement(StrategyFields):
    recompute: Annotated[OneOrMore[Recompute] | None, BeforeValidator(_named)] = None
    hbm: OneOrMore[Bytes] | None = None

    @field_validator("hbm")
    @classmethod
    def _plausible(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        for capacity in value or ():
            check_capacity(capacity)
        return value


_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Budgets(FileModel):
    area: SquareMillimetres | None = None
    power: Watts | None = None
    step_time: Seconds | None = None
    samples_per_s: _Positive | None = None
    joules_per_sample: _Positive | None = None
    usd_per_sample: _Positive | None = None
    usd_per_run: _Positive | None = None
    run_time: Seconds | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _given(cls, value: object) -> object:
        if value is None:
            raise ValueError("found no value; give the budget's value with its unit, or remove the key")
        return value


class _Training(FileModel):
    tokens: OneOrMore[_Positive]


class _Prices(FileModel):
    """Prices of a site, in place of those of the technology table."""

    electricity_usd_per_kwh: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    power_usage_effectiveness: Annotated[float, Field(ge=1, le=10)] | None = None
    service_years: Annotated[float, Field(gt=0, le=100)] | None = None


class _Run(FileModel):
    workload: str | None = None
    workloads: tuple[str, ...] | None = Field(default=None, min_length=1)
    space: str
    cluster: str
    accelerators: Degree
    global_batch: Degree | None = None
    placement: _Placement = _Placement()
    objectives: tuple[str, ...] = Field(default=("throughput", "area"), min_length=1)
    effort: Effort = "normal"
    budgets: _Budgets = _Budgets()
    power_limit: Watts | None = None
    training: _Training | None = None
    prices: _Prices | None = None
    baseline: str | None = None

    @field_validator("objectives")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in OBJECTIVES]
        if unknown or len(set(value)) < len(value):
            raise ValueError(f"found {list(value)}; allowed: any of {', '.join(OBJECTIVES)}, each once, in any order")
        return value


class _RunFile(FileModel):
    run: _Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run with everything it names loaded."""

    name: str
    workloads: tuple[Workload | TracedWorkload, ...]
    space: DesignSpace
    space_name: str
    cluster: Cluster
    choices: Choices
    objectives: Objectives
    effort: Effort = "normal"
    baseline: Accelerator | None

    def architectures(self) -> Architectures:
        """Return the architectures of the space, at the clocks that the run's power limit leaves them."""
        found, limit_w = self.space.enumerate(), self.choices.power_limit_w
        if limit_w is None:
            return found
        return throttled(found, limit_w, self.space.technology, self.cluster, self.precisions)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions of the workloads' products."""
        return tuple(sorted({str(workload.precision.formats.products) for workload in self.workloads}))

    @property
    def tolerances(self) -> tuple[float, ...]:
        """Relative gaps to the true front, of which the search keeps the least that is cheap; 0 for an exact one."""
        return EFFORT_TOLERANCES[self.effort]

    @property
    def tolerance(self) -> float:
        """Relative gap that the front may have; 0 for an exact one."""
        return max(self.tolerances)

    @property
    def reference_tolerances(self) -> tuple[float, ...]:
        """The same for the best of each of several workloads by itself: what throughputs are relative to.

        Unless an objective depends on it, a good one does that is found at once, however far the best may be.
        """
        if max(self.tolerances) == 0:
            return self.tolerances
        if Objective.WORST_CASE not in self.objectives:
            return (math.inf,)
        return tuple(tolerance for tolerance in self.tolerances if tolerance <= REFERENCE_TOLERANCE)

    @property
    def inputs(self) -> dict[str, str]:
        """What decides the result, for the record: role and name to content hash."""
        found = {
            "choices": _hash((self.choices, self.objectives, self.effort)),
            f"space {self.space_name}": _hash(self.space),
            f"cluster {self.cluster.name}": _hash(self.cluster),
        }
        # By position: stored results are in the order of the workloads.
        several = len(self.workloads) > 1
        for i, workload in enumerate(self.workloads):
            found[f"workload {i + 1} {workload.name}" if several else f"workload {workload.name}"] = _hash(workload)
        if self.baseline is not None:
            found[f"baseline {self.baseline.name}"] = _hash(self.baseline)
        return found

    @property
    def digest(self) -> str:
        """Hash of everything that decides the result."""
        return hashlib.sha256(json.dumps(self.inputs, sort_keys=True).encode()).hexdigest()


def load_run(path: Path | str) -> Run:
    """Read a run file and all that it names.

    Names of files are relative to the run file; other names are those of built-in workloads, spaces, clusters and
    accelerators. Raises :class:`ConfigError` with every problem of the run file, or of the files it names.
    """
    document = read_document(path)
    folder = Path(path).parent
    try:
        run = parse_document(document, _RunFile).run
    except ConfigError as error:
        # What the file names is looked up all the same: the user hears of everything at once.
        raise ConfigError([*error.problems, *unknown_names(document, folder, _LOADERS)]) from None
    problems: list[Problem] = []
    if (run.workload is None) == (run.workloads is None):
        problems.append(document.problem(("run",), "found both or neither of 'workload' and 'workloads'; give one"))

    def attempt(load: Callable[[str], T], name: str, key: KeyPath) -> T | None:
        try:
            return load(resolve(folder, name))
        except ConfigError as error:
            problems.extend(placed(document, key, problem) for problem in error.problems)
            return None

    names: list[tuple[str, KeyPath]] = []
    if run.workload is not None:
        names.append((run.workload, ("run", "workload")))
    names += [(name, ("run", "workloads", i)) for i, name in enumerate(run.workloads or ())]
    workloads = [attempt(load_job, name, key) for name, key in names]
    seen: set[str] = set()
    for (_, key), workload in zip(names, workloads, strict=True):
        if workload is not None and workload.name in seen:
            problems.append(
                document.problem(key, f"found a second workload named {workload.name!r}; give each its own name, once")
            )
        seen.add(workload.name if workload is not None else "")
    space = attempt(load_space, run.space, ("run", "space"))
    cluster = attempt(load_cluster, run.cluster, ("run", "cluster"))
    baseline = None if run.baseline is None else attempt(load_accelerator, run.baseline, ("run", "baseline"))
    if cluster is not None:
        try:
            cluster = cluster.sized(run.accelerators)
        except ValueError as error:
            problems.append(document.problem(("run", "accelerators"), str(error)))
    if space is not None:
        problems += _lacking(document, run, space.technology)
    problems += _training_problems(document, run, len(names))
    if problems:
        raise ConfigError(problems)
    loaded = tuple(workload for workload in workloads if workload is not None)
    assert space is not None
    assert cluster is not None
    if run.global_batch is not None:
        loaded = tuple(workload.resized(global_batch=run.global_batch) for workload in loaded)
    if run.prices is not None:
        space = replace(space, technology=_at(run.prices, space.technology))
    choices = Choices(
        accelerators=run.accelerators,
        axes=run.placement.axes(SEARCH_AXES),
        hbm_bytes=None if run.placement.hbm is None else tuple(int(capacity) for capacity in run.placement.hbm),
        max_area_mm2=run.budgets.area,
        max_power_w=run.budgets.power,
        power_limit_w=run.power_limit,
        max_step_s=run.budgets.step_time,
        min_samples_per_s=run.budgets.samples_per_s,
        max_joules_per_sample=run.budgets.joules_per_sample,
        max_usd_per_sample=run.budgets.usd_per_sample,
        training=None
        if run.training is None
        else TrainingRun.of_tokens(
            run.training.tokens, loaded, max_s=run.budgets.run_time, max_usd=run.budgets.usd_per_run
        ),
    )
    return Run(
        name=Path(path).stem,
        workloads=tuple(at_rates_of(workload, cluster) for workload in loaded),
        space=space,
        space_name=run.space,
        cluster=cluster,
        choices=choices,
        objectives=Objectives.of(run.objectives),
        effort=run.effort,
        baseline=baseline,
    )


def _lacking(document: Document, run: _Run, technology: Technology) -> list[Problem]:
    """Return a problem for each objective and budget that the technology table has no numbers for."""
    wanted: list[tuple[KeyPath, str]] = [(("run", "objectives", i), name) for i, name in enumerate(run.objectives)]
    budgets = {"power": "power", "joules_per_sample": "energy", "usd_per_sample": "cost", "usd_per_run": "cost"}
    wanted += [
        (("run", "budgets", key), name) for key, name in budgets.items() if getattr(run.budgets, key) is not None
    ]
    needs: dict[str, tuple[Callable[[], object], ...]] = {
        Objective.ENERGY: (technology.need_energy, technology.need_power),
        Objective.POWER: (technology.need_energy, technology.need_power),
        Objective.COST: (technology.need_energy, technology.need_power, technology.need_cost),
    }
    if run.power_limit is not None:
        wanted.append((("run", "power_limit"), Objective.POWER))
    if run.prices is not None:
        wanted.append((("run", "prices"), Objective.COST))
    found = []
    for key, name in wanted:
        try:
            for need in needs.get(name, ()):
                need()
        except ConfigError as error:
            found.append(document.problem(key, str(error)))
    for key, name in wanted:
        if name == Objective.WORST_CASE and run.workload is not None:
            found.append(
                document.problem(key, "found 'worst_case' with a single workload; it needs several: remove it")
            )
    return found


def _training_problems(document: Document, run: _Run, workloads: int) -> list[Problem]:
    """Return problems of budgets of a training of which nothing is said, and of a wrong number of tokens."""
    if run.training is None:
        return [
            document.problem(
                ("run", "budgets", key),
                f"found {key}, but not how much is trained; add the run's tokens: training: {{tokens: 1e12}}",
            )
            for key in ("usd_per_run", "run_time")
            if getattr(run.budgets, key) is not None
        ]
    if len(run.training.tokens) in (1, workloads):
        return []
    message = f"found {len(run.training.tokens)} values for {workloads} workloads; give one for each, or one for all"
    return [document.problem(("run", "training", "tokens"), message)]


def _at(prices: _Prices, technology: Technology) -> Technology:
    """Return the technology with the prices of a site."""
    changed = technology.need_cost().at(
        usd_per_kwh=prices.electricity_usd_per_kwh,
        power_usage_effectiveness=prices.power_usage_effectiveness,
        service_years=prices.service_years,
    )
    return replace(technology, cost=changed)


def _hash(thing: object) -> str:
    """Hash the content of a description: its dataclass fields, which ``repr`` lists in full and in order."""
    return hashlib.sha256(repr(thing).encode()).hexdigest()
