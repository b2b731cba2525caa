"""Shards of a run: together they find what one process finds, and a merge takes nothing else."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from farm_cluster import RUN, SPACE, wait_until, write_run
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs.errors import ConfigError, StoreError
from archplace.cli import main
from archplace.search.certify import certify
from archplace.search.merge import merge
from archplace.search.outcome import Fate
from archplace.search.run import RunSearch, open_result
from archplace.search.runfile import load_run
from archplace.search.shards import EXCHANGE, FrontExchange, Shard, run_shard, shown_of, start_shard
from archplace.search.store import Store


@given(n_archs=st.integers(0, 200), count=st.integers(1, 30))
def test_every_architecture_is_in_one_shard(n_archs, count):
    shards = [Shard(number=number, count=count) for number in range(1, count + 1)]
    times = np.sum([shard.members(n_archs) for shard in shards], axis=0)
    np.testing.assert_array_equal(times, np.ones(n_archs))
    sizes = [int(shard.members(n_archs).sum()) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "-1/3", "1/3/5", "1/0", "a/b", "1/99999", " 1/3", "１/3"])
def test_what_names_no_shard(text):
    with pytest.raises(ConfigError, match=r"--shard: found .* needs i/n"):
        Shard.parse(text)


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def job(run_file):
    return load_run(run_file)


def offering(job, **axes):
    return replace(job.choices, axes=replace(job.choices.axes, **axes))


def in_one(job, folder):
    with RunSearch.start(job, folder) as search:
        return search.run(lambda _: None, jobs=1)


@pytest.fixture(scope="module")
def expected(job, tmp_path_factory):
    return in_one(job, tmp_path_factory.mktemp("one"))


def shard_of(job, root, number, count, *, on_progress=lambda _: None):
    said = []
    shard = Shard(number=number, count=count)
    with start_shard(job, root, shard) as search:
        outcome = run_shard(search, root, shard, on_progress, say=said.append, jobs=1)
    return outcome, said


@pytest.fixture(scope="module")
def three(job, tmp_path_factory):
    """Three finished shards."""
    root = tmp_path_factory.mktemp("three")
    for number in (1, 2, 3):
        _, said = shard_of(job, root, number, 3)
        assert said == []
    return root


@pytest.fixture
def root(three, tmp_path):
    shutil.copytree(three, tmp_path / "run")
    return tmp_path / "run"


def shown(root, number, count):
    with Store.open(root / f"shard-{number}-of-{count}") as store:
        found, step = [], 0
        while (told := store.text(f"{EXCHANGE} {step}")) is not None:
            found.append(shown_of(told))
            step += 1
    return found


def test_three_shards_find_the_front_of_one_process(root, expected):
    outcome = merge(root)
    assert outcome.front == expected.front
    result = open_result(root)
    assert result.outcome.front == expected.front
    np.testing.assert_array_equal(result.outcome.fate == Fate.FRONT, expected.fate == Fate.FRONT)
    np.testing.assert_array_equal(result.outcome.fate == Fate.INFEASIBLE, expected.fate == Fate.INFEASIBLE)
    certificate = certify(root, jobs=1)
    assert certificate.holds, certificate.failures
    # Merging again changes nothing.
    assert merge(root).front == expected.front


def test_shards_are_spared_what_others_have_found(root, job, tmp_path):
    assert sum(len(step) for step in shown(root, 1, 3)) == 0
    assert sum(len(step) for step in shown(root, 2, 3)) > 0
    alone, _ = shard_of(job, tmp_path / "alone", 3, 3)
    with Store.open(root / "shard-3-of-3") as store:
        assert store.n_evaluated < len(alone.records)


def test_a_shard_that_is_interrupted_sees_the_same_again(root, job, tmp_path):
    class StopError(Exception):
        pass

    def stop(progress):
        if progress.evaluated:
            raise StopError

    again = tmp_path / "again"
    shutil.copytree(root / "fronts", again / "fronts")
    (again / "fronts" / "shard-2-of-3.json").unlink()
    (again / "fronts" / "shard-3-of-3.json").unlink()
    with pytest.raises(StopError):
        shard_of(job, again, 2, 3, on_progress=stop)
    before = shown(again, 2, 3)
    # What it was shown before is stored: other fronts that have come since are for later steps.
    shutil.copy(root / "fronts" / "shard-3-of-3.json", again / "fronts")
    (again / "fronts" / "shard-1-of-3.json").unlink()
    shard_of(job, again, 2, 3)
    assert shown(again, 2, 3)[: len(before)] == before
    for number in (1, 3):
        shutil.copytree(root / f"shard-{number}-of-3", again / f"shard-{number}-of-3")
    outcome = merge(again)
    mine = Shard(number=2, count=3).members(len(outcome.fate))
    front = [point for point in outcome.front if mine[point.architecture]]
    assert front == [point for point in merge(root).front if mine[point.architecture]]


def test_a_shard_killed_in_mid_run_goes_on(run_file, job, expected, tmp_path):
    root = tmp_path / "run"
    command = [sys.executable, "-m", "archplace", "search", str(run_file), "--out", str(root), "--jobs", "1"]
    process = subprocess.Popen([*command, "--shard", "1/2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shown_front = root / "fronts" / "shard-1-of-2.json"
    wait_until(lambda: shown_front.exists() or process.poll() is not None)
    process.kill()
    process.wait()
    shard_of(job, root, 2, 2)
    with pytest.raises(StoreError, match=r"shard 1 of 2 is not finished; go on with: .*archplace search .*--shard 1/2"):
        merge(root)
    shard_of(job, root, 1, 2)
    assert merge(root).front == expected.front


def forged(content, how):
    points = content["points"]
    changes = {
        "another run": {"digest": "0" * 64},
        "another version": {"version": "0.0.9"},
        "another shard": {"shard": "shard-2-of-3"},
        "too good": {"points": [[i, n, [values[0] / 100, values[1]]] for i, n, values in points]},
        "not of that shard": {"points": [[i + 1, n, values] for i, n, values in points]},
        "no such architecture": {"points": [[10**6, n, values] for i, n, values in points]},
        "no numbers": {"points": [[i, n, [float("nan"), 1.0]] for i, n, _ in points]},
        "one number": {"points": [[i, n, values[:1]] for i, n, values in points]},
        "no points": {"points": {"a": 1}},
        "text": {"points": "abc"},
    }
    return json.dumps(content | changes[how])


KINDS = ["truncated", "empty", "a list", "binary", "another run", "another version", "another shard", "too good"]
KINDS += ["not of that shard", "no such architecture", "no numbers", "one number", "no points", "text"]


def test_a_front_that_is_none_is_ignored_with_a_warning(root, job, tmp_path):
    shard = Shard(number=2, count=3)
    good = (root / "fronts" / "shard-1-of-3.json").read_text()
    path = tmp_path / "fronts" / "shard-1-of-3.json"
    path.parent.mkdir()
    with start_shard(job, tmp_path, shard) as search:
        said = []
        exchange = FrontExchange(search, tmp_path, shard, said.append)
        raw = {"truncated": good[:-20].encode(), "empty": b"", "a list": b"[1, 2]", "binary": b"\xff\x00"}
        for number, how in enumerate(KINDS, 1):
            path.write_bytes(raw[how] if how in raw else forged(json.loads(good), how).encode())
            assert len(exchange.exchange([])) == 0, how
            assert len(said) == number, how
            assert str(path) in said[-1]
            assert "ignored" in said[-1]
        path.write_text(good)
        assert len(exchange.exchange([])) == len(json.loads(good)["points"])
        assert len(said) == len(KINDS)


def test_several_workloads_are_measured_by_the_same_references(tmp_path):
    text = RUN.replace("workload: bert-large", "workloads: [bert-large, opt-350m]")
    text += "  objectives: [throughput, worst_case, area]\n"
    text = text.replace("[1, 2]", "[2]")
    space = SPACE.replace("[16 MiB, 32 MiB]", "[32 MiB]").replace("[2, 3]", "[2]")
    job = load_run(write_run(tmp_path, run=text, space=space))
    expected = in_one(job, tmp_path / "one")
    root = tmp_path / "run"
    for number in (1, 2):
        _, said = shard_of(job, root, number, 2)
        assert said == []
    outcome = merge(root)
    assert outcome.references_s == expected.references_s
    assert outcome.front == expected.front
    with Store.open(root / "shard-2-of-2") as store:
        # The first shard has found them; the second one has not.
        assert store.text("references_s") == list(expected.references_s)
        assert not store.records(solved=False, scope="bert-large by itself")


def test_a_quick_run_states_its_gap(job, tmp_path):
    quick = replace(job, effort="quick", choices=offering(job, tensor=(2,)))
    for number in (1, 2):
        shard_of(quick, tmp_path, number, 2)
    outcome = merge(tmp_path)
    assert outcome.gap is not None
    assert 0 <= max(outcome.gap) <= quick.tolerance * (1 + 1e-9)
    certificate = certify(tmp_path, jobs=1)
    assert certificate.holds, certificate.failures


def test_missing_shards_are_named_with_the_command_that_makes_them(root):
    shutil.rmtree(root / "shard-2-of-3")
    with pytest.raises(StoreError, match="shard 2 of 3 is missing; make it with: archplace search"):
        merge(root)
    with pytest.raises(StoreError, match="no shards of a run here"):
        merge(root / "fronts")


def test_shards_of_another_run_are_refused(root, job):
    other = replace(job, choices=offering(job, microbatch=(1,)))
    shutil.rmtree(root / "shard-2-of-3")
    shard_of(other, root, 2, 3)
    with pytest.raises(StoreError, match="shard 2 of 3 is of other inputs than shard 1 of 3"):
        merge(root)
    shard_of(job, root, 1, 2)
    with pytest.raises(StoreError, match="holds shards of runs in 2 and 3 parts"):
        merge(root)


def test_a_shard_under_another_name_or_of_another_version_is_refused(root):
    shutil.rmtree(root / "shard-2-of-3")
    shutil.copytree(root / "shard-1-of-3", root / "shard-2-of-3")
    with pytest.raises(StoreError, match="not shard 2 of 3"):
        merge(root)
    with Store.open(root / "shard-1-of-3") as store, store._writing() as connection:
        connection.execute("update meta set value = '\"0.0.9\"' where key = 'version'")
    with pytest.raises(StoreError, match=r"of archplace 0\.0\.9"):
        merge(root)


def test_what_was_left_out_for_a_design_that_nobody_has_is_found(root):
    with Store.open(root / "shard-2-of-3") as store:
        told = [[1, 0, 0, [1e-9, 1e-9]]]
        store.keep_text(f"{EXCHANGE} 0", told)
    with pytest.raises(StoreError, match="shard 2 of 3 was shown design 0 by shard 1, which has none as good"):
        merge(root)


def test_a_shard_alone_is_not_taken_for_the_run(root, capsys):
    for command in ("show", "report", "certify"):
        assert main([command, str(root / "shard-1-of-3")]) == 2
        assert "archplace merge" in capsys.readouterr().err
        assert main([command, str(root)]) == 2
        assert "archplace merge" in capsys.readouterr().err


def test_the_command_prints_what_a_search_prints(run_file, root, tmp_path, capsys):
    assert main(["search", str(run_file), "--out", str(tmp_path / "one"), "--format", "json", "--jobs", "1"]) == 0
    front = capsys.readouterr().out
    assert main(["merge", str(root), "--out", str(tmp_path / "merged"), "--format", "json"]) == 0
    assert capsys.readouterr().out == front
    assert main(["status", str(tmp_path / "merged")]) == 0
    assert "done" in capsys.readouterr().out
    assert main(["search", str(run_file), "--out", str(tmp_path / "x"), "--shard", "3/2"]) == 2
    assert "--shard: found '3/2'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
