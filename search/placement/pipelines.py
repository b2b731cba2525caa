"""The pipelines of one option as arrays: what the search over many architectures at once reads."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from archplace.search.placement.chain import ChainCaps, blocks_taken
from archplace.search.placement.prices import FloatArray, IntArray
from archplace.search.placement.training import Degrees, split_chain
from archplace.workloads import TrainingStep

_MANY_SLOTS = 2.0**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A number of stages that fits an option's memory, with the ways to replicate it."""

    caps: tuple[int, ...]
    """The most blocks that fit on each stage, from the first to the last; they leave room for all blocks."""
    degrees: tuple[Degrees, ...]
    """More replicas first."""

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.caps)

    @property
    def least_slots(self) -> int:
        """Of all ways to replicate it."""
        return min(way.slots for way in self.degrees)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTable:
    """Pipelines as arrays, one row a pipeline at one transfer time: ``n_rows``, in the pipelines' order."""

    first_parameters: float
    block_parameters: float
    last_parameters: float
    gradient_bytes: float
    """Of one parameter."""
    pipelines: tuple[Pipeline, ...]
    ways: tuple[tuple[int, Degrees], ...]
    """All ways of all pipelines, with the pipeline's index: by pipeline, more replicas first."""
    row_of_way: IntArray
    """``(n_ways,)``."""
    caps: ChainCaps
    """Of each row."""
    stages: IntArray
    """``(n_rows,)``, as all below that say nothing else."""
    pipeline_slots: IntArray
    """The least slots of all ways of the pipeline, whatever their transfers."""
    transfer_s: FloatArray
    middle_s: FloatArray
    """Seconds of a middle stage without blocks; infinite without middle stages."""
    even: FloatArray
    """Blocks on the fullest stage when they are spread as evenly as memory allows."""
    least_parameters: FloatArray
    """Of the first stage when it holds as few blocks as it can."""
    way: IntArray
    """``(n_rows, most_ways)``: the row's ways as indices into ``ways``, in order; -1 beyond them."""
    slots: FloatArray
    """``(n_rows, most_ways)``; beyond the row's ways more than any has, and an infinite latency."""
    sync_s_per_byte: FloatArray
    sync_latency_s: FloatArray
    line_slots: FloatArray
    """``(n_lines, n_rows)``: the slots of the ways that can be best for some load with the least parameters …"""
    line_sync_s: FloatArray
    """… and the synchronisation of each; from heavy loads to light ones, the last repeated in rows with fewer."""
    line_ends_s: FloatArray
    """``(n_lines - 1, n_rows)``: the load from which on a line is better than the next; 0 for one repeated."""
    rival_slots: FloatArray
    """The slots that a rival saves: of the rows with as many stages, no smaller caps and no slower transfers the one
    with the fewest; 0 without rival."""
    rival_sync_s: FloatArray
    """Seconds that the rival synchronises more than any way of the row, with the least parameters …"""
    rival_block_sync_s: FloatArray
    """… and with each block on the first stage besides; infinite without rival."""
    front_stages: FloatArray
    """``(n_front,)``, ascending: stages of the pipelines that no other beats in both slots and slots per stage …"""
    front_slots: FloatArray
    """… their slots, ascending …"""
    front_share: FloatArray
    """… and their slots per stage, descending."""

    @classmethod
    def of(cls, step: TrainingStep, pipelines: Sequence[Pipeline]) -> "PipelineTable":
        """Return the arrays of ``pipelines`` of the embedding, blocks and head of ``step``."""
        first, block, n_blocks, last = split_chain(step)
        gradient_bytes = float(step.parameter_bytes.gradient)
        ways = [(index, way) for index, pipeline in enumerate(pipelines) for way in pipeline.degrees]
        rows = list(_rows(ways))
        pipeline_of_row = [pipelines[index] for index, _ in rows]
        way = np.full((len(rows), max((len(members) for _, members in rows), default=1)), -1, dtype=np.int64)
        row_of_way = np.zeros(len(ways), dtype=np.int64)
        for row, (_, members) in enumerate(rows):
            way[row, : len(members)] = members
            row_of_way[members] = row

        def of_ways(values: Iterable[float], beyond: float) -> FloatArray:
            return np.array([*values, beyond], dtype=np.float64)[way]

        stages = np.array([each.stages for each in pipeline_of_row], dtype=np.int64)
        parameters = float(first.parameters) + np.where(stages == 1, block.parameters * n_blocks + last.parameters, 0.0)
        gradients = (gradient_bytes * parameters)[:, None]
        transfer_s = of_ways((each.transfer_s for _, each in ways), 0.0)[:, :1].ravel()
        slots = of_ways((each.slots for _, each in ways), _MANY_SLOTS)
        sync_s_per_byte = of_ways((each.sync_s_per_byte for _, each in ways), 0.0)
        sync_latency_s = of_ways((each.sync_latency_s for _, each in ways), np.inf)
        sync_s = sync_s_per_byte * gradients + sync_latency_s
        lines, line_ends_s = _envelopes(slots, sync_s)
        caps = [each.caps for each in pipeline_of_row]
        pipeline_slots = np.array([each.least_slots for each in pipeline_of_row], dtype=np.int64)
        front = _front(pipeline_slots, stages)
        every = np.arange(len(rows))
        fastest = lines[0]
        rival = _rivals(caps, transfer_s, slots[every, fastest])
        has_rival = rival >= 0
        more_per_byte = sync_s_per_byte[rival, fastest[rival]] - np.where(way >= 0, sync_s_per_byte, np.inf).min(axis=1)
        more_latency = sync_latency_s[rival, fastest[rival]] - sync_latency_s.min(axis=1)
        return cls(
            first_parameters=float(first.parameters),
            block_parameters=float(block.parameters),
            last_parameters=float(last.parameters),
            gradient_bytes=gradient_bytes,
            pipelines=tuple(pipelines),
            ways=tuple(ways),
            row_of_way=row_of_way,
            caps=ChainCaps.of(caps, n_blocks),
            stages=stages,
            pipeline_slots=pipeline_slots,
            transfer_s=transfer_s,
            middle_s=np.where(stages > 2, 2 * transfer_s, np.inf),
            even=(blocks_taken(caps, n_blocks) < n_blocks).sum(axis=1).astype(np.float64),
            least_parameters=parameters,
            way=way,
            slots=slots,
            sync_s_per_byte=sync_s_per_byte,
            sync_latency_s=sync_latency_s,
            line_slots=slots[every, lines],
            line_sync_s=sync_s[every, lines],
            line_ends_s=line_ends_s,
            rival_slots=np.where(has_rival, slots[every, fastest] - slots[rival, fastest[rival]], 0.0),
            rival_sync_s=np.where(has_rival, more_per_byte * gradients.ravel() + more_latency, np.inf),
            rival_block_sync_s=np.where(has_rival, more_per_byte * (gradient_bytes * block.parameters), np.inf),
            front_stages=stages[front].astype(np.float64),
            front_slots=pipeline_slots[front].astype(np.float64),
            front_share=pipeline_slots[front] / stages[front],
        )


