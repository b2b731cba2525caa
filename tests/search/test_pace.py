"""The time that a phase still takes."""

import pytest

from archplace.search.outcome import Progress
from archplace.search.pace import Pace


def progress(phase, *, bounded=0, decided=0, total=1000, unproven=0):
    return Progress(
        phase=phase,
        bounded=bounded,
        decided=decided,
        total=total,
        evaluated=0,
        front=0,
        best=(),
        fates=(total - decided, 0, 0, decided, 0),
        unproven=unproven,
    )


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_bounds_go_at_an_even_pace(clock):
    pace = Pace(clock)
    assert pace.remaining_s(progress("bounds", bounded=100)) is None
    clock.now += 2
    # 200 in 2 s, 700 to go.
    assert pace.remaining_s(progress("bounds", bounded=300)) == pytest.approx(7)
    clock.now += 7
    assert pace.remaining_s(progress("bounds", bounded=1000)) == 0


def test_schedules_too_and_of_a_workload_by_itself(clock):
    for phase in ("schedules", "a by itself: schedules"):
        pace = Pace(clock)
        assert pace.remaining_s(progress(phase, unproven=50)) is None
        clock.now += 4
        assert pace.remaining_s(progress(phase, unproven=40)) == pytest.approx(16)


def test_evaluation_decides_a_share_of_what_is_open(clock):
    pace = Pace(clock)
    assert pace.remaining_s(progress("evaluation", decided=1000 - 511)) is None
    clock.now += 3
    # From 2⁹ to 2⁶ in 3 s: a halving each second, six more to 2⁰ (one is added, so that none are reached).
    assert pace.remaining_s(progress("evaluation", decided=1000 - 63)) == pytest.approx(6)


def test_what_stands_still_or_grows_has_no_end(clock):
    pace = Pace(clock)
    for unproven in (10, 10, 12):
        assert pace.remaining_s(progress("schedules", unproven=unproven)) is None
        clock.now += 1


def test_two_steps_at_once_tell_nothing(clock):
    pace = Pace(clock)
    pace.remaining_s(progress("schedules", unproven=10))
    assert pace.remaining_s(progress("schedules", unproven=5)) is None


def test_each_phase_is_judged_by_itself(clock):
    pace = Pace(clock)
    pace.remaining_s(progress("bounds", bounded=100))
    clock.now += 1
    assert pace.remaining_s(progress("evaluation", decided=500)) is None


def test_only_the_last_seconds_count(clock):
    pace = Pace(clock)
    for unproven in range(1000, 900, -1):
        pace.remaining_s(progress("schedules", unproven=unproven))
        clock.now += 10
    # Then ten times as fast, for longer than the window.
    for unproven in range(900, 800, -1):
        left = pace.remaining_s(progress("schedules", unproven=unproven))
        clock.now += 1
    assert left == pytest.approx(801, rel=0.01)
