"""Fronts of every subset of objectives against exhaustive evaluation of every architecture and placement option."""

from dataclasses import replace
from itertools import chain, combinations, product

import numpy as np
import pytest
from exhaustive_helpers import CHOICES, CLUSTER, NETWORK, optimizer_operator, options_s, small_workload

from archplace.arch_configs import load_space
from archplace.arch_configs.calibration import Blocks, Calibration
from archplace.arch_configs.technology import load_technology
from archplace.costmodel import (
    Pricer,
    accelerator_cost_usd,
    operator_energy_j,
    peak_power_w,
    static_power_w,
    within_limit,
)
from archplace.search.evaluator import References
from archplace.search.explore import Exploration, references
from archplace.search.foremost import FASTEST_AT_ONCE
from archplace.search.outcome import Bound, Fate
from archplace.search.schedule import ScheduleCache
from archplace.search.steptimes import OPTIMIZER_PARAMETERS
from archplace.search.training_run import TrainingRun
from archplace.workloads import Axis

OBJECTIVES = ("throughput", "energy", "cost", "power", "area")
SUBSETS = list(chain.from_iterable(combinations(OBJECTIVES, n) for n in range(1, len(OBJECTIVES) + 1)))
TECHNOLOGY = load_technology("7nm")
CACHE = ScheduleCache()


