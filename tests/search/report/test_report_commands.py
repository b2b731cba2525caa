"""``archplace report`` and ``archplace show`` on a stored run."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter
from report_helpers import a_run, an_outcome, evaluated, nothing_feasible

from archplace.cli import main
from archplace.search.outcome import Evaluated, Outcome, Record
from archplace.search.report import FILES
from archplace.search.runfile import Run
from archplace.search.store import Store


def _store(folder: Path, outcome: Outcome | None, points: Sequence[Evaluated] = ()) -> Path:
    run = a_run()
    text = TypeAdapter(Run).dump_json(run).decode()
    with Store.create(folder, digest=run.digest, meta={"name": run.name, "run": text}) as store:
        store.keep_records([Record(architecture=one.architecture, points=(one,)) for one in points], solved=False)
        if outcome is not None:
            store.keep_records(outcome.records.values(), solved=True)
            store.finish(outcome, progress={"phase": "done"})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _store(tmp_path / "run", an_outcome(a_run()))


def test_report_writes_into_the_run_and_prints_the_paths(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(folder / name) for name in FILES]
    assert err == ""
    assert all((folder / name).is_file() for name in FILES)


def test_report_elsewhere_has_the_same_numbers_and_does_not_claim_to_lie_in_the_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "place"
    assert main(["report", str(folder)]) == main(["report", str(folder), "--out", str(out)]) == 0
    capsys.readouterr()
    for name in ("front.csv", "front.json"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert '"beside_run":true' in (folder / "report.html").read_text()
    assert '"beside_run":false' in (out / "report.html").read_text()


def test_report_of_nothing_feasible_is_written_and_says_so_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _store(tmp_path / "run", nothing_feasible().outcome)
    assert main(["report", str(folder)]) == 3
    assert (folder / "report.html").is_file()
    capsys.readouterr()
    assert main(["show", str(folder)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing is feasible" in err
    assert "needs at least 90.1 GB" in err
    assert main(["show", str(folder), "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("command", ["report", "show"])
def test_a_folder_without_a_run_is_a_usage_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path / "nowhere")]) == 2
    assert "no run here" in capsys.readouterr().err


def test_a_run_that_is_not_finished_shows_what_was_evaluated_and_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 36 samples/s on 200 mm² dominate 30 on 250; what designs 0, 2 and 3 would do is not known yet.
    run = a_run()
    folder = _store(tmp_path / "run", None, [evaluated(run, 1, 36.0), evaluated(run, 4, 30.0)])
    assert main(["show", str(folder)]) == 4
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["id", "1"]
    assert "not finished: 2 of 8 architectures" in err
    assert f"archplace search hand-made.yaml --out {folder}" in err
    assert main(["show", str(folder), "4"]) == 4
    assert "design 4: dominated by design 1" in capsys.readouterr().out
    assert main(["show", str(folder), "0", "--format", "json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["fate"], document["bound"], document["dominated_by"]) == ("open", None, None)
    assert main(["report", str(folder)]) == 4
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(folder / name) for name in FILES]
    assert "not finished" in err
    report = json.loads((folder / "front.json").read_text())
    assert "2 of 8 architectures" in report["warning"]
    assert [row["id"] for row in report["front"]] == [1]
    assert report["counts"]["undecided"] == 6
    assert "The run is not finished" in (folder / "report.html").read_text()


def test_a_run_that_has_evaluated_nothing_yet_has_an_empty_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _store(tmp_path / "run", None)
    assert main(["show", str(folder), "--format", "json"]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out) == []
    assert "nothing is feasible" not in err
    assert main(["report", str(folder)]) == 4
    assert "Nothing has been evaluated yet" in (folder / "report.html").read_text()


def test_show_lists_the_front_fastest_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["id", "samples/s", "area_mm2"]
    assert [line.split()[0] for line in lines[1:]] == ["3", "2", "1", "0"]
    assert main(["show", str(folder), "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert float(rows[0]["throughput_samples_per_s"]) == pytest.approx(55)
    assert "tensor_parallel_communication_s" in rows[0]


def test_show_prints_a_whole_design(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "3"]) == 0
    text = capsys.readouterr().out
    for phrase in (
        "design 3: on the front",
        "Architecture",
        "Placement",
        "Time of a step",
        "Energy per sample, all accelerators",
        "samples per USD",
        "area budget left (%)",
        "Memory per device by stage",
    ):
        assert phrase in text
    assert main(["show", str(folder), "3", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["id"] == 3
    workload = document["workloads"][0]
    assert sum(workload["parts_s"].values()) == pytest.approx(workload["step_s"]) == pytest.approx(1024 / 55)
    assert [(stage["stage"], stage["recompute"]) for stage in workload["stages"]] == [(i, "full") for i in (1, 2, 3, 4)]
    assert workload["placement"]["strategy"] == "tp1 pp4 dp16 mbs1 1f1b"
    assert main(["show", str(folder), "3", "--format", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == document


def test_show_says_what_became_of_architectures_off_the_front(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "4"]) == 0
    assert "design 4: dominated by design 1" in capsys.readouterr().out
    assert main(["show", str(folder), "5"]) == 0
    text = capsys.readouterr().out
    assert (
        "no placement can give it more than 54 samples/s, and design 3 is at least as good in every objective" in text
    )
    assert main(["show", str(folder), "6"]) == 0
    assert "Infeasible: area 600.0 mm² exceeds the budget of 550.0 mm²" in capsys.readouterr().out
    assert main(["show", str(folder), "5", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["fate"], document["dominated_by"]) == ("pruned", 3)


@pytest.mark.parametrize("wrong", ["8", "8.1", "-1", "x", "1.", "²", ""])
def test_show_refuses_an_unknown_number_with_the_valid_range(
    wrong: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(folder), "--", wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"found {wrong!r}; allowed are 0 to 7" in err


def test_show_refuses_a_further_design_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, known in (("1.5", "of architecture 1 are: 1"), ("5.1", "of architecture 5 are: none")):
        assert main(["show", str(folder), wrong]) == 2
        assert known in capsys.readouterr().err


def test_show_says_that_there_is_no_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "baseline"]) == 2
    assert "the run names none" in capsys.readouterr().err
