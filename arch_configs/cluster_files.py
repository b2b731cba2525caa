"""Clusters from YAML files: the built-in ones by name, the user's by path.

A torus stands in the file as one dimension with a ``shape``, whose bandwidth is that of one of its rings; inside the
program it is one ring for each number of the shape.
"""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from archplace.arch_configs._builtin import builtin_names, locate
from archplace.arch_configs._sources import Sourced, check_sources, collect_sources
from archplace.arch_configs._yaml import Document, KeyPath, dotted
from archplace.arch_configs.calibration import Uncertainty
from archplace.arch_configs.cluster import (
    IDEAL_SOFTWARE,
    Cluster,
    Endpoint,
    Host,
    NetworkDimension,
    Software,
    Topology,
    achievable_problem,
)
from archplace.arch_configs.files import FileModel, parse_document, read_lenient
from archplace.arch_configs.units import Bytes, BytesPerSecond, SecondsOrZero

_Text = Annotated[str, Field(min_length=1)]


class _FileTopology(StrEnum):
    RING = "ring"
    FULLY_CONNECTED = "fully_connected"
    SWITCH = "switch"
    TORUS = "torus"


_Size = Annotated[int, Field(ge=1, le=2**24)]


class _Achievable(FileModel):
    message: Bytes
    fraction: Annotated[float, Field(gt=0, le=1)]


class _Dimension(Sourced):
    name: _Text
    topology: _FileTopology
    size: _Size | None = None
    shape: Annotated[tuple[_Size, ...], Field(min_length=1, max_length=3)] | None = None
    bandwidth: BytesPerSecond
    latency: SecondsOrZero
    achievable: Annotated[tuple[_Achievable, ...], Field(max_length=64)] = ()

    @field_validator("achievable")
    @classmethod
    def _possible(cls, table: tuple[_Achievable, ...]) -> tuple[_Achievable, ...]:
        problem = achievable_problem([(entry.message, entry.fraction) for entry in table])
        if problem is not None:
            raise ValueError(f"entry {problem[0] + 1}: {problem[1]}")
        return table


class _Endpoint(Sourced):
    start: SecondsOrZero = 0.0
    pass_bandwidth: BytesPerSecond | None = None


class _Host(Sourced):
    bandwidth: BytesPerSecond
    memory: Bytes


_Share = Annotated[float, Field(gt=0, le=1)]
_Factor = Annotated[float, Field(ge=1, le=100)]


class _Software(Sourced):
    dispatch: SecondsOrZero = IDEAL_SOFTWARE.dispatch_s
    tensor_rate: _Share = IDEAL_SOFTWARE.tensor_rate
    vector_traffic: _Factor = IDEAL_SOFTWARE.vector_traffic
    attention_time: _Factor = IDEAL_SOFTWARE.attention_time
    attention_gradient_time: _Factor = IDEAL_SOFTWARE.attention_gradient_time
    tensor_pieces: Annotated[int, Field(ge=1, le=64)] = IDEAL_SOFTWARE.tensor_pieces
    link_rate: _Share = IDEAL_SOFTWARE.link_rate
    fabric_rate: _Share = IDEAL_SOFTWARE.fabric_rate
    data_overlap: bool = IDEAL_SOFTWARE.data_overlap
    early_stop: bool = IDEAL_SOFTWARE.early_stop


_Ratio = Annotated[float, Field(gt=0, le=100)]


class _Uncertainty(Sourced):
    low: _Ratio
    high: _Ratio
    compared: Annotated[float, Field(ge=0, le=10)] | None = None
    steps: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"found low {self.low:g} above high {self.high:g}; exchange them")
        return self


class _Cluster(FileModel):
    name: _Text
    description: str = ""
    accelerator: _Text | None = None
    dimensions: Annotated[tuple[_Dimension, ...], Field(min_length=1, max_length=16)]
    endpoint: _Endpoint | None = None
    host: _Host | None = None
    software: _Software | None = None
    uncertainty: _Uncertainty | None = None


class _ClusterFile(FileModel):
    cluster: _Cluster


def _sections(document: Document) -> list[KeyPath]:
    root = document.data.get("cluster") if isinstance(document.data, dict) else None
    dimensions = root.get("dimensions") if isinstance(root, dict) else None
    count = len(dimensions) if isinstance(dimensions, list) else 0
    return [("cluster", "dimensions", index) for index in range(count)]


