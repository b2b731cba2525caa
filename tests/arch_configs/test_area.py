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
    # TPU v4 as in its preset: 8 × 16,384 elements of 854 um²; 2 × 2,048 lanes of 3,416 um²; 4 HBM stacks of 16.5 mm²;
    # a 128 MiB buffer of 112 mm²; 2 cores' control of 1 mm²; 61 mm² of links; the rest buffers; 1.25 for what is not
    # listed.
    parts = area_breakdown(Architectures.of(load_accelerator("tpu-v4")), TABLES["7nm"]).by_component()
    assert parts["tensor_units"][0] == pytest.approx(8 * 16384 * 854e-6)
    assert parts["vector_units"][0] == pytest.approx(2 * 2048 * 3416e-6)
    assert parts["hbm_phy"][0] == pytest.approx(66)
    assert (parts["control"][0], parts["interfaces"][0]) == (2, 61)
    assert (parts["fp64"][0], parts["fixed_function"][0]) == (0, 0)
    assert parts["global_buffer"][0] == pytest.approx(112, rel=1e-4)
    listed = sum(part[0] for name, part in parts.items() if name != "overhead")
    assert parts["overhead"][0] == pytest.approx(0.25 * listed)


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
    ("name", "die_mm2", "within"),
    [
        # Published areas: NVIDIA's white papers of GA100, GH100 and GV100; Aldebaran in die photos (LLMCompass, Zhang
        # et al., ISCA 2024: 720 mm²). Google gives upper limits for its chips, which the model must not exceed.
        ("a100-80gb", 826, 0.05),
        ("mi210", 724, 0.05),
        ("tpu-v4", 600, 0.10),
        ("h100-sxm", 814, 0.05),
        ("v100-sxm", 815, 0.05),
        ("tpu-v3", 700, 0.25),
    ],
)
def test_known_dies(name, die_mm2, within):
    accelerator = load_accelerator(name)
    assert accelerator.die_area_mm2 == die_mm2
    area = price_accelerator_area(accelerator, TABLES[accelerator.technology])
    assert area == pytest.approx(die_mm2, rel=within)
    if name.startswith("tpu"):
        assert area < die_mm2


# Areas in mm² on die photos of GA100 and Aldebaran as measured for LLMCompass (Zhang et al., ISCA 2024; released as
# ae/figure6/real_hardware/die_area.csv): cores with the interconnect between them, level-2 cache, HBM interfaces with
# their controllers, and all the rest.
DIE_PHOTOS = {
    "a100-80gb": {"cores": 476.25 + 76.44, "cache": 119.31, "hbm": 58 + 31.77, "rest": 20.95 + 0 + 40},
    "mi210": {"cores": 446.22 + 33, "cache": 25.2, "hbm": 83.26 + 40.83, "rest": 45.52 + 42 + 4},
}


@pytest.mark.parametrize(("name", "photo"), DIE_PHOTOS.items())
def test_blocks_of_known_dies(name, photo):
    """Single blocks are looser than the sum: within 40 mm² each, a twentieth of the die."""
    accelerator = load_accelerator(name)
    table = TABLES[accelerator.technology]
    parts = area_breakdown(Resources.on_die(accelerator), table).by_component()
    blocks = {
        "cores": ("tensor_units", "tensor_buffers", "vector_units", "vector_buffers", "control", "fp64"),
        "cache": ("global_buffer",),
        "hbm": ("hbm_phy",),
        "rest": ("interfaces",),
    }
    found = {
        block: table.overhead_factor * sum(float(parts[part][0]) for part in names) for block, names in blocks.items()
    }
    assert found == pytest.approx(photo, abs=42)
    assert set(parts) == {"overhead", "fixed_function"} | {part for names in blocks.values() for part in names}


def test_what_a_die_carries_beside_its_working_parts():
    accelerator = load_accelerator("a100-80gb")
    table = TABLES["7nm"]
    working = area_mm2(Architectures.of(accelerator), table)[0]
    assert price_accelerator_area(dataclasses.replace(accelerator, die=None), table) == working
    # 80 tensor units of 112 KiB with 256 multiply-adds, 20 vector units of 64 lanes and 256 KiB, one HBM interface; a
    # cache of 48 MiB instead of a buffer of 40; 8,192 double-precision multiply-adds.
    sram = table.sram.area_mm2(np.array([112 * 2**10, 2**18, 40 * 2**20, 48 * 2**20]))
    more = 80 * (256 * 854e-6 + sram[0]) + 20 * (64 * 3416e-6 + sram[1] + 1.0) + 16.5
    more += 2.4 * sram[3] - sram[2] + 8192 * 7514e-6
    assert price_accelerator_area(accelerator, table) == pytest.approx(working + 1.25 * more)


@pytest.mark.parametrize("name", ["5nm", "16nm", "phaze-22nm"])
def test_in_another_process_working_parts_alone_have_an_area(name):
    # Spare units and fixed functions are those of the die that was made; PHAZE's area of a chip like TPU v4 has none.
    accelerator = load_accelerator("tpu-v4")
    working = area_mm2(Architectures.of(accelerator), TABLES[name])[0]
    assert price_accelerator_area(accelerator, TABLES[name]) == working
    assert (
        price_accelerator_area(accelerator, TABLES["7nm"]) > area_mm2(Architectures.of(accelerator), TABLES["7nm"])[0]
    )


def test_sections_that_a_table_may_leave_out_cost_nothing():
    table = dataclasses.replace(
        TABLES["7nm"], control_mm2_per_vector_unit=0.0, cache_factor=1.0, interfaces_mm2=0.0, fp64_mac_mm2=0.0
    )
    parts = area_breakdown(resources(fp64_macs_per_cycle=[100.0]), table)
    assert (parts.control[0], parts.interfaces[0], parts.fp64[0]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_components_add_up_for_many_at_once(table):
    counts = np.array([1, 7, 4096])
    breakdown = area_breakdown(dataclasses.replace(resources(), tensor_count=counts), table)
    assert breakdown.total_mm2.shape == (3,)
    assert sum(breakdown.by_component().values()) == pytest.approx(breakdown.total_mm2)
    single = [area_mm2(resources(tensor_count=int(count)), table)[0] for count in counts]
    assert breakdown.total_mm2 == pytest.approx(single, rel=1e-12)


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
            "fp64_macs_per_cycle": st.integers(0, 2**16),
            "fixed_function_mm2": st.integers(0, 100),
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
    for name, table in TABLES.items():
        # PHAZE's area has neither control nor caches, links or double precision.
        more = set() if name == "phaze-22nm" else {"control", "cache", "interfaces", "fp64"}
        assert {key.split(".")[0] for key in table.sources} == more | {
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
        (
            "  overhead:",
            "  cache: {factor: 0.5, source: x}\n  overhead:",
            "cache.factor: found 0.5; allowed: at least 1",
        ),
        ("  overhead:", "  control: {area_per_vector_unit: 1 mm2}\n  overhead:", "the key 'source' is missing"),
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
