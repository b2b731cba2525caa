"""What kernels reach of an accelerator, and how they cut products, as files say it."""

import pytest

from archplace.arch_configs import NOMINAL, Architectures, Blocks, Calibration, ConfigError, load_accelerator

FILE = """\
accelerator:
  name: mine
  clock: 1 GHz
  source: a data sheet
  tensor_units:
    count: 8
    rows: 4
    cols: 8
    macs_per_element_per_cycle: {bf16: 1}
    local_buffer: 64 KiB
    local_bandwidth: 100 GB/s
    source: a data sheet
  vector_units: {count: 1, lanes: 16, local_buffer: 4 KiB, source: a data sheet}
  global_buffer: {capacity: 1 MiB, bandwidth: 1 TB/s, source: a data sheet}
  hbm: {capacity: 8 GB, bandwidth: 200 GB/s, stacks: 1, source: a data sheet}
"""
BLOCKS = "    blocks: {units: 4, tiles: [[128, 64], [64, 64]], cluster: 2, source: a library}\n"
CALIBRATION = "  calibration: {tensor_rate: 0.9, launch: 2 us, source: {tensor_rate: measured, launch: guessed}}\n"


def written(folder, *, blocks="", calibration=""):
    path = folder / "mine.yaml"
    path.write_text(FILE.replace("  vector_units:", blocks + "  vector_units:") + calibration)
    return path


def problems(path):
    with pytest.raises(ConfigError) as caught:
        load_accelerator(path)
    return [str(problem).removeprefix(str(path)) for problem in caught.value.problems]


def test_both_are_optional(tmp_path):
    found = load_accelerator(written(tmp_path))
    assert found.tensor_units.blocks is None
    assert found.calibration == NOMINAL == Calibration()
    assert (NOMINAL.tensor_rate, NOMINAL.lane_rate, NOMINAL.hbm_bandwidth, NOMINAL.launch_s) == (1, 1, 1, 0)


def test_both_are_read_with_their_sources(tmp_path):
    found = load_accelerator(written(tmp_path, blocks=BLOCKS, calibration=CALIBRATION))
    assert found.tensor_units.blocks == Blocks(units=4, tiles=((128, 64), (64, 64)), cluster=2)
    assert found.calibration == Calibration(tensor_rate=0.9, launch_s=2e-6)
    assert found.sources["calibration.tensor_rate"] == "measured"
    assert found.sources["calibration.launch"] == "guessed"
    assert found.sources["tensor_units.blocks.tiles"] == "a library"
    table = Architectures.of(found)
    assert (table.blocks, table.calibration) == (found.tensor_units.blocks, found.calibration)
    part = table.take(slice(0, 1))
    assert (part.blocks, part.calibration) == (table.blocks, table.calibration)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("tensor_rate: 0.9", "tensor_rate: 1.1", "accelerator.calibration.tensor_rate: "),
        ("tensor_rate: 0.9", "tensor_rate: 0", "accelerator.calibration.tensor_rate: "),
        ("launch: 2 us", "launch: 2 GB", "accelerator.calibration.launch: "),
        ("launch: 2 us", "start: 2 us", "accelerator.calibration.start: unknown key 'start'"),
        (", launch: guessed", "", "accelerator.calibration.source: says nothing about launch"),
        ("[64, 64]]", "[64]]", "accelerator.tensor_units.blocks.tiles"),
        ("[64, 64]]", "[64, 0]]", "accelerator.tensor_units.blocks.tiles"),
        ("[[128, 64], [64, 64]]", "[]", "accelerator.tensor_units.blocks.tiles: "),
        ("units: 4", "units: 9", "accelerator.tensor_units: found blocks of 9 units, more than the 8 that there are"),
        (", source: a library", "", "accelerator.tensor_units.blocks.source: the key 'source' is missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, before, after, said):
    path = written(tmp_path, blocks=BLOCKS.replace(before, after), calibration=CALIBRATION.replace(before, after))
    found = problems(path)
    assert any(said in problem for problem in found), found
    assert all(problem.startswith(":") for problem in found)


@pytest.mark.parametrize("name", ["a100-80gb", "a100-80gb-pcie", "h100-sxm", "b200-sxm"])
def test_presets_name_date_data_and_error_or_the_assumption(name):
    found = load_accelerator(name)
    assert found.calibration != NOMINAL
    assert found.tensor_units.blocks is not None
    assert found.tensor_units.count % found.tensor_units.blocks.units == 0
    texts = [text for key, text in found.sources.items() if key.startswith("calibration.")]
    assert len(texts) >= 4
    fitted = found.sources["calibration.tensor_rate"]
    assert ("Fitted 20" in fitted and "mean error" in fitted) or "best measured" in fitted.replace("\n", " ")
