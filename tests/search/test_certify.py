"""A certificate holds for what a run wrote, and for nothing that was changed since."""

import json
import shutil
import sqlite3

import numpy as np
import pytest

from archplace.arch_configs.errors import StoreError
from archplace.search.certify import certify
from archplace.search.explore import Fate
from archplace.search.run import RunSearch
from archplace.search.runfile import load_run
from archplace.search.store import FILE

RUN = """\
run:
  workload: bert-large
  space: tiny
  cluster: a100-superpod
  accelerators: 8
  global_batch: 16
  placement: {tensor_parallel: [2], microbatch: [2], recompute: [false]}
  budgets: {area: 400 mm2}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "run.yaml").write_text(RUN)
    with RunSearch.start(load_run(folder / "run.yaml"), folder / "out", jobs=1) as search:
        search.bound()
        search.finish(lambda *_: None)
    return folder / "out"


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def change(folder, statement, *values):
    connection = sqlite3.connect(folder / FILE)
    with connection:
        connection.execute(statement, values)
    connection.close()


def array(folder, name):
    connection = sqlite3.connect(folder / FILE)
    dtype, data = connection.execute("select dtype, data from outcome where name = ?", (name,)).fetchone()
    connection.close()
    return np.frombuffer(data, dtype=dtype).copy()


def put(folder, name, values):
    change(folder, "update outcome set data = ? where name = ?", values.tobytes(), name)


def test_a_finished_run_is_certified(finished):
    certificate = certify(finished, jobs=1)
    assert certificate.holds, certificate.failures
    assert certificate.counts["front"] > 0
    assert certificate.counts["pruned"] > 0
    assert certificate.counts["infeasible"] > 0
    assert sum(certificate.counts.values()) == len(array(finished, "fate"))


def fails(folder, kind):
    certificate = certify(folder, jobs=1)
    assert not certificate.holds
    assert any(failure.startswith(kind) for failure in certificate.failures), certificate.failures


def test_a_point_made_faster_is_found(copy):
    connection = sqlite3.connect(copy / FILE)
    (architecture, data) = connection.execute("select architecture, data from points limit 1").fetchone()
    connection.close()
    point = json.loads(data)
    point["seconds_per_sample"] *= 0.9
    point["lower_seconds_per_sample"] *= 0.9
    change(copy, "update points set data = ? where architecture = ?", json.dumps(point), architecture)
    fails(copy, "point")


def test_a_point_that_was_removed_is_found(copy):
    front = int(np.flatnonzero(array(copy, "fate") == Fate.FRONT)[0])
    change(copy, "delete from points where architecture = ?", front)
    fails(copy, "front")


@pytest.mark.parametrize(("old", "new"), [(Fate.FRONT, Fate.PRUNED), (Fate.DOMINATED, Fate.FRONT)])
def test_a_changed_fate_is_found(copy, old, new):
    fate = array(copy, "fate")
    fate[np.flatnonzero(fate == old)[0]] = new
    put(copy, "fate", fate)
    fails(copy, "front")


def test_a_feasible_architecture_declared_infeasible_is_found(copy):
    fate = array(copy, "fate")
    fate[np.flatnonzero(fate == Fate.PRUNED)[0]] = Fate.INFEASIBLE
    put(copy, "fate", fate)
    fails(copy, "infeasible")


def test_a_raised_bound_is_found(copy):
    bound = array(copy, "bound")
    bound[np.flatnonzero(array(copy, "fate") == Fate.PRUNED)[0]] *= 1.5
    put(copy, "bound", bound)
    fails(copy, "bound")


def test_a_wrong_witness_is_found(copy):
    by, fate = array(copy, "by"), array(copy, "fate")
    by[np.flatnonzero(fate == Fate.PRUNED)[0]] = np.flatnonzero(fate == Fate.DOMINATED)[0]
    put(copy, "by", by)
    fails(copy, "dominance")


def test_a_store_of_changed_inputs_is_found(copy):
    connection = sqlite3.connect(copy / FILE)
    (text,) = connection.execute("select value from meta where key = 'run'").fetchone()
    connection.close()
    assert "400" in text
    change(copy, "update meta set value = ? where key = 'run'", text.replace("400", "500"))
    fails(copy, "inputs")


def test_an_unfinished_run_has_no_certificate(copy):
    change(copy, "delete from outcome")
    with pytest.raises(StoreError, match="not finished"):
        certify(copy)
