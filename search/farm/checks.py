"""Judge what a worker answered: nothing that contradicts what is known here may enter a run.

What can be told at once is: that the answer is about what was asked, that its arrays have the shapes, types and numbers
that they must have, that no value lies below its bound, that a schedule keeps every constraint. What cannot be told so
is a number that is wrong and plausible: :func:`recheck` computes a sample anew.
"""

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.evaluator import BoundBlock, Evaluator
from archplace.search.explore import SOLVER_LIMIT_S
from archplace.search.farm.answers import RECORDS, Answer
from archplace.search.farm.questions import (
    BoundsQuestion,
    Question,
    RecordsAnswer,
    RecordsQuestion,
    SchedulesQuestion,
)
from archplace.search.objectives import Objective
from archplace.search.outcome import Bound, Evaluated, Record
from archplace.search.schedule import Schedule, ScheduleCache, ScheduleProblem, solve, verify

TOLERANCE = 1e-9
"""Relative difference that two computations of the same value may have."""

_FATES = frozenset("kdpi")
_SAMPLE = 2
"""Architectures computed anew; one alone would be added up in another order."""


class NonsenseError(Exception):
    """An answer is none; the text says why."""


def check(evaluator: Evaluator, question: Question, answer: object) -> Answer:
    """Return ``answer`` if it can be one to ``question``; raises :class:`NonsenseError`."""
    try:
        if isinstance(question, BoundsQuestion):
            return _bounds(evaluator, question, answer)
        if isinstance(question, RecordsQuestion):
            return _records(evaluator, question, answer)
        return _schedules(question, answer)
    except (ValueError, TypeError, AttributeError, IndexError, KeyError, OverflowError) as error:
        text = (str(error).splitlines() or [""])[0][:200]
        raise NonsenseError(f"not of the kind that was asked for: {type(error).__name__}: {text}") from None


def records_of(answer: RecordsAnswer) -> list[Record]:
    """Return the records of an answer; raises ValueError for what is none."""
    return RECORDS.validate_json(answer.records)


def recheck(evaluator: Evaluator, question: Question, answer: Answer, sample: int) -> None:
    """Compute a part of a checked answer anew; raises :class:`NonsenseError` where it differs.

    ``sample``, any number, chooses the part.
    """
    if isinstance(answer, tuple):
        assert isinstance(question, SchedulesQuestion)
        _recheck_schedule(question, answer, sample % len(answer))
        return
    assert not isinstance(question, SchedulesQuestion)
    first = sample % max(1, len(question.indices) - _SAMPLE + 1)
    rows = np.arange(first, min(first + _SAMPLE, len(question.indices)))
    if isinstance(answer, BoundBlock):
        assert isinstance(question, BoundsQuestion)
        mine, part = evaluator.bounds(question.indices[rows], question.kind), answer.take(rows)
        pairs = [(mine.values, part.values), *zip(mine.options, part.options, strict=True)]
        _need(np.array_equal(mine.code, part.code), "other reasons than found here")
        _need(all(_near(one, other) for one, other in pairs), "bounds that differ from those computed here")
        return
    assert isinstance(question, RecordsQuestion)
    options = tuple(one[:, rows] for one in question.options)
    found = evaluator.evaluate(question.indices[rows], options, cache=ScheduleCache(time_limit_s=SOLVER_LIMIT_S))
    evaluator.forget()
    for own, other in zip(found, np.array(records_of(answer), dtype=object)[rows], strict=True):
        same = own.options == other.options and len(own.points) == len(other.points)
        values = [np.array([point.values for point in record.points]) for record in (own, other)]
        _need(same and _near(*values), f"architecture {own.architecture}: other design points than found here")


def _recheck_schedule(question: SchedulesQuestion, answer: tuple[Schedule, ...], at: int) -> None:
    mine = solve(question.problems[at], engine=question.engine, time_limit_s=question.time_limit_s)
    other = answer[at]
    same = mine.status is other.status and np.allclose(
        (mine.makespan_s, mine.lower_bound_s), (other.makespan_s, other.lower_bound_s), rtol=TOLERANCE, atol=0
    )
    _need(same, "a schedule other than the one found here")


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NonsenseError(otherwise)


