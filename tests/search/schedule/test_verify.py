"""The checker accepts valid schedules and names every constraint that a corrupted one breaks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from schedule_helpers import problems

from archplace.search.schedule import Kind, Schedule, ScheduleGraph, ScheduleProblem, durations_s, solve, verify

# Tensor 4 s | 2 s on all, vector 3 s after it, fused 5 s, two collectives of 2 s each.
GRAPH = ScheduleGraph.build(
    kinds=[Kind.TENSOR, Kind.VECTOR, Kind.FUSED, Kind.NETWORK, Kind.NETWORK],
    edges=[(0, 1)],
    names=["t", "v", "f", "n1", "n2"],
)
PROBLEM = GRAPH.problem(
    one_s=[4, 3, 5, 2, 2], all_s=[2, np.inf, np.inf, np.inf, np.inf], tensor_units=2, vector_units=2
)
VALID = Schedule(
    start_s=np.array([0.0, 4.0, 0.0, 0.0, 2.0]),
    mode=np.zeros(5, dtype=np.int8),
    unit=np.array([1, 1, 0, -1, -1]),
    makespan_s=7.0,
    lower_bound_s=7.0,
    status=solve(PROBLEM).status,
)


def test_a_valid_schedule_passes() -> None:
    assert verify(PROBLEM, VALID) == []


def changed(**values: object) -> Schedule:
    return replace(VALID, **values)  # type: ignore[arg-type] # the tests below pass fields of the right types


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (changed(start_s=np.array([0.0, 3.9, 0.0, 0.0, 2.0]), makespan_s=6.9), "v starts at 3.9 before t ends"),
        (changed(start_s=np.array([0.0, 4.0, 0.0, 0.0, 1.9])), "n1 and n2 overlap on the network"),
        (changed(unit=np.array([0, 1, 0, -1, -1])), "t and f overlap on tensor unit 0"),
        (changed(unit=np.array([1, 0, 0, -1, -1])), "v and f overlap on vector unit 0"),
        (changed(unit=np.array([2, 1, 0, -1, -1])), "t: found unit 2, but there are 2"),
        (changed(unit=np.array([1, 1, 0, 0, -1])), "n1: found unit 0 where -1 belongs"),
        (changed(unit=np.array([1, 1, -1, -1, -1])), "f: found unit -1"),
        (
            changed(mode=np.array([1, 0, 0, 0, 0], dtype=np.int8), unit=np.array([-1, 1, 0, -1, -1])),
            "t and f overlap though one of them runs on all units",
        ),
        (changed(mode=np.array([0, 1, 0, 0, 0], dtype=np.int8)), "v: mode ALL is not available"),
        (changed(mode=np.array([0, 0, 0, 1, 0], dtype=np.int8)), "n1: a collective has no mode but ONE"),
        (changed(mode=np.array([0, 0, 0, 2, 0], dtype=np.int8)), "n1: found mode 2"),
        (changed(start_s=np.array([0.0, 4.0, -1.0, 0.0, 2.0])), "f: starts at -1.0"),
        (changed(start_s=np.array([0.0, np.nan, 0.0, 0.0, 2.0])), "v: starts at nan"),
        (changed(makespan_s=6.0, lower_bound_s=6.0), "the makespan is 7.0, not 6.0"),
        (changed(lower_bound_s=7.5), "the lower bound 7.5 lies above the makespan"),
        (changed(start_s=np.zeros(4)), "for 5 operators"),
    ],
)
def test_a_corrupted_schedule_is_rejected(schedule: Schedule, words: str) -> None:
    assert any(words in violation for violation in verify(PROBLEM, schedule))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(problem=problems(max_ops=8))
def test_starting_earlier_than_an_optimal_schedule_allows_is_rejected(problem: ScheduleProblem) -> None:
    # In an optimal schedule that starts everything as early as possible, moving the operator that ends last to time 0
    # would
    # shorten it or change nothing: if its makespan falls, the checker must object.
    schedule = solve(problem, engine="cpsat")
    duration = durations_s(problem, schedule.mode)
    start = schedule.start_s.copy()
    last = (start + duration) >= schedule.makespan_s * (1 - 1e-9)
    start[last] = 0.0
    makespan_s = float((start + duration).max())
    moved = replace(schedule, start_s=start, makespan_s=makespan_s, lower_bound_s=0.0)
    if makespan_s < schedule.makespan_s * (1 - 1e-6):
        assert verify(problem, moved) != []
