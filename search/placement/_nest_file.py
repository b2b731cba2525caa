"""A format for the questions that NEST asks: its degrees, its network's levels, and its layers by width.

Times are in milliseconds, bandwidths in bytes per millisecond; here they become seconds.
"""

import math
from typing import Literal

import numpy as np
from pydantic import Field, JsonValue

from archplace.search.placement._instance_checks import (
    MOST_DEVICES,
    Amount,
    Count,
    Findings,
    Positive,
    Strict,
    check_layers,
    check_optimizer,
    check_widths,
)
from archplace.search.placement.instances import LayerChain, NestInstance, NetworkLevel, Optimizer

_MS_PER_S = 1e3
_MOST_LEVELS = 16


class _Layer(Strict):
    orig_id: int
    fw_ms: Amount
    bw_ms: Amount
    param_bytes: Amount
    activation_bytes: Amount


class _Graph(Strict):
    layers: list[_Layer]
    edges: list[list[Amount]]


class _Network(Strict):
    devices_per_level: list[Count]
    bandwidth_per_level: list[Positive]
    latency_per_level: list[Amount]


class RawNestInstance(Strict):
    """One instance as the file gives it."""

    schema_: Literal["nest-dp-1"] = Field(alias="schema")
    name: str | None = None
    num_devices: Count
    hbm_bytes: Positive
    microbatches_per_batch: Count
    ep: Count
    cp: Count
    sp: bool
    """Whether activations are split along the sequence too: the layers' times and bytes already say so."""
    recompute: bool
    optimizer: str
    recompute_forward_priced_as_backward: bool
    network: _Network
    graphs: dict[str, _Graph]
    description: JsonValue = None
    """Kept for whoever reads the file, as the following are; the search does not read them."""
    source: JsonValue = None
    nest_reported: JsonValue = None
    optimum: JsonValue = None


MODELS = (RawNestInstance, _Network, _Graph, _Layer)


def _levels(raw: RawNestInstance, findings: Findings) -> tuple[NetworkLevel, ...]:
    network = raw.network
    fan_outs = network.devices_per_level
    if not 1 <= len(fan_outs) <= _MOST_LEVELS:
        findings.add("network.devices_per_level", f"{len(fan_outs)} levels; give 1 to {_MOST_LEVELS}, innermost first")
        return ()
    per_level = {
        "bandwidth_per_level": network.bandwidth_per_level,
        "latency_per_level": network.latency_per_level,
    }
    for key, values in per_level.items():
        if len(values) != len(fan_outs):
            message = f"{len(values)} values for {len(fan_outs)} levels (devices_per_level); give one per level"
            findings.add(f"network.{key}", message)
            return ()
    reached = math.prod(fan_outs)
    if reached < raw.num_devices:
        product = " · ".join(str(each) for each in fan_outs)
        message = f"the levels connect {product} = {reached} devices, num_devices is {raw.num_devices}; raise a fan-out"
        findings.add("network.devices_per_level", message)
    return tuple(
        NetworkLevel(fan_out=fan_out, bandwidth_bytes_per_s=bandwidth * _MS_PER_S, latency_s=latency / _MS_PER_S)
        for fan_out, bandwidth, latency in zip(fan_outs, *per_level.values(), strict=True)
    )


def _chain(width: str, graph: _Graph, findings: Findings) -> LayerChain | None:
    """Build one chain, or add everything that is wrong with it."""
    before, n = len(findings.problems), len(graph.layers)
    check_layers(n, f"graphs.{width}.layers", findings)
    pairs: set[tuple[float, float]] = set()
    for index, edge in enumerate(graph.edges):
        key = f"graphs.{width}.edges.{index}"
        if len(edge) != 3:
            findings.add(key, f"{len(edge)} values; an edge is [from, to, bytes]")
            continue
        source, target, _ = edge
        if source != int(source) or target != int(target) or not source < target < n:
            found = f"an edge from {source:g} to {target:g}"
            message = (
                f"{found}; edges lead from a layer to a later one, counted from 0 to {n - 1} in the list of layers"
            )
            findings.add(key, message)
        elif (source, target) in pairs:
            findings.add(key, f"the edge from {source:g} to {target:g} is given twice; add up their bytes in one")
        pairs.add((source, target))
    alone = next((layer for layer in range(n - 1) if (layer, layer + 1) not in pairs), None)
    if alone is not None and len(findings.problems) == before:
        message = f"not a chain: layer {alone} has no edge to the next; add [{alone}, {alone + 1}, bytes]"
        findings.add(f"graphs.{width}.edges", message)
    if len(findings.problems) > before:
        return None
    sources, targets, sizes = np.array(graph.edges, dtype=np.float64).reshape(-1, 3).T
    return LayerChain(
        layer_ids=tuple(layer.orig_id for layer in graph.layers),
        forward_s=np.array([layer.fw_ms for layer in graph.layers]) / _MS_PER_S,
        backward_s=np.array([layer.bw_ms for layer in graph.layers]) / _MS_PER_S,
        parameter_bytes=np.array([layer.param_bytes for layer in graph.layers]),
        activation_bytes=np.array([layer.activation_bytes for layer in graph.layers]),
        tensor_parallel=np.ones(n, dtype=np.bool_),
        edge_sources=sources.astype(np.int64),
        edge_targets=targets.astype(np.int64),
        edge_bytes=sizes,
    )


def nest_instance(raw: RawNestInstance, name: str, findings: Findings) -> NestInstance | None:
    """Return the instance that the file gives, or add everything that is wrong with it."""
    chains: dict[int, LayerChain] = {}
    check_optimizer(raw.optimizer, [each.value for each in Optimizer], "optimizer", findings)
    levels = _levels(raw, findings)
    for number, width in check_widths(raw.graphs, "graphs", findings).items():
        if number * raw.ep * raw.cp > MOST_DEVICES:
            message = (
                f"{number} · {raw.ep} (ep) · {raw.cp} (cp) devices a stage; at most {MOST_DEVICES}: lower a degree"
            )
            findings.add(f"graphs.{width}", message)
        chain = _chain(width, raw.graphs[width], findings)
        if chain is not None:
            chains[number] = chain
    if findings.problems:
        return None
    return NestInstance(
        name=name,
        chains=chains,
        memory_bytes=raw.hbm_bytes,
        max_devices=raw.num_devices,
        expert_parallel=raw.ep,
        context_parallel=raw.cp,
        levels=levels,
        microbatches=raw.microbatches_per_batch,
        recompute=raw.recompute,
        recomputed_forward_as_backward=raw.recompute_forward_priced_as_backward,
        optimizer=Optimizer(raw.optimizer),
    )
