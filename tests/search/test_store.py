"""The store: what it keeps, what it refuses, and that refusing changes nothing."""

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest

from archplace.arch_configs.errors import StoppedError, StoreError
from archplace.costmodel import Offload, SharedStates, StateSharding
from archplace.search.choices import WorkloadResult
from archplace.search.evaluator import BoundBlock
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound, Evaluated, Fate, Outcome, Reasons, Record
from archplace.search.pipeline import PipelineSchedule
from archplace.search.schedule import ScheduleGraph, solve
from archplace.search.store import FILE, Store
from archplace.search.store_lock import LOCK_FILE, is_locked
from archplace.search.strategy.cuts import Cut
from archplace.search.strategy.options import BestPlacement, Option
from archplace.search.strategy.strategy import Overlap, Strategy
from archplace.workloads import Axis, ContextKind, LayerSharding, Recompute

DONE = {"phase": "done"}


def point(architecture, number=0, step_s=1.25):
    """A point in which nothing that can be written has its default."""
    sharding = LayerSharding(
        microbatch=4,
        tensor=2,
        sequence=True,
        context=2,
        context_kind=ContextKind.ALL_GATHER,
        expert=4,
        expert_tensor=2,
        overlap_pieces=4,
    )
    strategy = Strategy(
        sharding=sharding,
        stages=2,
        data=3,
        schedule=PipelineSchedule.INTERLEAVED,
        virtual=3,
        states=StateSharding(states=SharedStates.GRADIENTS, group=3),
        offload=Offload(activations=1.0, optimizer=0.5),
        overlap=Overlap(data=False, pipeline=False),
        order=(Axis.DATA, Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE),
        policies=(Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
    )
    cut = Cut(
        time_s=step_s,
        load_s=0.1,
        held=((1, 5, 0), (0, 6, 1)),
        policies=(2, 0),
        loads_s=(0.1, 1.0 / 11),
        tail_s=1.0 / 7,
    )
    placement = BestPlacement(strategy=strategy, cut=cut)
    groups = (("tensor", ((2, 1),)), ("context", ((2, 2),)), ("expert", ((2, 1), (2, 4))))
    option = Option(hbm_bytes=64 * 10**9, sharding=sharding, groups=groups)
    result = WorkloadResult(option=option, placement=placement, lower_step_s=step_s)
    return Evaluated(
        architecture=architecture,
        number=number,
        results=(result,),
        values=(step_s / 256, 100.0 + number),
        best_case=(step_s / 256 * (1 - 1e-15), 100.0 + number),
        seconds_per_sample=step_s / 256,
        lower_seconds_per_sample=step_s / 256,
    )


def record(architecture, *step_s, reason=None):
    points = tuple(point(architecture, i, seconds) for i, seconds in enumerate(step_s))
    return Record(architecture=architecture, points=points, options=("kdpi",), reason=reason)


RECORDS = [record(1, 1.25), record(3, 1.0 / 3, 2.0), record(4, reason="beyond the budget of 3 s")]


def outcome(records=RECORDS):
    found = Outcome(
        objectives=Objectives.of(["throughput", "area"]),
        fate=np.array([Fate.PRUNED, Fate.FRONT, Fate.INFEASIBLE, Fate.FRONT, Fate.INFEASIBLE], dtype=np.int8),
        bound=np.array([[0.5, 1.0], [0.004, 2.0], [np.inf, np.inf], [1.0 / 3, 4.0], [0.1, 0.2]]),
        bound_kind=np.array([1, 2, 1, 2, 2], dtype=np.int8),
        records={one.architecture: one for one in records},
        reasons=Reasons(
            code=np.array([-1, -1, 1, -1, -1], dtype=np.int16),
            amount=np.array([0.0, 0.0, 812.25, 0.0, 0.0]),
            texts=("never", "area {:.4g} mm²"),
            own={4: "beyond the budget of 3 s"},
        ),
        option_reasons={"tp3 mbs1": "3 does not divide 32 heads"},
        references_s=(0.25, 1.0 / 3),
        gap=(0.0125, 0.0),
    )
    found.set_front([records[0].points[0], records[1].points[1]])
    return found


def block(seed=0, n=3):
    numbers = np.random.default_rng(seed)
    values = numbers.random((n, 2))
    values[0] = np.inf
    return BoundBlock(
        values=values,
        code=np.array([4] + [-1] * (n - 1), dtype=np.int16),
        amount=numbers.random(n),
        options=(numbers.random((5, 2, 1)), np.full((0, 2, 1), np.inf)),
    )


def equal(one, other):
    assert one is not None
    for name in ("values", "code", "amount"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    assert len(one.options) == len(other.options)
    for left, right in zip(one.options, other.options, strict=True):
        np.testing.assert_array_equal(left, right, strict=True)


def a_schedule():
    problem = ScheduleGraph.build(kinds=[0, 1, 0], edges=[(0, 1)]).problem(
        one_s=[4, 2, 3], all_s=[1, 2, 1.1], tensor_units=4, vector_units=1
    )
    return problem.key(), solve(problem, engine="list")


def full_store(folder):
    """A finished run of everything that a store can hold."""
    key, schedule = a_schedule()
    with Store.create(folder, digest="abc", meta={"name": "run"}) as store:
        store.keep_bounds(Bound.WORK, 7, block(1), {"phase": "bounds"})
        store.keep_bounds(Bound.SCHEDULE, -(2**63), block(2), {"phase": "evaluation"})
        store.keep_records(RECORDS, solved=False, schedules={key: schedule})
        store.keep_text("references_s", [0.25, 1.0 / 3])
        store.finish(outcome(), progress=DONE)
        store.log("wall_s", 1.5)
        store.log("wall_s", 2.5)


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_everything_comes_back_as_it_was(tmp_path):
    full_store(tmp_path)
    key, schedule = a_schedule()
    with Store.open(tmp_path) as store:
        assert store.meta()["name"] == "run"
        assert store.logged("wall_s") == [1.5, 2.5]
        assert store.logged("other") == []
        assert store.text("references_s") == [0.25, 1.0 / 3]
        assert store.progress() == DONE
        assert store.finished
        assert store.n_evaluated == 3
        equal(store.bounds(Bound.WORK, 7), block(1))
        equal(store.bounds(Bound.SCHEDULE, -(2**63)), block(2))
        assert store.bounds(Bound.WORK, 8) is None
        assert [len(one.values) for one in store.all_bounds(Bound.WORK)] == [3]
        assert store.records(solved=False) == {one.architecture: one for one in RECORDS}
        assert store.records(solved=True) == {}
        assert store.record(3, solved=False) == RECORDS[1]
        assert store.record(2, solved=False) is None
        back = store.schedules()
        found = store.outcome((0.25, 1.0 / 3))
    assert list(back) == [key]
    for name in ("start_s", "mode", "unit"):
        np.testing.assert_array_equal(getattr(back[key], name), getattr(schedule, name), strict=True)
    for name in ("makespan_s", "lower_bound_s", "status"):
        assert getattr(back[key], name) == getattr(schedule, name)
    expected = outcome()
    assert found is not None
    for name in ("fate", "bound", "bound_kind"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)
    np.testing.assert_array_equal(found.reasons.code, expected.reasons.code, strict=True)
    np.testing.assert_array_equal(found.reasons.amount, expected.reasons.amount, strict=True)
    for name in ("objectives", "records", "option_reasons", "references_s", "gap", "front"):
        assert getattr(found, name) == getattr(expected, name)
    assert dict(found.reasons.items()) == dict(expected.reasons.items())


def test_an_unfinished_run_has_no_outcome(tmp_path):
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.keep_records(RECORDS, solved=False)
        assert store.outcome() is None
        assert not store.finished
        assert store.progress() is None


def test_solved_records_stand_beside_the_others_and_count_before_them(tmp_path):
    better = record(1, 1.0)
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.keep_records(RECORDS, solved=False)
        store.keep_records([better], solved=True)
        assert store.record(1, solved=False) == RECORDS[0]
        assert store.record(1, solved=True) == better
        store.finish(outcome(), progress=DONE)
        found = store.outcome()
        assert found is not None
        assert found.records[1] == better
        np.testing.assert_array_equal(
            store.point_values(2), [one.values for one in (better.points[0], *RECORDS[1].points)]
        )
        assert store.n_evaluated == 3


def test_scopes_do_not_mix(tmp_path):
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.keep_bounds(Bound.WORK, 0, block(1), {}, scope="a alone")
        store.keep_records([RECORDS[0]], solved=False, scope="a alone")
        assert store.bounds(Bound.WORK, 0) is None
        assert store.record(1, solved=False) is None
        assert store.n_evaluated == 0
        assert store.point_values(2).shape == (0, 2)
        equal(store.bounds(Bound.WORK, 0, scope="a alone"), block(1))
        assert store.record(1, solved=False, scope="a alone") == RECORDS[0]


def test_what_is_stored_of_a_step_stays(tmp_path):
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.keep_records([RECORDS[0]], solved=False)
        store.keep_records([record(1, 9.0), RECORDS[1]], solved=False)
        assert store.record(1, solved=False) == RECORDS[0]
        assert store.record(3, solved=False) == RECORDS[1]


def test_what_is_half_written_is_not_there(tmp_path):
    def records():
        yield RECORDS[0]
        raise KeyboardInterrupt

    with Store.create(tmp_path, digest="abc", meta={}) as store:
        with pytest.raises(KeyboardInterrupt):
            store.keep_records(records(), solved=False)
        assert store.records(solved=False) == {}
        with pytest.raises(TypeError):
            store.keep_bounds(Bound.WORK, 0, block(), {"phase": object()})
        assert store.bounds(Bound.WORK, 0) is None
        store.keep_records(RECORDS, solved=False)
    with Store.open(tmp_path) as store:
        assert len(store.records(solved=False)) == 3


def test_other_inputs_are_refused_and_nothing_is_lost(tmp_path):
    full_store(tmp_path)
    before = bytes_of(tmp_path)
    with pytest.raises(StoreError, match="holds a run of other inputs"):
        Store.create(tmp_path, digest="other", meta={})
    assert bytes_of(tmp_path) == before
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        assert store.outcome() is not None


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [("version", '"0.0.1"', r"written by archplace version 0\.0\.1"), ("schema", "1", r"\(schema 1\)")],
)
def test_a_store_of_another_version_is_refused_unchanged(tmp_path, key, value, told):
    full_store(tmp_path)
    connection = sqlite3.connect(tmp_path / FILE)
    with connection:
        connection.execute("update meta set value = ? where key = ?", (value, key))
    connection.close()
    before = bytes_of(tmp_path)
    with pytest.raises(StoreError, match=told):
        Store.create(tmp_path, digest="abc", meta={})
    if key == "schema":
        with pytest.raises(StoreError, match="store schema 1, this archplace reads"):
            Store.open(tmp_path)
    assert bytes_of(tmp_path) == before


def test_a_second_writer_is_refused_while_readers_read(tmp_path):
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        assert is_locked(tmp_path)
        store.keep_records(RECORDS, solved=False)
        with pytest.raises(StoreError, match="another process is writing here"):
            Store.create(tmp_path, digest="abc", meta={})
        with Store.open(tmp_path) as reader:
            assert len(reader.records(solved=False)) == 3
            store.keep_records([record(7, 1.0)], solved=False)
            assert len(reader.records(solved=False)) == 4
    assert not is_locked(tmp_path)
    Store.create(tmp_path, digest="abc", meta={}).close()


def test_looking_for_a_lock_makes_none(tmp_path):
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / LOCK_FILE).write_bytes(b"")
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be looked at" * 50, b"\0" * 4096])
def test_a_file_that_is_no_store(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    for attempt in (lambda: Store.open(tmp_path), lambda: Store.create(tmp_path, digest="abc", meta={})):
        with pytest.raises(StoreError, match=r"run\.sqlite: .*move it away"):
            attempt()
    assert (tmp_path / FILE).read_bytes() == content


def test_an_empty_file_is_where_a_run_was_killed_before_it_began(tmp_path):
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(StoreError, match="no run here yet"):
        Store.open(tmp_path)
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.keep_records(RECORDS, solved=False)


def use_everything(folder):
    with Store.create(folder, digest="abc", meta={}) as store:
        store.progress()
        store.schedules()
        store.point_values(2)
        list(store.all_bounds(Bound.WORK))
        store.record(1, solved=False)
        store.text("references_s")
        store.logged("wall_s")
        store.outcome()
        store.keep_records([record(9, 1.0)], solved=True)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_truncated_file(tmp_path, share):
    full_store(tmp_path)
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole)) // 4096 * 4096 + 100])
    with pytest.raises(StoreError, match=r"run\.sqlite: "):
        use_everything(tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_a_file_with_damage_is_told_or_read_never_a_traceback(tmp_path, seed):
    full_store(tmp_path)
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    numbers = np.random.default_rng(seed)
    for at in numbers.integers(0, len(content), 400).tolist():
        content[at] = int(numbers.integers(256))
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError, match="run"):
        use_everything(tmp_path)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("update records set data = '{}' where architecture = 3", "a stored point cannot be read"),
        ("update records set data = 'x'", "a stored point cannot be read"),
        ("update records set data = 5", "a stored point cannot be read"),
        ("update bounds set data = x'00'", "a block of bounds cannot be read"),
        ("update bounds set data = 5", "a block of bounds cannot be read"),
        ("update schedules set data = x'0102'", "a stored schedule cannot be read"),
        ("update schedules set data = substr(data, 1, 40)", "a stored schedule cannot be read"),
        ("update outcome set data = x'00' where name = 'fate'", "the stored outcome cannot be read"),
        ("update outcome set shape = '[3]' where name = 'bound'", "the stored outcome cannot be read"),
        ("update outcome set dtype = 'nonsense'", "the stored outcome cannot be read"),
        ("delete from outcome where name = 'fate'", "the stored outcome cannot be read"),
        ("delete from texts where name = 'front'", "the stored outcome cannot be read"),
        ("update texts set data = '{' where name = 'references_s'", "the stored references_s cannot be read"),
        ("update progress set data = '['", "the progress cannot be read"),
        ("update log set value = '['", "a note cannot be read"),
        ("update meta set value = '['", "what describes the run cannot be read"),
        ("drop table records", "no such table"),
    ],
)
def test_a_damaged_row_is_told(tmp_path, statement, what):
    full_store(tmp_path)
    connection = sqlite3.connect(tmp_path / FILE)
    with connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StoreError, match=what) as caught:
        use_everything(tmp_path)
    assert "search again" in str(caught.value)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be used as run folder"):
        Store.create(tmp_path / "file" / "run", digest="abc", meta={})


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(StoreError, match="no run here"):
        Store.open(tmp_path)


