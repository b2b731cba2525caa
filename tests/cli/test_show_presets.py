"""``archplace show`` with the name of an accelerator or a cluster: what it is, can do, and is known from."""

import json
from pathlib import Path

import pytest

from archplace import arch_configs
from archplace.arch_configs import accelerator_names, cluster_names, load_cluster
from archplace.cli import main


def shown(capsys, name):
    assert main(["show", name, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_accelerator_by_hand(capsys):
    found = shown(capsys, "a100-80gb")
    # 108 multiprocessors · 4 tensor cores · 256 multiply-adds · 1.41 GHz.
    assert found["peak_flops_per_s"]["bf16"] == pytest.approx(2 * 108 * 4 * 256 * 1.41e9)
    assert found["hbm_bytes_per_s"] == 2039e9
    assert found["thermal_design_power_w"] == 400
    # Nothing slows it down here, so that products may draw more than its limit.
    assert found["unthrottled_power_w"]["bf16"] > 400 > found["static_power_w"] > 0
    assert sum(found["area_parts_mm2"].values()) == pytest.approx(found["area_mm2"])
    assert found["area_mm2"] == pytest.approx(found["published_die_mm2"], rel=0.1)
    assert "a100-80gb-selene" in found["clusters"]
    assert "LLMCompass" in found["sources"]["calibration.tensor_rate"]


def test_a_cluster_says_how_sure_predictions_are(capsys):
    found = shown(capsys, "h100-sxm-dgx")
    stated = load_cluster("h100-sxm-dgx").uncertainty
    assert (found["step_s_low"], found["step_s_high"]) == (stated.low, stated.high)
    assert found["interval_basis"] == "calibrated"
    assert [each["size"] for each in found["dimensions"]] == [8, 2048]
    assert found["software"]["fabric_rate"] == 0.848
    assert "step_s_low" not in shown(capsys, "a100-superpod")


def test_a_name_of_both_shows_both(capsys):
    chip, cluster = shown(capsys, "tpu-v5p")
    assert (chip["accelerator"], cluster["cluster"]) == ("tpu-v5p", "tpu-v5p")


@pytest.mark.parametrize("name", sorted({*accelerator_names(), *cluster_names()}))
def test_every_preset_is_explained_with_its_sources(capsys, name):
    assert main(["show", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}\n")
    _, _, sources = out.partition("\nSources\n")
    assert len(sources.splitlines()) > 5 or name == "flat-4gib"


def test_presets_in_csv_have_their_numbers(capsys):
    assert main(["show", "gaudi3", "--format", "csv"]) == 0
    assert "hbm_bytes_per_s" in capsys.readouterr().out


def test_what_is_neither_folder_nor_preset_is_an_error(capsys):
    assert main(["show", "a100-81gb"]) == 2
    assert "a100-81gb" in capsys.readouterr().err


def test_a_file_of_the_user_is_shown_like_a_preset(capsys, tmp_path):
    room = Path(arch_configs.__file__).parent
    for kind, name in (("accelerators", "mi300x"), ("clusters", "mi300x-node")):
        path = tmp_path / "mine.yaml"
        path.write_text((room / kind / f"{name}.yaml").read_text())
        assert shown(capsys, str(path)) == shown(capsys, name)
