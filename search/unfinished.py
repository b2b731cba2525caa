"""What an unfinished run has found so far: the front of the design points that its store holds."""

from collections.abc import Sequence

import numpy as np

from archplace.search.objectives import Objectives
from archplace.search.outcome import Fate, Outcome, Reasons
from archplace.search.pareto import front_mask
from archplace.search.store import Store


def unfinished_outcome(
    store: Store, objectives: Objectives, n_archs: int, references_s: Sequence[float] = ()
) -> Outcome:
    """Return the outcome of what was evaluated; every other architecture is open and has no bound (0).

    The front is that of the evaluated points: what the rest of the run evaluates may dominate it.
    """
    records = store.records(solved=False) | store.records(solved=True)
    outcome = Outcome(
        objectives=objectives,
        fate=np.full(n_archs, Fate.OPEN, dtype=np.int8),
        bound=np.zeros((n_archs, len(objectives))),
        bound_kind=np.zeros(n_archs, dtype=np.int8),
        records=records,
        reasons=Reasons.none(n_archs, ()),
        references_s=tuple(references_s),
    )
    for architecture, record in records.items():
        outcome.fate[architecture] = Fate.DOMINATED if record.points else Fate.INFEASIBLE
        if record.reason is not None:
            outcome.reasons.own[architecture] = record.reason
    points = list(outcome.points)
    values = np.array([point.values for point in points]).reshape(-1, len(objectives))
    outcome.set_front([points[i] for i in np.flatnonzero(front_mask(values)).tolist()])
    for point in outcome.front:
        outcome.fate[point.architecture] = Fate.FRONT
    return outcome
