"""Model and workload files: what they may say, and what the reader of a wrong one is told."""

from pathlib import Path

import pytest
from workload_helpers import TODAY, ZOO

from archplace.arch_configs.errors import ConfigError
from archplace.workloads import LayerSharding, Precision, load_model, load_workload, model_names, workload_names

SHIPPED = tuple(sorted((*ZOO, *TODAY)))

MODEL = """\
model:
  name: tiny
  kind: decoder
  n_layers: 2
  d_model: 64
  n_heads: 4
  d_ff: 256
  activation: gelu
  norm: layer_norm
  positions: learned
  max_positions: 32
  vocabulary: 1000
  tied_head: true
  bias: true
"""
WORKLOAD = """\
workload:
  model: MODEL
  sequence_length: 32
  global_batch: 16
  precision: bf16
  optimizer: sgd
"""


def write(folder: Path, text: str, name: str = "file.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path | str, *, workload: bool = False) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        (load_workload if workload else load_model)(path)
    return [str(problem) for problem in caught.value.problems]


def test_the_zoo_is_complete() -> None:
    assert model_names() == SHIPPED
    assert workload_names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_presets_name_their_model_and_can_run(name: str) -> None:
    workload = load_workload(name)
    assert (workload.name, workload.model) == (name, load_model(name))
    assert load_model(name).name == name
    assert workload.sequence_length <= workload.model.max_positions
    for microbatch in (1, 2, 4):
        assert workload.refusal(LayerSharding(tensor=1, microbatch=microbatch)) is None


@pytest.mark.parametrize("folder", ["models", "presets"])
def test_everything_shipped_has_a_source(folder: str) -> None:
    files = sorted((Path(__file__).parents[2] / "workloads" / folder).glob("*.yaml"))
    assert len(files) == len(SHIPPED)
    assert all("\n  source: " in path.read_text(encoding="utf-8") for path in files)


@pytest.mark.parametrize("precision", Precision)
def test_settings_of_a_workload_file(tmp_path: Path, precision: Precision) -> None:
    text = WORKLOAD.replace("MODEL", "gpt2-xl").replace("precision: bf16", f"precision: {precision}")
    assert not load_workload(write(tmp_path, text)).fused_attention
    workload = load_workload(write(tmp_path, f"{text}  fused_attention: true\n"))
    assert (workload.precision, workload.fused_attention) == (precision, True)


def test_what_a_model_file_leaves_out_follows(tmp_path: Path) -> None:
    model = load_model(write(tmp_path, MODEL))
    assert (model.n_kv_heads, model.head_dim, model.embedding_width) == (4, 16, 64)
    assert model.padded_vocabulary == 1024  # 8 · 128
    assert model.qkv_bias


def test_a_model_file_says_what_it_likes(tmp_path: Path) -> None:
    own = "  n_kv_heads: 2\n  head_dim: 32\n  padded_vocabulary: 1000\n  embedding_width: 48\n  qkv_bias: false\n"
    model = load_model(write(tmp_path, MODEL + own))
    assert (model.n_kv_heads, model.head_dim, model.embedding_width) == (2, 32, 48)
    assert model.padded_vocabulary == 1000
    assert not model.qkv_bias


def test_a_workload_names_its_model_in_three_ways(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    write(tmp_path / "models", MODEL, "tiny.yaml")
    by_path = load_workload(write(tmp_path, WORKLOAD.replace("MODEL", "models/tiny.yaml")))
    indented = MODEL.removeprefix("model:").replace("\n", "\n  ").rstrip()
    in_place = load_workload(write(tmp_path, WORKLOAD.replace(" MODEL", indented)))
    assert by_path == in_place
    assert by_path.name == "tiny"
    assert by_path.precision is Precision.BF16
    by_name = load_workload(str(write(tmp_path, WORKLOAD.replace("MODEL", "llama2-7b"))))
    assert by_name.model == load_model("llama2-7b")
    assert (by_name.sequence_length, by_name.global_batch) == (32, 16)


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("d_ff: 256", "d_fff: 256", "7:3: model.d_fff", "did you mean 'd_ff'?"),
        ("d_ff: 256", "d_ff: -256", "7:9: model.d_ff", "found -256; allowed: at least 1"),
        ("d_ff: 256", "d_ff: 10000000000", "7:9: model.d_ff", "allowed: at most 1000000000"),
        ("d_ff: 256", "d_ff: .nan", "7:9: model.d_ff", "found nan"),
        ("d_ff: 256", "d_ff: '256'", "7:9: model.d_ff", "allowed: a whole number"),
        ("kind: decoder", "kind: decode", "3:9: model.kind", "did you mean 'decoder'?"),
        ("bias: true", "bias: true\n  dropout: .nan", "15:12: model.dropout", "allowed: a finite number"),
        ("bias: true", "bias: true\n  dropout: 1.5", "15:12: model.dropout", "allowed: less than 1"),
        ("bias: true", "bias: true\n  bias: false", "15:3: model.bias", "twice"),
        ("n_heads: 4", "n_heads: 5", "1:1: model", "n_heads 5 does not divide d_model 64: give head_dim"),
        ("n_heads: 4", "n_heads: 4\n  n_kv_heads: 3", "1:1: model", "n_kv_heads 3 does not divide n_heads 4"),
        ("vocabulary: 1000", "vocabulary: 1000\n  padded_vocabulary: 9", "1:1: model", "is less than vocabulary 1000"),
        ("name: tiny", "name: '  '", "2:9: model.name", "at least 1 character"),
    ],
)
def test_mistakes_in_a_model_file_are_shown_at_their_place(
    tmp_path: Path, old: str, new: str, place: str, words: str
) -> None:
    path = write(tmp_path, MODEL.replace(old, new))
    found = problems(path)
    assert any(line.startswith(f"{path}:{place}: ") and words in line for line in found), found


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = MODEL.replace("n_layers: 2", "n_layers: 0").replace("norm: layer_norm", "norm: batch_norm")
    found = problems(write(tmp_path, text.replace("  bias: true\n", "")))
    assert len(found) == 3
    assert any("the key 'bias' is missing" in line for line in found)


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("MODEL", "llama-2-7b", "2:10: workload.model", "unknown model 'llama-2-7b'; did you mean 'llama2-7b'?"),
        ("MODEL", "7", "2:10: workload.model", "found 7; allowed: text"),
        ("length: 32", "length: 1025", "3:20: workload.sequence_length", "learned positions for 1024 tokens"),
        ("optimizer: sgd", "optimizer: adm", "6:14: workload.optimizer", "did you mean 'adam'?"),
        ("batch: 16", "batch: 0", "4:17: workload.global_batch", "found 0; allowed: at least 1"),
        ("precision: bf16", "precision: int8", "5:14: workload.precision", "allowed: bf16, fp16, fp32"),
    ],
)
def test_mistakes_in_a_workload_file_are_shown_at_their_place(
    tmp_path: Path, old: str, new: str, place: str, words: str
) -> None:
    path = write(tmp_path, WORKLOAD.replace(old, new).replace("MODEL", "gpt2-xl"))
    found = problems(path, workload=True)
    assert any(line.startswith(f"{path}:{place}: ") and words in line for line in found), found


