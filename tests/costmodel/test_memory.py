"""Memory per device, by hand."""

from archplace.costmodel import LayerMemory, stage_memory
from archplace.workloads import Layer, ParameterBytes

ADAM = ParameterBytes(weight=2, gradient=2, optimizer=12)


def layer(name, parameters, stash_bytes, input_bytes):
    return Layer(
        name=name,
        forward=(),
        backward=(),
        parameters=parameters,
        stash_bytes=stash_bytes,
        input_bytes=input_bytes,
        output_bytes=input_bytes,
    )


def test_stage_without_recomputation():
    memory = stage_memory(((layer("block", 1000, 340, 20), 3),), ADAM, recompute=False, in_flight=4)
    assert memory.weights_bytes == memory.gradients_bytes == 6000
    assert memory.optimizer_bytes == 36_000
    assert memory.activations_bytes == 4 * 3 * 340
    assert memory.total_bytes == 48_000 + 4080


def test_stage_with_recomputation_keeps_inputs_and_one_working_set():
    layers = ((layer("small", 0, 100, 20), 2), (layer("large", 0, 340, 20), 1), (layer("absent", 0, 10**9, 1), 0))
    memory = stage_memory(layers, ADAM, recompute=True, in_flight=4)
    assert memory.activations_bytes == 4 * 3 * 20 + 340


def test_layer_memory_adds_up_to_the_stage():
    block = layer("block", 1000, 340, 20)
    for recompute in (False, True):
        part = LayerMemory.of(block, ADAM, recompute=recompute)
        whole = stage_memory(((block, 5),), ADAM, recompute=recompute, in_flight=2)
        assert whole.total_bytes == 5 * (part.state_bytes + 2 * part.in_flight_bytes) + part.working_bytes
