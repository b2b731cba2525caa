"""The matrix-product model against other mappers, against closed forms, and against physics."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import tensor_configs

from archplace.costmodel._gemm import Dataflow, Pipelining, array_cycles, canonical, traffic
from archplace.workloads.operators import Gemm

DATA = Path(__file__).parent / "data"

# Machines of the comparison: tensor units, rows, cols, global buffer. All have 1 KiB per cycle and unit at the local
# buffer of 16·rows·cols bytes, 4 KiB per cycle at the global buffer, 128 words per cycle each way at the DRAM.
MACHINES = {
    "A_1x128x128_28MB": (1, 128, 128, 28 * 2**20),
    "B_4x64x64_32MB": (4, 64, 64, 32 * 2**20),
    "C_8x128x128_128MB": (8, 128, 128, 128 * 2**20),
}
DRAM_ELEMENTS_PER_CYCLE = 128


def rows_of(name):
    with (DATA / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def cycles_on(config, gemm, pipelining):
    count, rows, cols, buffer_bytes = MACHINES[config]
    machine = tensor_configs(
        count=count, rows=rows, cols=cols, local=16 * rows * cols / 2, local_rate=512, global_rate=2048
    )
    gemm = canonical(gemm)
    cycles = array_cycles(gemm, machine, pipelining)
    m, n, k = (np.array(float(x)) for x in (gemm.m, gemm.n, gemm.k))
    moved = traffic(m, n, k, np.array(buffer_bytes / 2))
    dram = gemm.batch * np.maximum(moved.a + moved.b, moved.c) / DRAM_ELEMENTS_PER_CYCLE
    total = np.maximum(cycles.total, dram)
    if pipelining is Pipelining.OVERLAPPED:
        total += rows * cols / DRAM_ELEMENTS_PER_CYCLE
    return float(total[0])


@pytest.mark.parametrize(
    ("mapper", "pipelining"),
    [
        # Sunstone and AccelForge assume perfect pipelining; ZigZag prices loading and draining.
        ("sunstone", Pipelining.IDEAL),
        ("accelforge", Pipelining.IDEAL),
        ("zigzag", Pipelining.OVERLAPPED),
    ],
)
def test_agrees_with_mappers_within_15_percent(mapper, pipelining):
    rows = rows_of("mappers.csv")
    assert len(rows) == 42
    for row in rows:
        gemm = Gemm(batch=int(row["batch"]), m=int(row["m"]), n=int(row["n"]), k=int(row["k"]))
        ratio = cycles_on(row["config"], gemm, pipelining) / float(row[mapper])
        assert 1 / 1.15 <= ratio <= 1.15, (row, ratio)


def test_serial_mode_is_scale_sim_exactly():
    # SCALE-Sim counts cycles from 0, so that its total is the closed form minus one.
    dataflows = {"ws": Dataflow.WEIGHT_STATIONARY, "os": Dataflow.OUTPUT_STATIONARY}
    rows = rows_of("scalesim.csv")
    assert len(rows) == 27
    for row in rows:
        machine = tensor_configs(rows=int(row["rows"]), cols=int(row["cols"]))
        gemm = Gemm(m=int(row["m"]), n=int(row["n"]), k=int(row["k"]))
        cycles = array_cycles(gemm, machine, Pipelining.SERIAL, (dataflows[row["dataflow"]],))
        assert cycles.total[0] == float(row["cycles"]) + 1


def test_one_weight_tile_by_hand():
    # A 128 × 128 weight tile, 512 rows streamed: 512 cycles, and 128 + 128 − 2 to fill and drain. The stream is longer
    # than the load of the next tile would be, and output or input stationary need 4 tiles of 128.
    cycles = array_cycles(Gemm(m=512, n=128, k=128), tensor_configs())
    assert cycles.compute[0] == 512
    assert cycles.fill[0] == 254


def test_awkward_dimensions_are_padded_not_refused():
    # BERT's vocabulary, 30522 = 2·3·5087: 239 columns of tiles instead of 238.45.
    cycles = array_cycles(
        Gemm(m=4096, n=30522, k=1024), tensor_configs(), Pipelining.IDEAL, (Dataflow.WEIGHT_STATIONARY,)
    )
    assert cycles.compute[0] == 8 * 239 * 4096


def test_shared_operand_is_folded():
    assert canonical(Gemm(batch=12, m=8, n=32, k=16, b_shared=True)) == Gemm(m=96, n=32, k=16)
    assert canonical(Gemm(batch=12, m=8, n=32, k=16, a_shared=True)) == Gemm(m=8, n=384, k=16)


def test_traffic_by_hand():
    m, n, k = (np.array(float(x)) for x in (1000, 2000, 50))
    # Half of 10,000 elements holds 100 rows of A or columns of B: B is read ⌈1000/100⌉ = 10 times, or A 20 times. A
    # square block of C has side 70: A ⌈2000/70⌉ = 29, B 15 times. Least: A once and B ten times.
    moved = traffic(m, n, k, np.array(10_000.0))
    assert (float(moved.a), float(moved.b), float(moved.c)) == (50_000, 1_000_000, 2_000_000)
    everything = traffic(m, n, k, np.array(2 * (50_000.0 + 100_000 + 2_000_000)))
    assert (float(everything.a), float(everything.b)) == (50_000, 100_000)


dims = st.integers(1, 5000)
gemms = st.builds(Gemm, batch=st.integers(1, 40), m=dims, n=dims, k=dims)
configs = st.fixed_dictionaries(
    {
        "count": st.integers(1, 600),
        "rows": st.integers(1, 256),
        "cols": st.integers(1, 256),
        "rate": st.sampled_from([1.0, 2.0, 8.0]),
        "local": st.integers(64, 10**6),
        "local_rate": st.integers(1, 10**4),
        "global_rate": st.integers(1, 10**5),
    }
)


def seconds(gemm, config, pipelining=Pipelining.OVERLAPPED):
    cycles = array_cycles(gemm, tensor_configs(**config), pipelining)
    return float(cycles.total[0])


@given(gemms, configs, st.sampled_from(Pipelining))
def test_never_faster_than_the_roofline(gemm, config, pipelining):
    peak = config["count"] * config["rows"] * config["cols"] * config["rate"]
    cycles = array_cycles(gemm, tensor_configs(**config), pipelining)
    assert cycles.compute[0] * peak >= gemm.macs * (1 - 1e-12)
    # The global buffer's port passes every result, and every operand that is not multicast, at least once.
    compulsory = max(gemm.batch * gemm.m * gemm.n, gemm.batch * gemm.k * (gemm.m + gemm.n))
    assert cycles.global_port[0] * config["global_rate"] >= compulsory * (1 - 1e-12)


@given(gemms, configs, st.sampled_from(["count", "rate", "local", "local_rate", "global_rate"]), st.integers(1, 500))
def test_more_of_anything_never_costs_time(gemm, config, resource, more):
    assert seconds(gemm, config | {resource: config[resource] + more}) <= seconds(gemm, config) * (1 + 1e-12)


@given(gemms, configs, st.sampled_from(["rows", "cols"]), st.integers(1, 100))
def test_a_larger_array_costs_at_most_its_longer_fill(gemm, config, extent, more):
    free = config | {"local": 1e12, "local_rate": 1e12, "global_rate": 1e12}
    larger = seconds(gemm, free | {extent: config[extent] + more})
    assert larger <= (seconds(gemm, free) + more) * (1 + 1e-12)
    assert seconds(gemm, free | {extent: config[extent] + more}, Pipelining.IDEAL) <= seconds(
        gemm, free, Pipelining.IDEAL
    )


@given(dims, dims, dims, st.integers(4, 10**7), st.integers(1, 10**6))
def test_traffic_lies_between_its_bounds_and_falls_with_capacity(m, n, k, capacity, more):
    extents = [np.array(float(x)) for x in (m, n, k)]
    moved, less = (traffic(*extents, np.array(float(c))) for c in (capacity, capacity + more))
    assert moved.a >= m * k
    assert moved.b >= n * k
    assert moved.c == m * n
    assert less.a + less.b <= moved.a + moved.b
    # Hong and Kung (STOC 1981): no schedule moves less than about 2·MNK/√S through S elements; ours is within the
    # doubling for double buffering of the trivial upper bound, each operand read once per row or column of the other.
    assert moved.a + moved.b <= m * k * n + n * k * m


def test_configurations_do_not_influence_each_other():
    machines = [tensor_configs(count=c, rows=r, cols=64) for c, r in ((1, 8), (6, 128), (528, 16))]
    together = tensor_configs()
    together = type(together)(
        **{
            name: np.concatenate([getattr(machine, name) for machine in machines])
            for name in together.__dataclass_fields__
        }
    )
    gemm = Gemm(batch=3, m=777, n=1234, k=99)
    joint = array_cycles(gemm, together)
    for i, machine in enumerate(machines):
        alone = array_cycles(gemm, machine)
        assert joint.total[i] == alone.total[0]
