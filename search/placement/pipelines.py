"""The pipelines of one option as arrays: what the search over many architectures at once reads."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

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
    """Pipelines as arrays, one row a pipeline at one transfer time: ``n_rows``, in the pipelines' order.

    A row's stages after the first are the middle ones and the last; ``taken[row, K]`` blocks fit on the middle stages
    together when none holds more than ``K``.
    """

    n_blocks: int
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
    stages: IntArray
    """``(n_rows,)``, as all below up to ``taken``."""
    least_slots: IntArray
    """Of all ways of the pipeline, whatever their transfers."""
    transfer_s: FloatArray
    middle_s: FloatArray
    """Seconds of a middle stage without blocks; infinite without middle stages."""
    even: IntArray
    """Blocks on the fullest stage when they are spread as evenly as memory allows."""
    first_cap: IntArray
    last_cap: IntArray
    """0 for a single stage."""
    middle_cap: IntArray
    """The largest of the middle stages; 0 without middle stages."""
    taken: IntArray
    """``(n_rows, n_blocks + 1)``, at most ``n_blocks + 1`` each."""
    way: IntArray
    """``(n_rows, most_ways)``: the row's ways as indices into ``ways``, in order; -1 beyond them."""
    slots: FloatArray
    """``(n_rows, most_ways)``; beyond the row's ways more than any has, and an infinite latency."""
    sync_s_per_byte: FloatArray
    sync_latency_s: FloatArray
    least_parameters: FloatArray
    """``(n_rows,)``: of the first stage when it holds as few blocks as it can."""
    line_slots: FloatArray
    """``(n_lines, n_rows)``: the slots of the ways that can be best for some load with the least parameters …"""
    line_sync_s: FloatArray
    """… and the synchronisation of each; infinite beyond a row's ways."""

    @classmethod
    def of(cls, step: TrainingStep, pipelines: Sequence[Pipeline]) -> "PipelineTable":
        """Return the arrays of ``pipelines`` of the embedding, blocks and head of ``step``."""
        first, block, n_blocks, last = split_chain(step)
        gradient_bytes = float(step.parameter_bytes.gradient)
        ways = [(index, way) for index, pipeline in enumerate(pipelines) for way in pipeline.degrees]
        rows = list(_rows(ways))
        pipeline = np.array([index for index, _ in rows], dtype=np.int64)
        way = np.full((len(rows), max((len(members) for _, members in rows), default=0)), -1, dtype=np.int64)
        row_of_way = np.zeros(len(ways), dtype=np.int64)
        for row, (_, members) in enumerate(rows):
            way[row, : len(members)] = members
            row_of_way[members] = row

        def of_rows(values: Iterable[int]) -> IntArray:
            return np.array(list(values), dtype=np.int64)[pipeline]

        def of_ways(values: Iterable[float], beyond: float) -> FloatArray:
            return np.array([*values, beyond], dtype=np.float64)[way]

        stages = of_rows(each.stages for each in pipelines)
        parameters = float(first.parameters) + np.where(stages == 1, block.parameters * n_blocks + last.parameters, 0.0)
        slots = of_ways((each.slots for _, each in ways), _MANY_SLOTS)
        sync_s_per_byte = of_ways((each.sync_s_per_byte for _, each in ways), 0.0)
        sync_latency_s = of_ways((each.sync_latency_s for _, each in ways), np.inf)
        transfer_s = of_ways((each.transfer_s for _, each in ways), 0.0)[:, :1].ravel()
        everywhere = np.array([_taken(each.caps, n_blocks) for each in pipelines]).reshape(-1, n_blocks + 1)
        taken = np.array([_taken(each.caps[1:-1], n_blocks) for each in pipelines]).reshape(-1, n_blocks + 1)
        line_slots, line_sync_s = _envelopes(
            slots, sync_s_per_byte * (gradient_bytes * parameters)[:, None] + sync_latency_s
        )
        return cls(
            n_blocks=n_blocks,
            first_parameters=float(first.parameters),
            block_parameters=float(block.parameters),
            last_parameters=float(last.parameters),
            gradient_bytes=gradient_bytes,
            pipelines=tuple(pipelines),
            ways=tuple(ways),
            row_of_way=row_of_way,
            stages=stages,
            least_slots=of_rows(each.least_slots for each in pipelines),
            transfer_s=transfer_s,
            middle_s=np.where(stages > 2, 2 * transfer_s, np.inf),
            even=(everywhere < n_blocks).sum(axis=1)[pipeline],
            first_cap=of_rows(min(each.caps[0], n_blocks) for each in pipelines),
            last_cap=of_rows(min(each.caps[-1], n_blocks) if each.stages > 1 else 0 for each in pipelines),
            middle_cap=of_rows(min(max(each.caps[1:-1], default=0), n_blocks) for each in pipelines),
            taken=taken[pipeline],
            way=way,
            slots=slots,
            sync_s_per_byte=sync_s_per_byte,
            sync_latency_s=sync_latency_s,
            least_parameters=parameters,
            line_slots=line_slots,
            line_sync_s=line_sync_s,
        )


def _rows(ways: Sequence[tuple[int, Degrees]]) -> Iterator[tuple[int, list[int]]]:
    """Yield (pipeline, its ways that have one transfer time)."""
    for pipeline, members in groupby(range(len(ways)), key=lambda index: ways[index][0]):
        by_transfer: dict[float, list[int]] = {}
        for index in members:
            by_transfer.setdefault(ways[index][1].transfer_s, []).append(index)
        for alike in by_transfer.values():
            yield pipeline, alike


def _taken(caps: Sequence[int], n_blocks: int) -> IntArray:
    """Return how many blocks stages with ``caps`` take when none holds more than 0, 1 … ``n_blocks`` blocks."""
    with_cap = np.bincount(np.minimum(np.array(caps, dtype=np.int64), n_blocks), minlength=n_blocks + 1)
    taken = np.zeros(n_blocks + 1, dtype=np.int64)
    # As many stages take a K-th block as have a cap of at least K.
    np.cumsum(with_cap[:0:-1].cumsum()[::-1], out=taken[1:])
    return taken


def _envelopes(slots: FloatArray, sync_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the lines ``load · slots + sync`` of each row that are least for some load, ``(n_lines, n_rows)`` each.

    From heavy loads to light ones; the last line is repeated in rows that have fewer.
    """
    n_rows = len(slots)
    every = np.arange(n_rows)
    current = np.lexsort((sync_s, slots))[:, 0] if slots.size else np.zeros(0, dtype=np.int64)
    lines = [current]
    while n_rows:
        # Towards lighter loads the next line is the one that crosses the current one first.
        more = slots - slots[every, current][:, None]
        less = sync_s[every, current][:, None] - sync_s
        able = (more > 0) & (less > 0)
        crossing = np.divide(less, more, out=np.full_like(slots, -1.0), where=able)
        following = np.where(able.any(axis=1), crossing.argmax(axis=1), current)
        if (following == current).all():
            break
        current = following
        lines.append(current)
    chosen = np.array(lines).reshape(len(lines), n_rows)
    return slots[every, chosen], sync_s[every, chosen]
