"""The area model: hand calculations, components that add up, and more hardware is never smaller."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import (
    Architectures,
    ConfigError,
    Resources,
    Sram,
    area_breakdown,
    area_mm2,
    load_accelerator,
    load_technology,
    price_accelerator_area,
    technology_names,
)

TABLES = {name: load_technology(name) for name in technology_names()}
COUNTS = st.integers(1, 4096)
SIZES = st.integers(1, 2**28)


def resources(**changes):
    defaults = {
        "tensor_count": 8,
        "tensor_elements": 16384,
        "tensor_macs_per_element": 1.0,
        "tensor_local_bytes": 262144,
        "vector_count": 2,
        "vector_lanes": 128,
        "vector_local_bytes": 2048,
        "global_buffer_bytes": 2**27,
        "hbm_stacks": 4,
    }
    return Resources(**{name: np.array([value]) for name, value in (defaults | changes).items()})


def test_phaze_area_of_its_reference_chip_by_hand():
    # 8 arrays of 128 × 128, 2 vector units of 128 lanes, 128 MiB; buffers of 256 KiB (446565 um²) and 2 KiB (8248.43
    # um²), global buffer 175423000 um². PHAZE's published list has 278826676.31216 um² for this chip.
    by_hand_um2 = (
        8 * 16384 * 760.041386 + 8 * 446565 + 2 * 128 * 759.823853 + 2 * 8248.43 + 175423000
    )  # fmt: skip
    assert by_hand_um2 == pytest.approx(278826676.31216, rel=1e-12)
    assert area_mm2(resources(), TABLES["phaze-22nm"])[0] == pytest.approx(by_hand_um2 * 1e-6, rel=1e-12)


def test_7nm_components_by_hand():
    # TPU v4 as in its preset: 8 × 16,384 elements of 854 um²; 2 × 2,048 lanes of 3,416 um²; 4 HBM stacks of 8.32 mm²;
    # a 128 MiB buffer of 112 mm²; the rest buffers; 1.55 for what is not listed.
    parts = area_breakdown(Architectures.of(load_accelerator("tpu-v4")), TABLES["7nm"]).by_component()
    assert parts["tensor_units"][0] == pytest.approx(8 * 16384 * 854e-6)
    assert parts["vector_units"][0] == pytest.approx(2 * 2048 * 3416e-6)
    assert parts["hbm_phy"][0] == pytest.approx(33.28)
    assert parts["global_buffer"][0] == pytest.approx(112, rel=1e-4)
    listed = sum(part[0] for name, part in parts.items() if name != "overhead")
    assert parts["overhead"][0] == pytest.approx(0.55 * listed)


def test_an_element_that_does_more_is_larger():
    one = area_breakdown(resources(), TABLES["7nm"])
    eight = area_breakdown(resources(tensor_macs_per_element=8.0), TABLES["7nm"])
    assert eight.tensor_units[0] == pytest.approx(8 * one.tensor_units[0])
    assert eight.vector_units == one.vector_units


def test_a_narrow_format_at_twice_the_rate_costs_nothing_more():
    chip = Architectures.of(load_accelerator("h100-sxm"))
    without = dataclasses.replace(chip, tensor_macs_per_element={"bf16": np.array([16.0])})
    only_fp8 = dataclasses.replace(chip, tensor_macs_per_element={"fp8": np.array([16.0])})
    assert area_mm2(chip, TABLES["5nm"]) == area_mm2(without, TABLES["5nm"]) == area_mm2(only_fp8, TABLES["5nm"])


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        # Published die areas: A100 826 mm², H100 814 mm², TPU v4 at most 600 mm². The tables are priors for TPU-like
        # machines; GPUs carry about twice the overhead, so that they come out at half to six tenths of their dies.
        ("tpu-v4", (0.6, 1.0)),
        ("a100-80gb", (0.4, 0.7)),
        ("h100-sxm", (0.4, 0.7)),
    ],
)
def test_order_of_magnitude_against_published_dies(name, ratio):
    accelerator = load_accelerator(name)
    area = price_accelerator_area(accelerator, load_technology(accelerator.technology))
    assert ratio[0] < area / accelerator.die_area_mm2 < ratio[1]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_components_add_up_for_many_at_once(table):
    counts = np.array([1, 7, 4096])
    breakdown = area_breakdown(dataclasses.replace(resources(), tensor_count=counts), table)
    assert breakdown.total_mm2.shape == (3,)
    assert sum(breakdown.by_component().values()) == pytest.approx(breakdown.total_mm2)
    single = [area_mm2(resources(tensor_count=int(count)), table)[0] for count in counts]
    assert breakdown.total_mm2.tolist() == single


@given(
    st.sampled_from(list(TABLES.values())),
    st.fixed_dictionaries(
        {
            "tensor_count": COUNTS,
            "tensor_elements": COUNTS,
            "tensor_local_bytes": SIZES,
            "vector_count": COUNTS,
            "vector_lanes": COUNTS,
            "vector_local_bytes": SIZES,
            "global_buffer_bytes": SIZES,
            "hbm_stacks": st.integers(1, 16),
        }
    ),
    st.data(),
)
def test_more_of_anything_is_never_smaller(table, values, data):
    name = data.draw(st.sampled_from(sorted(values)))
    more = values | {name: values[name] + data.draw(st.integers(1, 2**20))}
    assert area_mm2(resources(**more), table)[0] >= area_mm2(resources(**values), table)[0] > 0


def test_a_table_returns_its_entries_exactly_and_stays_between_them():
    sram = TABLES["phaze-22nm"].sram
    assert sram.area_mm2(np.array(sram.table_bytes)).tolist() == list(sram.table_mm2)
    between = sram.area_mm2(np.array([48 * 1024]))[0]
    assert sram.table_mm2[5] < between < sram.table_mm2[6]


def test_a_table_beyond_its_ends():
    sram = Sram(table_bytes=(1024, 4096), table_mm2=(1.0, 2.0))
    # In between A = (B/1024)^(1/2); below the first entry no smaller; above the last in proportion.
    assert sram.area_mm2(np.array([1, 1024, 2048, 4096, 8192])) == pytest.approx([1, 1, 2**0.5, 2, 4])


def test_a_formula_is_periphery_and_cells():
    sram = Sram(fixed_mm2=1.0, mm2_per_sqrt_byte=0.5, mm2_per_byte=0.25)
    assert sram.area_mm2(np.array([16])) == pytest.approx([1 + 0.5 * 4 + 0.25 * 16])


def test_every_number_of_a_table_has_a_source():
    for table in TABLES.values():
        assert {key.split(".")[0] for key in table.sources} == {
            "array_element", "vector_lane", "sram", "hbm_phy", "overhead", "energy", "power", "cost",
        }  # fmt: skip


TECHNOLOGY = """\
technology:
  name: mine
  array_element: {area: 500 um2, source: x}
  vector_lane: {area: 2000 um2, source: x}
  sram: {fixed: 0 mm2, per_sqrt_byte: 0 mm2, per_byte: 1 um2, source: x}
  hbm_phy: {area_per_stack: 8 mm2, source: x}
  overhead: {factor: 1.5, source: x}
"""


def test_a_table_of_the_user(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TECHNOLOGY)
    table = load_technology(path)
    assert (table.array_element_mm2, table.overhead_factor) == (500e-6, 1.5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("500 um2", "500", "array_element.area: found 500 without a unit; write '500 mm2'"),
        ("factor: 1.5", "factor: 0.9", "overhead.factor: found 0.9; allowed: at least 1"),
        ("fixed: 0 mm2, ", "", "sram: needs either 'table', or all of 'fixed', 'per_sqrt_byte' and 'per_byte'"),
        ("fixed: 0 mm2, ", "table: [{capacity: 1 B, area: 1 mm2}, {capacity: 2 B, area: 1 mm2}], ", "give one form"),
        (
            "fixed: 0 mm2, per_sqrt_byte: 0 mm2, per_byte: 1 um2",
            "table: [{capacity: 2 B, area: 1 mm2}, {capacity: 1 B, area: 2 mm2}]",
            "must have rising capacities and areas that do not fall; found 2 B with 1.0 mm2 before 1 B with 2.0 mm2",
        ),
    ],
)
def test_wrong_tables(old, new, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TECHNOLOGY.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_technology(path)
    assert message in str(caught.value)