def _near(mine: FloatArray, other: FloatArray) -> bool:
    return bool((np.isclose(mine, other, rtol=TOLERANCE, atol=0) | ((mine == other) & np.isinf(mine))).all())


def _is_array(array: object, shape: tuple[int, ...], dtype: type[np.generic]) -> bool:
    return isinstance(array, np.ndarray) and array.shape == shape and array.dtype == np.dtype(dtype)


def _bounds(evaluator: Evaluator, question: BoundsQuestion, answer: object) -> BoundBlock:
    n, width = len(question.indices), len(evaluator.objectives)
    if not isinstance(answer, BoundBlock):
        raise NonsenseError(f"a {type(answer).__name__} instead of bounds")
    searches = evaluator.searches if question.kind is Bound.SCHEDULE else []
    _need(
        _is_array(answer.values, (n, width), np.float64)
        and _is_array(answer.code, (n,), np.int16)
        and _is_array(answer.amount, (n,), np.float64)
        and len(answer.options) == len(searches)
        and all(
            _is_array(one, (len(search.spaces), n, search.figures.count), np.float64)
            for one, search in zip(answer.options, searches, strict=True)
        ),
        "arrays of other shapes or types than asked for",
    )
    refused = answer.code >= 0
    fine = answer.values[~refused]
    known = (answer.code >= -1) & (answer.code < len(evaluator.reason_texts))
    _need(bool(known.all()) and not np.isnan(answer.amount).any(), "reasons that do not exist")
    _need(bool(np.isinf(answer.values[refused]).all() and np.isfinite(fine).all()), "bounds that are not numbers")
    _need(all(bool((one > 0).all()) for one in (fine, *answer.options)), "bounds that are not positive")
    fixed = _fixed(evaluator)
    same = _near(fine[:, fixed], _own(evaluator, question.indices[~refused])[:, fixed])
    _need(same, "another area or power than the architectures have")
    return answer


def _fixed(evaluator: Evaluator) -> list[int]:
    """Return the columns of objectives that are the architecture's."""
    return [i for i, name in enumerate(evaluator.objectives.names) if name in (Objective.AREA, Objective.POWER)]


def _own(evaluator: Evaluator, indices: NDArray[np.int64]) -> FloatArray:
    """Return values in which those columns are the architectures', (n, n_objectives)."""
    return evaluator.objectives.values(
        np.ones((len(evaluator.workloads), len(indices), 3)),
        references_s=(1.0,) * len(evaluator.workloads),
        power_w=evaluator.power_w[indices],
        area_mm2=evaluator.architectures.area_mm2[indices],
    )


def _records(evaluator: Evaluator, question: RecordsQuestion, answer: object) -> RecordsAnswer:
    if not isinstance(answer, RecordsAnswer):
        raise NonsenseError(f"a {type(answer).__name__} instead of records")
    records = records_of(answer)
    asked = question.indices.tolist()
    _need([record.architecture for record in records] == asked, "records of other architectures than asked for")
    for column, record in enumerate(records):
        try:
            _check_record(evaluator, tuple(one[:, column] for one in question.options), record)
        except NonsenseError as error:
            raise NonsenseError(f"architecture {record.architecture}: {error}") from None
    for problem, schedule in answer.solved:
        _check_schedule(problem, schedule)
    return answer


def _check_record(evaluator: Evaluator, options: tuple[FloatArray, ...], record: Record) -> None:
    """Check a record, given the bounds of its options, (n_options, n_figures) per workload."""
    _need(bool(record.points) != (record.reason is not None), "points and a reason why there are none, or neither")
    lengths = [len(search.spaces) for search in evaluator.searches]
    known = [len(text) for text in record.options] == lengths and _FATES.issuperset("".join(record.options))
    _need(known, "fates of other placement options than there are")
    _need([point.number for point in record.points] == list(range(len(record.points))), "points not numbered from 0")
    for point in record.points:
        own = point.architecture == record.architecture and len(point.results) == len(evaluator.searches)
        _need(own, "a point of another architecture")
        _check_point(evaluator, options, point)


