"""The layers of a traced model as one device executes them: shared by each group of devices in turn, then lowered."""

from dataclasses import replace
from functools import lru_cache

from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.precision import Precision
from archplace.workloads.traced.lowering import lower
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.recasting import recast
from archplace.workloads.traced.scaling import scale
from archplace.workloads.traced.sharded_layer import ShardedLayer
from archplace.workloads.traced.states import Cutting, is_of_experts
from archplace.workloads.traced.tensor_graph import TensorLayer, TracedModel
from archplace.workloads.traced.views import without_views
from archplace.workloads.training_step import Layer


@lru_cache(maxsize=1024)
def shared_layers(
    model: TracedModel, sharding: LayerSharding, sequence_length: int | None, precision: Precision, rates: Rates
) -> tuple[tuple[Layer, int], ...]:
    """Return the layers of one device under ``sharding``, in model order, each with how often it repeats in a row.

    A search asks for each sharding many times, and the programs take a second: answers are kept.

    Raises ``ValueError`` with the reason where the model cannot be scaled or shared so.
    """
    formats = precision.formats
    cuttings = Cutting.of(sharding)
    layers = _ends_apart(recast(scale(model, batch=sharding.microbatch, sequence_length=sequence_length), formats))
    if sharding.expert == 1:
        return tuple((_shared(layer, cuttings, precision, rates), count) for layer, count in layers)
    # layers with experts see the sequences of all replicas among which these are spread
    batch = sharding.microbatch * sharding.expert
    joint = _ends_apart(recast(scale(model, batch=batch, sequence_length=sequence_length), formats))
    return tuple(
        (_shared(together, cuttings, precision, rates), count)
        if any(is_of_experts(tensor) for tensor in together.tensors)
        else (_shared(alone, cuttings[1:], precision, rates), count)
        for (alone, count), (together, _) in zip(layers, joint, strict=True)
    )


def _shared(layer: TensorLayer, cuttings: tuple[Cutting, ...], precision: Precision, rates: Rates) -> Layer:
    from archplace.workloads.traced.sharding_program import solve_sharding  # a solver, which takes long to import

    sharded = ShardedLayer.whole(without_views(layer))
    for cutting in cuttings:
        sharded = sharded.shared(solve_sharding(sharded.layer, cutting, rates), cutting)
    return lower(sharded, precision=precision.formats.products)


def _ends_apart(model: TracedModel) -> tuple[tuple[TensorLayer, int], ...]:
    """The layers of a model, the first and the last one alone: pipelines treat these differently."""
    found = list(model.layers)
    for place, title in ((0, "first"), (-1, "last")):
        layer, count = found[place]
        if count > 1:
            rest = (layer, count - 1)
            end = (replace(layer, name=f"{layer.name}.{title}"), 1)
            found[place:] = [end, rest, *found[1:]] if place == 0 else [rest, end]
    return tuple(found)
