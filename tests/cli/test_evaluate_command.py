"""``archplace evaluate``: where the step time and the memory of one placement go, and why it cannot be."""

import csv
import io
import json

import pytest
import yaml

from archplace.cli import main
from archplace.search.strategy.evaluate import STEP_PARTS
from archplace.workloads import load_workload

BASE = {"workload": "llama2-7b", "accelerator": "a100-80gb", "cluster": "a100-superpod", "accelerators": 32}
PLAIN = {"tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 4, "state_sharding": "optimizer"}


def write(folder, placement=PLAIN, **keys):
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({"run": {**BASE, "placement": placement, **keys}}, sort_keys=False))
    return str(path)


def evaluate(capsys, path, *options):
    code = main(["evaluate", path, *options])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "internal error" not in err
    return code, out, err


def document(capsys, path, *options):
    code, out, _ = evaluate(capsys, path, "--format", "json", *options)
    return code, json.loads(out)


PLACEMENTS = {
    "plain": PLAIN,
    "gpipe": {"pipeline_parallel": 2, "schedule": "gpipe", "recompute": "full"},
    "interleaved": {"pipeline_parallel": 4, "schedule": "interleaved", "virtual_stages": 2},
    "zero bubble": {"tensor_parallel": 4, "pipeline_parallel": 8, "schedule": "zb-h1"},
    "dual pipe": {"tensor_parallel": 2, "pipeline_parallel": 4, "schedule": "dualpipe"},
    "sharded": {"state_sharding": "zero-3", "shard_group": 8, "recompute": "selective"},
    "exposed": {**PLAIN, "overlap": []},
    "offloaded": {**PLAIN, "offload": "all"},
    "context": {"context_parallel": 2, "context_exchange": "all_gather", "tensor_parallel": 2, "pipeline_parallel": 2},
}


@pytest.fixture(params=PLACEMENTS, name="found")
def one_of_many(request, tmp_path, capsys):
    _, found = document(capsys, write(tmp_path, PLACEMENTS[request.param], global_batch=256), "--simulate")
    return found


def test_parts_are_those_of_a_step_and_add_up_to_it(found):
    assert tuple(found["parts_s"]) == STEP_PARTS
    assert sum(found["parts_s"].values()) == pytest.approx(found["step_s"], rel=1e-9)
    assert all(seconds >= -1e-9 * found["step_s"] for seconds in found["parts_s"].values())
    exposed = found["exposed_communication_by_kind_s"]
    assert sum(exposed.values()) == pytest.approx(found["exposed_communication_s"])
    assert exposed.items() <= found["parts_s"].items()
    assert {"pipeline bubble", "recomputation", "tensor compute", "HBM"} & exposed.keys() == set()


def test_memory_of_a_stage_is_the_sum_of_its_items(found):
    for stage in found["stages"]:
        assert sum(stage["parts_bytes"].values()) == pytest.approx(stage["memory_bytes"])
        assert stage["fits"] == (stage["short_bytes"] == 0)
        assert stage["short_bytes"] == pytest.approx(max(0.0, stage["memory_bytes"] - found["hbm_bytes"]))
    assert found["memory_bytes"] == max(stage["memory_bytes"] for stage in found["stages"])
    assert found["fits"] == all(stage["fits"] for stage in found["stages"])


def test_layers_are_those_of_the_model(found):
    counts = {}
    for stage in found["stages"]:
        for kind, count in stage["layers"].items():
            counts[kind] = counts.get(kind, 0) + count
    # A device of a pipeline that is entered at both ends holds the layers of two stages.
    times = 2 if found["placement"]["schedule"] == "dualpipe" else 1
    assert counts == {"embedding": times, "block": 32 * times, "head": times}


def test_rates_and_utilisation_follow_from_the_step_time(found):
    workload = load_workload("llama2-7b")
    # 108 multiprocessors · 4 tensor cores · 256 multiply-adds per cycle at 1.41 GHz.
    peak = 2 * 108 * 4 * 256 * 1.41e9 * 32
    tokens = 256 * workload.sequence_length
    assert found["samples_per_s"] == pytest.approx(256 / found["step_s"])
    assert found["tokens_per_s"] == pytest.approx(tokens / found["step_s"])
    assert found["tokens_per_s_per_accelerator"] == pytest.approx(tokens / found["step_s"] / 32)
    flops = workload.model.flops_per_token(workload.sequence_length) * tokens
    assert found["mfu"] == pytest.approx(flops / (found["step_s"] * peak))
    assert set(found["definitions"]) == {"mfu", "hfu"}


def test_full_recomputation_executes_a_third_more(tmp_path, capsys):
    """A forward pass is a third of forward and backward together (Korthikanti et al. 2022, section 5)."""
    ratios = []
    for policy in ("none", "full"):
        _, found = document(capsys, write(tmp_path, {**PLAIN, "recompute": policy}))
        ratios.append(found["hfu"] / found["mfu"])
        assert (found["parts_s"]["recomputation"] > 0) == (policy == "full")
    # All layers but the head are recomputed, whose share of the FLOPs is a few percent.
    assert ratios[1] / ratios[0] == pytest.approx(4 / 3, rel=0.02)