def test_a_mistake_in_a_model_in_place_is_the_only_one(tmp_path: Path) -> None:
    indented = MODEL.removeprefix("model:").replace("\n", "\n  ").rstrip().replace("d_ff: 256", "d_ff: 0")
    (found,) = problems(write(tmp_path, WORKLOAD.replace(" MODEL", indented)), workload=True)
    assert "workload.model.d_ff: found 0; allowed: at least 1" in found


def test_a_mistake_in_a_named_model_file_is_shown_there(tmp_path: Path) -> None:
    model = write(tmp_path, MODEL.replace("d_ff: 256", "d_ff: 0"), "tiny.yaml")
    (found,) = problems(write(tmp_path, WORKLOAD.replace("MODEL", "./tiny.yaml")), workload=True)
    assert found.startswith(f"{model}:7:9: model.d_ff: ")


@pytest.mark.parametrize("workload", [False, True])
def test_files_that_cannot_be_read(tmp_path: Path, workload: bool) -> None:
    (found,) = problems(tmp_path, workload=workload)
    assert "found a directory" in found
    (found,) = problems(str(tmp_path / "none.yaml"), workload=workload)
    assert "no such file" in found
    (found,) = problems(write(tmp_path, ""), workload=workload)
    assert "found an empty file" in found


def test_a_missing_model_file_is_a_problem_of_the_workload(tmp_path: Path) -> None:
    (found,) = problems(write(tmp_path, WORKLOAD.replace("MODEL", "none.yaml")), workload=True)
    assert str(tmp_path / "none.yaml") in found
    assert "no such file" in found


