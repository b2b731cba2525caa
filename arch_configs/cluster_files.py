"""Clusters from YAML files: the built-in ones by name, the user's by path."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from archplace.arch_configs._builtin import builtin_names, locate
from archplace.arch_configs._sources import Sourced, check_sources, collect_sources
from archplace.arch_configs._yaml import Document, KeyPath
from archplace.arch_configs.cluster import Cluster, NetworkDimension, Topology
from archplace.arch_configs.files import FileModel, parse_document, read_lenient
from archplace.arch_configs.units import BytesPerSecond, SecondsOrZero

_Text = Annotated[str, Field(min_length=1)]


class _Dimension(Sourced):
    name: _Text
    topology: Topology
    size: Annotated[int, Field(ge=1, le=2**24)]
    bandwidth: BytesPerSecond
    latency: SecondsOrZero


class _Cluster(FileModel):
    name: _Text
    description: str = ""
    dimensions: Annotated[tuple[_Dimension, ...], Field(min_length=1, max_length=16)]


class _ClusterFile(FileModel):
    cluster: _Cluster


def _sections(document: Document) -> list[KeyPath]:
    root = document.data.get("cluster") if isinstance(document.data, dict) else None
    dimensions = root.get("dimensions") if isinstance(root, dict) else None
    count = len(dimensions) if isinstance(dimensions, list) else 0
    return [("cluster", "dimensions", index) for index in range(count)]


def cluster_names() -> tuple[str, ...]:
    """Return the names of the built-in clusters."""
    return builtin_names("clusters")


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Return a built-in cluster by name, or the one of a YAML file by path.

    Raises :class:`ConfigError` with all problems of the file, or with a suggestion for an unknown name.
    """
    document = read_lenient(locate(name_or_path, "clusters", "cluster"))
    sections = _sections(document)
    document = check_sources(document, sections)
    file = parse_document(document, _ClusterFile).cluster
    sources = {
        f"dimensions[{index}].{key}": text
        for index, section in enumerate(sections)
        for key, text in collect_sources(document, [section]).items()
    }
    dimensions = tuple(
        NetworkDimension(
            name=dimension.name,
            topology=dimension.topology,
            size=dimension.size,
            bandwidth_bytes_per_s=dimension.bandwidth,
            latency_s=dimension.latency,
        )
        for dimension in file.dimensions
    )
    return Cluster(name=file.name, dimensions=dimensions, sources=sources)
