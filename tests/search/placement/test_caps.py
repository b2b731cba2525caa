"""Caps of stages for all pipelines at once, against the bytes of each stage by itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from archplace.costmodel import LayerMemory
from archplace.search.placement.caps import StageCaps
from archplace.search.placement.training import ChainMemory

BYTES = st.integers(0, 50)


@st.composite
def layers(draw):
    return LayerMemory(state_bytes=draw(BYTES), in_flight_bytes=float(draw(BYTES)), working_bytes=float(draw(BYTES)))


MEMORIES = st.builds(ChainMemory, first=layers(), block=layers(), last=layers(), n_blocks=st.integers(1, 9))


def naive_caps(memory, capacity, stages, microbatches):
    """The most blocks of each stage: all numbers of blocks are tried."""
    caps = []
    for position in range(1, stages + 1):
        most = -1
        for blocks in range(memory.n_blocks + 1):
            held = memory.stage_bytes(position=position, stages=stages, blocks=blocks, microbatches=microbatches)
            if held > capacity:
                break
            most = blocks
        caps.append(most)
    return tuple(caps)


@given(memory=MEMORIES, capacity=st.integers(0, 900), most=st.integers(1, 11), microbatches=st.integers(1, 12))
def test_caps_are_what_the_bytes_of_each_stage_allow(memory, capacity, most, microbatches):
    caps = StageCaps(memory, capacity, most)
    for stages in range(1, most + 1):
        expected = naive_caps(memory, capacity, stages, microbatches)
        assert caps.caps(stages=stages, microbatches=microbatches) == expected
        fits = memory.fits(stages=stages, caps=expected)
        assert caps.fits(np.array([stages]), np.array([microbatches])).tolist() == [fits]


@given(memory=MEMORIES, capacity=st.integers(0, 900), other=st.integers(0, 900))
def test_equal_caps_are_those_that_allow_the_same_in_all_pipelines(memory, capacity, other):
    one, two = (StageCaps(memory, each, 5) for each in (capacity, other))
    same = all(
        one.caps(stages=stages, microbatches=count) == two.caps(stages=stages, microbatches=count)
        for stages in range(1, 6)
        for count in range(1, 7)
    )
    if one == two:
        assert hash(one) == hash(two)
        assert same
    assert StageCaps(memory, capacity, 5) == one
    assert one != capacity
