"""Parameter counts: of published models by hand, and of shards against the whole."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_helpers import ZOO, layer, models

from archplace.workloads import LayerSharding, Model, OptimizerKind, Precision, Workload, load_model


def test_bert_large() -> None:
    # Embeddings 30,522 words, 512 positions, 2 segments of 1,024 columns, and a layer norm.
    embeddings = (30522 + 512 + 2) * 1024 + 2 * 1024
    # Four attention matrices, two of 1024 × 4096, all with bias; two layer norms.
    block = 4 * (1024 * 1024 + 1024) + (1024 * 4096 + 4096) + (4096 * 1024 + 1024) + 2 * 2 * 1024
    pooler = 1024 * 1024 + 1024
    # What `bert-large-uncased` holds without its pre-training heads.
    assert embeddings + 24 * block + pooler == 335_141_888
    # Pre-training adds the masked-token transform with its norm, a bias per word, and the next-sentence classifier.
    heads = (1024 * 1024 + 1024) + 2 * 1024 + 30522 + (2 * 1024 + 2)
    assert load_model("bert-large").parameters == 335_141_888 + heads == 336_226_108


def test_gpt2_xl() -> None:
    h = 1600
    # Per block: QKV 3h² + 3h, projection h² + h, feed-forward 8h² + 5h, two norms 4h.
    assert load_model("gpt2-xl").parameters == 48 * (12 * h * h + 13 * h) + (50257 + 1024) * h + 2 * h == 1_557_611_200


def test_megatron_gpt_8_3b() -> None:
    h = 3072
    model = load_model("megatron-gpt-8.3b")
    assert model.parameters == 72 * (12 * h * h + 13 * h) + (50257 + 1024) * h + 2 * h
    assert round(model.parameters / 1e9, 1) == 8.3  # Shoeybi et al. 2019, table 1
    assert model.padded_vocabulary == 51200


def test_gpt3_175b() -> None:
    h = 12288
    model = load_model("gpt3-175b")
    assert model.parameters == 96 * (12 * h * h + 13 * h) + (50257 + 2048) * h + 2 * h
    assert round(model.parameters / 1e9, 1) == 174.6  # Narayanan et al. 2021, table 2


def test_opt_350m() -> None:
    # 512-column embedding with two projections without bias, 2,050 positions, no final norm.
    ends = 50272 * 512 + 2 * 512 * 1024 + 2050 * 1024
    block = 12 * 1024 * 1024 + 13 * 1024
    assert load_model("opt-350m").parameters == ends + 24 * block == 331_196_416


def test_opt_1_3b() -> None:
    h = 2048
    assert load_model("opt-1.3b").parameters == 24 * (12 * h * h + 13 * h) + (50272 + 2050) * h + 2 * h == 1_315_758_080


def test_llama2_7b() -> None:
    h, ff = 4096, 11008
    block = 4 * h * h + 3 * h * ff + 2 * h
    assert load_model("llama2-7b").parameters == 32 * block + 2 * 32000 * h + h == 6_738_415_616


def test_llama2_70b() -> None:
    h, ff = 8192, 28672
    # 8 key heads and 8 value heads of 128 columns beside 64 query heads
    block = 2 * h * h + 2 * h * 8 * 128 + 3 * h * ff + 2 * h
    assert load_model("llama2-70b").parameters == 80 * block + 2 * 32000 * h + h == 68_976_648_192


def held(model: Model, tensor_parallel: int) -> int:
    """Parameters on all devices together."""
    workload = Workload(
        name="w",
        model=model,
        sequence_length=8,
        global_batch=1,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
    )
    step = workload.step(LayerSharding(tensor=tensor_parallel, microbatch=1))
    return tensor_parallel * sum(found.parameters * count for found, count in step.layers)


def padded(model: Model) -> int:
    """Parameters with the vocabulary's padding, a tied matrix at both ends."""
    model = replace(model, vocabulary=model.padded_vocabulary)
    return model.parameters + (model.vocabulary * model.embedding_width if model.tied_head else 0)


@pytest.mark.parametrize("name", ZOO)
def test_one_device_holds_the_whole_model(name: str) -> None:
    model = load_model(name)
    assert held(model, 1) == padded(model)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2, 4, 8]))
def test_devices_hold_the_model_and_copies_of_what_is_not_cut(data: st.DataObject, width: int) -> None:
    model = data.draw(models(width=width))
    d = model.d_model
    # Whole on every device: all norms, biases added behind the all-reduce, position and segment tables.
    norms_of_ends = int(model.embedding_norm) + int(model.final_norm) + int(model.kind == "encoder")
    whole = model.n_layers * (2 * model.norm_parameters + (2 * d if model.bias else 0))
    whole += norms_of_ends * model.norm_parameters + (model.position_rows + model.token_types) * d
    whole += 2 if model.next_sentence else 0  # the classifier's bias
    assert held(model, width) == padded(model) + (width - 1) * whole


def test_a_tied_matrix_is_held_by_both_ends() -> None:
    workload = Workload(
        name="w",
        model=load_model("gpt3-175b"),
        sequence_length=2048,
        global_batch=8,
        precision=Precision.FP16,
        optimizer=OptimizerKind.ADAM,
    )
    step = workload.step(LayerSharding(tensor=8, microbatch=1))
    table = 51200 // 8 * 12288
    assert layer(step, "embedding").parameters == table + 2048 * 12288
    assert layer(step, "head").parameters == table + 2 * 12288
