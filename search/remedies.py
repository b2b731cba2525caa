"""Where no strategy fits into memory: which changes of the run file would make one fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from archplace.costmodel import Offload, SharedStates, StateSharding
from archplace.search.schedule import ScheduleCache
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.plan import plan
from archplace.search.strategy.problem import PlanProblem
from archplace.workloads import Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change with which something fits."""

    change: str
    """What to write into the placement."""
    strategy: str
    """The fastest strategy with it, in short form."""
    step_s: float


def remedies(problem: PlanProblem, axes: Axes, cache: ScheduleCache) -> list[Remedy]:
    """Return the changes of one axis with which something fits; where there is none, all of them together if that fits.

    Tried are values that ``axes`` does not hold yet; each that is found is proven by the strategy that fits.
    """
    changes = list(_changes(problem, axes))
    found = [remedy for change, changed in changes if (remedy := _tried(problem, changed, change, cache)) is not None]
    if found or len(changes) < 2:
        return found
    together = axes
    for _, changed in changes:
        different = {name: getattr(changed, name) for name in _TRIED if getattr(changed, name) != getattr(axes, name)}
        together = replace(together, **different)
    last = _tried(problem, together, "; ".join(change for change, _ in changes), cache)
    return [] if last is None else [last]


_TRIED = ("policies", "states", "microbatch", "offload")


def _changes(problem: PlanProblem, axes: Axes) -> Iterator[tuple[str, Axes]]:
    """Yield the changes that save memory, with the axes that each leads to."""
    if Recompute.FULL not in axes.policies:
        yield "recompute: full", replace(axes, policies=(Recompute.FULL,))
    shared = StateSharding(states=SharedStates.PARAMETERS)
    if shared not in axes.states:
        yield "state_sharding: parameters", replace(axes, states=(shared,))
    if 1 not in axes.microbatch:
        yield "microbatch: 1", replace(axes, microbatch=(1,))
    everything = Offload(activations=1.0, optimizer=1.0)
    if problem.cluster.host is not None and everything not in axes.offload:
        yield "offload: all", replace(axes, offload=(everything,))


def _tried(problem: PlanProblem, axes: Axes, change: str, cache: ScheduleCache) -> Remedy | None:
    best = plan(problem, axes, best=1, cache=cache).best
    return Remedy(change=change, strategy=str(best[0].strategy), step_s=best[0].step_s) if best else None
