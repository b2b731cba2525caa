"""What the search asks of a workload, wherever its operator graphs come from."""

from typing import Protocol, Self

from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.operators import VectorWork
from archplace.workloads.precision import Precision
from archplace.workloads.training_step import OptimizerKind, ParameterBytes, TrainingStep


class TrainingJob(Protocol):
    """One training job: a model to train, in batches of sequences.

    What ``repr`` says of it decides what a search finds; equal jobs give equal steps. Jobs go to other processes, and
    are asked for the same step again and again.
    """

    @property
    def name(self) -> str:
        """Name of the job."""

    @property
    def model_name(self) -> str:
        """Name of the model."""

    @property
    def sequence_length(self) -> int:
        """Tokens per sequence; of a model without sequences 1: a sample is then one token."""

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step, over all devices."""

    @property
    def precision(self) -> Precision:
        """The recipe of number formats."""

    @property
    def optimizer(self) -> OptimizerKind:
        """The rule by which weights are updated."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step, over all devices."""

    @property
    def flops_per_step(self) -> float:
        """Model FLOPs per optimizer step, without recomputation, over all devices."""

    @property
    def parameter_bytes(self) -> ParameterBytes:
        """Bytes kept per parameter."""

    def optimizer_work(self, parameters: int) -> VectorWork:
        """Return the optimizer's update of ``parameters`` parameters on one device."""

    def refusal(self, sharding: LayerSharding) -> str | None:
        """Return why layers cannot be shared as ``sharding`` says, with the numbers, or None."""

    def step(self, sharding: LayerSharding) -> TrainingStep:
        """Return what one device executes for one microbatch when layers are shared as ``sharding`` says.

        Raises ``ValueError`` with the reason where ``refusal`` gives one; ask it first.
        """

    def resized(self, *, global_batch: int | None = None, sequence_length: int | None = None) -> Self:
        """Return the job with another batch or other sequences; ``None`` changes nothing.

        Raises ``ValueError`` where the model does not allow it.
        """
