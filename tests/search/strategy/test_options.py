"""Placement options of many architectures at once, against the evaluation of every strategy with every cut."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from strategy_helpers import AXES, small_problem

from archplace.costmodel import SharedStates, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.strategy.chain import ChainRows, FloatArray
from archplace.search.strategy.families import Families, choices_of
from archplace.search.strategy.fixed import Deal, even_deal, price_deal
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Pass
from archplace.search.strategy.options import Option, OptionSpace
from archplace.search.strategy.strategy import DEALT_EVENLY
from archplace.search.strategy.table import StrategyTable

SCHEDULES = tuple(PipelineSchedule)
STATES = tuple(StateSharding(states=states) for states in SharedStates)
CAPACITIES = (120_000_000, 250_000_000, 600_000_000, 8_000_000_000)


def tables(
    schedules: tuple[PipelineSchedule, ...], states: tuple[StateSharding, ...]
) -> list[tuple[Option, StrategyTable]]:
    """Return for every family of the small problem its options, one of each capacity, with their table."""
    problem = small_problem()
    axes = replace(AXES, schedules=schedules, states=states)
    network = problem.network()
    choices, _ = choices_of(axes, problem.cluster)
    found = []
    for family in Families(problem.workload, problem.cluster, axes, network):
        table = StrategyTable(
            problem.workload.step(family.sharding), family.entries, choices, network, allowance=problem.allowance
        )
        found += [(Option.of(family, capacity), table) for capacity in CAPACITIES]
    return found


def random_seconds(n_archs: int, n_kinds: int, seed: int) -> LayerSeconds:
    """Return layers of architectures from fast to slow: parts of passes take about what the passes do, pairs less."""
    rng = np.random.default_rng(seed)
    speed = 10.0 ** rng.uniform(-4, -1, (n_archs, 1))
    forward, backward = (speed * rng.uniform(low, 2 * low, (n_archs, n_kinds)) for low in (1.0, 1.8))
    share = rng.uniform(0.3, 0.7, backward.shape)
    apart = backward * rng.uniform(0.95, 1.3, backward.shape)
    longer, both = np.maximum(forward, backward), forward + backward
    passes = {
        Pass.FORWARD: forward,
        Pass.BACKWARD: backward,
        Pass.INPUT_GRADIENT: apart * share,
        Pass.WEIGHT_GRADIENT: apart * (1 - share),
        Pass.SELECTIVE_REPLAY: forward * rng.uniform(0.1, 0.9, forward.shape),
        Pass.PAIR: longer + (both - longer) * rng.uniform(0.0, 1.1, forward.shape),
    }
    for which in (Pass.SELECTIVE_REPLAY, Pass.WEIGHT_GRADIENT):
        passes[which] = np.where(rng.random(forward.shape) < 0.2, 0.0, passes[which])
    return LayerSeconds(passes=passes, optimizer_s_per_parameter=rng.uniform(0, 1e-9, n_archs))


def deals(table: StrategyTable, row: int) -> list[Deal]:
    """Return every way to deal out the layers that the row's schedule allows."""
    stages = int(table.stages[row])
    schedule, virtual = table.choices.schedules[table.schedule[row]]
    if schedule in DEALT_EVENLY:
        return [even_deal(table.counts, schedule, stages, virtual)]
    kinds = [kind for kind, count in enumerate(table.counts) for _ in range(count)]
    found = []
    for inner in itertools.combinations(range(1, len(kinds)), stages - 1):
        runs = [kinds[begin:end] for begin, end in itertools.pairwise((0, *inner, len(kinds)))]
        found.append(Deal.of([[run.count(kind) for kind in range(len(table.counts))] for run in runs]))
    return found