def test_the_simulation_is_the_pipeline_of_the_step(found):
    """What follows the last microbatch is no part of the pipeline."""
    tail = ("gradient reduction", "parameter gathering", "optimizer step")
    pipeline_s = found["simulated_step_s"] - sum(found["parts_s"][part] for part in tail)
    simulated = found["simulation"]
    assert simulated["pipeline_s"] == pytest.approx(pipeline_s, rel=1e-9)
    for device in simulated["devices"]:
        seconds = device["computing_s"] + device["sending_s"] + device["waiting_s"]
        assert seconds == pytest.approx(simulated["pipeline_s"])
    assert len(simulated["devices"]) == found["placement"]["pipeline_parallel"]
    # The search's closed form is close to it, at least for stages as even as these.
    assert found["simulated_step_s"] == pytest.approx(found["step_s"], rel=0.1)


def test_the_text_answers_first_and_shows_the_stack_and_the_memory(tmp_path, capsys):
    code, out, _ = evaluate(capsys, write(tmp_path), "--simulate")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("llama2-7b on 32 × a100-80gb in a100-superpod: batch ")
    assert lines[1] == "tp2+sp pp4 dp4 mbs1 1f1b shard-optimizer"
    assert lines[3].startswith("It fits: the fullest devices, of stage 0, need ")
    for heading in (
        "Time of a step: ",
        "Communication that nothing hides: ",
        "Memory per device by stage (GB), HBM 80 GB",
    ):
        assert any(line.startswith(heading) for line in lines)
    assert any("█" in line for line in lines)
    assert any(line.startswith("Pipeline by event simulation: ") for line in lines)
    assert lines[-2].startswith("MFU: model FLOPs of a step")
    assert lines[-1].startswith("HFU: ")


def test_formats_say_the_same(tmp_path, capsys):
    path = write(tmp_path)
    _, found = document(capsys, path)
    assert yaml.safe_load(evaluate(capsys, path, "--format", "yaml")[1]) == found
    (row,) = csv.DictReader(io.StringIO(evaluate(capsys, path, "--format", "csv")[1]))
    assert float(row["step_s"]) == found["step_s"]
    assert float(row["tensor_parallel_communication_s"]) == found["parts_s"]["tensor-parallel communication"]
    assert row["strategy"] == found["strategy"]


def test_layers_and_policies_of_stages_are_taken_as_given(tmp_path, capsys):
    path = write(
        tmp_path, {"pipeline_parallel": 4}, stages=[7, 9, 9, 9], stage_recompute=["full", "none", "none", "none"]
    )
    _, found = document(capsys, path)
    assert [sum(stage["layers"].values()) for stage in found["stages"]] == [7, 9, 9, 9]
    assert [stage["recompute"] for stage in found["stages"]] == ["full", "none", "none", "none"]


def test_every_layer_of_the_chain_can_be_a_stage(tmp_path, capsys):
    """T5 has an embedding and 24 blocks on either side, and a head; DeepSeek-V3 one more block than its 61."""
    t5 = {"workload": "t5-11b", "accelerators": 51, "global_batch": 51, "cluster": "a100-superpod"}
    for stages, expected in ((51, 0), (52, 2)):
        path = write(tmp_path, {"pipeline_parallel": stages, "recompute": "full"}, **{**t5, "accelerators": stages})
        assert evaluate(capsys, path, "--format", "json")[0] == expected


