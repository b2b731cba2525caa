"""Bounds of groups: nothing in a group is better than the architecture that has the most of everything."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive_helpers import CHOICES, CLUSTER, exhaustive_s, small_workload
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.arch_configs import load_cluster, load_space
from archplace.costmodel import Pricer
from archplace.search.choices import Choices
from archplace.search.evaluator import Evaluator
from archplace.search.explore import Exploration
from archplace.search.groups import AREA_STEP, Groups
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound, Fate
from archplace.search.runfile import SEARCH_AXES
from archplace.workloads import LayerSharding, Recompute, load_workload

RESOURCES = (
    "clock_hz",
    "tensor_local_bytes",
    "tensor_local_bytes_per_s",
    "vector_lanes",
    "vector_local_bytes",
    "global_buffer_bytes",
    "global_buffer_bytes_per_s",
    "hbm_bytes_per_s",
)

PACKED = 1e-4
"""What memory packs is bisected to so much: bounds of two architectures that both hold may be in the wrong order by
that, relative to the step, but neither is above what its architecture reaches."""


@pytest.fixture(scope="module")
def fine():
    return load_space("modern-fine").enumerate()


def test_a_group_has_the_most_of_everything_and_the_same_of_the_rest(fine):
    groups = Groups.of_space(fine)
    assert groups is not None
    assert len(groups.best) < len(fine) / 20
    best = groups.best.take(groups.of)
    for name in RESOURCES:
        assert (getattr(best, name) >= getattr(fine, name)).all()
        reached = np.maximum.reduceat(
            getattr(fine, name)[np.argsort(groups.of, kind="stable")],
            np.flatnonzero(np.diff(np.sort(groups.of), prepend=-1)),
        )
        np.testing.assert_array_equal(reached, getattr(groups.best, name))
    for name in ("tensor_count", "tensor_rows", "tensor_cols", "vector_count", "hbm_bytes", "hbm_separate_ports"):
        np.testing.assert_array_equal(getattr(best, name), getattr(fine, name))
    assert (best.area_mm2 <= fine.area_mm2).all()
    assert (fine.area_mm2 <= best.area_mm2 * np.exp(AREA_STEP)).all()


def test_spaces_whose_architectures_have_nothing_in_common_have_no_groups():
    assert Groups.of_space(load_space("phaze").enumerate()) is None


@pytest.mark.parametrize("name", ["llama2-7b", "bert-large", "gpt3-175b"])
def test_no_architecture_is_bounded_below_its_group(fine, name):
    evaluator = Evaluator(
        architectures=fine,
        workloads=[load_workload(name)],
        cluster=load_cluster("tpu-v5p-pod").sized(1024),
        choices=Choices(accelerators=1024, axes=replace(SEARCH_AXES, tensor=(2, 8), microbatch=(1, 4)), hbm_bytes=None),
        objectives=Objectives.of(["throughput", "area"]),
    )
    some = np.random.default_rng(5).choice(len(fine), 2000, replace=False)
    group, own = (evaluator.bounds(some, kind) for kind in (Bound.GROUP, Bound.SCHEDULE))
    np.testing.assert_array_equal(group.code, own.code)
    assert (group.values[:, 0] <= own.values[:, 0] * (1 + PACKED)).all()
    np.testing.assert_array_equal(group.values[:, 1], own.values[:, 1])


@pytest.fixture(scope="module")
def phaze():
    return load_space("phaze").enumerate()


@settings(max_examples=25)
@given(data=st.data())
def test_more_of_every_resource_is_never_bounded_higher(phaze, data):
    """Random architectures, changed at random: each against the most of both."""
    picked = np.array(data.draw(st.lists(st.integers(0, len(phaze) - 1), min_size=4, max_size=4)))
    archs = phaze.take(np.tile(picked, 3))
    factors = {name: data.draw(st.sampled_from([0.25, 0.5, 0.9, 1.1, 2.0, 3.0]), label=name) for name in RESOURCES}
    columns = {}
    for name, factor in factors.items():
        one, other, _ = np.split(getattr(archs, name), 3)
        other = np.maximum((other * factor).astype(other.dtype), 1)
        columns[name] = np.concatenate((one, other, np.maximum(one, other)))
    evaluator = Exploration.of(replace(archs, **columns), [small_workload()], CLUSTER, CHOICES, jobs=1).evaluator
    one, other, most = np.split(evaluator.bounds(slice(None), Bound.SCHEDULE).values[:, 0], 3)
    assert (most <= one * (1 + PACKED)).all()
    assert (most <= other * (1 + PACKED)).all()


def in_groups(phaze, count):
    """Each of some architectures with more and fewer lanes, bandwidths and clocks, near enough in area."""
    base = phaze.take(np.arange(50, len(phaze), len(phaze) // count))
    rows = np.tile(np.arange(len(base)), 8)
    bits = np.repeat(np.arange(8), len(base))
    archs = base.take(rows)
    return replace(
        archs,
        vector_lanes=np.where(bits & 1, archs.vector_lanes * 2, archs.vector_lanes),
        hbm_bytes_per_s=np.where(bits & 2, archs.hbm_bytes_per_s * 1.5, archs.hbm_bytes_per_s),
        global_buffer_bytes_per_s=archs.global_buffer_bytes_per_s * np.where(bits & 4, 1.25, 1.0),
        area_mm2=archs.area_mm2 * (1 + 1e-4 * bits),
    )


def test_no_placement_is_faster_than_the_bounds_of_its_group(phaze):
    """Against every placement there is, on each of the architectures."""
    archs, workload = in_groups(phaze, 3), small_workload()
    evaluator = Exploration.of(archs, [workload], CLUSTER, CHOICES, jobs=1).evaluator
    evaluator.coarse = True
    some = np.arange(0, len(archs), 3)
    reached_s = np.array([exhaustive_s(archs, index, workload)[1] for index in some.tolist()])
    for kind in (Bound.GROUP_WORK, Bound.GROUP):
        bounds_s = evaluator.bounds(some, kind).values[:, 0] * workload.global_batch
        assert (bounds_s <= reached_s * (1 + 1e-9)).all()
        assert (bounds_s > 0).all()


def test_a_front_found_by_groups_is_that_found_without(phaze):
    archs = in_groups(phaze, 12)
    with_groups = Exploration.of(archs, [small_workload()], CLUSTER, CHOICES, jobs=1)
    assert with_groups.evaluator.groups is not None
    outcome = with_groups.run()
    assert (outcome.bound_kind[outcome.fate == Fate.PRUNED] == Bound.GROUP).any()
    without = Exploration.of(archs, [small_workload()], CLUSTER, CHOICES, jobs=1)
    without.evaluator.__dict__["groups"] = None
    assert [p.values for p in outcome.front] == [p.values for p in without.run().front]


@pytest.mark.parametrize("name", ["phaze", "modern"])
def test_coarse_groups_are_of_any_area_and_have_the_most_of_everything(name):
    space = load_space(name).enumerate()
    groups = Groups.of_space(space, coarse=True)
    assert groups is not None
    assert len(groups.best) < len(space) / 3
    best = groups.best.take(groups.of)
    for column in RESOURCES:
        assert (getattr(best, column) >= getattr(space, column)).all()
    for column in ("tensor_count", "tensor_rows", "tensor_cols", "vector_count", "hbm_bytes", "hbm_separate_ports"):
        np.testing.assert_array_equal(getattr(best, column), getattr(space, column))
    finer = Groups.of_space(space)
    if finer is not None:
        # Each of the finer groups is in one coarse group.
        assert len(np.unique(np.stack((finer.of, groups.of)), axis=1).T) == len(finer.best)


@pytest.mark.parametrize("name", ["llama2-7b", "gpt3-175b"])
def test_no_operator_is_faster_than_on_the_best_of_its_group(phaze, name):
    """What makes bounds of groups hold: in both modes, on every architecture of PHAZE's space."""
    groups = Groups.of_space(phaze, coarse=True)
    assert groups is not None
    cluster = load_cluster("tpu-v4-pod").sized(1024)
    step = load_workload(name).step(LayerSharding(tensor=2, microbatch=2))
    operators = [operator for layer, _ in step.layers for operator in (*layer.forward, *layer.backward)]
    some = np.random.default_rng(3).choice(len(phaze), 3000, replace=False)
    own = Pricer(phaze.take(some), cluster).price(operators)
    best = Pricer(groups.best.take(groups.of[some]), cluster).price(operators)
    assert (best.one_s <= own.one_s * (1 + 1e-12)).all()
    assert (best.all_s <= own.all_s * (1 + 1e-12)).all()


