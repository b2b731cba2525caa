"""Energies, static power and prices in technology files: read as written, optional, and never without a source."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import ConfigError, load_technology, technology_names
from archplace.arch_configs.technology import EnergyTable

AREAS = """\
technology:
  name: mine
  array_element: {area: 500 um2, source: x}
  vector_lane: {area: 2000 um2, source: x}
  sram: {fixed: 0 mm2, per_sqrt_byte: 0 mm2, per_byte: 1 um2, source: x}
  hbm_phy: {area_per_stack: 8 mm2, source: x}
  overhead: {factor: 1.5, source: x}
"""
ENERGY = """\
  energy:
    multiply_accumulate: {by_precision: {bf16: 0.5 pJ, int8: 70 fJ}, source: m}
    lane_operation: {energy: 5 pJ, source: l}
    sram: {per_byte: 0.1 pJ, per_byte_and_sqrt_byte: 2 fJ, source: {per_byte: a, per_byte_and_sqrt_byte: b}}
    hbm: {per_byte: 31 pJ, source: h}
    network: {per_byte: 0.08 nJ, source: n}
"""
POWER = """\
  power:
    die: {per_mm2: 100 mW, source: d}
    hbm: {per_stack: 4 W, source: h}
    host: {per_accelerator: 0 W, source: "none"}
"""
COST = """\
  cost:
    wafer: {usd: 9000, diameter_mm: 300, source: w}
    defects: {defects_per_cm2: 0.1, clustering: 10, source: d}
    package: {usd: 1000, source: p}
    hbm: {usd_per_gb: 15, source: h}
    host: {usd: 0, source: "none"}
    electricity: {usd_per_kwh: 0.1, power_usage_effectiveness: 1.2, source: e}
    service: {years: 4, source: s}
"""


def load(tmp_path, *sections):
    path = tmp_path / "mine.yaml"
    path.write_text("".join((AREAS, *sections)))
    return load_technology(path)


def test_values_come_in_si(tmp_path):
    table = load(tmp_path, ENERGY, POWER, COST)
    energy, power, cost = table.need_energy(), table.need_power(), table.need_cost()
    assert energy.mac_j == {"bf16": 0.5e-12, "int8": 70e-15}
    assert energy.lane_operation_j == 5e-12
    assert (energy.sram_j_per_byte, energy.sram_j_per_byte_per_sqrt_byte) == (1e-13, 2e-15)
    assert (energy.hbm_j_per_byte, energy.network_j_per_byte) == (31e-12, 80e-12)
    assert (power.die_w_per_mm2, power.hbm_w_per_stack, power.host_w_per_accelerator) == (0.1, 4.0, 0.0)
    assert (cost.wafer_usd, cost.wafer_diameter_mm, cost.package_usd) == (9000.0, 300.0, 1000.0)
    assert cost.defects_per_mm2 == pytest.approx(0.001)
    assert (cost.defect_clustering, cost.host_usd_per_accelerator) == (10.0, 0.0)
    assert cost.hbm_usd_per_byte == pytest.approx(15e-9)
    assert cost.energy_usd_per_j == pytest.approx(0.12 / 3.6e6)
    assert cost.service_life_s == 4 * 31_557_600


@pytest.mark.parametrize("name", technology_names())
def test_built_in_tables_have_everything_with_sources(name):
    table = load_technology(name)
    assert None not in (table.energy, table.power, table.cost)
    for part, sections in {
        "energy": ("multiply_accumulate", "lane_operation", "sram", "hbm", "network"),
        "power": ("die", "hbm", "host"),
        "cost": ("wafer", "defects", "package", "hbm", "host", "electricity", "service"),
    }.items():
        for section in sections:
            texts = [text for key, text in table.sources.items() if key.startswith(f"{part}.{section}.")]
            assert texts, (part, section)
            assert all(text.strip() for text in texts)


def test_sources_of_equal_names_stay_apart(tmp_path):
    sources = load(tmp_path, ENERGY, POWER, COST).sources
    assert (sources["energy.hbm.per_byte"], sources["cost.host.usd"], sources["sram.per_byte"]) == ("h", "none", "x")
    assert sources["energy.sram.per_byte_and_sqrt_byte"] == "b"


def test_a_table_of_areas_alone_loads_and_says_what_it_lacks(tmp_path):
    table = load(tmp_path)
    assert (table.energy, table.power, table.cost) == (None, None, None)
    for section, need in (("energy", table.need_energy), ("power", table.need_power), ("cost", table.need_cost)):
        with pytest.raises(ConfigError) as caught:
            need()
        message = str(caught.value)
        assert message.startswith(f"technology mine: the section '{section}' is missing")
        assert f"add 'technology.{section}' to its file" in message


def test_each_section_stands_alone(tmp_path):
    assert load(tmp_path, POWER).need_power().hbm_w_per_stack == 4.0
    assert load(tmp_path, COST).energy is None


def test_control_and_clock_may_be_left_out(tmp_path):
    power = load(tmp_path, POWER).need_power()
    assert (power.control_j_per_vector_unit_cycle, power.voltage_at_standstill) == (0.0, 1.0)
    more = (
        POWER
        + """\
    control: {per_vector_unit_and_cycle: 1.5 nJ, source: c}
    clock: {voltage_at_standstill: 0.6, source: v}
