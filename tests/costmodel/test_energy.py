"""Joules of operators and watts of accelerators: hand calculations, laws, and published powers."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import cluster, table

from archplace.arch_configs import Architectures, ConfigError, area_mm2, load_accelerator, load_cluster, load_technology
from archplace.arch_configs.technology import EnergyTable, technology_names
from archplace.costmodel import (
    Pipelining,
    Pricer,
    energy_parts,
    operator_energy_j,
    peak_power_w,
    sent_bytes,
    static_power_w,
)
from archplace.workloads.operators import Collective, CollectiveKind, Gemm, Operator, Phase, Unit, VectorWork

ROUND = dataclasses.replace(
    load_technology("7nm"),
    energy=EnergyTable(
        mac_j={"bf16": 3.0, "fp8": 1.0},
        lane_operation_j=5.0,
        sram_j_per_byte=2.0,
        sram_j_per_byte_per_sqrt_byte=0.5,
        hbm_j_per_byte=7.0,
        network_j_per_byte=11.0,
    ),
)
"""Whole joules. A byte of a local buffer of 2^18 bytes takes 2 + 0.5·512 = 258, of a global one of 2^24 bytes 2050."""
ONE_UNIT = {"tensor_count": 1, "global_bytes": 2**24}


def tensor(gemm, **more):
    return Operator(name="product", unit=Unit.TENSOR, phase=Phase.FORWARD, gemm=gemm, **more)


def vector(work):
    return Operator(name="vector", unit=Unit.VECTOR, phase=Phase.FORWARD, vector=work)


def fused(gemm, work):
    return Operator(name="fused", unit=Unit.FUSED, phase=Phase.FORWARD, gemm=gemm, vector=work)


def collective(kind, payload_bytes, group_size):
    exchange = Collective(kind=kind, payload_bytes=payload_bytes, group_size=group_size)
    return Operator(name="exchange", unit=Unit.NETWORK, phase=Phase.FORWARD, collective=exchange)


def parts(operator, technology=ROUND, **machine):
    return {
        name: float(joules[0])
        for name, joules in energy_parts(Pricer(table(**machine), cluster()), operator, technology)._asdict().items()
    }


def total(operator, technology=ROUND, **machine):
    return float(operator_energy_j(Pricer(table(**machine), cluster()), [operator], technology)[0, 0])


def test_a_product_of_one_tile_by_hand():
    # 128³ on one array of 128 × 128: three matrices of 2^14 elements of 2 bytes, each once through every buffer.
    done = parts(tensor(Gemm(m=128, n=128, k=128)), **ONE_UNIT)
    once = 3 * 2**14 * 2
    assert done == {
        "arrays_j": 128**3 * 3.0,
        "lanes_j": 0.0,
        "local_buffers_j": once * 258.0,
        "global_buffer_j": once * 2050.0,
        "hbm_j": once * 7.0,
        "network_j": 0.0,
    }
    assert total(tensor(Gemm(m=128, n=128, k=128)), **ONE_UNIT) == sum(done.values())


def test_units_that_share_an_operand_read_it_from_the_global_buffer_once():
    # Four arrays, one 128 × 128 × 128 product each, all with the same B (as one product of 512 rows): the global buffer
    # is read four times A and once B, while every array takes both through its own local buffer.
    machine = ONE_UNIT | {"tensor_count": 4}
    done = parts(tensor(Gemm(batch=4, m=128, n=128, k=128, b_shared=True)), **machine)
    assert done["global_buffer_j"] == (4 + 1 + 4) * 2**15 * 2050.0
    assert done["local_buffers_j"] == 4 * 3 * 2**15 * 258.0


def test_vector_work_by_hand():
    # Two passes over rows that stay on chip: read twice from the global buffer, once from HBM; written once.
    work = VectorWork(
        rows=100, row_length=64, operations_per_element=4, passes=2, read_bytes=12800, write_bytes=6400
    )  # fmt: skip
    assert parts(vector(work), **ONE_UNIT) == {
        "arrays_j": 0.0,
        "lanes_j": 6400 * 4 * 5.0,
        "local_buffers_j": 0.0,
        "global_buffer_j": (2 * 12800 + 6400) * 2050.0,
        "hbm_j": (12800 + 6400) * 7.0,
        "network_j": 0.0,
    }


def test_an_epilogue_adds_its_work_and_its_operands_and_replaces_the_result():
    gemm = Gemm(m=128, n=128, k=128)
    work = VectorWork(rows=128, row_length=128, operations_per_element=3, read_bytes=500, write_bytes=3 * 2**15)
    alone, together = parts(tensor(gemm), **ONE_UNIT), parts(fused(gemm, work), **ONE_UNIT)
    assert together["lanes_j"] == 2**14 * 3 * 5.0
    assert together["hbm_j"] - alone["hbm_j"] == (500 + 2 * 2**15) * 7.0
    assert together["global_buffer_j"] - alone["global_buffer_j"] == (500 + 2 * 2**15) * 2050.0
    assert (together["arrays_j"], together["local_buffers_j"]) == (alone["arrays_j"], alone["local_buffers_j"])


def test_a_row_that_does_not_stay_on_chip_goes_to_hbm_and_back():
    gemm = Gemm(m=4, n=2**20, k=4)
    work = VectorWork(rows=4, row_length=2**20, operations_per_element=2, reductions=1, read_bytes=0, write_bytes=2**23)
    free = dataclasses.replace(work, reductions=0)
    small = ONE_UNIT | {"global_bytes": 2**20}
    for name, joules_per_byte in (("hbm_j", 7.0), ("global_buffer_j", 2.0 + 0.5 * 2**10)):
        extra = parts(fused(gemm, work), **small)[name] - parts(fused(gemm, free), **small)[name]
        assert extra == pytest.approx(2 * 4 * 2**20 * 2 * joules_per_byte)


def test_rings_send_what_patarasuk_and_yuan_count():
    # 2·(n−1)/n of the payload for an all-reduce, half of that for the others.
    assert total(collective(CollectiveKind.ALL_REDUCE, 8_000_000, 8)) == 14e6 * 11.0
    assert total(collective(CollectiveKind.ALL_GATHER, 8_000_000, 8)) == 7e6 * 11.0
    # 16 devices are two nodes of 8: the ring between the nodes carries an eighth of the payload.
    assert total(collective(CollectiveKind.REDUCE_SCATTER, 8_000_000, 16)) == (7e6 + 0.5e6) * 11.0
    assert total(collective(CollectiveKind.ALL_REDUCE, 8_000_000, 1)) == 0.0


@pytest.mark.parametrize("size", [2, 3, 8, 12, 16, 128])
def test_sent_bytes_are_the_seconds_of_a_network_of_one_byte_per_second(size):
    slow = dataclasses.replace(
        cluster(),
        dimensions=tuple(
            dataclasses.replace(dimension, bandwidth_bytes_per_s=1.0, latency_s=0.0)
            for dimension in cluster().dimensions
        ),
    )
    operator = collective(CollectiveKind.ALL_REDUCE, 10**6, size)
    seconds = Pricer(table(), slow).price([operator]).all_s[0, 0]
    assert sent_bytes(operator.collective, cluster()) == pytest.approx(seconds)


def test_a_precision_without_energy_is_named():
    machine = dataclasses.replace(table(), tensor_macs_per_element={"fp32": np.array([0.5])})
    operator = tensor(Gemm(m=8, n=8, k=8), precision="fp32")
    with pytest.raises(ConfigError, match=r"precision fp32: .* it has bf16, fp8; add 'energy\.multiply_accumulate\."):
        operator_energy_j(Pricer(machine, cluster()), [operator], ROUND)
    with pytest.raises(ConfigError, match=r"precision fp32: .* it has bf16, fp8"):
        peak_power_w(machine, ROUND, "fp32")


def test_peak_power_of_a_precision_that_the_arrays_lack():
    with pytest.raises(ConfigError, match="precision fp8: the tensor units have no rate for it; they have bf16"):
        peak_power_w(table(), ROUND, "fp8")


def test_missing_sections_are_named():
    bare = dataclasses.replace(ROUND, energy=None, power=None)
    with pytest.raises(ConfigError, match="technology 7nm: the section 'energy' is missing"):
        total(tensor(Gemm(m=8, n=8, k=8)), bare)
    with pytest.raises(ConfigError, match="technology 7nm: the section 'power' is missing"):
        static_power_w(table(), bare)
    with pytest.raises(ConfigError, match="the section 'energy' is missing"):
        peak_power_w(table(), bare)


def test_static_power_by_hand():
    # 7 nm: 0.12 W/mm², 4 W for each of the 2 stacks of this machine, 1 nJ for each cycle of its 2 vector units at 1
    # GHz, 208 W of host.
    table_7nm = load_technology("7nm")
    own = 0.12 * area_mm2(table(), table_7nm)[0] + 2 * 4 + 2
    assert static_power_w(table(), table_7nm)[0] == pytest.approx(own)
    assert static_power_w(table(), table_7nm, host=True)[0] == pytest.approx(own + 208)


def test_the_area_that_a_chip_is_known_to_have_leaks():
    table_7nm = load_technology("7nm")
    known = dataclasses.replace(table(), area_mm2=np.array([500.0]))
    more = 0.12 * (500 - area_mm2(table(), table_7nm)[0])
    assert static_power_w(known, table_7nm)[0] == pytest.approx(static_power_w(table(), table_7nm)[0] + more)


def test_peak_power_by_hand():
    # 4 × 128 × 128 MACs and 2 × 128 lanes at 1 GHz; local buffers of 2^18 bytes, whose half holds a block of 256 × 256
    # elements of 2 bytes; 2^24 bytes of global buffer at 4 TB/s; HBM at 1 TB/s.
    macs_per_s = 4 * 2**14 * 1e9
    reused = min(4e12, 2 * 2 * macs_per_s / 256)
    arrays = macs_per_s * 3 + 4 * 1e12 * 258 + reused * 2050
    both = 256e9 * 5 + 1e12 * (7 + 2050)
    machine = table(global_bytes=2**24)
    by_hand = static_power_w(machine, ROUND)[0] + both + max(arrays, 4e12 * 2050)
    assert peak_power_w(machine, ROUND)[0] == pytest.approx(by_hand)
    assert peak_power_w(machine, ROUND, network_bytes_per_s=1e9)[0] == pytest.approx(by_hand + 11e9)


dims = st.integers(1, 3000)
works = st.builds(
    VectorWork,
    rows=dims,
    row_length=dims,
    operations_per_element=st.floats(2, 30),
    passes=st.integers(1, 3),
    reductions=st.integers(0, 2),
    read_bytes=st.integers(0, 10**7),
    write_bytes=st.integers(0, 10**7),
)
gemms = st.builds(Gemm, batch=st.integers(1, 20), m=dims, n=dims, k=dims, b_shared=st.booleans())
compute = st.one_of(gemms.map(tensor), works.map(vector), st.builds(fused, gemms, works))
exchanges = st.builds(collective, st.sampled_from(CollectiveKind), st.integers(0, 10**9), st.integers(1, 128))
machines = st.fixed_dictionaries(
    {
        "clock_hz": st.sampled_from([5e8, 1e9, 2e9]),
        "tensor_count": st.integers(1, 64),
        "rows": st.sampled_from([1, 4, 32, 128]),
        "cols": st.sampled_from([1, 4, 32, 128]),
        "local_bytes": st.integers(64, 2**21),
        "local_bytes_per_s": st.sampled_from([1e11, 1e12, 1e13]),
        "vector_count": st.integers(1, 64),
        "lanes": st.integers(1, 256),
        "global_bytes": st.integers(2**12, 2**28),
        "global_bytes_per_s": st.sampled_from([1e11, 4e12, 1e14]),
        "hbm_bytes_per_s": st.sampled_from([1e11, 1e12, 1e14]),
        "separate_ports": st.booleans(),
    }
)
tables = st.sampled_from([ROUND, *(load_technology(name) for name in technology_names())])


@given(st.one_of(compute, exchanges), machines, tables, st.sampled_from(Pipelining))
def test_no_operator_draws_more_than_the_peak(operator, machine, technology, pipelining):
    pricer = Pricer(table(**machine), cluster(), pipelining=pipelining)
    seconds = pricer.price([operator]).all_s[0, 0]
    fastest = cluster().dimensions[0].bandwidth_bytes_per_s
    limit = peak_power_w(table(**machine), technology, network_bytes_per_s=fastest)[0]
    dynamic_j = operator_energy_j(pricer, [operator], technology)[0, 0]
    assert dynamic_j <= (limit - static_power_w(table(**machine), technology)[0]) * seconds * (1 + 1e-9)


@given(compute, st.sampled_from(["a100-80gb", "h100-sxm", "b200-sxm", "tpu-v4", "mi300x", "trainium2"]))
def test_no_operator_draws_more_than_the_peak_of_a_known_chip(operator, name):
    chip = Architectures.of(load_accelerator(name))
    technology = load_technology("5nm")
    pricer = Pricer(chip, cluster())
    seconds = pricer.price([operator]).all_s[0, 0]
    dynamic_w = peak_power_w(chip, technology)[0] - static_power_w(chip, technology)[0]
    assert operator_energy_j(pricer, [operator], technology)[0, 0] <= dynamic_w * seconds * (1 + 1e-9)


@given(compute, machines)
def test_traffic_is_that_of_the_seconds(operator, machine):
    """Bytes through HBM and local ports are those that the prices divide by bandwidths."""
    pricer = Pricer(table(**machine), cluster())
    done, timed = pricer.activity(operator), pricer.parts(operator, one_unit=False)
    if not machine["separate_ports"]:
        assert done.hbm_bytes[0] == pytest.approx(timed.hbm_s[0] * machine["hbm_bytes_per_s"])
    # The unit with the most to do sets the time of the local ports; one unit alone does everything.
    longest = timed.local_port_s[0] * machine["local_bytes_per_s"]
    assert done.local_bytes[0] <= machine["tensor_count"] * longest * (1 + 1e-9)
    if machine["tensor_count"] == 1:
        assert done.local_bytes[0] == pytest.approx(longest)


@given(compute, machines)
def test_traffic_on_one_unit_is_that_of_its_seconds(operator, machine):
    """Bytes through HBM and the local port are those that the prices of one unit divide by its shares."""
    pricer = Pricer(table(**machine), cluster())
    done, timed = pricer.activity(operator, one_unit=True), pricer.parts(operator, one_unit=True)
    units = machine["tensor_count"] + machine["vector_count"]
    share = (2 if operator.unit is Unit.FUSED else 1) / units
    if not machine["separate_ports"]:
        assert done.hbm_bytes[0] == pytest.approx(timed.hbm_s[0] * machine["hbm_bytes_per_s"] * share)
    assert done.local_bytes[0] == pytest.approx(timed.local_port_s[0] * machine["local_bytes_per_s"])


@given(compute, machines)
def test_a_share_of_the_buffer_never_saves_hbm(operator, machine):
    pricer = Pricer(table(**machine), cluster())
    alone, shared = (pricer.activity(operator, one_unit=one_unit) for one_unit in (False, True))
    assert shared.hbm_bytes[0] >= alone.hbm_bytes[0] * (1 - 1e-12)
    assert (shared.macs, shared.lane_operations) == (alone.macs, alone.lane_operations)


def test_side_by_side_on_a_small_buffer_costs_several_times_the_traffic():
    # 2048³ in a buffer of 2 MiB: half of it holds a block of 724² results, so that the operands pass 3 times. The share
    # of one of 66 units is 31,775 bytes: a block of 89², 24 times.
    machine = {"tensor_count": 64, "vector_count": 2, "global_bytes": 2**21}
    pricer = Pricer(table(**machine), cluster())
    operator = tensor(Gemm(m=2048, n=2048, k=2048))
    operand = 2048 * 2048 * 2
    assert pricer.activity(operator).hbm_bytes[0] == (2 * 3 + 1) * operand
    assert pricer.activity(operator, one_unit=True).hbm_bytes[0] == (2 * 24 + 1) * operand
    one = energy_parts(pricer, operator, ROUND, one_unit=True).hbm_j[0]
    assert one == (2 * 24 + 1) * operand * 7.0
    total_j = operator_energy_j(pricer, [operator], ROUND, one_unit=True)[0, 0]
    assert total_j == energy_parts(pricer, operator, ROUND, one_unit=True).total_j[0]


@given(compute, machines, tables)
def test_never_below_arithmetic_and_compulsory_traffic(operator, machine, technology):
    energy = technology.need_energy()
    floor = 0.0
    if operator.gemm is not None:
        gemm = operator.gemm
        floor += gemm.macs * energy.mac_j["bf16"]
        operands = gemm.batch * gemm.m * gemm.k + (1 if gemm.b_shared else gemm.batch) * gemm.k * gemm.n
        floor += operands * 2 * energy.hbm_j_per_byte
    if operator.vector is not None:
        floor += operator.vector.elements * operator.vector.operations_per_element * energy.lane_operation_j
        floor += (operator.vector.read_bytes + operator.vector.write_bytes) * energy.hbm_j_per_byte
    assert total(operator, technology, **machine) >= floor * (1 - 1e-12)


@given(compute, machines, st.sampled_from([0.5, 2.0, 4.0]))
def test_the_clock_costs_no_energy(operator, machine, factor):
    # The ports of a chip give so many bytes per cycle; powers of two keep the mapping's ties exact.
    per_cycle = ("clock_hz", "local_bytes_per_s", "global_bytes_per_s")
    faster = machine | {name: machine[name] * factor for name in per_cycle}
    assert parts(operator, **faster) == parts(operator, **machine)


@given(gemms, machines, st.sampled_from(["batch", "m", "n", "k"]), st.integers(1, 3000))
def test_a_larger_product_never_takes_less_arithmetic_or_hbm(gemm, machine, extent, more):
    larger = dataclasses.replace(gemm, **{extent: getattr(gemm, extent) + more})
    before, after = parts(tensor(gemm), **machine), parts(tensor(larger), **machine)
    assert after["arrays_j"] > before["arrays_j"]
    assert after["hbm_j"] >= before["hbm_j"] * (1 - 1e-12)


@given(works, machines, st.sampled_from(["rows", "operations_per_element", "read_bytes", "write_bytes"]))
def test_more_vector_work_never_takes_less(work, machine, field):
    # The bytes are those of all rows: more rows bring theirs.
    grown = {field: getattr(work, field) * 2}
    if field == "rows":
        grown |= {"read_bytes": work.read_bytes * 2, "write_bytes": work.write_bytes * 2}
    assert total(vector(dataclasses.replace(work, **grown)), **machine) >= total(vector(work), **machine)


@given(st.lists(st.one_of(compute, exchanges), min_size=1, max_size=4), st.lists(machines, min_size=1, max_size=4))
def test_arrays_are_the_machines_one_by_one(operators, several):
    tables_of_one = [table(**machine) for machine in several]
    columns = {
        field.name: np.concatenate([getattr(one, field.name) for one in tables_of_one])
        for field in dataclasses.fields(Architectures)
        if field.name not in ("tensor_macs_per_element", "blocks", "calibration", "throttled")
    }
    rates = {"bf16": np.concatenate([one.tensor_macs_per_element["bf16"] for one in tables_of_one])}
    many = Architectures(**columns, tensor_macs_per_element=rates)
    technology = load_technology("5nm")
    joules = operator_energy_j(Pricer(many, cluster()), operators, technology)
    assert joules.shape == (len(several), len(operators))
    for row, (one, machine) in enumerate(zip(tables_of_one, several, strict=True)):
        alone = [total(operator, technology, **machine) for operator in operators]
        np.testing.assert_allclose(joules[row], alone, rtol=1e-12)
        assert peak_power_w(many, technology)[row] == pytest.approx(peak_power_w(one, technology)[0], rel=1e-12)


def test_pricing_before_or_after_and_a_subset_change_nothing():
    operators = [tensor(Gemm(m=100, n=200, k=300)), collective(CollectiveKind.ALL_REDUCE, 10**6, 8)]
    fresh, priced = Pricer(table(), cluster()), Pricer(table(), cluster())
    priced.price(operators)
    part = Pricer(table().take(np.array([0, 0])), cluster()).subset(np.array([1]))
    expected = operator_energy_j(fresh, operators, ROUND)
    np.testing.assert_array_equal(operator_energy_j(priced, operators, ROUND), expected)
    np.testing.assert_array_equal(operator_energy_j(part, operators, ROUND), expected)


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        # Limits by the data sheets: A100 SXM 400 W, H100 SXM 700 W. The chips keep them by lowering their clock, so
        # that all units at the full clock would draw more. TPU v4 has none in public; its largest measured draw of
        # 192 W (Google Cloud documentation) is no design limit, so that the bound lies above.
        ("a100-80gb", (400, 400 * 2)),
        ("h100-sxm", (700, 700 * 2)),
        ("tpu-v4", (192, 192 * 1.5)),
    ],
)
def test_peak_power_against_published_limits(name, watts):
    accelerator = load_accelerator(name)
    peak = peak_power_w(Architectures.of(accelerator), load_technology(accelerator.technology))[0]
    assert watts[0] <= peak <= watts[1]


def test_large_products_on_tpu_v4_draw_what_it_was_measured_to():
    # Google Cloud documentation of TPU v4: 90 W at least, 170 W in the mean, 192 W at most.
    chip, technology = Architectures.of(load_accelerator("tpu-v4")), load_technology("7nm")
    pricer, operator = Pricer(chip, load_cluster("tpu-v4-pod")), tensor(Gemm(m=8192, n=8192, k=8192))
    dynamic_w = operator_energy_j(pricer, [operator], technology)[0, 0] / pricer.price([operator]).all_s[0, 0]
    assert 136 < dynamic_w + static_power_w(chip, technology)[0] < 192
