"""Fit what the programs of clusters sustain to measured training steps.

The parameters are those of :class:`~archplace.arch_configs.cluster.Software` that are numbers: few, with a meaning of
their own, and the same for every row of the clusters that are fitted together. Clusters that share a value say so by
being fitted together. Rows of each source weigh the same altogether, so that a long table does not drown a short one.

Least squares of the logarithm of predicted over measured seconds with a soft-L1 loss, because published tables contain
slips, and with a prior on every parameter, because most sources leave some of them undetermined: its value is the
parameter's logarithm over that of its usual value, in units of how much it usually varies (a maximum a posteriori
estimate; Bishop 2006, Pattern Recognition and Machine Learning, section 3.3).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs import Accelerator, Cluster
from archplace.arch_configs.cluster import Software
from archplace.search.accuracy._least_squares import least_squares
from archplace.search.accuracy.jobs import hardware_of, job_of
from archplace.search.accuracy.rows import MeasuredStep
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.single import step_s

FloatArray = NDArray[np.float64]

NOISE = 0.05
"""Relative error of a published step time, and where the loss turns from squares to absolute values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One number of :class:`Software`."""

    name: str
    usual: float
    spread: float
    """Of its logarithm."""
    least: float
    most: float


PARAMETERS = (
    Parameter(name="dispatch_s", usual=20e-6, spread=1.0, least=1e-6, most=1e-3),
    Parameter(name="tensor_rate", usual=0.85, spread=0.2, least=0.2, most=1.0),
    Parameter(name="vector_traffic", usual=1.7, spread=0.5, least=1.0, most=10.0),
    Parameter(name="attention_time", usual=1.3, spread=0.4, least=1.0, most=10.0),
    Parameter(name="attention_gradient_time", usual=1.6, spread=0.4, least=1.0, most=10.0),
    Parameter(name="link_rate", usual=0.9, spread=0.3, least=0.1, most=1.0),
    Parameter(name="fabric_rate", usual=0.9, spread=0.3, least=0.1, most=1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was found for clusters that share their values."""

    clusters: tuple[str, ...]
    values: Mapping[str, float]
    """By the fields of :class:`Software`."""
    errors: FloatArray
    """Predicted over measured seconds, less one, of the rows that were fitted."""
    held_out_errors: FloatArray
    """Of those that were not."""


def split(steps: Sequence[MeasuredStep], held_out: float) -> tuple[list[MeasuredStep], list[MeasuredStep]]:
    """Return the rows to fit and those to hold out: a share of each source, drawn by checksums of the rows' ids.

    Tables often list configurations in turn, so that every n-th row would be of one kind.
    """
    by_source: dict[str, list[MeasuredStep]] = {}
    for step in steps:
        by_source.setdefault(step.source, []).append(step)
    kept: set[str] = set()
    for rows in by_source.values():
        drawn = sorted(rows, key=lambda step: (crc32(step.id.encode()), step.id))
        kept |= {step.id for step in drawn[: int(len(rows) * held_out)]}
    return [step for step in steps if step.id not in kept], [step for step in steps if step.id in kept]


class Predictor:
    """Seconds of rows under any software."""

    def __init__(self, steps: Sequence[MeasuredStep]) -> None:
        """Look up the clusters; raises :class:`ConfigError` for one that is not known."""
        self._steps = tuple(steps)
        self._hardware = {name: hardware_of(name) for name in {step.hardware for step in steps}}
        self._cache = ScheduleCache()

    def seconds(self, values: Mapping[str, float]) -> FloatArray:
        """Return the seconds of every row with ``values`` in the software of its cluster.

        Raises ``ValueError`` for a row that cannot be priced.
        """
        hardware = {name: (each[0], _under(each[1], values)) for name, each in self._hardware.items()}
        return np.array([self._seconds(step, *hardware[step.hardware]) for step in self._steps])

    def errors(self, values: Mapping[str, float]) -> FloatArray:
        """Return predicted over measured seconds, less one."""
        return self.seconds(values) / measured_s(self._steps) - 1.0

    def _seconds(self, step: MeasuredStep, accelerator: Accelerator, cluster: Cluster) -> float:
        job = job_of(step, accelerator, cluster)
        return step_s(job.problem, job.strategy, job.held, self._cache)


def _under(cluster: Cluster, values: Mapping[str, float]) -> Cluster:
    known = {field.name: getattr(cluster.software, field.name) for field in fields(Software)}
    return cluster.under(Software(**(known | dict(values))))


def measured_s(steps: Sequence[MeasuredStep]) -> FloatArray:
    """Return the measured seconds."""
    return np.array([step.step_s for step in steps])


def calibrate(
    steps: Sequence[MeasuredStep],
    *,
    fixed: Mapping[str, float] | None = None,
    held_out: float = 0.25,
    most_rounds: int = 8,
) -> Fit:
    """Return the best values for the clusters of ``steps``, all together, and how well they fit.

    ``fixed`` are values that are not fitted; ``held_out`` is the share of the rows that is kept for judging. Raises
    ``ValueError`` where a row cannot be priced, or no row is left to fit.
    """
    fitted, kept = split(steps, held_out)
    if not fitted:
        raise ValueError(f"found {len(steps)} rows, of which none is left to fit; hold fewer out")
    fixed = dict(fixed or {})
    free = [parameter for parameter in PARAMETERS if parameter.name not in fixed]
    predictor, measured = Predictor(fitted), measured_s(fitted)
    counts = Counter(step.source for step in fitted)
    weights = np.sqrt([len(fitted) / (len(counts) * counts[step.source]) for step in fitted])
    usual = np.log([parameter.usual for parameter in free])
    spread = np.array([parameter.spread for parameter in free])

    def values_of(logs: FloatArray) -> dict[str, float]:
        return fixed | {parameter.name: float(np.exp(log)) for parameter, log in zip(free, logs, strict=True)}

    def residuals(logs: FloatArray) -> FloatArray:
        ratios = np.log(predictor.seconds(values_of(logs)) / measured)
        # Soft-L1 on the rows alone: squares of its square root are what the solver adds up.
        soft = np.sqrt(2 * (np.sqrt(1 + (ratios / NOISE) ** 2) - 1)) * np.sign(ratios)
        return np.concatenate([weights * soft, (logs - usual) / spread])

    low, high = (np.log([getattr(each, name) for each in free]) for name in ("least", "most"))
    found = least_squares(residuals, usual, low, high, most_rounds=most_rounds)
    values = values_of(found)
    return Fit(
        clusters=tuple(sorted({step.hardware for step in steps})),
        values=values,
        errors=predictor.errors(values),
        held_out_errors=Predictor(kept).errors(values) if kept else np.zeros(0),
    )
