"""PHAZE's format of a placement instance."""

from collections.abc import Sequence

import numpy as np

from archplace.search.placement._instance_checks import (
    Amount,
    Count,
    Findings,
    Positive,
    Strict,
    check_layers,
    check_optimizer,
    check_widths,
    shown,
)
from archplace.search.placement.instances import LayerChain, Optimizer, PlacementInstance


class _Node(Strict):
    id: int
    parameterSize: Amount  # noqa: N815 (the file's names)
    activationSize: Amount  # noqa: N815
    optimalLatencyFw: Amount  # noqa: N815
    optimalLatencyBw: Amount  # noqa: N815
    isTensorParallelized: bool  # noqa: N815


class _Edge(Strict):
    sourceId: int  # noqa: N815
    destId: int  # noqa: N815
    communicationCost: Amount  # noqa: N815


class PhazeInstance(Strict):
    """One instance as the file gives it."""

    maxMemoryPerDevice: Positive  # noqa: N815
    maxDevices: Count  # noqa: N815
    bandwidth: Positive
    mbsInBatch: Count  # noqa: N815
    activationRecomputation: bool  # noqa: N815
    optimizerAlgorithm: str  # noqa: N815
    nodes: dict[str, list[_Node]]
    edges: dict[str, list[_Edge]]


MODELS = (PhazeInstance, _Node, _Edge)


def _pipeline_order(ids: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[int] | str:
    """Return ``ids`` in the one order that the edges allow, or what is wrong with them."""
    inputs = dict.fromkeys(ids, 0)
    outputs: dict[int, list[int]] = {each: [] for each in ids}
    for source, target in edges:
        inputs[target] += 1
        outputs[source].append(target)
    ready = [each for each in ids if not inputs[each]]
    order: list[int] = []
    while ready:
        if len(ready) > 1:
            return (
                f"not a chain: neither of the layers {ready[0]} and {ready[1]} comes before the other; add the edge "
                "between them"
            )
        order.append(ready.pop())
        for target in outputs[order[-1]]:
            inputs[target] -= 1
            if not inputs[target]:
                ready.append(target)
    if len(order) < len(ids):
        return f"the edges form a cycle through or before the layers {sorted(set(ids) - set(order))}; remove one"
    return order


def _chain(width: str, nodes: Sequence[_Node], edges: Sequence[_Edge], findings: Findings) -> LayerChain | None:
    """Build one chain, or add everything that is wrong with it."""
    known: dict[int, int] = {}
    before = len(findings.problems)
    check_layers(len(nodes), f"nodes.{width}", findings)
    for index, node in enumerate(nodes):
        if node.id in known:
            findings.add(f"nodes.{width}.{index}.id", f"layer {node.id} is given twice; ids must differ")
        known.setdefault(node.id, index)
    pairs: set[tuple[int, int]] = set()
    for index, edge in enumerate(edges):
        key = f"edges.{width}.{index}"
        for end, layer in (("sourceId", edge.sourceId), ("destId", edge.destId)):
            if layer not in known:
                findings.add(f"{key}.{end}", f"there is no layer {layer}; layers are {shown(sorted(known))}")
        if edge.sourceId == edge.destId:
            findings.add(key, f"an edge from layer {edge.sourceId} to itself; remove it")
        if (edge.sourceId, edge.destId) in pairs:
            findings.add(
                key, f"the edge from {edge.sourceId} to {edge.destId} is given twice; add up their bytes in one"
            )
        pairs.add((edge.sourceId, edge.destId))
    if len(findings.problems) > before:
        return None
    order = _pipeline_order([node.id for node in nodes], [(edge.sourceId, edge.destId) for edge in edges])
    if isinstance(order, str):
        findings.add(f"edges.{width}", order)
        return None
    position = {layer: index for index, layer in enumerate(order)}
    in_order = [nodes[known[layer]] for layer in order]
    return LayerChain(
        layer_ids=tuple(order),
        forward_s=np.array([node.optimalLatencyFw for node in in_order]),
        backward_s=np.array([node.optimalLatencyBw for node in in_order]),
        parameter_bytes=np.array([node.parameterSize for node in in_order]),
        activation_bytes=np.array([node.activationSize for node in in_order]),
        tensor_parallel=np.array([node.isTensorParallelized for node in in_order]),
        edge_sources=np.array([position[edge.sourceId] for edge in edges], dtype=np.int64),
        edge_targets=np.array([position[edge.destId] for edge in edges], dtype=np.int64),
        edge_bytes=np.array([edge.communicationCost for edge in edges], dtype=np.float64),
    )


def phaze_instance(raw: PhazeInstance, name: str, findings: Findings) -> PlacementInstance | None:
    """Return the instance that the file gives, or add everything that is wrong with it."""
    chains: dict[int, LayerChain] = {}
    check_optimizer(raw.optimizerAlgorithm, [each.value for each in Optimizer], "optimizerAlgorithm", findings)
    for width in raw.edges.keys() - raw.nodes.keys():
        message = "edges of a tensor-parallel width without nodes; add the nodes or remove the edges"
        findings.add(f"edges.{width}", message)
    for number, width in check_widths(raw.nodes, "nodes", findings).items():
        if width not in raw.edges:
            message = "missing; add the edges of this tensor-parallel width (a list, possibly empty)"
            findings.add(f"edges.{width}", message)
            continue
        chain = _chain(width, raw.nodes[width], raw.edges[width], findings)
        if chain is not None:
            chains[number] = chain
    if findings.problems:
        return None
    return PlacementInstance(
        name=name,
        chains=chains,
        memory_bytes=raw.maxMemoryPerDevice,
        max_devices=raw.maxDevices,
        bandwidth_bytes_per_s=raw.bandwidth,
        microbatches=raw.mbsInBatch,
        recompute=raw.activationRecomputation,
        optimizer=Optimizer(raw.optimizerAlgorithm),
    )
