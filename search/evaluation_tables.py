"""An evaluated placement as one document; SI units and shares of one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from archplace.costmodel import MemoryItems
from archplace.search.pipeline import Timeline
from archplace.search.plan_tables import placement_of
from archplace.search.remedies import Remedy
from archplace.search.strategy.evaluate import EXCHANGES, Evaluation, StageView
from archplace.search.strategy.problem import PlanProblem
from archplace.search.uncertainty import StepUncertainty, step_uncertainty

DEFINITIONS = {
    "mfu": "model FLOPs of a step, without recomputation, over what all devices could compute in its time at their "
    "tensor units' peak",
    "hfu": "the same with the FLOPs that are executed: with what recomputation repeats, without what fused attention "
    "skips behind a causal mask",
}
"""As Chowdhery et al. 2022 (arXiv:2204.02311, appendix B) and Korthikanti et al. 2022 (arXiv:2205.05198, section 6)
use the words."""

EXPOSED = (
    *EXCHANGES,
    "state exchange",
    "host transfers",
    "pipeline transfers",
    "gradient reduction",
    "parameter gathering",
)
"""Parts of a step that are communication which nothing hides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """An evaluation, ready to be shown."""

    problem: PlanProblem
    evaluation: Evaluation
    timeline: Timeline | None
    """Where the pipeline was simulated by events."""
    remedies: tuple[Remedy, ...] = ()
    """Where it does not fit: what would help."""

    @property
    def hbm_bytes(self) -> float:
        """Capacity of a device."""
        return float(self.problem.accelerator.hbm.capacity_bytes)

    @property
    def fullest(self) -> int:
        """The stage that needs most memory, the first of several."""
        totals = [stage.memory.total_bytes for stage in self.evaluation.stages]
        return totals.index(max(totals))

    @property
    def tokens_per_s_per_accelerator(self) -> float:
        """Tokens per second and device."""
        return self.evaluation.tokens_per_s / self.problem.accelerators

    @property
    def uncertainty(self) -> StepUncertainty:
        """How sure the step time is."""
        accelerator = self.problem.accelerator
        return step_uncertainty(self.problem.cluster, accelerator.name, accelerator.calibration)

    def exposed_s(self) -> dict[str, float]:
        """Return the seconds of communication that nothing hides, by kind."""
        return {part: self.evaluation.parts_s[part] for part in EXPOSED}

    def document(self) -> dict[str, object]:
        """Return everything as plain data."""
        problem, found = self.problem, self.evaluation
        exposed = self.exposed_s()
        document: dict[str, object] = {
            "workload": problem.workload.name,
            "accelerator": problem.accelerator.name,
            "cluster": problem.cluster.name,
            "accelerators": problem.accelerators,
            "global_batch": problem.workload.global_batch,
            "sequence_length": problem.workload.sequence_length,
            "strategy": str(found.strategy),
            "placement": placement_of(found.strategy),
            "fits": found.feasible,
            "step_s": found.step_s,
            "simulated_step_s": found.simulated_step_s,
            "samples_per_s": found.samples_per_s,
            "tokens_per_s": found.tokens_per_s,
            "tokens_per_s_per_accelerator": self.tokens_per_s_per_accelerator,
            "mfu": found.mfu,
            "hfu": found.hfu,
            **self.uncertainty.columns({"step_s": found.step_s}, {"samples_per_s": found.samples_per_s}),
            "definitions": dict(DEFINITIONS),
            "microbatches": found.microbatches,
            "parts_s": dict(found.parts_s),
            "exposed_communication_s": sum(exposed.values()),
            "exposed_communication_by_kind_s": exposed,
            "hbm_bytes": self.hbm_bytes,
            "memory_bytes": found.stages[self.fullest].memory.total_bytes,
            "stages": [_stage(number, stage) for number, stage in enumerate(found.stages)],
        }
        if not found.feasible:
            document["remedies"] = [asdict(remedy) for remedy in self.remedies]
        if self.timeline is not None:
            document["simulation"] = simulation(self.timeline)
        return document

    def row(self) -> dict[str, object]:
        """Return one row with a cell for each figure, for a table; what lists by stage say is left out."""
        found: dict[str, object] = {}
        for key, value in self.document().items():
            if key == "placement":
                assert isinstance(value, Mapping)
                found |= {name: " ".join(map(str, v)) if isinstance(v, list) else v for name, v in value.items()}
            elif key == "parts_s":
                parts = self.evaluation.parts_s.items()
                found |= {f"{part.replace(' ', '_').replace('-', '_')}_s": seconds for part, seconds in parts}
            elif not isinstance(value, Mapping | list):
                found[key] = value
        return found


def _stage(number: int, stage: StageView) -> dict[str, object]:
    memory = stage.memory
    return {
        "stage": number,
        "layers": dict(stage.layers),
        "recompute": str(stage.recompute),
        "load_s": stage.load_s,
        "fits": stage.fits,
        "memory_bytes": memory.total_bytes,
        "short_bytes": max(0.0, memory.total_bytes - stage.capacity_bytes),
        "parts_bytes": dict(memory.parts),
        "host_bytes": _host(memory),
    }


def _host(memory: MemoryItems) -> dict[str, float]:
    return {"activations": memory.host_activations_bytes, "optimizer": memory.host_optimizer_bytes}


def simulation(timeline: Timeline) -> dict[str, object]:
    """Return a simulated pipeline as plain data."""
    devices = [
        {
            "stage": device,
            "computing_s": busy_s,
            "sending_s": sending_s,
            "waiting_s": timeline.makespan_s - busy_s - sending_s,
            "messages": messages,
            "microbatches_held": held.activations,
        }
        for device, (busy_s, sending_s, messages, held) in enumerate(
            zip(timeline.busy_s, timeline.sending_s, timeline.messages, timeline.held, strict=True)
        )
    ]
    return {"pipeline_s": timeline.makespan_s, "bubble_share": timeline.bubble_share, "devices": devices}
