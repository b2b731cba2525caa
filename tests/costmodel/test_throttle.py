"""The clock within a power limit: hand calculation, laws, and what an A100 and an H100 keep of theirs."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import cluster, table

from archplace.arch_configs import (
    Architectures,
    ConfigError,
    load_accelerator,
    load_cluster,
    load_space,
    load_technology,
    price_accelerator_area,
)
from archplace.arch_configs.calibration import NOMINAL
from archplace.arch_configs.technology import PowerTable
from archplace.costmodel import (
    Load,
    Pricer,
    control_power_w,
    energy_parts,
    kept_clock,
    load_of,
    power_w,
    static_power_w,
    sustained_clock,
    within_limit,
)
from archplace.workloads.operators import Collective, CollectiveKind, Gemm, Operator, Phase, Unit, VectorWork

ROUND = dataclasses.replace(
    load_technology("7nm"),
    power=PowerTable(
        die_w_per_mm2=0.1,
        hbm_w_per_stack=5.0,
        host_w_per_accelerator=0.0,
        control_j_per_vector_unit_cycle=1e-8,
        voltage_at_standstill=0.5,
    ),
)
CHIP = dataclasses.replace(table(), area_mm2=np.array([400.0]))
"""At 1 GHz: 40 W of leakage, 10 W of two idle HBM stacks, 20 W of two vector units' control."""


def one(value):
    return np.array([float(value)])


def load(clocked_s=1, other_s=1, clocked_j=200, other_j=50):
    return Load(clocked_s=one(clocked_s), other_s=one(other_s), clocked_j=one(clocked_j), other_j=one(other_j))


def test_power_by_hand():
    # Full clock: 50 + 20 + 250 J in 2 s. Half of it: voltage 0.75, so that leakage and HBM's idling take 37.5 W,
    # control 20 · 0.5 · 0.75² W, and 200 · 0.75² + 50 J pass in 3 s.
    assert power_w(load(), 1.0, CHIP, ROUND)[0] == pytest.approx(50 + 20 + 125)
    assert power_w(load(), 0.5, CHIP, ROUND)[0] == pytest.approx(37.5 + 5.625 + 162.5 / 3)
    limit = 37.5 + 5.625 + 162.5 / 3
    assert sustained_clock(load(), limit, CHIP, ROUND)[0] == pytest.approx(0.5)


def test_within_the_limit_the_clock_stays():
    assert sustained_clock(load(), 195.0, CHIP, ROUND)[0] == 1.0
    assert sustained_clock(load(), 1e6, CHIP, ROUND)[0] == 1.0


def test_a_limit_below_the_slowest_clock_is_no_clock():
    # 0.1 of the clock: voltage 0.55; 27.5 + 20 · 0.1 · 0.3025 W and (200 · 0.3025 + 50) J in 11 s.
    least = 27.5 + 0.605 + 110.5 / 11
    assert np.isnan(sustained_clock(load(), least * 0.999, CHIP, ROUND)[0])
    assert sustained_clock(load(), least * 1.001, CHIP, ROUND)[0] >= 0.1


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_limits_that_are_none(limit):
    with pytest.raises(ValueError, match=r"power limit: found .* W; allowed: more than 0"):
        sustained_clock(load(), limit, CHIP, ROUND)


def test_a_table_without_static_power_is_named():
    with pytest.raises(ConfigError, match="the section 'power' is missing"):
        sustained_clock(load(), 100.0, CHIP, dataclasses.replace(ROUND, power=None))


loads = st.builds(
    load,
    clocked_s=st.floats(1e-3, 10),
    other_s=st.floats(0, 10),
    clocked_j=st.floats(0, 5000),
    other_j=st.floats(0, 1000),
)
shares = st.floats(0.1, 1.0)


@given(loads, shares, shares)
def test_power_rises_with_the_clock(work, a, b):
    slow, fast = sorted((a, b))
    watts = [power_w(work, share, CHIP, ROUND)[0] for share in (slow, fast)]
    assert watts[0] <= watts[1] * (1 + 1e-12)


