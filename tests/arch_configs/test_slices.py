"""A job on a torus gets a compact box, on several pods the same box of each."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import load_cluster
from archplace.arch_configs.slices import slice_of


def sizes(cluster):
    return tuple(dimension.size for dimension in cluster.dimensions)


# Google Cloud, TPU v5p: topologies of slices by cores, two to a chip: v5p-128 is 4 x 4 x 4, v5p-256 4 x 4 x 8,
# v5p-512 4 x 8 x 8, v5p-1024 8 x 8 x 8, v5p-4096 8 x 16 x 16.
@pytest.mark.parametrize(
    ("devices", "box"),
    [(64, (4, 4, 4)), (128, (4, 4, 8)), (256, (4, 8, 8)), (512, (8, 8, 8)), (2048, (8, 16, 16))],
)
def test_slices_of_a_torus_are_those_that_are_sold(devices, box):
    assert sorted(sizes(slice_of(load_cluster("tpu-v5p"), devices))) == sorted(box)


def test_sides_that_hold_the_innermost_groups_are_numbered_first():
    assert sizes(slice_of(load_cluster("tpu-v5p"), 128, innermost=8))[0] == 8
    assert sizes(slice_of(load_cluster("tpu-v5p"), 128, innermost=16))[:2] == (4, 4)


def test_pods_have_equal_parts_and_meet_over_the_slower_network():
    found = slice_of(load_cluster("tpu-v5p"), 256, pods=2)
    assert sorted(sizes(found)[:3]) == [4, 4, 8]
    assert [(dimension.name, dimension.size) for dimension in found.dimensions[3:]] == [("pods", 2)]


def test_nodes_behind_switches_are_filled_as_ever():
    cluster = load_cluster("a100-80gb-selene")
    assert slice_of(cluster, 64, pods=3) == cluster.sized(64)


def test_what_cannot_be_is_refused_with_numbers():
    cluster = load_cluster("tpu-v5p")
    with pytest.raises(ValueError, match="127 devices, which form no box of a torus of 16 x 20 x 28"):
        slice_of(cluster, 127)
    with pytest.raises(ValueError, match="100 devices, which do not divide over 3 pods"):
        slice_of(cluster, 100, pods=3)
    with pytest.raises(ValueError, match="found 64 pods"):
        slice_of(cluster, 640, pods=64)


@given(st.integers(0, 8), st.integers(1, 4))
def test_slices_have_as_many_devices_as_asked_for(power, pods):
    found = slice_of(load_cluster("tpu-v5e"), 2**power * pods, pods=pods)
    assert prod(sizes(found)) == 2**power * pods
