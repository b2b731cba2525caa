"""Run files of plan and evaluate: every key says what it should, and everything wrong is said at once."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import load_accelerator
from archplace.arch_configs.errors import ConfigError
from archplace.costmodel import Offload, SharedStates, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.placement_fields import PlacementFields
from archplace.search.planfile import load_plan
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.strategy import DEFAULT_ORDER, Overlap, Strategy
from archplace.workloads import Axis, ContextKind, LayerSharding, Recompute

BASE = {"workload": "llama2-7b", "accelerator": "a100-80gb", "cluster": "a100-superpod", "accelerators": 64}
PRESETS = Path(__file__).parents[2] / "arch_configs" / "accelerators"


def load(folder, **keys):
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({"run": {**BASE, **keys}}, sort_keys=False))
    return load_plan(path)


def problems(folder, text):
    path = folder / "job.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_plan(path)
    return [str(problem) for problem in caught.value.problems]


def refused(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return [str(problem) for problem in caught.value.problems]


def test_a_file_without_placement_searches_the_default_axes(tmp_path):
    run = load(tmp_path)
    assert run.name == "job"
    assert run.axes == Axes()
    assert run.problem.accelerators == 64
    assert run.problem.accelerator == load_accelerator("a100-80gb")


@pytest.mark.parametrize(
    ("workload", "accelerators", "keys", "expert", "context"),
    [
        ("mixtral-8x7b", 64, {}, (1, 2, 4, 8), (1,)),
        ("deepseek-v3", 64, {}, (1, 2, 4, 8, 16, 32, 64), (1,)),
        ("deepseek-v3", 8, {}, (1, 2, 4, 8), (1,)),
        ("llama3-8b", 64, {"sequence_length": 32768}, (1,), (1, 2, 4)),
        ("llama3-8b", 64, {"sequence_length": 1 << 20}, (1,), (1, 2, 4, 8, 16)),
    ],
)
def test_experts_and_long_sequences_are_spread_unless_it_is_said_how(
    workload, accelerators, keys, expert, context, tmp_path
):
    keys |= {"workload": workload, "accelerators": accelerators, "accelerator": "h100-sxm", "cluster": "h100-superpod"}
    axes = load(tmp_path, **keys).axes
    assert axes == Axes(expert=expert, context=context)
    assert load(tmp_path, **keys, placement={"expert_parallel": 1, "context_parallel": 1}).axes == Axes()


OUTER_TENSOR = (Axis.DATA, Axis.PIPELINE, Axis.CONTEXT, Axis.TENSOR)

KEYS = [
    ("tensor_parallel", [2, 4], "tensor", (2, 4)),
    ("sequence_parallel", True, "sequence", (True,)),
    ("context_parallel", [1, 2], "context", (1, 2)),
    ("context_exchange", ["ring", "all_gather"], "context_kind", (ContextKind.RING, ContextKind.ALL_GATHER)),
    ("expert_parallel", 4, "expert", (4,)),
    ("expert_tensor_parallel", 2, "expert_tensor", (2,)),
    ("pipeline_parallel", [2, 8], "stages", (2, 8)),
    ("data_parallel", 4, "data", (4,)),
    ("microbatch", [1, 3], "microbatch", (1, 3)),
    ("schedule", "zb-h1", "schedules", (PipelineSchedule.ZB_H1,)),
    ("schedule", ["gpipe", "dualpipe"], "schedules", (PipelineSchedule.GPIPE, PipelineSchedule.DUALPIPE)),
    ("virtual_stages", [2, 5], "virtual", (2, 5)),
    ("recompute", ["none", "full"], "policies", (Recompute.NONE, Recompute.FULL)),
    ("state_sharding", "none", "states", (StateSharding(),)),
    ("offload", "activations", "offload", (Offload(activations=1.0),)),
    ("offload", ["none", "optimizer"], "offload", (Offload(), Offload(optimizer=1.0))),
    ("offload", "all", "offload", (Offload(activations=1.0, optimizer=1.0),)),
    ("overlap", [], "overlap", (Overlap(data=False, pipeline=False),)),
    ("overlap", "data", "overlap", (Overlap(data=True, pipeline=False),)),
    ("overlap", ["data", "pipeline"], "overlap", (Overlap(),)),
    ("overlap", [[], ["pipeline"]], "overlap", (Overlap(data=False, pipeline=False), Overlap(data=False))),
    ("tensor_overlap_pieces", [1, 4], "overlap_pieces", (1, 4)),
    ("device_order", ["data", "pipeline", "context", "tensor"], "orders", (OUTER_TENSOR,)),
    ("device_order", [[*map(str, OUTER_TENSOR)], [*map(str, DEFAULT_ORDER)]], "orders", (OUTER_TENSOR, DEFAULT_ORDER)),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "axis", "expected"), KEYS, ids=lambda part: str(part)[:30])
def test_each_key_sets_its_axis_and_no_other(key, value, axis, expected, tmp_path):
    assert load(tmp_path, placement={key: value}).axes == replace(Axes(), **{axis: expected})


@pytest.mark.parametrize(("zero", "name"), [("zero-1", "optimizer"), ("zero-2", "gradients"), ("zero-3", "parameters")])
def test_the_stages_of_zero_are_names_of_what_is_shared(zero, name, tmp_path):
    axes = load(tmp_path, placement={"state_sharding": zero}).axes
    assert axes.states == (StateSharding(states=SharedStates(name)),)
    assert load(tmp_path, placement={"state_sharding": name}).axes == axes


def test_groups_apply_to_whatever_is_shared(tmp_path):
    run = load(tmp_path, placement={"state_sharding": ["none", "zero-1", "zero-3"], "shard_group": [4, 8]})
    assert run.axes.states == (
        StateSharding(),
        *(StateSharding(states=SharedStates.OPTIMIZER, group=group) for group in (4, 8)),
        *(StateSharding(states=SharedStates.PARAMETERS, group=group) for group in (4, 8)),
    )


def test_batch_sequence_capacity_and_allowances_replace_what_is_named(tmp_path):
    run = load(
        tmp_path,
        global_batch=96,
        sequence_length=8192,
        placement={"hbm": "40 GB"},
        memory={"fragmentation": 0.1, "reserved": "2 GiB"},
    )
    assert run.problem.workload.global_batch == 96
    assert run.problem.workload.sequence_length == 8192
    assert run.problem.accelerator.hbm.capacity_bytes == 40 * 10**9
    assert run.problem.allowance.fragmentation == 0.1
    assert run.problem.allowance.reserved_bytes == 2 * 2**30


def test_an_accelerator_in_place_is_that_of_the_same_file(tmp_path):
    text = (PRESETS / "a100-80gb.yaml").read_text()
    described = yaml.safe_load(text)["accelerator"]
    named = load_accelerator("a100-80gb")
    assert load(tmp_path, accelerator=described).problem.accelerator == named
    described["hbm"]["capacity"] = "96 GB"
    assert load(tmp_path, accelerator=described).problem.accelerator.hbm.capacity_bytes == 96 * 10**9


def test_mistakes_in_an_accelerator_in_place_have_their_place(tmp_path):
    described = yaml.safe_load((PRESETS / "a100-80gb.yaml").read_text())["accelerator"]
    described["clok"] = described.pop("clock")
    del described["hbm"]["source"]
    found = refused(lambda: load(tmp_path, accelerator=described))
    assert len(found) == 3
    assert all("job.yaml:" in problem and "run.accelerator" in problem for problem in found)
    assert any("did you mean 'clock'" in problem for problem in found)
    assert any("run.accelerator.hbm" in problem and "'source'" in problem for problem in found)


def test_all_problems_at_once_with_their_places(tmp_path):
    text = """\