@given(loads, st.floats(10, 3000), st.floats(1, 3))
def test_the_clock_meets_the_limit_and_more_power_never_slows(work, limit, factor):
    clock = sustained_clock(work, limit, CHIP, ROUND)[0]
    if np.isnan(clock):
        assert power_w(work, 0.1, CHIP, ROUND)[0] > limit
        return
    assert 0.1 <= clock <= 1
    drawn = power_w(work, clock, CHIP, ROUND)[0]
    assert drawn <= limit * (1 + 1e-9)
    assert clock == 1 or drawn == pytest.approx(limit, rel=1e-6)
    assert sustained_clock(work, limit * factor, CHIP, ROUND)[0] >= clock


@given(st.lists(loads, min_size=2, max_size=4), st.floats(60, 3000))
def test_arrays_are_the_loads_one_by_one(works, limit):
    many = Load(
        **{
            field.name: np.concatenate([getattr(work, field.name) for work in works])
            for field in dataclasses.fields(Load)
        }
    )
    chips = CHIP.take(np.zeros(len(works), dtype=np.int64))
    alone = [sustained_clock(work, limit, CHIP, ROUND)[0] for work in works]
    np.testing.assert_allclose(sustained_clock(many, limit, chips, ROUND), alone, rtol=1e-12)


def product(size, precision="bf16"):
    gemm = Gemm(m=size, n=size, k=size)
    return Operator(name="product", unit=Unit.TENSOR, phase=Phase.FORWARD, gemm=gemm, precision=precision)


def test_the_load_of_operators_is_what_they_take():
    stream = VectorWork(rows=1000, row_length=1000, operations_per_element=1, read_bytes=10**9, write_bytes=10**9)
    exchange = Collective(kind=CollectiveKind.ALL_REDUCE, payload_bytes=10**9, group_size=8)
    operators = [
        product(1024),
        Operator(name="stream", unit=Unit.VECTOR, phase=Phase.FORWARD, vector=stream),
        Operator(name="exchange", unit=Unit.NETWORK, phase=Phase.FORWARD, collective=exchange),
    ]
    technology = load_technology("7nm")
    pricer = Pricer(table(), cluster())
    seconds = pricer.price(operators).all_s[0]
    found = load_of(pricer, operators, technology, idle_s=0.25)
    assert found.clocked_s[0] == pytest.approx(seconds[0])
    assert found.other_s[0] == pytest.approx(seconds[1] + seconds[2] + 0.25)
    assert found.seconds[0] == pytest.approx(seconds.sum() + 0.25)
    # 2 GB through HBM at 31.2 pJ, 14/8 GB through links at 80 pJ; the product's operands are little beside.
    assert found.other_j[0] == pytest.approx(2e9 * 31.2e-12 + 1.75e9 * 80e-12, rel=0.01)


@pytest.mark.parametrize(
    ("name", "precision", "limit_w", "share"),
    [
        # He, "Strangely, Matrix Multiplications on GPUs Run Faster When Given Predictable Data" (2024): 8192³ in fp16
        # on an A100, 257 TFLOP/s with random numbers, 295 with zeros, which do not reach the limit.
        ("a100-80gb", "fp16", 400.0, 257 / 295),
        # Bekman, "Machine Learning Engineering" (2024): the best product in bf16 reaches 794.5 TFLOP/s on an H100; at
        # the same efficiency as the A100 with zeros, that is 85 % of the clock behind 989 TFLOP/s. To each of the two
        # one number of its table, the energy of control, is fitted.
        ("h100-sxm", "bf16", 700.0, 794.5 / (295 / 312 * 989.4)),
    ],
)
def test_what_power_limits_leave_of_known_clocks(name, precision, limit_w, share):
    accelerator = load_accelerator(name)
    assert accelerator.thermal_design_power_w == limit_w
    technology = load_technology(accelerator.technology)
    # What the limit leaves is what the calibration of the arrays' rate stands for.
    nominal = dataclasses.replace(accelerator, calibration=NOMINAL)
    chip = Architectures.of(nominal, area_mm2=price_accelerator_area(nominal, technology))
    pricer = Pricer(chip, load_cluster("a100-superpod"))
    found = sustained_clock(load_of(pricer, [product(8192, precision)], technology), limit_w, chip, technology)
    assert found[0] == pytest.approx(share, rel=0.05)


