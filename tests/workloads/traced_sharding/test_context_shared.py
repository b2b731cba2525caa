"""Devices that share sequences keep parameters whole and exchange no more than the built-in model."""

from dataclasses import replace

import pytest
from tensor_layers import gpt_block

from archplace.workloads import CollectiveKind, ContextKind, LayerSharding, Precision, load_workload
from archplace.workloads.operators import Axis
from archplace.workloads.precision import Format
from archplace.workloads.traced.lowering import lower
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.sharded_layer import ShardedLayer
from archplace.workloads.traced.sharding_program import solve_sharding
from archplace.workloads.traced.states import Cutting
from archplace.workloads.traced.views import without_views


def shared(block, *cuttings):
    sharded = ShardedLayer.whole(without_views(block))
    for cutting in cuttings:
        sharded = sharded.shared(solve_sharding(sharded.layer, cutting, Rates()), cutting)
    return lower(sharded, precision=Format.BF16)


def built(width, heads, **sharding):
    workload = load_workload("gpt3-175b")
    model = replace(
        workload.model,
        d_model=width,
        embedding_width=width,
        d_ff=4 * width,
        n_heads=heads,
        n_kv_heads=heads,
        dropout=0.0,
        attention_dropout=0.0,
        embedding_dropout=0.0,
    )
    job = replace(workload, model=model, precision=Precision.BF16)
    return job.step(LayerSharding(microbatch=1, **sharding)).layers[1][0]


def sent_bytes(operators, axis):
    """What one device sends, on a ring (Patarasuk and Yuan 2009, section 4)."""
    total = 0.0
    for op in operators:
        if op.collective is not None and op.collective.axis is axis:
            rounds = 2 if op.collective.kind is CollectiveKind.ALL_REDUCE else 1
            total += rounds * op.collective.payload_bytes * (1 - 1 / op.collective.group_size)
    return total


@pytest.mark.parametrize("context", [2, 4])
@pytest.mark.parametrize(("width", "heads"), [(4096, 32), (12288, 96)])
def test_a_share_of_the_work_with_all_parameters(width, heads, context):
    block = gpt_block(d_model=width, heads=heads)
    found = shared(block, Cutting.context(context))
    theirs = built(width, heads, context=context, context_kind=ContextKind.ALL_GATHER)
    for mine, other in ((found.forward, theirs.forward), (found.backward, theirs.backward)):
        assert sum(op.macs for op in mine) == sum(op.macs for op in other)
        # two statistics of each row of scores come on top where keys stay and queries travel
        assert sent_bytes(mine, Axis.CONTEXT) <= 1.05 * sent_bytes(other, Axis.CONTEXT)
    assert found.parameters == theirs.parameters == block.parameters
    assert (found.input_bytes, found.output_bytes) == (theirs.input_bytes, theirs.output_bytes)
    assert found.stash_bytes == pytest.approx(theirs.stash_bytes, rel=1e-3)


def test_a_tensor_parallel_group_shares_what_is_left():
    found = shared(gpt_block(d_model=4096, heads=32), Cutting.context(2), Cutting.tensor(4, sequence=False))
    theirs = built(4096, 32, context=2, context_kind=ContextKind.ALL_GATHER, tensor=4)
    for mine, other in ((found.forward, theirs.forward), (found.backward, theirs.backward)):
        assert sum(op.macs for op in mine) == sum(op.macs for op in other)
        assert sent_bytes(mine, Axis.TENSOR) == sent_bytes(other, Axis.TENSOR)
    assert found.parameters == theirs.parameters


def test_a_traced_step_shares_its_sequences(traced_gpt_job):
    sharding = LayerSharding(microbatch=1, context=2, context_kind=ContextKind.ALL_GATHER)
    whole, step = (traced_gpt_job.step(one) for one in (LayerSharding(microbatch=1), sharding))
    for (mine, _), (all_of_it, _) in zip(step.layers, whole.layers, strict=True):
        assert mine.parameters == all_of_it.parameters
        assert mine.input_bytes == all_of_it.input_bytes // 2
        assert mine.stash_bytes == pytest.approx(all_of_it.stash_bytes / 2, rel=1e-3)
    axes = {op.collective.axis for layer, _ in step.layers for op in (*layer.forward, *layer.backward) if op.collective}
    assert axes == {Axis.CONTEXT}
