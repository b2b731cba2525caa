"""The least bounds of a workload: over its options, within its budgets, each found once."""

import numpy as np
import pytest
from exhaustive_helpers import CHOICES, CLUSTER, small_workload

from archplace.arch_configs import load_space
from archplace.search.evaluator import Evaluator
from archplace.search.least import Least, LeastMemory
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound


def test_the_least_is_over_all_options_and_over_those_within_budgets():
    figures = np.array([[[3.0], [np.inf], [1.0]], [[2.0], [np.inf], [4.0]]])
    least = Least.of(figures, np.array([[True, False, False], [False, False, True]]))
    np.testing.assert_array_equal(least.lowest, [[2.0], [np.inf], [1.0]])
    np.testing.assert_array_equal(least.within, [[3.0], [np.inf], [4.0]])
    np.testing.assert_array_equal(least.possible, [True, False, True])


def test_without_options_nothing_is_possible():
    least = Least.of(np.empty((0, 2, 1)), np.empty((0, 2), dtype=bool))
    assert np.isinf(least.lowest).all()
    assert not least.possible.any()


def test_what_is_known_is_not_found_again():
    asked = []

    def find(indices):
        asked.append(indices.tolist())
        own = indices[:, None].astype(np.float64)
        return Least(lowest=own, within=own + 0.5, possible=indices % 2 == 0)

    memory = LeastMemory(1)
    for indices in ([4, 1], [1, 4], [0, 1, 5]):
        found = memory.recall(Bound.WORK, np.array(indices), 6, find)
        assert found.lowest[:, 0].tolist() == indices
        assert found.within[:, 0].tolist() == [i + 0.5 for i in indices]
        assert found.possible.tolist() == [i % 2 == 0 for i in indices]
    assert asked == [[4, 1], [0, 5]]
    memory.recall(Bound.GROUP_WORK, np.array([1]), 6, find)
    assert asked[-1] == [1]


@pytest.mark.parametrize("kind", [Bound.WORK, Bound.GROUP_WORK, Bound.GROUP])
def test_bounds_are_the_same_whether_a_workload_was_bounded_alone_before_or_not(kind):
    phaze = load_space("phaze").enumerate()
    archs = phaze.take(np.arange(0, 600))
    workloads = [small_workload(), small_workload(d_ff=1024, n_layers=2)]

    def evaluator():
        return Evaluator(
            architectures=archs,
            workloads=workloads,
            cluster=CLUSTER,
            choices=CHOICES,
            objectives=Objectives.of(["throughput", "area"]),
            coarse=True,
        )

    some = np.arange(0, 600, 7)
    expected = evaluator().bounds(some, kind)
    asked = evaluator()
    for alone in asked.each_alone():
        alone.bounds(np.arange(0, 600, 3), kind)
    found = asked.bounds(some, kind)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.code, expected.code)