def test_control_is_a_part_of_what_a_chip_draws_whatever_it_does():
    technology = load_technology("5nm")
    chip = Architectures.of(load_accelerator("h100-sxm"))
    # 132 multiprocessors at 1.83 GHz, 1.2 nJ each per cycle.
    assert control_power_w(chip, technology)[0] == pytest.approx(132 * 1.83 * 1.2)
    bare = dataclasses.replace(
        technology, power=dataclasses.replace(technology.power, control_j_per_vector_unit_cycle=0)
    )
    assert static_power_w(chip, technology)[0] == pytest.approx(static_power_w(chip, bare)[0] + 132 * 1.83 * 1.2)


GPUS = load_space("gpu").enumerate()
FIVE = load_technology("5nm")


def limited(limit_w, architectures=GPUS, **more):
    return within_limit(architectures, limit_w, FIVE, load_cluster("h100-superpod"), ["bf16"], **more)


def test_a_limit_that_nobody_reaches_changes_no_clock():
    found = limited(1e5)
    np.testing.assert_array_equal(found.clock_hz, GPUS.clock_hz)
    np.testing.assert_array_equal(found.throttled.voltage, 1.0)
    np.testing.assert_allclose(static_power_w(found, FIVE), static_power_w(GPUS, FIVE), rtol=1e-12)


def test_within_a_limit_all_of_the_chip_s_supply_slows_down_and_nothing_else():
    found = limited(450.0)
    share = found.clock_hz / GPUS.clock_hz
    assert 0.1 <= share.min() < 0.9
    assert share.max() <= 1.0
    for slowed, nominal in (
        (found.tensor_local_bytes_per_s, GPUS.tensor_local_bytes_per_s),
        (found.global_buffer_bytes_per_s, GPUS.global_buffer_bytes_per_s),
    ):
        np.testing.assert_allclose(slowed / nominal, share, rtol=1e-12)
    np.testing.assert_array_equal(found.hbm_bytes_per_s, GPUS.hbm_bytes_per_s)
    # Who slows down draws the limit, who does not draws less.
    slower = share < 1
    np.testing.assert_allclose(found.throttled.power_w[slower], 450.0, rtol=1e-6)
    assert (found.throttled.power_w[~slower] <= 450.0).all()
    # The half of the table is priced as in the whole.
    part = limited(450.0, GPUS.take(slice(0, 50)))
    np.testing.assert_allclose(part.throttled.power_w, found.take(slice(0, 50)).throttled.power_w, rtol=1e-12)


def test_under_a_limit_a_product_draws_what_the_limit_says():
    # Seconds, joules and static power as everybody else computes them give the watts again.
    nominal = dataclasses.replace(GPUS, calibration=NOMINAL)
    found = limited(450.0, nominal)
    pricer = Pricer(found, load_cluster("h100-superpod"))
    operator = product(8192)
    seconds = pricer.price([operator]).all_s[:, 0]
    watts = energy_parts(pricer, operator, FIVE).total_j / seconds + static_power_w(found, FIVE)
    np.testing.assert_allclose(watts, found.throttled.power_w, rtol=1e-6)


def test_what_was_measured_at_a_limit_is_not_counted_again():
    bare, known = limited(450.0), limited(450.0, known=0.8)
    share = bare.clock_hz / GPUS.clock_hz
    np.testing.assert_allclose(known.clock_hz / GPUS.clock_hz, np.minimum(share / 0.8, 1.0), rtol=1e-12)
    np.testing.assert_array_equal(known.throttled.power_w, bare.throttled.power_w)


def test_who_draws_too_much_at_the_slowest_clock_stays_beyond_the_limit():
    found = limited(60.0)
    beyond = found.throttled.power_w > 60.0 * (1 + 1e-9)
    assert beyond.any()
    np.testing.assert_allclose(found.clock_hz[beyond] / GPUS.clock_hz[beyond], 0.1)


@pytest.mark.parametrize(("name", "share"), [("a100-80gb", 257 / 295), ("h100-sxm", 794.5 / (295 / 312 * 989.4))])
def test_a_chip_at_its_own_limit_keeps_the_clock_that_was_measured(name, share):
    chip = load_accelerator(name)
    kept = kept_clock(chip, load_technology(chip.technology), load_cluster("h100-superpod"), "bf16")
    assert kept == pytest.approx(share, rel=0.05)
    assert kept_clock(load_accelerator("tpu-v5p"), FIVE, load_cluster("h100-superpod"), "bf16") is None
