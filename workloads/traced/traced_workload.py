"""A training job whose layers come from an execution trace."""

from dataclasses import dataclass, field, replace
from typing import Self

from archplace.workloads.layer_sharding import ContextKind, LayerSharding
from archplace.workloads.operators import Axis, VectorWork
from archplace.workloads.optimizer import optimizer_work, parameter_bytes
from archplace.workloads.precision import Precision
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.scaling import scale
from archplace.workloads.traced.shared_layers import shared_layers
from archplace.workloads.traced.states import Cutting, is_of_experts
from archplace.workloads.traced.tensor_graph import Symbol, TensorOpKind, TracedModel
from archplace.workloads.training_step import Layer, OptimizerKind, ParameterBytes, TrainingStep

TRACED_PRECISIONS = tuple(precision for precision in Precision if not precision.formats.casts)
"""Recipes in which a traced step can be trained: no trace shows where narrower products would cast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedWorkload:
    """One training job of a traced model: a :class:`~archplace.workloads.training_job.TrainingJob`.

    Each layer is scaled to the microbatch, shared by an integer program that knows devices by :attr:`rates` alone, and
    lowered to operators. How layers are shared thus does not depend on which architecture of many is looked at.

    Raises ``ValueError`` that names every value that is out of range or does not fit the model.
    """

    name: str
    model: TracedModel = field(repr=False)
    content_sha256: str
    """Hash of the trace, and of what was read from it: stands for the model where jobs are told apart."""
    sequence_length: int
    """Tokens per sequence; 1 where the model has no sequences."""
    global_batch: int
    """Sequences (or samples) per optimizer step, over all devices."""
    precision: Precision
    optimizer: OptimizerKind
    rates: Rates = field(default_factory=Rates)
    """By which shardings of a layer are compared."""

    def __post_init__(self) -> None:
        problems = []
        if not self.name.strip():
            problems.append("name is empty: give the workload a name")
        for key in ("sequence_length", "global_batch"):
            if getattr(self, key) < 1:
                problems.append(f"{key} is {getattr(self, key)}, must be at least 1")
        if self.precision not in TRACED_PRECISIONS:
            allowed = ", ".join(TRACED_PRECISIONS)
            problems.append(f"precision is {self.precision}, but a traced step shows no casts; allowed: {allowed}")
        if not problems:
            try:
                scale(self.model, sequence_length=self._length)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def model_name(self) -> str:
        """Name of the model: that of its trace."""
        return self.model.name

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step, over all devices; of a model without sequences its samples."""
        return self.sequence_length * self.global_batch

    @property
    def flops_per_step(self) -> float:
        """FLOPs of all matrix products per optimizer step, without recomputation, over all devices."""
        scaled = scale(self.model, sequence_length=self._length)
        return scaled.model_flops / scaled.batch * self.global_batch

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
        """Return why layers cannot be shared as ``sharding`` says, with the numbers, or None.

        Where nothing speaks against it beforehand, the layers are shared, and kept for :meth:`step`.
        """
        found = self._beforehand(sharding)
        if found is not None:
            return found
        try:
            self._layers(sharding)
        except ValueError as error:
            return str(error)
        return None

    def step(self, sharding: LayerSharding) -> TrainingStep:
        """Return what one device executes for one microbatch when layers are shared as ``sharding`` says.

        Raises ``ValueError`` with the reason where ``refusal`` gives one; ask it first.
        """
        refusal = self.refusal(sharding)
        if refusal is not None:
            raise ValueError(refusal)
        return TrainingStep(
            model=self.model_name,
            sharding=sharding,
            sequence_length=self.sequence_length,
            layers=self._layers(sharding),
            parameter_bytes=self.parameter_bytes,
            optimizer=self.optimizer,
            flops_per_token=self.flops_per_step / self.tokens_per_step,
        )

    def resized(self, *, global_batch: int | None = None, sequence_length: int | None = None) -> Self:
        """Return the job with another batch or other sequences; ``None`` changes nothing.

        Raises ``ValueError`` for a value that is out of range, and where no dimension is known to be the sequence.
        """
        return replace(
            self,
            global_batch=self.global_batch if global_batch is None else global_batch,
            sequence_length=self.sequence_length if sequence_length is None else sequence_length,
        )

    @property
    def _length(self) -> int | None:
        """Tokens per sequence as the model takes them."""
        without_sequences = self.model.sequence_length is None and self.sequence_length == 1
        return None if without_sequences else self.sequence_length

    def _layers(self, sharding: LayerSharding) -> tuple[tuple[Layer, int], ...]:
        return shared_layers(self.model, sharding, self._length, self.precision, self.rates)

    def _beforehand(self, sharding: LayerSharding) -> str | None:
        """Return what speaks against a sharding before any layer is shared."""
        degrees = {
            "microbatch": sharding.microbatch,
            "tensor parallel width": sharding.tensor,
            "context parallel width": sharding.context,
            "expert parallel width": sharding.expert,
            "expert-tensor parallel width": sharding.expert_tensor,
            "overlap pieces": sharding.overlap_pieces,
        }
        for what, degree in degrees.items():
            if degree < 1:
                return f"{what} {degree}: must be at least 1"
        if self.global_batch % sharding.microbatch:
            return f"microbatch {sharding.microbatch} does not divide the global batch of {self.global_batch} sequences"
        if sharding.overlap_pieces > 1:
            return (
                f"products in {sharding.overlap_pieces} pieces: operators of a trace are not cut into pieces; use 1 "
                "piece"
            )
        if sharding.sequence and sharding.tensor == 1:
            return "sequence parallelism needs tensor parallelism above 1"
        if sharding.context > 1 and sharding.context_kind is ContextKind.RING:
            return (
                f"context parallel width {sharding.context} with a ring: the keys of a traced attention do not travel; "
                f"use {ContextKind.ALL_GATHER}"
            )
        if (sharding.context > 1 or sharding.sequence) and self.model.sequence_length is None:
            return f"no dimension of {self.model_name} is known to be the sequence: it cannot be shared along it"
        if sharding.expert_tensor > 1:
            return f"expert-tensor parallel width {sharding.expert_tensor}: traced experts are not shared; use 1"
        if sharding.expert > 1 and sharding.stage_devices > 1:
            return (
                f"expert parallel width {sharding.expert} with tensor {sharding.tensor} x context {sharding.context}: "
                "traced experts are spread over data-parallel replicas of one device; use 1 x 1, or no expert "
                "parallelism"
            )
        if sharding.expert > 1 and not self._has_experts():
            return f"expert parallel width {sharding.expert}: {self.model_name} is not known to have experts"
        for cutting in Cutting.of(sharding):
            if not self._divides(cutting):
                return (
                    f"{cutting.axis} parallel width {cutting.degree} divides no dimension of {self.model_name}'s "
                    "products that it may share"
                )
        return None

    def _has_experts(self) -> bool:
        return any(is_of_experts(tensor) for layer, _ in self.model.layers for tensor in layer.tensors)

    def _divides(self, cutting: Cutting) -> bool:
        """Whether a group could share any product; of experts, whether it divides their number."""
        sized = scale(self.model, sequence_length=self._length)
        if cutting.axis is Axis.EXPERT:
            cutting = replace(cutting, symbols=frozenset({Symbol.EXPERT}))
        return any(
            cutting.divides(loop.size, loop.symbol)
            for layer, _ in sized.layers
            for op in layer.operators
            if op.kind in (TensorOpKind.PRODUCT, TensorOpKind.ATTENTION)
            for loop in op.loops
        )
