"""Whatever workers do, every question is answered once, and none costs more workers than it may."""

from collections import Counter, deque
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from farm_cluster import SPACE, write_run
from hypothesis import given
from hypothesis import strategies as st

from archplace.search.evaluator import BoundBlock
from archplace.search.farm import dispatch
from archplace.search.farm import engine as farm_engine
from archplace.search.farm.answers import RECORDS, UnknownWorkError, Work, answer, answer_with
from archplace.search.farm.checks import NonsenseError, check, recheck, records_of
from archplace.search.farm.dispatch import LOSSES, STRIKES, TRIES, Dispatcher, Failure, Part, Reply
from archplace.search.farm.engine import DaskEngine, _cuts
from archplace.search.farm.questions import BoundsQuestion, RecordsAnswer, RecordsQuestion, SchedulesQuestion
from archplace.search.outcome import Bound
from archplace.search.run import evaluator_of
from archplace.search.runfile import load_run
from archplace.search.schedule import ScheduleCache


class Actors:
    """Workers that answer, or fail, as a list says; those that are lost are replaced while there are others."""

    def __init__(self, doings, n_workers):
        self.doings = deque(doings)
        self.present = {f"w{i}" for i in range(n_workers)}
        self.replaced = 0
        self.held = {}
        self.asked = Counter()
        self.lost = []
        self.dismissed = set()
        self.count = 0

    def names(self):
        return frozenset(self.present - self.dismissed)

    def ask(self, worker, question):
        assert worker in self.names()
        self.count += 1
        self.held[str(self.count)] = (worker, question)
        assert Counter(name for name, _ in self.held.values())[worker] <= dispatch.DEPTH
        return str(self.count)

    def next_reply(self, timeout_s):
        assert timeout_s > 0
        if not self.held:
            return None
        doing = self.doings.popleft() if self.doings else None
        # The last one asked answers first: order must not matter.
        ticket = next(reversed(self.held))
        worker, question = self.held.pop(ticket)
        if doing is Failure.LOST and worker in self.present:
            self.lost.append(tuple(question.indices.tolist()))
            self.present.discard(worker)
            if self.replaced < 3:
                self.replaced += 1
                self.present.add(f"r{self.replaced}")
        if doing == "lie":
            return Reply(ticket=ticket, answer="lie")
        if doing is not None:
            return Reply(ticket=ticket, failure=doing)
        return Reply(ticket=ticket, answer=("told", *question.indices.tolist()))

    def drop(self, tickets):
        for ticket in tickets:
            self.held.pop(ticket, None)

    def dismiss(self, worker):
        self.dismissed.add(worker)


def honest(_, found):
    if not isinstance(found, tuple):
        raise NonsenseError("a lie")
    return found


def dispatcher(actors, said, *, here=lambda question: ("here", *question.indices.tolist())):
    return Dispatcher(
        actors, check=honest, recheck=lambda *_: None, answer_here=here, say=said.append, clock=lambda: 0.0
    )


def question(start, end):
    return BoundsQuestion(indices=np.arange(start, end), kind=Bound.WORK)


@given(
    doings=st.lists(st.sampled_from([None, "lie", *Failure]), max_size=60),
    n_workers=st.integers(0, 4),
    sizes=st.lists(st.integers(1, 9), max_size=8),
)
def test_every_question_is_answered_once(doings, n_workers, sizes):
    actors, said = Actors(doings, n_workers), []
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [Part(question=question(a, b), block=i) for i, (a, b) in enumerate(pairwise(edges))]
    answered = []
    for part, found in dispatcher(actors, said).answers(parts, room=lambda _: True):
        assert found[1:] == tuple(part.question.indices.tolist())
        # A half knows where it belongs.
        assert edges[part.block] + part.start == part.question.indices[0]
        assert part.tries <= TRIES
        assert part.losses <= LOSSES
        answered += found[1:]
    assert sorted(answered) == list(range(edges[-1]))
    assert not actors.held
    # An architecture is in the hands of no more than so many workers that die of it.
    assert all(count <= LOSSES for count in Counter(i for held in actors.lost for i in held).values())


def test_one_that_kills_is_halved_then_answered_here():
    actors, said = Actors([Failure.LOST] * 3, 8), []
    answers = list(dispatcher(actors, said).answers([Part(question=question(0, 8))], room=lambda _: True))
    assert sorted(found for _, found in answers) == [("here", 0, 1, 2, 3), ("here", 4, 5, 6, 7)]
    assert [text.rsplit(": ", 1)[1] for text in said] == [
        "its bounds of 8 architectures is asked again in halves",
        "its bounds of 4 architectures is done here",
        "its bounds of 4 architectures is done here",
    ]


