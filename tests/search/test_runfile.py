"""Run files: everything wrong in them is said at once, with its place."""

from dataclasses import fields, replace

import pytest

from archplace.arch_configs.errors import ConfigError
from archplace.costmodel import Offload, SharedStates, StateSharding
from archplace.search.pipeline import PipelineSchedule
from archplace.search.placement_fields import PlacementFields
from archplace.search.runfile import SEARCH_AXES, load_run
from archplace.search.strategy.axes import Axes
from archplace.search.strategy.strategy import Overlap
from archplace.workloads import Axis, ContextKind, Recompute

GOOD = """\
run:
  workload: llama2-7b
  space: tiny
  cluster: tpu-v4-pod
  accelerators: 64
  placement:
    tensor_parallel: [1, 2]
    microbatch: [1]
    hbm: [32 GB, 64 GB]
    recompute: [true]
  budgets: {area: 300 mm2, step_time: 20 s}
  baseline: tpu-v4
"""


def problems(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    return [str(problem) for problem in caught.value.problems]


def test_a_good_file(tmp_path):
    path = tmp_path / "night.yaml"
    path.write_text(GOOD)
    run = load_run(path)
    assert run.name == "night"
    assert run.cluster.size == 64
    assert run.choices.hbm_bytes == (32 * 10**9, 64 * 10**9)
    assert run.choices.max_area_mm2 == 300
    assert run.choices.max_step_s == 20
    assert run.baseline is not None
    assert load_run(path).digest == run.digest


PLAIN = """\
run:
  workload: llama2-7b
  space: tiny
  cluster: tpu-v4-pod
  accelerators: 64
"""


def choices_of(tmp_path, *lines):
    """What a run file offers whose placement has these lines; with none it has no placement."""
    path = tmp_path / "run.yaml"
    placement = "".join(f"    {line}\n" for line in lines)
    path.write_text(PLAIN + (f"  placement:\n{placement}" if lines else ""))
    return load_run(path).choices


def test_axes_of_which_nothing_is_said_are_those_of_every_search(tmp_path):
    choices = choices_of(tmp_path)
    assert choices.axes == SEARCH_AXES
    assert choices.hbm_bytes is None
    one = choices_of(tmp_path, "tensor_parallel: 2", "schedule: gpipe").axes
    assert one == replace(SEARCH_AXES, tensor=(2,), schedules=(PipelineSchedule.GPIPE,))


NONE, SELECTIVE, FULL = Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL


@pytest.mark.parametrize(
    ("value", "policies"),
    [
        ("false", (NONE,)),
        ("true", (FULL,)),
        ("[false]", (NONE,)),
        ("[false, true]", (NONE, FULL)),
        ("[true, false]", (FULL, NONE)),
        ("none", (NONE,)),
        ("selective", (SELECTIVE,)),
        ("[none, full]", (NONE, FULL)),
        ("[false, selective]", (NONE, SELECTIVE)),
        ("[none, selective, full]", (NONE, SELECTIVE, FULL)),
    ],
)
def test_recomputation_is_a_policy_or_yes_and_no(tmp_path, value, policies):
    assert choices_of(tmp_path, f"recompute: {value}").axes.policies == policies


OPTIMIZER, GRADIENTS = SharedStates.OPTIMIZER, SharedStates.GRADIENTS
SHARED_BY_ALL = StateSharding(states=OPTIMIZER)

ENTRIES = {
    "tensor_parallel": ("4", "tensor", (4,)),
    "sequence_parallel": ("true", "sequence", (True,)),
    "context_parallel": ("2", "context", (2,)),
    "context_exchange": ("all_gather", "context_kind", (ContextKind.ALL_GATHER,)),
    "expert_parallel": ("8", "expert", (8,)),
    "expert_tensor_parallel": ("2", "expert_tensor", (2,)),
    "pipeline_parallel": ("4", "stages", (4,)),
    "data_parallel": ("16", "data", (16,)),
    "microbatch": ("2", "microbatch", (2,)),
    "schedule": ("zb-h1", "schedules", (PipelineSchedule.ZB_H1,)),
    "virtual_stages": ("3", "virtual", (3,)),
    "recompute": ("selective", "policies", (SELECTIVE,)),
    "state_sharding": ("zero-1", "states", (SHARED_BY_ALL,)),
    "offload": ("activations", "offload", (Offload(activations=1.0),)),
    "overlap": ("[data]", "overlap", (Overlap(data=True, pipeline=False),)),
    "tensor_overlap_pieces": ("4", "overlap_pieces", (4,)),
    "device_order": (
        "[data, tensor, context, pipeline]",
        "orders",
        ((Axis.DATA, Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE),),
    ),
}
"""Key of a placement to one value, and to the axis on which it stands and what it is there."""


@pytest.mark.parametrize("key", ENTRIES)
def test_one_value_is_a_list_of_one_and_stands_on_its_axis_alone(tmp_path, key):
    text, axis, values = ENTRIES[key]
    found = choices_of(tmp_path, f"{key}: {text}")
    assert found == choices_of(tmp_path, f"{key}: [{text}]")
    assert found.axes == replace(SEARCH_AXES, **{axis: values})


def test_every_key_and_every_axis_can_be_offered(tmp_path):
    assert {*ENTRIES, "shard_group", "hbm"} == set(PlacementFields.model_fields)
    assert {axis for _, axis, _ in ENTRIES.values()} == {field.name for field in fields(Axes)}
    everything = [f"{key}: {text}" for key, (text, _, _) in ENTRIES.items()]
    assert choices_of(tmp_path, *everything).axes == Axes(**{axis: values for _, axis, values in ENTRIES.values()})


def test_capacities_are_one_or_several(tmp_path):
    assert choices_of(tmp_path, "hbm: 48 GB").hbm_bytes == (48 * 10**9,)
    assert choices_of(tmp_path, "hbm: [48 GB, 64 GiB]").hbm_bytes == (48 * 10**9, 64 * 2**30)


def test_shared_states_go_with_every_group_and_none_with_no_group(tmp_path):
    several = choices_of(tmp_path, "state_sharding: [none, zero-1, gradients]", "shard_group: [2, 4]").axes.states
    assert several == (
        StateSharding(),
        StateSharding(states=OPTIMIZER, group=2),
        StateSharding(states=OPTIMIZER, group=4),
        StateSharding(states=GRADIENTS, group=2),
        StateSharding(states=GRADIENTS, group=4),
    )


def test_lists_of_lists_are_several_values(tmp_path):
    axes = choices_of(
        tmp_path,
        "overlap: [[], [data], [data, pipeline]]",
        "device_order: [[tensor, context, data, pipeline], [data, tensor, context, pipeline]]",
    ).axes
    assert axes.overlap == (Overlap(data=False, pipeline=False), Overlap(data=True, pipeline=False), Overlap())
    assert [order[0] for order in axes.orders or ()] == [Axis.TENSOR, Axis.DATA]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("recompute: [true, full]", "each choice may stand once"),
        ("recompute: [false, none]", "each choice may stand once"),
        ("recompute: some", "selective"),
        ("recompute: []", "recompute"),
        ("schedule: 2f2b", "zb-h1"),
        ("schedule: [1f1b, 1f1b]", "each choice may stand once"),
        ("state_sharding: [zero-1, optimizer]", "each choice may stand once"),
        ("state_sharding: zero-4", "zero-3"),
        ("offload: everything", "activations"),
        ("overlap: [compute]", "pipeline"),
        ("device_order: [tensor, data]", "an order of tensor, context, data, pipeline"),
        ("context_exchange: star", "ring"),
        ("expert_parallel: 0", "expert_parallel"),
        ("virtual_stages: [2, x]", "virtual_stages"),
        ("sequence_parallel: 2", "sequence_parallel"),
        ("microbatch:", "found no value"),
        ("hbm: [32 GB, 32 GB]", "each choice may stand once"),
        ("hbm: [32 GB, 0 GB]", "hbm"),
        ("tensor_paralel: 2", "did you mean 'tensor_parallel'"),
    ],
)
def test_what_stands_on_no_axis_is_told(tmp_path, line, expected):
    found = problems(tmp_path, PLAIN + f"  placement:\n    {line}\n")
    assert len(found) == 1, found
    assert "run.yaml:7:" in found[0]
    assert expected in found[0]