def test_no_cut_is_better_than_the_one_that_is_found(tmp_path, capsys):
    _, best = document(capsys, write(tmp_path, {"pipeline_parallel": 2}))
    for first in (14, 16, 17, 19):
        _, found = document(capsys, write(tmp_path, {"pipeline_parallel": 2}, stages=[first, 34 - first]))
        assert found["step_s"] >= best["step_s"] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        ({"tensor_parallel": 8, "pipeline_parallel": 8, "data_parallel": 2}, "= 128 devices, but there are 32"),
        ({"pipeline_parallel": 5}, "5 = 30 devices, but there are 32"),
        ({"context_parallel": 64}, "context 64 x data 1 x pipeline 1 = 64 devices, but there are 32"),
        ({"tensor_parallel": 32, "data_parallel": 2}, "tensor 32 x context 1 x data 2 x pipeline 1 = 64 devices"),
        ({"pipeline_parallel": 32, "schedule": "interleaved", "virtual_stages": 2}, "64 parts need at least as many"),
        ({"pipeline_parallel": 4, "schedule": "interleaved"}, "interleaved needs at least 2 virtual stages"),
        ({"pipeline_parallel": 4, "virtual_stages": 2}, "1f1b runs one virtual stage per device; found 2"),
        ({"sequence_parallel": True}, "which has 1 device"),
        ({"expert_parallel": 4}, "llama2-7b has no experts"),
        ({"state_sharding": "zero-3", "shard_group": 3}, "groups of 3 replicas, which do not divide the 32"),
        ({**PLAIN, "data_parallel": 1, "pipeline_parallel": 16}, "context 1 x data 1 are one: share none"),
        ({"microbatch": 3}, "microbatch 3 does not divide the global batch of 1024"),
        ({"tensor_parallel": 2, "tensor_overlap_pieces": 3}, "3 overlap pieces"),
        ({"schedule": "dualpipe"}, "dualpipe needs an even number of stages; found 1"),
        ({"pipeline_parallel": 8, "schedule": "dualpipe", "microbatch": 32}, "dualpipe needs at least 2 microbatches"),
    ],
)
def test_refused_placements_say_why_with_numbers(placement, reason, tmp_path, capsys):
    code, out, err = evaluate(capsys, write(tmp_path, placement, global_batch=1024))
    assert (code, out) == (2, "")
    assert "job.yaml:" in err
    assert "run.placement: " in err
    assert reason in err


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"accelerators": 64, "placement": {"pipeline_parallel": 64}}, "64 stages need at least as many layers"),
        ({"sequence_length": 1000, "placement": {"context_parallel": 16}}, "does not divide the 1000 tokens"),
        ({"accelerators": 8192}, "has 1 to 4,480"),
        ({"global_batch": 24, "placement": {}}, "24 sequences does not divide over data 32 x microbatch 1"),
        ({"placement": {"tensor_parallel": [1, 2]}}, "run.placement.tensor_parallel: found 2 values"),
        ({"placement": {"pipeline_parallel": 2}, "stages": [16, 16]}, "34 (1 embedding + 32 block + 1 head)"),
        ({"placement": {"expert_parallel": 2}, "stages": [34]}, "llama2-7b has no experts"),
        (
            {"placement": {"pipeline_parallel": 2, "schedule": "interleaved", "virtual_stages": 2}, "stages": [17, 17]},
            "interleaved deals the layers out evenly",
        ),
    ],
)  # fmt: skip
def test_refused_runs_say_why_with_numbers(keys, reason, tmp_path, capsys):
    code, out, err = evaluate(capsys, write(tmp_path, **keys))
    assert (code, out) == (2, "")
    assert reason in err


def test_memory_that_is_short_is_told_by_stage_with_what_helps(tmp_path, capsys):
    path = write(tmp_path, {**PLAIN, "hbm": "10 GB"}, global_batch=64)
    code, out, _ = evaluate(capsys, path)
    assert code == 3
    assert "It does not fit: stage 0 needs " in out
    assert "of 10 GB, " in out
    assert "What follows is what it would take if it did." in out
    code, found = document(capsys, path)
    assert code == 3
    assert found["fits"] is False
    assert found["remedies"]
    for remedy in found["remedies"]:
        changes = dict(change.split(": ") for change in remedy["change"].split("; "))
        code, helped = document(capsys, write(tmp_path, {**PLAIN, "hbm": "10 GB", **changes}, global_batch=64))
        assert code == 0
        assert helped["step_s"] == pytest.approx(remedy["step_s"])


@pytest.mark.parametrize(("stages", "told"), [(2, ""), (1, ": too little")])
def test_what_is_offloaded_is_told_beside_what_hosts_have(stages, told, tmp_path, capsys):
    placement = {"tensor_parallel": 4, "pipeline_parallel": stages, "data_parallel": 1, "offload": "all"}
    keys = {"workload": "llama3-70b", "accelerators": 4 * stages, "global_batch": 64}
    path = write(tmp_path, placement, **keys)
    stages_found = document(capsys, path)[1]["stages"]
    most = max(sum(stage["host_bytes"].values()) for stage in stages_found) / 1e9
    _, out, _ = evaluate(capsys, path)
    assert f"  and up to {most:.4g} GB for each device in its host, which has 250 GB{told}\n" in out


def test_a_capacity_below_the_weights_of_a_single_layer(tmp_path, capsys):
    """A block of Llama 2 7B has 202 million parameters of 2 bytes, before gradients and states."""
    placement = {"pipeline_parallel": 32, "recompute": "full", "hbm": "300 MB"}
    code, found = document(capsys, write(tmp_path, placement, memory={"reserved": "1 MiB"}))
    assert code == 3
    assert not any(stage["fits"] for stage in found["stages"])
    assert all(stage["short_bytes"] > 0 for stage in found["stages"])


@pytest.mark.parametrize("options", [["--format", "xml"], ["--best", "3"], []])
def test_mistakes_in_the_command_line(options, tmp_path, capsys):
    arguments = [write(tmp_path), *options] if options else []
    assert main(["evaluate", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err
