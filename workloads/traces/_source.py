"""The bytes of a trace file, plain or gzip, in bounded memory, with every failure named by its place."""

import gzip
import os
import stat
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from archplace.arch_configs.errors import ConfigError, Problem

BLOCK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
FREE_BYTES = 64 << 20
MOST_EXPANSION = 300
"""Traces are text and numbers that differ from node to node: gzip makes them 10 to 60 times smaller. The format's own
limit is 1,032, which only repetition reaches."""

_SHOWN = 4
_SUFFIXES = (".et", ".et.gz", ".json", ".json.gz")


def _inside(path: Path) -> str:
    """Name traces that lie in what should be one and is a folder."""
    if not path.is_dir():
        return ""
    try:
        names = sorted(each.name for each in path.iterdir() if each.name.endswith(_SUFFIXES))
    except OSError:
        return ""
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"; give one of its files: {shown}" if names else "; give a trace's file"


class Source:
    """An open trace file; a context manager. ``offset`` counts bytes after decompression."""

    def __init__(self, path: str | Path) -> None:
        """Open ``path``. Raises :class:`ConfigError` where it cannot be read."""
        self.path = Path(path)
        self.offset = 0
        try:
            self._raw = self.path.open("rb")
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}{_inside(self.path)}"
            raise ConfigError([self._problem("", why)]) from None
        found = os.fstat(self._raw.fileno())
        self._size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        self._consumed = 0
        self.compressed = self._raw.peek(2)[:2] == GZIP_MAGIC
        self._stream: BinaryIO = cast(BinaryIO, gzip.GzipFile(fileobj=self._raw)) if self.compressed else self._raw

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._raw.close()

    @property
    def share(self) -> float | None:
        """How much of the file has been read, from 0 to 1; None where its size is not known, as of a pipe."""
        return self._consumed / self._size if self._size else None

    def read(self, count: int = BLOCK_BYTES) -> bytes:
        """Return the next bytes, at most ``count``, none at the end. Raises :class:`ConfigError` for broken gzip."""
        try:
            block = self._stream.read(count)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            text = "ends too early" if isinstance(error, EOFError) else str(error)
            raise self.error(
                f"the gzip data cannot be expanded any further: {text}; copy or compress the file again"
            ) from None
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from None
        self.offset += len(block)
        if self._size:
            self._consumed = self._raw.tell() if self.compressed else self.offset
        if self.compressed and self.offset > max(FREE_BYTES, MOST_EXPANSION * self._consumed) and self._size:
            raise self.error(
                f"{self._consumed:,} bytes of gzip have become {self.offset:,}: traces do not repeat themselves more "
                f"than {MOST_EXPANSION}-fold; expand the file yourself if it is what it says"
            )
        return block

    def error(self, message: str, offset: int | None = None) -> ConfigError:
        """Return the error for what is wrong at ``offset``, or at the place reached."""
        at = self.offset if offset is None else offset
        place = f"byte {at:,}" + (" of the expanded data" if self.compressed else "")
        return ConfigError([self._problem(place, message)])

    def _problem(self, key: str, message: str) -> Problem:
        return Problem(place=str(self.path), key=key, message=message)
