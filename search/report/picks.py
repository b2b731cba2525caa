"""Named picks: the few points of a front that an architect looks at first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.tables import PointView

_MOST_POINTS = 5
_ON_THE_LINE = 1e-9
"""Distance from the straight line, as a share of the front's extent, up to which a front has no knee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A point with the reason why it stands out."""

    name: str
    why: str
    point: PointView


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a point has more (or, negative, less) than the baseline, as a share of the baseline's."""

    throughput: float
    area: float
    throughput_per_area: float


def difference(point: PointView, baseline: PointView) -> Difference:
    """Return how ``point`` differs from ``baseline``: 0.25 is a quarter more."""
    return Difference(
        throughput=point.samples_per_s / baseline.samples_per_s - 1,
        area=point.area_mm2 / baseline.area_mm2 - 1,
        throughput_per_area=point.samples_per_s_per_mm2 / baseline.samples_per_s_per_mm2 - 1,
    )


def picks(front: Sequence[PointView], baseline: PointView | None) -> tuple[Pick, ...]:
    """Return picks of ``front`` (fastest first), at most five different points; none for an empty front.

    Fastest, best throughput per area, knee (farthest above the straight line between the ends, in units of the front's
    extent; none where no point lies above it), smallest, the fastest that is no larger than the baseline, and
    the smallest that is no slower. One point may be several picks.
    """
    if not front:
        return ()
    found = [
        Pick(name="Fastest", why="the highest throughput of the whole space", point=front[0]),
        Pick(
            name="Best per area",
            why="the most throughput per mm²",
            point=max(front, key=lambda point: point.samples_per_s_per_mm2),
        ),
    ]
    knee = _knee(front)
    if knee is not None:
        found.append(
            Pick(
                name="Knee",
                why="beyond it, more area buys the least throughput for what it costs",
                point=front[knee],
            )
        )
    found.append(
        Pick(name="Smallest", why="the least area on the front", point=min(front, key=lambda point: point.area_mm2))
    )
    if baseline is not None:
        inside = [point for point in front if point.area_mm2 <= baseline.area_mm2]
        if inside:
            found.append(
                Pick(
                    name=f"Best within {baseline.label}'s area",
                    why=f"the fastest that is no larger than {baseline.label}",
                    point=inside[0],
                )
            )
        as_fast = [point for point in front if point.samples_per_s >= baseline.samples_per_s]
        if as_fast and len(by_point(found)) < _MOST_POINTS:
            found.append(
                Pick(
                    name=f"Smallest as fast as {baseline.label}",
                    why=f"the least area that is no slower than {baseline.label}",
                    point=min(as_fast, key=lambda point: point.area_mm2),
                )
            )
    return tuple(found)


def by_point(found: Sequence[Pick]) -> tuple[tuple[Pick, ...], ...]:
    """Return the picks grouped by the point they name, in the order in which the points first come."""
    groups: dict[int | str, list[Pick]] = {}
    for pick in found:
        groups.setdefault(pick.point.id, []).append(pick)
    return tuple(tuple(group) for group in groups.values())


def _knee(front: Sequence[PointView]) -> int | None:
    area = np.array([point.area_mm2 for point in front])
    speed = np.array([point.samples_per_s for point in front])
    if np.ptp(area) == 0 or np.ptp(speed) == 0:
        return None
    above = (speed - speed.min()) / np.ptp(speed) - (area - area.min()) / np.ptp(area)
    farthest = int(np.argmax(above))
    return farthest if above[farthest] > _ON_THE_LINE else None