@pytest.mark.parametrize("key", [*ENTRIES, "shard_group", "hbm"])
def test_every_placement_key_enters_the_digest(tmp_path, key):
    path = tmp_path / "run.yaml"
    path.write_text(PLAIN)
    plain = load_run(path).digest
    text = {"shard_group": "2", "hbm": "20 GB"}.get(key) or ENTRIES[key][0]
    path.write_text(PLAIN + f"  placement: {{{key}: {text}}}\n")
    assert load_run(path).digest != plain


def test_every_input_enters_the_digest(tmp_path):
    path = tmp_path / "run.yaml"
    seen = set()
    for change in (
        ("64 GB", "80 GB"),
        ("llama2-7b", "bert-large"),
        ("space: tiny", "space: modern"),
        ("accelerators: 64", "accelerators: 32"),
        ("area: 300", "area: 301"),
        ("baseline: tpu-v4", "baseline: a100-80gb"),
        ("", ""),
    ):
        path.write_text(GOOD.replace(*change) if change[0] else GOOD)
        seen.add(load_run(path).digest)
    assert len(seen) == 7


def test_all_problems_at_once_with_their_places(tmp_path):
    text = GOOD.replace("microbatch: [1]", "microbatch: [0]").replace("recompute", "recomputes")
    text = text.replace("accelerators: 64", "accelerators: -1").replace("32 GB", "-32 GB")
    found = problems(tmp_path, text)
    assert len(found) == 4
    assert any("run.yaml:5:" in p and "accelerators" in p and "at least 1" in p for p in found)
    assert any("run.yaml:8:" in p and "microbatch" in p for p in found)
    assert any("run.yaml:9:" in p and "-32 GB" in p for p in found)
    assert any("run.yaml:10:" in p and "did you mean 'recompute'" in p for p in found)


