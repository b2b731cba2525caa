"""One strategy as a search space of its own, and the seconds of its step without what explains them."""

from collections.abc import Iterable, Sequence

import numpy as np

from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.blocks import BlockMaker
from archplace.search.strategy.families import Families
from archplace.search.strategy.fixed import Deal, even_deal, price_deal
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import DEALT_EVENLY, Strategy, refusal
from archplace.workloads import Recompute


def axes_of(strategy: Strategy, policies: Iterable[Recompute] = ()) -> Axes:
    """Return the axes along which only ``strategy`` lies, with ``policies`` beside its own."""
    sharding = strategy.sharding
    return Axes(
        tensor=(sharding.tensor,),
        sequence=(sharding.sequence,),
        context=(sharding.context,),
        context_kind=(sharding.context_kind,),
        expert=(sharding.expert,),
        expert_tensor=(sharding.expert_tensor,),
        overlap_pieces=(sharding.overlap_pieces,),
        microbatch=(sharding.microbatch,),
        stages=(strategy.stages,),
        data=(strategy.data,),
        schedules=(strategy.schedule,),
        virtual=(strategy.virtual,),
        policies=tuple(dict.fromkeys((*strategy.policies, *policies))),
        states=(strategy.states,),
        offload=(strategy.offload,),
        overlap=(strategy.overlap,),
        orders=(strategy.order,),
    )


def step_s(
    problem: PlanProblem, strategy: Strategy, held: Sequence[Sequence[int]] | None, cache: ScheduleCache
) -> float:
    """Return the seconds of a step of a strategy with one policy, were memory no limit.

    ``held`` has for each stage the layers of each kind; it is left out for schedules that deal them out, and only for
    those. The same as :func:`archplace.search.strategy.evaluate.evaluate` says, sooner. Raises ``ValueError`` with the
    reason where the strategy is refused.
    """
    equal = strategy.schedule in DEALT_EVENLY
    assert (held is None) == equal, strategy
    assert len(strategy.policies) == 1, strategy
    reason = refusal(strategy, problem.workload, problem.accelerators)
    if reason is not None:
        raise ValueError(reason)
    axes = axes_of(strategy)
    families = Families(problem.workload, problem.cluster, axes, problem.network())
    maker = BlockMaker(problem, axes, cache)
    blocks = [maker.block(family) for family in families]
    if not blocks or maker.refused or not len(blocks[0]):
        raise ValueError(next(iter((*families.refused, *maker.refused, *blocks[0].table.combinations.refused))))
    block = blocks[0]
    deal = Deal.of(held) if held else even_deal(block.counts, strategy.schedule, strategy.stages, strategy.virtual)
    rows = block.chain_rows(np.array([0])).with_capacity(np.inf)
    return float(price_deal(rows, deal).time_s[0])