run:
  workload: llama2-7
  accelerator: a100
  cluster: a100-superpod
  accelerators: 64
  placement:
    tensor_paralel: 2
    microbatch: [1, 1]
    schedule: [1f1b, 1f1c]
    recompute: true
    sequence_parallel: 1
    state_sharding: [zero-1, optimizer]
    offload: everything
    overlap: [data, pipelin]
    device_order: [tensor, data]
    pipeline_parallel: 0
    data_parallel:
    hbm: 80
"""
    found = problems(tmp_path, text)
    wanted = {
        "2:": "did you mean 'llama2-7b'",
        "3:": "did you mean 'a100-80gb'",
        "7:": "did you mean 'tensor_parallel'",
        "8:": "each choice may stand once",
        "9:": "allowed: gpipe, 1f1b, interleaved, zb-h1, dualpipe",
        "10:": "allowed: none, selective, full",
        "11:": "allowed: true or false",
        "12:": "each choice may stand once",
        "13:": "allowed: none, activations, optimizer, all",
        "14:": "allowed: data, pipeline",
        "15:": "an order of tensor, context, data, pipeline",
        "16:": "at least 1",
        "17:": "remove the key",
        "18:": "did you mean '80 GB'",
    }
    assert len(found) == len(wanted)
    for line, text in wanted.items():
        assert any(f"job.yaml:{line}" in problem and text in problem for problem in found), (line, found)


@pytest.mark.parametrize(
    ("keys", "place", "text"),
    [
        ({"accelerators": 100_000}, "run.accelerators", "has 1 to 4,480"),
        ({"workload": "gpt3-175b", "sequence_length": 4096}, "run.sequence_length", "2048 tokens"),
        ({"workload": "gpt3-175b", "accelerator": "tpu-v4", "cluster": "tpu-v4-pod"}, "run.accelerator", "for fp16"),
        (
            {"accelerator": "tpu-v4", "cluster": "tpu-v4-pod", "placement": {"offload": ["none", "all"]}},
            "run.placement.offload",
            "says nothing of hosts",
        ),
    ],
)
def test_what_does_not_go_together_is_said_where_it_stands(keys, place, text, tmp_path):
    (problem,) = refused(lambda: load(tmp_path, **keys))
    assert place in problem
    assert text in problem


def test_a_single_placement_is_plain_where_nothing_is_said(tmp_path):
    assert load(tmp_path).strategy() == Strategy(sharding=LayerSharding(microbatch=1), stages=1, data=64)
    assert load(tmp_path).strategy().order == DEFAULT_ORDER


@pytest.mark.parametrize(
    ("placement", "stages", "data"),
    [
        ({"tensor_parallel": 4}, 1, 16),
        ({"tensor_parallel": 4, "pipeline_parallel": 2}, 2, 8),
        ({"tensor_parallel": 4, "data_parallel": 2}, 8, 2),
        ({"context_parallel": 2, "data_parallel": 32}, 1, 32),
        ({"pipeline_parallel": 4, "data_parallel": 4}, 4, 4),
    ],
)
def test_the_degree_that_is_left_out_follows_from_the_others(placement, stages, data, tmp_path):
    strategy = load(tmp_path, placement=placement).strategy()
    assert (strategy.stages, strategy.data) == (stages, data)


def test_stages_say_how_many_there_are(tmp_path):
    assert load(tmp_path, stages=[17, 17]).strategy().stages == 2
    run = load(tmp_path, stage_recompute=["full", "none", "none", "full"])
    assert run.strategy().stages == 4
    assert run.strategy().policies == (Recompute.FULL, Recompute.NONE)
    assert run.recompute(run.strategy()) == (Recompute.FULL, Recompute.NONE, Recompute.NONE, Recompute.FULL)


def test_every_axis_with_several_values_is_named(tmp_path):
    placement = {"tensor_parallel": [1, 2], "overlap": [["data"], ["pipeline"]], "schedule": "1f1b"}
    found = refused(load(tmp_path, placement=placement).strategy)
    assert len(found) == 2
    assert any("run.placement.tensor_parallel: found 2 values" in problem for problem in found)
    assert any("run.placement.overlap: found 2 values" in problem for problem in found)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"placement": {"shard_group": 8}}, "add state_sharding"),
        ({"placement": {"recompute": "full"}, "stage_recompute": ["full"]}, "give one of them"),
    ],
)
def test_what_says_too_little_or_too_much_for_one_placement(keys, text, tmp_path):
    (problem,) = refused(load(tmp_path, **keys).strategy)
    assert text in problem


@given(cuts=st.sets(st.integers(1, 33), max_size=12))
def test_layers_are_dealt_out_in_the_order_of_the_model(tmp_path_factory, cuts):
    """Llama 2 7B is an embedding, 32 blocks and a head: 34 layers, which stages take in runs."""
    ends = [*sorted(cuts), 34]
    sizes = [end - begin for begin, end in zip((0, *ends[:-1]), ends, strict=True)]
    run = load(tmp_path_factory.mktemp("run"), stages=sizes, placement={"data_parallel": 1})
    strategy = Strategy(sharding=LayerSharding(microbatch=1), stages=len(sizes), data=1)
    held = run.held(strategy)
    assert [sum(layers) for layers in held] == sizes
    assert [sum(stage[kind] for stage in held) for kind in range(3)] == [1, 32, 1]
    assert held[0][0] == 1
    assert held[-1][2] == 1


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"stages": [16, 16]}, "34 (1 embedding + 32 block + 1 head)"),
        ({"stages": [17, 17], "placement": {"pipeline_parallel": 4}}, "found 2 entries for 4 stages"),
    ],
)
def test_stages_that_are_not_those_of_the_model(keys, text, tmp_path):
    run = load(tmp_path, **keys)
    (problem,) = refused(lambda: run.held(run.strategy()))
    assert "run.stages" in problem
    assert text in problem


def test_policies_of_another_number_of_stages(tmp_path):
    run = load(tmp_path, stage_recompute=["full"], placement={"pipeline_parallel": 4})
    (problem,) = refused(lambda: run.recompute(run.strategy()))
    assert "run.stage_recompute: found 1 entries for 4 stages" in problem


def test_the_page_about_placement_names_every_key_and_its_example_is_a_run(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
    for key in PlacementFields.model_fields:
        assert f"| `{key}` |" in page
    path = tmp_path / "page.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    assert load_plan(path).axes.stages == (4, 8, 16)
