"""The data behind the report: picks, differences, counts, reasons, health checks, and what the plots show."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_helpers import (
    AREAS,
    BOUNDS,
    GB,
    SPEEDS,
    a_result,
    a_run,
    a_workload,
    an_outcome,
    evaluated,
    nothing_feasible,
    only,
    placed,
    with_points,
)

from archplace.arch_configs import Architectures, load_accelerator
from archplace.arch_configs.errors import StoreError
from archplace.costmodel import SharedStates, StateSharding
from archplace.search.attribution import COMPUTE_PARTS, OperatorBar
from archplace.search.explain import PARTS
from archplace.search.outcome import Fate, Reasons
from archplace.search.report import Contents, difference
from archplace.search.report._axes import axes_words
from archplace.search.report._record import table_card
from archplace.search.report.colours import PART_STYLE, legend_room
from archplace.search.report.front_plot import draw_front, prepare_front
from archplace.search.report.health import Level
from archplace.search.report.picks import by_point
from archplace.search.report.schedule_plot import _gantt, draw_schedule, prepare_schedule
from archplace.search.report.stacks import limit_of
from archplace.search.report.summary import group_architectures, group_reasons
from archplace.search.report.why_plot import draw_energy, draw_memory, draw_step, labelled_points, prepare_why
from archplace.search.report.write import write_report
from archplace.search.tables import fate_row, point_views


def test_picks_are_those_that_a_hand_calculation_gives() -> None:
    # Throughput per area: 0.2, 0.18, 0.1667, 0.1375. Height above the line from (100, 20) to (400, 55), in units of the
    # extent: 0, 16/35 - 1/3 = 0.124, 30/35 - 2/3 = 0.190, 0. Within the baseline's 250 mm²: 0 and 1.
    found = {pick.name: pick.point.id for pick in Contents.of(a_result()).picks}
    assert {name: found[name] for name in found if "watt" not in name and "dollar" not in name} == {
        "Fastest": 3,
        "Best per area": 0,
        "Knee": 2,
        "Smallest": 0,
        "Best within tpu-v4's area": 1,
        "Smallest as fast as tpu-v4": 2,
    }
    figures = {point.id: point.metrics for point in Contents.of(a_result()).front}
    assert found["Best per watt"] == min(figures, key=lambda i: figures[i].joules_per_sample or 0)
    assert found["Best per dollar"] == min(figures, key=lambda i: figures[i].usd_per_sample or 0)


def test_a_design_that_is_picked_twice_is_one_group() -> None:
    groups = by_point(Contents.of(a_result()).picks)
    # Of these four the fastest also takes the least energy and money: hosts and static power cost the more the slower.
    assert [[pick.name for pick in group] for group in groups] == [
        ["Fastest", "Best per watt", "Best per dollar"],
        ["Best per area", "Smallest"],
        ["Knee", "Smallest as fast as tpu-v4"],
        ["Best within tpu-v4's area"],
    ]


def test_a_straight_front_has_no_knee() -> None:
    result = a_result()
    straight = with_points(result, *(evaluated(result.run, i, AREAS[i] / 5) for i in range(4)))
    assert "Knee" not in {pick.name for pick in Contents.of(straight).picks}


def test_the_difference_to_the_baseline_is_relative_to_the_baseline() -> None:
    contents = Contents.of(a_result())
    assert contents.baseline is not None
    more = difference(contents.front[0], contents.baseline)
    assert more["throughput"] == pytest.approx(55 / 40 - 1)
    assert more["area"] == pytest.approx(400 / 250 - 1)
    assert more["throughput_per_area"] == pytest.approx((55 / 400) / (40 / 250) - 1)
    mine, other = contents.front[0].metrics, contents.baseline.metrics
    assert mine.joules_per_sample is not None
    assert other.joules_per_sample is not None
    assert more["throughput_per_watt"] == pytest.approx(other.joules_per_sample / mine.joules_per_sample - 1)


def test_counts_add_up_to_the_architectures() -> None:
    counts = Contents.of(a_result()).counts
    assert (counts.front, counts.dominated, counts.pruned, counts.infeasible, counts.undecided) == (4, 1, 1, 2, 0)
    assert counts.front + counts.dominated + counts.pruned + counts.infeasible == counts.architectures == len(AREAS)
    assert counts.not_explored.startswith("Nothing")


def test_reasons_that_differ_in_numbers_are_one_group_with_their_range() -> None:
    groups = group_reasons(
        {
            "a": "memory: needs at least 40.5 GB (9 stages of 1), HBM has 32.0 GB",
            "b": "heads: 32 heads on 3 devices",
            "c": "memory: needs at least 9.5 GB (9 stages of 2), HBM has 32.0 GB",
        }
    )
    assert [(group.count, group.reason, group.subjects) for group in groups] == [
        (2, "memory: needs at least 9.5…40.5 GB (9 stages of 1…2), HBM has 32.0 GB", ("a", "c")),
        (1, "heads: 32 heads on 3 devices", ("b",)),
    ]


def test_reasons_of_many_architectures_are_counted_and_only_the_first_are_named() -> None:
    reasons = Reasons(
        code=np.array([0] * 5000 + [-1] + [1] * 3, dtype=np.int8),
        amount=np.concatenate((np.linspace(901.0, 1200.0, 5000), np.zeros(4))),
        texts=("area {:.4g} mm² exceeds the budget of 900 mm²", "one: no placement option fits"),
        own={2: "area 1300 mm² exceeds the budget of 900 mm²", 5000: "no HBM capacity suits all workloads"},
    )
    groups = group_architectures(reasons)
    assert [(group.count, group.reason) for group in groups] == [
        (5000, "area 901…1300 mm² exceeds the budget of 900 mm²"),
        (3, "one: no placement option fits"),
        (1, "no HBM capacity suits all workloads"),
    ]
    assert groups[0].subjects == ("0", "1", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "2")
    assert groups[1].subjects == ("5001", "5002", "5003")


def _titles(contents: Contents, level: Level) -> set[str]:
    return {finding.title for finding in contents.findings if finding.level == level}


def test_health_notes_what_the_front_never_uses() -> None:
    contents = Contents.of(a_result())
    assert _titles(contents, Level.NOTE) == {"HBM capacity never binds", "Options never used"}
    (unused,) = [finding for finding in contents.findings if finding.title == "Options never used"]
    for words in ("tensor-parallel width 2", "microbatch 2", "recomputation none", "HBM 64 GB"):
        assert words in unused.text


def test_health_names_a_parameter_that_most_of_the_front_pins() -> None:
    result = a_result()
    rows = np.array([128, 128, 128, 128, 64, 64, 64, 64])
    pinned = replace(result, architectures=replace(result.architectures, tensor_rows=rows))
    (finding,) = [f for f in Contents.of(pinned).findings if "pinned" in f.title and f.level == Level.ATTENTION]
    assert finding.title == "tensor rows is pinned"
    assert "4 of 4 front designs sit at the top of the space's range, 128" in finding.text


def test_health_names_ties_missing_proofs_and_a_reason_that_rejects_most() -> None:
    result = a_result()
    areas = result.architectures.area_mm2.copy()
    areas[4] = areas[1]
    tie = replace(evaluated(result.run, 4, 36.0), values=(1 / 36.0, areas[1]))
    fates = [*[Fate.FRONT] * 5, Fate.PRUNED, Fate.INFEASIBLE, Fate.INFEASIBLE]
    changed = with_points(result, evaluated(result.run, 1, 36.0, proven=False), tie, fates=fates)
    changed.outcome.reasons.own.update(dict.fromkeys(range(5), "llama2-7b: no placement option fits"))
    changed.outcome.reasons.own.pop(7)
    changed = replace(changed, architectures=replace(result.architectures, area_mm2=areas))
    findings = {finding.title: finding.text for finding in Contents.of(changed).findings}
    assert "1 = 4" in findings["Equals on the front"]
    assert "cannot be told from another one in throughput" in findings["Ties on the front"]
    assert "more than 10.0 %" in findings["Schedules without proof"]
    assert "5 of 8 architectures (62.5 %)" in findings["One constraint rejects most architectures"]


def test_health_names_a_baseline_that_is_priced_unlike_the_space() -> None:
    result, title = a_result(), "Baseline and designs are priced unlike"
    baseline = result.baseline
    assert baseline is not None
    assert title not in {finding.title for finding in Contents.of(result).findings}
    gpu = Architectures.of(load_accelerator("h100-sxm"), area_mm2=250.0)
    unlike = replace(result, baseline=replace(baseline, name="h100-sxm", architectures=gpu))
    findings = {finding.title: finding.text for finding in Contents.of(unlike).findings}
    assert "the space's architectures at data-sheet rates" in findings[title]
    assert "kernels_of: h100-sxm" in findings[title]


def test_the_front_plot_shows_every_fate_at_its_exact_place() -> None:
    result = a_result()
    contents = Contents.of(result)
    data = prepare_front(result, contents.front, contents.baseline, contents.picks)
    assert data.front.ids == (0, 1, 2, 3)
    assert data.front.x == AREAS[:4]
    assert data.front.y == tuple(SPEEDS[i] for i in range(4))
    assert data.others.ids == ()
    assert data.dominated.ids == (4,)
    assert (data.bounds.ids, data.n_pruned) == ((5,), 1)
    assert (data.bounds.x, data.bounds.y) == ((500.0,), (pytest.approx(54.0),))
    assert data.baseline.ids == ("baseline",)
    assert {mark.text: mark.x for mark in data.marks}["Best per area, Smallest"] == 100.0
    assert not data.log_x
    assert not data.log_y
    traces = {trace.name: trace for trace in draw_front(data).data}
    assert traces["not evaluated, at their bound (1)"].visible == "legendonly"
    assert traces["Pareto front (4)"].line.shape == "hv"
    assert traces["Pareto front (4)"].customdata == (0, 1, 2, 3)


def test_axes_are_logarithmic_beyond_two_decades() -> None:
    result = a_result()
    wide = with_points(result, replace(evaluated(result.run, 0, 20.0), values=(1 / 20.0, 3.9)))
    contents = Contents.of(wide)
    data = prepare_front(wide, contents.front, contents.baseline, contents.picks)
    assert data.log_x
    assert not data.log_y
    assert draw_front(data).layout.xaxis.type == "log"


def test_of_many_bounds_those_closest_to_the_front_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    result = a_result()
    # 18/36 and 50/55 of the front at their areas; 54/55 for architecture 5
    bounds = [*BOUNDS[:4], 18.0, 54.0, 50.0, 0.0]
    changed = with_points(result, fates=[*[Fate.FRONT] * 4, *[Fate.PRUNED] * 3, Fate.INFEASIBLE], bounds=bounds)
    monkeypatch.setattr("archplace.search.report.front_plot.MOST_BOUNDS", 2)
    data = prepare_front(changed, point_views(changed), None, ())
    assert (data.bounds.ids, data.n_pruned) == ((5, 6), 3)
    assert any("2 of 3" in trace.name for trace in draw_front(data).data)


def test_of_many_dominated_designs_those_closest_to_the_front_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    result = a_result()
    # Of the front's throughput at their areas designs 4 and 5 have 30/36 and 54/55.
    more = replace(evaluated(result.run, 5, 54.0), values=(1 / 54.0, 500.0))
    fates = [*[Fate.FRONT] * 4, Fate.DOMINATED, Fate.DOMINATED, Fate.INFEASIBLE, Fate.INFEASIBLE]
    changed = with_points(result, more, fates=fates)
    monkeypatch.setattr("archplace.search.report.front_plot.MOST_DOMINATED", 1)
    data = prepare_front(changed, point_views(changed), None, ())
    assert (data.dominated.ids, data.n_dominated) == ((5,), 2)
    assert any("1 of 2, the closest" in trace.name for trace in draw_front(data).data)


def test_a_long_front_shows_its_first_rows_and_the_picks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archplace.search.report._record.MOST_ROWS", 2)
    contents = Contents.of(a_result(with_baseline=False))
    card = table_card(contents)
    # Fastest 3, then 2; best per area and smallest is 0; design 1 is no pick.
    assert [f'data-id="{i}"' in card for i in range(4)] == [True, False, True, True]
    assert "All 4, with full precision and SI units" in card


def test_the_bars_of_a_step_add_up_to_the_step_and_the_shares_to_a_hundred() -> None:
    contents = Contents.of(a_result())
    data = prepare_why(labelled_points(contents.picks, contents.baseline))
    assert [bar.label for bar in data.bars][-1] == "tpu-v4 (baseline)"
    for bar in data.bars:
        assert sum(bar.parts_s) == pytest.approx(bar.step_s)
    fastest = data.bars[0]
    assert fastest.step_s == pytest.approx(1024 / 55)
    # The slowest stage works on 64 microbatches; while the first and the last one pass the other stages, it has none.
    # Loads hold what a stage waits for messages as well, which is less than a hundredth.
    parts = dict(zip(PARTS, fastest.parts_s, strict=True))
    loads = [stage.load_s for stage in contents.front[0].explanations[0].stages]
    working = sum(parts[part] for part in (*COMPUTE_PARTS, "recomputation", "tensor-parallel communication"))
    expected = (sum(loads) - max(loads)) / (64 * max(loads))
    assert parts["pipeline bubble"] / working == pytest.approx(expected, rel=0.01)
    figure = draw_step(data)
    shares = [trace for trace in figure.data if trace.xaxis == "x2"]
    assert sum(trace.x[0] for trace in shares) == pytest.approx(100, abs=0.2)


def test_every_part_of_a_step_has_a_look_of_its_own() -> None:
    assert tuple(PART_STYLE) == PARTS
    assert len(set(PART_STYLE.values())) == len(PARTS)


def test_recomputation_of_stages_is_said_in_words() -> None:
    placement = placed(a_workload(), 20.0).placement
    assert placement.recompute_words == "full"
    for chosen, words in (((1, 0, 1, 1), "full on 3 stages, none on 1"), ((0, 0, 0, 1), "full on 1 stage, none on 3")):
        mixed = replace(placement, cut=replace(placement.cut, policies=chosen))
        assert mixed.recompute_words == words


def test_axes_are_named_where_there_is_something_to_choose() -> None:
    words = dict(axes_words(a_run().choices.axes))
    assert words["Tensor parallel"] == "1, 2"
    assert words["Recompute"] == "none, full"
    assert words["Pipeline parallel"] == words["Data parallel"] == "whatever fits"
    for name in ("Sequence parallel", "Context parallel", "Expert parallel", "Virtual stages", "State sharding"):
        assert name not in words
    states = (StateSharding(), StateSharding(states=SharedStates.OPTIMIZER, group=4))
    words = dict(axes_words(replace(a_run().choices.axes, sequence=(False, True), context=(1, 2), states=states)))
    assert words["Sequence parallel"] == "no, yes"
    assert words["Context exchange"] == "ring"
    assert words["State sharding"] == "none, optimizer in groups of 4"


def test_legends_have_room_for_as_many_rows_as_their_longest_name_makes() -> None:
    # Five short names stand side by side; a long one makes its column as wide as the figure. A row takes 20 pixels.
    assert legend_room([]) == 0
    assert legend_room(["short"] * 5) == 20
    assert legend_room(["short"] * 4 + ["n" * 100]) == 100
    names = ["n" * length for length in range(5, 120, 10)]
    rooms = [legend_room([name] * 12) for name in names]
    assert rooms == sorted(rooms)
    assert rooms[-1] == 12 * 20


def test_a_very_slow_design_does_not_hide_the_others_bars() -> None:
    result = a_result()
    contents = Contents.of(with_points(result, evaluated(result.run, 0, 0.1)))
    data = prepare_why(labelled_points(contents.picks, contents.baseline))
    assert max(bar.step_s for bar in data.bars) == pytest.approx(10240)
    # Of the others the slowest is design 1, with 36 samples/s.
    assert limit_of(data.step_lengths) == pytest.approx(1024 / 36)
    assert [note.text for note in draw_step(data).layout.annotations] == ["10,240 s ▸"]
    # So it is with energy: hosts and static power alone take hundreds of times as much.
    (note,) = draw_energy(data).layout.annotations
    assert note.text.endswith(" J ▸")


def test_memory_is_that_of_the_fullest_stage_against_its_capacity() -> None:
    contents = Contents.of(a_result())
    data = prepare_why(labelled_points(contents.picks, None))
    why = contents.front[0].explanations[0]
    totals = [stage.memory.total_bytes for stage in why.stages]
    assert data.bars[0].fullest_stage == totals.index(max(totals)) + 1
    assert sum(data.bars[0].memory_bytes) == pytest.approx(max(totals))
    assert data.bars[0].capacity_bytes == 32 * GB
    assert draw_memory(data).data[-1].x == (32.0,) * len(data.bars)


def _bar(name: str, unit: str, start_s: float, duration_s: float) -> OperatorBar:
    return OperatorBar(
        name=name,
        unit=unit,
        phase="forward",
        start_s=start_s,
        duration_s=duration_s,
        all_units=False,
        bound_by="HBM",
    )


def test_operators_side_by_side_take_rows_of_their_own_and_fused_ones_two() -> None:
    gantt = _gantt(
        "forward",
        [
            _bar("a", "tensor", 0.0, 2.0),
            _bar("b", "tensor", 1.0, 2.0),
            _bar("c", "tensor", 2.0, 1.0),
            _bar("f", "fused", 3.0, 1.0),
            _bar("n", "network", 0.0, 4.0),
            _bar("nothing", "vector", 0.0, 0.0),
        ],
    )
    assert gantt.rows == ("tensor · 1", "tensor · 2", "vector", "network")
    assert [(bar.operator.name, bar.row) for bar in gantt.bars] == [
        ("a", "tensor · 1"),
        ("n", "network"),
        ("b", "tensor · 2"),
        ("c", "tensor · 1"),
        ("f", "tensor · 1"),
        ("f", "vector"),
    ]
    assert gantt.makespan_s == 4.0


def test_the_gantt_has_every_operator_of_the_block_and_no_row_has_two_at_once() -> None:
    why = Contents.of(a_result()).front[0].explanations[0]
    data = prepare_schedule(why)
    assert [gantt.direction for gantt in data.directions] == ["forward", "backward"]
    for gantt in data.directions:
        assert {bar.operator.name for bar in gantt.bars} == {
            bar.name for bar in why.bars[gantt.direction] if bar.duration_s
        }
        for row in gantt.rows:
            ends = 0.0
            for bar in sorted((b.operator for b in gantt.bars if b.row == row), key=lambda b: b.start_s):
                assert bar.start_s >= ends * (1 - 1e-9)
                ends = bar.start_s + bar.duration_s
    assert len(draw_schedule(data).data) >= 2


def test_two_workloads_have_their_own_columns_and_bars() -> None:
    result = a_result(a_run(a_workload("one"), a_workload("two")))
    contents = Contents.of(result)
    row = contents.front[0].row()
    assert row["one.step_s"] == row["two.step_s"] == pytest.approx(1024 / 55)
    assert "step_s" not in row
    assert len(prepare_why(labelled_points(contents.picks, None)).bars) == 2 * len(by_point(contents.picks))


def test_what_was_not_evaluated_says_who_dominates_it_or_why_not() -> None:
    result = a_result()
    pruned, infeasible = fate_row(result, 5), fate_row(result, 6)
    assert (pruned["fate"], pruned["dominated_by"], pruned["reason"]) == ("pruned", 3, None)
    assert pruned["bound_throughput_samples_per_s"] == pytest.approx(54.0)
    assert (infeasible["fate"], infeasible["dominated_by"]) == ("infeasible", None)
    assert infeasible["bound_throughput_samples_per_s"] is None
    assert "exceeds the budget" in str(infeasible["reason"])


def test_empty_and_single_fronts_have_the_picks_that_make_sense() -> None:
    assert Contents.of(nothing_feasible()).picks == ()
    single = Contents.of(only(a_result(with_baseline=False), 2))
    assert {pick.name: pick.point.id for pick in single.picks} == {"Fastest": 2, "Best per area": 2, "Smallest": 2}


def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(StoreError, match="the report cannot be written"):
        write_report(a_result(), blocked)


def test_the_hand_made_run_is_consistent() -> None:
    # The helpers claim fates; dominance among their points must agree.
    outcome = an_outcome(a_run())
    for i in SPEEDS:
        beaten = any(AREAS[j] <= AREAS[i] and SPEEDS[j] > SPEEDS[i] for j in SPEEDS)
        assert (outcome.fate[i] == Fate.DOMINATED) == beaten