def test_a_liar_is_sent_away():
    actors, said = Actors(["lie"] * 30, 1), []
    parts = [Part(question=question(i, i + 2), block=i) for i in range(0, 20, 2)]
    answers = list(dispatcher(actors, said).answers(parts, room=lambda _: True))
    assert len(answers) == 10
    assert actors.dismissed == {"w0"}
    assert sum("is not asked any more" in text for text in said) == 1
    assert sum("answered nonsense" in text for text in said) >= STRIKES


def test_a_worker_that_does_not_know_the_run_is_not_blamed():
    actors, said = Actors([Failure.UNKNOWN_WORK] * 10, 1), []
    ((_, found),) = dispatcher(actors, said).answers([Part(question=question(0, 2))], room=lambda _: True)
    assert found == ("told", 0, 1)
    assert said == []


def test_nothing_is_asked_for_that_there_is_no_room_for():
    actors = Actors([], 4)
    due = [0]
    parts = [Part(question=question(i, i + 2), block=i) for i in range(8)]
    for part, _ in dispatcher(actors, []).answers(parts, room=lambda part: part.block <= due[0]):
        assert part.block == due[0]
        due[0] += 1
    assert due == [8]


class Honest(Actors):
    """Workers that compute."""

    def __init__(self, evaluator):
        super().__init__([], 3)
        self.evaluator = evaluator
        self.sizes = []

    def next_reply(self, timeout_s):
        assert timeout_s > 0
        ticket = next(reversed(self.held))
        _, asked = self.held.pop(ticket)
        self.sizes.append(len(asked))
        return Reply(ticket=ticket, answer=answer_with(self.evaluator, asked))


@pytest.mark.parametrize("kind", Bound)
def test_blocks_of_every_kind_of_bound_come_back_whole(kind, tmp_path, monkeypatch):
    # Many clocks, of which the highest only helps: a space with groups.
    clocks = ", ".join(f"1.{number:02d} GHz" for number in range(8))
    space = SPACE.replace("clock: [1 GHz]", f"clock: [{clocks}]")
    effort = "quick" if kind is Bound.GROUP_WORK else "normal"
    job = replace(load_run(write_run(tmp_path, space=space)), effort=effort)
    evaluator = evaluator_of(job, job.space.enumerate())
    assert evaluator.groups is not None
    monkeypatch.setattr(farm_engine, "BOUNDED", (4, 4))
    engine = DaskEngine(job, evaluator, ScheduleCache(), scheduler="", say=print)
    workers = Honest(evaluator)
    monkeypatch.setattr(engine, "_dispatcher", engine._dispatch_to(workers))
    blocks = np.array_split(np.arange(len(evaluator.architectures)), 5)
    for found, block in zip(engine.bounds(blocks, kind), blocks, strict=True):
        expected = evaluator.bounds(block, kind)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.code, expected.code)
        for one, other in zip(found.options, expected.options, strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(workers.sizes) > 5


@given(count=st.integers(0, 500), size=st.integers(2, 60))
def test_cuts_cover_all_and_leave_none_alone(count, size):
    cuts = _cuts(count, size)
    assert [i for start, end in cuts for i in range(start, end)] == list(range(count))
    assert all(end - start <= size for start, end in cuts) or size < 4
    if count > 1:
        assert all(end - start >= 2 for start, end in cuts)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return load_run(write_run(tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def evaluator(job):
    return evaluator_of(job, job.space.enumerate())


@pytest.fixture(scope="module")
def bounds(evaluator):
    asked = BoundsQuestion(indices=np.arange(5, 17), kind=Bound.SCHEDULE)
    return asked, answer_with(evaluator, asked)


@pytest.fixture(scope="module")
def records(evaluator, bounds):
    asked = RecordsQuestion(indices=bounds[0].indices, options=bounds[1].options)
    return asked, answer_with(evaluator, asked)


@pytest.fixture(scope="module")
def schedules(evaluator, bounds):
    problems = evaluator.open_problems(bounds[0].indices, bounds[1].options)[:3]
    asked = SchedulesQuestion(problems=tuple(problems), engine="auto", time_limit_s=0.2)
    return asked, answer_with(evaluator, asked)


def test_true_answers_pass(evaluator, bounds, records, schedules):
    for asked, found in (bounds, records, schedules):
        passed = check(evaluator, asked, found)
        assert passed is found or all(one is other for one, other in zip(passed, found, strict=True))
        for sample in range(4):
            recheck(evaluator, asked, found, sample)


def altered(array, change):
    array = array.copy()
    change(array)
    return array


def set_at(index, value):
    def change(array):
        array[index] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda b: (b.values, b.code),
        lambda b: replace(b, values=b.values[:-1]),
        lambda b: replace(b, values=b.values.astype(np.float32)),
        lambda b: replace(b, values=altered(b.values, set_at((0, 0), np.nan))),
        lambda b: replace(b, values=altered(b.values, set_at((0, 0), -1.0))),
        lambda b: replace(b, values=altered(b.values, set_at((0, 1), 1.0))),
        lambda b: replace(b, values=b.values.tolist()),
        lambda b: replace(b, code=altered(b.code, set_at(0, 100))),
        lambda b: replace(b, code=altered(b.code, set_at(0, 1))),
        lambda b: replace(b, amount=altered(b.amount, set_at(0, np.nan))),
        lambda b: replace(b, options=()),
        lambda b: replace(b, options=(b.options[0][:, ::-1, :-1],)),
        lambda b: replace(b, options=(-b.options[0],)),
        lambda _: BoundBlock(values="a", code="b", amount="c"),
    ],
)
def test_bounds_that_are_none(evaluator, bounds, change):
    asked, found = bounds
    with pytest.raises(NonsenseError):
        check(evaluator, asked, change(found))


def test_bounds_that_are_plausible_and_wrong(evaluator, bounds):
    asked, found = bounds
    wrong = replace(found, values=found.values * [1.0001, 1])
    assert check(evaluator, asked, wrong) is wrong
    with pytest.raises(NonsenseError, match="differ from those computed here"):
        recheck(evaluator, asked, wrong, 7)


def point_with(**changes):
    def change(records):
        first = next(i for i, record in enumerate(records) if record.points)
        points = [replace(point, **changes) for point in records[first].points]
        records[first] = replace(records[first], points=tuple(points))
        return records

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda records: records[1:],
        lambda records: records[::-1],
        lambda records: [replace(records[0], reason="none", points=records[0].points), *records[1:]],
        lambda records: [replace(records[0], points=()), *records[1:]],
        lambda records: [replace(records[0], options=("k",)), *records[1:]],
        point_with(architecture=0),
        point_with(number=3),
        point_with(values=(1e-9, 1.0)),
        point_with(values=(1.0, 2.0, 3.0)),
        point_with(values=(1e9, 1.0)),
        point_with(best_case=(1e-9, 1e-9)),
        point_with(best_case=(1e9, 1e9)),
        point_with(seconds_per_sample=1.0),
        point_with(results=()),
    ],
)
def test_records_that_are_none(evaluator, records, change):
    asked, found = records
    wrong = RecordsAnswer(records=RECORDS.dump_json(change(records_of(found))), solved=found.solved)
    with pytest.raises(NonsenseError):
        check(evaluator, asked, wrong)


