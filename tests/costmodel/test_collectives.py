"""Ring collectives over network dimensions, by hand and by law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import cluster

from archplace.costmodel import ring_s, spread, transfer_s
from archplace.workloads.operators import CollectiveKind


def members(size, stride):
    return [(share.members, share.dimension.name) for share in spread(cluster(), size=size, stride=stride)]


def test_groups_lie_on_the_fast_dimension_first():
    assert members(4, 1) == [(4, "node")]
    assert members(16, 1) == [(8, "node"), (2, "fabric")]
    assert members(16, 8) == [(16, "fabric")]
    assert members(4, 4) == [(2, "node"), (2, "fabric")]
    assert members(1, 1) == []


def test_group_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="64 devices at stride 4"):
        spread(cluster(), size=64, stride=4)


def test_hierarchical_all_reduce_by_hand():
    # 16 devices: reduce-scatter and all-gather of 800 MB among 8 at 400 GB/s, and of the remaining 100 MB between 2.
    inside = 2 * 7 * (800e6 / 8 / 400e9 + 1e-6)
    between = 2 * 1 * (100e6 / 2 / 50e9 + 5e-6)
    assert ring_s(CollectiveKind.ALL_REDUCE, 800e6, spread(cluster(), size=16, stride=1)) == pytest.approx(
        inside + between
    )


def test_transfer_uses_the_dimension_it_crosses():
    assert transfer_s(4e6, cluster(), stride=1) == pytest.approx(4e6 / 400e9 + 1e-6)
    assert transfer_s(4e6, cluster(), stride=8) == pytest.approx(4e6 / 50e9 + 5e-6)
    with pytest.raises(ValueError, match="no device is 128 away"):
        transfer_s(4e6, cluster(), stride=128)


@given(st.integers(1, 127), st.floats(0, 1e10))
def test_larger_groups_take_longer(size, payload):
    smaller, larger = (
        ring_s(CollectiveKind.ALL_REDUCE, payload, spread(cluster(), size=n, stride=1)) for n in (size, size + 1)
    )
    assert smaller <= larger * (1 + 1e-12)


@given(st.integers(1, 128), st.floats(0, 1e10))
def test_all_reduce_is_reduce_scatter_and_all_gather(size, payload):
    shares = spread(cluster(), size=size, stride=1)
    halves = ring_s(CollectiveKind.REDUCE_SCATTER, payload, shares) + ring_s(CollectiveKind.ALL_GATHER, payload, shares)
    assert ring_s(CollectiveKind.ALL_REDUCE, payload, shares) == pytest.approx(halves)
