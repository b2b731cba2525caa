"""A farm of real processes finds what one process finds, whatever happens to its workers."""

import numpy as np
import pytest
from farm_cluster import cluster, wait_until, write_run

from archplace.arch_configs.errors import ConfigError, StoppedError
from archplace.search.farm import engine as farm_engine
from archplace.search.farm.engine import dask_engine
from archplace.search.run import RunSearch
from archplace.search.runfile import load_run


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("farm")) as made:
        yield made


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return load_run(write_run(tmp_path_factory.mktemp("run")))


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
    monkeypatch.setattr(farm_engine, "BOUNDED", 8)
    monkeypatch.setattr(farm_engine, "EVALUATED", 3)
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
    farm.start_worker("one")
    farm.start_worker("two")
    said = []
    assert_same(on_farm(farm, job, tmp_path, said), expected)
    assert said == [said[0]] and "workers at tcp://127.0.0.1" in said[0]
