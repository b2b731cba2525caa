"""What run files have in common: names of built-in things or of files, lists that hold each choice once."""

from collections.abc import Callable, Mapping
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.arch_configs.files import Document, KeyPath
from archplace.workloads import is_trace

LEAST_HBM_BYTES = 2**20
"""A smaller capacity is a forgotten unit."""


def resolve(folder: Path, name: str) -> str:
    """Take a name that looks like a file relative to the run file's folder."""
    is_file = name.endswith((".yaml", ".yml")) or "/" in name or is_trace(name)
    return str(folder / name) if is_file else name


def placed(document: Document, key: KeyPath, problem: Problem) -> Problem:
    """Give a problem that has no line of its own the place of the value that named what was not found."""
    if ":" in problem.place:
        return problem
    return document.problem(key, f"{problem.place}: {problem.message}" if problem.place else problem.message)


def unknown_names(document: Document, folder: Path, loaders: Mapping[str, Callable[[str], object]]) -> list[Problem]:
    """Return the problems of what the keys of ``loaders`` name, as far as the file's shape lets one see names."""
    run = document.data.get("run") if isinstance(document.data, dict) else None
    if not isinstance(run, dict):
        return []
    found: list[Problem] = []
    for key, load in loaders.items():
        name = run.get(key)
        if isinstance(name, str):
            try:
                load(resolve(folder, name))
            except ConfigError as error:
                found += [placed(document, ("run", key), problem) for problem in error.problems]
    return found


def check_distinct(value: tuple[object, ...] | None) -> None:
    """Raise ``ValueError`` for a list in which a choice stands twice."""
    if value is not None and len(set(value)) < len(value):
        found = ", ".join(map(str, value))
        raise ValueError(f"found [{found}]; each choice may stand once: remove the repetition")


def check_capacity(capacity_bytes: float) -> None:
    """Raise ``ValueError`` for a memory so small that its unit must have been forgotten."""
    if capacity_bytes < LEAST_HBM_BYTES:
        raise ValueError(
            f"found {capacity_bytes:g} bytes; did you mean '{capacity_bytes:g} GB'? Numbers without unit are bytes"
        )
