"""Intervals and ties of designs: what the report calls too close to tell."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import SPEEDS, a_result, a_run, a_workload, evaluated, with_points

from archplace.arch_configs.calibration import Uncertainty
from archplace.search.intervals import bounds_row, full_rows, intervals_of, ties_of, uncertainty_of
from archplace.search.objectives import Objective, Objectives
from archplace.search.points import baseline_view, point_views, view
from archplace.search.report import Contents, design_document, write_report
from archplace.search.report.text import design_text
from archplace.search.run import RunResult
from archplace.search.uncertainty import COMPARED, PRIORS, Basis


def with_speeds(**speeds: float) -> RunResult:
    """The run made by hand, with other throughputs on some of its designs."""
    result = a_result()
    return with_points(result, *(evaluated(result.run, int(name[1:]), speed) for name, speed in speeds.items()))


def tied_ids(result: RunResult) -> dict[object, list[object]]:
    front = point_views(result)
    return {point.id: [front[i].id for i in tied] for point, tied in zip(front, ties_of(front), strict=True) if tied}


def test_designs_within_the_error_of_ratios_are_ties() -> None:
    assert tied_ids(a_result()) == {}
    # 52 / 50 = 1.04, and 55 / 52 = 1.06; 55 / 50 is more than the error of ratios.
    assert tied_ids(with_speeds(_1=52.0)) == {3: [1], 1: [2, 3], 2: [1]}


@settings(max_examples=20)
@given(st.lists(st.floats(10, 100), min_size=4, max_size=4))
def test_ties_are_mutual_and_say_nothing_of_a_design_and_itself(speeds: list[float]) -> None:
    front = point_views(with_speeds(**{f"_{i}": speed for i, speed in enumerate(speeds)}))
    ties = ties_of(front)
    for i, tied in enumerate(ties):
        assert i not in tied
        for j in tied:
            assert i in ties[j]
        closeness = [abs(math.log(front[i].samples_per_s / front[j].samples_per_s)) for j in tied]
        assert closeness == sorted(closeness)
        assert all(distance <= math.log1p(COMPARED) + 1e-12 for distance in closeness)


def test_no_objective_with_an_interval_means_no_ties() -> None:
    result = with_speeds(_1=52.0)
    areas_alone = Objectives(names=(Objective.AREA,))
    outcome = replace(result.outcome, objectives=areas_alone)
    outcome.set_front([replace(point, values=point.values[1:]) for point in result.outcome.front])
    assert tied_ids(replace(result, outcome=outcome)) == {}


def test_bounds_are_those_of_the_seconds() -> None:
    point = point_views(a_result())[0]
    row, (low, high) = bounds_row(point), PRIORS[Basis.DATA_SHEET]
    assert uncertainty_of(point).basis is Basis.DATA_SHEET
    assert row["throughput_samples_per_s_low"] == pytest.approx(SPEEDS[3] / high)
    assert row["throughput_samples_per_s_high"] == pytest.approx(SPEEDS[3] / low)
    assert (row["interval_probability"], row["interval_basis"]) == (0.8, "data sheet")


def test_energy_is_surer_than_time_where_little_of_it_follows_time() -> None:
    point = point_views(a_result())[0]
    found, (one,) = intervals_of(point), point.metrics.workloads
    assert one.joules_time_share is not None
    assert 0 < one.joules_time_share < 1
    low, high = PRIORS[Basis.DATA_SHEET]
    assert 1 < found[Objective.ENERGY].high < high * 1.13
    # Dollars are hardware, which follows the seconds, and energy, which follows them in part.
    assert one.usd_energy_share is not None
    share = 1 - one.usd_energy_share * (1 - one.joules_time_share)
    assert found[Objective.COST].high >= 1 + share * (high - 1) - 1e-9
    assert found[Objective.COST].low <= 1 + share * (low - 1) + 1e-9


def test_a_calibrated_cluster_speaks_for_its_own_accelerator_alone() -> None:
    run = a_run()
    stated = Uncertainty(low=0.95, high=1.08, compared=0.02, steps=40)
    cluster = replace(run.cluster, accelerator="tpu-v4", uncertainty=stated)
    result = a_result(replace(run, cluster=cluster))
    baseline = baseline_view(result)
    assert baseline is not None
    assert uncertainty_of(baseline).basis is Basis.CALIBRATED
    assert uncertainty_of(baseline).interval.of(1.0) == (0.95, 1.08)
    design = uncertainty_of(point_views(result)[0])
    assert (design.basis, design.compared) == (Basis.DATA_SHEET, 0.02)


def test_several_workloads_have_one_interval() -> None:
    result = a_result(a_run(a_workload("one"), a_workload("two")))
    assert intervals_of(point_views(result)[0]).keys() == {Objective.THROUGHPUT, Objective.ENERGY, Objective.COST}


def test_a_front_of_nothing_has_no_ties() -> None:
    assert ties_of([]) == []
    assert full_rows([]) == []


def test_page_rows_and_documents_carry_bounds_and_ties(tmp_path: Path) -> None:
    result = with_speeds(_1=52.0)
    write_report(result, tmp_path)
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO((tmp_path / "front.csv").read_text()))}
    assert (rows["1"]["ties"], rows["1"]["tied_with"], rows["0"]["ties"], rows["0"]["tied_with"]) == (
        "2",
        "2 3",
        "0",
        "",
    )
    assert float(rows["1"]["energy_j_per_sample_low"]) < float(rows["1"]["energy_j_per_sample_high"])
    document = json.loads((tmp_path / "front.json").read_text())
    assert document["uncertainty"]["error_of_ratios"] == COMPARED
    assert document["uncertainty"]["basis"] == "data sheet"
    page = (tmp_path / "report.html").read_text()
    assert "Measured steps are expected to take 1.25 to 2.4 times the predicted seconds" in page
    assert "2 of the front, from" in page
    findings = {finding.title: finding.text for finding in Contents.of(result).findings}
    assert "3 of 4 front designs cannot be told from another one in throughput" in findings["Ties on the front"]


def test_one_design_s_text_says_what_to_expect() -> None:
    result = with_speeds(_1=52.0)
    text = design_text(design_document(point_views(result)[0], baseline_view(result)))
    assert "Expected when measured, and ties" in text
    assert "1: 1" in text
    beaten = result.outcome.point(4)
    assert beaten is not None
    expected = design_document(view(result, beaten), None)["expected"]
    assert isinstance(expected, dict)
    assert "ties" not in expected
