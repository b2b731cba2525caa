"""Files that are written whole or not at all, compressed where their name ends in ``.gz``."""

import gzip
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from archplace.arch_configs.errors import ConfigError, Problem

_GZIP_LEVEL = 1


class Sink:
    """A file that appears under its name when all is written; a context manager.

    What is interrupted leaves none behind. The same bytes in give the same file: no time or name goes into gzip. Raises
    :class:`ConfigError` where the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._partial = self.path.with_name(f"{self.path.name}.partial-{os.getpid()}")
        try:
            self._raw = self._partial.open("wb")
        except OSError as error:
            raise self._unwritable(error) from None
        self._stream: BinaryIO = self._raw
        if self.path.suffix == ".gz":
            packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=self._raw, mtime=0)
            self._stream = cast(BinaryIO, packed)

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(keep=kind is None)

    def close(self, *, keep: bool) -> None:
        """End the file; ``keep`` says whether it is whole."""
        try:
            if self._stream is not self._raw:
                self._stream.close()
            self._raw.close()
            if keep:
                self._partial.replace(self.path)
        except OSError as problem:
            raise self._unwritable(problem) from None
        finally:
            self._partial.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Write ``data``."""
        try:
            self._stream.write(data)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> ConfigError:
        message = f"cannot be written: {error.strerror or error}"
        return ConfigError([Problem(place=str(self.path), key="", message=message)])
