"""Binaries of ASTRA-sim: where they are, and which of the analytical backends each is."""

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from archplace.arch_configs.errors import ConfigError

VARIABLE = "ARCHPLACE_ASTRA_SIM"
"""Environment variable with the path of a binary."""
_NAMES = ("AstraSim_Analytical_Congestion_Unaware", "AstraSim_Analytical_Congestion_Aware")


class Backend(StrEnum):
    """How the network is simulated."""

    WITHOUT_CONGESTION = "without congestion"
    WITH_CONGESTION = "with congestion"
    """Networks of one dimension; messages queue at links, and pass a switch as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A program to run cases with."""

    path: Path
    backend: Backend

    @classmethod
    def at(cls, path: Path, *, named_by: str = "--binary") -> "Binary":
        """Return the binary at ``path``; which backend it is, its name says. Raises :class:`ConfigError`."""
        if not path.exists():
            raise ConfigError(f"{named_by}: found {path}, which does not exist; give the path of {_NAMES[0]}")
        if path.is_dir():
            inside = next((each for name in _NAMES for each in path.rglob(name) if each.is_file()), None)
            hint = f"; it holds {inside}" if inside is not None else ""
            raise ConfigError(f"{named_by}: found {path}, which is a folder; give the path of {_NAMES[0]}{hint}")
        if not os.access(path, os.X_OK):
            raise ConfigError(f"{named_by}: found {path}, which is not executable; make it so with: chmod +x {path}")
        aware = path.name.lower().endswith("congestion_aware")
        return cls(path=path.resolve(), backend=Backend.WITH_CONGESTION if aware else Backend.WITHOUT_CONGESTION)


def find_binary() -> Binary | None:
    """Return the binary that the environment names, or else one on the search path, or None.

    Raises :class:`ConfigError` where the environment names something else than a program.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Binary.at(Path(named), named_by=VARIABLE)
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    return None if found is None else Binary.at(Path(found))


NO_BINARY = (
    f"no binary of ASTRA-sim: give --binary PATH, set {VARIABLE}, or put {_NAMES[0]} on the search path; it is built "
    "from github.com/astra-sim/astra-sim, target analytical"
)
