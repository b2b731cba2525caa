"""What a search may choose on an architecture, and what it has chosen."""

from dataclasses import dataclass, field

from archplace.arch_configs.architectures import FloatArray
from archplace.costmodel import Allowance
from archplace.search.schedule import PROOF_TOLERANCE
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.options import BestPlacement, Option
from archplace.search.training_run import TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a run lets the search choose besides the architecture, and the budgets it must keep."""

    accelerators: int
    axes: Axes
    """What strategies may be."""
    hbm_bytes: tuple[int, ...] | None
    """HBM capacities to choose from; None takes each architecture's own."""
    allowance: Allowance = field(default_factory=Allowance)
    """Memory that a device needs besides the tensors of its layers."""
    max_area_mm2: float | None = None
    max_power_w: float | None = None
    power_limit_w: float | None = None
    """Watts that no accelerator draws under load, because it slows down; None where nothing limits it."""
    max_step_s: float | None = None
    """The further budgets hold for each workload by itself."""
    min_samples_per_s: float | None = None
    max_joules_per_sample: float | None = None
    max_usd_per_sample: float | None = None
    training: TrainingRun | None = None
    """What is trained in the end, and its budgets; None where the run says nothing of it."""

    @property
    def most_power_w(self) -> float | None:
        """Watts above which an architecture is infeasible: of the budget, and of the limit."""
        return min((watts for watts in (self.max_power_w, self.power_limit_w) if watts is not None), default=None)

    @property
    def needs_usd(self) -> bool:
        """Whether a budget is one of dollars."""
        return self.max_usd_per_sample is not None or (self.training is not None and self.training.max_usd is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """One placement of one workload on one architecture."""

    option: Option
    placement: BestPlacement
    lower_step_s: float
    """No schedule makes it faster on this architecture; equals the step time when that is proven."""

    @property
    def proven(self) -> bool:
        """Whether nothing faster exists, within the proof tolerance of schedules."""
        return self.lower_step_s >= self.placement.step_s * (1 - PROOF_TOLERANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A placement that no other one on the same architecture beats for certain."""

    result: WorkloadResult
    option: int
    """Index in :attr:`WorkloadSearch.spaces`."""
    reached: FloatArray
    """(n_figures,) figures per sample."""
    best_case: FloatArray
    """(n_figures,) the same with the lower bounds of schedules that are not proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of the placement options on one architecture."""

    kept: list[Kept]
    options: str
    """One character for each of :attr:`WorkloadSearch.spaces`, see the constants below."""


KEPT, LOST, PRUNED, INFEASIBLE = "kdpi"
"""An option's fate on an evaluated architecture: part of its points; evaluated and beaten by those; not evaluated, its
bound beaten by those; or beyond a budget or not to be had."""
