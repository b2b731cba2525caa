"""A workload: the model to train, on sequences of which length, how many per step, in which format, by which rule."""

from dataclasses import dataclass, replace
from typing import Self

from archplace.workloads._shard import Shard
from archplace.workloads.early_stop import stop_early
from archplace.workloads.graphs import build_layers
from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.model import Model, ModelKind, Positions
from archplace.workloads.operators import VectorWork
from archplace.workloads.optimizer import optimizer_work, parameter_bytes
from archplace.workloads.precision import Precision
from archplace.workloads.training_step import OptimizerKind, ParameterBytes, TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training job.

    Raises ``ValueError`` that names every value that is out of range or does not fit the model.
    """

    name: str
    model: Model
    sequence_length: int
    """Tokens per sequence; of an encoder–decoder those of the encoder."""
    global_batch: int
    """Sequences per optimizer step, over all devices."""
    precision: Precision
    optimizer: OptimizerKind
    fused_attention: bool = False
    """The scores of attention never leave the chip (Dao et al. 2022, arXiv:2205.14135), and half of those behind a
    causal mask are not computed. Model FLOPs count all positions whether they are computed or not."""
    early_stop: bool = False
    """Full recomputation of a layer stops once the backward pass has what it needs, instead of running all of the
    layer again (:func:`archplace.workloads.early_stop.needed_again`)."""
    target_length: int | None = None
    """Tokens per target sequence of an encoder–decoder; ``None`` for other models, and there for as many as the
    encoder's."""

    def __post_init__(self) -> None:
        problems = []
        if not self.name.strip():
            problems.append("name is empty: give the workload a name")
        for field in ("sequence_length", "global_batch"):
            if getattr(self, field) < 1:
                problems.append(f"{field} is {getattr(self, field)}, must be at least 1")
        model = self.model
        if model.positions is Positions.LEARNED and self.sequence_length > model.max_positions:
            problems.append(
                f"sequence_length is {self.sequence_length}, but {model.name} has learned positions for "
                f"{model.max_positions} tokens: shorten the sequence, or write a model file with more max_positions"
            )
        if model.patches is not None and self.sequence_length != model.patches.tokens:
            problems.append(
                f"sequence_length is {self.sequence_length}, but an image of {model.name} has {model.patches.count} "
                f"patches and a class token: set it to {model.patches.tokens}"
            )
        problems += self._target_problems()
        if problems:
            raise ValueError("; ".join(problems))

    def _target_problems(self) -> list[str]:
        model, length = self.model, self.target_length
        if length is None:
            return []
        if model.kind is not ModelKind.ENCODER_DECODER:
            return [f"target_length is {length}, but {model.name} has no decoder behind an encoder: leave it out"]
        if length < 1:
            return [f"target_length is {length}, must be at least 1"]
        if model.positions is Positions.LEARNED and length > model.max_positions:
            return [
                f"target_length is {length}, but {model.name} has learned positions for {model.max_positions} tokens"
            ]
        return []

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return self.model.name

    def resized(self, *, global_batch: int | None = None, sequence_length: int | None = None) -> Self:
        """Return the job with another batch or other sequences; ``None`` changes nothing.

        Raises ``ValueError`` for a value that is out of range or does not fit the model.
        """
        return replace(
            self,
            global_batch=self.global_batch if global_batch is None else global_batch,
            sequence_length=self.sequence_length if sequence_length is None else sequence_length,
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step, over all devices; of an encoder–decoder those of the encoder."""
        return self.sequence_length * self.global_batch

    @property
    def flops_per_step(self) -> float:
        """Model FLOPs per optimizer step, without recomputation, over all devices."""
        return self._flops_per_token * self.tokens_per_step

    @property
    def parameter_bytes(self) -> ParameterBytes:
        """Bytes kept per parameter."""
        return parameter_bytes(self.optimizer, self.precision)

    def optimizer_work(self, parameters: int) -> VectorWork:
        """Return the optimizer's update of ``parameters`` parameters on one device.

        Raises ``ValueError`` for a negative count.
        """
        return optimizer_work(self.optimizer, self.precision, parameters)

    def refusal(self, sharding: LayerSharding) -> str | None:
        """Return why layers cannot be shared as ``sharding`` says, with the numbers, or None."""
        refusal = self._shard(sharding).refusal()
        if refusal is None and self.global_batch % sharding.microbatch:
            return f"microbatch {sharding.microbatch} does not divide the global batch of {self.global_batch} sequences"
        return refusal

    def step(self, sharding: LayerSharding) -> TrainingStep:
        """Return what one device executes for one microbatch when layers are shared as ``sharding`` says.

        Raises ``ValueError`` with the reason where ``refusal`` gives one; ask it first.
        """
        refusal = self.refusal(sharding)
        if refusal is not None:
            raise ValueError(refusal)
        layers = build_layers(self._shard(sharding))
        return TrainingStep(
            model=self.model.name,
            sharding=sharding,
            sequence_length=self.sequence_length,
            layers=stop_early(layers) if self.early_stop else layers,
            parameter_bytes=self.parameter_bytes,
            optimizer=self.optimizer,
            flops_per_token=self._flops_per_token,
        )

    @property
    def _flops_per_token(self) -> float:
        return self.model.flops_per_token(self.sequence_length, self.target_length)

    def _shard(self, sharding: LayerSharding) -> Shard:
        return Shard(
            model=self.model,
            sharding=sharding,
            sequence_length=self.sequence_length,
            precision=self.precision,
            fused_attention=self.fused_attention,
            target_length=self._decoder_length,
        )

    @property
    def _decoder_length(self) -> int | None:
        """Tokens that the decoder of an encoder–decoder sees."""
        if self.model.kind is not ModelKind.ENCODER_DECODER:
            return None
        return self.sequence_length if self.target_length is None else self.target_length