def best_s(chain: ChainRows, deal: Deal) -> FloatArray:
    """Return the least time over all that the stages may recompute, from the definition of chains, ``(R,)``."""
    n_policies, stages = chain.load_s.shape[1], chain.n_stages
    neighbours = np.array([(j > 0) + (j < stages - 1) for j in range(stages)])
    load_s = np.einsum("rps,js->rpj", chain.load_s, deal.worked) + chain.boundary_s[:, None, None] * neighbours
    fill_s = np.einsum("rps,js->rpj", chain.fill_s, deal.worked)
    bytes_held = np.einsum("rs,js->rj", chain.state_bytes, deal.held)[:, None]
    bytes_held = bytes_held + chain.in_flight[:, None] * np.einsum("rps,js->rpj", chain.flight_bytes, deal.own)
    bytes_held = bytes_held + deal.mirrored_in_flight * np.einsum("rps,js->rpj", chain.flight_bytes, deal.mirrored)
    bytes_held = bytes_held + np.where(deal.held > 0, chain.working_bytes[:, :, None], 0.0).max(axis=3)
    load_s = np.where(bytes_held <= chain.capacity_bytes[:, None, None] * (1 + 1e-12), load_s, np.inf)
    chosen = np.array(list(itertools.product(range(n_policies), repeat=stages)))
    loads_s, fills_s = (each[:, chosen, np.arange(stages)] for each in (load_s, fill_s))
    with np.errstate(invalid="ignore"):
        time_s = chain.pace[:, None] * loads_s.max(axis=2) + fills_s.sum(axis=2)
    time_s = np.where(np.isfinite(loads_s).all(axis=2), time_s, np.inf).min(axis=1)
    found: FloatArray = time_s + chain.tails_s(deal.held[0]) + chain.constant_s
    return found


def exhaustive_s(table: StrategyTable, seconds: LayerSeconds, hbm_bytes: int) -> FloatArray:
    """Return the least step seconds of every architecture over all rows, cuts and recomputations, ``(A,)``."""
    least = np.full(len(seconds), np.inf)
    for stages, schedule in sorted(set(zip(table.stages.tolist(), table.schedule.tolist(), strict=True))):
        rows = np.flatnonzero((table.stages == stages) & (table.schedule == schedule))
        for deal in deals(table, rows[0]):
            # One row of the chain for each pair of architecture and strategy.
            pairs = np.tile(rows, len(seconds))
            chain = table.chain_rows(pairs, seconds.take(np.repeat(np.arange(len(seconds)), len(rows))), hbm_bytes)
            np.minimum(least, best_s(chain, deal).reshape(len(seconds), len(rows)).min(axis=1), out=least)
    return least


# One schedule with every way to share states, and all schedules at once.
CASES = [((schedule,), STATES) for schedule in SCHEDULES] + [(SCHEDULES, STATES[:1])]


@pytest.mark.parametrize(("schedules", "states"), CASES, ids=[str(schedule) for schedule in SCHEDULES] + ["all"])
def test_the_best_placement_is_the_best_of_all_and_no_bound_is_above_it(schedules, states) -> None:
    fates = set()
    for number, (option, table) in enumerate(tables(schedules, states)):
        if len(table) == 0:
            continue
        seconds = random_seconds(12, len(table.counts), number)
        space = OptionSpace.of(option, table)
        best, bound, quick = space.best_of(seconds), space.bound_s(seconds), space.quick_bound_s(seconds)
        expected = exhaustive_s(table, seconds, option.hbm_bytes)
        np.testing.assert_allclose(best.step_s, expected, rtol=1e-11, err_msg=str(option))
        assert (space.reason is None) == np.isfinite(expected).all()
        assert (quick <= bound * (1 + 1e-9)).all(), str(option)
        assert (bound <= expected).all(), str(option)
        if space.reason is None:
            assert (quick > 0).all()
            placements = [best.at(index) for index in range(len(seconds))]
            fates |= {max(placement.cut.policies) for placement in placements}
        else:
            fates.add(space.reason.split(":")[0])
    assert fates >= {0, "memory"}
    if schedules != (PipelineSchedule.DUALPIPE,):
        assert len(fates) > 2, "recomputation must matter"


@pytest.mark.parametrize("seed", range(3))
def test_a_placement_takes_what_its_stages_add_up_to(seed: int) -> None:
    for option, table in tables(SCHEDULES, STATES[:2]):
        space = OptionSpace.of(option, table)
        seconds = random_seconds(4, len(table.counts), seed)
        best = space.best_of(seconds)
        for index in range(len(seconds)):
            found = best.at(index)
            if found is None:
                continue
            row = int(best.row[index])
            assert row in space.rows
            chain = table.chain_rows(np.array([row]), seconds.take(np.array([index])), option.hbm_bytes)
            forced = np.arange(len(table.choices.policies))[:, None] == np.array(found.cut.policies)
            # One of those that are allowed.
            (deal,) = [deal for deal in deals(table, row) if np.array_equal(deal.held, found.cut.held)]
            assert price_deal(chain, deal, forced).time_s[0] == pytest.approx(found.step_s, rel=1e-12)


