"""Embedding and head of models whose ends are out of the ordinary, by hand."""

import pytest
from workload_helpers import layer, operator

from archplace.workloads import Collective, CollectiveKind, Gemm, Layer, LayerSharding, load_workload


def ends(name: str, tensor_parallel: int, microbatch: int) -> tuple[Layer, Layer]:
    step = load_workload(name).step(LayerSharding(tensor=tensor_parallel, microbatch=microbatch))
    return layer(step, "embedding"), layer(step, "head")


def exchanged(found: Layer) -> dict[str, tuple[CollectiveKind, int]]:
    every = (*found.forward, *found.backward)
    return {o.name: (o.collective.kind, o.collective.payload_bytes) for o in every if o.collective is not None}


@pytest.mark.parametrize("t", [1, 4])
def test_bert_head(t: int) -> None:
    b, s, h, v = 2, 512, 1024, 30592
    _, head = ends("bert-large", t, b)
    tokens = b * s
    assert operator(head.forward, "transform").gemm == Gemm(m=tokens, n=h // t, k=h)
    assert operator(head.forward, "logits").gemm == Gemm(m=tokens, n=v // t, k=h)
    assert operator(head.forward, "pooler").gemm == Gemm(m=b, n=h // t, k=h)
    assert operator(head.forward, "next_sentence").gemm == Gemm(m=b, n=2, k=h // t)
    whole = 2 * tokens * h
    cut = 2 * tokens * h + 4 * tokens * v + 2 * b * h  # input of GELU; fp32 softmax; the pooler's output
    # whole: the encoder's output, input and output of the norm; and the classifier's fp32 softmax
    assert head.stash_bytes * t == 3 * whole * t + cut + 4 * 2 * b * t
    # whole: the norm's two vectors and the classifier's bias
    assert head.parameters * t == v * h + v + 2 * (h * h + h) + 2 * h + (2 * h + 2) * t


def test_bert_head_exchanges() -> None:
    b, s, h = 2, 512, 1024
    _, head = ends("bert-large", 4, b)
    scalars, hidden = (CollectiveKind.ALL_REDUCE, 4 * b * s), 2 * b * s * h
    assert exchanged(head) == {
        "next_sentence.all_reduce": (CollectiveKind.ALL_REDUCE, 2 * b * 2),
        "transform.all_gather": (CollectiveKind.ALL_GATHER, hidden),
        "loss_maximum.all_reduce": scalars,
        "loss_target.all_reduce": scalars,
        "loss_exponentials.all_reduce": scalars,
        "logits.gradient_all_reduce": (CollectiveKind.ALL_REDUCE, hidden),
        # one for the transform and the pooler together
        "encoder_output.gradient_all_reduce": (CollectiveKind.ALL_REDUCE, hidden),
    }


def test_opt_350m_projects_at_both_ends() -> None:
    t, b, s, d, width, v = 4, 2, 2048, 1024, 512, 50272
    embedding, head = ends("opt-350m", t, b)
    tokens = b * s
    assert operator(embedding.forward, "project_in").gemm == Gemm(m=tokens, n=d // t, k=width)
    assert operator(head.forward, "project_out").gemm == Gemm(m=tokens, n=width // t, k=d)
    assert operator(head.forward, "logits").gemm == Gemm(m=tokens, n=v // t, k=width)
    assert exchanged(embedding) == {
        "lookup.all_reduce": (CollectiveKind.ALL_REDUCE, 2 * tokens * width),
        "project_in.all_gather": (CollectiveKind.ALL_GATHER, 2 * tokens * d),
        "project_in.gradient_all_reduce": (CollectiveKind.ALL_REDUCE, 2 * tokens * width),
    }
    assert operator(head.backward, "project_out.gradient_all_reduce").collective == Collective(
        kind=CollectiveKind.ALL_REDUCE, payload_bytes=2 * tokens * d, group_size=t
    )
    # the last block's output, the input of the projection onto the vocabulary, the fp32 softmax
    assert head.stash_bytes == 2 * tokens * d + 2 * tokens * width + 4 * tokens * v // t
    # word table, position table of 2,050 rows, projection
    assert embedding.parameters == v // t * width + 2050 * d + width * d // t


def test_llama_keeps_nothing_of_its_embedding() -> None:
    embedding, head = ends("llama2-7b", 8, 1)
    assert embedding.stash_bytes == 0
    assert [o.name for o in embedding.forward] == ["lookup", "lookup.all_reduce"]
    assert embedding.parameters == 32000 // 8 * 4096
    assert head.parameters == 32000 // 8 * 4096 + 4096
