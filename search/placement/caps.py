"""The most blocks that the stages of a pipeline can hold within one capacity, for all pipelines at once."""

from typing import TYPE_CHECKING

import numpy as np

from archplace.search.placement.prices import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from archplace.search.placement.training import ChainMemory


class StageCaps:
    """Caps of stages by their place and the microbatches that they have in flight, which decide them alone."""

    def __init__(self, memory: "ChainMemory", capacity_bytes: float, most_stages: int) -> None:
        """Work out the caps for pipelines of up to ``most_stages`` within ``capacity_bytes``."""
        self._n_blocks = memory.n_blocks
        in_flight = np.arange(most_stages + 1)
        one = np.ones(1, dtype=np.int64)
        self._alone = int(_most_blocks(memory, capacity_bytes, one, first=True, last=True)[0])
        self._last = int(_most_blocks(memory, capacity_bytes, one, first=False, last=True)[0])
        self._first = _most_blocks(memory, capacity_bytes, in_flight, first=True, last=False)
        self._middle = _most_blocks(memory, capacity_bytes, in_flight, first=False, last=False)
        # Of the middle stages with 2, 3, … microbatches in flight, by the last of these.
        self._sums = np.concatenate((np.zeros(min(2, most_stages + 1), np.int64), self._middle[2:])).cumsum()
        self._falling = tuple(self._middle[::-1].tolist())
        self._first_of = tuple(self._first.tolist())
        self._key = (self._n_blocks, self._alone, self._last, self._first_of, self._falling)
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        """Whether all pipelines have the same caps."""
        return isinstance(other, StageCaps) and self._key == other._key

    def __hash__(self) -> int:
        """Of the caps."""
        return self._hash

    def caps(self, *, stages: int, microbatches: int) -> tuple[int, ...]:
        """Return the caps of a pipeline's stages, from the first; −1 where not even a stage without blocks fits."""
        if stages == 1:
            return (self._alone,)
        full = min(stages - 1, microbatches)
        # The middle stages have from stages - 1 down to 2 microbatches in flight, or all there are.
        end = len(self._falling)
        fewest = (self._falling[end - 1 - full],) * (stages - 1 - max(full, 1))
        falling = self._falling[end - 1 - full : end - 2] if full > 1 else ()
        return (self._first_of[min(stages, microbatches)], *fewest, *falling, self._last)

    def fits(self, stages: IntArray, microbatches: IntArray) -> BoolArray:
        """Return for pipelines of so many stages and microbatches whether all blocks have a place, ``(n,)`` each.

        Middle stages hold at least one block.
        """
        full = np.maximum(np.minimum(stages - 1, microbatches), 1)
        fewest = self._middle[full]
        first = self._first[np.minimum(stages, microbatches)]
        total = first + self._last + self._sums[full] + (stages - 1 - full) * fewest
        several = (np.minimum(first, self._last) >= 0) & ((stages == 2) | (fewest >= 1)) & (total >= self._n_blocks)
        fitting: BoolArray = np.where(stages == 1, self._alone >= self._n_blocks, several)
        return fitting & (stages <= self._n_blocks + 2)


def _most_blocks(
    memory: "ChainMemory", capacity_bytes: float, in_flight: IntArray, *, first: bool, last: bool
) -> IntArray:
    """Return the caps of stages with so many microbatches in flight, ``(n,)``; −1 where none without blocks fits."""
    block, most = memory.block, memory.n_blocks
    per_block = block.state_bytes + in_flight * block.in_flight_bytes
    ends = [
        end.state_bytes + in_flight * end.in_flight_bytes
        for end, is_it in ((memory.first, first), (memory.last, last))
        if is_it
    ]

    def held(blocks: IntArray) -> FloatArray:
        # In the order of :meth:`ChainMemory.stage_bytes`, so that the sums are the same to the last bit.
        total: FloatArray = blocks * per_block
        total = np.where(blocks > 0, total + block.working_bytes, total)
        for end in ends:
            total = total + end
        return total

    none, one = held(np.zeros_like(in_flight)), held(np.ones_like(in_flight))
    within = one <= capacity_bytes
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(per_block > 0, np.floor((capacity_bytes - one) / per_block), most)
    caps = np.where(within, np.minimum(most, 1 + np.clip(quotient, 0, most)), 0).astype(np.int64)
    # The quotient may be one off by rounding; the bytes themselves decide.
    while (more := within & (caps < most) & (held(caps + 1) <= capacity_bytes)).any():
        caps[more] += 1
    while (less := within & (held(caps) > capacity_bytes)).any():
        caps[less] -= 1
    found: IntArray = np.where(none > capacity_bytes, -1, caps)
    return found
