"""Named picks: the few points of a front that an architect looks at first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.metrics import Metrics
from archplace.search.objectives import Objective
from archplace.search.points import PointView
from archplace.search.report.objectives import axes

_MOST_POINTS = 5
_ON_THE_LINE = 1e-9
"""Share of the front's extent by which a knee must be better than the ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A point with the reason why it stands out."""

    name: str
    why: str
    point: PointView


_COMPARED: dict[str, Callable[[Metrics], float | None]] = {
    "throughput": lambda metrics: metrics.samples_per_s,
    "area": lambda metrics: metrics.area_mm2,
    "throughput_per_area": lambda metrics: metrics.samples_per_s_per_mm2,
    "throughput_per_watt": lambda metrics: metrics.samples_per_s_per_w,
    "samples_per_dollar": lambda metrics: metrics.samples_per_usd,
    "energy_per_sample": lambda metrics: metrics.joules_per_sample,
    "cost_per_sample": lambda metrics: metrics.usd_per_sample,
    "peak_power": lambda metrics: metrics.peak_power_w,
    "accelerator_price": lambda metrics: metrics.accelerator_usd,
}


def difference(point: PointView, baseline: PointView) -> dict[str, float]:
    """Return what ``point`` has more (or, negative, less) than the baseline: 0.25 is a quarter more.

    Only what is known of both is compared.
    """
    found = {}
    for name, of in _COMPARED.items():
        mine, other = of(point.metrics), of(baseline.metrics)
        if mine is not None and other is not None:
            found[name] = mine / other - 1
    return found


def picks(front: Sequence[PointView], baseline: PointView | None) -> tuple[Pick, ...]:
    """Return picks of ``front``, about five different points; none for an empty front.

    Fastest, best in the worst case, best throughput per area, per watt and per dollar, knee (see :func:`_knee`),
    smallest, least power, the fastest that is no larger than the baseline, and the smallest that is no slower: those
    that apply. On a front of a single point only those count that the objectives have made. One point may be several
    picks.
    """
    if not front:
        return ()
    outcome = front[0].result.outcome
    wanted = set(outcome.objectives.names)
    exact = not front[0].result.partial and not any(outcome.gap or ())
    found: list[Pick] = []

    def add(name: str, why: str, point: PointView, *made_by: Objective) -> None:
        """Add a pick that is the best of the space where ``made_by`` are objectives, else of the front."""
        certain = bool(made_by) and wanted.issuperset(made_by)
        if len(front) == 1 and not certain:
            return
        extreme = certain and len(made_by) == 1
        known = {pick.point.id for pick in found}
        if not extreme and point.id not in known and len(known) >= _MOST_POINTS:
            return
        if made_by:
            why += " of the whole space" if certain and exact else " on the front"
        found.append(Pick(name=name, why=why, point=point))

    def best(of: Callable[[Metrics], float | None], *, least: bool = False) -> PointView | None:
        known = [(value, point) for point in front if (value := of(point.metrics)) is not None]
        if not known:
            return None
        return (min if least else max)(known, key=lambda pair: pair[0])[1]

    fastest = max(front, key=lambda point: point.samples_per_s)
    add("Fastest", "the highest throughput", fastest, Objective.THROUGHPUT)
    worst = best(lambda metrics: metrics.worst_relative_throughput)
    if worst is not None:
        why = "the most of every workload's best throughput, also of the workload that gets the least,"
        add("Best worst case", why, worst, Objective.WORST_CASE)
    dense = max(front, key=lambda point: point.metrics.samples_per_s_per_mm2)
    add("Best per area", "the most throughput per mm²", dense, Objective.THROUGHPUT, Objective.AREA)
    frugal = best(lambda metrics: metrics.samples_per_s_per_w)
    if frugal is not None:
        add("Best per watt", "the most throughput per watt, hosts included,", frugal, Objective.ENERGY)
    cheap = best(lambda metrics: metrics.samples_per_usd)
    if cheap is not None:
        add("Best per dollar", "the most samples per dollar of hardware and energy", cheap, Objective.COST)
    knee = _knee(front)
    if knee is not None:
        why = "the best balance: of all objectives' ranges it gets the most in sum"
        if wanted == {Objective.THROUGHPUT, Objective.AREA}:
            why = "beyond it, more area buys the least throughput for what it costs"
        add("Knee", why, front[knee])
    add("Smallest", "the least area", min(front, key=lambda point: point.area_mm2), Objective.AREA)
    coolest = best(lambda metrics: metrics.peak_power_w, least=True)
    if coolest is not None and Objective.POWER in wanted:
        add("Least power", "the least peak power", coolest, Objective.POWER)
    if baseline is not None and {Objective.THROUGHPUT, Objective.AREA} <= wanted:
        _add_compared(add, front, baseline)
    return tuple(found)


def _add_compared(add: Callable[[str, str, PointView], None], front: Sequence[PointView], baseline: PointView) -> None:
    inside = [point for point in front if point.area_mm2 <= baseline.area_mm2]
    if inside:
        point = max(inside, key=lambda point: point.samples_per_s)
        add(f"Best within {baseline.label}'s area", f"the fastest that is no larger than {baseline.label}", point)
    as_fast = [point for point in front if point.samples_per_s >= baseline.samples_per_s]
    if as_fast:
        point = min(as_fast, key=lambda point: point.area_mm2)
        add(f"Smallest as fast as {baseline.label}", f"the least area that is no slower than {baseline.label}", point)


def by_point(found: Sequence[Pick]) -> tuple[tuple[Pick, ...], ...]:
    """Return the picks grouped by the point they name, in the order in which the points first come."""
    groups: dict[int | str, list[Pick]] = {}
    for pick in found:
        groups.setdefault(pick.point.id, []).append(pick)
    return tuple(tuple(group) for group in groups.values())


def _knee(front: Sequence[PointView]) -> int | None:
    """Return the point that gets the most of all objectives' ranges in sum, or None.

    Of each objective a point gets between 0, the worst on the front, and 1, the best. With two objectives this is the
    point farthest above the straight line between the ends. There is none where an end, which is best in one objective,
    gets as much.
    """
    shares = []
    for axis in axes(front[0].result.outcome.objectives):
        values = np.array([axis.of(point) for point in front]) * (1 if axis.maximise else -1)
        if np.ptp(values) > 0:
            shares.append((values - values.min()) / np.ptp(values))
    if len(shares) < 2:
        return None
    total = np.sum(shares, axis=0)
    ends = np.max(shares, axis=0) == 1
    farthest = int(np.argmax(total))
    return farthest if total[farthest] > total[ends].max() + _ON_THE_LINE else None
