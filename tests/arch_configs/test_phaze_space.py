"""PHAZE's design space, against the list of cores that it publishes.

Known answers come from the list of 29,360 core configurations in PHAZE's released code (msr-fiddle/phaze, ICML 2024):
counts per parameter value and the sum of all areas were computed from that list, once.
"""

import math
from collections import Counter

import numpy as np
import pytest

from archplace.arch_configs import load_space

SPACE = load_space("phaze")
ARCHITECTURES = SPACE.enumerate()


def test_29360_of_75712_combinations():
    assert SPACE.n_raw == 13 * 13 * 8 * 8 * 7 == 75_712
    assert len(ARCHITECTURES) == 29_360


@pytest.mark.parametrize(
    ("column", "counts"),
    [
        (
            "tensor_count",
            {1: 5570, 2: 2300, 4: 2352, 8: 2386, 16: 2398, 32: 2362, 64: 2297, 128: 2202, 256: 2049, 512: 1793,
             1024: 1468, 2048: 1223, 4096: 960},
        ),
        (
            "vector_count",
            {1: 4186, 2: 2039, 4: 2034, 8: 2032, 16: 2031, 32: 2030, 64: 2043, 128: 2072, 256: 2129, 512: 2217,
             1024: 2242, 2048: 2163, 4096: 2142},
        ),
        ("tensor_cols", {2: 4100, 4: 4118, 8: 4068, 16: 4087, 32: 3909, 64: 3555, 128: 3024, 256: 2499}),
        ("tensor_rows", {2: 4240, 4: 4173, 8: 4067, 16: 3897, 32: 3670, 64: 3393, 128: 3108, 256: 2812}),
        (
            "global_buffer_bytes",
            {2 << 20: 2968, 4 << 20: 3010, 8 << 20: 3066, 16 << 20: 3224, 32 << 20: 3918, 64 << 20: 7029,
             128 << 20: 6145},
        ),
    ],
)  # fmt: skip
def test_counts_per_value_are_those_of_the_published_list(column, counts):
    assert Counter(getattr(ARCHITECTURES, column).tolist()) == counts


def test_areas_are_those_of_the_published_list():
    area_um2 = ARCHITECTURES.area_mm2 * 1e6
    assert math.fsum(area_um2) == pytest.approx(3938358656612.6523, rel=1e-12)
    assert area_um2.min() == pytest.approx(3355047.77325, rel=1e-9)
    assert area_um2.max() == pytest.approx(278826676.31216, rel=1e-9)


@pytest.mark.parametrize(
    ("tensor", "vector", "width", "depth", "buffer_mib", "area_um2"),
    [
        # The first two entries of the published list.
        (4096, 4096, 16, 2, 32, 246416424.736),
        (4096, 4096, 16, 2, 16, 223410724.736),
        # By hand: 1·16·760.041386 + S(1 KiB) + 1·4·759.823853 + S(1 KiB) + S(2 MiB).
        (1, 1, 4, 4, 2, 16 * 760.041386 + 6133.98 + 4 * 759.823853 + 6133.98 + 3338220),
        # By hand: 2 of 256 × 256 (buffers of 1 MiB), 1 vector unit of 256 lanes (4 KiB), 64 MiB.
        (2, 1, 256, 256, 64, 2 * 65536 * 760.041386 + 2 * 1634130 + 256 * 759.823853 + 12610.5 + 88605700),
    ],
)
def test_areas_of_single_architectures(tensor, vector, width, depth, buffer_mib, area_um2):
    a = ARCHITECTURES
    (row,) = np.flatnonzero(
        (a.tensor_count == tensor)
        & (a.vector_count == vector)
        & (a.tensor_cols == width)
        & (a.tensor_rows == depth)
        & (a.global_buffer_bytes == buffer_mib << 20)
    )
    assert a.area_mm2[row] * 1e6 == pytest.approx(area_um2, rel=1e-12)


def test_the_budget_is_a_chip_like_tpu_v4_and_a_third_of_it():
    assert SPACE.area_max_mm2 == pytest.approx(278.82667631216, rel=1e-12)
    single = (ARCHITECTURES.tensor_count == 1) | (ARCHITECTURES.vector_count == 1)
    small = ARCHITECTURES.area_mm2 < 0.3 * SPACE.area_max_mm2
    assert small.any()
    assert not (small & ~single).any()


def test_what_follows_from_the_array():
    a = ARCHITECTURES
    assert (a.vector_lanes == a.tensor_cols).all()
    assert (a.tensor_local_bytes == np.maximum(16 * a.tensor_rows * a.tensor_cols, 1024)).all()
    assert (a.vector_local_bytes == np.maximum(16 * a.vector_lanes, 1024)).all()
    assert set(a.tensor_local_bytes_per_s.tolist()) == {1024 * 1.05e9}
    assert set(a.global_buffer_bytes_per_s.tolist()) == {4096 * 1.05e9}
    assert set(a.hbm_bytes_per_s.tolist()) == {1.2e12}
    assert not a.hbm_separate_ports.any()
    assert set(a.tensor_macs_per_element) == {"bf16", "fp16"}
