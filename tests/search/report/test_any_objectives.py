"""The report for one, three and five objectives, several workloads, quick runs: what it says and what it draws."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_helpers import AREAS, a_baseline, a_result, a_run, a_workload, evaluated, only, outcome_of, searched

from archplace.cli import main
from archplace.search.objectives import Objective, Objectives
from archplace.search.outcome import Fate, Record
from archplace.search.points import point_views
from archplace.search.report import Contents, design_document, picks, write_report
from archplace.search.report.front_plot import draw_front, prepare_front
from archplace.search.report.many_plot import Line, ManyPlot, draw_matrix, draw_parallel, prepare_many
from archplace.search.report.objectives import axes, axis, plane, spans_decades
from archplace.search.report.text import design_text
from archplace.search.report.why_plot import draw_energy, draw_step, labelled_points, prepare_why
from archplace.search.run import RunResult
from archplace.search.tables import front_rows
from archplace.search.wording import number
from archplace.workloads import load_workload

Values = Sequence[tuple[float, ...]]

# Samples per second, joules per sample, square millimetres.
THREE: Values = ((50.0, 9.0, 400.0), (40.0, 5.0, 400.0), (30.0, 6.0, 300.0), (20.0, 7.0, 100.0))


def by_hand(values: Values, *names: str) -> RunResult:
    """Designs 0, 1, … with these values of these objectives, all on the front; rates stand as such."""
    run = a_run()
    objectives = Objectives.of(names)
    rate = [name in (Objective.THROUGHPUT, Objective.WORST_CASE) for name in objectives.names]
    fates = [Fate.FRONT if i < len(values) else Fate.PRUNED for i in range(len(AREAS))]
    speeds = [one[0] if rate[0] else 10.0 + i for i, one in enumerate(values)]
    outcome = outcome_of([evaluated(run, i, speed) for i, speed in enumerate(speeds)], fates=fates)
    minimised = [tuple(1 / v if r else v for v, r in zip(one, rate, strict=True)) for one in values]
    points = [replace(point, values=own, best_case=own) for point, own in zip(outcome.points, minimised, strict=True)]
    for point in points:
        outcome.records[point.architecture] = replace(outcome.records[point.architecture], points=(point,))
    changed = replace(outcome, objectives=objectives, bound=np.tile(np.max(minimised, axis=0) * 2, (len(AREAS), 1)))
    changed.set_front(points)
    run = replace(run, objectives=objectives)
    return replace(a_result(run, with_baseline=False), outcome=changed)


def test_designs_that_the_plane_does_not_need_are_told_apart() -> None:
    result = by_hand(THREE, "throughput", "energy", "area")
    data = prepare_front(result, point_views(result), None, ())
    # Design 1 is slower than design 0 on the same area: it is on the front for its energy.
    assert (data.front.ids, data.others.ids) == ((3, 2, 0), (1,))
    assert (data.across.objective, data.up.objective) == (Objective.AREA, Objective.THROUGHPUT)
    names = [trace.name for trace in draw_front(data).data]
    assert "on the front for other objectives (1)" in names
    assert "front of these two (3)" in names


@pytest.mark.parametrize(
    ("names", "across", "up", "shape", "corner"),
    [
        (("throughput", "area"), "area", "throughput", "hv", (False, True)),
        (("energy", "area"), "area", "energy", "hv", (False, False)),
        (("throughput", "worst_case"), "worst_case", "throughput", "vh", (True, True)),
        (("cost", "energy", "power"), "cost", "energy", "hv", (False, False)),
    ],
)
def test_the_plane_and_its_better_corner(
    names: tuple[str, ...], across: str, up: str, shape: str, corner: tuple[bool, bool]
) -> None:
    values = [tuple(0.9 - 0.1 * i if j % 2 else 0.1 + 0.1 * i for j in range(len(names))) for i in range(4)]
    result = by_hand(values, *names)
    # Relative throughputs are shown only where there is something that they are relative to.
    result = replace(result, outcome=replace(result.outcome, references_s=(1.0,)))
    result.outcome.set_front(list(result.outcome.points))
    chosen = plane(result.outcome.objectives)
    assert chosen is not None
    if names == ("cost", "energy", "power"):
        # Objectives stand in a fixed order: energy before cost.
        assert [one.objective for one in chosen] == ["cost", "energy"]
    else:
        assert [one.objective for one in chosen] == [across, up]
    data = prepare_front(result, point_views(result), None, ())
    figure = draw_front(data)
    (line,) = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert line.line.shape == shape
    better = figure.layout.annotations[-1]
    assert (better.x > 0.5, better.y > 0.5) == corner


def test_a_single_objective_has_no_plane() -> None:
    assert plane(Objectives.of(["energy"])) is None


@given(st.lists(st.tuples(*[st.floats(min_value=1e-3, max_value=1e3)] * 3), min_size=1, max_size=6), st.data())
def test_upright_axes_have_the_best_on_top_and_read_back_what_they_show(values: Values, data: st.DataObject) -> None:
    shown = axes(Objectives.of(["throughput", "energy", "area"]))
    plot = ManyPlot(
        axes=shown,
        log=tuple(spans_decades([one[i] for one in values]) for i in range(3)),
        front=tuple(Line(id=i, values=one) for i, one in enumerate(values)),
        n_front=len(values),
        picks=(),
        baseline=None,
        on_pair={},
    )
    for i, one in enumerate(shown):
        column = [line.values[i] for line in plot.front]
        best = max(column) if one.maximise else min(column)
        value = data.draw(st.sampled_from(column))
        assert -1e-9 <= plot.share(i, value) <= 1 + 1e-9
        if max(column) > min(column) * (1 + 1e-6):
            assert plot.share(i, best) == pytest.approx(1)
            assert plot.at(i, plot.share(i, value)) == pytest.approx(value, rel=1e-6)


def test_every_pair_of_objectives_has_its_own_front() -> None:
    result = by_hand(THREE, "throughput", "energy", "area")
    plot = prepare_many(result, point_views(result), None, ())
    signs = (-1, 1, 1)
    for (i, j), found in plot.on_pair.items():
        costs = [(signs[i] * one[i], signs[j] * one[j]) for one in THREE]
        expected = {
            k
            for k, mine in enumerate(costs)
            if not any(o != mine and o[0] <= mine[0] and o[1] <= mine[1] for o in costs)
        }
        assert found == expected
    assert set(plot.on_pair) == {(1, 0), (2, 0), (2, 1)}
    panels = {(trace.xaxis, trace.yaxis) for trace in draw_matrix(plot).data}
    assert len(panels) == 3


def test_lines_cross_all_axes_and_gaps_part_them() -> None:
    result = by_hand(THREE, "throughput", "energy", "area")
    views = point_views(result)
    chosen = [pick for pick in picks(views, None) if pick.name == "Fastest"]
    plot = prepare_many(result, views, None, chosen)
    assert [line.id for line in plot.picks] == [0]
    assert {line.id for line in plot.front} == {1, 2, 3}
    many, single = draw_parallel(plot).data
    assert many.x == (0, 1, 2, None) * 3
    assert single.y == (1.0, 0.0, 0.0)
    assert single.name == "Fastest (0)"


def test_of_a_huge_front_some_are_drawn_and_the_picks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archplace.search.report.many_plot.MOST_DRAWN", 2)
    values = [(50.0 - i, 9.0 - i, 400.0) for i in range(7)]
    result = by_hand(values, "throughput", "energy", "area")
    views = point_views(result)
    plot = prepare_many(result, views, None, [pick for pick in picks(views, None) if pick.name == "Fastest"])
    assert (len(plot.front), plot.n_front, [line.id for line in plot.picks]) == (2, 7, [0])


def test_picks_claim_the_whole_space_only_for_what_the_run_optimised() -> None:
    result = by_hand(THREE, "throughput", "energy", "area")
    why = {pick.name: pick.why for pick in picks(point_views(result), None)}
    assert why["Fastest"].endswith("of the whole space")
    assert why["Best per watt"].endswith("of the whole space")
    assert why["Best per dollar"].endswith("on the front")
    assert "Least power" not in why
    unfinished = replace(result, partial=True)
    assert {pick.name: pick.why for pick in picks(point_views(unfinished), None)}["Fastest"].endswith("on the front")
    quick = replace(result, outcome=replace(result.outcome, gap=(0.01, 0.01, 0.0)))
    assert {pick.name: pick.why for pick in picks(point_views(quick), None)}["Fastest"].endswith("on the front")


def test_the_knee_of_three_objectives_gets_the_most_of_their_ranges() -> None:
    # Shares: (1, 0, 0), (0, 1, 1) and (0.9, 0.75, 0.5): the last has 2.15 of 3, the ends 1 and 2.
    result = by_hand(((20.0, 9.0, 300.0), (10.0, 5.0, 100.0), (19.0, 6.0, 200.0)), "throughput", "energy", "area")
    found = {pick.name: pick.point.id for pick in picks(point_views(result), None)}
    assert found["Knee"] == 2
    # With a worse third design an end gets as much.
    result = by_hand(((20.0, 9.0, 300.0), (10.0, 5.0, 100.0), (11.0, 8.0, 200.0)), "throughput", "energy", "area")
    assert "Knee" not in {pick.name for pick in picks(point_views(result), None)}


def test_a_front_of_one_has_the_picks_of_its_objectives() -> None:
    single = only(by_hand(((10.0,),), "energy"), 0)
    single = replace(single, outcome=replace(single.outcome, objectives=Objectives.of(["energy"])))
    single.outcome.set_front([replace(point, values=(10.0,)) for point in single.outcome.points])
    assert [pick.name for pick in picks(point_views(single), None)] == ["Best per watt"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.267e-7, "4.267 × 10⁻⁷"), (0.01234, "0.01234"), (12345.6, "12,346"), (float("nan"), "–"), (0.0, "0")],
)
def test_small_numbers_are_written_as_people_do(value: float, text: str) -> None:
    assert number(value).replace("\u202f", " ") == text


def test_axes_know_their_units() -> None:
    result = by_hand(((30.0, 0.5, 200.0),), "throughput", "worst_case", "area")
    result = replace(result, outcome=replace(result.outcome, references_s=(1.0,)))
    (point,) = point_views(result) or [None]
    assert point is not None
    assert axis(Objective.WORST_CASE).of(point) == pytest.approx(50.0)
    assert axis(Objective.WORST_CASE).text(50.0) == "50 %"
    assert axis(Objective.THROUGHPUT, several=True).title == "throughput, geometric mean (samples/s)"
    assert axis(Objective.ENERGY).shown([2.0, 4.0]) == (2.0, 4.0)
    assert axis(Objective.THROUGHPUT).shown([2.0, 4.0]) == (0.5, 0.25)


RUNS = {
    "one": ("energy",),
    "three": ("throughput", "energy", "area"),
    "five": ("throughput", "energy", "cost", "power", "area"),
    "two workloads": ("throughput", "worst_case", "area"),
    "quick": ("throughput", "area"),
}


@pytest.fixture(scope="module", params=list(RUNS))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RunResult]:
    workloads = ()
    if request.param == "two workloads":
        workloads = (a_workload("llama"), replace(load_workload("bert-large"), name="bert", global_batch=1024))
    folder = tmp_path_factory.mktemp("run")
    effort = "quick" if request.param == "quick" else "normal"
    return request.param, searched(
        folder, *RUNS[request.param], workloads=workloads, effort=effort, max_area_mm2=590.0, max_power_w=900.0
    )


def test_rows_have_every_objective_and_its_budget(run: tuple[str, RunResult]) -> None:
    name, result = run
    rows = Contents.of(result).rows
    assert rows
    for row in rows:
        for one in axes(result.outcome.objectives):
            assert isinstance(row[one.column], float)
        assert {"area_budget_left", "power_budget_left", "tightest_budget"} <= row.keys()
    short = front_rows(result)
    assert [row["id"] for row in short] == [row["id"] for row in rows]
    assert all(isinstance(row["proven"], bool) for row in short)
    if name == "two workloads":
        assert {"llama", "bert", "relative", "worst"} <= short[0].keys()
    if name == "five":
        assert {"J/sample", "USD/sample", "peak_W"} <= short[0].keys()


def test_the_report_says_what_was_optimised_and_how_sure_it_is(run: tuple[str, RunResult], tmp_path: Path) -> None:
    name, result = run
    paths = {path.name: path for path in write_report(result, tmp_path)}
    document = json.loads(paths["front.json"].read_text())
    page = paths["report.html"].read_text()
    assert document["run"]["objectives"] == list(RUNS[name])
    assert document["run"]["budgets"]["power"] == {"limit": 900.0, "unit": "W"}
    assert sum(document["counts"]["options"].values()) > 0
    assert sum(document["counts"]["pruned_by"].values()) == document["counts"]["pruned"]
    assert "uncalibrated" not in document["note"]
    assert "no measurement of this kind of chip has calibrated" in document["note"]
    assert document["note"].count("side by side") == 1
    assert ('id="parallel-plot"' in page) == ('id="matrix-plot"' in page) == (len(RUNS[name]) > 2)
    assert ('id="front-plot"' in page) == (len(RUNS[name]) > 1)
    assert "There is one objective, energy" in page or name != "one"
    assert (document["gap"] is not None) == (name == "quick")
    assert (document["best_samples_per_s"] is not None) == (name == "two workloads")
    assert "power at most 900 W" in page
    assert 'id="energy-plot"' in page


def test_bars_of_energy_add_up_to_the_energy(run: tuple[str, RunResult]) -> None:
    name, result = run
    contents = Contents.of(result)
    data = prepare_why(labelled_points(contents.picks, contents.baseline))
    figure = draw_energy(data)
    for left, right in (("x", "x2"),):
        lengths = np.sum([trace.x for trace in figure.data if trace.xaxis == left], axis=0)
        shares = np.sum([trace.x for trace in figure.data if trace.xaxis == right], axis=0)
        assert lengths == pytest.approx(data.energy_lengths, rel=2e-3)
        assert shares == pytest.approx([100.0] * len(data.bars), abs=0.2)
    if name == "two workloads":
        # Of each workload the fastest bar has length 1, whatever the other takes.
        by_workload: dict[str, list[float]] = {}
        for bar, length in zip(data.bars, data.step_lengths, strict=True):
            by_workload.setdefault(bar.workload, []).append(length)
        assert {min(lengths) for lengths in by_workload.values()} == {1.0}
        assert len(by_workload) == 2
    else:
        assert data.step_lengths == tuple(bar.step_s for bar in data.bars)
    assert draw_step(data).data


def test_designs_are_compared_with_the_baseline_in_all_that_is_known(tmp_path: Path) -> None:
    result = searched(tmp_path / "run", *RUNS["five"])
    contents = Contents.of(result)
    assert contents.baseline is not None
    document = json.loads(write_report(result, tmp_path)[2].read_text())
    more = document["picks"][0]["difference_to_baseline"]
    assert {"throughput_per_watt", "samples_per_dollar", "peak_power", "accelerator_price"} <= more.keys()
    row, base = document["front"][0], document["baseline"]
    assert more["energy_per_sample"] == pytest.approx(row["energy_j_per_sample"] / base["energy_j_per_sample"] - 1)


def test_show_prints_energy_by_component_and_every_point_of_an_architecture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = searched(tmp_path, *RUNS["three"], max_power_w=900.0)
    best = result.outcome.front[0].id
    assert main(["show", str(tmp_path), str(best)]) == 0
    text = capsys.readouterr().out
    for phrase in ("Energy per sample, all accelerators", "tensor arrays", "host", "peak power (W)", "Budgets"):
        assert phrase in text
    assert main(["show", str(tmp_path), str(best), "--options"]) == 0
    assert "front" in capsys.readouterr().out


def test_the_bounds_of_a_pruned_architecture_are_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = searched(tmp_path, "throughput", "energy")
    pruned = np.flatnonzero(result.outcome.fate == Fate.PRUNED)
    assert len(pruned)
    assert main(["show", str(tmp_path), str(pruned[0])]) == 0
    text = capsys.readouterr().out
    assert "no placement can give it more than" in text
    assert " samples/s or less than " in text
    assert " J/sample, and design " in text


def test_an_architecture_s_designs_name_each_other() -> None:
    result = by_hand(((9.0, 400.0), (5.0, 500.0)), "energy", "area")
    first, second = result.outcome.points
    pair = (replace(second, architecture=0, number=0), replace(first, number=1))
    result.outcome.records.clear()
    result.outcome.records[0] = Record(architecture=0, points=pair)
    result.outcome.set_front(list(pair))
    documents = {view.id: design_document(view, None) for view in point_views(result)}
    assert {key: one["other_designs"] for key, one in documents.items()} == {0: ["0.1"], "0.1": [0]}
    assert "Other designs on this architecture: 0.1" in design_text(documents[0])
    assert design_text(documents["0.1"]).startswith("design 0.1: on the front")


def test_the_order_of_the_front_is_that_of_its_first_objective() -> None:
    result = by_hand(((9.0, 400.0), (5.0, 500.0)), "energy", "area")
    rows = [view.value(Objective.ENERGY) for view in point_views(result)]
    assert rows == sorted(value for value in rows if value is not None) == [5.0, 9.0]
    for one, other in itertools.pairwise(rows):
        assert one is not None
        assert other is not None


def test_a_baseline_of_other_objectives_is_at_its_place_in_all_figures() -> None:
    result = by_hand(THREE, "throughput", "energy", "area")
    base = a_baseline(result.run)
    assert base.point is not None
    point = replace(base.point, values=(1 / 40.0, 4.5, 250.0))
    contents = Contents.of(replace(result, baseline=replace(base, point=point)))
    assert contents.baseline is not None
    data = prepare_many(contents.result, contents.front, contents.baseline, contents.picks)
    assert data.baseline is not None
    assert data.baseline.values == (40.0, 4.5, 250.0)
    # 4.5 J beat the front's best 5 J: just beyond the top, whatever the distance.
    assert 1 < data.share(1, 4.5) == data.share(1, 0.001) < 1.1
    plot = prepare_front(contents.result, contents.front, contents.baseline, contents.picks)
    assert (plot.baseline.x, plot.baseline.y) == ((250.0,), (40.0,))
