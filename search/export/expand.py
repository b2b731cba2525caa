"""A candidate as a case: priced as the simulator prices, expanded as finely as a budget of nodes allows, replayed."""

from dataclasses import dataclass

from archplace.costmodel.network import PricingMode
from archplace.search.export.candidates import Candidate
from archplace.search.export.case import Case
from archplace.search.export.communicators import Communicators
from archplace.search.export.one_port import OnePort
from archplace.search.export.passes import Granularity, Passes
from archplace.search.export.placed import Placed
from archplace.search.export.replay import Replayed, replay
from archplace.search.pipeline import device_order

NODES = 1_000_000
"""What a case may have where nothing else is said: a minute and 1.3 GB for the simulator."""
_MOST_NODES = 30_000_000
_SURELY_MORE = 1.5
"""Times the budget: a granularity whose estimate is above it is not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """A case that runs to its end."""

    case: Case
    replayed: Replayed
    predicted: OnePort
    """With the collectives of the simulator, and one exchange of a device at a time."""


def expand(candidate: Candidate, granularity: Granularity | None = None, nodes: int = NODES) -> Expanded:
    """Return the case of a candidate; without ``granularity`` the finest that has at most so many nodes.

    Raises ``ValueError`` with the numbers where the simulator cannot run it: with fewer than two devices, with more
    process groups than it tells apart, and with more nodes than fit any memory.
    """
    cluster = candidate.placement.cluster
    if cluster.size < 2:
        raise ValueError("1 accelerator: the simulator needs a network of at least 2; there is nothing to simulate")
    placed = candidate.placement.priced(PricingMode.ASTRA_SIM, candidate.cache)
    case = _finest(placed, nodes) if granularity is None else _of(placed, granularity)
    return Expanded(case=case, replayed=replay(case), predicted=OnePort(placed))


def _finest(placed: Placed, nodes: int) -> Case:
    for granularity in (Granularity.OPERATOR, Granularity.LAYER):
        if estimated_nodes(placed, granularity) <= _SURELY_MORE * nodes:
            case = Case(placed, granularity)
            if case.n_nodes <= nodes:
                return case
    return _of(placed, Granularity.STAGE)


def _of(placed: Placed, granularity: Granularity) -> Case:
    least = estimated_nodes(placed, granularity)
    if least > _MOST_NODES:
        finer = "" if granularity is Granularity.STAGE else ", or a coarser granularity"
        raise ValueError(
            f"about {least:,} nodes at granularity {granularity}; at most {_MOST_NODES:,} are written, which take the "
            f"simulator {_MOST_NODES * 1.3e-6:.0f} GB of memory: choose fewer microbatches{finer}"
        )
    return Case(placed, granularity)


def estimated_nodes(placed: Placed, granularity: Granularity) -> int:
    """Return about how many nodes a case has, without making it: those of passes over layers, nothing else."""
    passes = Passes(placed, Communicators(placed.placement.cluster), granularity)
    shape = placed.shape
    known: dict[object, int] = {}
    total = 0
    for device in range(shape.stages):
        for slot in device_order(shape, device):
            for operation in slot:
                key = operation.kind, operation.stage
                if key not in known:
                    policy = placed.policy(operation.stage)
                    known[key] = sum(
                        len(passes.unit(kind, passes.which(operation.kind, kind, policy), count).pieces)
                        for kind, count in passes.units(operation.stage, fine=False)
                    )
                total += known[key]
    return total * (placed.placement.cluster.size // shape.stages)
