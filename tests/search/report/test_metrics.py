"""Figures of design points: energy by component, power, price, relative throughput, budgets; explanations together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_helpers import ACCELERATORS, a_result, a_run, a_workload, searched

from archplace.arch_configs import load_cluster
from archplace.costmodel import accelerator_cost_usd, peak_power_w, static_power_w
from archplace.search.budgets import budgets_of, tightest
from archplace.search.explain import explain
from archplace.search.fates import option_counts
from archplace.search.metrics import ENERGY_PARTS
from archplace.search.objectives import Objective
from archplace.search.points import baseline_view, point_views, views
from archplace.search.report.summary import options_by_fate
from archplace.search.run import RunResult, evaluator_of
from archplace.workloads import LayerSharding, load_workload

ALL_BUT_WORST = ("throughput", "energy", "cost", "power", "area")


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return searched(tmp_path_factory.mktemp("five"), *ALL_BUT_WORST, max_power_w=1000.0)


@pytest.fixture(scope="module")
def portfolio(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    small = replace(load_workload("bert-large"), name="bert", global_batch=1024)
    return searched(
        tmp_path_factory.mktemp("two"),
        "throughput",
        "worst_case",
        "energy",
        workloads=(a_workload("llama"), small),
        baseline="a100-80gb",
    )


@pytest.mark.parametrize("which", ["five", "portfolio"])
def test_figures_are_those_that_the_search_compared(which: str, request: pytest.FixtureRequest) -> None:
    # The search prices bounds and adds what placements add; here components are added up. Both must agree.
    result: RunResult = request.getfixturevalue(which)
    found = views(result, list(result.outcome.points))
    base = baseline_view(result)
    assert base is not None
    for point in [*found, base]:
        metrics = point.metrics
        mine = {
            Objective.THROUGHPUT: metrics.samples_per_s,
            Objective.WORST_CASE: metrics.worst_relative_throughput,
            Objective.ENERGY: metrics.joules_per_sample,
            Objective.COST: metrics.usd_per_sample,
            Objective.POWER: metrics.peak_power_w,
            Objective.AREA: metrics.area_mm2,
        }
        for name in result.outcome.objectives.names:
            assert point.value(name) == pytest.approx(mine[name], rel=1e-12), (point.id, name)


def test_what_is_no_objective_is_shown_all_the_same() -> None:
    result = a_result()
    (point, *_) = point_views(result)
    row = point.headline()
    table = result.run.space.technology
    archs = result.architectures.take(slice(3, 4))
    assert row["peak_power_w"] == pytest.approx(peak_power_w(archs, table)[0])
    assert row["accelerator_usd"] == pytest.approx(accelerator_cost_usd(archs, 32e9, table)[0])
    energy, cost = row["energy_j_per_sample"], row["cost_usd_per_sample"]
    assert isinstance(energy, float)
    assert isinstance(cost, float)
    assert row["samples_per_s_per_w"] == pytest.approx(1 / energy)
    assert row["samples_per_usd"] == pytest.approx(1 / cost)
    # 55 samples a second on 64 accelerators.
    assert row["mean_power_w"] == pytest.approx(energy * 55 / 64)
    prices = table.need_cost()
    hardware = accelerator_cost_usd(archs, 32e9, table)[0] * 64 / prices.service_life_s / 55
    assert cost == pytest.approx(hardware + prices.energy_usd_per_j * energy)


def test_static_power_and_hosts_are_paid_for_the_whole_step_on_all_accelerators() -> None:
    result = a_result()
    point = point_views(result)[0]
    parts = point.metrics.workloads[0].parts_j
    assert parts is not None
    found = dict(zip(ENERGY_PARTS, parts, strict=True))
    table = result.run.space.technology
    host_w = table.need_power().host_w_per_accelerator
    static_w = static_power_w(result.architectures.take(slice(3, 4)), table)[0]
    assert found["host"] == pytest.approx(ACCELERATORS * host_w / 55)
    assert found["static power"] == pytest.approx(ACCELERATORS * static_w / 55)
    assert point.metrics.joules_per_sample == pytest.approx(sum(parts))


def test_arrays_pay_for_every_multiply_accumulate_and_for_recomputing() -> None:
    result = a_result()
    run = result.run
    (workload,) = run.workloads
    # The hand-made placements recompute: forward, again, and backward, all of it at the table's joules.
    step = workload.step(LayerSharding(tensor=1, microbatch=1))
    macs = 0
    for layer, count in step.layers:
        forward, backward = (
            sum(o.gemm.macs for o in operators if o.gemm is not None) for operators in (layer.forward, layer.backward)
        )
        macs += count * (forward * (2 if count > 1 else 1) + backward)
    parts = point_views(result)[0].metrics.workloads[0].parts_j
    assert parts is not None
    mac_j = run.space.technology.need_energy().of_mac_j("bf16")
    assert parts[ENERGY_PARTS.index("tensor arrays")] == pytest.approx(macs * mac_j)


def test_a_table_without_energies_leaves_figures_out() -> None:
    result = a_result()
    bare = replace(result.run.space.technology, energy=None, power=None, cost=None)
    run = replace(result.run, space=replace(result.run.space, technology=bare))
    point = point_views(replace(result, run=run))[0]
    assert {"samples_per_s_per_mm2", "throughput_samples_per_s", "area_mm2"} <= point.headline().keys()
    assert not any("_j_" in key or "usd" in key or key.endswith("_w") for key in point.row())
    assert point.metrics.workloads[0].parts_j is None


def test_relative_throughput_is_relative_to_each_workload_s_best(portfolio: RunResult) -> None:
    references_s = portfolio.outcome.references_s
    evaluated = views(portfolio, list(portfolio.outcome.points))
    for point in evaluated:
        each = [
            reference / (found.placement.step_s / workload.global_batch)
            for reference, found, workload in zip(
                references_s, point.point.results, portfolio.run.workloads, strict=True
            )
        ]
        row = point.row()
        assert row["relative_throughput"] == pytest.approx(float(np.sqrt(each[0] * each[1])))
        assert row["worst_relative_throughput"] == pytest.approx(min(each))
        assert [row["llama.relative_throughput"], row["bert.relative_throughput"]] == pytest.approx(each)
        assert max(each) <= 1 + 1e-12
    for workload in range(2):
        best = max(point.metrics.workloads[workload].relative_throughput or 0 for point in evaluated)
        assert best == pytest.approx(1)


def test_points_explained_together_are_explained_as_alone(five: RunResult) -> None:
    run = five.run
    cluster = load_cluster("tpu-v4-pod").sized(ACCELERATORS)
    for point in views(five, list(five.outcome.points)):
        (alone,) = explain(
            point.point.results, run.workloads[0], point.architectures, cluster, five.cache, accelerators=ACCELERATORS
        )
        assert point.explanations == (alone,)


def test_placement_options_are_counted_as_the_certificate_counts_them(five: RunResult, portfolio: RunResult) -> None:
    for result in (five, portfolio):
        evaluator = evaluator_of(result.run, result.architectures, result.outcome.references_s)
        expected = {fate.name.lower(): count for fate, count in option_counts(result.outcome, evaluator).items()}
        assert options_by_fate(result) == expected
        choices = result.run.choices
        assert choices.hbm_bytes is not None
        each = len(choices.tensor_parallel) * len(choices.microbatch) * len(choices.recompute) * len(choices.hbm_bytes)
        assert sum(expected.values()) == 8 * each * len(result.run.workloads)


def test_each_architecture_s_own_hbm_is_its_only_capacity(tmp_path: Path) -> None:
    result = searched(tmp_path, "throughput", "area", hbm_bytes=None)
    evaluator = evaluator_of(result.run, result.architectures)
    expected = {fate.name.lower(): count for fate, count in option_counts(result.outcome, evaluator).items()}
    assert options_by_fate(result) == expected


def test_what_is_left_of_each_budget_is_a_share_of_it() -> None:
    run = a_run()
    choices = replace(
        run.choices,
        max_area_mm2=500.0,
        max_step_s=25.0,
        min_samples_per_s=50.0,
        max_power_w=1e4,
        max_joules_per_sample=1e9,
        max_usd_per_sample=1.0,
    )
    result = a_result(replace(run, choices=choices))
    fastest = point_views(result)[0]
    # 55 samples/s on 400 mm², a step of 1024 samples; the space allows 600 mm², the run 500.
    row = fastest.slack()
    assert row["area_budget_left"] == pytest.approx(1 - 400 / 500)
    assert row["step_time_budget_left"] == pytest.approx(1 - 1024 / 55 / 25)
    assert row["samples_per_s_budget_left"] == pytest.approx(1 - 50 / 55)
    assert row["tightest_budget"] == "samples_per_s"
    assert 0.9 < float(str(row["joules_per_sample_budget_left"])) < 1
    assert tightest(budgets_of(result.run), fastest.metrics) == ("samples_per_s", pytest.approx(5 / 55))
    base = baseline_view(result)
    assert base is not None
    assert base.slack() == {}


def test_without_budgets_nothing_is_said_of_them() -> None:
    result = a_result()
    run = replace(result.run, space=replace(result.run.space, area_max_mm2=None))
    assert budgets_of(run) == ()
    assert point_views(replace(result, run=run))[0].slack() == {}
