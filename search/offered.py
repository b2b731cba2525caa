"""The placement options that a run offers each of its workloads, before any is found to be of use."""

from dataclasses import dataclass

from archplace.arch_configs.cluster import Cluster
from archplace.costmodel.network import NetworkPricer
from archplace.search.choices import Choices
from archplace.search.strategy.families import Families
from archplace.search.strategy.options import Option
from archplace.workloads import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What one workload is offered."""

    options: tuple[Option, ...]
    """Whether they fit or not; with every HBM capacity there is."""
    impossible: dict[str, str]
    """Ways to share layers that are refused whatever the capacity, with the reason."""
    n_options: int
    """For one architecture, the impossible ones included, by capacity too; an architecture that brings its own HBM has
    one capacity to choose from."""

    @classmethod
    def of(cls, workload: TrainingJob, cluster: Cluster, choices: Choices, capacities: tuple[int, ...]) -> "Offered":
        """Return what ``workload`` is offered; ``capacities`` are those of the choices or of the architectures."""
        families = Families(workload, cluster, choices.axes, NetworkPricer(cluster))
        each = 1 if choices.hbm_bytes is None else len(capacities)
        return cls(
            options=tuple(Option.of(family, capacity) for family in families for capacity in capacities),
            impossible=families.impossible,
            n_options=(len(tuple(families)) + len(families.impossible)) * each,
        )
