"""A scaled model is the model that a step of that size would have shown."""

import pytest
from tensor_layers import DATA, FORWARD, LayerBuilder, gpt_block

from archplace.workloads.traced.scaling import scale
from archplace.workloads.traced.tensor_graph import Symbol, TracedModel


def model(*, batch, sequence):
    block = gpt_block(batch=batch, sequence=sequence, d_model=32, heads=4)
    macs = sum(op.macs for op in block.operators)
    return TracedModel(
        name="gpt", layers=((block, 3),), batch=batch, sequence_length=sequence, model_flops=2.0 * 3 * macs
    )


@pytest.mark.parametrize(("batch", "sequence"), [(2, 16), (4, 8), (6, 24), (1, 40)])
def test_scaling_gives_the_model_of_that_size(batch, sequence):
    traced = model(batch=2, sequence=16)
    assert scale(traced, batch=batch, sequence_length=sequence) == model(batch=batch, sequence=sequence)


def test_flops_grow_with_the_batch_and_with_scores_twice_with_the_sequence():
    traced = model(batch=2, sequence=16)
    assert scale(traced, batch=10).model_flops == 5 * traced.model_flops
    scores = 3 * 3 * 2 * 2 * 2 * 16 * 16 * 32  # 3 blocks, 3 passes, 2 products, 2 FLOPs, 2 sequences
    assert scale(traced, sequence_length=32).model_flops == 2 * (traced.model_flops - scores) + 4 * scores


def test_what_is_not_known_is_refused():
    g = LayerBuilder({"b": 6, "a": 4}, {"b": Symbol.BATCH})
    g.tensor("x", "b a")
    g.map("relu", FORWARD, {"x": "b a"}, {"y": "b a"})
    g.tensor("dy", "b a")
    g.map("relu.backward", DATA, {"dy": "b a", "y": "b a"}, {"dx": "b a"})
    layer = g.layer(enters=["x"], leaves=["y"], gradients_enter=["dy"], gradients_leave=["dx"])
    traced = TracedModel(name="mlp", layers=((layer, 1),), batch=12, sequence_length=None, model_flops=0.0)
    assert scale(traced, batch=24).layers[0][0].tensors[0].elements == 12 * 4
    with pytest.raises(ValueError, match="sequence_length cannot become 8: in mlp no dimension"):
        scale(traced, sequence_length=8)
    with pytest.raises(ValueError, match=r"a batch dimension of 6 elements in layer block would have 0\.5"):
        scale(traced, batch=1)
    with pytest.raises(ValueError, match="batch is 0, must be at least 1"):
        scale(traced, batch=0)
