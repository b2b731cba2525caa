"""Named picks: the few points of a front that an architect looks at first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.tables import PointView


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A point with the reason why it stands out."""

    name: str
    why: str
    point: PointView


def picks(front: Sequence[PointView], baseline: PointView | None) -> tuple[Pick, ...]:
    """Return three to five picks of ``front`` (fastest first); none for an empty front.

    Fastest, best throughput per area, knee (farthest from the straight line between the ends, in units of the front's
    extent), smallest, and the fastest that is no larger than the baseline.
    """
    if not front:
        return ()
    found = [
        Pick(name="Fastest", why="the highest throughput of the whole space", point=front[0]),
        Pick(
            name="Best per area",
            why="the most throughput per mm²",
            point=max(front, key=lambda point: point.samples_per_s / point.area_mm2),
        ),
    ]
    if len(front) > 2:
        found.append(
            Pick(
                name="Knee",
                why="beyond it, more area buys the least throughput for what it costs",
                point=front[_knee(front)],
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
    return tuple(found)


def _knee(front: Sequence[PointView]) -> int:
    area = np.array([point.area_mm2 for point in front])
    speed = np.array([point.samples_per_s for point in front])
    x = (area - area.min()) / max(float(np.ptp(area)), 1e-300)
    y = (speed - speed.min()) / max(float(np.ptp(speed)), 1e-300)
    return int(np.argmax(y - x))
