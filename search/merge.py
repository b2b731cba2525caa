"""Put the finished shards of a run together to one finished run, as if one process had made it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from archplace import __version__
from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.errors import StoreError
from archplace.search.evaluator import References
from archplace.search.gap import stated_gap
from archplace.search.journal import noted
from archplace.search.outcome import Fate, Outcome, Progress, Reasons, Record
from archplace.search.pareto import dominated_by, front_mask
from archplace.search.run import COMMAND, keep_references, read_job, resume_command, stored_references
from archplace.search.runfile import Run
from archplace.search.schedule import Schedule
from archplace.search.shards import EXCHANGE, Shard, Shown, shown_of
from archplace.search.store import Store
from archplace.search.store_lock import is_locked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """What a finished shard's store holds."""

    shard: Shard
    job: Run
    outcome: Outcome
    bracketed: dict[int, Record]
    solved: dict[int, Record]
    schedules: dict[str, Schedule]
    references: References
    shown: list[Shown]
    elapsed_s: float


def merge(root: Path, out: Path | None = None, *, command: str = "") -> Outcome:
    """Merge the shards in ``root`` into a run in ``out``, by default ``root`` itself; return its outcome.

    ``command`` is noted as the one that goes on where the merge is interrupted. Raises :class:`StoreError` with every
    problem: shards that are missing, not finished, of other inputs or versions, or contradict each other.
    """
    out = root if out is None else out
    shards = _find(root)
    _refuse_unfinished(root, shards)
    finished = [_read(root, shard) for shard in shards]
    problems = _disagreements(finished)
    if problems:
        raise StoreError("\n".join(f"{root}: {text}" for text in problems))
    first = finished[0]
    outcome = _outcome(finished)
    problems = _unfounded(finished, outcome)
    if problems:
        raise StoreError("\n".join(f"{root}: {text}" for text in problems))
    with Store.open(first.shard.folder(root)) as store:
        meta = {key: value for key, value in store.meta().items() if key in ("name", "run")}
    with Store.create(out, digest=first.job.digest, meta=meta) as store:
        if command:
            store.log(COMMAND, {"command": command, "folder": str(Path.cwd())})
        for one in finished:
            store.keep_records(one.bracketed.values(), solved=False, schedules=one.schedules)
            store.keep_records(one.solved.values(), solved=True)
        if first.references.seconds:
            keep_references(store, first.references)
        store.log("wall_s", max(one.elapsed_s for one in finished))
        store.finish(outcome, progress=noted(_progress(outcome, sum(one.elapsed_s for one in finished))))
    return outcome


def _find(root: Path) -> list[Shard]:
    """Return the shards of the run in ``root``: as many as there must be."""
    counts = sorted({shard.count for shard in _present(root)})
    if not counts:
        raise StoreError(
            f"{root}: no shards of a run here; make them with: archplace search RUN.yaml --out {root} --shard i/n"
        )
    if len(counts) > 1:
        named = " and ".join(str(count) for count in counts)
        raise StoreError(f"{root}: holds shards of runs in {named} parts; move those away that do not belong")
    return [Shard(number=number, count=counts[0]) for number in range(1, counts[0] + 1)]


def _present(root: Path) -> list[Shard]:
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return sorted(shard for path in folders if (shard := Shard.of_folder(path)) is not None)


def _refuse_unfinished(root: Path, shards: Sequence[Shard]) -> None:
    """Raise with a line for each shard that is missing or not finished, and the command that finishes it."""
    present = {shard.number for shard in _present(root)}
    problems, example = [], ""
    missing = []
    for shard in shards:
        folder = shard.folder(root)
        if shard.number not in present:
            missing.append(shard)
            continue
        # Before the store is read: a shard that ends meanwhile is then told to be at work, not interrupted.
        running = is_locked(folder)
        try:
            with Store.open(folder) as store:
                example = resume_command(store)
                if not store.finished:
                    advice = (
                        f"a process is at it; watch it with: archplace status {folder}"
                        if running
                        else f"go on with: {example}"
                    )
                    problems.append(f"{shard} is not finished; {advice}")
        except StoreError as error:
            problems.append(f"{shard} cannot be read: {error}")
    for shard in missing:
        command = re.sub(r"--shard \d+/\d+", f"--shard {shard.number}/{shard.count}", example)
        problems.append(f"{shard} is missing; make it with: {command or 'archplace search'}")
    if problems:
        raise StoreError("\n".join(f"{root}: {text}" for text in problems))


def _read(root: Path, shard: Shard) -> _Finished:
    with Store.open(shard.folder(root)) as store:
        meta = store.meta()
        if meta.get("shard") != [shard.number, shard.count] or meta.get("version") != __version__:
            what = f"{meta.get('shard')} of archplace {meta.get('version')}"
            raise StoreError(
                f"{store.folder}: holds the shard {what}, not {shard} of {__version__}; move it away and search again"
            )
        job = read_job(store)
        if meta.get("digest") != job.digest:
            raise StoreError(f"{store.folder}: was written for other inputs than it says it has; search again")
        references = stored_references(store)
        outcome = store.outcome(references.seconds)
        assert outcome is not None, "checked before"
        shown: list[Shown] = []
        step = 0
        while (told := store.text(f"{EXCHANGE} {step}")) is not None:
            shown += shown_of(told) or []
            step += 1
        elapsed = (store.progress() or {}).get("elapsed_s")
        return _Finished(
            shard=shard,
            job=job,
            outcome=outcome,
            bracketed=store.records(solved=False),
            solved=store.records(solved=True),
            schedules=store.schedules(),
            references=references,
            shown=shown,
            elapsed_s=float(elapsed) if isinstance(elapsed, int | float) else 0.0,
        )


