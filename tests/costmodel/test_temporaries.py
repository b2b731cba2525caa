"""Temporary tensors of a layer, by hand and by laws over the model zoo."""

import pytest
from memory_helpers import layer

from archplace.costmodel import temporary_bytes
from archplace.workloads import (
    Collective,
    CollectiveKind,
    Gemm,
    LayerSharding,
    Operator,
    Phase,
    Unit,
    VectorWork,
    load_workload,
)


def product(name, elements, *inputs, phase=Phase.FORWARD, stash=0):
    gemm = Gemm(m=elements, n=1, k=1)
    return Operator(name=name, unit=Unit.TENSOR, phase=phase, inputs=inputs, gemm=gemm, stash_bytes=stash)


def vector(name, written, *inputs, stash=0):
    work = VectorWork(rows=1, row_length=1, operations_per_element=1, read_bytes=0, write_bytes=written)
    return Operator(name=name, unit=Unit.VECTOR, phase=Phase.FORWARD, inputs=inputs, vector=work, stash_bytes=stash)


def exchange(name, kind, payload, *inputs):
    collective = Collective(kind=kind, payload_bytes=payload, group_size=4)
    return Operator(name=name, unit=Unit.NETWORK, phase=Phase.FORWARD, inputs=inputs, collective=collective)


def needed(*forward):
    return temporary_bytes(layer(forward=forward))


def test_products_need_input_and_result():
    assert needed(product("a", 50), product("b", 30, "a"), product("c", 10, "b")) == 100 + 60
    # the first result is read to the end
    assert needed(product("a", 50), product("b", 30, "a"), product("c", 10, "b", "a")) == 100 + 60 + 20


def test_vector_work_writes_over_what_ends():
    assert needed(product("a", 50), vector("b", 100, "a")) == 100
    assert needed(product("a", 50), vector("b", 130, "a")) == 130
    assert needed(product("a", 50), vector("b", 100, "a"), product("c", 1, "a", "b")) == 202


def test_collectives_change_sizes():
    kinds = CollectiveKind
    assert needed(product("a", 50), exchange("b", kinds.ALL_REDUCE, 100, "a")) == 100
    assert needed(product("a", 50), exchange("b", kinds.REDUCE_SCATTER, 100, "a")) == 100
    assert needed(product("a", 50), exchange("b", kinds.ALL_GATHER, 400, "a")) == 500
    assert needed(product("a", 50), exchange("b", kinds.ALL_TO_ALL, 100, "a")) == 200


def test_what_is_kept_counts_as_stash():
    # kept results are part of the stash, all of which is there in the end
    assert needed(product("a", 50, stash=100), product("b", 30, "a", stash=60)) == 0
    assert needed(product("a", 50), vector("b", 100, "a", stash=100)) == 100
    # what is kept in the end is not there yet while a large result lives
    assert needed(product("a", 50), product("b", 1, "a"), product("c", 200, "b", stash=400)) == 2


def test_gradients_of_weights_have_buffers_of_their_own():
    backward = (
        product("data", 10, phase=Phase.DATA_GRADIENT),
        product("weight", 1000, phase=Phase.WEIGHT_GRADIENT),
    )
    # and the gradient of the output, 20 bytes, is there throughout
    assert temporary_bytes(layer(backward=backward)) == 20 + 20


def test_a_layer_without_operators_needs_nothing():
    assert needed() == 0


@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-70b", "bert-large", "opt-350m"])
def test_zoo(name):
    workload = load_workload(name)

    def steps(**sharding):
        return [part for part, _ in workload.step(LayerSharding(**sharding)).layers]

    for one, two in zip(steps(microbatch=1), steps(microbatch=2), strict=True):
        assert 0 < temporary_bytes(one) < temporary_bytes(two)
        # the gradient of the layer's output is there throughout
        assert temporary_bytes(one) >= one.output_bytes


@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-70b", "bert-large", "opt-350m"])
@pytest.mark.parametrize("sequence", [False, True])
def test_zoo_within_simple_bounds(name, sequence):
    step = load_workload(name).step(LayerSharding(microbatch=2, tensor=2, sequence=sequence))
    for part, _ in step.layers:
        # the largest product of the backward pass must be somewhere beside the gradient that came in; and
        # never is there more than all results of a pass at once
        written = [
            operator.gemm.batch * operator.gemm.m * operator.gemm.n * 2
            for operator in part.backward
            if operator.gemm is not None and operator.vector is None and operator.phase is Phase.DATA_GRADIENT
        ]
        passing = sum(
            operator.vector.write_bytes if operator.vector else operator.collective.payload_bytes
            for operator in (*part.forward, *part.backward)
            if operator.vector or operator.collective
        )
        products = sum(
            operator.gemm.batch * operator.gemm.m * operator.gemm.n * 2
            for operator in (*part.forward, *part.backward)
            if operator.gemm
        )
        assert max(written, default=0) <= temporary_bytes(part) - part.output_bytes
        assert temporary_bytes(part) <= part.output_bytes + passing + products