def test_a_folder_that_may_only_be_read():
    # Not pytest's own folder: other users may not even look into that.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        full_store(folder)
        before = bytes_of(folder)
        Path(name).chmod(0o755)
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)
        privileged = os.geteuid() == 0
        if privileged:
            os.setresuid(65534, 65534, 0)
        try:
            with pytest.raises(StoreError, match="no right to write"):
                Store.create(folder, digest="abc", meta={})
            with Store.open(folder) as store:
                assert store.outcome() is not None
            assert not is_locked(folder)
        finally:
            if privileged:
                os.setresuid(0, 0, 0)
            folder.chmod(0o755)
        assert bytes_of(folder) == before


@pytest.mark.parametrize("moved", [True, False])
def test_a_folder_that_vanishes_stops_the_run(tmp_path, moved):
    folder = tmp_path / "run"
    store = Store.create(folder, digest="abc", meta={})
    store.keep_records(RECORDS[:1], solved=False)
    if moved:
        folder.rename(tmp_path / "elsewhere")
    else:
        shutil.rmtree(folder)
    with pytest.raises(StoppedError, match="moved or deleted"):
        store.keep_records(RECORDS[1:], solved=False)
    store.close()
    if moved:
        (tmp_path / "elsewhere").rename(folder)
        with Store.create(folder, digest="abc", meta={}) as store:
            assert list(store.records(solved=False)) == [1]