def _check_point(evaluator: Evaluator, options: tuple[FloatArray, ...], point: Evaluated) -> None:
    chosen, seconds = [], []
    for search, bounds, result in zip(evaluator.searches, options, point.results, strict=True):
        known = {space.option: i for i, space in enumerate(search.spaces)}
        _need(result.option in known, f"a placement option that does not exist: {result.option}")
        bound = bounds[known[result.option]]
        step_s = result.placement.step_s
        reached = step_s / search.workload.global_batch
        _need(bool(np.isfinite(reached) and reached >= bound[0] * (1 - TOLERANCE)), "a step time below its bound")
        _need(0 < result.lower_step_s <= step_s * (1 + TOLERANCE), "a step time below the least that it could be")
        chosen.append(bound)
        seconds.append(reached)
    values, best_case = np.array(point.values), np.array(point.best_case)
    width = len(evaluator.objectives)
    _need(values.shape == best_case.shape == (width,), "values of other objectives")
    _need(bool(np.isfinite(values).all() and (best_case > 0).all()), "values that are not numbers")
    _need(bool((best_case <= values * (1 + TOLERANCE)).all()), "values below what is said to be their best case")
    lowest = _lowest(evaluator, point.architecture, chosen)
    _need(bool((values >= lowest * (1 - TOLERANCE)).all()), "values below their bounds")
    least = _lowest(evaluator, point.architecture, [bounds.min(axis=0) for bounds in options])
    _need(bool((best_case >= least * (1 - TOLERANCE)).all()), "a best case below its bounds")
    fixed = _fixed(evaluator)
    _need(_near(values[fixed], lowest[fixed]), "another area or power than the architecture has")
    mean = float(np.exp(np.mean(np.log(seconds))))
    close = np.isclose(point.seconds_per_sample, mean, rtol=TOLERANCE, atol=0)
    _need(bool(close), "seconds per sample that the step times do not give")
    for column, name in enumerate(evaluator.objectives.names):
        if name is Objective.THROUGHPUT:
            _need(bool(np.isclose(values[column], mean, rtol=TOLERANCE, atol=0)), "a rate that the step times forbid")


def _lowest(evaluator: Evaluator, architecture: int, figures: list[FloatArray]) -> FloatArray:
    """Return the values, (n_objectives,), of an architecture with given figures, (n_figures,) per workload."""
    at = slice(architecture, architecture + 1)
    values: FloatArray = evaluator.objectives.values(
        np.array(figures)[:, None, :],
        references_s=evaluator.references.seconds or (1.0,) * len(figures),
        power_w=evaluator.power_w[at],
        area_mm2=evaluator.architectures.area_mm2[at],
    )[0]
    return values


def _schedules(question: SchedulesQuestion, answer: object) -> tuple[Schedule, ...]:
    if not isinstance(answer, tuple) or len(answer) != len(question.problems):
        raise NonsenseError("other schedules than asked for")
    return tuple(
        _check_schedule(problem, schedule) for problem, schedule in zip(question.problems, answer, strict=True)
    )


def _check_schedule(problem: ScheduleProblem, schedule: object) -> Schedule:
    if not isinstance(schedule, Schedule):
        raise NonsenseError(f"a {type(schedule).__name__} instead of a schedule")
    arrays = (schedule.start_s, schedule.mode, schedule.unit)
    _need(
        all(isinstance(one, np.ndarray) and one.shape == (problem.n_ops,) for one in arrays),
        "a schedule of other operators",
    )
    _need(0 <= schedule.lower_bound_s < float("inf"), f"a schedule with the lower bound {schedule.lower_bound_s} s")
    violations = verify(problem, schedule)
    _need(not violations, f"a schedule that is none: {violations[:1]}")
    return schedule
