"""Price measured training steps."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from archplace.arch_configs import Accelerator, Cluster
from archplace.arch_configs.errors import ConfigError
from archplace.search.accuracy.jobs import hardware_of, job_of
from archplace.search.accuracy.rows import MeasuredStep, PublishedStep, UnreadStep
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.evaluate import evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the cost model says of one row."""

    step: PublishedStep
    """A :class:`MeasuredStep` where it is priced."""
    reason: str | None = None
    """Why the row cannot be priced; the rest is empty then."""
    predicted_s: float = 0.0
    parts_s: Mapping[str, float]
    """Of :data:`~archplace.search.strategy.evaluate.STEP_PARTS`; they add up to ``predicted_s``."""
    fits: bool = False
    """Whether the memory model says that the run fits, which it did."""
    memory_bytes: float = 0.0
    """Of the fullest device."""
    flops: float = 0.0
    """Model FLOPs of the step, over all devices."""

    @property
    def job(self) -> MeasuredStep:
        """The row of a prediction that is priced."""
        assert isinstance(self.step, MeasuredStep)
        return self.step

    @property
    def error(self) -> float:
        """Predicted over measured seconds, less one."""
        return self.predicted_s / self.step.step_s - 1.0


Hardware = Callable[[str], tuple[Accelerator, Cluster]]


def predict(steps: Iterable[MeasuredStep | UnreadStep], hardware: Hardware = hardware_of) -> Iterator[Prediction]:
    """Yield a prediction for each row, in order; rows that cannot be priced have a reason.

    ``hardware`` gives the accelerator and the cluster that a row's column of this name means.
    """
    cache = ScheduleCache()
    known: dict[str, tuple[Accelerator, Cluster] | str] = {}
    for step in steps:
        if isinstance(step, UnreadStep):
            yield Prediction(step=step, reason=step.reason, parts_s={})
            continue
        if step.hardware not in known:
            try:
                known[step.hardware] = hardware(step.hardware)
            except ConfigError as error:
                known[step.hardware] = str(error)
        found = known[step.hardware]
        if isinstance(found, str):
            yield Prediction(step=step, reason=found, parts_s={})
        else:
            yield _predicted(step, *found, cache)


def _predicted(step: MeasuredStep, accelerator: Accelerator, cluster: Cluster, cache: ScheduleCache) -> Prediction:
    try:
        job = job_of(step, accelerator, cluster)
        evaluation = evaluate(job.problem, job.strategy, held=job.held, cache=cache)
    except (ValueError, ConfigError) as error:
        return Prediction(step=step, reason=str(error), parts_s={})
    return Prediction(
        step=step,
        predicted_s=evaluation.step_s,
        parts_s=evaluation.parts_s,
        fits=evaluation.feasible,
        memory_bytes=max(stage.memory.total_bytes for stage in evaluation.stages),
        flops=job.flops,
    )
