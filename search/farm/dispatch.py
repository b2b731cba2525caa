"""Who is asked what, and what happens when an answer does not come or is not one.

A question that fails is asked again, elsewhere: halved where its worker was lost or had too little memory, whole where
the answer was no answer. One that fails too often is answered here. So a worker costs the questions it holds, and a
question costs a few workers at most: the run goes on.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from archplace.search.farm.answers import Answer
from archplace.search.farm.checks import NonsenseError
from archplace.search.farm.questions import Question

TRIES = 3
"""Times that a question is asked before it is answered here."""
LOSSES = 2
"""Workers that a question may cost before it is answered here."""
STRIKES = 3
"""Answers that were none, after which a worker is not asked any more."""
DEPTH = 2
"""Questions that a worker holds: one that it works on and one that waits, so that it is never idle."""
CHECK_EVERY = 32
"""Of a worker's answers the first, the first after nonsense, and then one in so many is computed here again in part."""
PATIENCE = 10.0
"""An answer is not waited for any more after so many times what the slowest one before has taken,"""
LEAST_PATIENCE_S = 120.0
"""but at least so long,"""
FIRST_PATIENCE_S = 900.0
"""and so long before there was any."""


class Failure(Enum):
    """Why an answer did not come."""

    LOST = "was lost"
    OVERDUE = "does not answer"
    MEMORY = "ran out of memory"
    UNKNOWN_WORK = "does not know the run"
    REFUSED = "has another archplace"
    ERROR = "failed"
    NONSENSE = "answered nonsense"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a question."""

    ticket: str
    answer: object = None
    failure: Failure | None = None
    text: str = ""
    """The failure in words."""


class Workers(Protocol):
    """Those who answer."""

    def names(self) -> frozenset[str]:
        """Return the workers that can be asked now."""

    def ask(self, worker: str, question: Question) -> str:
        """Send a question and return its ticket."""

    def next_reply(self, timeout_s: float) -> Reply | None:
        """Wait for a reply to any question; None when none came."""

    def drop(self, tickets: Iterable[str]) -> None:
        """Forget questions; no reply to them comes."""

    def dismiss(self, worker: str) -> None:
        """Do not name a worker any more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Part:
    """A question with its place in what the caller puts together, and its history."""

    question: Question
    block: int = 0
    start: int = 0
    """Where in the block it begins."""
    tries: int = 0
    losses: int = 0
    shunned: str = ""
    """The worker that failed last."""


@dataclass(slots=True, kw_only=True)
class _Flight:
    part: Part
    worker: str
    since: float
    text: str = ""
    """What went wrong."""


