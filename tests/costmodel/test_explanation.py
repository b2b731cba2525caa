"""Explanations add up to the seconds that they explain, and name what a hand calculation names."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import cluster, table
from test_blocks import calibrations, compute, operator
from test_blocks import machines as block_machines
from test_operators import machines as divided_machines
from test_operators import operators

from archplace.arch_configs import Blocks, Calibration
from archplace.costmodel import Pricer
from archplace.costmodel.explanation import explain
from archplace.workloads.operators import Axis, Collective, CollectiveKind, Gemm, Unit, VectorWork


def explained(work, **machine):
    return explain(Pricer(table(**machine), cluster()), work)


GPU = {
    "tensor_count": 432,
    "rows": 8,
    "cols": 4,
    "local_bytes_per_s": 1e15,
    "global_bytes_per_s": 1e15,
    "blocks": Blocks(units=4, tiles=((256, 128),)),
}


def test_a_product_by_hand():
    # 1000 × 1000 with a sum of 1: 4 × 8 tiles of 256 × 128 on 108 multiprocessors of 128 multiply-accumulates per ns.
    work = operator(Unit.TENSOR, gemm=Gemm(m=1000, n=1000, k=1))
    found = explained(work, **GPU, calibration=Calibration(tensor_rate=0.25, launch_s=3e-6))
    tile_s = 256 * 128 / 128 * 1e-9
    assert found.macs_s[0] == pytest.approx(10**6 / (108 * 128) * 1e-9)
    assert (found.macs_s + found.tile_quantisation_s)[0] == pytest.approx(32 / 108 * tile_s)
    assert (found.macs_s + found.tile_quantisation_s + found.wave_quantisation_s)[0] == pytest.approx(tile_s)
    # 32 of 108 busy at a quarter of the power: 32/108/0.25 = 1.185 times as long.
    assert found.throttling_s[0] == pytest.approx((32 / 108 / 0.25 - 1) * tile_s)
    assert found.launch_s[0] == 3e-6
    assert found.compulsory_bytes == 2 * (1000 + 1000 + 10**6)
    assert found.hbm_passes[0] == 1.0
    assert found.reuse[0] == pytest.approx(2 * 2 * 10**6 / found.compulsory_bytes)


def test_a_small_buffer_is_seen_in_the_passes():
    work = operator(Unit.TENSOR, gemm=Gemm(m=8192, n=8192, k=8192))
    large, small = (explained(work, global_bytes=size) for size in (2**32, 2**22))
    assert large.hbm_passes[0] == 1.0
    assert small.hbm_passes[0] > 2.0
    assert small.reuse[0] < large.reuse[0]


def test_vector_work_has_no_arrays():
    work = VectorWork(rows=100, row_length=1000, operations_per_element=2, read_bytes=10**6, write_bytes=10**6)
    found = explained(operator(Unit.VECTOR, vector=work))
    assert found.array_s[0] == found.macs_s[0] == found.reuse[0] == 0.0
    assert found.hbm_passes[0] == 1.0
    assert found.total_s[0] == found.hbm_s[0] == 2e-6


def test_the_network_has_prices_of_its_own():
    collective = Collective(kind=CollectiveKind.ALL_REDUCE, payload_bytes=8, group_size=8, axis=Axis.TENSOR)
    with pytest.raises(ValueError, match="operator runs on the network"):
        explained(operator(Unit.NETWORK, collective=collective))


def check(work, machine):
    pricer = Pricer(table(**machine), cluster())
    found = explain(pricer, work)
    price_s = pricer.price([work]).all_s[0, 0]
    assert found.total_s[0] == price_s
    named = (found.macs_s, found.tile_quantisation_s, found.wave_quantisation_s, found.throttling_s)
    assert sum(part[0] for part in named) == pytest.approx(found.array_s[0], rel=1e-9, abs=1e-18)
    assert all(part[0] >= -1e-9 * max(found.array_s[0], 1e-12) for part in named)
    shown = found.array_s + found.local_port_s + found.lanes_s + found.global_port_s + found.hbm_s
    alone = found.fill_s + found.turns_s + found.first_load_s + found.launch_s
    assert (shown + alone - found.hidden_s)[0] == pytest.approx(price_s, rel=1e-9)
    assert found.hbm_passes[0] >= 1 - 1e-9 or found.compulsory_bytes < 1
    for part in found[:15]:
        assert np.shape(part) == (1,)


@settings(deadline=None)
@given(operators, divided_machines, calibrations)
def test_parts_add_up_where_products_are_divided(work, machine, calibration):
    check(work, machine | {"calibration": calibration})


@settings(deadline=None)
@given(st.one_of(compute, operators), block_machines)
def test_parts_add_up_in_blocks(work, machine):
    check(work, {"rows": 8, "cols": 4} | machine)
