"""Figures of merit of predictions: how far, in which direction, in which order, and better than a constant rate?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from archplace.search.accuracy.predict import Prediction

FloatArray = NDArray[np.float64]

SMALLEST_GROUP = 3
"""Rows below which an order says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How well predictions agree with measurements; NaN where nothing can be said."""

    name: str
    rows: int
    priced: int
    mean_error: float
    """Mean of |predicted / measured - 1|."""
    median_error: float
    bias: float
    """Mean of predicted / measured - 1: negative where predictions are too fast."""
    groups: int
    """Groups of rows with one model on one number of devices of one cluster, of at least :data:`SMALLEST_GROUP`."""
    rank_correlation: float
    """Spearman's, mean over the groups."""
    top_regret: float
    """How much slower the row that is predicted fastest is than the fastest one, mean over the groups."""
    skill: float
    """1 - mean error / mean error of the constant rate: the median FLOP/s per device that the source itself shows."""
    unfit: int
    """Rows that the memory model says do not fit, although they ran."""

    @property
    def coverage(self) -> float:
        """Share of rows that are priced."""
        return self.priced / self.rows


def figures_of(predictions: Sequence[Prediction]) -> tuple[Figures, ...]:
    """Return the figures of each source in the order in which they appear, and of all rows together as ``all``.

    The constant rate is each source's own in the last entry too.
    """
    sources = dict.fromkeys(prediction.step.source for prediction in predictions)
    parts = {name: [each for each in predictions if each.step.source == name] for name in sources}
    found = [_figures(name, [part]) for name, part in parts.items()]
    if len(parts) > 1:
        found.append(_figures("all", list(parts.values())))
    return tuple(found)


def _figures(name: str, sources: Sequence[Sequence[Prediction]]) -> Figures:
    rows = [prediction for source in sources for prediction in source]
    priced = [prediction for prediction in rows if prediction.reason is None]
    errors = np.array([prediction.error for prediction in priced])
    constant = np.concatenate([constant_rate_errors(source) for source in sources])
    groups = list(groups_of(priced))
    return Figures(
        name=name,
        rows=len(rows),
        priced=len(priced),
        mean_error=_mean(np.abs(errors)),
        median_error=float(np.median(np.abs(errors))) if len(errors) else float("nan"),
        bias=_mean(errors),
        groups=len(groups),
        rank_correlation=_mean([_spearman(group) for group in groups]),
        top_regret=_mean([_regret(group) for group in groups]),
        skill=_skill(np.abs(errors), np.abs(constant)),
        unfit=sum(not prediction.fits for prediction in priced),
    )


def groups_of(predictions: Iterable[Prediction]) -> Iterable[list[Prediction]]:
    """Yield the groups of rows that compete: one model on one number of devices of one cluster, by one source.

    Times of different batches and sequences are compared per token.
    """

    def key(prediction: Prediction) -> str:
        step = prediction.job
        return repr((step.source, step.hardware, step.n_devices, step.model))

    for _, group in groupby(sorted(predictions, key=key), key=key):
        rows = list(group)
        if len(rows) >= SMALLEST_GROUP:
            yield rows


def constant_rate_errors(source: Sequence[Prediction]) -> FloatArray:
    """Return the relative errors of predicting every step of a source by the median of its FLOP/s per device."""
    priced = [prediction for prediction in source if prediction.reason is None]
    if not priced:
        return np.zeros(0)
    devices = np.array([prediction.job.n_devices for prediction in priced], dtype=np.float64)
    measured = np.array([prediction.step.step_s for prediction in priced])
    work = np.array([prediction.flops for prediction in priced]) / devices
    errors: FloatArray = work / np.median(work / measured) / measured - 1.0
    return errors


def _skill(errors: FloatArray, constant: FloatArray) -> float:
    if not len(errors) or not constant.mean():
        return float("nan")
    return float(1.0 - errors.mean() / constant.mean())


def _per_token(group: Sequence[Prediction]) -> tuple[FloatArray, FloatArray]:
    steps = [prediction.job for prediction in group]
    tokens = np.array([step.global_batch * step.seq_len for step in steps], dtype=np.float64)
    predicted = np.array([prediction.predicted_s for prediction in group]) / tokens
    return predicted, np.array([step.step_s for step in steps]) / tokens


def _spearman(group: Sequence[Prediction]) -> float:
    """Return the correlation of ranks, ties sharing their mean rank; NaN where one side is all ties."""
    predicted, measured = (_ranks(values) for values in _per_token(group))
    spread = predicted.std() * measured.std()
    if not spread:
        return float("nan")
    return float(((predicted - predicted.mean()) * (measured - measured.mean())).mean() / spread)


def _ranks(values: FloatArray) -> FloatArray:
    below = (values[None, :] < values[:, None]).sum(axis=1)
    same = (values[None, :] == values[:, None]).sum(axis=1)
    ranks: FloatArray = below + (same - 1) / 2.0
    return ranks


def _regret(group: Sequence[Prediction]) -> float:
    predicted, measured = _per_token(group)
    return float(measured[predicted.argmin()] / measured.min() - 1.0)


def _mean(values: Sequence[float] | FloatArray) -> float:
    """Return the mean of what is a number."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else float("nan")
