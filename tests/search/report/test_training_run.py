"""Whole trainings: days, joules and dollars of all samples, at the prices of a site, within budgets."""

from dataclasses import replace
from pathlib import Path

import pytest
from report_helpers import a_result, a_run, a_workload

from archplace.arch_configs.errors import ConfigError
from archplace.search.budgets import budgets_of, tightest
from archplace.search.intervals import bounds_row, intervals_of
from archplace.search.objectives import Objective
from archplace.search.points import PointView, point_views
from archplace.search.report import design_document
from archplace.search.report.text import design_text
from archplace.search.report.write import write_report
from archplace.search.runfile import Run, load_run
from archplace.search.training_run import TrainingRun

TOKENS = 2e12


def training(run: Run, *tokens: float, max_s: float | None = None, max_usd: float | None = None) -> Run:
    """The run with so many tokens of its workloads to be trained on."""
    found = TrainingRun.of_tokens(tokens or (TOKENS,), run.workloads, max_s=max_s, max_usd=max_usd)
    return replace(run, choices=replace(run.choices, training=found))


def fastest(run: Run) -> PointView:
    """55 samples a second."""
    return point_views(a_result(run))[0]


def test_a_whole_training_is_all_its_samples() -> None:
    run = a_run()
    (workload,) = run.workloads
    point = fastest(training(run))
    samples, row = TOKENS / workload.sequence_length, point.row()
    assert row["run_s"] == pytest.approx(samples / 55)
    assert row["run_j"] == pytest.approx(samples * float(str(row["energy_j_per_sample"])))
    assert row["run_usd"] == pytest.approx(samples * float(str(row["cost_usd_per_sample"])))
    assert "run_usd" not in fastest(run).row()


def test_several_workloads_are_trained_one_after_the_other() -> None:
    run = a_run(a_workload("one"), a_workload("two"))
    point = fastest(training(run, TOKENS, 3 * TOKENS))
    one, two = point.metrics.workloads
    assert one.run_usd is not None
    assert two.run_usd == pytest.approx(3 * one.run_usd)
    assert point.metrics.run_usd == pytest.approx(4 * one.run_usd)
    assert point.row()["two.run_usd"] == two.run_usd
    # The same for both if there is one number.
    same = fastest(training(run, TOKENS)).metrics
    assert same.run_s == pytest.approx(2 * TOKENS / run.workloads[0].sequence_length / 55)


def test_cheaper_electricity_and_longer_service_are_cheaper() -> None:
    run = training(a_run())
    technology = run.space.technology

    def usd(**changes: float) -> float:
        table = replace(technology, cost=technology.need_cost().at(**changes))
        found = fastest(replace(run, space=replace(run.space, technology=table))).metrics.run_usd
        assert found is not None
        return found

    metrics = fastest(run).metrics
    assert metrics.run_j is not None
    # Energy and hardware add up: free electricity leaves the hardware, whose dollars go with one over the years.
    hardware = usd(usd_per_kwh=0)
    per_j = technology.need_cost().energy_usd_per_j
    assert metrics.run_usd == pytest.approx(hardware + per_j * metrics.run_j)
    years = technology.need_cost().service_life_s / (365.25 * 86400)
    assert usd(usd_per_kwh=0, service_years=2 * years) == pytest.approx(hardware / 2)


def test_bounds_of_a_training_are_those_of_its_figures_per_sample() -> None:
    point = fastest(training(a_run()))
    row, found = bounds_row(point), intervals_of(point)
    whole = point.metrics
    assert whole.run_s is not None
    assert whole.run_usd is not None
    low, high = found[Objective.THROUGHPUT].of(1.0)
    assert (row["run_s_low"], row["run_s_high"]) == pytest.approx((whole.run_s / high, whole.run_s / low))
    assert (row["run_usd_low"], row["run_usd_high"]) == pytest.approx(found[Objective.COST].of(whole.run_usd))


def test_what_is_left_of_the_budgets_of_a_training() -> None:
    run = a_run()
    samples = TOKENS / run.workloads[0].sequence_length
    limited = training(run, max_s=2 * samples / 55, max_usd=1e9)
    point = fastest(limited)
    assert point.slack()["run_time_budget_left"] == pytest.approx(0.5)
    assert 0.9 < float(str(point.slack()["usd_per_run_budget_left"])) < 1
    names = {budget.name: budget.unit for budget in budgets_of(limited)}
    assert (names["run_time"], names["usd_per_run"]) == ("s", "USD")
    area, _ = tightest(budgets_of(run), point.metrics) or ("", 0)
    assert area == "area"


def test_texts_and_pages_name_days_energy_and_dollars(tmp_path: Path) -> None:
    result = a_result(training(a_run()))
    point = point_views(result)[0]
    text = design_text(design_document(point, None))
    days = TOKENS / point.result.run.workloads[0].sequence_length / 55 / 86400
    assert f"whole training (days)     {days:.4g}" in text
    assert "whole training (USD)" in text
    write_report(result, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "MWh for all of it" in page
    assert "2,000 billion tokens" in page
    assert "electricity at 0.0806 USD/kWh with a PUE of 1.1; hardware written off over 5 years" in page


RUN = """\
run:
  workload: llama2-7b
  space: tiny
  cluster: tpu-v4-pod
  accelerators: 64
"""


def loaded(tmp_path: Path, *lines: str) -> Run:
    """Read a run file."""
    path = tmp_path / "run.yaml"
    path.write_text(RUN + "".join(f"  {line}\n" for line in lines))
    return load_run(path)


def test_a_run_file_says_what_is_trained_and_at_which_prices(tmp_path: Path) -> None:
    plain = loaded(tmp_path)
    run = loaded(
        tmp_path,
        "training: {tokens: 2e12}",
        "prices: {electricity_usd_per_kwh: 0.05, power_usage_effectiveness: 1.2}",
        "budgets: {usd_per_run: 1e6, run_time: 720 h}",
    )
    whole, workload = run.choices.training, run.workloads[0]
    assert whole is not None
    assert whole.of("llama2-7b") == TOKENS / workload.sequence_length
    assert whole.most_seconds_per_sample("llama2-7b") == 720 * 3600 * workload.sequence_length / TOKENS
    assert whole.most_usd_per_sample("llama2-7b") == 1e6 * workload.sequence_length / TOKENS
    prices = run.space.technology.need_cost()
    assert prices.energy_usd_per_j == pytest.approx(0.05 * 1.2 / 3.6e6)
    assert prices.service_life_s == plain.space.technology.need_cost().service_life_s
    assert run.digest != plain.digest
    assert plain.choices.training is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("budgets: {usd_per_run: 1e6}",), "found usd_per_run, but not how much is trained"),
        (("budgets: {run_time: 24 h}",), "found run_time, but not how much is trained"),
        (("training: {tokens: [1e12, 2e12]}",), "found 2 values for 1 workloads"),
        (("training: {tokens: 0}",), "allowed: more than 0"),
        (("prices: {power_usage_effectiveness: 0.9}",), "found 0.9"),
    ],
)
def test_what_makes_no_training_is_refused(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, *lines)
