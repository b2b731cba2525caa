"""``archplace accuracy`` and ``archplace calibrate``: measured steps in, figures and fitted values out."""

import csv
import io
import json

import pytest
import yaml

from archplace.cli import main

HEADER = (
    "id,source,hardware,n_devices,n_layers,d_model,n_heads,d_ff,vocab,seq_len,tp,dp,micro_batch,global_batch,precision,"
    "recompute,step_s"
)
# Narayanan et al. 2021 (arXiv:2104.04473), table 1, the third and fourth row.
ROWS = [
    "a,sc21,a100-80gb-selene,128,36,4096,32,16384,51200,2048,4,32,16,512,fp16,full,3.696",
    "b,sc21,a100-80gb-selene,256,40,6144,48,24576,51200,2048,8,32,8,1024,fp16,full,9.399",
]
CONTRADICTION = "c,sc21,a100-80gb-selene,100,36,4096,32,16384,51200,2048,4,32,16,512,fp16,full,3.696"


@pytest.fixture
def steps(tmp_path):
    def write(*rows):
        path = tmp_path / "steps.csv"
        path.write_text("\n".join([HEADER, *rows]) + "\n")
        return str(path)

    return write


def test_the_table_has_a_line_for_each_source(steps, capsys):
    assert main(["accuracy", steps(*ROWS)]) == 0
    out = capsys.readouterr().out
    assert "2 steps of 2 priced: coverage 100.0 %" in out
    assert "sc21" in out
    assert "Not priced" not in out


def test_json_has_every_step_with_its_stack(steps, capsys):
    assert main(["accuracy", steps(*ROWS, CONTRADICTION), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in found] == ["a", "b", "c"]
    assert sum(found[0]["stack"].values()) == pytest.approx(found[0]["predicted_step_s"])
    assert found[1]["measured_step_s"] == 9.399
    assert found[2]["predicted_step_s"] is None
    assert "n_devices is 100" in found[2]["reason"]


def test_csv_has_a_cell_for_each_part(steps, capsys):
    assert main(["accuracy", steps(*ROWS), "--format", "csv"]) == 0
    (first, _) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(first["tensor_compute_s"]) > 0


def test_the_picture_is_written_where_it_is_asked_for(steps, capsys, tmp_path):
    picture = tmp_path / "steps.svg"
    assert main(["accuracy", steps(*ROWS), "--plot", str(picture)]) == 0
    assert picture.read_text().startswith("<svg")
    assert main(["accuracy", steps(*ROWS), "--plot", str(tmp_path / "none" / "steps.svg")]) == 2
    assert "cannot be drawn: No such file" in capsys.readouterr().err


def test_nothing_priced_is_no_success(steps, capsys):
    assert main(["accuracy", steps(CONTRADICTION)]) == 3
    assert "coverage 0.0 %" in capsys.readouterr().out


def test_a_bad_file_is_a_line_and_a_code(steps, capsys):
    assert main(["accuracy", steps(ROWS[0].replace("fp16", "fp61"))]) == 2
    assert "steps.csv:2: precision: unknown precision 'fp61'" in capsys.readouterr().err


def test_a_row_that_cannot_be_read_counts_against_coverage_alone(steps, capsys):
    wrong = ROWS[1].replace("fp16", "int8")
    assert main(["accuracy", steps(ROWS[0], wrong)]) == 0
    out = capsys.readouterr().out
    assert "1 step of 2 priced: coverage 50.0 %" in out
    assert "b: precision: unknown precision 'int8'" in out
    assert main(["accuracy", steps(ROWS[0], wrong.replace("9.399", "")), "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)[1]
    assert (row["id"], row["measured_step_s"], row["predicted_step_s"]) == ("b", None, None)


def test_calibrate_prints_a_section_that_a_cluster_file_can_have(steps, capsys):
    fix = [f"--fix={name}=1" for name in ("link_rate", "fabric_rate", "attention_time", "attention_gradient_time")]
    code = main(["calibrate", steps(*ROWS), "--hold-out", "0", *fix, "--fix", "dispatch_s=5e-5"])
    assert code == 0
    section = yaml.safe_load(capsys.readouterr().out)["software"]
    assert 0.3 < section["tensor_rate"] <= 1
    assert section["dispatch"] == "50 us"
    assert "2 published steps (sc21) on a100-80gb-selene" in section["source"]["dispatch"]


def test_calibrate_can_keep_the_values_and_state_how_far_off_they_are(steps, capsys):
    rows = [ROWS[index % 2].replace(("a,", "b,")[index % 2], f"r{index},", 1) for index in range(10)]
    assert main(["calibrate", steps(*rows), "--keep"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert list(found) == ["uncertainty"]
    assert found["uncertainty"]["steps"] == 10
    assert 0.8 < found["uncertainty"]["low"] <= found["uncertainty"]["high"] < 1.25
    # Two models are too few to say anything of comparisons.
    assert "compared" not in found["uncertainty"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep", "--fix", "tensor_rate=0.8"], "fits nothing together with --keep"),
        (["--clusters", "tpu-v5p"], "no step of the file is on 'tpu-v5p'"),
        (["--fix", "magic=2"], "found 'magic'; allowed: dispatch_s, tensor_rate"),
        (["--fix", "dispatch_s"], "write NAME=VALUE with a number"),
        (["--hold-out", "1.5"], "allowed: from 0 to less than 1"),
        (["--fix", "tensor_rate=2"], "tensor_rate is 2.0, must be more than 0 and at most 1"),
    ],
)
def test_what_calibrate_cannot_do_is_said(steps, capsys, options, message):
    assert main(["calibrate", steps(*ROWS), *options]) == 2
    assert message in capsys.readouterr().err