def _with_dimension_problems(document: Document, sections: list[KeyPath]) -> Document:
    """Return the document with a problem for each dimension whose size or shape is missing or does not fit its
    topology, or whose name another one has."""
    root = document.data["cluster"] if isinstance(document.data, dict) and sections else None
    dimensions = root["dimensions"] if isinstance(root, dict) else None
    problems, names = [], set()
    for path, dimension in zip(sections, dimensions if isinstance(dimensions, list) else [], strict=False):
        if not isinstance(dimension, dict):
            continue
        name, torus = dimension.get("name"), dimension.get("topology") == "torus"
        if isinstance(name, str):
            if name in names:
                message = f"found {name!r}, which another dimension is called; give each a name of its own"
                problems.append(document.problem((*path, "name"), message))
            names.add(name)
        key, other = ("shape", "size") if torus else ("size", "shape")
        example = "[16, 16, 16]" if torus else "8"
        kind = "a torus" if torus else "a dimension that is no torus"
        if other in dimension:
            message = f"{kind} has no {other}; write '{key}: {example}' instead"
            problems.append(document.problem((*path, other), message, at_key=True))
        elif key not in dimension:
            message = f"the key {key!r} is missing in {dotted((*path, key))!r}; add '{key}: {example}'"
            problems.append(document.problem((*path, key), message))
    return replace(document, problems=(*document.problems, *problems))


def cluster_names() -> tuple[str, ...]:
    """Return the names of the built-in clusters."""
    return builtin_names("clusters")


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Return a built-in cluster by name, or the one of a YAML file by path.

    Raises :class:`ConfigError` with all problems of the file, or with a suggestion for an unknown name.
    """
    document = read_lenient(locate(name_or_path, "clusters", "cluster"))
    sections = _sections(document)
    others: list[KeyPath] = [("cluster", part) for part in ("endpoint", "host", "software", "uncertainty")]
    document = _with_dimension_problems(check_sources(document, [*sections, *others]), sections)
    file = parse_document(document, _ClusterFile).cluster
    dimensions: list[NetworkDimension] = []
    sources: dict[str, str] = {}
    for section, dimension in zip(sections, file.dimensions, strict=True):
        texts = collect_sources(document, [section])
        for ring in _rings(dimension):
            for key, text in texts.items():
                sources[f"dimensions[{len(dimensions)}].{'size' if key == 'shape' else key}"] = text
            dimensions.append(ring)
    for section in others:
        if section[-1] in file.model_fields_set:
            texts = collect_sources(document, [section])
            sources |= {f"{section[-1]}.{key}": text for key, text in texts.items()}
    endpoint, host, software = file.endpoint, file.host, file.software
    cluster = Cluster(
        name=file.name,
        dimensions=tuple(dimensions),
        sources=sources,
        endpoint=Endpoint(start_s=endpoint.start, pass_bytes_per_s=endpoint.pass_bandwidth) if endpoint else Endpoint(),
        host=Host(bandwidth_bytes_per_s=host.bandwidth, memory_bytes=host.memory) if host else None,
        accelerator=file.accelerator,
        uncertainty=None if file.uncertainty is None else _uncertainty(file.uncertainty),
    )
    return cluster if software is None else cluster.under(_software(software))


def _software(fields: _Software) -> Software:
    return Software(
        dispatch_s=fields.dispatch,
        tensor_rate=fields.tensor_rate,
        vector_traffic=fields.vector_traffic,
        attention_time=fields.attention_time,
        attention_gradient_time=fields.attention_gradient_time,
        tensor_pieces=fields.tensor_pieces,
        link_rate=fields.link_rate,
        fabric_rate=fields.fabric_rate,
        data_overlap=fields.data_overlap,
        early_stop=fields.early_stop,
    )


def _uncertainty(fields: _Uncertainty) -> Uncertainty:
    return Uncertainty(low=fields.low, high=fields.high, compared=fields.compared, steps=fields.steps)


def _rings(dimension: _Dimension) -> list[NetworkDimension]:
    """Return the dimension, or the rings that a torus consists of."""
    torus = dimension.shape is not None
    sizes = dimension.shape or (dimension.size or 1,)
    return [
        NetworkDimension(
            name=f"{dimension.name}{index}" if torus and len(sizes) > 1 else dimension.name,
            topology=Topology.RING if torus else Topology(dimension.topology.value),
            size=size,
            bandwidth_bytes_per_s=dimension.bandwidth,
            latency_s=dimension.latency,
            achievable=tuple((entry.message, entry.fraction) for entry in dimension.achievable),
        )
        for index, size in enumerate(sizes)
    ]