@pytest.mark.parametrize(
    ("name", "meant"), [("gpt3-175", "gpt3-175b"), ("bert_large", "bert-large"), ("LLAMA2-70B", "llama2-70b")]
)
def test_unknown_names_suggest_the_nearest(name: str, meant: str) -> None:
    (found,) = problems(name)
    assert f"unknown model {name!r}; did you mean {meant!r}?" in found
    (found,) = problems(name, workload=True)
    assert f"unknown workload {name!r}; did you mean {meant!r}?" in found


EXPERTS = (
    MODEL.replace("bias: true", "bias: false").replace("d_ff: 256", "d_ff: 256\n  gated_mlp: true")
    + "  experts:\n    n_experts: 8\n    top_k: 2\n    shared_experts: 1\n"
)


def test_experts_are_as_wide_as_the_dense_part_unless_told(tmp_path: Path) -> None:
    experts = load_model(write(tmp_path, EXPERTS)).experts
    assert experts is not None
    assert (experts.d_ff, experts.shared_d_ff, experts.dense_layers, experts.capacity_factor) == (256, 256, 0, None)
    experts = load_model(write(tmp_path, EXPERTS + "    d_ff: 64\n    capacity_factor: 1.25\n")).experts
    assert experts is not None
    assert (experts.d_ff, experts.shared_d_ff, experts.capacity_factor) == (64, 64, 1.25)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (EXPERTS.replace("top_k: 2", "top_k: 9"), "experts.top_k 9 is more than experts.n_experts 8"),
        (EXPERTS.replace("top_k: 2", "topk: 2"), "top_k"),
        (EXPERTS.replace("bias: false", "bias: true"), "experts have no biases: set bias to false"),
        (EXPERTS + "    capacity_factor: 0\n", "capacity_factor"),
        (EXPERTS + "    dense_layers: 2\n", "experts.dense_layers is 2 of 2 layers"),
        (MODEL + "  latent_attention:\n    kv_lora_rank: 8\n", "qk_nope_head_dim"),
        (MODEL + "  decoder_layers: 2\n", "decoder_layers is 2, which needs kind: encoder_decoder"),
        (MODEL + "  classes: 10\n", "patches and classes need kind: classifier"),
    ],
)
def test_parts_of_models_that_are_wrong_are_named(tmp_path: Path, text: str, found: str) -> None:
    assert any(found in problem for problem in problems(write(tmp_path, text)))


def test_target_lengths_that_do_not_fit_are_named(tmp_path: Path) -> None:
    text = WORKLOAD.replace("MODEL", "gpt2-xl") + "  target_length: 8\n"
    (problem,) = problems(write(tmp_path, text), workload=True)
    assert ":7:" in problem
    assert "target_length is 8, but gpt2-xl has no decoder behind an encoder: leave it out" in problem
    text = WORKLOAD.replace("MODEL", "t5-11b") + "  target_length: 8\n"
    assert load_workload(write(tmp_path, text)).target_length == 8
