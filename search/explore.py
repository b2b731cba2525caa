"""Explore a design space: bounds for every architecture, exact evaluation where a bound could still enter the front.

The result is the front of the whole space. An architecture is left out only when the most optimistic values it could
have are dominated by a point that was evaluated exactly. Bounds come in tiers: cheap ones for all, tighter ones for
what these leave open, exact evaluation for what could still be best. Each step depends on nothing but the inputs and
what earlier steps gave, so that a journal of the steps' answers lets an interrupted exploration go on and end the same.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.arch_configs.technology import Technology
from archplace.search.choices import Choices
from archplace.search.engine import Engine, LocalEngine
from archplace.search.evaluator import BoundBlock, Evaluator, References
from archplace.search.foremost import foremost
from archplace.search.gap import stated_gap
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound, Evaluated, Fate, Outcome, Progress, Record
from archplace.search.pareto import dominated_by, front_mask
from archplace.search.schedule import ScheduleCache
from archplace.search.steps import Exchange, Journal, NoJournal
from archplace.workloads import TrainingJob

SOLVER_LIMIT_S = 0.2
"""Deterministic time that a schedule gets whose bound and list schedule do not meet."""

BLOCK = 16384
"""Architectures bounded at a time: memory grows with them times operators, and times placement options."""

REFINED_AT_ONCE = (32, 256)
"""Architectures whose schedules are solved before the front is renewed: what is stored survives, what is beaten is
skipped. More where the front stands still: schedules are proven faster together."""

SEED_ROUNDS = 2
"""Rounds of evaluation by the first bounds alone: what these beat needs no dearer bounds."""

EVALUATED_AT_ONCE = 1024
"""Architectures, about, that are evaluated before the front is renewed, at most."""

SIFTED = (64, 4096)
"""Architectures that bounds of groups may leave to dearer ones, one in so many of the space or so many if that is more:
where more are left, the foremost are evaluated before."""

WIDENED_BOUNDS, WIDENED_EVALUATED, WIDENED_UNPROVEN = (4096, 4096), (4096, 256), (4096, 32)
"""A larger tolerance is taken where a smaller one leaves more than these to bound by schedules, to evaluate, or with
schedules to solve; with several workloads, which make each of them dearer, by their number."""

LITTLE_MORE = 1.25
"""Of several tolerances that leave too much, the smaller one is taken where it leaves no more than this factor."""

OPTION_BYTES = 1 << 29
"""Memory for bounds of placement options; what does not fit is computed again when its architecture is evaluated."""

Indices = NDArray[np.int64]


class Exploration:
    """The search over one design space for one or more workloads."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        engine: Engine | None = None,
        cache: ScheduleCache | None = None,
        jobs: int | None = None,
        tolerances: Sequence[float] = (0.0,),
        members: NDArray[np.bool_] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Prepare.

        ``engine`` answers what is asked of the evaluator, by default this process, with ``jobs`` processes that solve
        schedules. With a tolerance ε an architecture is also left out when a point is at most 1 + ε times its bound in
        all objectives that depend on placement, and no schedule is solved that can gain less; of several tolerances the
        least is taken that leaves little to do. ``members`` (n_archs,) are the architectures explored; the others stay
        open. The points that come by ``exchange`` prune like those of the front, which they do not join.
        """
        self.evaluator = evaluator
        self.cache = cache if cache is not None else ScheduleCache(time_limit_s=SOLVER_LIMIT_S)
        self._engine = engine if engine is not None else LocalEngine(evaluator, self.cache, jobs=jobs)
        self._tolerances = tuple(tolerances)
        self._exact = max(self._tolerances) == 0
        self._tolerance = min(self._tolerances)
        count = len(evaluator.architectures)
        self._members = np.ones(count, dtype=np.bool_) if members is None else members
        self._exchange = exchange
        self._others = np.empty((0, len(evaluator.objectives)))
        self._tried: set[int] = set()
        self._options: dict[int, tuple[FloatArray, ...]] = {}
        self._option_bytes = 0
        self._phase = "bounds"
        self.outcome = Outcome(
            objectives=evaluator.objectives,
            fate=np.zeros(count, dtype=np.int8),
            bound=np.full((count, len(evaluator.objectives)), np.inf),
            bound_kind=np.zeros(count, dtype=np.int8),
            reasons=evaluator.no_reasons(),
            option_reasons=evaluator.option_reasons,
            references_s=evaluator.references.seconds,
        )

    @classmethod
    def of(
        cls,
        architectures: Architectures,
        workloads: Sequence[TrainingJob],
        cluster: Cluster,
        choices: Choices,
        *,
        objectives: Sequence[str] = ("throughput", "area"),
        technology: Technology | None = None,
        references_s: tuple[float, ...] = (),
        cache: ScheduleCache | None = None,
        jobs: int | None = None,
    ) -> "Exploration":
        """Return the exploration of ``architectures`` in this process."""
        evaluator = Evaluator(
            architectures=architectures,
            workloads=workloads,
            cluster=cluster,
            choices=choices,
            objectives=Objectives.of(objectives),
            technology=technology,
            references=References(seconds=references_s),
        )
        return cls(evaluator, cache=cache, jobs=jobs)

    def run(self, journal: Journal | None = None) -> Outcome:
        """Explore until every architecture has its fate.

        ``journal`` hears of every step's answer, and gives the answers that an interrupted run has left.
        """
        keep = journal if journal is not None else NoJournal()
        with self._engine:
            self._bound_all(keep)
            self._learn()
            self._phase = "evaluation"
            for _ in range(SEED_ROUNDS if len(self.evaluator.tiers) == 2 else 1):
                self._evaluate_seeds(keep)
            for kind in self.evaluator.tiers[1:-1]:
                self._sift(kind, keep)
                if len(self._untightened(self._tolerance)) > max(len(self._members) // SIFTED[0], SIFTED[1]):
                    self._evaluate_seeds(keep)
            self._widen(lambda: len(self._untightened(self._tolerance)), WIDENED_BOUNDS)
            self._evaluate_open(keep)
            self._phase = "schedules"
            self._widen(lambda: len(self._unproven()), WIDENED_UNPROVEN)
            at_once = REFINED_AT_ONCE[0]
            while len(batch := self._undecided(at_once)):
                before = self.outcome.front_ids
                self._tried.update(batch.tolist())
                self._evaluate(batch, keep, solve=True)
                still = self.outcome.front_ids == before
                at_once = min(2 * at_once, REFINED_AT_ONCE[1]) if still else REFINED_AT_ONCE[0]
        self._finish()
        keep.show(self.progress())
        return self.outcome

    def _evaluate_seeds(self, journal: Journal) -> None:
        """Evaluate the foremost by the bounds that there are."""
        batch = self._promising()
        self._tighten(batch, journal)
        self._evaluate(batch[self.outcome.fate[batch] == Fate.OPEN], journal, solve=False)
        self._widen(lambda: len(self._unproven()), WIDENED_UNPROVEN)

    def _sift(self, kind: Bound, journal: Journal) -> None:
        """Bound the groups of what is open by tighter bounds, and prune what they beat."""
        for some, block, known in self._bounds(self._untightened(self._tolerance), kind, journal):
            self._note_bounds(some, block, kind)
            self._prune(some)
            if not known:
                journal.keep_bounds(kind, _number(some), block, self.progress())

    def _evaluate_open(self, journal: Journal) -> None:
        """Evaluate what is open, the foremost first, until nothing is."""
        self._tighten(self._open(), journal)
        layers = 1
        while len(batch := self._promising(layers)):
            before = self.outcome.front_ids
            self._evaluate(batch, journal, solve=False)
            # Only now is it known what the foremost leave to the others.
            self._widen(lambda: len(self._left(self._open(), self._tolerance)), WIDENED_EVALUATED)
            # Where the front stands still, what lies behind the foremost bounds will have to be evaluated as well.
            layers = 2 * layers if self.outcome.front_ids == before else 1

    def _widen(self, work: Callable[[], int], limit: tuple[int, int]) -> None:
        """Take the least of the tolerances, not below the present one, that leaves no more work than a share allows.

        Where even the largest one leaves more, the least one is taken that leaves little more than that does.
        """
        if self._exact:
            return
        at_hand = sorted(tolerance for tolerance in self._tolerances if tolerance >= self._tolerance)
        left = []
        for tolerance in at_hand:
            self._tolerance = tolerance
            left.append(work())
        allowed = max(self._share(limit), left[-1] * LITTLE_MORE)
        self._tolerance = next(at_hand[i] for i, count in enumerate(left) if count <= allowed)
        self._prune(self._open())

    def _untightened(self, tolerance: float) -> Indices:
        """Return architectures that are open, beaten by nothing by ``tolerance``, and lack the tightest bounds."""
        indices = self._open()
        return self._left(indices[self.outcome.bound_kind[indices] != Bound.SCHEDULE], tolerance)

    def _left(self, indices: Indices, tolerance: float) -> Indices:
        """Return those of ``indices`` that nothing beats by ``tolerance``."""
        left: Indices = indices[~self._beaten(self.outcome.bound[indices], self.outcome.front, tolerance)]
        return left

    def _share(self, limit: tuple[int, int]) -> int:
        """Return one in ``limit[0]`` of the architectures, at least ``limit[1]``, by the number of workloads."""
        return max(len(self._members) // limit[0], limit[1]) // len(self.evaluator.workloads)

    def _slack(self, tolerance: float) -> FloatArray:
        """Return (n_objectives,) by how much a point may exceed what it rules out."""
        return np.where(self.evaluator.objectives.depend_on_time, 1 + tolerance, 1.0)

    def _open(self) -> Indices:
        return np.flatnonzero((self.outcome.fate == Fate.OPEN) & self._members)

    def _bound_all(self, journal: Journal) -> None:
        """Bound every architecture by the cheapest bounds, and sort out those that no option or budget allows."""
        members, kind = np.flatnonzero(self._members), self.evaluator.tiers[0]
        for indices, block, known in self._bounds(members, kind, journal):
            self._note_bounds(indices, block, kind)
            if not known:
                journal.keep_bounds(kind, _number(indices), block, self.progress())

    def _bounds(self, indices: Indices, kind: Bound, journal: Journal) -> Iterator[tuple[Indices, BoundBlock, bool]]:
        """Yield ``indices`` in blocks with their bounds, and whether the journal knew these.

        Blocks are kept in their order, so that those known stand before all others.
        """
        rest = blocks_of(self.evaluator, indices, kind)
        while rest:
            known = journal.bounds(kind, _number(rest[0]))
            if known is None:
                break
            yield rest.pop(0), known, True
        for some, block in zip(rest, self._engine.bounds(rest, kind), strict=True):
            yield some, block, False

    def _note_bounds(self, indices: Indices, block: BoundBlock, kind: Bound) -> None:
        outcome = self.outcome
        # Not the larger of this and an earlier one of a group, which may be: whoever checks it computes this one.
        outcome.bound[indices] = block.values
        outcome.bound_kind[indices] = kind
        refused = block.code >= 0
        outcome.reasons.code[indices] = block.code
        outcome.reasons.amount[indices] = block.amount
        outcome.fate[indices[refused]] = Fate.INFEASIBLE

    def _tighten(self, indices: Indices, journal: Journal) -> None:
        """Compute the tightest bounds of those of ``indices`` that lack them, in blocks, and prune what they beat."""
        indices = indices[self.outcome.bound_kind[indices] != Bound.SCHEDULE]
        for some, block, known in self._bounds(indices, Bound.SCHEDULE, journal):
            self._note_bounds(some, block, Bound.SCHEDULE)
            self._prune(some)
            left = np.flatnonzero(self.outcome.fate[some] == Fate.OPEN)
            # The options' bounds are kept of those architectures alone that may be evaluated.
            options = block.options if known else block.take(left).options
            if all(one.shape[1] == len(left) for one in options):
                self._keep_options(some[left], options)
            if not known:
                journal.keep_bounds(
                    Bound.SCHEDULE,
                    _number(some),
                    BoundBlock(values=block.values, code=block.code, amount=block.amount, options=options),
                    self.progress(),
                )

    def _keep_options(self, indices: Indices, options: tuple[FloatArray, ...]) -> None:
        for row, i in enumerate(indices.tolist()):
            if self._option_bytes > OPTION_BYTES:
                return
            own = tuple(one[:, row].copy() for one in options)
            self._options[i] = own
            self._option_bytes += sum(one.nbytes for one in own)

    def _drop_options(self, architecture: int) -> None:
        self._option_bytes -= sum(one.nbytes for one in self._options.pop(architecture, ()))

    def _options_of(self, indices: Indices) -> tuple[FloatArray, ...]:
        """Return the bounds of the options of some architectures, or nothing where they are not known of all."""
        if len(indices) == 0 or any(i not in self._options for i in indices.tolist()):
            return ()
        own = [self._options[i] for i in indices.tolist()]
        return tuple(np.stack(columns, axis=1) for columns in zip(*own, strict=True))

    def _evaluate(self, batch: Indices, journal: Journal, *, solve: bool) -> None:
        """Evaluate some architectures, as far as the journal does not know them, and renew the front."""
        records = {i: journal.record(i, solved=solve) for i in batch.tolist()}
        new = np.array([i for i in batch.tolist() if records[i] is None], dtype=np.int64)

        def keep(done: Sequence[Record]) -> None:
            records.update({record.architecture: record for record in done})
            journal.keep_records(done, solved=solve)

        if len(new):
            self._engine.evaluate(new, self._options_of(new), solve=solve, keep=keep)
        self._admit([record for record in records.values() if record is not None])
        self._learn()
        journal.show(self.progress())

    def _admit(self, records: Sequence[Record]) -> None:
        """Take in what was evaluated: renew the front and prune what it dominates."""
        outcome = self.outcome
        renewed = {record.architecture for record in records}
        for record in records:
            outcome.records[record.architecture] = record
            outcome.fate[record.architecture] = Fate.DOMINATED if record.points else Fate.INFEASIBLE
            if not record.points or all(point.proven for point in record.points):
                self._drop_options(record.architecture)
            if record.reason is not None:
                outcome.reasons.own[record.architecture] = record.reason
        candidates = [point for point in outcome.front if point.architecture not in renewed]
        candidates += [point for record in records for point in record.points]
        mask = front_mask(np.array([point.values for point in candidates]).reshape(-1, len(outcome.objectives)))
        for point in outcome.front:
            outcome.fate[point.architecture] = Fate.DOMINATED
        outcome.set_front([point for point, on_front in zip(candidates, mask.tolist(), strict=True) if on_front])
        for point in outcome.front:
            outcome.fate[point.architecture] = Fate.FRONT
        self._prune(self._open(), new=renewed)

    def _learn(self) -> None:
        """Hear what others have found, and prune what that dominates."""
        if self._exchange is None:
            return
        new = self._exchange.exchange(self.outcome.front)
        if len(new):
            self._others = np.concatenate((self._others, new))
            self._others = self._others[front_mask(self._others)]
            self._prune(self._open())

    def _prune(self, indices: Indices, new: set[int] | None = None) -> None:
        """Prune those of the open ``indices`` whose bounds the front (only ``new`` of it, if given) dominates."""
        indices = indices[self.outcome.fate[indices] == Fate.OPEN]
        front = self.outcome.front
        if new is not None and len(self.outcome.objectives) > 2:
            # Earlier points have been compared with these bounds already.
            front = [point for point in front if point.architecture in new]
        beaten = indices[self._beaten(self.outcome.bound[indices], front)]
        self.outcome.fate[beaten] = Fate.PRUNED
        for architecture in beaten.tolist() if self._options else ():
            self._drop_options(architecture)

    def _beaten(
        self, lowest: FloatArray, front: Sequence[Evaluated], tolerance: float | None = None
    ) -> NDArray[np.bool_]:
        """Return which best cases (n, n_objectives) a point of ``front`` dominates, or comes near enough.

        Near enough is what is within ``tolerance``, by default the present one.
        """
        values = np.array([point.values for point in front]).reshape(-1, lowest.shape[1])
        if len(self._others):
            values = np.concatenate((values, self._others))
            values = values[front_mask(values)]
        slack = self._slack(self._tolerance if tolerance is None else tolerance)
        beaten: NDArray[np.bool_] = dominated_by(lowest * slack, values) >= 0
        return beaten

    def _promising(self, layers: int = 1) -> Indices:
        """Return open architectures that are nowhere beaten by the bounds of other open ones: all, or some of many.

        With more ``layers`` also those that would be when the ones before are gone, up to a number.
        """
        left = self._open()
        found: list[Indices] = []
        while layers and len(left) and sum(len(one) for one in found) < EVALUATED_AT_ONCE:
            first = np.zeros(len(left), dtype=np.bool_)
            first[foremost(self.outcome.bound[left])] = True
            found.append(left[first])
            left = left[~first]
            layers -= 1
        return np.concatenate(found) if found else left

    def _undecided(self, at_once: int) -> Indices:
        """Return architectures with unproven points, those first whose best cases are foremost among such best cases.

        At most ``at_once``, and none beyond the foremost unless more than the least number are wanted.
        """
        points = self._unproven()
        if not points:
            return np.empty(0, dtype=np.int64)
        values = np.array([point.best_case for point in points])
        left = np.arange(len(points))
        found: dict[int, None] = {}
        while len(left) and len(found) < at_once and (not found or at_once > REFINED_AT_ONCE[0]):
            first = foremost(values[left])
            found.update(dict.fromkeys(points[i].architecture for i in left[first].tolist()))
            left = np.delete(left, first)
        return np.array(list(found)[:at_once], dtype=np.int64)

    def _unproven(self) -> list[Evaluated]:
        """Return evaluated points that are not proven and whose best case no point of the front dominates."""
        points = [p for p in self.outcome.points if not p.proven and p.architecture not in self._tried]
        if not points:
            return []
        beaten = self._beaten(np.array([point.best_case for point in points]), self.outcome.front)
        near = np.array([self._near(point) for point in points])
        return [point for point, skip in zip(points, (beaten | near).tolist(), strict=True) if not skip]

    def _near(self, point: Evaluated) -> bool:
        """Return whether closing a point's schedules can gain no more than the tolerance."""
        values, best_case = np.array(point.values), np.array(point.best_case)
        return self._tolerance > 0 and bool((values <= best_case * self._slack(self._tolerance)).all())

    def progress(self) -> Progress:
        """Return how far the exploration is."""
        outcome = self.outcome
        values = np.array([point.values for point in outcome.front]).reshape(-1, len(outcome.objectives))
        best = values.min(axis=0, initial=np.inf)
        fates = np.bincount(outcome.fate[self._members], minlength=len(Fate))
        return Progress(
            phase=self._phase,
            bounded=int((outcome.bound_kind[self._members] > 0).sum()),
            decided=int(self._members.sum() - fates[Fate.OPEN]),
            total=int(self._members.sum()),
            evaluated=len(outcome.records),
            front=len(outcome.front),
            best=tuple(float(value) if np.isfinite(value) else float("nan") for value in best),
            fates=tuple(fates.tolist()),
            unproven=len({point.architecture for point in self._unproven()}) if self._phase != "bounds" else 0,
        )

    def _finish(self) -> None:
        """State how far the front may be from the true one, where it was not to be exact."""
        if not self._exact:
            self.outcome.gap = stated_gap(self.outcome, self._others, self.evaluator.references.gap)


