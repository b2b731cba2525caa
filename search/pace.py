"""How long an exploration's present phase still takes, judged by how fast it got on lately.

How much work later phases hold is not known before they begin, so that only the end of the present one is told; the
phase ``schedules`` is the last.
"""

import math
import time
from collections import deque
from collections.abc import Callable

from archplace.search.outcome import Progress

WINDOW_S = 15.0
"""What lies further back says little about the present."""
_FEWEST = 4
"""Steps that count even when they lie further back: steps may take minutes."""


class Pace:
    """Hears of every step, with a clock that nobody sets, and estimates when the phase ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase = ""
        self._steps: deque[tuple[float, float]] = deque()

    def remaining_s(self, progress: Progress) -> float | None:
        """Return the seconds to the end of the phase of ``progress``; None while that cannot be told.

        Bounds and schedules go at an even pace. Evaluation does not: each step rules out a share of what is still open,
        so that its logarithm falls evenly.
        """
        now = self._clock()
        if progress.phase != self._phase:
            self._phase = progress.phase
            self._steps.clear()
        left = _work_left(progress)
        self._steps.append((now, left))
        while len(self._steps) > _FEWEST and self._steps[0][0] < now - WINDOW_S:
            self._steps.popleft()
        if left == 0:
            return 0.0
        then, before = self._steps[0]
        if before <= left or now <= then:
            return None
        return left * (now - then) / (before - left)


def _work_left(progress: Progress) -> float:
    phase = progress.phase.rsplit(" ", 1)[-1]
    if phase == "bounds":
        return float(progress.total - progress.bounded)
    if phase == "schedules":
        return float(progress.unproven)
    return math.log1p(progress.total - progress.decided)