def _disagreements(finished: Sequence[_Finished]) -> list[str]:
    """Return how shards contradict what they must share, or do not decide what is theirs."""
    first = finished[0]
    found = []
    for one in finished:
        mine = one.shard.members(len(first.outcome.fate))
        if one.job.digest != first.job.digest:
            found.append(f"{one.shard} is of other inputs than {first.shard}; move it away and search it again")
        elif one.references != first.references:
            found.append(f"{one.shard} measures throughputs by other references than {first.shard}; search it again")
        elif len(one.outcome.fate) != len(first.outcome.fate):
            found.append(f"{one.shard} is of another space than {first.shard}; search it again")
        elif (one.outcome.fate[mine] == Fate.OPEN).any() or any(not mine[i] for i in one.outcome.records):
            found.append(f"{one.shard} has not decided the architectures that are its own; search it again")
    return found


def _outcome(finished: Sequence[_Finished]) -> Outcome:
    """Return the union: every architecture with what its shard found, the front anew over all points."""
    first = finished[0].outcome
    fate, bound, kind = np.zeros_like(first.fate), first.bound.copy(), first.bound_kind.copy()
    reasons = Reasons.none(len(fate), first.reasons.texts)
    records: dict[int, Record] = {}
    for one in finished:
        mine, part = one.shard.members(len(fate)), one.outcome
        fate[mine], bound[mine], kind[mine] = part.fate[mine], part.bound[mine], part.bound_kind[mine]
        reasons.code[mine], reasons.amount[mine] = part.reasons.code[mine], part.reasons.amount[mine]
        reasons.own.update(part.reasons.own)
        records.update(part.records)
    outcome = Outcome(
        objectives=first.objectives,
        fate=fate,
        bound=bound,
        bound_kind=kind,
        records=dict(sorted(records.items())),
        reasons=reasons,
        option_reasons=first.option_reasons,
        references_s=first.references_s,
    )
    points = list(outcome.points)
    values = np.array([point.values for point in points]).reshape(-1, len(first.objectives))
    outcome.set_front([points[i] for i in np.flatnonzero(front_mask(values)).tolist()])
    fate[fate == Fate.FRONT] = Fate.DOMINATED
    fate[[point.architecture for point in outcome.front]] = Fate.FRONT
    if finished[0].job.tolerance > 0:
        outcome.gap = stated_gap(outcome, np.empty((0, len(first.objectives))), finished[0].references.gap)
    return outcome


def _unfounded(finished: Sequence[_Finished], outcome: Outcome) -> list[str]:
    """Return what shards left out on the word of others that the others do not stand by."""
    front = np.array([point.values for point in outcome.front]).reshape(-1, len(outcome.objectives))
    tolerance = finished[0].job.tolerance
    slack: FloatArray = np.where(outcome.objectives.depend_on_time, 1 + tolerance, 1.0)
    found = []
    for one in finished:
        for point in one.shown:
            values = np.array(point.values)
            if not (front <= values).all(axis=1).any():
                found.append(
                    f"{one.shard} was shown design {point.architecture} by shard {point.shard}, which has none as "
                    f"good; search {one.shard} again into an empty folder"
                )
        pruned = np.flatnonzero((outcome.fate == Fate.PRUNED) & one.shard.members(len(outcome.fate)))
        left = pruned[dominated_by(outcome.bound[pruned] * slack, front) < 0]
        if len(left):
            found.append(f"{one.shard} has left out architecture {left[0]}, which nothing beats; search it again")
        open_ = [p for p in one.outcome.points if not p.proven and p.architecture not in one.solved]
        best = np.array([point.best_case for point in open_]).reshape(-1, len(slack)) * slack
        reached = np.array([point.values for point in open_]).reshape(-1, len(slack))
        near = (reached <= best).all(axis=1) & (tolerance > 0)
        if (near | (dominated_by(best, front) >= 0)).sum() < len(open_):
            found.append(f"{one.shard} has left schedules open that could matter; search it again")
    return found


def _progress(outcome: Outcome, elapsed_s: float) -> Progress:
    values = np.array([point.values for point in outcome.front]).reshape(-1, len(outcome.objectives))
    count = len(outcome.fate)
    return Progress(
        phase="done",
        bounded=count,
        decided=count,
        total=count,
        evaluated=len(outcome.records),
        front=len(outcome.front),
        best=tuple(values.min(axis=0).tolist()) if len(values) else (float("nan"),) * len(outcome.objectives),
        fates=tuple(np.bincount(outcome.fate, minlength=len(Fate)).tolist()),
        unproven=0,
        elapsed_s=elapsed_s,
        remaining_s=None,
    )
