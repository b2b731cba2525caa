"""The exploration against exhaustive evaluation: every architecture, every option, every cut, by naive loops."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive_helpers import AXES, CHOICES, CLUSTER, NETWORK, exhaustive_s, options_s, small_workload, ways

from archplace.arch_configs import load_space
from archplace.costmodel import Allowance, Pricer
from archplace.search.explore import Exploration
from archplace.search.outcome import Bound, Fate
from archplace.search.strategy.families import groups_of
from archplace.workloads import Axis


@pytest.fixture(scope="module")
def architectures():
    space = load_space("phaze").enumerate()
    return space.take(np.arange(17, len(space), len(space) // 16))


@pytest.fixture(scope="module")
def exact(architectures):
    """Step seconds of the best placement by found schedules and by what no schedule undercuts, ``(n_archs, 2)``."""
    workload = small_workload()
    return np.array([exhaustive_s(architectures, i, workload) for i in range(len(architectures))])


def test_memory_matters_where_the_space_is_searched(architectures):
    """Some placements fit no HBM, some only the larger; the best ones of some options recompute, others do not."""
    small, large = CHOICES.hbm_bytes
    needs = np.array([way.needs_bytes for way in ways(small_workload())])
    for these in (needs <= small, (small < needs) & (needs <= large), needs > large):
        assert these.any()
    best = [placed.way for placed in options_s(architectures, 0, small_workload()).values()]
    assert {way.recomputed > 0 for way in best} == {False, True}
    assert any(len(set(way.recompute)) > 1 for way in best)
    assert {way.stages for way in best} == {1, 2, 4}


def test_front_is_the_front_of_exhaustive_evaluation(architectures, exact):
    workload = small_workload()
    result = Exploration.of(architectures, [workload], CLUSTER, CHOICES, jobs=1).run()
    assert not (result.fate == Fate.OPEN).any()
    step, lower = exact.T
    for index, record in result.records.items():
        (point,) = record.points
        found = point.results[0]
        if found.proven:
            assert found.placement.step_s == pytest.approx(step[index], rel=1e-9)
        assert found.lower_step_s <= step[index] * (1 + 1e-9)
        assert found.placement.step_s >= lower[index] * (1 - 1e-9)
    assert (result.bound[:, 0] * workload.global_batch <= step * (1 + 1e-9)).all()
    assert all(point.proven for point in result.points)
    area = architectures.area_mm2
    for i in range(len(architectures)):
        dominated = ((step <= step[i]) & (area <= area[i]) & ((step < step[i]) | (area < area[i]))).any()
        assert (result.fate[i] == Fate.FRONT) == (not dominated)


def test_who_prunes_whom_is_true(architectures):
    result = Exploration.of(architectures, [small_workload()], CLUSTER, CHOICES, jobs=1).run()
    beaten = np.flatnonzero((result.fate == Fate.PRUNED) | (result.fate == Fate.DOMINATED))
    assert len(beaten)
    for i in beaten.tolist():
        winner = result.witness_of(i)
        own = result.point(i).values if result.point(i) is not None else tuple(result.bound[i])
        assert winner in result.front
        assert all(one <= other for one, other in zip(winner.values, own, strict=True))
        assert winner.values != own


def test_each_tier_of_bounds_is_tighter_than_the_one_before_and_below_the_truth(architectures, exact):
    workload = small_workload()
    exploration = Exploration.of(architectures, [workload], CLUSTER, CHOICES, jobs=1)
    loose, tight = (
        exploration.evaluator.bounds(slice(None), kind).values[:, 0] for kind in (Bound.WORK, Bound.SCHEDULE)
    )
    assert (loose <= tight * (1 + 1e-9)).all()
    assert (tight * workload.global_batch <= exact[:, 1] * (1 + 1e-9)).all()
    assert (loose < tight).any()


def test_every_option_is_bounded_below_what_its_placements_reach(architectures):
    """By option: where one has a bound there is a placement, and none is faster than the bound."""
    few, workload = architectures.take(np.arange(0, len(architectures), 3)), small_workload()
    evaluator = Exploration.of(few, [workload], CLUSTER, CHOICES, jobs=1).evaluator
    (search,) = evaluator.searches
    every, pricer = np.arange(len(few)), Pricer(few, CLUSTER, network=NETWORK)
    loose, tight = (
        bounds(every, few, pricer)[:, :, 0] * workload.global_batch for bounds in (search.first_bounds, search.bounds)
    )
    for index in range(len(few)):
        reached = options_s(few, index, workload)
        assert len(search.spaces) == len(reached)
        for number, space in enumerate(search.spaces):
            sharding, place = space.option.sharding, groups_of(space.option.groups)[Axis.TENSOR]
            placed = reached[sharding.tensor, sharding.microbatch, str(NETWORK.shares(place)), space.option.hbm_bytes]
            assert loose[number, index] <= tight[number, index] * (1 + 1e-9)
            assert tight[number, index] <= placed.lower_s * (1 + 1e-9)


def test_two_workloads_are_averaged_geometrically(architectures):
    few = architectures.take(np.arange(0, len(architectures), 4))
    workloads = [small_workload(), small_workload(d_ff=1024)]
    result = Exploration.of(few, workloads, CLUSTER, CHOICES, jobs=1).run()
    for point in result.points:
        speeds = [
            workload.global_batch / found.placement.step_s
            for workload, found in zip(workloads, point.results, strict=True)
        ]
        assert 1 / point.seconds_per_sample == pytest.approx(np.sqrt(speeds[0] * speeds[1]))


def test_budgets_reject_with_a_reason(architectures):
    choices = replace(CHOICES, max_area_mm2=100.0, max_step_s=0.5)
    result = Exploration.of(architectures, [small_workload()], CLUSTER, choices, jobs=1).run()
    for i in np.flatnonzero(architectures.area_mm2 > 100).tolist():
        assert result.fate[i] == Fate.INFEASIBLE
    for i in np.flatnonzero(result.fate == Fate.INFEASIBLE).tolist():
        assert "budget" in result.reasons.get(i)
    assert all(point.results[0].placement.step_s <= 0.5 for point in result.front)


def test_a_step_time_budget_keeps_the_part_of_the_front_that_meets_it(architectures):
    workload = small_workload()
    front = Exploration.of(architectures, [workload], CLUSTER, CHOICES, jobs=1).run().front
    for limit in (front[len(front) // 2].results[0].placement.step_s, front[-2].results[0].placement.step_s):
        choices = replace(CHOICES, max_step_s=limit)
        within = Exploration.of(architectures, [workload], CLUSTER, choices, jobs=1).run()
        expected = [p.architecture for p in front if p.results[0].placement.step_s <= limit]
        assert [p.architecture for p in within.front] == expected


def test_a_width_beyond_the_accelerators_is_a_reason(architectures):
    few = architectures.take(np.arange(3))
    choices = replace(CHOICES, accelerators=1, axes=replace(AXES, tensor=(1, 2, 4)), hbm_bytes=(400_000_000,))
    search = Exploration.of(few, [small_workload()], CLUSTER.sized(1), choices, jobs=1)
    assert search.run().front
    for width in (2, 4):
        reasons = [text for key, text in search.outcome.option_reasons.items() if f"tp{width} " in key]
        assert len(reasons) == 2
        assert all("do not divide the 1 accelerators" in text for text in reasons)


def test_nothing_fits_is_a_result_with_reasons(architectures):
    choices = replace(CHOICES, hbm_bytes=(1_000_000,))
    search = Exploration.of(architectures, [small_workload()], CLUSTER, choices, jobs=1)
    result = search.run()
    assert (result.fate == Fate.INFEASIBLE).all()
    assert all("memory: needs at least" in reason for reason in result.option_reasons.values())


def test_width_that_does_not_divide_the_heads_is_a_reason(architectures):
    choices = replace(CHOICES, axes=replace(AXES, tensor=(1, 3)))
    search = Exploration.of(architectures, [small_workload()], CLUSTER, choices, jobs=1)
    reasons = search.evaluator.searches[0].reasons
    assert any(key.startswith("tp3") and "3" in text and "heads" in text for key, text in reasons.items())


def test_what_the_devices_reserve_is_not_there_for_layers(architectures):
    """Reserving more is like having less HBM: the same front, point by point."""
    few = architectures.take(np.arange(0, len(architectures), 3))
    more = 3_000_000
    reserving = replace(
        CHOICES,
        hbm_bytes=tuple(capacity + more for capacity in CHOICES.hbm_bytes),
        allowance=Allowance(reserved_bytes=CHOICES.allowance.reserved_bytes + more),
    )
    fronts = [
        Exploration.of(few, [small_workload()], CLUSTER, choices, jobs=1).run().front
        for choices in (CHOICES, reserving)
    ]
    assert [point.values for point in fronts[0]] == [point.values for point in fronts[1]]
