"""`archplace status`, as a user reads it."""

import csv
import io
import json
import threading
import time

import pytest
import yaml
from survival_helpers import PORTFOLIO, SMALL, write_run

from archplace.cli import main
from archplace.cli._progress import duration_text, progress_text, share_text
from archplace.search.objectives import Objectives
from archplace.search.outcome import Progress
from archplace.search.run import RunSearch
from archplace.search.runfile import load_run
from archplace.search.store import FILE, Store


class Stop(Exception):  # noqa: N818  # it stands for a kill
    """The run ends here."""


def run_until(run, out, wanted, command=None):
    """Search until the progress is as ``wanted``, and no further."""

    def look(progress):
        if wanted(progress):
            raise Stop

    with RunSearch.start(load_run(run), out) as search:
        if command is not None:
            search.note_command(command)
        with pytest.raises(Stop):
            search.run(look, jobs=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run = write_run(folder, SMALL, counts="[2, 8]")
    assert main(["search", str(run), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted")
    run = write_run(folder, SMALL, counts="[2, 8]")
    out = folder / "out"
    run_until(run, out, lambda progress: progress.phase == "schedules", f"archplace search {run} --out {out} --jobs 7")
    return out


def status(folder, capsys, *arguments, style="json"):
    assert main(["status", str(folder), "--format", style, *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_a_finished_run(finished, capsys):
    row = json.loads(status(finished, capsys))
    assert main(["show", str(finished), "--format", "json"]) == 0
    front = json.loads(capsys.readouterr().out)
    assert row["state"] == row["phase"] == "done"
    assert row["front_points"] == len(front)
    assert row["best_throughput_samples_per_s"] == max(point["throughput_samples_per_s"] for point in front)
    assert row["best_area_mm2"] == min(point["area_mm2"] for point in front)
    fates = {key: value for key, value in row.items() if key.startswith("fate_")}
    assert sum(fates.values()) == row["architectures"] == row["decided"] == row["bounded"]
    assert fates["fate_open"] == 0
    assert row["evaluated"] == fates["fate_front"] + fates["fate_dominated"]
    assert 0 < row["hypervolume"] < 1
    assert row["architectures_per_s"] == pytest.approx(row["architectures"] / row["elapsed_s"])
    assert row["phase_remaining_s"] is None
    assert row["resume"] is None


def test_an_interrupted_run_says_how_to_go_on(interrupted, capsys):
    row = json.loads(status(interrupted, capsys))
    assert row["state"] == "interrupted"
    assert row["phase"] == "schedules"
    assert row["schedules_to_close"] > 0
    assert row["phase_remaining_s"] is None
    assert row["resume"].endswith(f"--out {interrupted} --jobs 7")
    text = status(interrupted, capsys, style="table")
    assert "interrupted" in text
    assert row["resume"] in text
    assert f"{row['best_throughput_samples_per_s']:.4g} samples/s" in text
    assert f"{row['hypervolume']:.6f}" in text


def test_from_another_folder_it_says_where_to_go(interrupted, capsys, monkeypatch, tmp_path):
    here = json.loads(status(interrupted, capsys))["resume"]
    monkeypatch.chdir(tmp_path)
    there = json.loads(status(interrupted, capsys))["resume"]
    assert there.startswith("cd ")
    assert there.endswith(f" && {here}")


def test_formats_agree(finished, capsys, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 2e9)
    row = json.loads(status(finished, capsys))
    assert yaml.safe_load(status(finished, capsys, style="yaml")) == row
    (cells,) = csv.DictReader(io.StringIO(status(finished, capsys, style="csv")))
    assert cells == {key: "" if value is None else str(value) for key, value in row.items()}


@pytest.mark.parametrize("jump_s", [-1e9, 1e9])
def test_no_age_is_negative_after_the_clock_was_set(interrupted, capsys, monkeypatch, jump_s):
    before = json.loads(status(interrupted, capsys))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump_s)
    after = json.loads(status(interrupted, capsys))
    assert after.pop("noted_s_ago") >= 0
    before.pop("noted_s_ago")
    assert after == before


def test_a_run_that_has_just_begun(tmp_path, capsys):
    run = write_run(tmp_path, SMALL)
    out = tmp_path / "out"
    with RunSearch.start(load_run(run), out):
        row = json.loads(status(out, capsys))
        assert row["state"] == "running"
        assert row["phase"] == "start"
        assert row["hypervolume"] is None
        assert row["best_area_mm2"] is None
        assert "nothing is noted yet" in status(out, capsys, style="table")
    assert json.loads(status(out, capsys))["state"] == "interrupted"


def test_while_the_workloads_of_a_portfolio_are_explored_alone(tmp_path, capsys):
    run = write_run(tmp_path, PORTFOLIO, counts="[2]")
    out = tmp_path / "out"
    run_until(run, out, lambda progress: progress.phase == "opt-350m by itself: schedules")
    row = json.loads(status(out, capsys))
    assert row["phase"] == "opt-350m by itself: schedules"
    # What one workload alone reaches is no design point of the run.
    assert row["front_points"] == row["evaluated"] == 0
    assert row["best_worst_relative_throughput"] is None
    assert row["hypervolume"] is None


def test_watching_ends_with_the_run(tmp_path, capsys):
    run = write_run(tmp_path, SMALL, counts="[2, 8]")
    out = tmp_path / "out"
    begun = threading.Event()

    def search():
        with RunSearch.start(load_run(run), out) as found:
            begun.set()
            found.run(lambda _: None, jobs=1)

    thread = threading.Thread(target=search)
    thread.start()
    assert begun.wait(30)
    lines = [json.loads(line) for line in status(out, capsys, "--watch", "0.1").splitlines()]
    thread.join(30)
    assert not thread.is_alive()
    assert lines[0]["state"] == "running"
    assert lines[-1]["state"] == "done"
    decided = [line["decided"] for line in lines]
    assert decided == sorted(decided)


def test_watching_what_has_ended_ends_at_once(finished, capsys):
    assert len(status(finished, capsys, "--watch").splitlines()) == 1
    (cells,) = csv.DictReader(io.StringIO(status(finished, capsys, "--watch", style="csv")))
    assert cells["state"] == "done"


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_watching_too_often_is_refused(finished, capsys, seconds):
    assert main(["status", str(finished), "--watch", seconds]) == 2
    assert "--watch" in capsys.readouterr().err


def test_where_there_is_no_run(tmp_path, capsys):
    assert main(["status", str(tmp_path)]) == 2
    assert "no run here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store(finished, tmp_path, capsys):
    content = (finished / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[: len(content) // 2])
    assert main(["status", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert FILE in error
    assert "Traceback" not in error


def test_looking_changes_nothing(interrupted, capsys):
    before = {path.name: path.read_bytes() for path in interrupted.iterdir()}
    status(interrupted, capsys)
    assert {path.name: path.read_bytes() for path in interrupted.iterdir()} == before


def test_a_run_that_was_read_back_is_not_noted_again(finished, capsys):
    with Store.open(finished) as store:
        before = store.progress()
    row = json.loads(status(finished, capsys))
    with Store.open(finished) as store:
        assert store.progress() == before
    assert before is not None
    assert row["elapsed_s"] == before["elapsed_s"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 3600 * 4, "3 d 4 h"),
    ],
)
def test_durations_in_words(seconds, text):
    assert duration_text(seconds) == text


def test_a_share_is_whole_only_when_all_are_done():
    assert share_text(0, 29360) == "0/29,360 (0.0 %)"
    assert share_text(29359, 29360) == "29,359/29,360 (99.9 %)"
    assert share_text(29360, 29360) == "29,360/29,360 (100.0 %)"
    assert share_text(0, 0) == "0/0 (100.0 %)"


def test_the_progress_in_words():
    objectives = Objectives.of(["throughput", "area"])
    early = Progress(
        phase="bounds",
        bounded=500,
        decided=0,
        total=2000,
        evaluated=0,
        front=0,
        best=(float("nan"), float("nan")),
        fates=(2000, 0, 0, 0, 0),
        unproven=0,
        elapsed_s=0.5,
    )
    assert progress_text(early, objectives) == "bounds: 500/2,000 (25.0 %) architectures bounded, 1,000/s"
    late = Progress(
        phase="evaluation",
        bounded=2000,
        decided=1500,
        total=2000,
        evaluated=100,
        front=7,
        best=(0.002, 123.4),
        fates=(500, 7, 93, 1400, 0),
        unproven=3,
        elapsed_s=3.0,
        remaining_s=75.0,
    )
    assert progress_text(late, objectives) == (
        "evaluation: 1,500/2,000 (75.0 %) architectures decided, 100 evaluated, 500/s, ETA 1 min 15 s; front 7, "
        "best 500 samples/s, 123.4 mm²"
    )
