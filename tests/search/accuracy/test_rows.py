"""Measured steps from CSV files: what a row says, what it may leave out, and what is wrong with it."""

import math

import pytest

from archplace.arch_configs.errors import ConfigError
from archplace.search.accuracy import UnreadStep, predict, read_rows, read_steps
from archplace.workloads import Precision, Recompute

COLUMNS = (
    "id,source,hardware,n_devices,n_layers,d_model,n_heads,n_kv_heads,head_dim,d_ff,gated_mlp,n_experts,top_k,moe_d_ff,"
    "vocab,seq_len,tp,pp,vpp,cp,ep,dp,zero_stage,sequence_parallel,fused_attention,micro_batch,global_batch,precision,"
    "recompute,step_s,note"
)
# Narayanan et al. 2021 (arXiv:2104.04473), table 1, first row: 1.7 billion parameters on 32 A100.
FIRST = (
    "narayanan-0,narayanan,a100-80gb-selene,32,24,2304,24,24,96,9216,0,0,0,0,51200,2048,1,1,1,1,1,32,0,0,0,16,512,fp16,"
    "full,3.528,"
)


def read(tmp_path, *rows, columns=COLUMNS):
    path = tmp_path / "steps.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return read_steps(path)


def problems(tmp_path, *rows, columns=COLUMNS):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, *rows, columns=columns)
    return [str(problem).removeprefix(str(tmp_path / "steps.csv")) for problem in caught.value.problems]


def test_a_row_says_model_placement_and_measurement(tmp_path):
    (step,) = read(tmp_path, FIRST)
    assert (step.id, step.hardware, step.n_devices, step.step_s) == ("narayanan-0", "a100-80gb-selene", 32, 3.528)
    assert (step.d_model, step.n_heads, step.head_dim, step.vocab) == (2304, 24, 96, 51200)
    assert (step.precision, step.recompute, step.gated_mlp, step.note) == (Precision.FP16, Recompute.FULL, False, "")
    assert step.place.endswith("steps.csv:2")


def test_what_follows_from_other_columns_may_be_left_out(tmp_path):
    (step,) = read(
        tmp_path,
        "a,s,a100-80gb-selene,8,2,1024,16,,4096,1000,128,8,1,8,bf16,0.1",
        columns="id,source,hardware,n_devices,n_layers,d_model,n_heads,head_dim,d_ff,vocab,seq_len,dp,micro_batch,"
        "global_batch,precision,step_s",
    )
    assert (step.n_kv_heads, step.head_dim, step.tp, step.vpp, step.zero_stage) == (16, 64, 1, 1, 0)
    assert (step.recompute, step.sequence_parallel, step.n_experts) == (Recompute.NONE, False, 0)


def test_columns_may_stand_in_any_order_and_others_are_ignored(tmp_path):
    columns, row = ",".join(COLUMNS.split(",")[::-1]), ",".join(FIRST.split(",")[::-1])
    assert read(tmp_path, f"{row},x", columns=f"{columns},more")[0].step_s == 3.528


def test_everything_wrong_is_said_at_once_with_its_line(tmp_path):
    found = problems(
        tmp_path,
        FIRST,
        FIRST.replace("narayanan-0", "b").replace(",fp16,", ",fp61,"),
        FIRST.replace("narayanan-0", "c").replace("3.528", "-1"),
        FIRST,
    )
    assert found[0].startswith(":3: precision: unknown precision 'fp61'; did you mean 'fp16'?")
    assert found[1] == ":4: step_s: found '-1'; allowed: greater than 0"
    assert found[2] == ":5: id: found 'narayanan-0', which line 2 has; give each row an id of its own"
    assert len(found) == 3


def test_missing_columns_are_named(tmp_path):
    found = problems(tmp_path, FIRST, columns=COLUMNS.replace("step_s", "seconds").replace("d_ff", "width"))
    assert [line.split(";")[0] for line in found] == [
        ":1: d_ff: the column 'd_ff' is missing",
        ":1: step_s: the column 'step_s' is missing",
    ]


@pytest.mark.parametrize(("text", "message"), [("", "found no header"), (COLUMNS, "has no rows")])
def test_an_empty_file_is_an_error(tmp_path, text, message):
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_steps(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_steps(tmp_path / "none.csv")


def test_a_row_longer_than_the_header_is_an_error(tmp_path):
    assert problems(tmp_path, f"{FIRST},1,2") == [":2: found more cells than the 31 columns of the header"]


def test_rows_that_cannot_be_read_keep_their_places(tmp_path):
    path = tmp_path / "steps.csv"
    rows = (
        FIRST.replace("narayanan-0", "b").replace(",fp16,", ",int8,"),
        FIRST,
        FIRST.replace("narayanan-0", "").replace("3.528", "OOM"),
        FIRST,
    )
    path.write_text("\n".join([COLUMNS, *rows]) + "\n")
    found = read_rows(path)
    assert [row.id for row in found] == ["b", "narayanan-0", "line 4", "narayanan-0"]
    assert [isinstance(row, UnreadStep) for row in found] == [True, False, True, True]
    assert found[0].reason.startswith("precision: unknown precision 'int8'")
    assert (found[0].source, found[0].hardware, found[0].step_s) == ("narayanan", "a100-80gb-selene", 3.528)
    assert math.isnan(found[2].step_s)
    assert "which line 3 has" in found[3].reason
    # A file of which nothing can be read is no file of steps.
    path.write_text("\n".join([COLUMNS, rows[0]]) + "\n")
    with pytest.raises(ConfigError, match="unknown precision 'int8'"):
        read_rows(path)


def test_models_of_experts_alone_need_no_other_width(tmp_path):
    (step,) = read(tmp_path, FIRST.replace(",9216,0,0,0,0,", ",0,0,8,2,1408,"))
    assert (step.d_ff, step.moe_d_ff, step.n_experts) == (1408, 1408, 8)
    (bare,) = predict(read(tmp_path, FIRST.replace(",9216,", ",0,")))
    assert bare.reason.startswith("d_ff is 0")
