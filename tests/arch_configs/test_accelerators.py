"""The built-in accelerators against published figures, and what accelerator files must contain."""

from dataclasses import asdict

import pytest

from archplace.arch_configs import accelerator_names, load_accelerator, load_technology
from archplace.arch_configs.errors import ConfigError

# Published peaks without sparsity, in TFLOP/s: Google Cloud's documentation of TPU v4, v5e, v5p and v6e (fp8 of v6e:
# JAX's tpu_info.py); NVIDIA's data sheets of A100, H100, H200, HGX B200 and GB200 NVL72 (halves of what they give with
# sparsity); AMD's CDNA 3 white paper; the AWS Neuron documentation of Trainium2; Intel's talk at Hot Chips 2024.
_A100 = {"bf16": 312.0, "fp16": 312.0, "tf32": 156.0, "fp32": 19.5}
_H100 = {"bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "tf32": 494.7, "fp32": 67.0}
PEAK_TFLOP_PER_S = {
    "tpu-v4": {"bf16": 275.0},
    "tpu-v5e": {"bf16": 197.0},
    "tpu-v5p": {"bf16": 459.0},
    "tpu-v6e": {"bf16": 918.0, "fp8": 918.0},
    "a100-40gb": _A100,
    "a100-40gb-pcie": _A100,
    "a100-80gb": _A100,
    "a100-80gb-pcie": _A100,
    "h100-sxm": _H100,
    "h100-96gb-500w": _H100,
    "h200-sxm": _H100,
    "b200-sxm": {
        "bf16": 2250.0,
        "fp16": 2250.0,
        "fp8": 4500.0,
        "mxfp8": 4500.0,
        "nvfp4": 9000.0,
        "tf32": 1125.0,  # The data sheet has 2.2 PFLOP/s with sparsity, half of 4.5 for bf16 rounded down.
        "fp32": 75.0,
    },
    "gb200": {
        "bf16": 2500.0,
        "fp16": 2500.0,
        "fp8": 5000.0,
        "mxfp8": 5000.0,
        "nvfp4": 10000.0,
        "tf32": 1250.0,
        "fp32": 80.0,
    },
    "v100-sxm": {"fp16": 125.0, "fp32": 15.7},
    "tpu-v3": {"bf16": 123.0},
    "mi210": {"bf16": 181.0, "fp16": 181.0, "fp32": 45.3},
    "mi300x": {"bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "tf32": 653.7, "fp32": 163.4},
    "trainium2": {"bf16": 667.0, "fp16": 667.0, "tf32": 667.0, "fp8": 1299.0, "fp32": 181.0},
    "gaudi3": {"bf16": 1835.0, "fp8": 1835.0},
}

# Published single-precision vector rates: NVIDIA and AMD data sheets (19.5, 67 and 163.4 TFLOP/s, a multiply-add
# counted twice); Intel at Hot Chips 2024 (28.7 TFLOP/s in bf16, half of that in fp32); TPU v4: 4.3 TFLOP/s.
VECTOR_FLOP_PER_S = {
    "tpu-v4": (4.3e12, 1),
    "a100-80gb": (19.5e12, 2),
    "h100-sxm": (62e12, 2),
    "mi300x": (163.4e12, 2),
    "gaudi3": (14.35e12, 2),
}

# Capacity and bandwidth of the same documents; 96 GiB for Trainium2.
HBM = {
    "tpu-v4": (32e9, 1.2e12),
    "tpu-v5e": (16e9, 0.819e12),
    "tpu-v5p": (95e9, 2.765e12),
    "tpu-v6e": (32e9, 1.638e12),
    "a100-40gb": (40e9, 1.555e12),
    "a100-40gb-pcie": (40e9, 1.555e12),
    "a100-80gb": (80e9, 2.039e12),
    "a100-80gb-pcie": (80e9, 1.935e12),
    "h100-sxm": (80e9, 3.35e12),
    "h200-sxm": (141e9, 4.8e12),
    "b200-sxm": (180e9, 8e12),
    "gb200": (186e9, 8e12),
    "mi300x": (192e9, 5.3e12),
    "trainium2": (96 * 2**30, 2.9e12),
    "gaudi3": (128e9, 3.67e12),
}

FILE = """\
accelerator:
  name: mine
  clock: 1 GHz
  source: a data sheet
  tensor_units:
    count: 2
    rows: 4
    cols: 8
    macs_per_element_per_cycle: {bf16: 1}
    local_buffer: 64 KiB
    local_bandwidth: 100 GB/s
    source: {count: A, rows: B, cols: C, macs_per_element_per_cycle: D, local_buffer: E, local_bandwidth: F}
  vector_units: {count: 1, lanes: 16, local_buffer: 4 KiB, source: a data sheet}
  global_buffer: {capacity: 1 MiB, bandwidth: 1 TB/s, source: a data sheet}
  hbm: {capacity: 8 GB, bandwidth: 200 GB/s, stacks: 1, source: a data sheet}
"""


def problems(text, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_accelerator(path)
    return [str(problem).removeprefix(str(path)) for problem in caught.value.problems]


def test_every_preset_is_known_here():
    assert set(accelerator_names()) == set(PEAK_TFLOP_PER_S)


@pytest.mark.parametrize(("name", "peaks"), PEAK_TFLOP_PER_S.items())
def test_units_times_rate_times_clock_is_the_published_peak(name, peaks):
    accelerator = load_accelerator(name)
    tensor = accelerator.tensor_units
    elements_per_s = tensor.count * tensor.rows * tensor.cols * accelerator.clock_hz
    reached = {
        precision: 2 * elements_per_s * rate / 1e12 for precision, rate in tensor.macs_per_element_per_cycle.items()
    }
    assert reached == pytest.approx(peaks, rel=0.005)


@pytest.mark.parametrize(("name", "figures"), VECTOR_FLOP_PER_S.items())
def test_lanes_times_clock_is_the_published_vector_rate(name, figures):
    rate, flop_per_operation = figures
    accelerator = load_accelerator(name)
    lanes = accelerator.vector_units.count * accelerator.vector_units.lanes
    # H100's 67 TFLOP/s are at its 1.98 GHz boost clock; at the 1.83 GHz of its tensor peak they are 62.
    assert flop_per_operation * lanes * accelerator.clock_hz == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(("name", "figures"), HBM.items())
def test_hbm_is_the_published_one(name, figures):
    hbm = load_accelerator(name).hbm
    assert (hbm.capacity_bytes, hbm.bandwidth_bytes_per_s) == figures
    assert not hbm.separate_ports


@pytest.mark.parametrize("name", PEAK_TFLOP_PER_S)
def test_every_number_of_a_preset_has_a_source(name):
    accelerator = load_accelerator(name)
    numbers = {"clock"} | {
        f"{section}.{key}"
        for section, keys in {
            "tensor_units": "count rows cols macs_per_element_per_cycle local_buffer local_bandwidth",
            "vector_units": "count lanes local_buffer",
            "global_buffer": "capacity bandwidth",
            "hbm": "capacity bandwidth stacks",
        }.items()
        for key in keys.split()
    }
    optional = {"die_area": accelerator.die_area_mm2, "thermal_design_power": accelerator.thermal_design_power_w}
    numbers |= {key for key, value in optional.items() if value is not None}
    if accelerator.die is not None:
        names = {"global_buffer_bytes": "global_buffer", "fixed_function_mm2": "fixed_function"}
        given = {key for key, value in asdict(accelerator.die).items() if value}
        numbers |= {f"die.{names.get(key, key)}" for key in given - {"cached"}}
    # What was fitted has its own tests.
    fitted = {key for key in accelerator.sources if key.startswith(("calibration.", "tensor_units.blocks"))}
    assert set(accelerator.sources) - fitted == numbers
    assert all(len(source.strip()) > 5 for source in accelerator.sources.values())


def test_a_file_of_the_user(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    accelerator = load_accelerator(str(path))
    assert accelerator.name == "mine"
    assert accelerator.tensor_units.local_buffer_bytes == 65536
    assert accelerator.sources["tensor_units.cols"] == "C"
    assert accelerator.sources["hbm.stacks"] == "a data sheet"
    assert accelerator.technology is None


def test_a_number_without_a_source_is_an_error(tmp_path):
    text = FILE.replace(", cols: C", "")
    text = text.replace("lanes: 16, local_buffer: 4 KiB, source: a data sheet", "lanes: 16, local_buffer: 4 KiB")
    text = text.replace("stacks: 1, source: a data sheet", "stacks: 1, source: ' '")
    assert problems(text, tmp_path) == [
        ":12:5: accelerator.tensor_units.source: says nothing about cols; add each with its source",
        ":13:3: accelerator.vector_units.source: the key 'source' is missing in 'accelerator.vector_units'; add "
        "'source: …'",
        ":15:65: accelerator.hbm.source: found an empty text; say where the numbers come from",
    ]


def test_a_source_of_something_else_is_an_error(tmp_path):
    (problem,) = problems(FILE.replace("cols: C", "cols: C, columns: X"), tmp_path)
    assert problem == (
        ":12:42: accelerator.tensor_units.source.columns: names 'columns', which is no number of this section; "
        "allowed: count, rows, cols, macs_per_element_per_cycle, local_buffer, local_bandwidth"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("200 GB/s", "-200 GB/s", "hbm.bandwidth: found '-200 GB/s', which is negative"),
        ("200 GB/s", ".nan", "hbm.bandwidth: found nan"),
        ("rows: 4", "rows: 0", "tensor_units.rows: found 0; allowed: at least 1"),
        ("rows: 4", "rows: 4.5", "tensor_units.rows: found 4.5; allowed: a whole number"),
        ("{bf16: 1}", "{}", "tensor_units.macs_per_element_per_cycle: found 0 entries; allowed: at least 1"),
        (
            "1 GHz",
            "1 GHz\n  technology: 7mn",
            "accelerator.technology: unknown technology table '7mn'; did you mean '7nm'?",
        ),
        ("lanes: 16", "lanes: 16, lane: 3", "unknown key 'lane'; did you mean 'lanes'?"),
    ],
)
def test_wrong_values(old, new, message, tmp_path):
    assert any(message in problem for problem in problems(FILE.replace(old, new), tmp_path))


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown accelerator .*'tpu_v4'; did you mean 'tpu-v4'\?"):
        load_accelerator("tpu_v4")


def test_the_table_of_a_preset_prices_its_formats():
    priced = [chip for chip in map(load_accelerator, accelerator_names()) if chip.technology is not None]
    assert len(priced) > 10
    for chip in priced:
        energies = load_technology(chip.technology).need_energy().mac_j
        assert set(chip.tensor_units.macs_per_element_per_cycle) <= set(energies), chip.name
