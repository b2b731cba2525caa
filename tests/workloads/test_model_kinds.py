"""Models of today: parameters against published counts and by hand."""

from dataclasses import replace

import pytest

from archplace.workloads import load_model


def swiglu_block(d: int, heads: int, kv_heads: int, ff: int, head: int = 128) -> int:
    return 2 * d * heads * head + 2 * d * kv_heads * head + 3 * d * ff + 2 * d


@pytest.mark.parametrize(
    ("name", "layers", "d", "heads", "ff", "published"),
    [
        # parameters that the checkpoints hold: meta-llama/Meta-Llama-3-8B, Meta-Llama-3-70B, Llama-3.1-405B
        ("llama3-8b", 32, 4096, 32, 14336, 8_030_261_248),
        ("llama3-70b", 80, 8192, 64, 28672, 70_553_706_496),
        ("llama3-405b", 126, 16384, 128, 53248, 405_853_388_800),
    ],
)
def test_llama3(name: str, layers: int, d: int, heads: int, ff: int, published: int) -> None:
    model = load_model(name)
    by_hand = layers * swiglu_block(d, heads, 8, ff) + 2 * 128256 * d + d
    assert model.parameters == model.active_parameters == by_hand == published


@pytest.mark.parametrize(
    ("name", "layers", "d", "billions"),
    # Korthikanti et al. 2022, table 3, names the sizes
    [("megatron-gpt-22b", 48, 6144, 22), ("megatron-gpt-530b", 105, 20480, 530), ("megatron-gpt-1t", 128, 25600, 1008)],
)
def test_megatron_gpts(name: str, layers: int, d: int, billions: int) -> None:
    model = load_model(name)
    assert model.parameters == layers * (12 * d * d + 13 * d) + (51200 + 2048) * d + 2 * d
    assert round(model.parameters / 1e9) == billions


@pytest.mark.parametrize(
    ("name", "layers", "d", "heads", "ff", "billions", "active"),
    [
        # Jiang et al. 2024, section 1 and table 2: 46.7 and 12.9 billion; mistral.ai/news/mixtral-8x22b: 141 and 39
        ("mixtral-8x7b", 32, 4096, 32, 14336, 46.7, 12.9),
        ("mixtral-8x22b", 56, 6144, 48, 16384, 140.6, 39.2),
    ],
)
def test_mixtral(name: str, layers: int, d: int, heads: int, ff: int, billions: float, active: float) -> None:
    model = load_model(name)
    outside = layers * (2 * d * heads * 128 + 2 * d * 8 * 128 + 2 * d + 8 * d) + 2 * 32000 * d + d
    assert model.parameters == outside + layers * 8 * 3 * d * ff
    assert model.active_parameters == outside + layers * 2 * 3 * d * ff
    assert (round(model.parameters / 1e9, 1), round(model.active_parameters / 1e9, 1)) == (billions, active)


def test_deepseek_v3() -> None:
    d = 7168
    attention = d * 1536 + 1536 * 128 * 192 + d * (512 + 64) + 512 * 128 * 256 + 128 * 128 * d + 1536 + 512
    expert, dense = 3 * d * 2048, 3 * d * 18432
    block = attention + 2 * d + 257 * expert + 256 * d  # 256 routed, 1 shared, the router
    ends = 2 * 129280 * d + d
    model = load_model("deepseek-v3")
    main = replace(model, multi_token_prediction=0)
    assert main.parameters == 3 * (attention + 2 * d + dense) + 58 * block + ends
    # The checkpoint deepseek-ai/DeepSeek-V3-Base has 671,026,419,200 without the module for a further token; 58 times
    # 256 of them balance the load and are not trained.
    assert main.parameters == 671_026_419_200 - 58 * 256
    assert main.active_parameters == main.parameters - 58 * 248 * expert
    assert int(main.active_parameters / 1e9) == 37  # DeepSeek-AI 2024, section 1: 37 B of 671 B
    # one module: two norms, a product of both, a block, and a final norm
    assert model.parameters - main.parameters == 2 * d + 2 * d * d + block + d
    assert model.flops_per_token(4096) > main.flops_per_token(4096)


def test_deepseek_v3_flops_by_hand() -> None:
    d, s = 7168, 4096
    attention = d * 1536 + 1536 * 128 * 192 + d * (512 + 64) + 512 * 128 * 256 + 128 * 128 * d
    sparse = attention + 3 * d * 2048 * 9 + 256 * d
    macs = 3 * (attention + 3 * d * 18432) + 59 * sparse + 2 * d * d + 2 * 129280 * d
    macs += 62 * s * 128 * (192 + 128)
    assert load_model("deepseek-v3").flops_per_token(s) == 6 * macs


def test_t5_11b() -> None:
    d, inner, ff = 1024, 128 * 128, 65536
    encoder = 4 * d * inner + 2 * d * ff + 2 * d
    decoder = 8 * d * inner + 2 * d * ff + 3 * d
    by_hand = 24 * (encoder + decoder) + 32128 * d + 2 * d + 2 * 32 * 128
    # the checkpoint google-t5/t5-11b; Raffel et al. 2020, section 3.7, says 11 billion
    assert load_model("t5-11b").parameters == by_hand == 11_307_321_344


def test_vit_huge() -> None:
    h = 1280
    by_hand = 32 * (12 * h * h + 13 * h) + (588 + 1) * h + 257 * h + h + 2 * h + (h + 1) * 1000
    assert load_model("vit-huge").parameters == by_hand == 632_045_800
    assert round(by_hand / 1e6) == 632  # Dosovitskiy et al. 2021, table 1


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("gpt3-175b", [("block", 96)]),
        ("mixtral-8x7b", [("block", 32)]),
        ("deepseek-v3", [("dense_block", 3), ("expert_block", 58), ("prediction_block", 1)]),
        ("t5-11b", [("encoder_block", 24), ("decoder_block", 24)]),
    ],
)
def test_kinds_of_blocks(name: str, kinds: list[tuple[str, int]]) -> None:
    assert [(block.name, block.count) for block in load_model(name).blocks] == kinds
