"""Design spaces: the enumeration against brute force, its cost, and what space files must contain."""

import time
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from archplace.arch_configs import (
    Architectures,
    ConfigError,
    DesignSpace,
    InfeasibleError,
    Parameter,
    load_accelerator,
    load_space,
    load_technology,
    space_names,
)
from archplace.arch_configs import space as space_module
from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration
from archplace.arch_configs.space import EDGE, ELEMENTS, PARAMETERS

TABLES = {name: load_technology(name) for name in ("phaze-22nm", "7nm")}

DEFAULTS = {
    "tensor_units.count": (4,),
    "vector_units.count": (2,),
    "tensor_units.rows": (16,),
    "tensor_units.cols": (32,),
    "tensor_units.local_buffer": (65536,),
    "vector_units.lanes": (64,),
    "vector_units.local_buffer": (4096,),
    "global_buffer.capacity": (2**20,),
    "hbm.stacks": (1,),
    "clock": (1e9,),
    "tensor_units.local_bandwidth": (1e11,),
    "global_buffer.bandwidth": (1e12,),
    "hbm.capacity": (16e9,),
    "hbm.bandwidth": (4e11,),
}
COLUMNS = {
    "tensor_units.count": "tensor_count",
    "vector_units.count": "vector_count",
    "tensor_units.rows": "tensor_rows",
    "tensor_units.cols": "tensor_cols",
    "tensor_units.local_buffer": "tensor_local_bytes",
    "vector_units.lanes": "vector_lanes",
    "vector_units.local_buffer": "vector_local_bytes",
    "global_buffer.capacity": "global_buffer_bytes",
    "hbm.stacks": "hbm_stacks",
    "clock": "clock_hz",
    "tensor_units.local_bandwidth": "tensor_local_bytes_per_s",
    "global_buffer.bandwidth": "global_buffer_bytes_per_s",
    "hbm.capacity": "hbm_bytes",
    "hbm.bandwidth": "hbm_bytes_per_s",
}


def make_space(values, *, table="phaze-22nm", per=(), area_max=None, fraction=0.0, waive=False):
    coupled = dict(per)
    return DesignSpace(
        name="made",
        parameters=tuple(
            Parameter(
                name=name,
                values=tuple(float(v) for v in (DEFAULTS | values)[name]),
                per=coupled.get(name, ()),
                at_least=1024.0 if name in coupled and name.endswith("buffer") else 0.0,
            )
            for name in PARAMETERS
        ),
        macs_per_element_per_cycle={"bf16": 1.0},
        hbm_separate_ports=False,
        technology=TABLES[table],
        area_max_mm2=area_max,
        area_min_fraction=fraction,
        waive_min_for_single_units=waive,
        sources={},
    )


def brute_force(space):
    """Every combination in order, one at a time, with its area from scalar arithmetic."""
    technology = space.technology
    rows = []
    for combination in product(*(parameter.values for parameter in space.parameters)):
        written = dict(zip(PARAMETERS, combination, strict=True))
        point = {}

        def value(name, written=written, point=point):
            if name == ELEMENTS:
                return value("tensor_units.rows") * value("tensor_units.cols")
            if name == EDGE:
                return value("tensor_units.rows") + value("tensor_units.cols")
            if name not in point:
                parameter = next(parameter for parameter in space.parameters if parameter.name == name)
                result = written[name]
                for other in parameter.per:
                    result *= value(other)
                point[name] = max(result, parameter.at_least)
            return point[name]

        point = {name: value(name) for name in PARAMETERS}

        def sram(size):
            return float(technology.sram.area_mm2(np.array([size]))[0])

        area = technology.overhead_factor * (
            point["tensor_units.count"]
            * (value(ELEMENTS) * technology.array_element_mm2 + sram(point["tensor_units.local_buffer"]))
            + point["vector_units.count"]
            * (
                point["vector_units.lanes"] * technology.vector_lane_mm2
                + sram(point["vector_units.local_buffer"])
                + technology.control_mm2_per_vector_unit
            )
            + sram(point["global_buffer.capacity"])
            + point["hbm.stacks"] * technology.hbm_phy_mm2_per_stack
            + technology.interfaces_mm2
        )
        single = point["tensor_units.count"] == 1 or point["vector_units.count"] == 1
        budget = space.area_max_mm2
        if budget is not None:
            small = area < space.area_min_fraction * budget and not (single and space.waive_min_for_single_units)
            if small or area > budget:
                continue
        rows.append((*(point[name] for name in PARAMETERS), area))
    return rows