def blocks_of(evaluator: Evaluator, indices: Indices, kind: Bound) -> list[Indices]:
    """Return ``indices`` in blocks whose bounds are computed at once; for bounds of groups, blocks of whole groups."""
    groups = evaluator.groups_of(kind)
    if groups is None:
        return [indices[start : start + BLOCK] for start in range(0, len(indices), BLOCK)]
    number = groups.of[indices]
    order = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[order], np.arange(BLOCK, int(groups.of.max()) + 1, BLOCK))
    return [block for block in np.split(indices[order], ends) if len(block)]


def _number(indices: Indices) -> int:
    """Return a number of 64 bits that stands for a block of architectures."""
    return int.from_bytes(hashlib.blake2b(indices.astype("<i8").tobytes(), digest_size=8).digest(), signed=True)


def references(evaluator: Evaluator, run: Callable[[Evaluator], Outcome]) -> References:
    """Return the least seconds per sample of each workload by itself in the space; infinite where none is feasible.

    ``run`` explores with one workload and throughput as the only objective. Where it is not exact, the gap says so.
    """
    found, gap = [], 0.0
    for alone in evaluator.each_alone():
        outcome = run(alone)
        found.append(min((point.seconds_per_sample for point in outcome.front), default=float("inf")))
        gap = max(gap, *(outcome.gap or (0.0,)))
    return References(seconds=tuple(found), gap=gap)
