"""The placement in a run file: what may stand along every axis, one value or a list."""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from archplace.arch_configs.files import FileModel
from archplace.arch_configs.units import Bytes
from archplace.costmodel import Offload, SharedStates, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.run_names import check_capacity, check_distinct
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.strategy import DEFAULT_ORDER, Overlap
from archplace.workloads import Axis, ContextKind, Recompute

T = TypeVar("T")

Degree = Annotated[int, Field(ge=1, le=2**20)]
StatesName = Literal["none", "optimizer", "gradients", "parameters", "zero-1", "zero-2", "zero-3"]
OffloadName = Literal["none", "activations", "optimizer", "all"]
OverlapName = Literal["data", "pipeline"]
OrderedAxis = Literal["tensor", "context", "data", "pipeline"]

_ZERO = {"zero-1": SharedStates.OPTIMIZER, "zero-2": SharedStates.GRADIENTS, "zero-3": SharedStates.PARAMETERS}
"""Rajbhandari et al. 2020, arXiv:1910.02054."""
_OFFLOAD = {
    "none": Offload(),
    "activations": Offload(activations=1.0),
    "optimizer": Offload(optimizer=1.0),
    "all": Offload(activations=1.0, optimizer=1.0),
}


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _lists(value: object) -> object:
    """Where a value is a list itself: one of them, or a list of them."""
    if isinstance(value, list | tuple):
        several = bool(value) and all(isinstance(entry, list | tuple) for entry in value)
        return tuple(map(_listed, value)) if several else (tuple(value),)
    return ((value,),)


def _distinct(value: tuple[T, ...]) -> tuple[T, ...]:
    check_distinct(value)
    return value


OneOrMore = Annotated[tuple[T, ...], BeforeValidator(_listed), Field(min_length=1), AfterValidator(_distinct)]
"""A value, or a list in which each stands once."""
OneListOrMore = Annotated[
    tuple[tuple[T, ...], ...], BeforeValidator(_lists), Field(min_length=1), AfterValidator(_distinct)
]
"""The same for values that are lists."""


class StrategyFields(FileModel):
    """What may stand along each axis; a key that is left out is None, and means a default that the reader has."""

    tensor_parallel: OneOrMore[Degree] | None = None
    sequence_parallel: OneOrMore[bool] | None = None
    context_parallel: OneOrMore[Degree] | None = None
    context_exchange: OneOrMore[ContextKind] | None = None
    expert_parallel: OneOrMore[Degree] | None = None
    expert_tensor_parallel: OneOrMore[Degree] | None = None
    pipeline_parallel: OneOrMore[Degree] | None = None
    data_parallel: OneOrMore[Degree] | None = None
    microbatch: OneOrMore[Degree] | None = None
    schedule: OneOrMore[PipelineSchedule] | None = None
    virtual_stages: OneOrMore[Degree] | None = None
    recompute: OneOrMore[Recompute] | None = None
    state_sharding: OneOrMore[StatesName] | None = None
    shard_group: OneOrMore[Degree] | None = None
    offload: OneOrMore[OffloadName] | None = None
    overlap: OneListOrMore[OverlapName] | None = None
    tensor_overlap_pieces: OneOrMore[Degree] | None = None
    device_order: OneListOrMore[OrderedAxis] | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _given(cls, value: object) -> object:
        if value is None:
            raise ValueError("found no value; give one or a list of them, or remove the key")
        return value

    @field_validator("state_sharding")
    @classmethod
    def _named_once(cls, value: tuple[StatesName, ...] | None) -> tuple[StatesName, ...] | None:
        check_distinct(None if value is None else tuple(map(_shared, value)))
        return value

    @field_validator("device_order")
    @classmethod
    def _complete(cls, value: tuple[tuple[OrderedAxis, ...], ...] | None) -> tuple[tuple[OrderedAxis, ...], ...] | None:
        for order in value or ():
            if sorted(order) != sorted(DEFAULT_ORDER):
                raise ValueError(
                    f"found [{', '.join(order)}]; allowed: an order of {', '.join(DEFAULT_ORDER)}, each once, the "
                    "axis of neighbouring devices first"
                )
        return value

    def axes(self, default: Axes) -> Axes:
        """Return the axes of this placement, with those of ``default`` where nothing is said."""
        orders = tuple(tuple(Axis(axis) for axis in order) for order in self.device_order or ())
        return Axes(
            tensor=self.tensor_parallel or default.tensor,
            sequence=self.sequence_parallel or default.sequence,
            context=self.context_parallel or default.context,
            context_kind=self.context_exchange or default.context_kind,
            expert=self.expert_parallel or default.expert,
            expert_tensor=self.expert_tensor_parallel or default.expert_tensor,
            overlap_pieces=self.tensor_overlap_pieces or default.overlap_pieces,
            microbatch=self.microbatch or default.microbatch,
            stages=self.pipeline_parallel or default.stages,
            data=self.data_parallel or default.data,
            schedules=self.schedule or default.schedules,
            virtual=self.virtual_stages or default.virtual,
            policies=self.recompute or default.policies,
            states=self._states() or default.states,
            offload=(self.offload and tuple(_OFFLOAD[name] for name in self.offload)) or default.offload,
            overlap=(self.overlap and tuple(map(_overlap, self.overlap))) or default.overlap,
            orders=orders or default.orders,
        )

    def _states(self) -> tuple[StateSharding, ...] | None:
        """Return the ways to share states, each with each group; None where nothing is said."""
        if self.state_sharding is None and self.shard_group is None:
            return None
        found: list[StateSharding] = []
        for shared in map(_shared, self.state_sharding or ("none", "optimizer", "gradients", "parameters")):
            groups = (None,) if shared is SharedStates.NONE else self.shard_group or (None,)
            found += [StateSharding(states=shared, group=group) for group in groups]
        return tuple(found)


class PlacementFields(StrategyFields):
    """The placement of one accelerator, whose HBM may be given another capacity."""

    hbm: Bytes | None = None

    @field_validator("hbm")
    @classmethod
    def _plausible(cls, value: float | None) -> float | None:
        if value is not None:
            check_capacity(value)
        return value


def _shared(name: StatesName) -> SharedStates:
    return _ZERO.get(name) or SharedStates(name)


def _overlap(names: tuple[OverlapName, ...]) -> Overlap:
    return Overlap(data="data" in names, pipeline="pipeline" in names)
