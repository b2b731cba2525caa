"""The closed form for a chain of equal blocks: the very float that brute force and the general search find."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.search.placement import StagePrices, bottleneck_load_s, cuts, place
from archplace.search.placement.prices import FloatArray


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write ``total`` as ``parts`` ordered numbers from 0 on."""
    for bars in combinations_with_replacement(range(total + 1), parts - 1):
        edges = [0, *bars, total]
        yield tuple(b - a for a, b in pairwise(edges))


def load_of(bases: tuple[float, float, float, float], blocks: tuple[int, ...]) -> float:
    first, middle, last, block = bases
    if len(blocks) == 1:
        return first + block * blocks[0] + last
    ends = (first + block * blocks[0], last + block * blocks[-1])
    return max(*ends, *(middle + block * k for k in blocks[1:-1]))


def allowed(blocks: tuple[int, ...], caps: list[int]) -> bool:
    return all(k <= cap for k, cap in zip(blocks, caps, strict=True)) and all(k >= 1 for k in blocks[1:-1])


numbers = st.one_of(
    st.integers(0, 12).map(float),
    st.floats(0.0, 12.0),
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.1, 3.3, 1e-17, 1e-9, 1e6]),
)
all_bases = st.tuples(numbers, numbers, numbers, numbers)


@settings(max_examples=400, deadline=None)
@given(st.lists(all_bases, min_size=1, max_size=5), st.integers(0, 9), st.data())
def test_equals_brute_force_to_the_last_bit(
    archs: list[tuple[float, float, float, float]], n_blocks: int, data: st.DataObject
) -> None:
    stages = data.draw(st.integers(1, 5))
    caps = data.draw(st.lists(st.integers(-1, 9) | st.just(9), min_size=stages, max_size=stages))
    ways = [blocks for blocks in compositions(n_blocks, stages) if allowed(blocks, caps)]
    expected = [min((load_of(bases, blocks) for blocks in ways), default=np.inf) for bases in archs]
    found = bottleneck_load_s(*np.array(archs).T, n_blocks, caps)
    assert found.tolist() == expected
    for bases, load in zip(archs, expected, strict=True):
        blocks = cuts(*bases, n_blocks, caps)
        if not ways:
            assert blocks is None
            continue
        assert blocks is not None
        assert blocks in ways
        assert load_of(bases, blocks) == load