def test_wrong_names_are_told_beside_wrong_values(tmp_path):
    text = GOOD.replace("llama2-7b", "lama2-7b").replace("space: tiny", "space: tinny").replace("[1, 2]", "[0]")
    found = problems(tmp_path, text.replace("baseline: tpu-v4", "baseline: tpuv4"))
    assert len(found) == 4
    assert any("run.yaml:7:" in p and "tensor_parallel" in p for p in found)
    for line, name in ((2, "llama2-7b"), (3, "tiny"), (12, "tpu-v4")):
        assert any(f"run.yaml:{line}:" in p and f"did you mean '{name}'" in p for p in found)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("llama2-7b", "llama2-7", "did you mean 'llama2-7b'"),
        ("space: tiny", "space: tinny", "did you mean 'tiny'"),
        ("cluster: tpu-v4-pod", "cluster: tpu-v4-pot", "did you mean 'tpu-v4-pod'"),
        ("baseline: tpu-v4", "baseline: tpu-v44", "did you mean 'tpu-v4'"),
        ("accelerators: 64", "accelerators: 100000", "4,096"),
        ("accelerators: 64", "accelerators: .nan", "accelerators"),
        ("[1, 2]", "[1, 1]", "each choice may stand once"),
        ("20 s", "20 mm2", "step_time"),
        ("32 GB", "0 GB", "hbm"),
        ("32 GB", "32", "did you mean '32 GB'"),
        ("workload: llama2-7b", "workload: ./nothere.yaml", "no such file"),
        ("workload: llama2-7b", "workload: llama2-7b\n  workloads: [bert-large]", "give one"),
        ("  workload: llama2-7b\n", "", "give one"),
        ("  space: tiny\n", "  space: tiny\n  space: phaze\n", "space"),
        ("baseline: tpu-v4", "objectives: [speed]", "throughput"),
    ],
)
def test_one_problem(tmp_path, old, new, expected):
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    assert len(found) == 1, found
    assert "run.yaml:" in found[0]
    assert expected in found[0]


def test_workloads_are_told_apart_by_name_and_order(tmp_path):
    path = tmp_path / "run.yaml"
    digests = []
    for names in ("[bert-large, gpt2-xl]", "[gpt2-xl, bert-large]"):
        path.write_text(GOOD.replace("workload: llama2-7b", f"workloads: {names}"))
        digests.append(load_run(path).digest)
    assert digests[0] != digests[1]
    found = problems(tmp_path, GOOD.replace("workload: llama2-7b", "workloads: [bert-large, bert-large]"))
    assert len(found) == 1
    assert "second workload named 'bert-large'" in found[0]


def test_names_that_look_like_files_are_relative_to_the_run_file(tmp_path):
    found = problems(tmp_path, GOOD.replace("space: tiny", "space: mine/space.yaml"))
    assert str(tmp_path / "mine" / "space.yaml") in found[0]
