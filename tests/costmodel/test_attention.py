"""Attention whose scores stay on chip: its price and traffic by hand, and laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import cluster, table

from archplace.arch_configs import load_accelerator
from archplace.arch_configs.architectures import Architectures
from archplace.costmodel import Pricer
from archplace.costmodel._attention import passes_again
from archplace.workloads.operators import FusedAttention, Gemm, Operator, Phase, Unit, VectorWork

HEADS = FusedAttention(batch=32, rows=4096, keys=4096, met_keys=2048, head_dim=128, value_dim=128)
FREE = {"local_bytes_per_s": 1e18, "global_bytes_per_s": 1e18}


def work_of(attention: FusedAttention) -> VectorWork:
    rows = attention.batch * attention.rows
    side = 2 * attention.batch * attention.rows * attention.head_dim
    return VectorWork(
        rows=rows, row_length=attention.met_keys, operations_per_element=8.0, read_bytes=3 * side, write_bytes=side
    )


def operator_of(attention: FusedAttention) -> Operator:
    return Operator(
        name="attention", unit=Unit.FUSED, phase=Phase.FORWARD, attention=attention, vector=work_of(attention)
    )


def parts(attention: FusedAttention, **machine: float):
    found = Pricer(table(**machine), cluster()).parts(operator_of(attention), one_unit=False)
    return {name: float(np.max(value)) for name, value in found._asdict().items()}


def test_products_follow_each_other_and_take_turns_with_the_lanes() -> None:
    found = parts(HEADS, **FREE)
    # 2 · 32 · 4096 · 2048 · 128 multiply-accumulates on 4 arrays of 128 × 128 at 1 GHz
    assert found["array_s"] == pytest.approx(2 * 32 * 4096 * 2048 * 128 / (4 * 128 * 128) * 1e-9, rel=1e-12)
    # 8 operations for each of 32 · 4096 · 2048 scores on 256 lanes
    assert found["lanes_s"] == pytest.approx(32 * 4096 * 2048 * 8 / 256 * 1e-9, rel=1e-12)
    total_s = float(Pricer(table(**FREE), cluster()).price([operator_of(HEADS)]).all_s[0, 0])
    assert total_s == pytest.approx(found["array_s"] + found["lanes_s"] + found["fill_s"] + found["first_load_s"])


@pytest.mark.parametrize(
    ("accelerator", "least", "most"),
    [
        # FlashAttention-2 on A100: 50 to 73 % of peak (Dao 2023, arXiv:2307.08691, abstract)
        ("a100-80gb", 0.50, 0.73),
        # FlashAttention-3 on H100, forward in fp16: up to 75 % (Shah et al. 2024, arXiv:2407.08608, abstract)
        ("h100-sxm", 0.50, 0.75),
    ],
)
@pytest.mark.parametrize("length", [2048, 8192, 16384])
def test_forward_rates_are_those_of_published_kernels(accelerator: str, least: float, most: float, length: int) -> None:
    # Their benchmark: 16,384 tokens, heads of 128 elements, hidden size 2048, causal
    archs = Architectures.of(load_accelerator(accelerator))
    attention = FusedAttention(
        batch=16 * 16384 // length, rows=length, keys=length, met_keys=length // 2, head_dim=128, value_dim=128
    )
    seconds = float(Pricer(archs, cluster()).price([operator_of(attention)]).all_s[0, 0])
    peak = archs.tensor_count * archs.tensor_rows * archs.tensor_cols * archs.clock_hz
    peak_macs_per_s = float((peak * archs.tensor_macs_per_element["bf16"])[0])
    assert least <= attention.macs / seconds / peak_macs_per_s <= most


def test_a_buffer_that_holds_keys_and_values_moves_each_operand_once() -> None:
    # Keys and values of a head: 4096 · 256 · 2 = 2 MiB, in half of a buffer of 4 MiB.
    found = parts(HEADS, **FREE, global_bytes=1 << 22)
    once = 4 * 32 * 4096 * 128 * 2
    assert found["hbm_s"] == pytest.approx(once / 1e12)


def test_keys_and_values_pass_once_for_every_block_of_rows() -> None:
    # 512 KiB: half holds 512 rows of queries and context, so that 8 blocks meet half of the keys each: 4 passes.
    found = parts(HEADS, **FREE, global_bytes=1 << 19)
    once, keys = 4 * 32 * 4096 * 128 * 2, 2 * 32 * 4096 * 128 * 2
    assert found["hbm_s"] == pytest.approx((once + 3 * keys) / 1e12)


def test_queries_and_gradients_pass_once_for_every_block_of_keys() -> None:
    # Half of 1 MiB holds 512 rows of keys, values and their gradients: 8 blocks, half of the queries each: 4 passes of
    # queries, the context's gradient, and the queries' gradient, which is also written.
    gradients = replace(HEADS, gradients=True)
    again = passes_again(gradients, 2, np.array([1 << 20]))
    side = 32 * 4096 * 128 * 2
    assert (float(again.read_bytes[0]), float(again.write_bytes[0])) == (3 * 3 * side, 3 * side)


def test_scores_never_reach_hbm() -> None:
    # The same products one by one write and read 32 · 4096 · 4096 scores.
    fused = Pricer(table(**FREE), cluster()).activity(operator_of(replace(HEADS, met_keys=4096)))
    scores = Gemm(batch=32, m=4096, n=4096, k=128)
    alone = Pricer(table(**FREE), cluster()).activity(
        Operator(name="scores", unit=Unit.TENSOR, phase=Phase.FORWARD, gemm=scores)
    )
    assert float(fused.hbm_bytes[0]) == 4 * 32 * 4096 * 128 * 2
    assert float(alone.hbm_bytes[0]) >= 32 * 4096 * 4096 * 2
    assert fused.macs == 2 * alone.macs


sizes = st.integers(1, 300)
attentions = st.builds(
    FusedAttention,
    batch=st.integers(1, 4),
    rows=sizes,
    keys=st.shared(sizes, key="keys"),
    met_keys=st.shared(sizes, key="keys"),
    head_dim=st.integers(1, 64),
    value_dim=st.integers(1, 64),
    gradients=st.booleans(),
)


@given(attention=attentions, capacity=st.integers(1, 1 << 20), more=st.integers(0, 1 << 20))
def test_a_larger_buffer_never_moves_more(attention: FusedAttention, capacity: int, more: int) -> None:
    again = passes_again(attention, 2, np.array([capacity, capacity + more]))
    for moved in again:
        assert 0 <= moved[1] <= moved[0]


@given(attention=attentions)
def test_what_fits_passes_once(attention: FusedAttention) -> None:
    width = attention.head_dim + attention.value_dim
    fits = 8 * width * max(attention.rows, attention.keys) * 2
    again = passes_again(attention, 2, np.array([fits]))
    assert (again.read_bytes, again.write_bytes) == (0.0, 0.0)


@given(attention=attentions, rows=st.integers(0, 100))
def test_more_rows_never_take_less_time(attention: FusedAttention, rows: int) -> None:
    pricer = Pricer(table(), cluster())
    less, more = operator_of(attention), operator_of(replace(attention, rows=attention.rows + rows))
    prices = pricer.price([less, more])
    for seconds in (prices.one_s, prices.all_s):
        assert seconds[0, 0] <= seconds[0, 1] * (1 + 1e-12)
        assert seconds[0, 0] > 0


@given(attention=attentions)
def test_activity_counts_what_is_priced(attention: FusedAttention) -> None:
    done = Pricer(table(), cluster()).activity(operator_of(attention))
    work = work_of(attention)
    assert done.macs == sum(product.macs for product in attention.products)
    assert done.lane_operations == work.elements * 8
    assert float(done.hbm_bytes[0]) >= work.read_bytes + work.write_bytes
    assert float(done.global_bytes[0]) > 0
    assert done.network_bytes == 0
