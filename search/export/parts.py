"""What the seconds of a step go to: as predicted, and on one device of a replay."""

from collections.abc import Iterable, Iterator

import numpy as np

from archplace.search.attribution import COMPUTE_PARTS as _DEVICE_PARTS
from archplace.search.attribution import EXCHANGE_PARTS
from archplace.search.export.case import Case
from archplace.search.export.replay import Replayed
from archplace.search.export.script import WAIT
from archplace.search.strategy.evaluate import Evaluation
from archplace.workloads.traces import NodeKind

COMPUTING, UPDATE, BUBBLE, TRANSFERS, WAITING = (
    "computing",
    "optimizer step",
    "pipeline bubble",
    "pipeline transfers",
    "waiting",
)
PARTS = (
    COMPUTING,
    UPDATE,
    *dict.fromkeys(EXCHANGE_PARTS.values()),
    "state exchange",
    "gradient reduction",
    "parameter gathering",
    TRANSFERS,
    WAITING,
    BUBBLE,
)
"""Communication is what is exposed. ``waiting`` is for what the simulator has no step for, such as a host's link; the
bubble also has what a device waits for others at the end of the step."""

_NAMES = {
    **dict.fromkeys((*_DEVICE_PARTS, "recomputation", "forward", "backward"), COMPUTING),
    "host transfers": WAITING,
}
_NAMES |= {WAIT: WAITING, "idle": BUBBLE}

Spans = list[tuple[int, int, str]]
"""Begin, end and part, apart from one another and in order."""


_FIRST = (NodeKind.COMPUTE, NodeKind.RECEIVE, NodeKind.COLLECTIVE, NodeKind.SEND)
"""What counts where several things happen at a time."""


def predicted_parts(evaluation: Evaluation, *, exact: bool) -> dict[str, float]:
    """Return the predicted seconds by :data:`PARTS`; they add up to the step.

    ``exact`` for the step with the pipeline's exact time; what that is other than the closed form is bubble.
    """
    found = dict.fromkeys(PARTS, 0.0)
    for part, seconds in evaluation.parts_s.items():
        found[_NAMES.get(part, part)] += seconds
    if exact:
        found[BUBBLE] += evaluation.simulated_step_s - evaluation.step_s
    return found


def spent(case: Case, replayed: Replayed, stage: int) -> dict[str, float]:
    """Return the seconds by :data:`PARTS` that a replay has on the first device of a stage; they add up to the step.

    At each moment computing counts first, then what is waited for (what runs meanwhile costs nothing), then a
    collective, then a message that is sent.
    """
    npu = int(np.flatnonzero(case.role == stage)[0])
    actor = int(replayed.stands_for[npu])
    program = case.programs[stage]
    spans: dict[NodeKind, Spans] = {kind: [] for kind in _FIRST}
    begins, ends = replayed.begin_ns[actor].tolist(), replayed.end_ns[actor].tolist()
    for step, begin, end in zip(program, begins, ends, strict=True):
        part = BUBBLE if step.kind is NodeKind.RECEIVE else _NAMES.get(step.part, step.part)
        if end > begin:
            spans[step.kind].append((begin, end, part))
    found = dict.fromkeys(PARTS, 0)
    free: list[tuple[int, int]] = [(0, replayed.step_ns)]
    for some in spans.values():
        left: list[tuple[int, int]] = []
        for begin, end, covered in _within(free, sorted(some)):
            if covered is None:
                left.append((begin, end))
            else:
                found[covered] += end - begin
        free = left
    found[BUBBLE] += sum(end - begin for begin, end in free)
    return {part: ns / 1e9 for part, ns in found.items()}


def _within(free: Iterable[tuple[int, int]], spans: Spans) -> Iterator[tuple[int, int, str | None]]:
    """Yield the free stretches cut by spans: each with the part that covers it, or None."""
    at = 0
    for begin, end in free:
        now = begin
        while at < len(spans) and spans[at][1] <= now:
            at += 1
        place = at
        while place < len(spans) and spans[place][0] < end:
            first, last, part = spans[place]
            if first > now:
                yield now, first, None
                now = first
            until = min(last, end)
            if until > now:
                yield now, until, part
                now = until
            place += 1
        if now < end:
            yield now, end, None