@pytest.mark.parametrize("text", [b"", b"[", b"{}", b"[1]", b"\xff"])
def test_records_that_cannot_be_read(evaluator, records, text):
    with pytest.raises(NonsenseError):
        check(evaluator, records[0], RecordsAnswer(records=text, solved=()))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found[1:],
        lambda found: list(found),
        lambda found: (None, *found[1:]),
        lambda found: (replace(found[0], start_s=found[0].start_s - 1), *found[1:]),
        lambda found: (replace(found[0], makespan_s=found[0].makespan_s / 2), *found[1:]),
        lambda found: (replace(found[0], lower_bound_s=float("nan")), *found[1:]),
        lambda found: (replace(found[0], unit=found[0].unit[:-1]), *found[1:]),
    ],
)
def test_schedules_that_are_none(evaluator, schedules, change):
    asked, found = schedules
    with pytest.raises(NonsenseError):
        check(evaluator, asked, change(found))


def test_a_run_is_given_once(job, bounds):
    work = Work.of(job, ())
    known = replace(work, package=None)
    with pytest.raises(UnknownWorkError):
        answer(replace(known, key="never given"), bounds[0])
    first = answer(work, bounds[0])
    np.testing.assert_array_equal(answer(known, bounds[0]).values, first.values)
    np.testing.assert_array_equal(first.values, bounds[1].values)


def test_answers_do_not_depend_on_how_questions_are_cut(evaluator, bounds, records):
    asked, whole = bounds
    halves = [answer_with(evaluator, half) for half in asked.halves()]
    np.testing.assert_array_equal(np.concatenate([half.values for half in halves]), whole.values)
    options = [half.options[0] for half in halves]
    np.testing.assert_array_equal(np.concatenate(options, axis=1), whole.options[0])
    pieces = [records_of(answer_with(evaluator, half)) for half in records[0].halves()]
    assert [record for piece in pieces for record in piece] == records_of(records[1])
    cache = ScheduleCache(time_limit_s=0.2)
    assert evaluator.evaluate(asked.indices, cache=cache) == records_of(records[1])
