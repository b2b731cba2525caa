"""A run made by hand: eight architectures whose areas and throughputs the tests compute with.

=====  ========  ============  ============================================
id     area      throughput    fate
=====  ========  ============  ============================================
0      100 mm²   20 samples/s  front: smallest, best per area (0.2)
1      200 mm²   36            front: fastest within the baseline's 250 mm²
2      300 mm²   50            front: knee
3      400 mm²   55            front: fastest
4      250 mm²   30            dominated by 1
5      500 mm²   54 (bound)    pruned by 3
6      600 mm²   –             infeasible
7      50 mm²    –             infeasible
=====  ========  ============  ============================================

The baseline has 250 mm² and 40 samples/s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from archplace.arch_configs import Architectures, DesignSpace, load_accelerator, load_cluster, load_space
from archplace.search.choices import Choices, WorkloadResult
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound, Evaluated, Fate, Outcome, Reasons, Record
from archplace.search.run import Baseline, RunResult, RunSearch
from archplace.search.runfile import SEARCH_AXES, Effort, Run
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.cuts import Cut
from archplace.search.strategy.options import BestPlacement, Option
from archplace.search.strategy.strategy import Strategy
from archplace.workloads import LayerSharding, Recompute, Workload, load_workload

AREAS = (100.0, 200.0, 300.0, 400.0, 250.0, 500.0, 600.0, 50.0)
SPEEDS = {0: 20.0, 1: 36.0, 2: 50.0, 3: 55.0, 4: 30.0}
BOUNDS = (22.0, 37.0, 51.0, 56.0, 38.0, 54.0, 0.0, 0.0)
OPTION_REASONS = {
    "tp1 mbs2 HBM 32 GB": "memory: needs at least 40.5 GB per device with 9 stages, HBM has 32 GB",
    "tp2 mbs2 HBM 32 GB": "memory: needs at least 35.1 GB per device with 8 stages, HBM has 32 GB",
}
ACCELERATORS = 64
STAGES, REPLICAS = 4, 16
HELD = ((1, 7, 0), (0, 9, 0), (0, 9, 0), (0, 7, 1))
"""Embedding, blocks and head on each stage."""
GB = 10**9


def a_space() -> DesignSpace:
    """Eight architectures: four counts of tensor units, two of array rows; everything else has one value."""
    space = load_space("tiny")
    several = {"tensor_units.count": (2.0, 4.0, 8.0, 16.0), "tensor_units.rows": (64.0, 128.0)}
    parameters = tuple(
        replace(parameter, values=several.get(parameter.name, parameter.values[:1])) for parameter in space.parameters
    )
    return replace(space, parameters=parameters)


def a_workload(name: str = "llama2-7b") -> Workload:
    return replace(load_workload("llama2-7b"), name=name, global_batch=1024)


def a_run(*workloads: Workload, name: str = "hand-made") -> Run:
    return Run(
        name=name,
        workloads=workloads or (a_workload(),),
        space=a_space(),
        space_name="eight",
        cluster=load_cluster("tpu-v4-pod").sized(ACCELERATORS),
        choices=Choices(
            accelerators=ACCELERATORS,
            axes=replace(SEARCH_AXES, tensor=(1, 2), microbatch=(1, 2)),
            hbm_bytes=(32 * GB, 64 * GB),
        ),
        objectives=Objectives.of(["throughput", "area"]),
        baseline=None,
    )


def placed(workload: Workload, samples_per_s: float, *, proven: bool = True) -> WorkloadResult:
    """Four stages of sixteen devices, each with 64 microbatches of a sequence; all stages recompute everything."""
    step_s = workload.global_batch / samples_per_s
    sharding = LayerSharding(microbatch=1, tensor=1)
    load_s = (step_s - 1) / (workload.global_batch // REPLICAS + STAGES - 1)
    return WorkloadResult(
        option=Option(sharding=sharding, groups=(), hbm_bytes=32 * GB),
        placement=BestPlacement(
            strategy=Strategy(
                sharding=sharding, stages=STAGES, data=REPLICAS, policies=(Recompute.NONE, Recompute.FULL)
            ),
            cut=Cut(
                time_s=step_s,
                load_s=load_s,
                held=HELD,
                policies=(1,) * STAGES,
                loads_s=(load_s,) * STAGES,
                tail_s=1.0,
            ),
        ),
        lower_step_s=step_s if proven else 0.9 * step_s,
    )


def evaluated(run: Run, architecture: int, samples_per_s: float, *, proven: bool = True) -> Evaluated:
    lower_s = (1 if proven else 0.9) / samples_per_s
    return Evaluated(
        architecture=architecture,
        results=tuple(placed(workload, samples_per_s, proven=proven) for workload in run.workloads),
        values=(1 / samples_per_s, AREAS[architecture]),
        best_case=(lower_s, AREAS[architecture]),
        seconds_per_sample=1 / samples_per_s,
        lower_seconds_per_sample=lower_s,
    )


def outcome_of(
    points: Iterable[Evaluated],
    *,
    fates: Sequence[Fate] = (*[Fate.FRONT] * 4, Fate.DOMINATED, Fate.PRUNED, Fate.INFEASIBLE, Fate.INFEASIBLE),
    bounds: Sequence[float] = BOUNDS,
    reasons: Mapping[int, str] | None = None,
) -> Outcome:
    """An outcome of points on given architectures; ``bounds`` are throughputs, 0 where infeasible."""
    with np.errstate(divide="ignore"):
        seconds = 1 / np.array(bounds)
    outcome = Outcome(
        objectives=Objectives.of(["throughput", "area"]),
        fate=np.array(fates, dtype=np.int8),
        bound=np.where(np.isfinite(seconds)[:, None], np.column_stack((seconds, AREAS)), np.inf),
        bound_kind=np.full(len(AREAS), Bound.SCHEDULE, dtype=np.int8),
        records={point.architecture: Record(architecture=point.architecture, points=(point,)) for point in points},
        reasons=replace(Reasons.none(len(AREAS), ()), own=dict(reasons or {})),
        option_reasons=dict(OPTION_REASONS),
    )
    outcome.set_front([point for point in outcome.points if outcome.fate[point.architecture] == Fate.FRONT])
    return outcome


def an_outcome(run: Run) -> Outcome:
    return outcome_of(
        [evaluated(run, architecture, speed) for architecture, speed in SPEEDS.items()],
        reasons={6: "area 600.0 mm² exceeds the budget of 550.0 mm²", 7: "llama2-7b: no placement option fits"},
    )


def with_points(result: RunResult, *points: Evaluated, **changes: Sequence[float] | Sequence[Fate]) -> RunResult:
    """The same run with other points on some architectures, and perhaps other fates or bounds."""
    earlier = {point.architecture: point for point in result.outcome.points}
    reasons = result.outcome.reasons.own
    changed = outcome_of(
        (earlier | {point.architecture: point for point in points}).values(), reasons=reasons, **changes
    )
    return replace(result, outcome=changed)


def architectures_of(run: Run) -> Architectures:
    return replace(run.space.enumerate(), area_mm2=np.array(AREAS))


def a_baseline(run: Run) -> Baseline:
    chip = load_accelerator("tpu-v4")
    return Baseline(
        name=chip.name,
        architectures=Architectures.of(chip, area_mm2=250.0),
        point=evaluated(run, 0, 40.0),
        reason=None,
    )


def a_result(run: Run | None = None, *, with_baseline: bool = True) -> RunResult:
    run = run or a_run()
    return RunResult(
        run=run,
        architectures=architectures_of(run),
        outcome=an_outcome(run),
        baseline=a_baseline(run) if with_baseline else None,
        # Explaining a design lists operators on units; the tests need no proof that the listing is the best one.
        cache=ScheduleCache(engine="list"),
    )


def nothing_feasible(run: Run | None = None) -> RunResult:
    run = run or a_run()
    count = len(AREAS)
    return RunResult(
        run=run,
        architectures=architectures_of(run),
        outcome=Outcome(
            objectives=Objectives.of(["throughput", "area"]),
            fate=np.full(count, Fate.INFEASIBLE, dtype=np.int8),
            bound=np.full((count, 2), np.inf),
            bound_kind=np.full(count, Bound.WORK, dtype=np.int8),
            reasons=Reasons(
                code=np.zeros(count, dtype=np.int8),
                amount=np.zeros(count),
                texts=("llama2-7b: no placement option fits",),
            ),
            option_reasons={"tp1 mbs1": "memory: needs at least 90.1 GB per device with 1 stages, HBM has 32 GB"},
        ),
        baseline=None,
        cache=ScheduleCache(engine="list"),
    )


def only(result: RunResult, architecture: int) -> RunResult:
    """The same run with a single design on the front and nothing else evaluated."""
    point = result.outcome.point(architecture)
    assert point is not None
    fates = [Fate.FRONT if i == architecture else Fate.PRUNED for i in range(len(AREAS))]
    single = outcome_of([point], fates=fates, bounds=[1.0] * len(AREAS))
    single.option_reasons = {}
    return replace(result, outcome=single)


def searched(
    folder: Path,
    *objectives: str,
    workloads: Sequence[Workload] = (),
    effort: Effort = "normal",
    baseline: str | None = "tpu-v4",
    **choices: Any,
) -> RunResult:
    """A real search of eight small architectures for other objectives, choices and budgets than the hand-made run."""
    run = a_run(*workloads)
    job = replace(
        run,
        objectives=Objectives.of(objectives),
        effort=effort,
        choices=replace(run.choices, **choices),
        baseline=None if baseline is None else load_accelerator(baseline),
    )
    with RunSearch.start(job, folder) as search:
        search.run(lambda _: None, jobs=1)
        return search.result()