def _rows(ways: Sequence[tuple[int, Degrees]]) -> Iterator[tuple[int, list[int]]]:
    """Yield (pipeline, its ways that have one transfer time)."""
    for pipeline, members in groupby(range(len(ways)), key=lambda index: ways[index][0]):
        by_transfer: dict[float, list[int]] = {}
        for index in members:
            by_transfer.setdefault(ways[index][1].transfer_s, []).append(index)
        for alike in by_transfer.values():
            yield pipeline, alike


def _envelopes(slots: FloatArray, sync_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the ways of each row whose ``load · slots + sync`` is least at some load, ``(n_lines, n_rows)``.

    From heavy loads to light ones, the last repeated in rows that have fewer; besides the loads, ``(n_lines - 1,
    n_rows)``, down to which a line is better than the next, 0 for one that is repeated.
    """
    n_rows = len(slots)
    every = np.arange(n_rows)
    lines = [np.lexsort((sync_s, slots))[:, 0]]
    ends_s: list[FloatArray] = []
    while n_rows:
        # Towards lighter loads the next line is the one that crosses the current one first.
        current = lines[-1]
        more = slots - slots[every, current][:, None]
        less = sync_s[every, current][:, None] - sync_s
        crossing_s = np.divide(less, more, out=np.zeros_like(slots), where=(more > 0) & (less > 0))
        following = np.where(crossing_s.any(axis=1), crossing_s.argmax(axis=1), current)
        if (following == current).all():
            break
        lines.append(following)
        ends_s.append(crossing_s[every, following])
    return np.array(lines), np.array(ends_s).reshape(len(ends_s), n_rows)


def _rivals(caps: Sequence[tuple[int, ...]], transfer_s: FloatArray, slots: FloatArray) -> IntArray:
    """Return for each row the one with the fewest slots among those that allow all it allows, -1 where it is that."""
    rivals = np.full(len(caps), -1, dtype=np.int64)
    by_stages: dict[int, list[int]] = {}
    for row, each in enumerate(caps):
        by_stages.setdefault(len(each), []).append(row)
    for members in by_stages.values():
        if len(members) == 1:
            continue
        alike = np.array(sorted(members, key=lambda row: slots[row]))
        held = np.array([caps[row] for row in alike.tolist()])
        allows = (held[:, None] >= held).all(axis=2) & (transfer_s[alike, None] <= transfer_s[alike])
        allows &= slots[alike, None] < slots[alike]
        rivals[alike] = np.where(allows.any(axis=0), alike[allows.argmax(axis=0)], -1)
    return rivals


def _front(slots: IntArray, stages: IntArray) -> IntArray:
    """Return the rows that no other beats in slots and slots per stage, slots ascending."""
    order = np.lexsort((slots / stages, slots))
    share = (slots / stages)[order]
    before = np.concatenate(([np.inf], np.minimum.accumulate(share)[:-1])) if len(order) else share
    front: IntArray = order[share < before]
    return front