def test_another_run_in_the_place_of_a_deleted_one_is_not_touched(tmp_path):
    folder = tmp_path / "run"
    old = Store.create(folder, digest="abc", meta={})
    shutil.rmtree(folder)
    full_store(folder)
    before = bytes_of(folder)
    with pytest.raises(StoppedError, match="cannot be written"):
        old.keep_records([record(1, 8.0)], solved=False)
    old.close()
    assert bytes_of(folder) == before


def test_a_file_that_a_stranger_keeps_locked_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("archplace.search.store._SECONDS_TO_WAIT", 0.05)
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        stranger = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        stranger.execute("begin immediate")
        with pytest.raises(StoppedError, match="keeps it locked"):
            store.keep_records(RECORDS, solved=False)
        stranger.close()
        store.keep_records(RECORDS, solved=False)
        assert len(store.records(solved=False)) == 3


def test_equal_contents_make_equal_bytes(tmp_path):
    contents = []
    for name in ("one", "two"):
        full_store(tmp_path / name)
        connection = sqlite3.connect(tmp_path / name / FILE)
        tables = ("bounds", "records", "schedules", "outcome", "texts")
        contents.append({table: connection.execute(f"select * from {table}").fetchall() for table in tables})
        connection.close()
    assert contents[0] == contents[1]


def test_a_point_of_the_front_that_is_gone_is_left_out(tmp_path):
    with Store.create(tmp_path, digest="abc", meta={}) as store:
        store.keep_records(RECORDS[:1], solved=False)
        store.finish(outcome(), progress=DONE)
        back = store.outcome()
    assert back is not None
    assert [one.id for one in back.front] == [1]
