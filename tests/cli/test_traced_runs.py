"""A trace wherever a model's name goes: plan, evaluate, search, report, certify."""

import gzip
import json
from pathlib import Path

import pytest
import yaml

from archplace.cli import main
from archplace.search.run import RunSearch, read_job
from archplace.search.runfile import load_run
from archplace.workloads.traced.traced_workload import TracedWorkload

RUNS = Path(__file__).parents[2] / "runs"
TRACE = RUNS / "traced-gpt.json.gz"
SEARCH = {
    "workload": str(RUNS / "traced-gpt-workload.yaml"),
    "space": "tiny",
    "cluster": "a100-superpod",
    "accelerators": 32,
    "placement": {"tensor_parallel": [2, 4], "microbatch": 1, "recompute": "none"},
    "budgets": {"area": "250 mm2"},
}


def write(folder, name="run.yaml", **run):
    path = folder / name
    path.write_text(yaml.safe_dump({"run": run}, sort_keys=False))
    return str(path)


def call(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "internal error" not in err
    return code, out, err


def test_a_search_from_run_file_to_certificate(tmp_path, capsys):
    run, out = write(tmp_path, **SEARCH), str(tmp_path / "out")
    code, printed, _ = call(capsys, "search", run, "--out", out, "--jobs", "1", "--format", "json")
    assert code == 0
    front = json.loads(printed)
    assert front
    assert {row["tensor_parallel"] for row in front} <= {2, 4}
    assert call(capsys, "report", out)[0] == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "traced-gpt: traced-gpt, 2,048 tokens per sequence, 16 sequences per step, bf16, adam" in page
    assert call(capsys, "show", out, str(front[0]["id"]))[0] == 0
    code, printed, _ = call(capsys, "certify", out, "--jobs", "1", "--format", "json")
    assert code == 0
    assert json.loads(printed)[0]["certified"] is True
    # another trace is another run
    text = gzip.decompress(TRACE.read_bytes())
    (tmp_path / "traced-gpt.json").write_bytes(text.replace(b'"pid":1', b'"pid":2'))
    job = (RUNS / "traced-gpt-workload.yaml").read_text().replace("traced-gpt.json.gz", "traced-gpt.json")
    (tmp_path / "job.yaml").write_text(job)
    other = write(tmp_path, "other.yaml", **{**SEARCH, "workload": "job.yaml"})
    code, _, err = call(capsys, "search", other, "--out", out)
    assert code == 2
    assert "holds a run of other inputs" in err


def test_a_run_is_stored_with_its_model(tmp_path):
    job = load_run(write(tmp_path, **SEARCH))
    (workload,) = job.workloads
    assert isinstance(workload, TracedWorkload)
    with RunSearch.start(job, tmp_path / "out") as search:
        assert search.job == job
        assert read_job(search.store) == job


def test_the_run_that_ships_is_valid(capsys):
    code, printed, _ = call(capsys, "validate", str(RUNS / "traced-gpt.yaml"), str(RUNS / "traced-gpt-workload.yaml"))
    assert code == 0
    assert "run of traced-gpt on 32 accelerators" in printed
    assert "workload, traced-gpt with 32,768 tokens per step" in printed


def test_plan_and_evaluate_take_a_trace_for_a_name(tmp_path, capsys):
    (tmp_path / "gpt.json.gz").write_bytes(TRACE.read_bytes())
    job = {"workload": "gpt.json.gz", "accelerator": "a100-80gb", "cluster": "a100-superpod", "accelerators": 4}
    placement = {"tensor_parallel": [1, 2], "microbatch": [1, 2], "schedule": "1f1b", "state_sharding": "none"}
    wide = {**job, "global_batch": 16, "sequence_length": 512}
    code, printed, _ = call(capsys, "plan", write(tmp_path, **wide, placement=placement), "--format", "json")
    assert code == 0
    found = json.loads(printed)
    assert found["workload"] == "gpt"
    assert found["sequence_length"] == 512
    single = {"tensor_parallel": 2, "microbatch": 2}
    code, printed, _ = call(capsys, "evaluate", write(tmp_path, **wide, placement=single), "--format", "json")
    assert code == 0
    refused = {"tensor_parallel": 4, "context_parallel": 2}
    code, _, err = call(capsys, "evaluate", write(tmp_path, **{**wide, "accelerators": 8}, placement=refused))
    assert code == 2
    assert "context parallel width 2 with a ring: the keys of a traced attention do not travel" in err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.json", "absent.json"),
        ("absent.et", "absent.et"),
        ("empty.json", "empty.json"),
    ],
)
def test_what_is_no_trace_is_said_where_it_is_named(tmp_path, capsys, name, message):
    (tmp_path / "empty.json").write_text("{}")
    code, _, err = call(capsys, "search", write(tmp_path, **{**SEARCH, "workload": name}), "--out", str(tmp_path / "o"))
    assert code == 2
    assert "run.yaml:2:13: run.workload" in err
    assert message in err


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        (
            {"trase": "calls.json"},
            ["the key 'trace' is missing", "unknown key 'trase'; did you mean 'trace'?"],
        ),
        ({"traced_batch": 2}, ["the key 'trace' is missing in 'workload'; add 'trace: …'"]),
    ],
)
def test_a_misspelt_trace_is_not_taken_for_a_workload_without_model(tmp_path, capsys, given, messages):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"workload": {"name": "x", **given, "global_batch": 8}}))
    code, _, err = call(capsys, "validate", write(tmp_path, **{**SEARCH, "workload": "job.yaml"}))
    assert code == 2
    assert "'model'" not in err
    for message in messages:
        assert message in err


def test_the_profiler_s_trace_is_told_from_the_observer_s(tmp_path, capsys):
    (tmp_path / "steps.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    code, _, err = call(capsys, "validate", write(tmp_path, **{**SEARCH, "workload": "steps.json"}))
    assert code == 2
    assert "steps.json: a trace of PyTorch's profiler" in err
    assert "calls.RANK.json.gz" in err
