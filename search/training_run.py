"""The whole training that a step is a small part of: how many samples, and what they take altogether.

Every figure of a training is its figure per sample times the samples. Checkpoints, restarts and what else keeps a
cluster from stepping are not in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from archplace.workloads import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """What is trained in the end, and what it may take; limits hold for each workload by itself."""

    samples: tuple[tuple[str, float], ...]
    """Sequences that each workload is trained on, by its name."""
    max_s: float | None = None
    """Longest duration allowed."""
    max_usd: float | None = None
    """Most dollars allowed, of hardware written off and energy."""

    @classmethod
    def of_tokens(
        cls,
        tokens: Sequence[float],
        workloads: Sequence[TrainingJob],
        *,
        max_s: float | None = None,
        max_usd: float | None = None,
    ) -> "TrainingRun":
        """Return the training on ``tokens`` of each workload, ``(n_workloads,)``, or on the same of all, ``(1,)``."""
        each = tuple(tokens) * (len(workloads) if len(tokens) == 1 else 1)
        pairs = zip(workloads, each, strict=True)
        samples = tuple((workload.name, count / workload.sequence_length) for workload, count in pairs)
        return cls(samples=samples, max_s=max_s, max_usd=max_usd)

    def of(self, workload: str) -> float:
        """Return the samples of a workload of the run."""
        return dict(self.samples)[workload]

    def most_seconds_per_sample(self, workload: str) -> float:
        """Return the seconds per sample that the longest duration allows; infinite without one."""
        return inf if self.max_s is None else self.max_s / self.of(workload)

    def most_usd_per_sample(self, workload: str) -> float:
        """Return the dollars per sample that the most dollars allow; infinite without them."""
        return inf if self.max_usd is None else self.max_usd / self.of(workload)
