"""Prices of operators on machines: hand calculations, modes, and laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import cluster, table

from archplace.arch_configs.errors import ConfigError
from archplace.costmodel import Pipelining, Pricer
from archplace.workloads.operators import Collective, CollectiveKind, Gemm, Operator, Phase, Unit, VectorWork


def tensor(gemm, name="product", **more):
    return Operator(name=name, unit=Unit.TENSOR, phase=Phase.FORWARD, gemm=gemm, **more)


def vector(work, name="vector"):
    return Operator(name=name, unit=Unit.VECTOR, phase=Phase.FORWARD, vector=work)


def fused(gemm, work):
    return Operator(name="fused", unit=Unit.FUSED, phase=Phase.FORWARD, gemm=gemm, vector=work)


def price(operator, **machine):
    prices = Pricer(table(**machine), cluster()).price([operator])
    return float(prices.one_s[0, 0]), float(prices.all_s[0, 0])


def elementwise(rows=1024, row_length=1024, operations=1.0, **more):
    size = rows * row_length * 2
    return VectorWork(
        rows=rows, row_length=row_length, operations_per_element=operations, read_bytes=size, write_bytes=size, **more
    )


def test_large_product_is_bound_by_the_arrays():
    # 8192³ on 4 units of 128 × 128 at 1 GHz: 8192³ / 65536 = 8,388,608 cycles of streaming; the array fills in 254 and
    # the first tile of 128 × 128 × 2 bytes takes 32.768 ns at 1 TB/s.
    _, all_s = price(tensor(Gemm(m=8192, n=8192, k=8192)), local_bytes_per_s=1e15, global_bytes_per_s=1e15)
    assert all_s == pytest.approx((8_388_608 + 254) * 1e-9 + 32.768e-9, rel=1e-12)


def test_thin_product_is_bound_by_hbm():
    # One row against a 4096 × 4096 matrix: (4096² + 2·4096) elements of 2 bytes at 1 TB/s, far longer than its compute.
    _, all_s = price(tensor(Gemm(m=1, n=4096, k=4096)), local_bytes_per_s=1e15, global_bytes_per_s=1e15)
    traffic_s = (4096**2 + 2 * 4096) * 2 / 1e12
    # The array fills and drains behind the traffic; the first tile comes on top.
    assert all_s == pytest.approx(traffic_s + 32.768e-9, rel=1e-9)


def test_separate_ports_let_reads_and_writes_overlap():
    work = elementwise()
    _, shared = price(vector(work))
    _, separate = price(vector(work), separate_ports=True)
    # 2 MiB read and 2 MiB written at 1 TB/s.
    assert shared == pytest.approx(2 * 2**21 / 1e12)
    assert separate == pytest.approx(max(2**21 / 1e12, 2**20 / 256 * 1e-9))


def test_one_unit_has_an_even_share_of_the_ports():
    # 4 tensor and 2 vector units: a sixth of the bandwidth each; the vector unit's own lanes do 1/2 of the work rate.
    one_s, all_s = price(vector(elementwise()))
    assert all_s == pytest.approx(2 * 2**21 / 1e12)
    assert one_s == pytest.approx(6 * all_s)


def test_lane_bound_work_scales_with_lanes():
    work = elementwise(operations=100.0)
    _, two = price(vector(work))
    _, four = price(vector(work), vector_count=4)
    assert two == pytest.approx(100 * 2**20 / 256 * 1e-9)
    assert four == pytest.approx(two / 2)


def test_reductions_cost_a_trip_through_the_tree():
    # 1024 rows of 1024 on 2 units of 128 lanes, 5 operations per element: 4096 · 5 cycles; each of two reductions adds
    # a cycle for each of the 512 rows of a unit and ⌈log2 1024⌉ = 10 for the last.
    work = elementwise(operations=5.0, reductions=2)
    assert price(vector(work), hbm_bytes_per_s=1e15)[1] == pytest.approx((4096 * 5 + 2 * (512 + 10)) * 1e-9)


def test_passes_over_rows_that_stay_on_chip_cost_no_hbm():
    once, thrice = elementwise(), elementwise(passes=3)
    assert price(vector(once))[1] == pytest.approx(price(vector(thrice))[1])
    # Half of 4 KiB does not hold a row's 2 KiB of operands and 2 KiB of results: 3 reads and 1 write.
    tiny = price(vector(thrice), global_bytes=4096)[1]
    assert tiny == pytest.approx(4 * 2**21 / 1e12)


def test_fused_epilogue_saves_the_intermediate():
    gemm = Gemm(m=4096, n=4096, k=256)
    size = 4096 * 4096 * 2
    epilogue = VectorWork(rows=4096, row_length=4096, operations_per_element=1, read_bytes=0, write_bytes=size)
    alone = VectorWork(rows=4096, row_length=4096, operations_per_element=1, read_bytes=size, write_bytes=size)
    together = price(fused(gemm, epilogue))[1]
    apart = price(tensor(gemm))[1] + price(vector(alone))[1]
    assert together < apart
    assert together >= price(tensor(gemm))[1] * (1 - 1e-12)


def test_reducing_epilogue_needs_its_row_on_chip():
    gemm = Gemm(m=64, n=2**20, k=64)
    work = VectorWork(
        rows=64, row_length=2**20, operations_per_element=1, passes=2, reductions=1, read_bytes=0, write_bytes=2**27
    )
    fits = Pricer(table(global_bytes=2**30), cluster()).parts(fused(gemm, work), one_unit=False).hbm_s[0]
    spills = Pricer(table(global_bytes=2**20), cluster()).parts(fused(gemm, work), one_unit=False).hbm_s[0]
    assert spills - fits >= 2 * 2**27 / 1e12 * (1 - 1e-9)


def test_epilogue_s_writes_pass_the_global_port():
    # Three times the result is written: 3 · 8 MiB at 1 TB/s, HBM and lanes being faster.
    gemm = Gemm(m=2048, n=2048, k=64)
    work = VectorWork(rows=2048, row_length=2048, operations_per_element=1, read_bytes=0, write_bytes=3 * 2**23)
    machine = {"hbm_bytes_per_s": 1e15, "global_bytes_per_s": 1e12, "lanes": 2**20}
    parts = Pricer(table(**machine), cluster()).parts(fused(gemm, work), one_unit=False)
    assert parts.global_port_s[0] == pytest.approx(3 * 2**23 / 1e12)


def test_one_unit_reuses_only_its_share_of_the_buffer():
    # Half of 32 MiB holds this product's operands and result; half of a sixth of it, one unit's share, does not.
    gemm = Gemm(m=1536, n=1536, k=1536)
    pricer = Pricer(table(), cluster())
    one, whole = (pricer.parts(tensor(gemm), one_unit=mode).hbm_s[0] for mode in (True, False))
    compulsory = 3 * 1536**2 * 2 / 1e12
    assert whole == pytest.approx(compulsory)
    assert one > 6 * compulsory * 1.1


def test_unknown_precision_is_a_clear_error():
    with pytest.raises(ConfigError, match=r"fp8.*they have bf16"):
        price(tensor(Gemm(m=8, n=8, k=8), precision="fp8"))


def test_collective_has_one_price():
    collective = Collective(kind=CollectiveKind.ALL_REDUCE, payload_bytes=8 * 10**6, group_size=8)
    operator = Operator(name="reduce", unit=Unit.NETWORK, phase=Phase.FORWARD, collective=collective)
    # Ring of 8 at 400 GB/s and 1 µs: 2·7·(1 MB / 400 GB/s + 1 µs).
    assert price(operator) == pytest.approx((14 * (2.5e-6 + 1e-6),) * 2)


def test_subset_prices_as_alone():
    machine = table()
    many = machine.take(np.array([0, 0, 0]))
    operators = [tensor(Gemm(m=100, n=200, k=300)), vector(elementwise())]
    whole = Pricer(many, cluster())
    part = whole.subset(np.array([2]))
    alone = Pricer(machine, cluster()).price(operators)
    np.testing.assert_array_equal(part.price(operators).one_s, alone.one_s)
    np.testing.assert_array_equal(whole.price(operators).all_s[1], alone.all_s[0])


dims = st.integers(1, 3000)
works = st.builds(
    VectorWork,
    rows=dims,
    row_length=dims,
    operations_per_element=st.floats(0, 30),
    passes=st.integers(1, 3),
    reductions=st.integers(0, 2),
    read_bytes=st.integers(0, 10**7),
    write_bytes=st.integers(0, 10**7),
).filter(lambda work: work.operations_per_element >= work.reductions)  # a reduction takes an operation per element
gemms = st.builds(Gemm, batch=st.integers(1, 20), m=dims, n=dims, k=dims)
operators = st.one_of(gemms.map(tensor), works.map(vector), st.builds(fused, gemms, works))
machines = st.fixed_dictionaries(
    {
        "clock_hz": st.sampled_from([5e8, 1e9, 2e9]),
        "tensor_count": st.integers(1, 64),
        "rows": st.sampled_from([4, 32, 128]),
        "cols": st.sampled_from([4, 32, 128]),
        "vector_count": st.integers(1, 64),
        "lanes": st.integers(1, 256),
        "global_bytes": st.integers(2**12, 2**28),
        "hbm_bytes_per_s": st.sampled_from([1e11, 1e12, 4e12]),
        "separate_ports": st.booleans(),
    }
)
RESOURCES = ("clock_hz", "tensor_count", "vector_count", "lanes", "global_bytes", "hbm_bytes_per_s")


@settings(deadline=None)
@given(operators, machines, st.sampled_from(RESOURCES), st.integers(2, 4))
def test_more_of_a_resource_never_slows_all_units_down(operator, machine, resource, factor):
    # The ports are given per cycle in the model: a faster clock comes with the same bytes per second here.
    before = price(operator, **machine)[1]
    after = price(operator, **(machine | {resource: machine[resource] * factor}))[1]
    assert after <= before * (1 + 1e-12)


@settings(deadline=None)
@given(operators, machines)
def test_side_by_side_never_beats_the_whole_machine(operator, machine):
    """As many copies as there are units, each on its share, move no more bytes than HBM can."""
    pricer = Pricer(table(**machine), cluster())
    one, whole = pricer.parts(operator, one_unit=True), pricer.parts(operator, one_unit=False)
    units = machine["tensor_count"] + machine["vector_count"]
    holds = 2 if operator.unit is Unit.FUSED else 1
    bandwidth = machine["hbm_bytes_per_s"]
    moved = whole.hbm_s[0] * bandwidth
    assert one.hbm_s[0] * (bandwidth * holds / units) >= moved * (1 - 1e-9)


@settings(deadline=None)
@given(operators, machines, st.sampled_from(Pipelining))
def test_never_faster_than_the_roofline(operator, machine, pipelining):
    prices = Pricer(table(**machine), cluster(), pipelining=pipelining).price([operator])
    lanes = machine["vector_count"] * machine["lanes"] * machine["clock_hz"]
    macs = machine["tensor_count"] * machine["rows"] * machine["cols"] * machine["clock_hz"]
    floor = 0.0
    if operator.gemm is not None:
        floor = max(floor, operator.gemm.macs / macs)
    if operator.vector is not None:
        floor = max(floor, operator.vector.elements * operator.vector.operations_per_element / lanes)
    assert prices.all_s[0, 0] >= floor * (1 - 1e-12)
