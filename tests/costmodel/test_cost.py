"""Dollars: hand calculations, laws of area, yield and capacity, and published estimates."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import table

from archplace.arch_configs import Architectures, ConfigError, area_mm2, load_accelerator, load_technology
from archplace.arch_configs.technology import CostTable, technology_names
from archplace.costmodel import (
    RETICLE_LIMIT_MM2,
    accelerator_cost_usd,
    die_cost_usd,
    service_life_s,
)
from archplace.costmodel.cost import die_yield, dies_per_wafer

TABLES = [load_technology(name) for name in technology_names()]
AREAS = st.floats(1, 20_000)


def prices(**changes) -> CostTable:
    return dataclasses.replace(
        CostTable(
            wafer_usd=10_000.0,
            wafer_diameter_mm=300.0,
            defects_per_mm2=0.001,
            defect_clustering=10.0,
            package_usd=1000.0,
            hbm_usd_per_byte=10e-9,
            host_usd_per_accelerator=4000.0,
            electricity_usd_per_j=2.5e-8,
            power_usage_effectiveness=1.2,
            service_life_s=1e8,
        ),
        **changes,
    )


def technology(**changes):
    return dataclasses.replace(load_technology("7nm"), cost=prices(**changes))


def test_a_die_by_hand():
    # 500 mm² at 0.1 defects per cm²: (1 + 0.5/10)^−10 = 0.6139 good; π·150²/500 = 141.37 dies less the edge,
    # exp(−√4000/300) = 0.8099.
    assert die_yield(np.array([500.0]), prices())[0] == pytest.approx(0.6139, abs=1e-4)
    assert dies_per_wafer(np.array([500.0]), prices())[0] == pytest.approx(141.37 * 0.8099, rel=1e-4)
    assert die_cost_usd(np.array([500.0]), technology())[0] == pytest.approx(10_000 / (114.50 * 0.6139), rel=1e-3)


def test_dies_of_usual_sizes_are_those_of_hennessy_and_patterson():
    # Their worked examples: a 300 mm wafer gives 640 dies of 10 mm × 10 mm and 270 of 15 mm × 15 mm.
    assert dies_per_wafer(np.array([100.0, 225.0]), prices()) == pytest.approx([640, 270], rel=0.02)


@pytest.mark.parametrize("clustering", [0.5, 3.0, 1e9])
def test_yield_is_between_its_limits(clustering):
    # Poisson's law exp(−A·D) for spread defects; clusters leave more dies untouched.
    area = np.array([0.001, 10.0, 858.0])
    good = die_yield(area, prices(defect_clustering=clustering))
    poisson = np.exp(-area * 0.001)
    assert (good >= poisson * (1 - 1e-6)).all()
    assert (good <= 1).all()
    if clustering > 1e6:
        assert good == pytest.approx(poisson, rel=1e-6)


def test_an_accelerator_by_hand():
    machine = table()
    die = die_cost_usd(area_mm2(machine, technology()), technology())[0]
    # 1000 USD of package, 80 GB at 10 USD, 4000 USD of host.
    assert accelerator_cost_usd(machine, 80e9, technology())[0] == pytest.approx(die + 1000 + 800 + 4000)


def test_one_capacity_or_one_for_each():
    machines = table().take(np.array([0, 0, 0]))
    each = accelerator_cost_usd(machines, np.array([32e9, 64e9, 80e9]), technology())
    assert each.shape == (3,)
    for capacity, cost in zip([32e9, 64e9, 80e9], each, strict=True):
        assert accelerator_cost_usd(machines, capacity, technology()).tolist() == [cost] * 3
    assert np.diff(each) == pytest.approx([320, 160])


@given(st.sampled_from(TABLES), AREAS, st.floats(1.001, 3))
def test_cost_grows_faster_than_area(chosen, area, factor):
    small, large = die_cost_usd(np.array([area, area * factor]), chosen)
    assert large > small * factor > 0


@given(AREAS, st.floats(0, 0.01), st.floats(1.01, 5), st.floats(0.1, 20))
def test_cost_falls_with_yield(area, defects, factor, clustering):
    die = np.array([area])
    better = technology(defects_per_mm2=defects, defect_clustering=clustering)
    worse = technology(defects_per_mm2=defects * factor + 1e-6, defect_clustering=clustering)
    assert die_yield(die, better.cost)[0] > die_yield(die, worse.cost)[0]
    assert die_cost_usd(die, better)[0] < die_cost_usd(die, worse)[0]


def test_the_reticle_is_no_step_in_the_price():
    before, after = die_cost_usd(RETICLE_LIMIT_MM2 + np.array([-1e-6, 1e-6]), technology())
    assert after == pytest.approx(before, rel=1e-6)
    assert math.isfinite(die_cost_usd(np.array([70_000.0]), technology())[0])


def test_energy_price_and_life_of_the_built_in_tables():
    # 0.0806 USD per kWh at the meter, of which 1/1.1 reaches the machine; five years of 365.25 days.
    for chosen in TABLES:
        assert chosen.need_cost().energy_usd_per_j == pytest.approx(0.0806 * 1.1 / 3_600_000)
        assert service_life_s(chosen) == 5 * 365.25 * 24 * 3600


def test_h100_against_a_published_estimate():
    # Raymond James (2023) put the making of an H100 at 3,320 USD, without its server. The table has the package from
    # estimates that follow it; die (814 mm²) and memory (80 GB) come from elsewhere.
    chosen = load_technology("5nm")
    made = die_cost_usd(np.array([814.0]), chosen)[0] + chosen.cost.package_usd + 80e9 * chosen.cost.hbm_usd_per_byte
    assert made == pytest.approx(3320, rel=0.1)


def test_missing_prices_are_named():
    bare = dataclasses.replace(load_technology("7nm"), cost=None)
    chip = Architectures.of(load_accelerator("tpu-v4"))
    for ask in (
        lambda: accelerator_cost_usd(chip, 32e9, bare),
        lambda: die_cost_usd(np.array([1.0]), bare),
        lambda: service_life_s(bare),
    ):
        with pytest.raises(ConfigError, match="technology 7nm: the section 'cost' is missing"):
            ask()


def test_prices_of_a_site_by_hand():
    assert prices().energy_usd_per_j == pytest.approx(3e-8)
    # 0.036 USD per kWh are 1e-8 USD per J.
    site = prices().at(usd_per_kwh=0.036, power_usage_effectiveness=1.5, service_years=2)
    assert site.energy_usd_per_j == pytest.approx(1.5e-8)
    assert site.service_life_s == 2 * 365.25 * 86400
    assert site.wafer_usd == prices().wafer_usd
    assert prices().at() == prices()
