"""A certificate holds for what a run wrote, and for nothing that was changed since."""

import json
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from archplace.arch_configs.errors import StoreError
from archplace.search._store_codec import pack_array, unpack_array
from archplace.search.certify import certify
from archplace.search.outcome import Fate
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
  placement: {tensor_parallel: [2, 4], microbatch: [2, 4], recompute: none}
  budgets: {area: 400 mm2}
"""


def run(folder, text=RUN, **changes):
    (folder / "run.yaml").write_text(text)
    with RunSearch.start(replace(load_run(folder / "run.yaml"), **changes), folder / "out") as search:
        search.run(lambda _: None, jobs=1)
    return folder / "out"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return run(tmp_path_factory.mktemp("quick"), effort="quick")


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def query(folder, statement, *values):
    connection = sqlite3.connect(folder / FILE)
    with connection:
        rows = connection.execute(statement, values).fetchall()
    connection.close()
    return rows


def array(folder, name):
    ((dtype, shape, data),) = query(folder, "select dtype, shape, data from outcome where name = ?", name)
    return unpack_array(data, dtype, shape)


def put(folder, name, values):
    query(folder, "update outcome set data = ? where name = ?", pack_array(values), name)


def change_record(folder, change):
    """Change one stored record as JSON: the last of its architecture, which counts."""
    rows = query(folder, "select architecture, max(solved), data from records group by architecture")
    for architecture, solved, data in rows:
        record = json.loads(data)
        if record["points"] and change(record) is not False:
            query(
                folder,
                "update records set data = ? where architecture = ? and solved = ?",
                json.dumps(record),
                architecture,
                solved,
            )
            return architecture
    raise AssertionError("no record to change")


def test_a_finished_run_is_certified(finished):
    certificate = certify(finished, jobs=1)
    assert certificate.holds, certificate.failures
    assert certificate.gap is None
    for counts, each in ((certificate.counts, 1), (certificate.option_counts, 4)):
        assert counts["front"] > 0
        assert counts["pruned"] > 0
        assert counts["infeasible"] > 0
        assert counts["open"] == 0
        assert sum(counts.values()) == each * len(array(finished, "fate"))


def test_a_quick_run_is_certified_with_its_gap_and_solves_less(quick, finished):
    certificate = certify(quick, jobs=1)
    assert certificate.holds, certificate.failures
    assert certificate.gap is not None
    one, other = (query(folder, "select count(*) from schedules")[0][0] for folder in (quick, finished))
    assert one < other


def test_a_quick_run_of_several_workloads_is_certified(tmp_path):
    text = RUN.replace("workload: bert-large", "workloads: [bert-large, opt-350m]")
    text += "  objectives: [throughput, worst_case, area]\n"
    folder = run(tmp_path, text, effort="quick")
    certificate = certify(folder, jobs=1)
    assert certificate.holds, certificate.failures
    assert certificate.gap is not None
    ((gap,),) = query(folder, "select data from texts where name = 'references_gap'")
    assert certificate.gap[1] >= certificate.gap[0] + json.loads(gap)
    query(folder, "update texts set data = ? where name = 'gap'", json.dumps([certificate.gap[0]] * 2 + [0.0]))
    fails(folder, "gap")


def fails(folder, kind):
    certificate = certify(folder, jobs=1)
    assert not certificate.holds
    assert any(failure.startswith(kind) for failure in certificate.failures), certificate.failures


def test_a_gap_stated_too_small_is_found(quick, tmp_path):
    copy = shutil.copytree(quick, tmp_path / "copy")
    ((gap,),) = query(copy, "select data from texts where name = 'gap'")
    assert json.loads(gap)[0] > 0
    query(copy, "update texts set data = '[0.0, 0.0]' where name = 'gap'")
    fails(copy, "gap")


def test_a_point_made_faster_is_found(copy):
    def faster(record):
        for point in record["points"]:
            point["values"][0] *= 0.9
            point["best_case"][0] *= 0.9
            point["seconds_per_sample"] *= 0.9
            point["lower_seconds_per_sample"] *= 0.9

    change_record(copy, faster)
    fails(copy, "point")


def test_a_point_that_was_removed_is_found(copy):
    front = int(np.flatnonzero(array(copy, "fate") == Fate.FRONT)[0])
    query(copy, "delete from records where architecture = ?", front)
    fails(copy, "front")


def test_a_front_that_lacks_a_point_is_found(copy):
    ((front,),) = query(copy, "select data from texts where name = 'front'")
    query(copy, "update texts set data = ? where name = 'front'", json.dumps(json.loads(front)[1:]))
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


def test_an_infeasible_architecture_declared_pruned_is_found(copy):
    fate = array(copy, "fate")
    fate[np.flatnonzero(fate == Fate.INFEASIBLE)[0]] = Fate.PRUNED
    put(copy, "fate", fate)
    fails(copy, "infeasible")


def test_an_evaluated_architecture_declared_pruned_is_found(copy):
    fate = array(copy, "fate")
    fate[np.flatnonzero(fate == Fate.DOMINATED)[0]] = Fate.PRUNED
    put(copy, "fate", fate)
    fails(copy, "point")


def test_a_raised_bound_is_found(copy):
    bound = array(copy, "bound")
    bound[np.flatnonzero(array(copy, "fate") == Fate.PRUNED)[0], 0] *= 1.5
    put(copy, "bound", bound)
    fails(copy, "bound")


def test_an_architecture_pruned_by_nothing_is_found(copy):
    """All that is dominated goes, and with it the smallest design of the front: what it pruned has no witness left."""
    fate, front = array(copy, "fate"), query(copy, "select data from texts where name = 'front'")[0][0]
    last = json.loads(front)[-1]
    query(copy, "delete from records where architecture = ?", last[0])
    query(copy, "update texts set data = ? where name = 'front'", json.dumps(json.loads(front)[:-1]))
    fate[last[0]] = Fate.PRUNED
    put(copy, "fate", fate)
    fails(copy, "dominance")


@pytest.mark.parametrize(("old", "new"), [("p", "i"), ("i", "p"), ("d", "p"), ("p", "d")])
def test_changed_fates_of_placement_options_are_found(copy, old, new):
    def other(record):
        text = record["options"][0]
        if old not in text:
            return False
        record["options"][0] = text.replace(old, new, 1)
        return True

    change_record(copy, other)
    fails(copy, "options")


def test_a_store_of_changed_inputs_is_found(copy):
    ((text,),) = query(copy, "select value from meta where key = 'run'")
    assert "400" in text
    query(copy, "update meta set value = ? where key = 'run'", text.replace("400", "500"))
    fails(copy, "inputs")


def test_an_unfinished_run_has_no_certificate(copy):
    query(copy, "delete from outcome")
    with pytest.raises(StoreError, match="not finished"):
        certify(copy)


def test_a_placement_made_better_is_found(copy):
    """What the user takes away: not only the values, but how many devices do what."""

    def other(record):
        record["points"][0]["results"][0]["placement"]["strategy"]["data"] *= 2

    change_record(copy, other)
    fails(copy, "point")


def test_layers_held_elsewhere_are_found(copy):
    def other(record):
        cut = record["points"][0]["results"][0]["placement"]["cut"]
        cut["held"][0][1] -= 1

    change_record(copy, other)
    fails(copy, "point")


def test_a_front_point_whose_schedules_were_never_solved_is_found(copy):
    """The solved record is taken away where that leaves the listed one, which is slower, on the front."""
    rows = query(copy, "select architecture from records group by architecture having count(*) = 2")
    solved = {architecture for (architecture,) in rows}
    ((front,),) = query(copy, "select data from texts where name = 'front'")
    changed = next(architecture for architecture, _ in json.loads(front) if architecture in solved)
    query(copy, "delete from records where architecture = ? and solved = 1", changed)
    assert not certify(copy, jobs=1).holds


def test_a_gap_that_the_run_may_not_have_is_found(copy, quick, tmp_path):
    query(copy, "update texts set data = '[5.0, 5.0]' where name = 'gap'")
    fails(copy, "gap")
    other = shutil.copytree(quick, tmp_path / "other")
    query(other, "update texts set data = '[5.0, 0.0]' where name = 'gap'")
    fails(other, "gap")


def test_changed_reasons_are_found(copy):
    query(copy, "update texts set data = replace(data, 'fits', 'is liked') where name = 'reasons'")
    fails(copy, "reasons")


def test_a_store_of_another_version_is_found(copy):
    query(copy, "update meta set value = '\"0.0.1\"' where key = 'version'")
    fails(copy, "version")
