"""Run files: everything wrong in them is said at once, with its place."""

import pytest

from archplace.arch_configs.errors import ConfigError
from archplace.search.runfile import load_run

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