def table_of(architectures):
    columns = [getattr(architectures, COLUMNS[name]).tolist() for name in PARAMETERS]
    return list(zip(*columns, strict=True))


def values_of(choices):
    return st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique=True)


COUPLINGS = [
    ("vector_units.lanes", ("tensor_units.cols",), [1]),
    ("tensor_units.cols", ("tensor_units.rows",), [1]),
    ("tensor_units.local_buffer", (ELEMENTS,), [16, 48]),
    ("vector_units.local_buffer", ("vector_units.lanes",), [16]),
    ("tensor_units.local_bandwidth", ("clock", EDGE), [2, 4]),
    ("global_buffer.bandwidth", ("clock",), [1024, 4096]),
    ("hbm.capacity", ("hbm.stacks",), [16e9, 24e9]),
    ("hbm.bandwidth", ("hbm.stacks",), [8e11]),
]


@st.composite
def spaces(draw):
    values = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "tensor_units.count": values_of([1, 2, 3, 8, 64]),
                "vector_units.count": values_of([1, 2, 5, 16]),
                "tensor_units.rows": values_of([2, 6, 16, 128]),
                "tensor_units.cols": values_of([2, 12, 128]),
                "vector_units.lanes": values_of([3, 64, 512]),
                "global_buffer.capacity": values_of([2**20, 3 * 2**20, 2**25]),
                "hbm.stacks": values_of([1, 2, 4]),
                "clock": values_of([0.9e9, 1.05e9, 1.4e9]),
            },
        )
    )
    per = {}
    for name, others, factors in draw(st.lists(st.sampled_from(COUPLINGS), unique_by=lambda item: item[0])):
        per[name], values[name] = others, factors
    return make_space(
        values,
        table=draw(st.sampled_from(list(TABLES))),
        per=per.items(),
        area_max=draw(st.one_of(st.none(), st.floats(1, 300))),
        fraction=draw(st.sampled_from([0.0, 0.3, 0.9])),
        waive=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(space=spaces(), block=st.sampled_from([3, 64, 1 << 17]))
def test_enumeration_equals_brute_force(space, block):
    if space.n_raw > 3000:
        return
    expected = brute_force(space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space_module, "_BLOCK", block)
        if not expected:
            with pytest.raises(InfeasibleError, match="no architecture of the design space 'made' has an area of"):
                space.enumerate()
            return
        found = space.enumerate()
    assert [row[:-1] for row in expected] == table_of(found)
    assert found.area_mm2 == pytest.approx([row[-1] for row in expected], rel=1e-12)


def test_the_same_space_gives_the_same_bytes():
    one, two = load_space("modern").enumerate(), load_space("modern").enumerate()
    for name in (*COLUMNS.values(), "area_mm2"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()


def test_the_first_parameter_varies_slowest():
    found = make_space({"tensor_units.count": (2, 1), "hbm.stacks": (3, 1), "clock": (2e9, 1e9)}).enumerate()
    assert table_of(found) == [
        row[:-1]
        for row in brute_force(make_space({"tensor_units.count": (2, 1), "hbm.stacks": (3, 1), "clock": (2e9, 1e9)}))
    ]
    assert found.tensor_count.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]
    assert found.hbm_stacks.tolist() == [3, 3, 1, 1] * 2
    assert found.clock_hz.tolist() == [2e9, 1e9] * 4


def test_constant_columns_take_no_memory():
    found = make_space({"tensor_units.count": tuple(range(1, 100))}).enumerate()
    assert found.tensor_count.strides == (8,)
    for name in ("clock_hz", "hbm_bytes", "tensor_rows", "global_buffer_bytes_per_s"):
        assert getattr(found, name).strides == (0,)
    assert found.tensor_macs_per_element["bf16"].strides == (0,)


MILLION = {
    "tensor_units.count": range(1, 51),
    "vector_units.count": range(1, 21),
    "tensor_units.rows": range(1, 11),
    "tensor_units.cols": range(1, 11),
    "global_buffer.capacity": range(2**20, 11 * 2**20, 2**20),
}


def measured(space):
    tracemalloc.start()
    started = time.process_time()
    found = space.enumerate()
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found, seconds, peak


def test_a_million_combinations_take_memory_for_those_that_remain():
    few = make_space(MILLION, area_max=3.0)
    found, seconds, peak = measured(few)
    assert few.n_raw == 1_000_000
    assert 0 < len(found) < 50_000
    # What stays, and what a block of 2¹⁷ needs on the way: far below one column of all combinations per parameter.
    one_block = space_module._BLOCK * 8 * 40
    assert peak < one_block + 40 * 8 * len(found)
    # The time per combination is that of a small space: no more than linear.
    small = make_space(MILLION | {"tensor_units.count": range(1, 6)}, area_max=3.0)
    _, seconds_small, _ = measured(small)
    assert seconds < 10 * seconds_small * 3 + 0.5


def test_parameters_without_area_are_crossed_after_the_budget():
    free = {"clock": range(10**9, 10**9 + 1000), "hbm.bandwidth": range(1, 1001)}
    space = make_space(free | {"tensor_units.count": (1, 4, 10**6)}, area_max=100.0)
    assert space.n_raw == 3_000_000
    assert len(space.enumerate()) == 2_000_000


def test_too_many_survivors_are_refused_before_they_fill_the_memory():
    free = {"clock": range(1, 10_001), "hbm.bandwidth": range(1, 10_001)}
    with pytest.raises(ConfigError, match=r"has 100,000,000 architectures within its area budget; at most 20,000,000"):
        make_space(free).enumerate()


def test_nothing_under_the_budget_says_what_is_nearest():
    space = make_space({"tensor_units.count": (8, 4), "global_buffer.capacity": (2**21, 2**20)}, area_max=1.5)
    smallest = min(row[-1] for row in brute_force(make_space({}, area_max=None)))
    with pytest.raises(InfeasibleError) as caught:
        space.enumerate()
    assert str(caught.value) == (
        f"no architecture of the design space 'made' has an area of 0 to 1.5 mm2: the smallest of 4 combinations has "
        f"{smallest:.6g} mm2 (tensor_units.count 4, vector_units.count 2, tensor_units.rows 16, tensor_units.cols 32, "
        "tensor_units.local_buffer 64 KiB, vector_units.lanes 64, vector_units.local_buffer 4 KiB, "
        "global_buffer.capacity 1 MiB, hbm.stacks 1); raise the budget or allow smaller values"
    )


def test_nothing_above_the_lower_limit_says_so():
    with pytest.raises(InfeasibleError, match=r"area of 900 to 1000 mm2: the largest of .*; lower the budget"):
        make_space({}, area_max=1000.0, fraction=0.9).enumerate()


def test_a_gap_around_the_budget_says_so():
    space = make_space({"tensor_units.count": (1, 10_000)}, area_max=1000.0, fraction=0.9)
    with pytest.raises(InfeasibleError, match=r"the smallest of 2 .*; the largest has .* mm2, and none lies between"):
        space.enumerate()


@pytest.mark.parametrize("name", space_names())
def test_a_space_survives_being_stored_as_json(name):
    space = load_space(name)
    adapter = TypeAdapter(DesignSpace)
    again = adapter.validate_json(adapter.dump_json(space))
    assert again == space
    assert repr(again) == repr(space)
    assert again.enumerate().area_mm2.tolist() == space.enumerate().area_mm2.tolist()


def test_modern_has_what_phaze_has_not():
    space = load_space("modern")
    found = space.enumerate()
    assert 10_000 <= space.n_raw <= 100_000
    assert set(found.hbm_stacks.tolist()) >= {1, 2, 3, 4, 5, 6, 8}
    assert (found.hbm_bytes % found.hbm_stacks == 0).all()
    assert (found.hbm_bytes_per_s == 819e9 * found.hbm_stacks).all()
    assert len(set(found.clock_hz.tolist())) > 1
    assert len(set((found.global_buffer_bytes_per_s / found.clock_hz).tolist())) > 1
    assert not (found.vector_lanes == found.tensor_cols).any()
    assert 192 in found.tensor_cols
    assert 12 in found.tensor_count
    assert (found.area_mm2 <= 850).all()
    assert (found.area_mm2 >= 425).all()


def test_tiny_is_a_few_hundred():
    assert 100 <= len(load_space("tiny").enumerate()) <= 500


SPACE = """\
space:
  name: mine
  technology: 7nm
  clock: {from: 0.8 GHz, to: 1.2 GHz, step: 0.1 GHz}
  source: x
  tensor_units:
    count: [1, 3]
    rows: {powers_of_two: [8, 32]}
    cols: {equal_to: tensor_units.rows}
    macs_per_element_per_cycle: {bf16: 1}
    local_buffer: {per_element: [16 B, 32 B], at_least: 4 KiB}
    local_bandwidth: {per_cycle_and_edge_element: 4 B}
    source: x
  vector_units: {count: 1, lanes: {from: 10, to: 25, step: 5}, local_buffer: 4 KiB, source: x}
  global_buffer: {capacity: 1 MiB, bandwidth: 1 TB/s, source: x}
  hbm: {stacks: [1, 2], capacity_per_stack: 8 GB, bandwidth: 1 TB/s, source: x}
"""


def loaded(text, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_space(path)


def problems(text, tmp_path):
    with pytest.raises(ConfigError) as caught:
        loaded(text, tmp_path)
    return [str(problem).removeprefix(str(tmp_path / "mine.yaml")) for problem in caught.value.problems]


def test_a_file_of_the_user_without_a_budget(tmp_path):
    space = loaded(SPACE, tmp_path)
    found = space.enumerate()
    assert space.n_raw == len(found) == 5 * 2 * 3 * 2 * 4 * 2
    assert sorted(set(found.clock_hz.tolist())) == [0.8e9, 0.9e9, 1.0e9, 1.1e9, 1.2e9]
    assert (found.tensor_cols == found.tensor_rows).all()
    assert sorted(set(found.tensor_rows.tolist())) == [8, 16, 32]
    assert sorted(set(found.vector_lanes.tolist())) == [10, 15, 20, 25]
    assert sorted(set(found.tensor_local_bytes.tolist())) == [4096, 8192, 16384, 32768]
    assert (found.tensor_local_bytes_per_s == 8.0 * found.tensor_rows * found.clock_hz).all()
    assert (found.hbm_bytes == 8_000_000_000 * found.hbm_stacks).all()


KERNELS = """\
    blocks: {units: 2, tiles: [[128, 64], [64, 64]], source: x}
"""
CALIBRATION = """\
  calibration: {tensor_rate: 0.8, launch: 2 us, source: x}
"""


def test_kernels_hold_on_every_architecture(tmp_path):
    plain = loaded(SPACE, tmp_path)
    assert (plain.blocks, plain.calibration) == (None, NOMINAL)
    space = loaded(SPACE.replace("  vector_units", KERNELS + "  vector_units") + CALIBRATION, tmp_path)
    found = space.enumerate()
    assert found.blocks == Blocks(units=2, tiles=((128, 64), (64, 64)))
    assert found.calibration == Calibration(tensor_rate=0.8, launch_s=2e-6)
    assert found.take(slice(0, 1)).blocks == found.blocks
    assert space.sources["calibration.tensor_rate"] == "x"


def test_kernels_of_an_accelerator_stand_for_blocks_and_calibration(tmp_path):
    known = load_accelerator("h100-sxm")
    space = loaded(SPACE.replace("  clock", "  kernels_of: h100-sxm\n  clock"), tmp_path)
    assert (space.blocks, space.calibration) == (known.tensor_units.blocks, known.calibration)
    both = SPACE.replace("  clock", "  kernels_of: h100-sxm\n  clock") + CALIBRATION
    assert any("it stands for both" in problem for problem in problems(both, tmp_path))
    unknown = SPACE.replace("  clock", "  kernels_of: h100-sxn\n  clock")
    assert any("did you mean 'h100-sxm'" in problem for problem in problems(unknown, tmp_path))


def test_the_gpus_have_the_h100_among_them():
    # Four tensor cores of a multiprocessor as one unit: the same rates, buffers and kernels.
    found, chip = load_space("gpu").enumerate(), Architectures.of(load_accelerator("h100-sxm"))
    assert found.calibration == chip.calibration
    assert found.blocks is not None
    assert found.blocks.tiles == chip.blocks.tiles
    same = (
        (4 * found.tensor_count == chip.tensor_count)
        & (found.tensor_rows * found.tensor_cols == 4 * chip.tensor_rows * chip.tensor_cols)
        & (found.clock_hz == chip.clock_hz)
        & (found.tensor_local_bytes == 4 * chip.tensor_local_bytes)
        & np.isclose(found.tensor_local_bytes_per_s, 4 * chip.tensor_local_bytes_per_s)
        & (found.vector_count * found.vector_lanes == chip.vector_count * chip.vector_lanes)
        & (found.global_buffer_bytes == chip.global_buffer_bytes)
        & np.isclose(found.global_buffer_bytes_per_s, chip.global_buffer_bytes_per_s)
        & np.isclose(found.hbm_bytes_per_s, chip.hbm_bytes_per_s)
    )
    assert same.sum() == 1


def test_a_budget_given_as_an_architecture(tmp_path):
    budget = "  budget: {area_of: {tensor_units: 3, rows: 16, cols: 16, tensor_buffer: 4 KiB, vector_units: 1, lanes: "
    text = SPACE + budget + "10, global_buffer: 1 MiB, hbm_stacks: 1}, source: x}\n"
    space = loaded(text, tmp_path)
    found = space.enumerate()
    chip = (found.tensor_count == 3) & (found.tensor_rows == 16) & (found.tensor_local_bytes == 4096)
    chip &= (found.vector_lanes == 10) & (found.hbm_stacks == 1)
    assert set(found.area_mm2[chip].tolist()) == {space.area_max_mm2} == {found.area_mm2.max()}


def test_a_budget_of_an_architecture_that_is_not_fully_told(tmp_path):
    budget = (
        "  budget: {area_of: {tensor_units: 3, rows: 16, cols: 16, vector_units: 1, global_buffer: 1 MiB}, source: x}"
    )
    (problem,) = problems(SPACE + budget, tmp_path)
    assert problem == (
        ":17:12: space.budget.area_of: the parameter 'tensor_units.local_buffer' has several values; say which is meant"
    )


def test_a_technology_table_of_the_user_beside_the_space(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "technology:\n"
        "  name: own\n"
        "  array_element: {area: 1 mm2, source: x}\n"
        "  vector_lane: {area: 1 mm2, source: x}\n"
        "  sram: {fixed: 0 mm2, per_sqrt_byte: 0 mm2, per_byte: 1 um2, source: x}\n"
        "  hbm_phy: {area_per_stack: 0 mm2, source: x}\n"
        "  overhead: {factor: 1, source: x}\n"
    )
    space = loaded(SPACE.replace("technology: 7nm", "technology: own.yaml"), tmp_path)
    assert space.technology.name == "own"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[1, 3]", "[1, 3, 1]", ":7:5: space.tensor_units.count: found 1 more than once"),
        ("[1, 3]", "[1, -3]", ":7:16: space.tensor_units.count[1]: found -3; allowed: at least 1"),
        ("[1, 3]", "[]", ":7:5: space.tensor_units.count: found 0 entries; allowed: at least 1"),
        ("[1, 3]", "many", ":7:12: space.tensor_units.count: found the text 'many'; allowed: a whole number"),
        ("[8, 32]", "[8, 33]", ":8:5: space.tensor_units.rows: found [8, 33]; allowed: two powers of two"),
        ("[8, 32]", "[32, 8]", ":8:5: space.tensor_units.rows: found [32, 8]; allowed: two powers of two"),
        ("powers_of_two", "power_of_2", "unknown key 'power_of_2'; did you mean 'powers_of_two'?"),
        ("to: 1.2 GHz", "to: 0.2 GHz", ":4:3: space.clock: found 'to' 2e+08, which is below 'from' 8e+08"),
        ("step: 0.1 GHz", "step: 0.1 Hz", "allowed: a step that gives at most 10,000 values"),
        ("step: 0.1 GHz", "stop: 0.1 GHz", ":4:39: space.clock.stop: unknown key 'stop'; did you mean 'step'?"),
        ("tensor_units.rows}", "tensor_units.row}", "did you mean 'tensor_units.rows'? allowed: tensor_units.count"),
        ("tensor_units.rows}", "tensor_units.cols}", "found tensor_units.cols equal to tensor_units.cols"),
        ("per_element:", "per_lane:", ":11:20: space.tensor_units.local_buffer.per_lane: unknown key 'per_lane'"),
        ("capacity_per_stack: 8 GB", "capacity: 8 GB, capacity_per_stack: 8 GB", "needs exactly one of 'capacity' and"),
        (
            "bandwidth: 1 TB/s, source: x}\n",
            "source: x}\n",
            "needs exactly one of 'bandwidth' and 'bandwidth_per_stack'",
        ),
        ("technology: 7nm", "technology: 7mn", "unknown technology table '7mn'; did you mean '7nm'?"),
        ("{bf16: 1}", "{bf16: .nan}", "macs_per_element_per_cycle.bf16: found nan"),
        ("    source: x\n", "    source: {count: x}\n", "says nothing about rows, cols, macs_per_element_per_cycle"),
    ],
)
def test_wrong_files(old, new, message, tmp_path):
    found = problems(SPACE.replace(old, new), tmp_path)
    assert any(message in problem for problem in found), found


def test_a_space_that_nobody_can_look_through_is_refused(tmp_path):
    text = SPACE.replace("[1, 3]", "{from: 1, to: 10000, step: 1}").replace("to: 25, step: 5", "to: 9000, step: 1")
    text = text.replace("[1, 2]", "{from: 1, to: 5000, step: 1}")
    (problem,) = problems(text, tmp_path)
    assert "combinations; at most 2,000,000,000 are allowed: take fewer values" in problem


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'phaze'"):
        load_space("phase")
