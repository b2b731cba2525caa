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
from archplace.arch_configs.calibration import Uncertainty
from archplace.arch_configs.cluster import IDEAL_SOFTWARE, Software
from archplace.search.accuracy._least_squares import least_squares
from archplace.search.accuracy.jobs import hardware_of, job_of
from archplace.search.accuracy.residuals import left_out, uncertainty_of
from archplace.search.accuracy.rows import MeasuredStep
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.single import step_s

FloatArray = NDArray[np.float64]

NOISE = 0.05
"""Relative error of a published step time, and where the loss turns from squares to absolute values."""
_STEP = 5e-3
"""Of a logarithm, for slopes: far enough that the step functions of quantisation are averaged over."""
_AT_END = 1e-3


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
    uncertainty: Uncertainty | None = None
    """What the residuals of all rows say about predictions to come; None where the rows are too few."""


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


def present_values(clusters: Sequence[str]) -> dict[str, float]:
    """Return the values that the clusters' files have.

    Raises :class:`ConfigError` for an unknown cluster, ``ValueError`` where the clusters' values differ.
    """
    found = {
        name: {each.name: float(getattr(hardware_of(name)[1].software, each.name)) for each in PARAMETERS}
        for name in clusters
    }
    first = clusters[0]
    for name, values in found.items():
        for key, value in values.items():
            if value != found[first][key]:
                raise ValueError(
                    f"{key} is {value:g} in {name} and {found[first][key]:g} in {first}; clusters that share values "
                    "are judged together, others one by one (--clusters)"
                )
    return found[first]


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
    fixed = dict(fixed or {})
    free = [parameter for parameter in PARAMETERS if parameter.name not in fixed]
    task = _Task(steps, fixed, free, held_out)
    low, high = (np.log([getattr(each, name) for each in free]) for name in ("least", "most"))
    return task.fit_at(least_squares(task.residuals, task.usual, low, high, most_rounds=most_rounds))


def judge(steps: Sequence[MeasuredStep], *, held_out: float = 0.25) -> Fit:
    """Return how well the values fit that the clusters' files have, as if they had just been fitted with ``held_out``.

    Values that are no other than those of ideal software count as given. Raises as :func:`calibrate`, and
    ``ValueError`` where the clusters' values differ.
    """
    values = present_values(list(dict.fromkeys(step.hardware for step in steps)))
    fixed = {name: value for name, value in values.items() if value == getattr(IDEAL_SOFTWARE, name)}
    free = [parameter for parameter in PARAMETERS if parameter.name not in fixed]
    return _Task(steps, fixed, free, held_out).fit_at(np.log([values[each.name] for each in free]))


class _Task:
    """Rows to fit and to judge by, and the parameters, whose logarithms are the coordinates."""

    def __init__(
        self,
        steps: Sequence[MeasuredStep],
        fixed: Mapping[str, float],
        free: Sequence[Parameter],
        held_out: float,
    ) -> None:
        self._fitted, self._kept = split(steps, held_out)
        if not self._fitted:
            raise ValueError(f"found {len(steps)} rows, of which none is left to fit; hold fewer out")
        self._fixed, self._free = dict(fixed), free
        self._predictor, self._measured = Predictor(self._fitted), measured_s(self._fitted)
        counts = Counter(step.source for step in self._fitted)
        share = [len(self._fitted) / (len(counts) * counts[step.source]) for step in self._fitted]
        self._weights = np.sqrt(share)
        self.usual: FloatArray = np.log([parameter.usual for parameter in free])
        self._spread = np.array([parameter.spread for parameter in free])

    def _values(self, logs: FloatArray) -> dict[str, float]:
        free = {parameter.name: float(np.exp(log)) for parameter, log in zip(self._free, logs, strict=True)}
        return self._fixed | free

    def _ratios(self, logs: FloatArray) -> FloatArray:
        """Return the logarithms of predicted over measured seconds of the rows that are fitted."""
        ratios: FloatArray = np.log(self._predictor.seconds(self._values(logs)) / self._measured)
        return ratios

    def residuals(self, logs: FloatArray) -> FloatArray:
        """Return what is to be small: of the rows, then of the prior."""
        return np.concatenate([self._weights * _soft(self._ratios(logs)), (logs - self.usual) / self._spread])

    def fit_at(self, logs: FloatArray) -> Fit:
        """Return the fit with the parameters at ``logs``."""
        values = self._values(logs)
        ratios = self._ratios(logs)
        kept = Predictor(self._kept).errors(values) if self._kept else np.zeros(0)
        unseen = np.concatenate([self._left_out(logs, ratios), np.log1p(kept)])
        rows = [*self._fitted, *self._kept]
        return Fit(
            clusters=tuple(sorted({step.hardware for step in rows})),
            values=values,
            errors=np.expm1(ratios),
            held_out_errors=kept,
            uncertainty=uncertainty_of(-unseen, [comparable_key(step) for step in rows]),
        )

    def _left_out(self, logs: FloatArray, ratios: FloatArray) -> FloatArray:
        """Return the rows' ratios under parameters fitted without the rows of their model.

        A parameter at the end of its range stays there.
        """
        inside = [
            index
            for index, (log, each) in enumerate(zip(logs, self._free, strict=True))
            if each.least * (1 + _AT_END) < np.exp(log) < each.most * (1 - _AT_END)
        ]
        slopes = np.empty((len(ratios), len(inside)))
        for column, index in enumerate(inside):
            moved = logs.copy()
            moved[index] -= _STEP
            slopes[:, column] = (ratios - self._ratios(moved)) / _STEP
        jacobian = (self._weights * _soft_slope(ratios))[:, None] * slopes
        models = [(step.source, step.model) for step in self._fitted]
        prior = 1 / self._spread[inside] ** 2
        return left_out(ratios, slopes, self._weights * _soft(ratios), jacobian, prior, models)


def comparable_key(step: MeasuredStep) -> tuple[object, ...]:
    """Return what rows have in common whose predictions may be compared: one model on as many devices of a cluster."""
    return (step.source, step.hardware, step.n_devices, step.model)


def _soft(ratios: FloatArray) -> FloatArray:
    """Return what squares to the soft-L1 loss, on the rows alone."""
    soft: FloatArray = np.sqrt(2 * (np.sqrt(1 + (ratios / NOISE) ** 2) - 1)) * np.sign(ratios)
    return soft


def _soft_slope(ratios: FloatArray) -> FloatArray:
    """Return the derivative of :func:`_soft`, 1 / :data:`NOISE` at 0."""
    root = np.sqrt(1 + (ratios / NOISE) ** 2)
    # s·s' = r / (N²·root), and s² = 2·(root - 1), where r² = N²·(root² - 1).
    slope: FloatArray = np.sqrt((root + 1) / 2) / (root * NOISE)
    return slope
