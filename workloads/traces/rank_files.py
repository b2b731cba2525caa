"""The files of a job: one trace for each rank, ``NAME.RANK.et``, and its process groups beside them."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traces._sink import Sink

GROUPS_FILE = "groups.json"
_ENDING = r"(?:\.(?:et|json|chakra|pb))"
_NAMED = re.compile(rf"^(.*?)(?:\.(\d{{1,9}}))?({_ENDING}*(?:\.gz)?)$", re.DOTALL)


def split_name(path: str | Path) -> tuple[str, int | None, str]:
    """Return what a trace's name says: its stem, the rank or None, and the endings (``.et``, ``.json.gz``), or none."""
    match = _NAMED.match(Path(path).name)
    assert match is not None  # each part may be empty
    return match[1], None if match[2] is None else int(match[2]), match[3]


def is_file_name(path: str | Path) -> bool:
    """Whether a name is that of one trace, by its endings; others are folders."""
    return bool(re.search(rf"{_ENDING}(?:\.gz)?$", Path(path).name))


def traces_in(folder: Path) -> list[Path]:
    """Return the traces of ranks in a folder, or in its folder ``traces``, by name.

    Raises ConfigError where there is none.
    """
    for place in (folder, folder / "traces"):
        if place.is_dir():
            named = (path for path in place.iterdir() if is_file_name(path) and split_name(path)[1] is not None)
            found = sorted(named)
            if found:
                return found
    raise ConfigError([Problem(place=str(folder), key="", message="no traces NAME.RANK.et in this folder")])


def strangers(written: Collection[Path]) -> list[Path]:
    """Return traces of ranks that lie beside those that were written, and are not among them."""
    folders = {path.parent for path in written}
    beside = {path for folder in folders for path in folder.iterdir() if is_file_name(path)} - set(written)
    return sorted(path for path in beside if split_name(path)[1] is not None)


def make_folder(path: str | Path) -> Path:
    """Make a folder where there is none. Raises ConfigError where that cannot be."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"no folder can be made there: {error.strerror or error}"
        raise ConfigError([Problem(place=str(folder), key="", message=message)]) from None
    return folder


def groups_text(groups: Mapping[str, Sequence[int]]) -> str:
    """Return process groups as JSON, ``{name: [ranks]}``, sorted by name."""
    return json.dumps({name: list(ranks) for name, ranks in groups.items()}, sort_keys=True)


def write_groups(groups: Mapping[str, Sequence[int]], folder: Path) -> Path:
    """Write ``groups.json``, as simulators read process groups, and return its path."""
    with Sink(folder / GROUPS_FILE) as sink:
        sink.write(groups_text(groups).encode() + b"\n")
    return folder / GROUPS_FILE
