"""Read placement instances from JSON.

The format is that of PHAZE's placement solver: one instance, or a list of ``{name, instance}``, plain or gzipped.
"""

import difflib
import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.search.placement.instances import LayerChain, Optimizer, PlacementInstance

_Amount = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
"""Seconds or bytes; the limit keeps sums, quotients and products of them finite."""
_Positive = Annotated[float, Field(ge=1e-30, le=1e30, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1, le=2**31)]


_MOST_LAYERS = 4000
"""The search keeps matrices of layers × layers: beyond this they take gigabytes."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Node(_Strict):
    id: int
    parameterSize: _Amount  # noqa: N815 (the file's names)
    activationSize: _Amount  # noqa: N815
    optimalLatencyFw: _Amount  # noqa: N815
    optimalLatencyBw: _Amount  # noqa: N815
    isTensorParallelized: bool  # noqa: N815


class _Edge(_Strict):
    sourceId: int  # noqa: N815
    destId: int  # noqa: N815
    communicationCost: _Amount  # noqa: N815


class _Instance(_Strict):
    maxMemoryPerDevice: _Positive  # noqa: N815
    maxDevices: _Count  # noqa: N815
    bandwidth: _Positive
    mbsInBatch: _Count  # noqa: N815
    activationRecomputation: bool  # noqa: N815
    optimizerAlgorithm: str  # noqa: N815
    nodes: dict[str, list[_Node]]
    edges: dict[str, list[_Edge]]


class _Entry(_Strict):
    name: str
    instance: _Instance
    expected: JsonValue = None
    """A known answer, kept for whoever compares; the search does not read it."""


_MODELS: tuple[type[BaseModel], ...] = (_Entry, _Instance, _Node, _Edge)


def _suggestion(word: str, allowed: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, allowed, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _shown(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _of_validation(place: str, prefix: str, error: ValidationError) -> list[Problem]:
    """Turn pydantic's findings into problems."""
    names = {name for model in _MODELS for name in model.model_fields}
    problems = []
    for found in error.errors(include_url=False):
        key = ".".join([part for part in (prefix,) if part] + [str(part) for part in found["loc"]])
        what = found["msg"][0].lower() + found["msg"][1:]
        if found["type"] == "missing":
            message = "missing; add it"
        elif found["type"] == "extra_forbidden":
            message = f"unknown key{_suggestion(str(found['loc'][-1]), sorted(names))}; correct or remove it"
        else:
            message = f"found {_shown(found['input'])}; {what}"
        problems.append(Problem(place=place, key=key, message=message))
    return problems


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


def _chain(
    place: str, prefix: str, width: str, nodes: Sequence[_Node], edges: Sequence[_Edge]
) -> LayerChain | list[Problem]:
    """Build one chain, or say everything that is wrong with it."""
    problems: list[Problem] = []

    def complain(key: str, message: str) -> None:
        problems.append(Problem(place=place, key=f"{prefix}{key}", message=message))

    known: dict[int, int] = {}
    if not nodes:
        complain(f"nodes.{width}", "no layers; give at least one")
    for index, node in enumerate(nodes):
        if node.id in known:
            complain(f"nodes.{width}.{index}.id", f"layer {node.id} is given twice; ids must differ")
        known.setdefault(node.id, index)
    if len(nodes) > _MOST_LAYERS:
        complain(
            f"nodes.{width}", f"{len(nodes)} layers; at most {_MOST_LAYERS} are placed: merge layers into larger ones"
        )
    pairs: set[tuple[int, int]] = set()
    for index, edge in enumerate(edges):
        key = f"edges.{width}.{index}"
        for end, layer in (("sourceId", edge.sourceId), ("destId", edge.destId)):
            if layer not in known:
                complain(f"{key}.{end}", f"there is no layer {layer}; layers are {_shown(sorted(known))}")
        if edge.sourceId == edge.destId:
            complain(key, f"an edge from layer {edge.sourceId} to itself; remove it")
        if (edge.sourceId, edge.destId) in pairs:
            complain(key, f"the edge from {edge.sourceId} to {edge.destId} is given twice; add up their bytes in one")
        pairs.add((edge.sourceId, edge.destId))
    if problems:
        return problems
    order = _pipeline_order([node.id for node in nodes], [(edge.sourceId, edge.destId) for edge in edges])
    if isinstance(order, str):
        complain(f"edges.{width}", order)
        return problems
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