@pytest.fixture(scope="module")
def architectures():
    space = load_space("phaze").enumerate()
    return space.take(np.arange(101, len(space), len(space) // 10))


def joules(architectures, index, workload, placed):
    """Energy of one step by hand: every operator of every microbatch, and what the placement adds."""
    way = placed.way
    width, microbatch = way.sharding.tensor, way.sharding.microbatch
    step = workload.step(way.sharding)
    archs = architectures.take(np.array([index]))
    pricer = Pricer(archs, CLUSTER, network=NETWORK).in_groups({Axis.TENSOR: way.order.group(Axis.TENSOR)})
    total = 0.0
    for layer, count in step.layers:
        forward, backward = (
            operator_energy_j(pricer, operators, TECHNOLOGY).sum() for operators in (layer.forward, layer.backward)
        )
        again = way.recomputed if layer is step.layers[1][0] else 0
        total += ((count + again) * forward + count * backward) * width * (workload.global_batch // microbatch)
    parameters = sum(count * layer.parameters for layer, count in step.layers) * width
    each = operator_energy_j(pricer, [optimizer_operator(workload)], TECHNOLOGY)[0, 0] / OPTIMIZER_PARAMETERS
    total += each * parameters * way.replicas
    link = TECHNOLOGY.energy.network_j_per_byte
    total += link * 2 * (way.replicas - 1) * parameters * step.parameter_bytes.gradient
    microbatches = workload.global_batch // microbatch
    total += link * 2 * (way.stages - 1) * microbatches * step.layers[1][0].input_bytes * width
    watts = static_power_w(archs, TECHNOLOGY, host=True)[0]
    return total + watts * CHOICES.accelerators * placed.step_s


def evaluate(architectures, workload):
    """Figures per sample of every (architecture, option) that fits: seconds, joules, dollars."""
    found = {}
    for index in range(len(architectures)):
        for option, placed in options_s(architectures, index, workload).items():
            batch = workload.global_batch
            energy = joules(architectures, index, workload, placed)
            price = accelerator_cost_usd(architectures, option[3], TECHNOLOGY)[index]
            usd = price * CHOICES.accelerators * placed.step_s / TECHNOLOGY.cost.service_life_s
            usd += TECHNOLOGY.cost.energy_usd_per_j * energy
            found[index, option] = (placed.step_s / batch, energy / batch, usd / batch)
    return found


@pytest.fixture(scope="module")
def exact(architectures):
    return evaluate(architectures, small_workload())


def values(figures, architectures, index, names):
    """The values of a design point in the order in which the search has them."""
    own = {
        "throughput": figures[0],
        "energy": figures[1],
        "cost": figures[2],
        "power": peak_power_w(architectures, TECHNOLOGY, "bf16")[index],
        "area": architectures.area_mm2[index],
    }
    return [own[name] for name in OBJECTIVES if name in names]


def explore(architectures, workloads, names, choices=CHOICES, **more):
    return Exploration.of(
        architectures,
        workloads,
        CLUSTER,
        choices,
        objectives=names,
        technology=TECHNOLOGY,
        cache=CACHE,
        jobs=1,
        **more,
    )


def is_front(found, candidates):
    """Whether ``found`` is the front of ``candidates``, ties and rounding aside."""
    found, candidates = np.array(found), np.array(candidates)
    for point in found:
        # Nothing is better by more than rounding …
        assert (
            not ((candidates <= point * (1 + 1e-9)) & (candidates < point * (1 - 1e-9)).any(axis=1)[:, None])
            .all(axis=1)
            .any()
        )
        # … and the point itself is one of them.
        assert (np.abs(candidates / point - 1) < 1e-9).all(axis=1).any()
    for candidate in candidates:
        assert (found <= candidate * (1 + 1e-9)).all(axis=1).any()


@pytest.mark.parametrize("names", SUBSETS, ids="-".join)
def test_the_front_of_every_subset_is_that_of_exhaustive_evaluation(architectures, exact, names):
    outcome = explore(architectures, [small_workload()], names).run()
    assert not (outcome.fate == Fate.OPEN).any()
    candidates = [values(figures, architectures, index, names) for (index, _), figures in exact.items()]
    is_front([point.values for point in outcome.front], candidates)


@pytest.mark.parametrize("kind", [Bound.WORK, Bound.SCHEDULE])
def test_no_bound_of_any_objective_exceeds_what_an_option_reaches(architectures, exact, kind):
    bounds = explore(architectures, [small_workload()], OBJECTIVES).evaluator.bounds(slice(None), kind).values
    for (index, _), figures in exact.items():
        own = np.array(values(figures, architectures, index, OBJECTIVES))
        assert (bounds[index] <= own * (1 + 1e-9)).all()


@pytest.mark.parametrize("names", [("throughput", "area"), ("energy", "cost"), ("throughput", "energy", "power")])
def test_fronts_of_calibrated_kernels_are_those_of_exhaustive_evaluation(architectures, names):
    blocks = Blocks(units=2, tiles=((128, 128), (128, 64), (64, 64)))
    calibration = Calibration(tensor_rate=0.8, lane_rate=0.4, hbm_bandwidth=0.9, launch_s=2e-6)
    kernels = replace(architectures, blocks=blocks, calibration=calibration)
    exhaustive = evaluate(kernels, small_workload())
    exploration = explore(kernels, [small_workload()], names)
    bounds = exploration.evaluator.bounds(slice(None), Bound.WORK).values
    outcome = exploration.run()
    candidates = [values(figures, kernels, index, names) for (index, _), figures in exhaustive.items()]
    is_front([point.values for point in outcome.front], candidates)
    for (index, _), own in zip(exhaustive, candidates, strict=True):
        assert (bounds[index] <= np.array(own) * (1 + 1e-9)).all()


@pytest.mark.parametrize("names", [("throughput", "power"), ("energy", "cost"), ("throughput", "energy", "area")])
def test_fronts_within_a_power_limit_are_those_of_exhaustive_evaluation(architectures, names):
    peaks = peak_power_w(architectures, TECHNOLOGY, "bf16")
    limit_w = float(np.median(peaks)) / 2
    slowed = within_limit(architectures, limit_w, TECHNOLOGY, CLUSTER, ["bf16"])
    exhaustive = evaluate(slowed, small_workload())
    outcome = explore(slowed, [small_workload()], names, replace(CHOICES, power_limit_w=limit_w)).run()
    watts = slowed.throttled.power_w
    within = watts <= limit_w * (1 + 1e-9)
    assert (slowed.clock_hz < architectures.clock_hz).any()
    candidates = []
    for (index, _), figures in exhaustive.items():
        own = {"throughput": figures[0], "energy": figures[1], "cost": figures[2], "power": watts[index]}
        own["area"] = slowed.area_mm2[index]
        if within[index]:
            candidates.append([own[name] for name in OBJECTIVES if name in names])
    is_front([point.values for point in outcome.front], candidates)
    for index in np.flatnonzero(~within).tolist():
        assert "power" in outcome.reasons.get(index)


@pytest.mark.parametrize(
    ("budget", "column"),
    [
        ("min_samples_per_s", 0),
        ("max_joules_per_sample", 1),
        ("max_usd_per_sample", 2),
        ("run_time", 0),
        ("usd_per_run", 2),
        ("max_power_w", 3),
        ("max_area_mm2", 4),
    ],
)
@pytest.mark.parametrize("names", [("throughput", "area"), ("energy", "cost"), ("throughput", "energy", "area")])
def test_a_budget_keeps_the_front_of_what_meets_it(architectures, exact, names, budget, column):
    every = {key: values(figures, architectures, key[0], OBJECTIVES) for key, figures in exact.items()}
    limit = float(np.median([own[column] for own in every.values()])) * (1 + 1e-6)
    samples = 1e9
    whole = {"run_time": {"max_s": samples * limit}, "usd_per_run": {"max_usd": samples * limit}}
    if budget in whole:
        training = TrainingRun(samples=((small_workload().name, samples),), **whole[budget])
        choices = replace(CHOICES, training=training)
    else:
        choices = replace(CHOICES, **{budget: 1 / limit if budget == "min_samples_per_s" else limit})
    outcome = explore(architectures, [small_workload()], names, choices).run()
    kept = {key: own for key, own in every.items() if own[column] <= limit}
    where = [OBJECTIVES.index(name) for name in OBJECTIVES if name in names]
    is_front([point.values for point in outcome.front], [[own[i] for i in where] for own in kept.values()])
    feasible = {index for index, _ in kept}
    for index in range(len(architectures)):
        assert (outcome.fate[index] == Fate.INFEASIBLE) == (index not in feasible)
        if index not in feasible:
            assert "budget" in outcome.reasons.get(index)


@pytest.mark.parametrize(
    "names",
    [
        ("throughput", "area"),
        ("worst_case", "area"),
        ("throughput", "worst_case"),
        ("throughput", "energy"),
        ("worst_case", "cost", "area"),
        ("throughput", "worst_case", "energy", "cost"),
    ],
    ids="-".join,
)
def test_a_portfolio_shares_one_chip(architectures, names):
    few = architectures.take(np.arange(0, len(architectures), 2))
    workloads = [small_workload(), small_workload(d_ff=1024, n_layers=2)]
    exact = [evaluate(few, workload) for workload in workloads]
    references = tuple(min(figures[0] for figures in each.values()) for each in exact)
    candidates = []
    for index in range(len(few)):
        own = [{key[1]: figures for key, figures in each.items() if key[0] == index} for each in exact]
        for one, other in product(*own):
            # The capacity is the chip's; without a price the larger one serves both.
            if one[3] != other[3] and "cost" in names:
                continue
            pair = np.array([own[0][one], own[1][other]])
            mean = np.exp(np.log(pair).mean(axis=0))
            metrics = {
                "throughput": mean[0],
                "worst_case": max(pair[0, 0] / references[0], pair[1, 0] / references[1]),
                "energy": mean[1],
                "cost": mean[2],
                "area": few.area_mm2[index],
            }
            candidates.append(
                [metrics[name] for name in ("throughput", "worst_case", *OBJECTIVES[1:]) if name in names]
            )
    outcome = explore(few, workloads, names, references_s=references).run()
    is_front([point.values for point in outcome.front], candidates)


@pytest.mark.parametrize("names", [("throughput", "area"), ("worst_case",)], ids="-".join)
def test_a_price_limit_that_binds_nothing_makes_a_portfolio_share_a_capacity_and_no_more(architectures, names):
    """Workloads whose fastest placements want different capacities still find one that both can have."""
    few = architectures.take(np.arange(0, len(architectures), 2))
    workloads = [small_workload(), small_workload(d_ff=1024, n_layers=2)]
    references = (1e-3, 1e-3)
    free = explore(few, workloads, names, references_s=references).run()
    bound = explore(few, workloads, names, replace(CHOICES, max_usd_per_sample=1e9), references_s=references).run()
    assert not (bound.fate == Fate.INFEASIBLE).any()
    values = [[point.values for point in outcome.front] for outcome in (free, bound)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)
    for point in bound.front:
        assert len({result.option.hbm_bytes for result in point.results}) == 1


def is_covered(all_values, front, gap):
    """Check that a point of ``front`` is within ``gap`` of each of ``all_values``, in every objective."""
    found, allowed = np.array([point.values for point in front]), 1 + np.array(gap) + 1e-9
    for own in all_values:
        assert (found <= np.array(own) * allowed).all(axis=1).any()


@pytest.mark.parametrize("tolerances", [(0.2, 0.05), (0.5, 0.01), (0.3,)], ids=str)
@pytest.mark.parametrize("names", [("throughput", "energy", "area"), ("throughput", "area"), ("throughput",)])
def test_a_quick_run_keeps_the_gap_that_it_states(architectures, exact, names, tolerances):
    evaluator = explore(architectures, [small_workload()], names).evaluator
    evaluator.coarse = True
    quick = Exploration(evaluator, cache=ScheduleCache(), jobs=1, tolerances=tolerances).run()
    assert quick.gap is not None
    assert max(quick.gap) <= max(tolerances) + 1e-12
    for name, gap in zip(names, quick.gap, strict=True):
        assert gap == 0 or name != "area"
    every = [values(figures, architectures, index, names) for (index, _), figures in exact.items()]
    is_covered(every, quick.front, quick.gap)


def test_a_space_of_which_any_point_will_do_takes_a_few_evaluations(architectures):
    evaluator = explore(architectures, [small_workload()], ("throughput",)).evaluator
    quick = Exploration(evaluator, cache=ScheduleCache(), jobs=1, tolerances=(np.inf,)).run()
    assert len(quick.front) >= 1
    assert len(quick.records) <= FASTEST_AT_ONCE
    assert quick.gap is not None
    assert np.isfinite(quick.gap).all()


def test_rough_references_widen_the_gap_of_the_worst_case_and_of_nothing_else(architectures):
    few = architectures.take(np.arange(0, len(architectures), 2))
    workloads = [small_workload(), small_workload(d_ff=1024, n_layers=2)]
    names = ("throughput", "worst_case", "area")
    evaluator = explore(few, workloads, names).evaluator
    exact = references(evaluator, lambda alone: Exploration(alone, jobs=1).run())
    rough = references(evaluator, lambda alone: Exploration(alone, jobs=1, tolerances=(np.inf,)).run())
    assert exact.gap == 0
    for true, found in zip(exact.seconds, rough.seconds, strict=True):
        assert true <= found <= true * (1 + rough.gap) * (1 + 1e-12)
    # Worse than what is found, but within what is allowed.
    rough = References(seconds=(exact.seconds[0] * 1.3, exact.seconds[1]), gap=0.3)
    quick = Exploration(evaluator.relative_to(rough), jobs=1, tolerances=(0.1,)).run()
    assert quick.gap is not None
    assert quick.gap[1] == pytest.approx((1 + quick.gap[0]) * 1.3 - 1, rel=1e-12)
    assert quick.gap[2] == 0
    true_front = Exploration(evaluator.relative_to(exact), jobs=1).run().front
    batches = np.array([workload.global_batch for workload in workloads])
    by_true = [
        (
            point.values[0],
            (np.array([result.placement.step_s for result in point.results]) / batches / exact.seconds).max(),
            point.values[2],
        )
        for point in quick.front
    ]
    allowed = 1 + np.array(quick.gap) + 1e-9
    for point in true_front:
        assert (np.array(by_true) <= np.array(point.values) * allowed).all(axis=1).any()
