"""Models of today: parameters against published counts and by hand."""

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
