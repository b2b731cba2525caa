"""``archplace plan``: does it fit, what is best, what became of the rest, and what would help."""

import csv
import io
import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from archplace.cli import main
from archplace.search.plan_tables import refusal_kinds, runs_text
from archplace.workloads import load_workload

BASE = {"workload": "llama2-7b", "accelerator": "a100-80gb", "cluster": "a100-superpod", "accelerators": 16}
FEW = {"tensor_parallel": [2, 4], "microbatch": [1, 2], "schedule": ["1f1b", "interleaved"], "virtual_stages": 2}


def write(folder, **keys):
    path = folder / "job.yaml"
    run = {**BASE, "placement": FEW, **keys}
    path.write_text(yaml.safe_dump({"run": run}, sort_keys=False))
    return str(path)


def plan(capsys, path, *options):
    code = main(["plan", path, *options])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "internal error" not in err
    return code, out, err


def document(capsys, path, *options):
    code, out, _ = plan(capsys, path, "--format", "json", *options)
    return code, json.loads(out)


def test_the_answer_comes_first_then_the_best_then_the_rest(tmp_path, capsys):
    code, out, _ = plan(capsys, write(tmp_path), "--best", "3")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("llama2-7b on 16 × a100-80gb in a100-superpod: batch ")
    assert lines[2].startswith("It fits: ")
    assert "of 80 GB on the fullest device" in lines[2]
    assert "Fitted to measured steps, or near kin: a100-80gb-jeanzay" in lines[3]
    assert [line.split()[0] for line in lines[5:9]] == ["#", "1", "2", "3"]
    assert "No strategy that is not listed takes less than" in out
    assert "Refused, by kind of reason" in out


def test_figures_follow_from_the_step_time(tmp_path, capsys):
    _, found = document(capsys, write(tmp_path))
    workload = load_workload("llama2-7b")
    # 108 multiprocessors · 4 tensor cores · 256 multiply-adds per cycle at 1.41 GHz.
    peak = 2 * 108 * 4 * 256 * 1.41e9 * 16
    assert found["fits"] is True
    for row in found["best"]:
        assert row["samples_per_s"] == pytest.approx(workload.global_batch / row["step_s"])
        assert row["tokens_per_s_per_accelerator"] == pytest.approx(workload.tokens_per_step / row["step_s"] / 16)
        assert row["mfu"] == pytest.approx(workload.flops_per_step / (row["step_s"] * peak))
        assert row["memory_bytes"] <= 80e9
        degrees = row["placement"]
        assert degrees["tensor_parallel"] * degrees["data_parallel"] * degrees["pipeline_parallel"] == 16
        assert row["microbatches"] * degrees["data_parallel"] * degrees["microbatch"] == workload.global_batch


def test_strategies_are_counted_once_and_come_by_their_time(tmp_path, capsys):
    _, found = document(capsys, write(tmp_path))
    others = found["others"]
    assert others["possible"] == others["slower_by_bound"] + others["evaluated"] + others["short_of_memory"]
    assert others["refused"] == sum(kind["combinations"] for kind in found["refused"])
    times = [row["step_s"] for row in found["best"]]
    assert times == sorted(times)
    assert times[-1] <= others["no_other_below_s"] * (1 + 1e-9)
    # A strategy's name does not say in which order its groups lie.
    assert len({(row["strategy"], *row["placement"]["device_order"]) for row in found["best"]}) == len(times)


def test_the_first_few_are_the_beginning_of_more(tmp_path, capsys):
    path = write(tmp_path)
    few, many = document(capsys, path, "--best", "2")[1], document(capsys, path, "--best", "5")[1]
    assert few["best"] == many["best"][:2]


def test_evaluate_takes_every_strategy_as_it_is_printed_and_agrees(tmp_path, capsys):
    path = write(tmp_path, placement={**FEW, "recompute": ["none", "full"], "hbm": "30 GB"}, global_batch=64)
    _, found = document(capsys, path, "--best", "6")
    schedules = set()
    for row in found["best"]:
        keys = {key: row[key] for key in ("placement", "stages", "stage_recompute") if key in row}
        schedules.add(keys["placement"]["schedule"])
        keys["placement"] = {**keys["placement"], "hbm": "30 GB"}
        again = write(tmp_path, global_batch=64, **keys)
        assert main(["evaluate", again, "--format", "json"]) == 0
        one = json.loads(capsys.readouterr().out)
        assert one["step_s"] == pytest.approx(row["step_s"], rel=1e-12)
        assert one["memory_bytes"] == pytest.approx(row["memory_bytes"], rel=1e-12)
        assert one["mfu"] == pytest.approx(row["mfu"], rel=1e-12)
        assert one["strategy"] == row["strategy"]
    assert schedules == {"1f1b", "interleaved"}


