"""Devices that execute a sharded layer and exchange what it says have the whole layer's results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_devices import inputs_of, part_of, run_shared, run_whole, shape
from tensor_layers import DATA, FORWARD, WEIGHT, LayerBuilder

from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.sharded_layer import ShardedLayer
from archplace.workloads.traced.sharding_program import solve_sharding
from archplace.workloads.traced.states import Cutting
from archplace.workloads.traced.tensor_graph import Symbol, TensorOpKind, TensorRole

SYMBOLS = {"b": Symbol.BATCH, "s": Symbol.SEQUENCE, "t": Symbol.SEQUENCE, "e": Symbol.EXPERT}


def mixing_block(*, sizes):
    """Two linear layers with a map between, a product along the sequence, a bias, residuals; all gradients."""
    g = LayerBuilder(sizes, SYMBOLS)
    g.tensor("x", "b s d")
    g.parameter("mix", "h d")
    g.parameter("up", "d f")
    g.parameter("bias", "f")
    g.parameter("down", "f d")
    g.product("heads", FORWARD, {"x": "b s d", "mix": "h d"}, {"m": "b s h"})
    g.product("scores", FORWARD, {"m": "b s h", "x": "b t d"}, {"z": "b h s t"})
    g.product("gathered", FORWARD, {"z": "b h s t", "x": "b t d"}, {"y": "b s d"})
    g.map("residual", FORWARD, {"x": "b s d", "y": "b s d"}, {"r": "b s d"}, linear=True)
    g.product("wide", FORWARD, {"r": "b s d", "up": "d f"}, {"w": "b s f"})
    g.map("square", FORWARD, {"w": "b s f", "bias": "f"}, {"q": "b s f"})
    g.product("narrow", FORWARD, {"q": "b s f", "down": "f d"}, {"n": "b s d"})
    g.map("residual2", FORWARD, {"r": "b s d", "n": "b s d"}, {"out": "b s d"}, linear=True)
    g.tensor("dout", "b s d")
    g.gradient("ddown", "f d", "down")
    g.gradient("dbias", "f", "bias")
    g.gradient("dup", "d f", "up")
    g.product("narrow.data", DATA, {"dout": "b s d", "down": "f d"}, {"dq": "b s f"})
    g.product("narrow.weight", WEIGHT, {"q": "b s f", "dout": "b s d"}, {"ddown": "f d"})
    g.product("square.data", DATA, {"dq": "b s f", "w": "b s f"}, {"dw": "b s f"})
    g.op("bias.weight", TensorOpKind.REDUCTION, WEIGHT, {"dw": "b s f"}, {"dbias": "f"}, linear=True)
    g.product("wide.data", DATA, {"dw": "b s f", "up": "d f"}, {"dr": "b s d"})
    g.product("wide.weight", WEIGHT, {"r": "b s d", "dw": "b s f"}, {"dup": "d f"})
    g.map("residual.data", DATA, {"dout": "b s d", "dr": "b s d"}, {"dx": "b s d"}, linear=True)
    return g.layer(enters=["x"], leaves=["out"], gradients_enter=["dout"], gradients_leave=["dx"])


def experts_block(*, sizes):
    """Experts on dispatched tokens, with all gradients."""
    g = LayerBuilder(sizes, SYMBOLS)
    g.tensor("x", "b s d")
    g.parameter("router", "e d")
    g.parameter("weights", "e d f")
    g.product("route", FORWARD, {"x": "b s d", "router": "e d"}, {"p": "b s e"})
    g.product("dispatch", FORWARD, {"p": "b s e", "x": "b s d"}, {"sent": "b e s d"})
    g.product("expert", FORWARD, {"sent": "b e s d", "weights": "e d f"}, {"done": "b e s f"})
    g.product("combine", FORWARD, {"p": "b s e", "done": "b e s f"}, {"y": "b s f"})
    g.tensor("dy", "b s f")
    g.gradient("dweights", "e d f", "weights")
    g.gradient("drouter", "e d", "router")
    g.product("combine.data", DATA, {"p": "b s e", "dy": "b s f"}, {"ddone": "b e s f"})
    g.product("expert.weight", WEIGHT, {"sent": "b e s d", "ddone": "b e s f"}, {"dweights": "e d f"})
    g.product("expert.data", DATA, {"ddone": "b e s f", "weights": "e d f"}, {"dsent": "b e s d"})
    g.product("route.data", DATA, {"dsent": "b e s d", "x": "b s d"}, {"dp": "b s e"})
    g.product("route.weight", WEIGHT, {"dp": "b s e", "x": "b s d"}, {"drouter": "e d"})
    g.product("dispatch.data", DATA, {"p": "b s e", "dsent": "b e s d"}, {"dx": "b s d"})
    return g.layer(enters=["x"], leaves=["y"], gradients_enter=["dy"], gradients_leave=["dx"])


BLOCKS = {"mixing": mixing_block, "experts": experts_block}
SHARINGS = {
    "tensor": [Cutting.tensor(2, sequence=False)],
    "tensor and sequence": [Cutting.tensor(2, sequence=True)],
    "context": [Cutting.context(2)],
    "experts": [Cutting.expert(2)],
    "context, then tensor": [Cutting.context(2), Cutting.tensor(3, sequence=False)],
    "context, then tensor and sequence": [Cutting.context(2), Cutting.tensor(3, sequence=True)],
}


@settings(max_examples=60, deadline=None)
@given(
    block=st.sampled_from(sorted(BLOCKS)),
    sharing=st.sampled_from(sorted(SHARINGS)),
    sizes=st.fixed_dictionaries({letter: st.sampled_from([2, 3, 6]) for letter in "dfhe"}),
    link=st.sampled_from([1e5, 1e7, 1e9]),
    memory=st.sampled_from([1e6, 1e9]),
    latency=st.sampled_from([1e-9, 1e-5]),
)
def test_devices_together_compute_the_layer(block, sharing, sizes, link, memory, latency):
    layer = BLOCKS[block](sizes={**sizes, "b": 2, "s": 6, "t": 6})
    rates = Rates(flops_per_s=1e8, hbm_bytes_per_s=memory, link_bytes_per_s=link, collective_latency_s=latency)
    sharded = ShardedLayer.whole(layer)
    degrees = {cutting.axis: cutting.degree for cutting in SHARINGS[sharing]}
    for cutting in SHARINGS[sharing]:
        sharded = sharded.shared(solve_sharding(sharded.layer, cutting, rates), cutting)
    rng = np.random.default_rng(0)
    given_tensors = (*layer.enters, *layer.gradients_enter)
    parameters = [t for t, tensor in enumerate(layer.tensors) if tensor.role is TensorRole.PARAMETER]
    values = {t: rng.normal(size=shape(layer.tensors[t])) for t in (*given_tensors, *parameters)}
    whole = run_whole(layer, values)
    devices = run_shared(sharded, degrees, inputs_of(sharded, layer, values, degrees))
    local = sharded.layer
    results = zip((*local.leaves, *local.gradients_leave), (*layer.leaves, *layer.gradients_leave), strict=True)
    for mine, theirs in results:
        for device, each in devices.items():
            expected = part_of(whole[theirs], shape(local.tensors[mine]), degrees, device)
            assert np.allclose(each[mine], expected), layer.tensors[theirs].name
    for gradient, tensor in enumerate(layer.tensors):
        if tensor.role is TensorRole.GRADIENT:
            _check_gradient(gradient, layer, local, whole, devices, degrees)


def _check_gradient(gradient, layer, local, whole, devices, degrees):
    """Each device has the gradient of the part of the parameter that it stores, or devices with that part its sum."""
    name = layer.tensors[layer.tensors[gradient].gradient_of].name
    stored = next(t for t, one in enumerate(local.tensors) if one.role is TensorRole.PARAMETER and one.name == name)
    wanted = shape(local.tensors[stored])
    found = [t for t, one in enumerate(local.tensors) if one.gradient_of == stored and shape(one) == wanted]
    parts = {device: part_of(whole[gradient], wanted, degrees, device) for device in devices}
    alike = {}
    for device, part in parts.items():
        alike.setdefault(part.tobytes(), []).append(device)

    def is_complete(t):
        return all(np.allclose(each[t], parts[device]) for device, each in devices.items())

    def is_sum(t):
        """Of all devices with the same part, or of those along one axis."""
        return any(
            all(
                np.allclose(sum(devices[device][t] for device in group) / repeated, parts[group[0]])
                for group in alike.values()
            )
            for repeated in (1, *degrees.values())
        )

    assert any(is_complete(t) or is_sum(t) for t in found), name


@pytest.mark.parametrize("sharing", [name for name, cuttings in SHARINGS.items() if len(cuttings) == 1])
def test_something_is_shared(sharing):
    """The layers above are not all run whole on every device, which would prove little."""
    layer = BLOCKS["experts"](sizes=dict.fromkeys("bsdfhet", 4))
    fast = Rates(flops_per_s=1e3, hbm_bytes_per_s=1e12, link_bytes_per_s=1e12, collective_latency_s=1e-12)
    (cutting,) = SHARINGS[sharing]
    assert all(way.loop is not None for way in solve_sharding(layer, cutting, fast).ways)
