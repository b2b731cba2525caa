"""Runs that are killed, interrupted, starved of disk space or disturbed end as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from survival_helpers import (
    MANY,
    PORTFOLIO,
    SMALL,
    TABLES,
    count,
    in_child,
    living,
    n_steps,
    rows,
    search,
    search_and_die,
    search_while_the_clock_jumps,
    search_with_little_room,
    write_run,
)

from archplace.cli import main
from archplace.search.report import FILES
from archplace.search.status import State, read_status
from archplace.search.store import FILE, Store

COMMAND = [sys.executable, "-m", "archplace"]


def start(run, out, *arguments):
    """Start a search as a user does, as the head of a process group like a terminal's."""
    return subprocess.Popen(
        [*COMMAND, "search", str(run), "--out", str(out), "--jobs", "2", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@dataclass
class Whole:
    """An uninterrupted search, and what was seen while it ran."""

    run: object
    out: object
    seconds: float
    code: int
    printed: str
    error: str
    statuses: list
    second: subprocess.CompletedProcess


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run, out = write_run(folder, PORTFOLIO), folder / "out"
    started = time.monotonic()
    process = start(run, out)
    first = process.stderr.readline()
    second = start(run, out)
    statuses = []
    while process.poll() is None:
        statuses.append(read_status(out))
        time.sleep(0.1)
    seconds = time.monotonic() - started
    printed, error = process.communicate(timeout=60)
    statuses.append(read_status(out))
    refused, reason = second.communicate(timeout=60)
    assert main(["report", str(out)]) == 0
    return Whole(
        run=run,
        out=out,
        seconds=seconds,
        code=process.returncode,
        printed=printed,
        error=first + error,
        statuses=statuses,
        second=subprocess.CompletedProcess(second.args, second.returncode, refused, reason),
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small run, searched without interruption."""
    folder = tmp_path_factory.mktemp("small")
    run = write_run(folder, SMALL, counts="[2, 8]")
    assert in_child(search, run, folder / "out") == 0
    return run, folder / "out"


def same(one, other):
    """Whether two stores hold the same result, byte for byte; the rows of tables that differ are told apart."""
    left, right = rows(one), rows(other)
    return [table for table in TABLES if left[table] != right[table]] == []


def kill_at(step, pause, run, out):
    """Let a run go on and kill it when it has made so many steps, or fewer where it would end before the kill."""
    backup = out.with_suffix(".backup")
    shutil.rmtree(backup, ignore_errors=True)
    if out.exists():
        shutil.copytree(out, backup)
    while True:
        process = start(run, out)
        while n_steps(out) < step and process.poll() is None:
            time.sleep(0.01)
        time.sleep(pause)
        process.kill()
        process.communicate()
        assert n_steps(out) >= step
        if not rows(out)["outcome"]:
            return
        # A slow machine: the kill came when all was done. As if it had not been started, and sooner.
        shutil.rmtree(out)
        assert step > 1
        if backup.exists():
            shutil.copytree(backup, out)
        step, pause = step // 2, 0.0


def test_killed_at_random_moments_the_run_ends_the_same(whole, tmp_path):
    out = tmp_path / "out"
    numbers = random.Random(3)
    # Not by the clock, which would kill a slow machine's runs early and a fast one's never.
    for step in sorted(numbers.sample(range(n_steps(whole.out)), 4)):
        kill_at(step, numbers.uniform(0, 0.2), whole.run, out)
    before, records = rows(out, with_rowid=True), count(out, "records", "scope = ''")
    process = start(whole.run, out)
    printed, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    after = rows(out, with_rowid=True)
    for table in ("bounds", "records", "schedules"):
        # The same place, the same bytes: what was stored has not been written again.
        assert set(before[table]) <= set(after[table])
    with Store.open(out) as store:
        (answers,) = store.logged("answers")
    assert answers["records_stored"] == records
    assert answers["records_computed"] == count(out, "records", "scope = ''") - records
    assert same(out, whole.out)
    assert printed == whole.printed
    assert main(["report", str(out)]) == 0
    for name in FILES:
        assert (out / name).read_bytes() == (whole.out / name).read_bytes()


def test_killed_around_every_transaction_nothing_stored_is_computed_again(small, tmp_path):
    """Before, inside and after each one in turn: each attempt gets one transaction further or loses just that one."""
    run, whole_out = small
    out, log = tmp_path / "out", tmp_path / "computed"
    before, seen, deaths, file = {table: [] for table in TABLES}, 0, 0, b""
    log.touch()
    while True:
        moment = ("before", "inside", "after")[deaths % 3]
        # The first transaction makes the store; a process that finds it begins with its first answer.
        code = in_child(search_and_die, run, out, 1, moment, log)
        computed = [json.loads(line) for line in log.read_text().splitlines()]
        stored = {(row[2], row[3]) for row in before["records"]}
        for what in computed[seen:]:
            assert what == "bounds" or (what[1], what[2]) not in stored
        seen = len(computed)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        deaths += 1
        after = rows(out, with_rowid=True) if count(out, "sqlite_master") else before
        for table in ("bounds", "records", "schedules"):
            assert set(before[table]) <= set(after[table])
        # SQLite counts transactions in the file's head: each attempt that ends after one has got further.
        assert (before == after) or moment == "after"
        assert (file != (out / FILE).read_bytes()) == (moment == "after") or deaths == 1
        before, file = after, (out / FILE).read_bytes()
        assert deaths < 200
    assert deaths >= 3 * 6
    assert same(out, whole_out)
    # Of three attempts at each step, one is lost before and one inside its transaction.
    assert seen <= 3 * (count(out, "records") + count(out, "bounds"))


def test_a_finished_run_is_not_computed_again(small, tmp_path, capsys):
    run, out = small
    log = tmp_path / "computed"
    before = (out / FILE).read_bytes()
    assert in_child(search_and_die, run, out, 0, "never", log) == 0
    assert not log.exists()
    assert search(run, out) == 0
    captured = capsys.readouterr()
    assert "is finished" in captured.err
    assert len(captured.out.splitlines()) > 1
    assert (out / FILE).read_bytes() == before


@pytest.mark.parametrize(("share", "designs"), [(0.1, False), (0.48, False), (0.75, True)])
def test_a_full_disk_stops_the_run_which_then_ends_the_same(small, tmp_path, share, designs):
    # There is room for a share of the whole store: not for its tables, for bounds alone, for some designs.
    run, whole_out = small
    out = tmp_path / "out"
    n_bytes = int(share * (whole_out / FILE).stat().st_size)
    assert in_child(search_with_little_room, run, out, n_bytes) == 4
    stored = count(out, "records") if count(out, "sqlite_master") else 0
    assert (stored > 0) == designs
    assert in_child(search, run, out) == 0
    assert same(out, whole_out)


def test_a_full_disk_is_told_with_what_to_do(small, tmp_path):
    run, _ = small
    out = tmp_path / "out"
    script = (
        "import resource, sys; from archplace.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (70000, 70000)); sys.exit(main(sys.argv[1:]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, "search", str(run), "--out", str(out), "--jobs", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 4
    assert "is the disk full?" in result.stderr
    assert f"archplace search {run} --out {out} --jobs 1" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_with_processes_at_work_it_says_how_to_go_on(tmp_path, number):
    run, out = write_run(tmp_path, MANY), tmp_path / "a folder"
    process = start(run, out, "--effort", "normal", "--format", "json")
    assert workers(process)
    # A terminal sends Ctrl-C to the whole group, the processes that solve schedules included.
    os.killpg(process.pid, number)
    printed, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert f"archplace search {run} --out '{out}' --effort normal --jobs 2 --format json" in error
    assert "Traceback" not in error
    assert printed == ""
    wait_for_the_end(process.pid)
    status = read_status(out)
    assert status.state is State.INTERRUPTED
    assert status.remaining_s is None
    assert status.resume is not None
    assert status.resume.endswith("--jobs 2 --format json")


def workers(process):
    """Return the processes that solve schedules, as soon as there are any."""
    limit = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < limit:
        if found := living(process.pid, called="spawn_main"):
            return found
        time.sleep(0.02)
    process.kill()
    pytest.fail("no process has been started to solve schedules")


def wait_for_the_end(group, seconds=10):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and living(group):
        time.sleep(0.1)
    assert living(group) == []


def test_killed_processes_leave_none_behind_and_cost_their_work_not_the_run(tmp_path):
    run, out = write_run(tmp_path, MANY, counts="[1, 2]"), tmp_path / "out"
    process = start(run, out)
    assert workers(process)
    process.kill()
    process.communicate(timeout=30)
    wait_for_the_end(process.pid)
    process = start(run, out)
    for number in workers(process):
        os.kill(number, signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "Traceback" not in error
    assert in_child(search, run, tmp_path / "alone") == 0
    assert same(out, tmp_path / "alone")


def test_an_uninterrupted_run_is_quiet_and_done(whole):
    assert whole.code == 0
    assert "nan" not in whole.error
    assert "Traceback" not in whole.error
    with Store.open(whole.out) as store:
        answers = store.logged("answers")
    assert answers == [
        {
            "bounds_stored": 0,
            "bounds_computed": count(whole.out, "bounds", "scope = ''"),
            "records_stored": 0,
            "records_computed": count(whole.out, "records", "scope = ''"),
        }
    ]


def test_a_second_process_is_refused_and_the_first_goes_on(whole):
    assert whole.second.returncode == 2
    assert "another process is writing here" in whole.second.stderr
    assert whole.second.stdout == ""
    assert whole.code == 0


def test_the_status_of_a_run_in_progress(whole):
    states = [status.state for status in whole.statuses]
    running = states.count(State.RUNNING)
    assert running > 1
    assert states == [State.RUNNING] * running + [State.DONE] * (len(states) - running)
    assert whole.statuses[-1].phase == "done"
    shares = [status.hypervolume for status in whole.statuses if status.hypervolume is not None]
    assert shares[-1] > 0
    # It never falls, but for the last bits of a sum in another order.
    assert all(later >= earlier * (1 - 1e-12) for earlier, later in pairwise(shares))
    elapsed = [status.elapsed_s for status in whole.statuses]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] <= whole.seconds
    evaluated = [status.evaluated for status in whole.statuses]
    assert evaluated == sorted(evaluated)
    assert all(sum(status.fates.values()) == status.total for status in whole.statuses)
    assert all(status.resume is None for status in whole.statuses)


def test_a_clock_that_jumps_changes_nothing(small, tmp_path):
    run, whole_out = small
    out = tmp_path / "out"
    started = time.monotonic()
    assert in_child(search_while_the_clock_jumps, run, out) == 0
    seconds = time.monotonic() - started
    assert same(out, whole_out)
    status = read_status(out)
    assert 0 < status.elapsed_s <= seconds
    assert status.noted_s_ago is not None
    assert status.noted_s_ago >= 0
