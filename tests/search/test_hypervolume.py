"""The hypervolume against hand calculations, inclusion and exclusion, and its laws."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from archplace.search.hypervolume import Box, hypervolume


def by_inclusion_and_exclusion(points):
    """Volume of a union of boxes from each point to (1, 1, …): the sum over all subsets, by sign."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for chosen in combinations(points, size):
            total += (-1) ** (size + 1) * float(np.prod(1 - np.max(chosen, axis=0)))
    return total


# A grid of few values makes ties and points in line.
coordinates = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75]), st.floats(0, 0.999))


def fronts(most=7):
    return st.integers(1, 5).flatmap(
        lambda k: st.integers(0, most).flatmap(lambda n: arrays(np.float64, (n, k), elements=coordinates))
    )


@pytest.mark.parametrize(
    ("points", "volume"),
    [
        ([[0.25]], 0.75),
        ([[0.5, 0.5]], 0.25),
        ([[0.25, 0.5], [0.5, 0.25]], 2 * 0.75 * 0.5 - 0.25),
        ([[0.0, 0.0, 0.0, 0.0]], 1.0),
        # Three slabs of half a cube each, which share a quarter by pairs and an eighth in all.
        ([[0.5, 0, 0], [0, 0.5, 0], [0, 0, 0.5]], 3 / 2 - 3 / 4 + 1 / 8),
        # A point in the way of nobody, one that is dominated, one that is there twice.
        ([[0.5, 0.5], [0.75, 0.75], [0.5, 0.5]], 0.25),
        # Beyond the cube on one side nothing is dominated; before it counts from the side on.
        ([[1.5, 0.0]], 0.0),
        ([[-3.0, 0.5]], 0.5),
    ],
)
def test_known_volumes(points, volume):
    assert hypervolume(np.array(points)) == pytest.approx(volume, rel=1e-14, abs=1e-14)


def test_no_points_have_none():
    assert hypervolume(np.empty((0, 3))) == 0.0


@given(fronts())
def test_it_is_the_volume_of_the_union(points):
    assert hypervolume(points) == pytest.approx(by_inclusion_and_exclusion(points), abs=1e-12)


@given(fronts(), st.randoms())
def test_neither_the_order_of_points_nor_that_of_objectives_matters(points, random):
    expected = hypervolume(points)
    rows, columns = list(range(len(points))), list(range(points.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    assert hypervolume(points[rows][:, columns]) == pytest.approx(expected, abs=1e-13)


@given(fronts())
def test_a_further_point_never_takes_any_away(points):
    volumes = [hypervolume(points[:n]) for n in range(len(points) + 1)]
    assert all(later >= earlier - 1e-13 for earlier, later in pairwise(volumes))
    assert 0 <= volumes[-1] <= 1 + 1e-13


@pytest.mark.parametrize(("n", "k"), [(400, 2), (200, 3), (60, 4), (25, 5)])
def test_it_agrees_with_random_samples(n, k):
    numbers = np.random.default_rng(n)
    points = numbers.exponential(size=(n, k))
    points = np.sqrt(points / points.sum(axis=1, keepdims=True))
    samples = numbers.random((40_000, k))
    hit = np.zeros(len(samples), dtype=bool)
    for point in points:
        hit |= (samples >= point).all(axis=1)
    # Five standard deviations of a share.
    assert hypervolume(points) == pytest.approx(hit.mean(), abs=5 * 0.5 / 200)


def test_it_gives_up_where_that_takes_too_long():
    points = np.random.default_rng(0).random((50, 5)) * 0.1 + np.linspace(0, 0.5, 50)[:, None] * [1, -1, 1, -1, 1]
    assert hypervolume(points + 0.4) is not None
    assert hypervolume(points + 0.4, most_steps=20) is None


BOUNDS = np.array([[1.0, 100.0], [0.01, 400.0], [np.inf, np.inf], [np.nan, 1.0]])


def test_a_box_is_measured_by_logarithms_between_the_bounds():
    box = Box.of_bounds(BOUNDS)
    assert box is not None
    np.testing.assert_array_equal(box.ideal, [0.01, 100.0])
    np.testing.assert_array_equal(box.reference, [1.0, 400.0])
    # A tenth of the reference is half of two decades, twice the ideal half of two doublings.
    assert box.share(np.array([[0.1, 200.0]])) == pytest.approx(0.25, rel=1e-12)
    assert box.share(np.array([[0.01, 100.0]])) == pytest.approx(1.0, rel=1e-12)
    assert box.share(np.array([[0.001, 100.0], [2.0, 50.0]])) == pytest.approx(1.0, rel=1e-12)
    assert box.share(np.array([[2.0, 100.0]])) == 0.0
    assert box.share(np.empty((0, 2))) == 0.0


def test_an_objective_that_is_the_same_everywhere_does_not_count():
    box = Box.of_bounds(np.array([[0.01, 7.0], [1.0, 7.0]]))
    assert box is not None
    assert box.share(np.array([[0.1, 7.0]])) == pytest.approx(0.5, rel=1e-12)
    assert box.share(np.array([[0.1, 7.1]])) == 0.0
    point = Box.of_bounds(np.array([[3.0, 7.0]]))
    assert point is not None
    assert point.share(np.array([[3.0, 7.0]])) == 1.0


def test_without_feasible_bounds_there_is_no_box():
    assert Box.of_bounds(np.full((3, 2), np.inf)) is None
    assert Box.of_bounds(np.empty((0, 2))) is None
