"""Every section of a hardware file that holds numbers says where they come from.

A section has a key ``source``: one text for all its numbers, or a mapping from each of its keys to a text.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator

from archplace.arch_configs._yaml import Document, KeyPath, YamlValue, dotted
from archplace.arch_configs.errors import Problem
from archplace.arch_configs.files import FileModel


def _as_mapping(value: object) -> object:
    if isinstance(value, str):
        return {"": value}
    if not isinstance(value, dict):
        raise ValueError("the source must be text, or a mapping from the section's keys to text")
    return value


Source = Annotated[dict[str, str], BeforeValidator(_as_mapping)]


class Sourced(FileModel):
    """A section with numbers."""

    source: Source


_NO_NUMBERS = frozenset({"name", "description", "source", "topology", "technology", "separate_ports", "cached"})


def _numbers(section: dict[str, YamlValue], sections: frozenset[str]) -> list[str]:
    return [key for key in section if key not in _NO_NUMBERS and key not in sections]


def check_sources(document: Document, paths: list[KeyPath]) -> Document:
    """Return the document with a problem for each number in the sections at ``paths`` that has no source.

    Sections without the key ``source`` are left to the schema, which requires it; absent sections are passed over.
    """
    problems: list[Problem] = []
    below = {path[:-1]: frozenset(str(p[-1]) for p in paths if p[:-1] == path[:-1]) for path in paths}
    for path in paths:
        section = _at(document.data, path)
        source = section.get("source") if isinstance(section, dict) else None
        if not isinstance(section, dict) or source is None:
            continue
        here = (*path, "source")
        numbers = _numbers(section, below.get(path, frozenset()))
        if isinstance(source, str) and not source.strip():
            problems.append(document.problem(here, "found an empty text; say where the numbers come from"))
        if isinstance(source, dict):
            for key, text in source.items():
                if key not in numbers:
                    message = f"names {key!r}, which is no number of this section; allowed: {', '.join(numbers)}"
                    problems.append(document.problem((*here, key), message, at_key=True))
                elif isinstance(text, str) and not text.strip():
                    problems.append(document.problem((*here, key), "found an empty text; say where it comes from"))
            missing = [key for key in numbers if key not in source]
            if missing:
                problems.append(
                    document.problem(here, f"says nothing about {', '.join(missing)}; add each with its source")
                )
    return replace(document, problems=(*document.problems, *problems))


def _at(data: YamlValue, path: KeyPath) -> YamlValue:
    for part in path:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def collect_sources(document: Document, paths: list[KeyPath]) -> dict[str, str]:
    """Return dotted key, relative to the first of ``paths``, to source text; the document has been validated."""
    root = len(paths[0])
    below = {path[:-1]: frozenset(str(p[-1]) for p in paths if p[:-1] == path[:-1]) for path in paths}
    sources: dict[str, str] = {}
    for path in paths:
        section = _at(document.data, path)
        if isinstance(section, dict):
            source = section["source"]
            for key in _numbers(section, below.get(path, frozenset())):
                text = source[key] if isinstance(source, dict) else source
                sources[dotted((*path[root:], key))] = str(text)
    return sources
