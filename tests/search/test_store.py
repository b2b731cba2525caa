"""The store: what it keeps, what it refuses, and that refusing changes nothing."""

import numpy as np
import pytest

from archplace.arch_configs.errors import StoreError
from archplace.search.explore import Evaluated, Fate, Outcome
from archplace.search.options import Option
from archplace.search.placement.training import BestPlacement, Degrees
from archplace.search.schedule import ScheduleGraph, solve
from archplace.search.store import FILE, Store
from archplace.search.workload_search import WorkloadResult


def point(architecture, step_s=1.25):
    degrees = Degrees(
        stages=2, replicas=3, microbatches=7, transfer_s=1e-5, sync_s_per_byte=1.0 / 3, sync_latency_s=2e-6
    )
    placement = BestPlacement(
        step_s=step_s, degrees=degrees, blocks=(5, 6), load_s=0.1, sync_s=0.2, optimizer_s=1.0 / 7
    )
    option = Option(tensor_parallel=2, microbatch=4, recompute=True, hbm_bytes=64 * 10**9)
    result = WorkloadResult(option=option, placement=placement, lower_step_s=step_s)
    return Evaluated(
        architecture=architecture,
        results=(result,),
        seconds_per_sample=step_s / 256,
        lower_seconds_per_sample=step_s / 256,
    )


def outcome(points):
    fate = np.array([Fate.PRUNED, Fate.FRONT, Fate.INFEASIBLE, Fate.DOMINATED], dtype=np.int8)
    return Outcome(
        fate=fate,
        bound_seconds_per_sample=np.array([0.5, 0.004, np.inf, 0.3]),
        by=np.array([1, -1, -1, 1]),
        points={p.architecture: p for p in points},
        reasons={2: "memory"},
        option_reasons={"t=3": "3 does not divide 32 heads"},
    )


def test_everything_comes_back_as_it_was(tmp_path):
    points = [point(1), point(3, 1.0 / 3)]
    with Store.create(tmp_path, digest="abc", meta={"name": "run"}) as store:
        store.add_points(points)
        store.finish(outcome(points))
        store.log("wall_s", 1.5)
    with Store.open(tmp_path) as store:
        assert store.points() == points
        back = store.outcome()
        assert store.meta()["name"] == "run"
        assert store.logged("wall_s") == [1.5]
    expected = outcome(points)
    np.testing.assert_array_equal(back.fate, expected.fate)
    np.testing.assert_array_equal(back.bound_seconds_per_sample, expected.bound_seconds_per_sample)
    np.testing.assert_array_equal(back.by, expected.by)
    assert back.points == expected.points
    assert back.reasons == expected.reasons
    assert back.option_reasons == expected.option_reasons


def test_schedules_come_back_with_their_times(tmp_path):
    problem = ScheduleGraph.build(kinds=[0, 1, 0], edges=[(0, 1)]).problem(
        one_s=[4, 2, 3], all_s=[1, 2, 1.1], tensor_units=4, vector_units=1
    )
    schedule = solve(problem, engine="list")
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.add_schedules({problem.key(): schedule})
        back = store.schedules()[problem.key()]
    np.testing.assert_array_equal(back.start_s, schedule.start_s)
    np.testing.assert_array_equal(back.mode, schedule.mode)
    np.testing.assert_array_equal(back.unit, schedule.unit)
    assert (back.makespan_s, back.lower_bound_s, back.status) == (
        schedule.makespan_s,
        schedule.lower_bound_s,
        schedule.status,
    )


def test_other_inputs_are_refused_and_nothing_is_lost(tmp_path):
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.add_points([point(1)])
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="holds a run of other inputs"):
        Store.create(tmp_path, digest="other", meta={})
    assert (tmp_path / FILE).read_bytes() == before
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        assert store.points() == [point(1)]


def test_store_of_another_version_is_refused(tmp_path):
    with Store.create(tmp_path, digest="abc", meta={}) as store, store._connection:
        store._connection.execute("update meta set value = '\"0.0.1\"' where key = 'version'")
    with pytest.raises(StoreError, match=r"written by archplace version 0\.0\.1"):
        Store.create(tmp_path, digest="abc", meta={})


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to be looked at" * 50])
def test_a_file_that_is_no_store(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StoreError):
        Store.open(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be used as run folder"):
        Store.create(tmp_path / "file" / "run", digest="abc", meta={})


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(StoreError, match="no run here"):
        Store.open(tmp_path)
