"""Read placement instances from JSON, plain or gzipped.

Two formats: that of PHAZE's placement solver, one instance or a list of ``{name, instance}``; and one for the questions
that NEST asks, one instance or a list of them, with ``"schema": "nest-dp-1"``. A list may mix them.
"""

import gzip
import json
import zlib
from pathlib import Path

from pydantic import BaseModel, JsonValue, ValidationError

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.search.placement import _nest_file, _phaze_file
from archplace.search.placement._instance_checks import Findings, Strict
from archplace.search.placement.instances import NestInstance, PlacementInstance


class _Entry(Strict):
    name: str
    instance: _phaze_file.PhazeInstance
    expected: JsonValue = None
    """A known answer, kept for whoever compares; the search does not read it."""


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


def _read(entry: object, name: str, names: set[str], findings: Findings) -> PlacementInstance | NestInstance | None:
    """Return the instance that ``entry`` gives, or add what is wrong with it; add its name to ``names``."""
    keys = set(entry) if isinstance(entry, dict) else set()
    models: tuple[type[BaseModel], ...] = (_Entry, *_phaze_file.MODELS)
    try:
        if keys & {"schema", "graphs"}:
            models = _nest_file.MODELS
            question = _nest_file.RawNestInstance.model_validate(entry)
            findings.add_name(question.name or name, names)
            return _nest_file.nest_instance(question, question.name or name, findings)
        if keys & {"instance", "name"}:
            named = _Entry.model_validate(entry)
            inner = findings.within("instance")
            inner.add_name(named.name, names)
            return _phaze_file.phaze_instance(named.instance, named.name, inner)
        raw = _phaze_file.PhazeInstance.model_validate(entry)
        findings.add_name(name, names)
        return _phaze_file.phaze_instance(raw, name, findings)
    except ValidationError as error:
        findings.add_invalid(error, models)
        return None


def read_instances(path: Path) -> list[PlacementInstance | NestInstance]:
    """Return the instances in the JSON file ``path`` (plain or gzipped), in the file's order.

    An instance without a name is called by the file's stem or its index in the list. Raises ``ConfigError`` with
    everything that is wrong with the file.
    """
    place = str(path)
    loaded = _load(path)
    listed = isinstance(loaded, list)
    entries: list[object] = list(loaded) if isinstance(loaded, list) else [loaded]
    if not entries:
        raise ConfigError([Problem(place=place, key="", message="an empty list; give at least one instance")])
    problems: list[Problem] = []
    instances: list[PlacementInstance | NestInstance] = []
    names: set[str] = set()
    for index, entry in enumerate(entries):
        findings = Findings(place=place, prefix=f"{index}." if listed else "")
        name = str(index) if listed else path.name.split(".")[0]
        instance = _read(entry, name, names, findings)
        if instance is not None:
            instances.append(instance)
        problems += findings.problems
    if problems:
        raise ConfigError(problems)
    return instances