def filled_greedily(bases: tuple[float, ...], n_blocks: int, caps: list[int]) -> float:
    """Each stage's loads grow with its blocks: the least ones, in order, until all blocks have a place."""
    first, middle, last, block = bases
    loads = [first + block * k for k in range(1, caps[0] + 1)] + [last + block * k for k in range(1, caps[-1] + 1)]
    loads += [middle + block * k for cap in caps[1:-1] for k in range(2, cap + 1)]
    must = [first, last, *([middle + block] * (len(caps) > 2))]
    further = n_blocks - (len(caps) - 2)
    return max(must + sorted(loads)[:further]) if 0 <= further <= len(loads) else np.inf


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 40), st.integers(1, 130), st.sampled_from([1e-3, 1.0, 30.0, 1e4]), st.integers(0, 2**32 - 1))
def test_equals_greedy_filling_at_full_size(stages: int, n_blocks: int, scale: float, seed: int) -> None:
    """Random floats, and multiples of the block's load moved by one ulp: crossings at and beside whole numbers."""
    random = np.random.default_rng(seed)
    block = random.uniform(0.1, 3.0, 60)
    bases = scale * random.uniform(0.0, 1.0, (3, 60)) * block
    bases[:, 20:] = random.integers(0, 40, (3, 40)) * block[20:]
    bases[:, 40:] = np.nextafter(bases[:, 40:], random.choice([0.0, 1e9], (3, 20)))
    caps = random.integers(1, max(2, 4 * n_blocks // stages), stages).tolist()
    found = bottleneck_load_s(*bases, block, n_blocks, caps)
    columns = zip(*bases.tolist(), block.tolist(), strict=True)
    expected = [filled_greedily(column, n_blocks, caps) for column in columns]
    assert found.tolist() == expected


def chain_prices(bases: tuple[float, float, float, float], n_blocks: int, stages: int, caps: list[int]) -> StagePrices:
    """The same chain for the general search: an embedding, blocks, a head; caps as memory of one byte a block."""
    first, middle, last, block = bases
    n = n_blocks + 2
    starts, ends = np.indices((n + 1, n + 1))
    held = (ends - starts - (starts == 0) - (ends == n)).astype(np.float64)
    base = np.where(starts == 0, first, np.where(ends == n, last, middle))
    load = np.where((starts == 0) & (ends == n), first + block * n_blocks + last, base + block * held)
    loads: list[FloatArray] = []
    for position in range(1, stages + 1):
        fits = (held <= caps[stages - position]) & ((starts == 0) == (position == stages))
        loads.append(np.where(fits, load, np.inf))
    return StagePrices(
        tensor_parallel=1,
        load_s=(*loads, np.full_like(load, np.inf)),
        base_bytes=np.zeros_like(load),
        in_flight_bytes=np.zeros_like(load),
        devices=np.ones(load.shape, dtype=np.int64),
        synchronisation_s=lambda replicas, _, first_ends: np.zeros((len(replicas), len(first_ends))),
        layer_floor_s=(np.zeros(n), np.zeros(n)),
    )


@settings(max_examples=100, deadline=None)
@given(all_bases, st.integers(1, 14), st.data())
def test_equals_the_general_search(
    bases: tuple[float, float, float, float], n_blocks: int, data: st.DataObject
) -> None:
    stages = data.draw(st.integers(2, 6))
    caps = data.draw(st.lists(st.integers(0, 14), min_size=stages, max_size=stages))
    prices = chain_prices(bases, n_blocks, stages, caps)
    general = place([prices], max_devices=stages, microbatches=1, memory_bytes=1.0)
    closed = bottleneck_load_s(*np.array([bases]).T, n_blocks, caps)
    assert closed[0] == max((stage.load_s for stage in general.stages), default=np.inf)


def test_by_hand() -> None:
    """10 blocks of 2 s on 4 stages, embedding 1 s, head 5 s, 1 s of transfers on each side of a middle stage: 2 s.

    1 + 2·3 = 7, 2 + 2·3 = 8, 2 + 2·3 = 8, 5 + 2·1 = 7: a bottleneck of 8 s. With at most 2 blocks in the middle the
    other 6 go to the ends: 1 + 2·4 = 9 and 5 + 2·2 = 9. With at most one on the head's stage besides, 1 + 2·5 = 11.
    """
    bases = [np.array([value]) for value in (1.0, 2.0, 5.0, 2.0)]
    assert bottleneck_load_s(*bases, 10, [9, 9, 9, 9]).tolist() == [8.0]
    assert cuts(1.0, 2.0, 5.0, 2.0, 10, [9, 9, 9, 9]) == (3, 3, 3, 1)
    assert bottleneck_load_s(*bases, 10, [9, 2, 2, 9]).tolist() == [9.0]
    assert bottleneck_load_s(*bases, 10, [9, 2, 2, 1]).tolist() == [11.0]
    assert bottleneck_load_s(*bases, 10, [4, 2, 2, 1]).tolist() == [np.inf]
    assert bottleneck_load_s(*bases, 10, [10]).tolist() == [26.0]


def test_no_architectures_no_rows() -> None:
    empty = np.empty(0)
    assert bottleneck_load_s(empty, empty, empty, empty, 4, [2, 2, 2]).shape == (0,)


def test_refuses_no_stages_and_negative_blocks() -> None:
    one = np.ones(1)
    with pytest.raises(ValueError, match="no stage"):
        bottleneck_load_s(one, one, one, one, 1, [])
    with pytest.raises(ValueError, match="at least 0"):
        cuts(1.0, 1.0, 1.0, 1.0, -1, [1])