def test_formats_say_the_same(tmp_path, capsys):
    path = write(tmp_path)
    _, found = document(capsys, path)
    _, out, _ = plan(capsys, path, "--format", "yaml")
    assert yaml.safe_load(out) == found
    _, out, _ = plan(capsys, path, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == len(found["best"])
    for row, wanted in zip(rows, found["best"], strict=True):
        assert float(row["step_s"]) == wanted["step_s"]
        assert row["strategy"] == wanted["strategy"]
        assert int(row["tensor_parallel"]) == wanted["placement"]["tensor_parallel"]
        assert row["stage_recompute"] == runs_text(wanted["stage_recompute"])


SMALL = {
    "tensor_parallel": 4,
    "pipeline_parallel": [1, 2],
    "microbatch": 1,
    "schedule": "1f1b",
    "recompute": "none",
    "state_sharding": "none",
    "hbm": "12 GB",
}


def test_where_nothing_fits_the_answer_is_what_lacks_and_what_helps(tmp_path, capsys):
    path = write(tmp_path, placement=SMALL)
    code, out, _ = plan(capsys, path)
    assert code == 3
    assert out.splitlines()[2].startswith("It does not fit: none of ")
    assert "its fullest device lacks " in out
    code, found = document(capsys, path)
    assert code == 3
    assert found["fits"] is False
    assert found["best"] == []
    assert found["others"]["short_of_memory"] == found["others"]["possible"] > 0
    assert found["closest"]["hbm_needed_bytes"] == pytest.approx(12e9 + found["closest"]["short_bytes"])
    assert plan(capsys, path, "--format", "csv")[:2] == (3, "\n")


def test_the_capacity_that_is_said_to_be_needed_is_enough_and_nearly_necessary(tmp_path, capsys):
    _, found = document(capsys, write(tmp_path, placement={**SMALL, "pipeline_parallel": 1}))
    needed = found["closest"]["hbm_needed_bytes"]
    enough = write(tmp_path, placement={**SMALL, "pipeline_parallel": 1, "hbm": int(needed) + 1})
    assert document(capsys, enough)[0] == 0
    # A single stage holds all layers, however they are dealt out.
    short = write(tmp_path, placement={**SMALL, "pipeline_parallel": 1, "hbm": int(needed * 0.999)})
    assert document(capsys, short)[0] == 3


def test_what_is_said_to_help_helps(tmp_path, capsys):
    _, found = document(capsys, write(tmp_path, placement=SMALL))
    assert found["remedies"]
    for remedy in found["remedies"]:
        changes = dict(change.split(": ") for change in remedy["change"].split("; "))
        _, helped = document(capsys, write(tmp_path, placement={**SMALL, **changes}))
        assert helped["best"][0]["step_s"] == pytest.approx(remedy["step_s"])
        assert helped["best"][0]["strategy"] == remedy["strategy"]


ONE_STAGE = {"pipeline_parallel": 1, "tensor_parallel": 2, "microbatch": 1}


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        ({"tensor_parallel": 3}, "does not divide"),
        ({**ONE_STAGE, "schedule": "dualpipe"}, "dualpipe needs an even number of stages; found 1"),
        ({"pipeline_parallel": 16, "schedule": "interleaved", "virtual_stages": 5}, "found 32; use fewer stages"),
        ({"expert_parallel": 4}, "has no experts"),
    ],
)
def test_where_everything_is_refused_the_reasons_are_the_answer(placement, reason, tmp_path, capsys):
    code, out, _ = plan(capsys, write(tmp_path, placement=placement))
    assert code == 3
    assert "Nothing is possible: every combination is refused." in out
    assert reason in out


def test_plan_chooses_stages_itself(tmp_path, capsys):
    code, out, err = plan(capsys, write(tmp_path, stages=[34], stage_recompute=["full"]))
    assert (code, out) == (2, "")
    assert "run.stages: plan chooses the stages itself" in err
    assert "run.stage_recompute: plan chooses the stages itself" in err


@pytest.mark.parametrize("options", [["--best", "0"], ["--best", "few"], ["--format", "xml"], []])
def test_mistakes_in_the_command_line(options, tmp_path, capsys):
    arguments = [write(tmp_path), *options] if options else []
    assert main(["plan", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "a: [", "\x00", "- 1\n", "{}", "run: {}", "run: 3", "run: {space: tiny}"])
@pytest.mark.parametrize("command", ["plan", "evaluate"])
def test_files_that_are_not_what_they_should_be(command, content, tmp_path, capsys):
    path = tmp_path / "input.yaml"
    path.write_text(content)
    assert main([command, str(path)]) == 2
    error = capsys.readouterr().err
    assert "input.yaml" in error
    assert "Traceback" not in error
    assert "internal error" not in error


def test_validate_knows_these_run_files(tmp_path, capsys):
    path = write(tmp_path)
    assert main(["validate", path]) == 0
    assert capsys.readouterr().out == f"{path}: ok (run of llama2-7b on 16 a100-80gb)\n"
    assert main(["validate", write(tmp_path, cluster="a100-superpot")]) == 2
    assert "did you mean 'a100-superpod'" in capsys.readouterr().err


def test_planning_imports_no_report_and_no_simulator(tmp_path):
    code = (
        "import sys, archplace.cli; code = archplace.cli.main(['plan', sys.argv[1]]); "
        "slow = {'plotly', 'simpy', 'pulp', 'archplace.search.report', 'matplotlib'} & set(sys.modules); "
        "sys.exit(f'imported {slow}' if slow else code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, write(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stderr


@given(st.dictionaries(st.sampled_from(["a 1", "a 2", "a 10", "b 1", "b 1.5 and 3", "c"]), st.integers(1, 9)))
def test_kinds_of_refusals_keep_every_combination(refused):
    kinds = refusal_kinds(refused)
    assert sum(kind.combinations for kind in kinds) == sum(refused.values())
    assert sum(kind.reasons for kind in kinds) == len(refused)
    assert all(kind.example in refused for kind in kinds)
    assert [kind.combinations for kind in kinds] == sorted((kind.combinations for kind in kinds), reverse=True)
    # Reasons of one kind differ in numbers only, so that no kind begins like another here.
    assert len({kind.example.split()[0] + str(kind.example.count("and")) for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("values", "text"),
    [([], ""), (["full"], "full"), (["full"] * 3 + ["none"] * 5, "full ×3, none ×5"), ([1, 2, 1], "1, 2, 1")],
)
def test_equal_neighbours_are_said_once(values, text):
    assert runs_text(values) == text
