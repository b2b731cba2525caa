"""Products and attention in thread blocks: hand calculations, and the laws that all prices obey."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import cluster, table, tensor_configs

from archplace.arch_configs import Architectures, Blocks, Calibration, load_accelerator, load_cluster, load_space
from archplace.costmodel import Pipelining, Pricer
from archplace.costmodel._attention_blocks import attention_tiles
from archplace.costmodel._blocks import block_cycles
from archplace.workloads import LayerSharding, load_workload
from archplace.workloads.operators import FusedAttention, Gemm, Operator, Phase, Unit, VectorWork

LARGE = Blocks(units=4, tiles=((256, 128),))
LIBRARY = Blocks(units=4, tiles=((256, 128), (128, 256), (128, 128), (64, 64)))
# 108 multiprocessors of 4 units of 8 × 4 elements with 8 multiply-accumulates each: 1024 per multiprocessor and cycle.
GPU = {"count": 432, "rows": 8, "cols": 4, "rate": 8.0}


def cycles_of(gemm, blocks=LARGE, sustained=1.0, epilogue=(0.0, 0.0), **changes):
    configs = tensor_configs(**(GPU | changes))
    return block_cycles(gemm, configs, blocks, element_bytes=2, sustained=sustained, epilogue=epilogue)


def operator(unit, **content):
    return Operator(name="operator", unit=unit, phase=Phase.FORWARD, **content)


def test_a_wave_takes_as_long_as_one_tile():
    # 8192 × 8192 are 32 × 64 = 2048 tiles of 256 × 128, 19 waves of 108; one tile takes 256·128·4096/1024 cycles.
    found = cycles_of(Gemm(m=8192, n=8192, k=4096))
    tile = 256 * 128 * 4096 / 1024
    assert found.compute[0] == 19 * tile
    assert found.unthrottled[0] == 19 * tile
    assert found.balanced[0] == pytest.approx(2048 / 108 * tile)


def test_tiles_are_padded():
    # 257 rows need two tiles of 256, and one multiprocessor each; they compute side by side.
    one, two = cycles_of(Gemm(m=256, n=128, k=64)), cycles_of(Gemm(m=257, n=128, k=64))
    assert one.compute[0] == two.compute[0]
    assert two.balanced[0] == 2 * one.balanced[0]


def test_another_tile_one_multiprocessor_too_many_costs_a_wave():
    # 108 tiles in a column fill one wave; one more row needs a second. A sum of 8 is too short to be cut.
    full, more = (cycles_of(Gemm(m=rows, n=128, k=8)).compute[0] for rows in (108 * 256, 108 * 256 + 1))
    assert more == 2 * full


def test_a_power_limit_slows_only_as_many_as_it_must():
    # At 0.75 of the rate, 108 busy multiprocessors slow down by 4/3; 64 draw 64/108 = 0.59 of the power and do not.
    wide, narrow = Gemm(m=108 * 256, n=128, k=8), Gemm(m=64 * 256, n=128, k=8)
    assert cycles_of(wide, sustained=0.75).compute[0] == pytest.approx(cycles_of(wide).compute[0] / 0.75)
    assert cycles_of(narrow, sustained=0.75).compute[0] == cycles_of(narrow).compute[0]
    # 96 draw 0.889 and slow to 0.75/0.889.
    middle = Gemm(m=96 * 256, n=128, k=8)
    assert cycles_of(middle, sustained=0.75).compute[0] == pytest.approx(
        cycles_of(middle).compute[0] * (96 / 108) / 0.75
    )


def test_a_long_sum_is_cut_where_tiles_are_few():
    # One tile would keep one of 108 multiprocessors busy; 16 parts keep 16 busy, and their partial results, 16 · 256 ·
    # 128 fp32 values of two elements each, pass twice.
    gemm = Gemm(m=256, n=128, k=2**20)
    found = cycles_of(gemm, global_rate=1e4)
    assert found.compute[0] == 256 * 128 * 2**20 / 16 / 1024
    assert found.leaving[0] == pytest.approx((2 * 16 * 256 * 128 * 2 + 256 * 128) / 1e4)


def test_every_tile_reads_its_own_operands():
    # 4 × 8 tiles of 256 × 128 with 8 summed elements; a cluster of two shares the longer one of two operands.
    gemm = Gemm(m=1024, n=1024, k=8)
    assert cycles_of(gemm).global_read_elements[0] == 32 * (256 + 128) * 8
    assert cycles_of(gemm, replace(LARGE, cluster=2)).global_read_elements[0] == 32 * (128 + 128) * 8


def test_accumulators_must_fit():
    # Half of 4 × 8192 elements of 2 bytes holds 8192 fp32 values: a tile of 64 × 64, not of 128 × 128.
    gemm = Gemm(m=8192, n=8192, k=8)
    small = cycles_of(gemm, LIBRARY, local=8192)
    assert small.global_read_elements[0] == (8192 / 64) ** 2 * 128 * 8


def test_operands_of_an_epilogue_leave_arrays_waiting():
    gemm = Gemm(m=1024, n=1024, k=512)
    plain, adding = cycles_of(gemm, global_rate=1e3), cycles_of(gemm, global_rate=1e3, epilogue=(2e6, 3e6))
    assert plain.leaving[0] == 1024 * 1024 / 1e3
    assert adding.leaving[0] == 5e6 / 1e3


def test_data_sheet_rates_are_the_default():
    gemm = Gemm(m=777, n=555, k=333)
    work = VectorWork(rows=64, row_length=999, operations_per_element=3, read_bytes=10**6, write_bytes=10**6)
    operators = [operator(Unit.TENSOR, gemm=gemm), operator(Unit.VECTOR, vector=work)]
    plain = Pricer(table(), cluster()).price(operators)
    nominal = Pricer(table(calibration=Calibration()), cluster()).price(operators)
    np.testing.assert_array_equal(plain.all_s, nominal.all_s)
    np.testing.assert_array_equal(plain.one_s, nominal.one_s)


def test_fractions_divide_what_they_are_fractions_of():
    # Bound by HBM: 2 MB at half of 1 TB/s; bound by lanes: 1024 · 1000 operations on 256 lanes at a quarter of 1 GHz.
    moving = VectorWork(rows=1024, row_length=1, operations_per_element=1, read_bytes=10**6, write_bytes=10**6)
    working = VectorWork(rows=1024, row_length=1000, operations_per_element=100, read_bytes=0, write_bytes=0)
    slow = table(calibration=Calibration(hbm_bandwidth=0.5, lane_rate=0.25, launch_s=3e-6))
    prices = Pricer(slow, cluster()).price([operator(Unit.VECTOR, vector=work) for work in (moving, working)])
    assert prices.all_s[0].tolist() == pytest.approx([3e-6 + 4e-6, 3e-6 + 1024 * 1000 * 100 / 256 / 0.25e9])
    # A free division of a product over all units slows by the whole fraction.
    gemm = operator(Unit.TENSOR, gemm=Gemm(m=8192, n=8192, k=8192))
    whole, part = (
        Pricer(table(calibration=Calibration(tensor_rate=rate)), cluster()).parts(gemm, one_unit=False).array_s[0]
        for rate in (1.0, 0.8)
    )
    assert part == pytest.approx(whole / 0.8)


def attention(*, gradients=False, heads=8, rows=1024, keys=1024):
    return FusedAttention(
        batch=heads, rows=rows, keys=keys, met_keys=keys // 2, head_dim=128, value_dim=128, gradients=gradients
    )


SCORES = VectorWork(rows=8 * 1024, row_length=512, operations_per_element=8, read_bytes=10**6, write_bytes=10**6)


def test_attention_has_a_tile_for_as_many_rows_as_have_room():
    # 256 × 128 elements hold 128 rows of 128 + 128: 8 tiles for each of 8 heads; each reads 512 keys and values.
    tiles = attention_tiles(attention(), SCORES, LARGE)
    assert tiles.tiles == 64
    assert tiles.tile_macs * 64 == attention().macs
    assert tiles.read_elements == 64 * (512 + 128) * 256
    assert tiles.sum_bytes == 0


def test_gradients_of_queries_are_added_by_every_tile_of_keys():
    # 8 tiles of 128 keys in each of 8 heads; half of 1024 rows meet each, 128 fp32 elements of each read and written.
    tiles = attention_tiles(attention(gradients=True), SCORES, LARGE)
    assert tiles.tiles == 64
    assert tiles.sum_bytes == 64 * 512 * 128 * 4 * 2


def test_heads_that_share_keys_have_tiles_of_their_own_in_the_backward_pass():
    shared = attention_tiles(attention(gradients=True, heads=2, rows=4 * 1024), SCORES, LARGE)
    own = attention_tiles(attention(gradients=True), SCORES, LARGE)
    assert shared == own


def test_few_heads_leave_multiprocessors_idle():
    def seconds(heads):
        work = replace(SCORES, rows=heads * 1024)
        fused = operator(Unit.FUSED, attention=attention(heads=heads), vector=work)
        machine = table(tensor_count=432, rows=8, cols=4, vector_count=108, lanes=64, blocks=LARGE)
        return Pricer(machine, cluster()).parts(fused, one_unit=False).array_s[0]

    # 8 heads are 64 tiles, 13 are 104 of 108, 14 are 112 and need a second wave.
    assert seconds(8) == seconds(13)
    assert seconds(14) == pytest.approx(2 * seconds(13))


dims = st.integers(1, 3000)
gemms = st.builds(Gemm, batch=st.integers(1, 20), m=dims, n=dims, k=dims)
blocks_of = st.builds(
    Blocks,
    units=st.integers(1, 8),
    tiles=st.lists(st.tuples(*[st.sampled_from([16, 64, 128, 256])] * 2), min_size=1, max_size=4).map(tuple),
    cluster=st.integers(1, 2),
)
sustained_of = st.sampled_from([1.0, 0.75, 0.5])


@given(gemms, blocks_of, sustained_of, st.sampled_from(Pipelining), st.integers(1, 600))
def test_never_faster_than_the_roofline(gemm, blocks, sustained, pipelining, count):
    configs = tensor_configs(**(GPU | {"count": count}), global_rate=1e3)
    found = block_cycles(gemm, configs, blocks, pipelining, element_bytes=2, sustained=sustained)
    peak = count * 8 * 4 * 8
    assert found.balanced[0] * peak >= gemm.macs * (1 - 1e-12)
    assert found.unthrottled[0] >= found.balanced[0] * (1 - 1e-12)
    assert found.compute[0] >= found.unthrottled[0]
    assert found.compute[0] * peak * sustained >= gemm.macs * (1 - 1e-12)
    assert found.global_port[0] * 1e3 >= gemm.batch * gemm.m * gemm.n


@given(
    gemms,
    blocks_of,
    sustained_of,
    st.fixed_dictionaries(
        {
            "count": st.integers(1, 600),
            "rate": st.sampled_from([1.0, 2.0, 8.0]),
            "local": st.integers(64, 10**6),
            "local_rate": st.integers(1, 10**4),
            "global_rate": st.integers(1, 10**5),
        }
    ),
    st.sampled_from(["count", "rate", "local", "local_rate", "global_rate"]),
    st.integers(1, 500),
)
def test_more_of_anything_never_costs_time(gemm, blocks, sustained, machine, resource, more):
    before = cycles_of(gemm, blocks, sustained, **machine)
    after = cycles_of(gemm, blocks, sustained, **(machine | {resource: machine[resource] + more}))
    assert after.total[0] <= before.total[0] * (1 + 1e-12)


@given(gemms, blocks_of, st.tuples(st.sampled_from([16, 64, 128, 256]), st.sampled_from([16, 64, 128, 256])))
def test_another_kernel_never_costs_time(gemm, blocks, tile):
    more = replace(blocks, tiles=(*blocks.tiles, tile))
    if tile[0] * tile[1] >= min(rows * cols for rows, cols in blocks.tiles):  # the smallest goes where none fits
        assert cycles_of(gemm, more).total[0] <= cycles_of(gemm, blocks).total[0] * (1 + 1e-12)


attentions = st.builds(
    FusedAttention,
    batch=st.integers(1, 40),
    rows=dims,
    keys=st.just(3000),
    met_keys=st.integers(1, 3000),
    head_dim=st.integers(8, 256),
    value_dim=st.integers(8, 256),
    gradients=st.booleans(),
)


@st.composite
def fused_attentions(draw):
    found = draw(attentions)
    work = VectorWork(
        rows=found.batch * found.rows,
        row_length=found.met_keys,
        operations_per_element=draw(st.floats(1, 20)),
        read_bytes=draw(st.integers(0, 10**7)),
        write_bytes=draw(st.integers(0, 10**7)),
    )
    return operator(Unit.FUSED, attention=found, vector=work)


calibrations = st.builds(
    Calibration,
    tensor_rate=sustained_of,
    lane_rate=sustained_of,
    global_buffer_bandwidth=sustained_of,
    hbm_bandwidth=sustained_of,
    launch_s=st.sampled_from([0.0, 3e-6]),
)
compute = st.one_of(gemms.map(lambda gemm: operator(Unit.TENSOR, gemm=gemm)), fused_attentions())
machines = st.fixed_dictionaries(
    {
        "clock_hz": st.sampled_from([1e9, 2e9]),
        "tensor_count": st.integers(1, 500),
        "vector_count": st.integers(1, 128),
        "lanes": st.integers(1, 128),
        "global_bytes": st.integers(2**12, 2**28),
        "hbm_bytes_per_s": st.sampled_from([1e11, 4e12]),
        "blocks": blocks_of,
        "calibration": calibrations,
    }
)


@settings(deadline=None)
@given(
    compute,
    machines,
    st.sampled_from(["clock_hz", "tensor_count", "vector_count", "lanes", "global_bytes", "hbm_bytes_per_s"]),
    st.integers(2, 4),
)
def test_more_of_a_resource_never_slows_all_units_down(work, machine, resource, factor):
    machine = {"rows": 8, "cols": 4} | machine
    before, after = (
        Pricer(table(**one), cluster()).price([work]).all_s[0, 0]
        for one in (machine, machine | {resource: machine[resource] * factor})
    )
    assert after <= before * (1 + 1e-12)


@settings(deadline=None)
@given(compute, machines)
def test_attention_and_products_are_never_faster_than_the_rates(work, machine):
    machine = {"rows": 8, "cols": 4} | machine
    found = Pricer(table(**machine), cluster()).price([work])
    peak = machine["tensor_count"] * 8 * 4 * machine["clock_hz"] * machine["calibration"].tensor_rate
    assert found.all_s[0, 0] >= work.macs / peak * (1 - 1e-12)
    assert found.one_s[0, 0] >= work.macs / (8 * 4 * machine["clock_hz"]) * (1 - 1e-12)


@settings(deadline=None)
@given(fused_attentions(), machines)
def test_attention_moves_what_its_price_counts(work, machine):
    machine = {"rows": 8, "cols": 4, "global_bytes_per_s": 1e12} | machine
    pricer = Pricer(table(**machine), cluster())
    done, parts = pricer.activity(work), pricer.parts(work, one_unit=False)
    rate = 1e12 * machine["calibration"].global_buffer_bandwidth
    assert done.global_bytes[0] == pytest.approx(parts.global_port_s[0] * rate + work.vector.write_bytes)
    assert done.hbm_bytes[0] == pytest.approx(
        parts.hbm_s[0] * machine["hbm_bytes_per_s"] * machine["calibration"].hbm_bandwidth, abs=1e-6
    )


def test_a_multiprocessor_as_one_unit_is_priced_as_its_four_tensor_cores():
    gpus, chip = load_space("gpu").enumerate(), Architectures.of(load_accelerator("h100-sxm"))
    same = (gpus.tensor_count == 132) & (gpus.tensor_cols == 8) & (gpus.clock_hz == chip.clock_hz[0])
    same &= (gpus.global_buffer_bytes == chip.global_buffer_bytes[0]) & (gpus.hbm_stacks == 5)
    (layer, _) = load_workload("llama2-7b").step(LayerSharding(tensor=2, microbatch=1)).layers[1]
    network, operators = load_cluster("h100-superpod"), [*layer.forward, *layer.backward]
    ours, theirs = (Pricer(archs, network).price(operators).all_s.sum() for archs in (gpus.take(same), chip))
    assert ours == pytest.approx(theirs, rel=1e-4)
