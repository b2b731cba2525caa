"""Intervals of design points' figures, and which designs of a front are ties.

Two designs are a tie where the intervals for comparison overlap in every objective that carries one: throughput, energy
and cost. They then differ in what is surer, area and peak power, or in nothing that the model can tell.
"""

from collections.abc import Sequence

import numpy as np

from archplace.arch_configs.calibration import CENTRAL_SHARE
from archplace.search.metrics import Metrics
from archplace.search.objectives import Objective
from archplace.search.points import OBJECTIVE_COLUMNS, PointView, Row
from archplace.search.uncertainty import Interval, StepUncertainty, step_uncertainty

SURE = (Objective.POWER, Objective.AREA)
"""Objectives whose values carry no interval: they are the architecture's, whatever runs on it."""
MOST_TIES_NAMED = 10
"""Ties of a design that are named, the closest ones."""

_WHOLE = {Objective.THROUGHPUT: "run_s", Objective.ENERGY: "run_j", Objective.COST: "run_usd"}
"""Columns of the whole training that have the interval of an objective."""

Shares = tuple[float, float]


def uncertainty_of(point: PointView) -> StepUncertainty:
    """Return how sure the step times of a design point are."""
    baseline = point.result.baseline
    name = baseline.name if point.is_baseline and baseline is not None else None
    return step_uncertainty(point.result.run.cluster, name, point.architectures.calibration)


def intervals_of(point: PointView) -> dict[Objective, Interval]:
    """Return the intervals of a point's throughput, energy and cost, as factors, as far as the figures are known."""
    uncertainty = uncertainty_of(point)
    found = {Objective.THROUGHPUT: uncertainty.interval.inverse()}
    for name in (Objective.ENERGY, Objective.COST):
        shares = _shares(name, point.metrics)
        if shares is not None:
            found[name] = uncertainty.figure(*shares)
    return found


def bounds_row(point: PointView) -> Row:
    """Return the bounds between which measured figures are expected, as columns ``…_low`` and ``…_high``."""
    headline, row = point.headline(), {}
    for name, interval in intervals_of(point).items():
        column = OBJECTIVE_COLUMNS[name]
        value = headline.get(column)
        if isinstance(value, float):
            row[f"{column}_low"], row[f"{column}_high"] = interval.of(value)
        whole = headline.get(_WHOLE[name])
        if isinstance(whole, float):
            # Seconds, where the objective is a rate.
            wide = interval.inverse() if name is Objective.THROUGHPUT else interval
            row[f"{_WHOLE[name]}_low"], row[f"{_WHOLE[name]}_high"] = wide.of(whole)
    return {**row, "interval_probability": CENTRAL_SHARE, "interval_basis": str(uncertainty_of(point).basis)}


def ties_of(front: Sequence[PointView]) -> list[tuple[int, ...]]:
    """Return for each design of a front the positions of its ties, the closest in all objectives together first.

    Where no objective carries an interval there are none.
    """
    if not front:
        return []
    names = [name for name in front[0].result.outcome.objectives.names if name not in SURE]
    values = np.array([[_logarithm(point, name) for name in names] for point in front]).reshape(len(front), -1)
    widths = np.array([[_width(point, name) for name in names] for point in front]).reshape(len(front), -1)
    if not names:
        return [() for _ in front]
    found = []
    for i in range(len(front)):
        distance = np.abs(values - values[i])
        tied = (distance <= widths + widths[i]).all(axis=1)
        tied[i] = False
        order = np.argsort(distance.sum(axis=1), kind="stable")
        found.append(tuple(order[tied[order]].tolist()))
    return found


def full_rows(front: Sequence[PointView]) -> list[Row]:
    """Return every design of a front with all its figures, bounds and ties, in SI units."""
    ties = ties_of(front)
    return [
        {**point.row(), **bounds_row(point), **ties_row(front, tied)} for point, tied in zip(front, ties, strict=True)
    ]


def ties_row(front: Sequence[PointView], tied: Sequence[int]) -> Row:
    """Return how many ties a design has, and the closest of them."""
    named = " ".join(str(front[index].id) for index in tied[:MOST_TIES_NAMED])
    return {"ties": len(tied), "tied_with": named}


def _logarithm(point: PointView, name: Objective) -> float:
    value = point.value(name)
    return float("inf") if value is None else float(np.log(value))


def _width(point: PointView, name: Objective) -> float:
    """Return the half width of the interval for comparison, of the logarithm."""
    if name in (Objective.THROUGHPUT, Objective.WORST_CASE):
        return uncertainty_of(point).comparison(1.0)
    shares = _shares(name, point.metrics)
    return 0.0 if shares is None else uncertainty_of(point).comparison(shares[0])


def _shares(name: Objective, metrics: Metrics) -> Shares | None:
    """Return the shares of a figure that follow the seconds and the watts, mean over the workloads."""
    each = []
    for one in metrics.workloads:
        time, energy = one.joules_time_share, one.usd_energy_share
        if time is None:
            return None
        if name is Objective.ENERGY:
            each.append((time, 1.0))
        elif energy is None:
            return None
        else:
            each.append((1 - energy + energy * time, energy))
    means = np.mean(each, axis=0)
    return float(means[0]), float(means[1])
