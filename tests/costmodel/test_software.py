"""Frameworks add to what kernels need, never take away."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import NOMINAL, Architectures, load_accelerator, load_cluster
from archplace.arch_configs.cluster import Software
from archplace.costmodel import Pricer
from archplace.costmodel.software import SoftwarePricer
from archplace.workloads import (
    Axis,
    Collective,
    CollectiveKind,
    FusedAttention,
    Gemm,
    Operator,
    Phase,
    Unit,
    VectorWork,
)

A100 = Architectures.of(replace(load_accelerator("a100-80gb"), calibration=NOMINAL))
NODE = load_cluster("a100-superpod").sized(8)
PRODUCT = Operator(name="product", unit=Unit.TENSOR, phase=Phase.FORWARD, gemm=Gemm(m=4096, n=4096, k=4096))
WORK = VectorWork(rows=8192, row_length=4096, operations_per_element=1, read_bytes=2 * 2**26, write_bytes=2 * 2**25)
SUM = Operator(name="sum", unit=Unit.VECTOR, phase=Phase.FORWARD, vector=WORK)
OPERATORS = [PRODUCT, SUM]


def attention(*, gradients):
    core = FusedAttention(
        batch=64, rows=2048, keys=2048, met_keys=1024, head_dim=128, value_dim=128, gradients=gradients
    )
    work = VectorWork(rows=64 * 2048, row_length=1024, operations_per_element=6, read_bytes=2**26, write_bytes=2**25)
    return Operator(name="core", unit=Unit.FUSED, phase=Phase.FORWARD, attention=core, vector=work)


def priced(software, operators=OPERATORS):
    return SoftwarePricer(A100, replace(NODE, software=software)).price(operators).all_s[0]


def test_ideal_software_changes_nothing():
    assert priced(Software()).tolist() == Pricer(A100, NODE).price(OPERATORS).all_s[0].tolist()


def test_element_wise_operators_move_more_bytes_and_products_do_not():
    product, total = Pricer(A100, NODE).price(OPERATORS).all_s[0]
    assert priced(Software(vector_traffic=2.5)) == pytest.approx([product, 2.5 * total], rel=1e-12)


def test_attention_falls_behind_by_a_factor_each_way():
    cores = [attention(gradients=False), attention(gradients=True)]
    forward, backward = Pricer(A100, NODE).price(cores).all_s[0]
    software = Software(attention_time=1.5, attention_gradient_time=2.0, vector_traffic=3.0)
    assert priced(software, cores) == pytest.approx([1.5 * forward, 2.0 * backward], rel=1e-12)


def test_long_runs_sustain_part_of_the_tensor_rate():
    product, total = Pricer(A100, NODE).price(OPERATORS).all_s[0]
    slower = priced(Software(tensor_rate=0.8))
    assert product / 0.8 == pytest.approx(slower[0], rel=0.01)
    assert slower[1] == total


def test_no_operator_takes_less_than_its_dispatch():
    product, total = Pricer(A100, NODE).price(OPERATORS).all_s[0]
    assert total < 0.4e-3 < product
    assert priced(Software(dispatch_s=0.4e-3)) == pytest.approx([product, 0.4e-3], rel=1e-12)


def test_exchanges_are_dispatched_too_unless_there_is_nobody_to_exchange_with():
    pricer = SoftwarePricer(A100, replace(NODE, software=Software(dispatch_s=1e-3)))

    def seconds(group):
        collective = Collective(kind=CollectiveKind.ALL_REDUCE, payload_bytes=1024, group_size=group, axis=Axis.TENSOR)
        return pricer.collective_s(collective)

    assert seconds(8) == 1e-3
    assert seconds(1) == 0.0


@given(st.floats(0, 1e-2), st.floats(1, 10), st.floats(0, 1e-2), st.floats(1, 10))
def test_worse_software_is_never_faster(dispatch_s, traffic, more_s, more):
    better = priced(Software(dispatch_s=dispatch_s, vector_traffic=traffic))
    worse = priced(Software(dispatch_s=dispatch_s + more_s, vector_traffic=traffic * more))
    assert (worse >= better).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dispatch_s": -1.0}, "dispatch_s is -1.0, must not be negative"),
        ({"tensor_rate": 1.5}, "tensor_rate is 1.5, must be more than 0 and at most 1"),
        ({"vector_traffic": 0.5}, "vector_traffic is 0.5, must be at least 1"),
        ({"tensor_pieces": 0}, "tensor_pieces is 0, must be at least 1"),
    ],
)
def test_impossible_software_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Software(**wrong)
