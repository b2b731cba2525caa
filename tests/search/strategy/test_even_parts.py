"""Layers that a schedule deals out: all of them, in order, evenly, and priced as the pipeline's simulation has it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import load_accelerator, load_cluster
from archplace.search.pipeline import PipelineSchedule, ScheduleShape, closed_form_s
from archplace.search.pipeline.seconds import StageSeconds
from archplace.search.pipeline.simulation import simulate
from archplace.search.strategy.evaluate import evaluate
from archplace.search.strategy.fixed import even_deal, even_parts
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.strategy import Strategy, pipeline_refusal
from archplace.workloads import LayerSharding, load_workload

COUNTS = st.lists(st.integers(1, 9), min_size=3, max_size=5).map(tuple)


@given(COUNTS, st.integers(1, 12))
def test_all_layers_are_dealt_out_evenly_and_in_order(counts: tuple[int, ...], parts: int) -> None:
    inner = sum(counts[1:-1])
    if inner < parts:
        return
    held = even_parts(counts, parts)
    assert held.sum(axis=0).tolist() == list(counts)
    sizes = held[:, 1:-1].sum(axis=1)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.min() >= 1
    # In order: what stands before a part's layers in the chain lies in this part or in those ahead.
    kinds = [kind for part in held for kind in np.repeat(np.arange(len(counts)), part.astype(int)).tolist()]
    assert kinds == sorted(kinds)


def test_the_middle_has_more_and_the_ends_hold_what_stands_alone() -> None:
    held = even_parts((1, 10, 1), 4)
    assert held[:, 1].tolist() == [2, 3, 3, 2]
    assert held[:, 0].tolist() == [1, 0, 0, 0]
    assert held[:, 2].tolist() == [0, 0, 0, 1]


def test_dualpipe_takes_uneven_parts_and_interleaved_does_not() -> None:
    counts = (1, 3, 58, 1, 1)
    dual = ScheduleShape(schedule=PipelineSchedule.DUALPIPE, stages=16, virtual=1, microbatches=120)
    assert pipeline_refusal(dual, counts) is None
    interleaved = ScheduleShape(schedule=PipelineSchedule.INTERLEAVED, stages=4, virtual=4, microbatches=120)
    assert "62 repeated layers do not divide over 4 stages x 4 virtual stages" in str(
        pipeline_refusal(interleaved, counts)
    )
    deal = even_deal(counts, PipelineSchedule.DUALPIPE, 16, 1)
    assert deal.held.sum(axis=0).tolist() == [2 * count for count in counts]
    assert (deal.held == deal.held[::-1]).all()


@given(
    half=st.integers(1, 4),
    layers=st.integers(0, 20),
    rounds=st.integers(1, 4),
    weights=st.floats(0.2, 1.0),
    head=st.floats(0.0, 2.0),
)
def test_the_closed_form_bounds_uneven_parts(half: int, layers: int, rounds: int, weights: float, head: float) -> None:
    stages = 2 * half
    held = even_parts((1, stages + layers, 1), stages) @ np.array([0.1, 1.0, head])
    shape = ScheduleShape(
        schedule=PipelineSchedule.DUALPIPE, stages=stages, virtual=1, microbatches=2 * stages * rounds
    )
    seconds = StageSeconds.of(held, held, weights * held, 0.0, None)
    found_s = float(closed_form_s(shape, seconds, overlap_transfers=True))
    assert found_s >= simulate(shape, seconds, overlap_transfers=True).makespan_s * (1 - 1e-9)


def test_deepseek_v3_runs_as_its_authors_ran_it() -> None:
    """2,048 devices, 16 stages of 61 layers and a prediction module, 64-way experts, DualPipe (arXiv:2412.19437, §3.2).

    They report 2.664 M hours of H800 for 14.8 T tokens, 1,543 tokens/s each; H800 have slower links than these H100.
    """
    problem = PlanProblem(
        workload=load_workload("deepseek-v3"),
        accelerator=load_accelerator("h100-sxm"),
        cluster=load_cluster("h100-sxm-dgx").sized(2048),
    )
    strategy = Strategy(
        sharding=LayerSharding(microbatch=1, expert=64), stages=16, data=128, schedule=PipelineSchedule.DUALPIPE
    )
    found = evaluate(problem, strategy)
    assert found.tokens_per_s / 2048 == pytest.approx(1543, rel=0.15)
    assert found.simulated_step_s == pytest.approx(found.step_s, rel=0.03)