def test_an_architecture_is_placed_as_if_there_were_no_others() -> None:
    for number, (option, table) in enumerate(tables(SCHEDULES, STATES[:2])):
        space = OptionSpace.of(option, table)
        seconds = random_seconds(9, len(table.counts), number)
        together = space.best_of(seconds)
        bounds = space.bound_s(seconds), space.quick_bound_s(seconds)
        for index in (number % 9, (number + 4) % 9):
            some = np.array([index]) if number % 2 else np.array([8 - index, index, index])
            alone = space.best_of(seconds.take(some))
            assert alone.step_s[-1] == together.step_s[index]
            assert alone.row[-1] == together.row[index]
            assert alone.at(len(some) - 1) == together.at(index)
            assert space.bound_s(seconds.take(some))[-1] == bounds[0][index]
            assert space.quick_bound_s(seconds.take(some))[-1] == bounds[1][index]


def test_only_what_is_faster_than_asked_for_is_placed() -> None:
    for option, table in tables(SCHEDULES, STATES[:1]):
        space = OptionSpace.of(option, table)
        seconds = random_seconds(6, len(table.counts), 11)
        best = space.best_of(seconds)
        if space.reason is not None:
            assert np.isinf(best.step_s).all()
            continue
        limit_s = best.step_s * np.array([0.5, 0.999, 1.0, 1.001, 2.0, np.inf])
        limited = space.best_of(seconds, limit_s)
        assert np.isinf(limited.step_s[:3]).all()
        assert (limited.row[:3] == -1).all()
        np.testing.assert_allclose(limited.step_s[3:], best.step_s[3:], rtol=1e-12)


def between(seconds: LayerSeconds, seed: int) -> LayerSeconds:
    """Return limits between which ``seconds`` lie; some passes over some layers are known exactly, others hardly."""
    rng = np.random.default_rng(seed)
    low, high = {}, {}
    for which, values in seconds.passes.items():
        open_ = rng.random(values.shape) < 0.4
        low[which] = np.where(open_, values * rng.uniform(0.2, 1.0, values.shape), values)
        high[which] = np.where(open_, values * rng.uniform(1.0, 3.0, values.shape), values)
    return LayerSeconds(passes=low, optimizer_s_per_parameter=seconds.optimizer_s_per_parameter, most=high)


@pytest.mark.parametrize(("schedules", "states"), CASES, ids=[str(schedule) for schedule in SCHEDULES] + ["all"])
def test_seconds_between_limits_are_never_bounded_above_their_steps(schedules, states) -> None:
    checked = 0
    for number, (option, table) in enumerate(tables(schedules, states)):
        space = OptionSpace.of(option, table)
        if space.reason is not None:
            continue
        seconds = random_seconds(12, len(table.counts), number)
        step_s = space.best_of(seconds).step_s * (1 + 1e-11)
        limits = between(seconds, number)
        for known in (limits, LayerSeconds.at_least(limits.passes, limits.optimizer_s_per_parameter)):
            assert (space.bound_s(known) <= step_s).all(), str(option)
            assert (space.best_of(known).step_s <= step_s).all(), str(option)
            assert (space.quick_bound_s(known) <= step_s).all(), str(option)
        checked += len(seconds)
    assert checked > 50


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_limits_that_meet_are_the_seconds_themselves(schedule) -> None:
    for number, (option, table) in enumerate(tables((schedule,), STATES)):
        space = OptionSpace.of(option, table)
        seconds = random_seconds(8, len(table.counts), number)
        same = replace(seconds, most=dict(seconds.passes))
        assert same.settled.all()
        assert (space.best_of(same).step_s == space.best_of(seconds).step_s).all()
        assert (space.bound_s(same) <= space.best_of(seconds).step_s).all()
