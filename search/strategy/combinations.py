"""Which choices go together inside a block of strategies, and why others do not."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.costmodel import Offload, SharedStates, StateSharding, replica_refusal
from archplace.costmodel.network import DeviceOrder
from archplace.search.pipeline import PipelineSchedule, ScheduleShape
from archplace.search.strategy.chain import BoolArray
from archplace.search.strategy.strategy import Overlap, pipeline_refusal
from archplace.workloads import LayerSharding, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One number of stages and replicas on one order of the devices."""

    stages: int
    data: int
    microbatches: int
    order: DeviceOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What rows of a block differ in besides their entry."""

    schedules: tuple[tuple[PipelineSchedule, int], ...]
    """With the virtual stages of each."""
    states: tuple[StateSharding, ...]
    offload: tuple[Offload, ...]
    overlap: tuple[Overlap, ...]
    policies: tuple[Recompute, ...]


class Combinations:
    """The possible combinations of entries, schedules and shared states; the other choices go with any of them."""

    def __init__(
        self, sharding: LayerSharding, counts: Sequence[int], entries: Sequence[Entry], choices: Choices
    ) -> None:
        self._sharding, self._counts = sharding, tuple(counts)
        self._entries, self._choices = tuple(entries), choices
        self.refused: dict[str, int] = {}
        """Combinations that are not possible, by reason."""
        self.possible = self._possible()
        """``(entries, schedules, states)``."""

    def __len__(self) -> int:
        choices = self._choices
        return int(self.possible.sum()) * len(choices.offload) * len(choices.overlap)

    def _possible(self) -> BoolArray:
        """Return which combinations of entry, schedule and shared states are possible."""
        entries, choices, sharding = self._entries, self._choices, self._sharding
        possible = np.ones((len(entries), len(choices.schedules), len(choices.states)), dtype=np.bool_)
        for e, entry in enumerate(entries):
            for c, (schedule, virtual) in enumerate(choices.schedules):
                reason = self._schedule_refusal(entry, schedule, virtual)
                possible[e, c] &= reason is None
                self._count(reason, len(choices.states))
            for s, states in enumerate(choices.states):
                reason = replica_refusal(sharding, states, entry.data)
                self._count(reason, int(possible[e, :, s].sum()))
                possible[e, :, s] &= reason is None
                if states.states is not SharedStates.NONE and sharding.context * entry.data == 1:
                    possible[e, :, s] = False  # nobody to share with: the same as not sharing
        return possible

    def _schedule_refusal(self, entry: Entry, schedule: PipelineSchedule, virtual: int) -> str | None:
        shape = ScheduleShape(schedule=schedule, stages=entry.stages, virtual=virtual, microbatches=entry.microbatches)
        reason = pipeline_refusal(shape, self._counts)
        if reason is None and entry.stages == 1 and schedule is not self._choices.schedules[0][0]:
            return "a single stage has no pipeline to schedule"
        return reason

    def _count(self, reason: str | None, combinations: int) -> None:
        if reason is not None and combinations:
            self.refused[reason] = self.refused.get(reason, 0) + combinations
