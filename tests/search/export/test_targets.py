"""Other targets: run files that price the same, traces with durations, descriptions of the accelerator."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from export_helpers import PLACEMENTS, candidate_of, run_file

from archplace.arch_configs.errors import ConfigError
from archplace.cli import main
from archplace.costmodel import Allowance
from archplace.search.export import run_points
from archplace.search.export.candidates import of_plan
from archplace.search.export.run_file import Named, run_file_text
from archplace.search.planfile import load_plan
from archplace.workloads.traces import NodeKind, load_trace

CLUSTER = """
cluster:
  name: two-by-two
  dimensions:
    - {name: node, topology: switch, size: 2, bandwidth: 300 GB/s, latency: 700 ns, source: of no other place}
    - {name: fabric, topology: switch, size: 2, bandwidth: 25 GB/s, latency: 2 us, source: of no other place}
"""
RUN = """
run:
  workload: opt-350m
  space: {space}
  cluster: {cluster}
  accelerators: 4
  global_batch: 16
  placement: {{pipeline_parallel: [1, 2], microbatch: 2}}
  baseline: a100-80gb
"""
SPACE = """
space:
  name: few
  technology: 7nm
  clock: [1 GHz]
  source: a test
  tensor_units:
    count: [4, 8]
    rows: [128]
    cols: [128]
    macs_per_element_per_cycle: {bf16: 1, fp16: 1}
    local_buffer: {per_element: 64 B, at_least: 64 KiB}
    local_bandwidth: {per_cycle_and_edge_element: 4 B}
    source: a test
  vector_units: {count: [2], lanes: 1024, local_buffer: {per_lane: 256 B}, source: a test}
  global_buffer: {capacity: [32 MiB], bandwidth: {per_cycle: 4 KiB}, source: a test}
  hbm: {stacks: [4], capacity_per_stack: 16 GB, bandwidth_per_stack: 400 GB/s, source: a test}
  budget: {area: 900 mm2, source: a test}
