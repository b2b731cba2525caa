"""Area by component: in the figure, in texts, and in documents."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from report_helpers import a_result, a_run

from archplace.arch_configs import load_accelerator
from archplace.arch_configs.area import Resources, area_mm2, price_accelerator_area, working_area_mm2
from archplace.search.points import baseline_view, point_views
from archplace.search.report import Contents, design_document
from archplace.search.report.area_plot import draw_area, prepare_area
from archplace.search.report.text import design_text
from archplace.search.report.why_plot import labelled_points
from archplace.search.report.write import write_report
from archplace.search.run import _baseline
from archplace.search.schedule import ScheduleCache


def test_components_add_up_to_the_area_that_the_table_gives() -> None:
    result = a_result()
    for point in point_views(result):
        expected = area_mm2(Resources.of(point.architectures), result.run.space.technology)
        assert sum(point.area_parts_mm2.values()) == pytest.approx(float(expected[0]))


def test_the_baseline_has_the_working_parts_alone_like_the_designs(tmp_path: Path) -> None:
    chip = load_accelerator("a100-80gb")
    run = replace(a_run(), baseline=chip)
    technology = run.space.technology
    assert technology.name == chip.technology
    area = working_area_mm2(chip, technology)
    whole = price_accelerator_area(chip, technology)
    assert area < 0.8 * whole
    baseline = _baseline(run, ScheduleCache(), ())
    assert baseline is not None
    assert baseline.architectures.area_mm2[0] == pytest.approx(area)
    result = replace(a_result(run), baseline=baseline)
    point = baseline_view(result)
    assert point is not None
    assert sum(point.area_parts_mm2.values()) == pytest.approx(area)
    assert point.area_parts_mm2["fp64"] == 0
    write_report(result, tmp_path)
    assert f"({whole:.4g} mm² with all that its die carries" in (tmp_path / "report.html").read_text()


def test_lengths_add_up_to_the_areas_and_shares_to_a_hundred() -> None:
    contents = Contents.of(a_result())
    points = labelled_points(contents.picks, contents.baseline)
    data = prepare_area(points)
    lengths: dict[str, float] = defaultdict(float)
    shares: dict[str, float] = defaultdict(float)
    for trace in draw_area(data).data:
        for label, value in zip(trace.y, trace.x, strict=True):
            (shares if trace.xaxis == "x2" else lengths)[label] += value
    assert len(lengths) == len(points)
    totals = [sum(point.area_parts_mm2.values()) for _, point in points]
    assert list(lengths.values()) == pytest.approx(totals, rel=2e-3)
    assert list(shares.values()) == pytest.approx([100.0] * len(points), abs=0.2)


def test_rows_and_documents_name_every_component() -> None:
    point = point_views(a_result())[0]
    document, parts = design_document(point, None), point.area_parts_mm2
    assert document["area_parts_mm2"] == parts
    assert {f"area_{part}_mm2" for part in parts} <= point.row().keys()
    text = design_text(document)
    assert "HBM interfaces" in text
    assert "overhead" in text