class Dispatcher:
    """Gets answers from workers, and where these fail from this process."""

    def __init__(
        self,
        workers: Workers,
        *,
        check: Callable[[Question, object], Answer],
        recheck: Callable[[Question, Answer, int], None],
        answer_here: Callable[[Question], Answer],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        ``check`` judges an answer at sight, ``recheck`` after computing a sample of it anew; both raise
        :class:`NonsenseError`. ``answer_here`` answers in this process, ``say`` tells the user.
        """
        self._workers = workers
        self._check = check
        self._recheck = recheck
        self._answer_here = answer_here
        self._say = say
        self._clock = clock
        self._answered: Counter[str] = Counter()
        self._strikes: Counter[str] = Counter()
        self._alone = False
        self._slowest_s: float | None = None

    def answers(self, parts: Iterable[Part], *, room: Callable[[Part], bool]) -> Iterator[tuple[Part, Answer]]:
        """Yield the answers as they come, each with its part: one of ``parts``, or a half of one.

        ``room`` says whether an answer to a part could be taken now; it must be so for the oldest unanswered one.
        """
        source = iter(parts)
        waiting: deque[Part] = deque()
        flights: dict[str, _Flight] = {}
        ahead = next(source, None)
        try:
            while ahead is not None or waiting or flights:
                names = self._workers.names()
                while (waiting or (ahead is not None and room(ahead))) and (
                    worker := self._free(names, flights, waiting[0].shunned if waiting else "")
                ):
                    if waiting:
                        part = waiting.popleft()
                    else:
                        assert ahead is not None
                        part, ahead = ahead, next(source, None)
                    ticket = self._workers.ask(worker, part.question)
                    flights[ticket] = _Flight(part=part, worker=worker, since=self._clock())
                if not names and not flights:
                    self._note_alone(True)
                    if waiting:
                        part = waiting.popleft()
                    else:
                        assert ahead is not None
                        part, ahead = ahead, next(source, None)
                    yield part, self._answer_here(part.question)
                    continue
                self._note_alone(False)
                reply = self._workers.next_reply(1.0)
                if reply is None:
                    reply = self._overdue(flights)
                if reply is None or reply.ticket not in flights:
                    continue
                flight = flights.pop(reply.ticket)
                answer = self._answer_of(flight, reply)
                if answer is not None:
                    yield flight.part, answer
                elif again := self._again(flight, reply.failure or Failure.NONSENSE):
                    waiting.extend(again)
                else:
                    yield flight.part, self._answer_here(flight.part.question)
        finally:
            self._workers.drop(list(flights))

    def _free(self, names: frozenset[str], flights: dict[str, _Flight], shunned: str) -> str:
        """Return the worker that holds least, another one than ``shunned`` if there is one; none if all hold enough."""
        held = Counter(flight.worker for flight in flights.values())
        usable = sorted(names - {shunned} or names)
        worker = min(usable, key=lambda name: held[name], default="")
        return worker if worker and held[worker] < DEPTH else ""

    def _note_alone(self, alone: bool) -> None:
        if alone and not self._alone:
            self._say("no worker is left: this process goes on by itself, and uses workers again when some come")
        if self._alone and not alone:
            self._say("there are workers again")
        self._alone = alone

    def _overdue(self, flights: dict[str, _Flight]) -> Reply | None:
        patience_s = FIRST_PATIENCE_S
        if self._slowest_s is not None:
            patience_s = max(LEAST_PATIENCE_S, PATIENCE * self._slowest_s)
        for ticket, flight in flights.items():
            waited_s = self._clock() - flight.since
            if waited_s > patience_s:
                self._workers.drop([ticket])
                return Reply(ticket=ticket, failure=Failure.OVERDUE, text=f"has not answered for {waited_s:.0f} s")
        return None

    def _answer_of(self, flight: _Flight, reply: Reply) -> Answer | None:
        """Return the answer if it is one, else tell why not."""
        question, worker = flight.part.question, flight.worker
        if reply.failure is not None:
            flight.text = reply.text or reply.failure.value
            return None
        count = self._answered[worker]
        self._answered[worker] += 1
        try:
            answer = self._check(question, reply.answer)
            if count % CHECK_EVERY == 0:
                self._recheck(question, answer, count)
        except NonsenseError as error:
            flight.text = f"answered nonsense ({error})"
            # The next one is looked at as closely as a first one.
            self._answered[worker] = 0
            return None
        self._slowest_s = max(self._slowest_s or 0.0, self._clock() - flight.since)
        return answer

    def _again(self, flight: _Flight, failure: Failure) -> list[Part]:
        """Return what is to be asked instead of a part that failed; nothing where it is to be answered here."""
        part, worker = flight.part, flight.worker
        if failure is Failure.UNKNOWN_WORK:
            return [part]
        part.shunned = worker
        costly = failure in (Failure.LOST, Failure.OVERDUE, Failure.MEMORY)
        part.tries += 1
        part.losses += costly
        self._blame(worker, failure)
        here = part.tries >= TRIES or part.losses >= LOSSES
        halves = part.question.halves() if costly and not here else ()
        how = "is done here" if here else "is asked again in halves" if halves else "is asked again"
        self._say(f"worker {worker} {flight.text}: its {part.question.size} {how}")
        if here:
            return []
        if not halves:
            return [part]
        first, second = halves
        return [
            Part(
                question=question,
                block=part.block,
                start=start,
                tries=part.tries,
                losses=part.losses,
                shunned=worker,
            )
            for question, start in ((first, part.start), (second, part.start + len(first)))
        ]

    def _blame(self, worker: str, failure: Failure) -> None:
        if failure is Failure.REFUSED:
            self._workers.dismiss(worker)
        if failure in (Failure.NONSENSE, Failure.ERROR, Failure.OVERDUE):
            self._strikes[worker] += 1
            if self._strikes[worker] == STRIKES:
                self._workers.dismiss(worker)
                self._say(f"worker {worker} is not asked any more: it has failed {STRIKES} times")