"""


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_run_file_prices_the_candidate_again(tmp_path, name):
    candidate = candidate_of(tmp_path, name)
    path = tmp_path / "exported.yaml"
    path.write_text(run_file_text(candidate, Named()))
    again = of_plan(load_plan(path))
    assert again.predicted.step_s == pytest.approx(candidate.predicted.step_s, rel=1e-12)
    assert again.placement.held == candidate.placement.held
    assert again.placement.policies == candidate.placement.policies
    # What is exported of it is the same file, but for where it comes from.
    first, second = (yaml.safe_load(run_file_text(each, Named()))["run"] for each in (candidate, again))
    assert {key: first[key] for key in first if key != "accelerator"} == {
        key: second[key] for key in second if key != "accelerator"
    }


def test_a_run_file_says_what_memory_is_left_out(tmp_path):
    devices, placement, others = PLACEMENTS["four devices"]
    memory = {"fragmentation": 0.1, "reserved": 2_000_000_000}
    candidate = of_plan(load_plan(run_file(tmp_path, devices, placement, {**others, "memory": memory})))
    assert candidate.placement.allowance != Allowance()
    assert yaml.safe_load(run_file_text(candidate, Named()))["run"]["memory"] == memory


def test_stages_that_recompute_differently_are_listed(tmp_path):
    devices, placement, others = PLACEMENTS["four devices"]
    stages = {"stage_recompute": ["full", "none"]}
    candidate = of_plan(load_plan(run_file(tmp_path, devices, placement, {**others, **stages})))
    run = yaml.safe_load(run_file_text(candidate, Named()))["run"]
    assert run["stage_recompute"] == ["full", "none"]
    assert "recompute" not in run["placement"]


def test_a_job_of_a_trace_is_exported_as_any_other(tmp_path, capsys):
    workload = Path(__file__).parents[3] / "runs" / "traced-gpt-workload.yaml"
    job = run_file(tmp_path, 8, {"tensor_parallel": 2, "pipeline_parallel": 2}, {"workload": str(workload)})
    assert main(["export", str(job), "--to", "astra-sim", "--out", str(tmp_path / "case"), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["replayed_step_s"] == pytest.approx(row["simulator_step_s"], rel=0.05)
    path = tmp_path / "again.yaml"
    assert main(["export", str(job), "--to", "yaml", "--out", str(path)]) == 0
    capsys.readouterr()
    assert of_plan(load_plan(path)).predicted.step_s == pytest.approx(row["step_s"], rel=1e-12)


@pytest.fixture(scope="module", name="run_folder")
def a_small_search(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    cluster, space, run = folder / "cluster.yaml", folder / "space.yaml", folder / "run.yaml"
    cluster.write_text(CLUSTER)
    space.write_text(SPACE)
    run.write_text(RUN.format(space=space, cluster=cluster))
    assert main(["search", str(run), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return folder


def test_points_of_a_run_become_run_files(run_folder, tmp_path, capsys):
    out, cluster = str(run_folder / "out"), str(run_folder / "cluster.yaml")
    capsys.readouterr()
    assert main(["show", out, "--format", "json"]) == 0
    best = json.loads(capsys.readouterr().out)[0]
    point = str(best["id"])
    assert main(["export", out, point, "--to", "yaml", "--out", str(tmp_path / "a.yaml")]) == 2
    assert "the cluster two-by-two of the run is none of the built-in ones" in capsys.readouterr().err
    given = ["--cluster", cluster]
    assert main(["export", out, point, "baseline", "--to", "yaml", "--out", str(tmp_path / "all"), *given]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "all" / f"design-{point}.yaml"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_s"] == pytest.approx(best["step_s"], rel=1e-12)
    assert (tmp_path / "all" / "design-baseline.yaml").is_file()
    # A cluster of the same name that is another one.
    other = tmp_path / "cluster.yaml"
    other.write_text(CLUSTER.replace("25 GB/s", "50 GB/s"))
    out_file = str(tmp_path / "b.yaml")
    assert main(["export", out, point, "--to", "yaml", "--out", out_file, "--cluster", str(other)]) == 2
    assert "is another cluster than the two-by-two that the run had" in capsys.readouterr().err


def test_points_that_cannot_be_exported(run_folder, tmp_path, capsys):
    out = str(run_folder / "out")
    for ids, said in (
        ([], "none given; list the points with: archplace show"),
        (["99"], "allowed are 0 to 1 and 'baseline'"),
        (["1", "1"], "give each once"),
    ):
        assert main(["export", out, *ids, "--to", "astra-sim", "--out", str(tmp_path / "case")]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "case").exists()
    assert main(["compare", out]) == 2
    assert "no point of this run was simulated yet" in capsys.readouterr().err


def test_a_point_of_other_prices_is_stale(run_folder, tmp_path, capsys, monkeypatch):
    out = str(run_folder / "out")
    assert main(["show", out, "--format", "json"]) == 0
    point = str(json.loads(capsys.readouterr().out)[0]["id"])
    real = run_points._evaluation

    def dearer(placement, cache, folder, name):
        found = real(placement, cache, folder, name)
        return replace(found, step_s=found.step_s * 1.01)

    monkeypatch.setattr(run_points, "_evaluation", dearer)
    assert main(["export", out, point, "--to", "astra-sim", "--out", str(tmp_path / "case")]) == 2
    assert f"design {point} is stale: opt-350m is stored with a step of" in capsys.readouterr().err
    assert not (tmp_path / "case").exists()


def test_simulated_points_stand_beside_their_predictions(run_folder, tmp_path, capsys):
    out = str(run_folder / "out")
    main(["show", out, "--format", "json"])
    point = str(json.loads(capsys.readouterr().out)[0]["id"])
    case = tmp_path / "case"
    assert main(["export", out, point, "--to", "astra-sim", "--out", str(case), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    binary = tmp_path / "AstraSim_Analytical_Congestion_Unaware"
    finish = json.loads((case / "manifest.json").read_text())["predicted"]["finish_ns"]
    lines = "".join(f"echo 'sys[{npu}] finished, {ns} cycles, exposed'\n" for npu, ns in enumerate(finish))
    binary.write_text(f"#!/bin/sh\n{lines}")
    binary.chmod(0o755)
    assert main(["simulate", str(case), "--binary", str(binary)]) == 0
    capsys.readouterr()
    assert main(["compare", out, "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["id"] == point
    assert found["simulated_s"] == found["replayed_s"] == pytest.approx(row["replayed_step_s"])
    assert abs(found["vs_predicted"]) < 0.02
    # What was noted changes nothing of the result.
    assert main(["certify", out]) == 0


def test_plain_traces_keep_time(tmp_path, capsys):
    job = run_file(tmp_path, *PLACEMENTS["four devices"])
    out = tmp_path / "traces"
    assert main(["export", str(job), "--to", "chakra", "--out", str(out), "--granularity", "operator"]) == 0
    capsys.readouterr()
    assert sorted(each.name for each in out.iterdir()) == ["groups.json", "manifest.json", "traces"]
    nodes = load_trace(out / "traces" / "npu.0.et").nodes
    computing = [node for node in nodes if node.kind is NodeKind.COMPUTE]
    assert not any(node.value("num_ops") for node in computing)
    micros = sum(node.duration_micros for node in computing)
    exact = sum(node.value("duration_ns") for node in computing)
    assert all(node.duration_micros >= 1 for node in computing)
    short = sum(node.value("duration_ns") < 1000 for node in computing)
    assert abs(micros - exact / 1000) <= 1 + short
    # They are no case, and may be replaced by another export.
    assert main(["compare", str(out)]) == 2
    assert main(["export", str(job), "--to", "chakra", "--out", str(out), "--force"]) == 0


class _Loader(yaml.SafeLoader):
    pass


for _tag in ("!Container", "!Component"):
    _Loader.add_constructor(_tag, lambda loader, node: loader.construct_mapping(node, deep=True))


def test_the_description_for_mappers_has_the_rates_of_the_accelerator(tmp_path, capsys):
    job = run_file(tmp_path, *PLACEMENTS["four devices"])
    out = tmp_path / "arch.yaml"
    assert main(["export", str(job), "--to", "timeloop", "--out", str(out)]) == 0
    assert main(["export", str(job), "--to", "timeloop", "--out", str(out)]) == 2
    assert "exists; replace it with --force" in capsys.readouterr().err
    text = out.read_text()
    nodes = {node["name"]: node for node in yaml.load(text, Loader=_Loader)["architecture"]["nodes"]}
    cycle_s = nodes["accelerator"]["attributes"]["global_cycle_seconds"]
    macs = 1
    for name in ("tensor_unit", "row", "column", "product"):
        (size,) = nodes[name]["spatial"].values()
        macs *= size
    # H100: 989 TFLOP/s of bf16, 3.35 TB/s, 80 GB, 50 MiB (NVIDIA H100 data sheet and white paper).
    assert 2 * macs / cycle_s == pytest.approx(989e12, rel=1e-3)
    hbm, buffer = nodes["hbm"]["attributes"], nodes["global_buffer"]["attributes"]
    assert hbm["shared_bandwidth"] * hbm["datawidth"] / 8 / cycle_s == pytest.approx(3.35e12, rel=1e-5)
    assert hbm["width"] * hbm["depth"] / 8 == 80e9
    assert buffer["width"] * buffer["depth"] / 8 == 50 * 2**20
    assert "vector units of 128 lanes are left out" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "yaml", "--granularity", "layer"], "--granularity: means nothing with --to yaml"),
        (["--to", "timeloop", "--nodes", "5", "--cluster", "x"], "--nodes, --cluster: means nothing"),
        (["--to", "astra-sim", "--workload", "x"], "--workload: means nothing with --to astra-sim"),
        (["--to", "astra-sim", "--nodes", "0"], "--nodes: found 0"),
        (["--to", "yaml", "--cluster", "nonsense"], "--cluster: "),
        (["--to", "nonsense"], "invalid choice"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, capsys, options, said):
    job = run_file(tmp_path, *PLACEMENTS["four devices"])
    assert main(["export", str(job), "--out", str(tmp_path / "out"), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_is_not_exported(tmp_path, capsys):
    job = run_file(tmp_path, 4, {"pipeline_parallel": 2, "tensor_parallel": 2}, {"workload": "llama2-70b"})
    assert main(["export", str(job), "--to", "astra-sim", "--out", str(tmp_path / "case")]) == 3
    assert "GB, and a device has 80.0 GB; what does not fit is not exported" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="multiply to the number of accelerators"):
        of_plan(load_plan(run_file(tmp_path, 4, {"pipeline_parallel": 3, "data_parallel": 1}, {})))