"""
    )
    table = load(tmp_path, more)
    assert (table.power.control_j_per_vector_unit_cycle, table.power.voltage_at_standstill) == (1.5e-9, 0.6)
    assert table.sources["power.control.per_vector_unit_and_cycle"] == "c"
    with pytest.raises(ConfigError, match=r"voltage_at_standstill: found 1\.2; allowed: at most 1"):
        load(tmp_path, more.replace("0.6", "1.2"))


def test_a_precision_that_is_missing_is_named(tmp_path):
    energy = load(tmp_path, ENERGY).need_energy()
    assert energy.of_mac_j("int8") == 70e-15
    with pytest.raises(ConfigError, match=r"precision fp8: .* it has bf16, int8; add 'energy.multiply_accumulate"):
        energy.of_mac_j("fp8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("5 pJ", "5", "energy.lane_operation.energy: found 5 without a unit; write '5 J'"),
        ("5 pJ", "5 pW", "energy.lane_operation.energy: found the unit 'pW'"),
        ("31 pJ", "-31 pJ", "energy.hbm.per_byte: found '-31 pJ', which is negative"),
        ("{bf16: 0.5 pJ, int8: 70 fJ}", "{}", "energy.multiply_accumulate.by_precision: found 0 entries"),
        ("    hbm: {per_byte: 31 pJ, source: h}\n", "", "the key 'hbm' is missing in 'technology.energy'"),
        ("31 pJ, source: h", "31 pJ", "the key 'source' is missing in 'technology.energy.hbm'"),
        ("source: n}", "source: ' '}", "energy.network.source: found an empty text"),
        (", per_byte_and_sqrt_byte: b", "", "energy.sram.source: says nothing about per_byte_and_sqrt_byte"),
        ("100 mW", "100 W/mm2", "power.die.per_mm2: found"),
        ("usd: 9000", "usd: 0", "cost.wafer.usd: found 0; allowed: more than 0"),
        ("effectiveness: 1.2", "effectiveness: 0.9", "power_usage_effectiveness: found 0.9; allowed: at least 1"),
        ("clustering: 10", "clustering: 0", "cost.defects.clustering: found 0; allowed: more than 0"),
        ("years: 4", "months: 48", "cost.service.months: unknown key 'months'"),
    ],
)
def test_wrong_sections(old, new, message, tmp_path):
    text = ENERGY + POWER + COST
    assert old in text
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text.replace(old, new))
    assert message in str(caught.value)
    assert f"{tmp_path / 'mine.yaml'}:" in str(caught.value)


@given(st.floats(0, 1e-9), st.floats(0, 1e-12), st.lists(st.integers(0, 2**40), min_size=1, max_size=8))
def test_a_byte_of_a_larger_buffer_never_costs_less(fixed, per_root, capacities):
    table = EnergyTable(
        mac_j={},
        lane_operation_j=0.0,
        sram_j_per_byte=fixed,
        sram_j_per_byte_per_sqrt_byte=per_root,
        hbm_j_per_byte=0.0,
        network_j_per_byte=0.0,
    )
    joules = table.buffer_j_per_byte(np.array(sorted(capacities)))
    assert (np.diff(joules) >= 0).all()
    by_hand = [fixed + per_root * math.sqrt(capacity) for capacity in sorted(capacities)]
    assert joules == pytest.approx(by_hand, rel=1e-12)
