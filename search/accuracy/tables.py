"""Predictions as rows and as text."""

import math
from collections.abc import Sequence
from textwrap import wrap

from archplace.search.accuracy.figures import Figures, figures_of
from archplace.search.accuracy.predict import Prediction
from archplace.search.wording import aligned, count, percent, signed_percent

MOST_REASONS = 20
"""Reasons for rows that cannot be priced that the text lists."""

_LEGEND = (
    "mean, median, bias: of predicted over measured seconds, less one, without sign but for the bias; skill: one less "
    "the mean error over that of the source's own median FLOP/s per device; Spearman, regret: within groups of one "
    "model on as many devices, per token; do not fit: steps that the memory model takes to need more than a device "
    "has, although they ran"
)
_HEADER = ("source", "rows", "mean", "median", "bias", "skill", "groups", "Spearman", "top-1 regret", "do not fit")


def prediction_row(prediction: Prediction) -> dict[str, object]:
    """Return one row as plain data: seconds, share of error, bytes; what a row that is not priced lacks is None."""
    step, priced = prediction.step, prediction.reason is None
    return {
        "id": step.id,
        "source": step.source,
        "hardware": step.hardware,
        "measured_step_s": step.step_s if math.isfinite(step.step_s) else None,
        "predicted_step_s": prediction.predicted_s if priced else None,
        "error": prediction.error if priced else None,
        "fits": prediction.fits if priced else None,
        "memory_bytes": prediction.memory_bytes if priced else None,
        "reason": prediction.reason,
        "stack": dict(prediction.parts_s),
    }


def flat_row(prediction: Prediction) -> dict[str, object]:
    """Return the same with a cell for each part of the stack."""
    row = prediction_row(prediction)
    del row["stack"]
    return row | {f"{part.replace(' ', '_').replace('-', '_')}_s": value for part, value in prediction.parts_s.items()}


def accuracy_text(predictions: Sequence[Prediction]) -> str:
    """Return the figures of every source, and what could not be priced."""
    figures = figures_of(predictions)
    refused = [prediction for prediction in predictions if prediction.reason is not None]
    covered = len(predictions) - len(refused)
    lines = [
        f"{count(covered, 'step')} of {len(predictions):,} priced: coverage {percent(covered / len(predictions))}",
        "",
        *aligned([_HEADER, *(_cells(each) for each in figures)], left={0}),
        "",
        *wrap(_LEGEND, 100),
    ]
    if refused:
        lines += ["", "Not priced"]
        lines += [f"  {each.step.place}: {each.step.id}: {each.reason}" for each in refused[:MOST_REASONS]]
        if len(refused) > MOST_REASONS:
            lines.append(f"  and {len(refused) - MOST_REASONS:,} more")
    return "\n".join(lines)


def _cells(figures: Figures) -> tuple[str, ...]:
    return (
        figures.name,
        f"{figures.priced}/{figures.rows}" if figures.priced < figures.rows else str(figures.rows),
        _share(figures.mean_error),
        _share(figures.median_error),
        signed_percent(figures.bias) if math.isfinite(figures.bias) else "–",
        f"{figures.skill:.2f}" if math.isfinite(figures.skill) else "–",
        str(figures.groups),
        f"{figures.rank_correlation:.2f}" if math.isfinite(figures.rank_correlation) else "–",
        _share(figures.top_regret),
        str(figures.unfit),
    )


def _share(value: float) -> str:
    return percent(value) if math.isfinite(value) else "–"
