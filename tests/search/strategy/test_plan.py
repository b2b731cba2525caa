"""The search of strategies against the evaluation of every one of them."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from strategy_helpers import AXES, RECOMPUTE, small_problem

from archplace.search.pipeline import PipelineSchedule
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.blocks import BlockMaker
from archplace.search.strategy.evaluate import evaluate
from archplace.search.strategy.families import Families
from archplace.search.strategy.fixed import Deal, even_deal, price_deal
from archplace.search.strategy.plan import plan
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import DEALT_EVENLY, Overlap, Strategy, refusal
from archplace.workloads import LayerSharding, Recompute


def all_rows(problem: PlanProblem, cache: ScheduleCache) -> Iterator[tuple[StrategyBlock, int]]:
    maker = BlockMaker(problem, AXES, cache)
    for family in Families(problem.workload, problem.cluster, AXES, problem.network()):
        block = maker.block(family)
        yield from ((block, row) for row in range(len(block)))


def exhaustive_s(block: StrategyBlock, row: int) -> float:
    """The least time over every cut and every stage's recomputation, each priced by itself."""
    strategy, chain = block.strategy(row), block.chain_rows(np.array([row]))
    if strategy.schedule in DEALT_EVENLY:
        deals = [even_deal(block.counts, strategy.schedule, strategy.stages, strategy.virtual)]
    else:
        kinds = [0, 1, 1, 1, 1, 2]
        deals = [
            Deal.of([[part.count(kind) for kind in range(3)] for part in _parts(kinds, ends)])
            for ends in itertools.combinations(range(1, len(kinds)), strategy.stages - 1)
        ]
    times = []
    for deal in deals:
        for chosen in itertools.product(range(len(RECOMPUTE)), repeat=strategy.stages):
            forced = np.arange(len(RECOMPUTE))[:, None] == np.array(chosen)
            times.append(float(price_deal(chain, deal, forced).time_s[0]))
    return min(times)


def _parts(kinds: list[int], ends: tuple[int, ...]) -> list[list[int]]:
    return [kinds[begin:end] for begin, end in itertools.pairwise((0, *ends, len(kinds)))]


def test_the_best_strategies_are_the_best_of_all() -> None:
    problem, cache = small_problem(), ScheduleCache()
    # Pipelines of up to two stages: longer ones have too many combinations of recomputation to try them all here.
    times = {
        block.strategy(row): exhaustive_s(block, row)
        for block, row in all_rows(problem, cache)
        if block.table.stages[row] <= 2
    }
    assert sum(np.isinf(time) for time in times.values()) > 0, "memory must matter"
    found = plan(problem, AXES, best=10_000, cache=cache)
    by_strategy = {planned.strategy: planned.step_s for planned in found.best}
    for strategy, time_s in times.items():
        assert by_strategy.get(strategy, float("inf")) == pytest.approx(time_s, rel=1e-9), str(strategy)


def test_a_short_list_is_the_beginning_of_a_long_one() -> None:
    problem, cache = small_problem(), ScheduleCache()
    everything = plan(problem, AXES, best=10_000, cache=cache)
    assert everything.n_bounded == 0
    assert everything.n_evaluated + everything.n_memory == everything.n_strategies
    few = plan(problem, AXES, best=3, cache=cache)
    assert [each.step_s for each in few.best] == [each.step_s for each in everything.best[:3]]
    assert few.n_strategies == everything.n_strategies
    assert few.n_bounded + few.n_evaluated + few.n_memory == few.n_strategies
    assert few.bound_s <= everything.best[3].step_s


def test_every_strategy_found_evaluates_to_its_time() -> None:
    problem, cache = small_problem(), ScheduleCache()
    for planned in plan(problem, AXES, best=12, cache=cache).best:
        policies = [planned.block.choices.policies[number] for number in planned.cut.policies]
        equal = planned.strategy.schedule in DEALT_EVENLY
        held = None if equal else planned.cut.held
        found = evaluate(problem, planned.strategy, held=held, recompute=policies, cache=cache)
        assert found.feasible
        assert found.step_s == pytest.approx(planned.step_s, rel=1e-12)
        assert sum(found.parts_s.values()) == pytest.approx(found.step_s, rel=1e-12)
        assert min(found.parts_s.values()) >= -1e-9 * found.step_s
        assert found.hfu >= found.mfu * (1 - 1e-12)  # attention is not fused: nothing is skipped
        assert [stage.recompute for stage in found.stages] == policies


def test_every_strategy_found_uses_all_devices_and_is_not_refused() -> None:
    problem = small_problem()
    for planned in plan(problem, AXES, best=1000).best:
        assert planned.strategy.devices == problem.accelerators
        assert refusal(planned.strategy, problem.workload, problem.accelerators) is None


def test_more_memory_is_never_slower_and_less_recomputes_more() -> None:
    previous_s = float("inf")
    for hbm_bytes in (400_000_000, 600_000_000, 1_000_000_000, 8_000_000_000):
        best = plan(small_problem(hbm_bytes=hbm_bytes), AXES, best=1).best
        step_s = best[0].step_s if best else float("inf")
        assert step_s <= previous_s
        previous_s = step_s
    assert best[0].cut.policies == (0,) * len(best[0].cut.policies)
    assert best[0].block.choices.policies[0] is Recompute.NONE


def test_where_nothing_fits_the_closest_strategy_says_what_it_lacks() -> None:
    problem = small_problem(hbm_bytes=20_000_000)
    found = plan(problem, AXES)
    assert found.best == ()
    assert found.n_memory == found.n_strategies
    assert found.closest is not None
    enough = 20_000_000 + int(found.closest.short_bytes) + 1
    assert plan(small_problem(hbm_bytes=enough), AXES, best=1).best


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(pipeline=False)])
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_the_closed_form_is_close_to_the_schedule_that_it_stands_for(
    schedule: PipelineSchedule, overlap: Overlap
) -> None:
    problem = small_problem(hbm_bytes=80_000_000_000)
    for stages, data in ((2, 4), (2, 1), (4, 1)):
        virtual = 2 if schedule is PipelineSchedule.INTERLEAVED and stages == 2 else 1
        strategy = Strategy(
            sharding=LayerSharding(microbatch=1, tensor=8 // (stages * data)),
            stages=stages,
            data=data,
            schedule=schedule,
            virtual=virtual,
            overlap=overlap,
        )
        if refusal(strategy, problem.workload, problem.accelerators) is not None:
            continue
        found = evaluate(problem, strategy)
        # Head and embedding make stages uneven: the closed form may exceed the schedule, but by little.
        assert found.simulated_step_s <= found.step_s * 1.02, str(strategy)
        assert found.step_s <= found.simulated_step_s * 1.25, str(strategy)