def test_bounds_of_groups_by_work_are_the_loosest(phaze):
    evaluator = Evaluator(
        architectures=phaze,
        workloads=[load_workload("llama2-7b")],
        cluster=load_cluster("tpu-v4-pod").sized(1024),
        choices=Choices(
            accelerators=1024,
            axes=replace(SEARCH_AXES, tensor=(2,), microbatch=(1, 4), policies=(Recompute.NONE,)),
            hbm_bytes=(80 * 10**9,),
        ),
        objectives=Objectives.of(["throughput", "area"]),
        coarse=True,
    )
    assert evaluator.tiers == (Bound.GROUP_WORK, Bound.GROUP, Bound.SCHEDULE)
    some = np.random.default_rng(5).choice(len(phaze), 1500, replace=False)
    group_work, work, group, own = (
        evaluator.bounds(some, kind).values for kind in (Bound.GROUP_WORK, Bound.WORK, Bound.GROUP, Bound.SCHEDULE)
    )
    for looser, tighter, rounding in (
        (group_work, work, 1e-12),
        (work, own, 1e-12),
        (group_work, group, 1e-12),
        (group, own, PACKED),
    ):
        assert (looser[:, 0] <= tighter[:, 0] * (1 + rounding)).all()
        np.testing.assert_array_equal(looser[:, 1], tighter[:, 1])


def test_energy_has_no_groups(phaze):
    space = load_space("phaze")
    evaluator = Evaluator(
        architectures=phaze,
        workloads=[small_workload()],
        cluster=CLUSTER,
        choices=CHOICES,
        objectives=Objectives.of(["throughput", "energy"]),
        technology=space.technology,
        coarse=True,
    )
    assert evaluator.tiers == (Bound.WORK, Bound.SCHEDULE)
