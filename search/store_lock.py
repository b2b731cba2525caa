"""One process at a time may write a run folder."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from archplace.arch_configs.errors import StoreError

LOCK_FILE = "run.lock"

_SECONDS_TO_WAIT = 1.0
"""For somebody who only looks whether the folder is locked; a process that writes keeps it for longer."""


@dataclass(frozen=True, slots=True)
class StoreLock:
    """Holds a run folder until released; the operating system releases it when the process ends in whatever way.

    An SQLite file of its own on which an exclusive transaction stays open: SQLite knows how to lock on every system,
    network file systems included, and the store itself stays readable.
    """

    connection: sqlite3.Connection

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Lock ``folder``. Raises :class:`StoreError` when another process holds it, or it cannot be written."""
        path = folder / LOCK_FILE
        if path.exists() and not os.access(path, os.W_OK):
            # SQLite would lock it for reading, which keeps nobody out.
            raise _unusable(folder, "no right to write")
        connection = None
        try:
            connection = sqlite3.connect(path, timeout=_SECONDS_TO_WAIT, isolation_level=None)
            connection.execute("begin exclusive")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if "locked" in str(error):
                raise StoreError(
                    f"{folder}: another process is writing here; wait for it, or give another --out "
                    f"(watch it with: archplace status {folder})"
                ) from None
            reason = "no right to write" if not os.access(folder, os.W_OK) else str(error)
            raise _unusable(folder, reason) from None
        return cls(connection)

    def release(self) -> None:
        """Let others write."""
        self.connection.close()


def _unusable(folder: Path, reason: str) -> StoreError:
    return StoreError(f"{folder}: cannot be used as run folder ({reason}); give another --out")


def is_locked(folder: Path) -> bool:
    """Return whether a process is writing ``folder`` now; False where that cannot be told. Changes nothing."""
    path = folder / LOCK_FILE
    if not path.is_file():
        return False
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
    except sqlite3.Error:
        return False
    try:
        connection.execute("select count(*) from sqlite_master")
    except sqlite3.Error as error:
        return "locked" in str(error)
    finally:
        connection.close()
    return False
