"""A farm of real processes finds what one process finds, whatever happens to its workers."""

import threading

import numpy as np
import pytest
from farm_cluster import SPACE, cluster, wait_until, write_run

from archplace.arch_configs.errors import ConfigError, StoppedError
from archplace.search.farm import dask_workers, dispatch
from archplace.search.farm import engine as farm_engine
from archplace.search.farm.engine import dask_engine
from archplace.search.run import RunSearch
from archplace.search.runfile import load_run

HANGS = """
import pathlib, time
from archplace.search.farm import answers

honest, count = honest_one(answers), 0

def answer(work, question):
    global count
    count += 1
    if count < 3:
        return honest(work, question)
    pathlib.Path(r"{mark}").touch()
    time.sleep(600)

answers.answer = answer
"""

DIES = """
import os, signal
from archplace.search.farm import answers

def answer(work, question):
    os.kill(os.getpid(), signal.SIGKILL)

answers.answer = answer
"""

HUNGRY = """
import resource
import numpy
from archplace.search.farm import answers

honest = honest_one(answers)

def answer(work, question):
    if len(question) <= 2:
        return honest(work, question)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28, -1))
    try:
        return numpy.ones(2**30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))

answers.answer = answer
"""

LIES = """
from dataclasses import replace
from archplace.search.farm import answers

honest, count = honest_one(answers), 0

def answer(work, question):
    global count
    count += 1
    found = honest(work, question)
    if isinstance(found, answers.BoundBlock):
        # Numbers that could be bounds: only computing them anew tells.
        return replace(found, values=found.values * [1.5, 1.0])
    return ["nonsense", None][count % 2]

answers.answer = answer
"""

OTHER_VERSION = """
import importlib.metadata
importlib.metadata.version = lambda name: "0.0.9"
"""


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    """A scheduler with two good workers."""
    with cluster(tmp_path_factory.mktemp("farm")) as made:
        made.start_workers(one="", two="")
        yield made


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A run of 24 architectures."""
    space = SPACE.replace("[2, 3]", "[2]")
    return load_run(write_run(tmp_path_factory.mktemp("run"), space=space))


def explored(job, folder, **how):
    with RunSearch.start(job, folder) as search:
        outcome = search.run(lambda _: None, **how)
        return outcome, dict(search.cache.schedules)


@pytest.fixture(scope="module")
def expected(job, tmp_path_factory):
    return explored(job, tmp_path_factory.mktemp("local"), jobs=1)


@pytest.fixture(autouse=True)
def small_questions(monkeypatch):
    """Make many questions of a small run."""
    monkeypatch.setattr(farm_engine, "BOUNDED", (4, 4))
    monkeypatch.setattr(farm_engine, "EVALUATED", (3, 3))
    monkeypatch.setattr(farm_engine, "SOLVED", 2)


def assert_same(found, expected):
    (outcome, schedules), (other, others) = found, expected
    np.testing.assert_array_equal(outcome.fate, other.fate)
    np.testing.assert_array_equal(outcome.bound, other.bound)
    np.testing.assert_array_equal(outcome.bound_kind, other.bound_kind)
    assert outcome.front == other.front
    assert outcome.records == other.records
    assert schedules.keys() == others.keys()
    for key, schedule in schedules.items():
        assert schedule.makespan_s == others[key].makespan_s
        np.testing.assert_array_equal(schedule.start_s, others[key].start_s)


def on_farm(farm, job, folder, said, *, wait_s=60.0):
    return explored(job, folder, make_engine=dask_engine(farm.address, say=said.append, wait_s=wait_s))


def test_two_workers_find_what_one_process_finds(farm, job, expected, tmp_path):
    (old,) = farm.start_workers(old=OTHER_VERSION)
    said = []
    assert_same(on_farm(farm, job, tmp_path, said), expected)
    old.kill()
    assert len(said) == 2
    assert any("workers at tcp://127.0.0.1" in text for text in said)
    assert any("is not used: it has archplace 0.0.9" in text for text in said)


def kill_when(mark, process):
    """Kill a process as soon as a file appears; return the thread that does."""

    def kill():
        wait_until(mark.exists)
        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


def test_a_worker_killed_with_questions_in_hand(farm, job, expected, tmp_path):
    mark = tmp_path / "hangs"
    (doomed,) = farm.start_workers(doomed=HANGS.format(mark=mark))
    killer = kill_when(mark, doomed)
    said = []
    assert_same(on_farm(farm, job, tmp_path / "run", said), expected)
    killer.join()
    lost = [text for text in said if "was lost" in text]
    # What it held: one in work, one that waited.
    assert 1 <= len(lost) <= 2


def test_workers_without_memory_cost_their_blocks(farm, job, expected, tmp_path):
    poor = farm.start_workers(killed=DIES, hungry=HUNGRY)
    said = []
    assert_same(on_farm(farm, job, tmp_path, said), expected)
    for worker in poor:
        worker.kill()
    for told in ("was lost", "ran out of memory"):
        assert any(told in text and "is asked again in halves" in text for text in said)


def test_workers_that_lie_or_never_answer_are_done_without(farm, job, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "LEAST_PATIENCE_S", 1.0)
    monkeypatch.setattr(dispatch, "PATIENCE", 1.0)
    bad = farm.start_workers(liar=LIES, stuck=HANGS.format(mark=tmp_path / "hangs"))
    said = []
    assert_same(on_farm(farm, job, tmp_path / "run", said), expected)
    for worker in bad:
        worker.kill()
    assert any("answered nonsense" in text and "is asked again" in text for text in said)
    assert any("has not answered for" in text for text in said)


def test_a_farm_that_is_lost_leaves_the_work_to_this_process(job, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_workers, "CONNECT_S", 1.0)
    with cluster(tmp_path) as short:
        mark = tmp_path / "hangs"
        short.start_workers(one=HANGS.format(mark=mark), two=DIES)
        killer = kill_when(mark, short.processes[0])
        said = []
        assert_same(on_farm(short, job, tmp_path / "run", said), expected)
        killer.join()
    assert any("no worker is left: this process goes on by itself" in text for text in said)


def test_no_worker_and_no_scheduler_are_told(job, tmp_path, monkeypatch):
    with cluster(tmp_path) as empty:
        with pytest.raises(StoppedError, match=r"no worker came to the scheduler .* within 0 s; start some with"):
            on_farm(empty, job, tmp_path / "run", [], wait_s=0.0)
        empty.start_workers(old=OTHER_VERSION)
        with pytest.raises(StoppedError, match=r"that could be used \(.* has archplace 0\.0\.9"):
            on_farm(empty, job, tmp_path / "run", [], wait_s=1.0)
        address = empty.address
    monkeypatch.setattr(dask_workers, "CONNECT_S", 0.5)
    farm_gone = dask_engine(address, say=lambda _: None)
    with pytest.raises(ConfigError, match=f"no dask scheduler answers at {address}"):
        explored(job, tmp_path / "run", make_engine=farm_gone)
    file = tmp_path / "scheduler-file.json"
    for content, told in [
        ("{}", "KeyError"),
        ('{"address": "tls://127.0.0.1:1"}', "asks for certificates"),
        ('{"address": "nonsense"}', "no dask scheduler answers at"),
    ]:
        file.write_text(content)
        with pytest.raises(ConfigError, match=told):
            explored(job, tmp_path / "run", make_engine=dask_engine(str(file), say=lambda _: None))