def _instance(place: str, prefix: str, name: str, raw: _Instance) -> PlacementInstance | list[Problem]:
    problems: list[Problem] = []
    chains: dict[int, LayerChain] = {}

    def complain(key: str, message: str) -> None:
        problems.append(Problem(place=place, key=f"{prefix}{key}", message=message))

    optimizers = [each.value for each in Optimizer]
    if raw.optimizerAlgorithm not in optimizers:
        hint = _suggestion(raw.optimizerAlgorithm, optimizers)
        complain("optimizerAlgorithm", f"found {raw.optimizerAlgorithm!r}; allowed are {', '.join(optimizers)}{hint}")
    if not raw.nodes:
        complain("nodes", "no tensor-parallel width; give the layers of at least one")
    for width in raw.edges.keys() - raw.nodes.keys():
        complain(f"edges.{width}", "edges of a tensor-parallel width without nodes; add the nodes or remove the edges")
    for width, nodes in raw.nodes.items():
        if not (width.isascii() and width.isdecimal() and 1 <= int(width[:10]) <= 2**31):
            complain(f"nodes.{width}", f"found {_shown(width)}; a tensor-parallel width is a whole number from 1 on")
        elif int(width) in chains:
            complain(f"nodes.{width}", "the same tensor-parallel width is given twice; remove one")
        elif width not in raw.edges:
            complain(f"edges.{width}", "missing; add the edges of this tensor-parallel width (a list, possibly empty)")
        else:
            chain = _chain(place, prefix, width, nodes, raw.edges[width])
            if isinstance(chain, LayerChain):
                chains[int(width)] = chain
            else:
                problems += chain
    if problems:
        return problems
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


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice in one object; remove one")
    return members


def _load(path: Path) -> object:
    """Return the JSON value in ``path``; raise ``ConfigError`` with the place of what cannot be read."""
    place = str(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        what = "it is a directory; name a file" if path.is_dir() else (error.strerror or str(error))
        raise ConfigError([Problem(place=place, key="", message=f"cannot be read: {what}")]) from None
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        return json.loads(content.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"the gzip data is damaged or cut off ({error}); write the file again"
    except UnicodeDecodeError as error:
        message = f"neither gzip nor text in UTF-8 (byte {error.start}); give JSON, plain or gzipped"
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        message = f"not valid JSON: {error.msg[0].lower() + error.msg[1:]}"
    except RecursionError:
        message = "not an instance file: the JSON is nested too deeply"
    except ValueError as error:
        message = str(error)
    raise ConfigError([Problem(place=place, key="", message=message)])


def read_instances(path: Path) -> list[PlacementInstance]:
    """Return the instances in the JSON file ``path`` (plain or gzipped), in the file's order.

    The file holds one instance, one ``{name, instance}``, or a list of these; an instance without a name is called by
    the file's stem or its index in the list. Raises ``ConfigError`` with everything that is wrong with the file.
    """
    place = str(path)
    loaded = _load(path)
    listed = isinstance(loaded, list)
    entries: list[object] = list(loaded) if isinstance(loaded, list) else [loaded]
    if not entries:
        raise ConfigError([Problem(place=place, key="", message="an empty list; give at least one instance")])
    problems: list[Problem] = []
    instances: list[PlacementInstance] = []
    names: set[str] = set()
    for index, entry in enumerate(entries):
        prefix = f"{index}" if listed else ""
        name = str(index) if listed else path.name.split(".")[0]
        try:
            if isinstance(entry, dict) and ("instance" in entry or "name" in entry):
                named = _Entry.model_validate(entry)
                name, raw = named.name, named.instance
                prefix = f"{prefix}.instance".removeprefix(".")
            else:
                raw = _Instance.model_validate(entry)
        except ValidationError as error:
            problems += _of_validation(place, prefix, error)
            continue
        if name in names:
            problems.append(Problem(place=place, key=prefix, message=f"a second instance called {name!r}; rename one"))
        names.add(name)
        instance = _instance(place, f"{prefix}." if prefix else "", name, raw)
        if isinstance(instance, PlacementInstance):
            instances.append(instance)
        else:
            problems += instance
    if problems:
        raise ConfigError(problems)
    return instances
